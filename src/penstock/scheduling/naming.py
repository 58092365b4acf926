"""Policies by name: parts joined by slashes, in any order, each with arguments in brackets.

    max-benefit
    proportional(all, aggressive, k=1) / max-benefit / inherit=max / chop=3

A part is an order (who goes first), a placement (on which track), `inherit=` (priorities of sources) or `chop=` (the most
periods of data that one job takes, or a range such as `3..10`). What is left out is Max Benefit, global, max, and no chopping.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.scheduling.chopping import Chop
from penstock.scheduling.inheritance import DEFAULT_K, RULES

_PART = re.compile(r"([A-Za-z][\w.:-]*)\s*(?:\((.*)\))?", re.ASCII | re.DOTALL)
_SETTING = re.compile(r"(inherit|chop)\s*=\s*(.*)", re.ASCII | re.DOTALL)


class PolicyNameError(ValueError):
    """A text that names no policy."""


@dataclass
class PolicyPart:
    name: str
    words: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)


@dataclass
class Recipe:
    parts: list[PolicyPart] = field(default_factory=list)
    inherit: str = "max"
    inherit_k: float = DEFAULT_K
    chop: Chop | float | None = None


def parse(text: str) -> Recipe:
    recipe = Recipe()
    seen: set[str] = set()
    for piece in text.split("/"):
        piece = piece.strip()
        if not piece:
            raise PolicyNameError(f"{text!r} has an empty part; write for example max-benefit / inherit=max / chop=3")
        setting = _SETTING.fullmatch(piece)
        if setting is None:
            recipe.parts.append(part(piece))
            continue
        key, value = setting[1], setting[2].strip()
        if key in seen:
            raise PolicyNameError(f"{text!r} says {key}= twice")
        seen.add(key)
        if key == "chop":
            recipe.chop = _chop(piece, value)
        else:
            _inherit(recipe, piece, value)
    return recipe


def _chop(piece: str, value: str) -> Chop | float:
    least, dots, most = value.partition("..")
    first = number(piece, least.strip(), at_least=1)
    return Chop(first, number(piece, most.strip(), at_least=first)) if dots else first


def _inherit(recipe: Recipe, piece: str, value: str) -> None:
    rule = part(value)
    if rule.name not in RULES:
        raise PolicyNameError(f"{piece!r}: {rule.name!r} is not a way to inherit; expected one of {', '.join(RULES)}")
    recipe.inherit = rule.name
    given = rule.words + [f"{k}={v}" for k, v in rule.settings.items()]
    if not given:
        return
    if rule.name != "max-plus" or len(given) != 1:
        raise PolicyNameError(f"{piece!r}: only max-plus takes a number, for example inherit=max-plus({DEFAULT_K:g})")
    recipe.inherit_k = number(piece, given[0].split("=")[-1].strip(), at_least=1)


def part(text: str) -> PolicyPart:
    match = _PART.fullmatch(text.strip())
    if match is None:
        raise PolicyNameError(f"{text!r} is not a part of a policy; write for example edf or proportional(all, k=1)")
    found = PolicyPart(match[1])
    for argument in (match[2] or "").split(","):
        argument = argument.strip()
        if "=" in argument:
            key, _, value = argument.partition("=")
            found.settings[key.strip().replace("-", "_")] = value.strip()
        elif argument:
            found.words.append(argument)
        elif match[2] and match[2].strip():
            raise PolicyNameError(f"{text!r} has an empty argument")
    return found


def number(where: str, text: str, at_least: float = float("-inf")) -> float:
    try:
        value = float(text)
    except ValueError:
        raise PolicyNameError(f"{where!r}: {text!r} is not a number") from None
    if not value >= at_least:
        raise PolicyNameError(f"{where!r}: expected at least {at_least:g}")
    return value


def nearest(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def make(found: PolicyPart, factory: Callable[..., Any], switches: Mapping[str, Mapping[str, Any]]) -> Any:
    """Call a factory with what was written in the brackets. `switches` are the words and what they set."""
    known = inspect.signature(factory).parameters
    arguments: dict[str, Any] = {}
    for word in found.words:
        if word not in switches:
            said = ", ".join(switches) or "none"
            raise PolicyNameError(
                f"{found.name!r} does not know {word!r}; its words are: {said}{nearest(word, switches)}"
            )
        arguments.update(switches[word])
    for key, value in found.settings.items():
        if key not in known or key in ("graph", "weights") or any(key in set_ for set_ in switches.values()):
            own = [k for k in known if k not in ("graph", "weights") and not any(k in s for s in switches.values())]
            raise PolicyNameError(f"{found.name!r} has no setting {key!r}; it has: {', '.join(own) or 'none'}")
        default = known[key].default
        if isinstance(default, str):
            arguments[key] = value
        else:
            given = number(f"{found.name}({key}={value})", value)
            arguments[key] = int(given) if isinstance(default, int) and given == int(given) else given
    try:
        return factory(**arguments)
    except ValueError as error:
        raise PolicyNameError(f"{found.name}: {error}") from None
