"""A wrong policy is an error, never a corrupt table or a loop without end.

Whoever drives a policy, the controller or a loop of the simulator, asks it through `decide` here. A decision that passes can
be carried out: every job is ready, has a free track of its own and something to do, and the policy is woken later than now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, NoReturn, TypeGuard, TypeVar

from penstock.errors import PenstockError
from penstock.model.graph import Graph
from penstock.scheduling.chopping import Chop
from penstock.scheduling.jobs import Decision, PolicyError, Situation, Start
from penstock.scheduling.protocol import KnowsTables, UpdatePolicy, decides, powers

T = TypeVar("T")


def bound(policy: UpdatePolicy, graph: Graph) -> UpdatePolicy:
    """A policy that knows the tables, if it wants to. What it says of itself is checked here, once for all decisions."""
    found = attempt(policy.for_graph, graph) if isinstance(policy, KnowsTables) else policy
    if not decides(found):
        raise PolicyError(f"the policy for these tables is {found!r}; expected one with decide(situation)")
    can = powers(found)
    weights, chop = can.weights, can.chop
    for name in graph.order if weights else ():
        weight = weights.get(name) if isinstance(weights, Mapping) else None
        if not _is_number(weight):
            raise PolicyError(f"the policy's weights say {weight!r} of {name}; expected a number for each table")
    if not (chop is None or isinstance(chop, Chop) or (_is_number(chop) and chop > 0)):
        raise PolicyError(f"the policy's chop is {chop!r}; expected a number of periods above 0, a Chop, or None")
    return found


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def attempt(call: Callable[..., T], *given: Any) -> T:
    """Call something of the policy's own."""
    try:
        return call(*given)
    except PenstockError:
        raise
    except Exception as error:
        raise failure(error) from error


def decide(policy: UpdatePolicy, situation: Situation) -> Decision:
    """What the policy decides, if that is possible."""
    decision = attempt(policy.decide, situation)
    guard(situation, decision)
    return decision


def guard(situation: Situation, decision: Decision) -> None:
    """Refuse what is empty or impossible."""
    # By type, not by isinstance: a simulation asks a million times.
    if type(decision) is not Decision or type(decision[0]) not in (tuple, list):
        _unexpected(decision)
    starts, wake_at_us, memory = decision
    if starts:
        free, ready = situation.free, situation.ready
        for start in starts:
            if type(start) is not Start:
                _unexpected(decision)
            table, track, _, take = start
            if type(track) is not int or track not in free:
                raise PolicyError(f"the policy put {table} on track {track}, which is not free")
            if table not in ready:
                raise PolicyError(f"the policy started {table}, which is not ready")
            if take is not None and (type(take) is not int or take < 1):
                raise PolicyError(
                    f"the policy started {table} with take={take!r} of what is ready; expected a number of files or periods: "
                    "at least 1, or None for all"
                )
        if len(starts) > 1:
            _once(starts)
    if wake_at_us is not None and (type(wake_at_us) is not int or wake_at_us <= situation.now_us):
        raise PolicyError(
            f"the policy wants to be woken at {wake_at_us!r}, which is not later than now, {situation.now_us} "
            "(both in microseconds)"
        )
    if memory is not situation.memory:
        _check_memory(memory)


def _once(starts: Sequence[Start]) -> None:
    tracks: set[int] = set()
    tables: set[str] = set()
    for start in starts:
        if start.table in tables:
            raise PolicyError(f"the policy started {start.table} twice")
        if start.track in tracks:
            raise PolicyError(
                f"the policy put {start.table} on track {start.track}, which is not free: it started another table there"
            )
        tracks.add(start.track)
        tables.add(start.table)


def _check_memory(memory: Mapping[str, Any]) -> None:
    if type(memory) is not dict and not isinstance(memory, Mapping):
        raise PolicyError(f"the policy wants to remember {memory!r}, which cannot be written down; expected a mapping")
    for name, value in memory.items():
        if type(name) is not str or not is_plain(value):
            raise PolicyError(
                f"the policy wants to remember {name!r}: {value!r}, which cannot be written down; "
                "expected numbers, texts, lists, and mappings of texts to these"
            )


def reason(start: Start) -> str:
    """Why the policy starts this, in its own words."""
    said = attempt(start.because) if callable(start.because) else start.because
    if not isinstance(said, str):
        raise PolicyError(f"the policy started {start.table} because of {said!r}; expected a sentence")
    return said


def failure(error: Exception) -> PolicyError:
    """An accident of the policy's own code, with the place where it happened."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    place = f" ({at.tb_frame.f_code.co_filename.rpartition('/')[2]}:{at.tb_lineno})" if at is not None else ""
    what = f"{type(error).__name__}: {error}".removesuffix(": ")
    return PolicyError(f"the policy failed with {what}{place}")


def is_plain(value: Any) -> bool:
    """Whether it comes back from JSON as it was."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(type(key) is str and is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, bool | int | str)


def _unexpected(decision: object) -> NoReturn:
    raise PolicyError(
        f"the policy answered {decision!r}; expected a Decision of Starts (penstock.scheduling.jobs), "
        "such as Decision((Start(table, track),))"
    )
