"""What can be set: penstock.toml, feeds and tables, checked at the door."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from penstock.declare.policies import load_policies
from penstock.declare.problems import Location, Problem, ProjectError, did_you_mean
from penstock.declare.toml_lines import Keys, key_lines, line_of
from penstock.model.grain import parse_grain, zone_of
from penstock.model.time import parse_duration
from penstock.model.timetable import parse_timetable
from penstock.queries.live import find_live_policy
from penstock.scheduling.policies import DEFAULT, find_policy

FILE_NAME = "penstock.toml"
NAME = re.compile(r"[a-z_][a-z0-9_]*")
NAME_RULE = "expected small letters, digits and _, beginning with a letter"
M = TypeVar("M", bound=BaseModel)


# Values


def _duration(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, str):
        return parse_duration(value)
    if type(value) is int and value == 0:
        return 0
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'{value} has no unit; write for example "{value}s" or "{value}m"')
    raise ValueError(f'{value!r} is not a duration; write for example "30s", "5m", "1h30m" or "2d"')


def _partition(value: Any) -> Any:
    if isinstance(value, str):
        try:
            parse_grain(value)
        except ValueError as error:
            near = difflib.get_close_matches(value.strip().lower(), ("hour", "day", "week", "month", "none"), 1, 0.5)
            raise ValueError(f"{error}{f'; did you mean `{near[0]}`?' if near else ''}") from None
    return value


def _zone(value: Any) -> Any:
    if isinstance(value, str):
        zone_of(value)
    return value


def _policy(value: Any) -> Any:
    if isinstance(value, str):
        find_policy(value)
    return value


def _query_policy(value: Any) -> Any:
    if isinstance(value, str):
        find_live_policy(value)
    return value


def _name(value: Any) -> Any:
    if isinstance(value, str) and not NAME.fullmatch(value):
        raise ValueError(f"{value!r} cannot be a name; {NAME_RULE}")
    return value


def _store(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        raise ValueError(
            f"{value!r} is not a store; expected sqlite:///path/to/file.db or postgresql://user@host/database"
        )
    if missing := re.search(r"\$(\w+|\{[^}]*\})", os.path.expandvars(value)):
        raise ValueError(f"the environment variable {missing[1].strip('{}')} is not set")
    return value


def _local(value: Any) -> Any:
    if isinstance(value, str) and (scheme := re.match(r"(\w+)://", value)):
        raise ValueError(f"{value!r}: {scheme[1]}:// cannot be used; expected a folder of this machine")
    if isinstance(value, str) and not value.strip():
        raise ValueError('an empty text is not a folder; leave it out, or write for example "warehouse"')
    return value


def _propagate(value: Any) -> Any:
    if value in ("all", "closed"):
        return (value,)
    if value == "none":
        return ()
    expected = 'expected "all", "none", "closed", or a list of reasons such as ["new", "compliance"]'
    if not isinstance(value, list | tuple):
        raise ValueError(f"{value!r} is not a choice of changes; {expected}")
    for reason in value:
        if not isinstance(reason, str) or not reason.strip() or reason in ("all", "none", "closed"):
            raise ValueError(f"{reason!r} cannot be a reason; {expected}")
    return tuple(value)


ABSENT = ("wait", "empty", "fail")


def _absent(value: Any) -> Any:
    """One choice for all sources stands under `*`."""
    found = value if isinstance(value, dict) else {"*": value}
    for name, choice in found.items():
        if choice not in ABSENT:
            where = "" if name == "*" else f" for source `{name}`"
            near = did_you_mean(str(choice), ABSENT)
            raise ValueError(f"{choice!r}{where} is not a choice; expected one of {', '.join(ABSENT)}{near}")
    return dict(found)


def _timetable(value: Any) -> Any:
    if isinstance(value, str):
        parse_timetable(value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int):
        return value
    raise ValueError(f"{value!r} cannot be an option; expected a text, a whole number, true or false")


Duration = Annotated[int, BeforeValidator(_duration)]
Period = Annotated[int, BeforeValidator(_duration), Field(gt=0)]
Partition = Annotated[str, BeforeValidator(_partition)]
Name = Annotated[str, BeforeValidator(_name)]
Positive = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, strict=True)]
Option = Annotated[str | bool | int, BeforeValidator(_plain)]
Propagate = Annotated[tuple[str, ...], BeforeValidator(_propagate)]
Absent = Annotated[dict[str, str], BeforeValidator(_absent)]
Folder = Annotated[str, BeforeValidator(_local)]
Restated = Annotated[str, BeforeValidator(_timetable)]


# Models


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FeedConfig(Strict):
    """A feed of files. The keys below `partition` are those of the base table that takes the rows as they are."""

    path: str
    format: Literal["csv", "json", "parquet"]
    columns: str | None = None
    time: str | None = None
    period: Period = 60_000_000
    lateness: Duration = 0
    jitter: Duration | None = None
    punctuation: str | None = None
    mode: Literal["append", "snapshot"] = "append"
    options: dict[str, Option] = Field(default_factory=dict)
    rules: tuple[str, ...] = ()
    settle: Duration = 500_000
    max_ahead: Duration = 86_400_000_000
    partition: Partition = "none"
    priority: Positive = 1.0
    freshness: Period | None = None
    guarantee: Annotated[bool, Field(strict=True)] = False
    cost: Period | None = None
    restated: Restated | None = None
    keep_versions: Count | None = None
    keep_days: Positive | None = None


# Settings of a feed that belong to its base table.
OF_TABLE = ("partition", "priority", "freshness", "guarantee", "cost", "restated", "keep_versions", "keep_days")


class TableConfig(Strict):
    """The header of a SQL table, or the arguments of a decorated function."""

    name: Name | None = None
    feed: str | None = None
    partition: Partition = "none"
    time: str | None = None
    sources: dict[str, str] = Field(default_factory=dict)
    priority: Positive = 1.0
    period: Period | None = None
    freshness: Period | None = None
    update: Literal["continuous", "closed"] = "continuous"
    history_weight: Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)] = 0.1
    attempts: Count = 4
    propagate: Propagate = ("all",)
    overrun: Literal["queue", "preempt", "skip"] = "queue"
    absent: Absent = Field(default_factory=dict)
    columns: str | None = None
    code_version: str | int | None = None
    keep_versions: Count | None = None
    keep_days: Positive | None = None
    chop: Count | None = None
    # For the adaptive policy and for `penstock bounds`: a reservation, and the longest time of an update with the data of
    # one period.
    guarantee: Annotated[bool, Field(strict=True)] = False
    cost: Period | None = None
    group: Name | None = None
    # How long late work may wait for a newer change; None for what the project says.
    patience: Duration | None = None
    # When its old partitions are stated anew: what is made from it may wait for that.
    restated: Restated | None = None


class StorageConfig(Strict):
    path: Folder = "warehouse"
    # Tables whose own declaration does not say keep this many old versions.
    keep_versions: Count | None = None
    keep_days: Positive | None = 7


class ReplicaConfig(Strict):
    """Another place where tables can be read."""

    path: Annotated[str, Field(min_length=1)]
    # All, if none is named.
    tables: tuple[str, ...] = ()
    # The newest so many versions of each table.
    keep_versions: Count = 10


class StoreConfig(Strict):
    url: Annotated[str, BeforeValidator(_store)] | None = None


class RunConfig(Strict):
    tracks: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = None
    # How long late work of any table may wait for a newer change.
    patience: Duration | None = None
    policy: Annotated[str, BeforeValidator(_policy)] = DEFAULT


class QueriesConfig(Strict):
    """How queries are answered."""

    policy: Annotated[str, BeforeValidator(_query_policy)] = "default"
    lanes: Annotated[int, Field(ge=1, le=1000, strict=True)] = 2
    functions: tuple[str, ...] = ()
    inline_rows: Count = 10_000
    most_rows: Count = 1_000_000
    longest: Period = 600_000_000
    most_waiting: Count = 2_000


class ProfileConfig(Strict):
    """What queries of a user or an application need unless they say otherwise."""

    within: Period | None = None
    fresh: Duration | None = None
    lag: Annotated[int, Field(ge=0, strict=True)] | None = None
    consistent: bool = True
    stale: Literal["mark", "withhold"] = "mark"
    share: Positive = 1.0
    success: Positive = 1.0
    rejected: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    missed: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    outdated: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class ProjectConfig(Strict):
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
    zone: Annotated[str, BeforeValidator(_zone)] = "UTC"
    tables: Folder = "tables"
    storage: StorageConfig = StorageConfig()
    store: StoreConfig = StoreConfig()
    run: RunConfig = RunConfig()
    queries: QueriesConfig = QueriesConfig()
    profiles: dict[Name, ProfileConfig] = Field(default_factory=dict)
    spark: dict[str, Option] = Field(default_factory=dict)
    feeds: dict[str, FeedConfig] = Field(default_factory=dict)
    replicas: dict[Name, ReplicaConfig] = Field(default_factory=dict)


# Checking


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
    "format": 'expected format = "csv", "json" or "parquet"',
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


# Tables of settings whose keys are names of the user's own.
_NAMED: dict[str, type[BaseModel]] = {"feeds": FeedConfig, "replicas": ReplicaConfig, "profiles": ProfileConfig}


def _fields(model: type[BaseModel], keys: Keys) -> list[str]:
    current: Any = model
    for key in keys:
        field = getattr(current, "model_fields", {}).get(key)
        annotation = field.annotation if field is not None else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            current = annotation
        elif keys[0] in _NAMED:
            current = _NAMED[keys[0]]
    return list(getattr(current, "model_fields", {}))


# The file


@dataclass(frozen=True)
class ConfigFile:
    config: ProjectConfig
    flaws: tuple[Flaw, ...]
    lines: Mapping[Keys, int]

    def at(self, *keys: str) -> Location:
        return Location(FILE_NAME, line_of(self.lines, keys))

    @property
    def problems(self) -> list[Problem]:
        return [Problem(self.at(*".".join(flaw.keys).split(".")), flaw.message) for flaw in self.flaws]

    def of_feed(self, name: str) -> tuple[frozenset[str], dict[str, int]]:
        """The settings of a feed that are broken, and the lines of all."""
        place = ("feeds", name)
        broken = frozenset(flaw.keys[2] for flaw in self.flaws if flaw.keys[:2] == place and len(flaw.keys) > 2)
        return broken, {".".join(keys[2:]): line for keys, line in self.lines.items() if keys[:2] == place}


def load_config(folder: Path) -> ConfigFile:
    """Raises `ProjectError` if there is nothing to go on with."""
    path = folder / FILE_NAME
    if not path.is_file():
        message = "there is no such file; make a project with `penstock init`, or name its folder with --project"
        raise ProjectError([Problem(Location(str(path), 1), message)])
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProjectError([Problem(Location(FILE_NAME, 1), f"not UTF-8 text: {error}")]) from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, message = toml_problem(error, text)
        raise ProjectError([Problem(Location(FILE_NAME, line), message)]) from None
    if isinstance(data.get("spark"), dict):
        data["spark"] = _flat(data["spark"])
    load_policies(folder)
    checked = validate(ProjectConfig, data)
    return ConfigFile(checked.value, checked.flaws, key_lines(text))


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`driver.memory = "2g"` is a table in a table to TOML; for Spark it is one name."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        inner = {f"{key}.{name}": each for name, each in _flat(value).items()} if isinstance(value, dict) else None
        found.update(inner or {key: value})
    return found


_BARE_WORD = re.compile(r"\s*[\w.-]+\s*=\s*([A-Za-z_][\w/*.-]*|\d+[a-z]+)\s*(#.*)?$")


def toml_problem(error: tomllib.TOMLDecodeError, text: str) -> tuple[int, str]:
    """The line and what is wrong with it."""
    found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
    lines = text.splitlines()
    line = int(found[1]) if found else len(lines)
    message = f"not valid TOML: {re.sub(r' *[(]at .*[)]', '', str(error))}"
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    if "Cannot overwrite" in message or "Cannot declare" in message:
        message = "not valid TOML: a key stands twice"
    elif found:
        message += f", column {found[2]}"
    if (bare := _BARE_WORD.match(written)) and bare[1] not in ("true", "false"):
        message += f'; a text is written in quotes: "{bare[1]}"'
    return max(line, 1), message
