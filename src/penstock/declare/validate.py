"""Settings against their models: everything that is wrong at once, in words, and as much as can be used of the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from penstock.declare.problems import Keys, did_you_mean

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something wrong with one setting; whoever knows the text knows the line."""

    keys: Keys
    message: str


@dataclass(frozen=True, slots=True)
class Checked(Generic[M]):
    """Settings as far as they can be used: what was wrong is left out, so that the rest can be checked too."""

    value: M
    flaws: tuple[Flaw, ...]

    @property
    def broken(self) -> frozenset[str]:
        """The settings of which nothing is known."""
        return frozenset(flaw.keys[0] for flaw in self.flaws)


# What stands in for a required setting that is missing or wrong.
_STAND_INS: dict[str, Any] = {"path": "?", "format": "csv", "name": "project"}
_MEANING = {
    "path": 'expected the pattern of its files, such as path = "landing/stats/*.csv"',
    "format": 'expected format = "csv", "json", "parquet", "orc", "xml" or "fixed" (text of fixed width)',
    "name": 'expected a name for the project, such as name = "netops"',
    "sources": 'expected a table, such as { stats = "previous" }',
    "options": 'expected a table, such as { sep = ";" }',
}
_EXPECTED = {
    "string_type": 'expected a text in "quotes"',
    "bool_type": "expected true or false",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "tuple_type": 'expected a list, such as ["bytes >= 0"]',
    "dict_type": "expected a table of settings",
    "model_type": "expected a table of settings",
    "model_attributes_type": "expected a table of settings",
}


def validate(model: type[M], data: Mapping[str, Any]) -> Checked[M]:
    """The data as the model, and everything that is wrong with it."""
    flaws: dict[Keys, Flaw] = {}
    usable: dict[str, Any] = _copied(data)
    while True:
        try:
            return Checked(model.model_validate(usable), tuple(flaws.values()))
        except ValidationError as error:
            for found in error.errors():
                keys = _place(data, found)
                if keys not in flaws:
                    flaws[keys] = Flaw(keys, _explain(model, keys, found))
                _leave_out(usable, keys, found["type"] == "missing")


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copied(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, list | tuple) else value


def _place(data: Any, found: ErrorDetails) -> Keys:
    """The keys that lead to the wrong value. Behind them pydantic names its own alternatives."""
    keys: list[str] = []
    for key in found["loc"]:
        if not isinstance(data, Mapping | list | tuple):
            break
        keys.append(str(key))
        data = data.get(key) if isinstance(data, Mapping) else data[int(key)]
    return tuple(keys)


def _leave_out(data: dict[str, Any], keys: Keys, missing: bool) -> None:
    for key in keys[:-1]:
        if not isinstance(data.get(key), dict):
            data.pop(key, None)  # one wrong item: go on without the list
            return
        data = data[key]
    if missing:
        data[keys[-1]] = _STAND_INS[keys[-1]]
    else:
        data.pop(keys[-1], None)


def _explain(model: type[BaseModel], keys: Keys, found: ErrorDetails) -> str:
    name = ".".join(keys)
    kind = found["type"]
    if kind == "extra_forbidden":
        known = _fields(model, keys[:-1])
        return f"unknown key `{name}`{did_you_mean(keys[-1], known)} (known: {', '.join(known)})"
    if kind == "missing":
        return f"`{name}` is missing; {_MEANING.get(keys[-1], 'it is required')}"
    if kind == "value_error":
        return f"`{name}`: {str(found['msg']).removeprefix('Value error, ')}"
    shown = _shown(found.get("input"))
    context = found.get("ctx", {})
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", str(context.get("expected")))
        near = did_you_mean(str(found.get("input")), choices)
        return f"`{name}` is {shown}; expected one of {', '.join(choices)}{near}"
    if kind == "string_pattern_mismatch":
        return f"`{name}` is {shown}; expected letters, digits, - and _, beginning with a letter"
    for bound, words in (("gt", "more than"), ("ge", "at least"), ("le", "at most")):
        if bound in context:
            return f"`{name}` is {shown}; expected {words} {context[bound]:g}"
    meaning = _MEANING.get(keys[-1]) if kind == "dict_type" else None
    return f"`{name}` is {shown}; {meaning or _EXPECTED.get(kind, str(found['msg']))}"


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _fields(model: type[BaseModel], keys: Keys) -> list[str]:
    """The settings that there are at a place; the keys of some tables are names of the user's own."""
    current: Any = model
    for key in keys:
        field = getattr(current, "model_fields", {}).get(key)
        if field is not None:
            inside = (field.annotation, *get_args(field.annotation))
            current = next((one for one in inside if isinstance(one, type) and issubclass(one, BaseModel)), current)
    return list(getattr(current, "model_fields", {}))
