"""Policies by name. Each lives in a module of its own; this page only lists them and puts them together.

`register` adds one from elsewhere, for example from a project's own `policies.py`.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from penstock.model.graph import Graph
from penstock.scheduling.chopping import Chop
from penstock.scheduling.guard import bound
from penstock.scheduling.inheritance import DEFAULT_K, RULES, inherited
from penstock.scheduling.jobs import NOTHING, ByIndex, Decision, Situation
from penstock.scheduling.placement.base import Global, Placement, Ranked, first_on
from penstock.scheduling.placement.edf_partitioned import EdfPartitioned
from penstock.scheduling.placement.hold import Hold
from penstock.scheduling.placement.proportional import Proportional
from penstock.scheduling.placement.reserve import Reserve
from penstock.scheduling.policies.index import Edf, EdfP, Fifo, IndexPolicy, Lookahead, MaxBenefit, Random, Youngest
from penstock.scheduling.policies.patient import Patient
from penstock.scheduling.protocol import UpdatePolicy, decides, powers
from penstock.scheduling.recovery.policy import Adaptive

_new = tuple.__new__  # as in placement/everywhere.py


class Composed:
    """One policy from its parts: an order, a placement, inherited priorities, and how much one job may take."""

    def __init__(
        self,
        order: IndexPolicy,
        placement: Placement,
        inherit: str = "max",
        inherit_k: float = DEFAULT_K,
        chop: Chop | float | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.order, self.placement = order, placement
        self.inherit, self.inherit_k, self.chop = inherit, inherit_k, chop
        self.weights = weights
        self.index, self.why = order.index, order.why
        can = powers(order)
        self.tie, self.lines = can.tie, can.lines
        self.learns = (
            type(order).remember is not IndexPolicy.remember or type(placement).remember is not Placement.remember
        )
        self._by_index = type(order).ranked is IndexPolicy.ranked
        by_time_only = type(order).busy_since_us is IndexPolicy.busy_since_us
        self._only_index = self._by_index and by_time_only and not self.learns and type(placement) is Global

    def for_graph(self, graph: Graph) -> Composed:
        weights = inherited(graph, self.inherit, self.inherit_k)
        return Composed(
            self.order.knowing(graph, weights),
            self.placement.knowing(graph),
            self.inherit,
            self.inherit_k,
            self.chop,
            weights,
        )

    def decide(self, situation: Situation) -> Decision:
        ranked: Ranked
        known = self.order.remember(situation) if self.learns else NOTHING
        if self._only_index and (len(situation.free) == 1 or len(situation.ready) == 1):
            return _new(Decision, (first_on(situation, self.why), None, NOTHING))
        if not self._by_index:
            ranked = self.order.ranked(situation)
        elif self.placement.grouped:
            ranked = ByIndex(situation.ready, situation.now_us, self.order.busy_since_us(situation))
        else:
            ranked = situation.ready.ranked(situation.now_us, self.order.busy_since_us(situation))
        if not self.learns:
            return _new(Decision, (self.placement.place(situation, ranked, self.why), None, NOTHING))
        placed = self.placement.remember(situation)
        memory = {**known, **placed}
        return Decision(self.placement.place(situation, ranked, self.why, memory), None, memory)


# Policies by name: parts joined by slashes, in any order, each with arguments in brackets.
#
#     max-benefit
#     proportional(all, aggressive, k=1) / max-benefit / inherit=max / chop=3
#
# A part is an order (who goes first), a placement (on which track), `inherit=` (priorities of sources) or `chop=` (the most
# periods of data that one job takes, or a range such as `3..10`). What is left out is Max Benefit, global, max, and no chopping.

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


ORDERS: dict[str, Callable[..., IndexPolicy]] = {
    "max-benefit": MaxBenefit,
    "max-benefit-lookahead": Lookahead,
    "max-benefit-youngest": Youngest,
    "patient": Patient,
    "edf": Edf,
    "edf-p": EdfP,
    "fifo": Fifo,
    "random": Random,
}
PLACEMENTS: dict[str, Callable[..., Placement]] = {
    "global": Global,
    "edf-partitioned": EdfPartitioned,
    "proportional": Proportional,
    "reserve": Reserve,
    "hold": Hold,
}
# Policies that decide everything themselves.
WHOLE: dict[str, Callable[..., UpdatePolicy]] = {"adaptive": Adaptive}
POLICIES: dict[str, Callable[..., Any]] = {**ORDERS, **PLACEMENTS, **WHOLE}

_SWITCHES: dict[str, Mapping[str, Mapping[str, Any]]] = {
    "adaptive": {
        "plain": {"plain": True},
        "worst": {"provision": "worst"},
        "average": {"provision": "average"},
        "single": {"periods": "single"},
        "shared": {"periods": "shared"},
    },
    "reserve": {"E": {"by": "E"}, "P": {"by": "P"}},
    "edf-partitioned": {"aggressive": {"aggressive": True}, "non-aggressive": {"aggressive": False}},
    "proportional": {
        "basic": {"all_tracks": False},
        "all": {"all_tracks": True},
        "aggressive": {"aggressive": True},
        "non-aggressive": {"aggressive": False},
        "E": {"by": "E"},
        "P": {"by": "P"},
    },
}

# What a warehouse runs by if nothing else is said. `penstock experiment one-for-all` and `any-workload` compare it with the
# policies of the paper.
DEFAULT = "hold / patient / inherit=chain / chop=3..10"

F = TypeVar("F", bound=Callable[..., Any])


def register(name: str) -> Callable[[F], F]:
    """Make a policy known under a name. What it makes is an order (an `IndexPolicy`), a `Placement`, or anything that
    has `decide`; the names that exist cannot be taken."""

    def remember(factory: F) -> F:
        known = POLICIES.get(name)
        if known is not None and known.__module__ != factory.__module__:
            raise PolicyNameError(f"there is a policy {name!r} already; choose another name")
        for kind in (ORDERS, PLACEMENTS, WHOLE):
            kind.pop(name, None)
        made = factory if isinstance(factory, type) else type(factory())
        if issubclass(made, IndexPolicy):
            ORDERS[name] = factory
        elif issubclass(made, Placement):
            PLACEMENTS[name] = factory
        elif decides(made):
            WHOLE[name] = factory
        else:
            raise PolicyNameError(f"{name!r} is neither an IndexPolicy nor a Placement, and has no decide(situation)")
        POLICIES[name] = factory
        find_policy.cache_clear()
        return factory

    return remember


@lru_cache(maxsize=256)
def find_policy(text: str) -> UpdatePolicy:
    """The policy that a text names, such as `proportional(all, aggressive) / max-benefit / inherit=max / chop=3`."""
    recipe = parse(text)
    order: IndexPolicy | None = None
    placement: Placement | None = None
    for found in recipe.parts:
        if found.name not in POLICIES:
            raise PolicyNameError(
                f"{found.name!r} is not a policy; expected one of {', '.join(sorted(POLICIES))}"
                f"{nearest(found.name, POLICIES)}"
            )
        made = make(found, POLICIES[found.name], _SWITCHES.get(found.name, {}))
        if found.name in WHOLE:
            if "/" in text:
                hint = "; the placement that keeps tracks for short jobs is called 'reserve'" * (
                    found.name == "adaptive"
                )
                raise PolicyNameError(f"{found.name!r} decides everything itself and cannot be combined{hint}")
            policy: UpdatePolicy = made
            return policy
        if found.name in ORDERS:
            if order is not None:
                raise PolicyNameError(f"{text!r} names two orders; one of them can go first")
            order = made
        else:
            if placement is not None:
                raise PolicyNameError(f"{text!r} names two placements")
            placement = made
    return Composed(order or MaxBenefit(), placement or Global(), recipe.inherit, recipe.inherit_k, recipe.chop)


# What earlier versions called otherwise: orders, and a placement that had the name of what is now a whole policy.
_RENAMED = {"balanced": "patient"}


def name_of_now(text: str) -> str:
    """The name of a policy that is on record, if it is still known; else of the one that took its place, or of the default."""
    pieces = [piece.strip() for piece in text.split("/")]
    names = [_RENAMED.get(piece, "reserve" if piece == "adaptive" and "/" in text else piece) for piece in pieces]
    for name in (text, " / ".join(names)):
        try:
            find_policy(name)
        except ValueError:
            continue
        return name
    return DEFAULT


__all__ = [
    "DEFAULT",
    "ORDERS",
    "PLACEMENTS",
    "POLICIES",
    "IndexPolicy",
    "PolicyNameError",
    "bound",
    "find_policy",
    "name_of_now",
    "register",
]
