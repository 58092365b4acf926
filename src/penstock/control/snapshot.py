"""The state as plain data and back, so that a process need not fold the whole log when it starts.

`load(dump(state))` decides and folds exactly as `state` does. Values are JSON: numbers, strings, lists, objects. Fields
are named as in the types they come from; a state of another format is not read but folded again from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from penstock.control.faults import Fault
from penstock.control.feeds import FeedState, Recovering
from penstock.control.files import QuarantinedFile
from penstock.control.promises import Void
from penstock.control.state import State
from penstock.errors import PenstockError
from penstock.model.graph import Graph
from penstock.model.partitions import IntervalMap, PartitionSet
from penstock.model.tables import Feed
from penstock.queries.demand import Demand
from penstock.requests.ledger import UserRequest
from penstock.requests.needs import pending
from penstock.requests.tablestate import Running, TableState
from penstock.scheduling.jobs import FinishedJob

# To be raised with every change of what is remembered or of what it means.
FORMAT = 22

# The numbers of each part, and of the state itself.
_COUNTERS = {
    "": ("now_us", "owner"),
    "ledger": ("event_us", "snapshot", "applied", "number"),
    "declaration": ("tracks", "cores", "policy"),
    "runs": ("jobs",),
    "reading": ("updates", "demand_us", "worked_s", "pressure"),
    "known_feeds": ("watched_us",),
}


class SnapshotError(PenstockError):
    """A saved state that this version cannot read."""


def dump(state: State) -> dict[str, Any]:
    """Everything that the state remembers, as plain data."""
    return {
        "format": FORMAT,
        **{name: getattr(_part(state, part), name) for part, names in _COUNTERS.items() for name in names},
        "feeds": [_FEED.write(feed) for feed in state.graph.feeds.values()],
        "learned_us": dict(state.graph.learned_us),
        "tables": [_TABLE.write(table) for table in state.tables.values()],
        "retired": [_TABLE.write(table) for table in state.retired.values()],
        "former": sorted(state.former),
        "quarantine": [_ASIDE.write(entry) for entry in state.quarantine.values()],
        "rewritten": dict(state.rewritten),
        "requests": [_REQUEST.write(request) for request in state.requests.values()],
        "ended": list(state.backfills.ended),
        "busy": [_RUNNING.write(running) for running in state.busy.values()],
        "memory": dict(state.memory),
        "followed": state.runs.remembered,
        "unseen": [[number, *done] for number, done in state.unseen.items()],
        "awaited": state.awaited.dump(),
        "demand": state.demand.plain(),
        "stretched": dict(state.stretched),
        "feed_states": {name: feed.dump() for name, feed in state.feeds.items()},
        "faults": [_FAULT.write(fault) for fault in state.faults.open.values()],
        "recovering": _RECOVERING.write(state.recovering),
        "void": _VOID.write(state.void),
    }


def load(data: dict[str, Any]) -> State:
    """The state that `dump` was given."""
    if data.get("format") != FORMAT:
        raise SnapshotError(
            f"the saved state has format {data.get('format')!r}, expected {FORMAT}: fold the log from its beginning instead"
        )
    state = State()
    for part, names in _COUNTERS.items():
        for name in names:
            setattr(_part(state, part), name, data[name])
    state.declaration.name_policy(data["policy"])
    ledger, files, runs, reading, feeds = state.ledger, state.files, state.runs, state.reading, state.known_feeds
    runs.busy = {entry["track"]: _RUNNING.read(entry) for entry in data["busy"]}
    tables = [_TABLE.read(entry) for entry in data["tables"]]
    for table in tables:
        busy = state.busy.get(table.running.track) if table.running is not None else None
        if busy is not None and table.running is not None and busy.job.table == table.table.name:
            # One thing, not two; but other tables of a group have a running job of their own beside it.
            table.running = busy if busy.job.id == table.running.job.id else table.running
    ledger.graph = Graph(map(_FEED.read, data["feeds"]), (table.table for table in tables), data["learned_us"])
    ledger.tables = {table.table.name: table for table in tables}
    files.retired = {table.table.name: table for table in map(_TABLE.read, data["retired"])}
    ledger.former = set(data["former"])
    files.quarantine = {found.file.uri: found for found in map(_ASIDE.read, data["quarantine"])}
    files.rewritten = dict(data["rewritten"])
    ledger.requests = {entry["number"]: _REQUEST.read(entry) for entry in data["requests"]}
    state.backfills.ended = deque(data["ended"])
    runs.memory = dict(data["memory"])
    runs.followed = dict(data["followed"])
    runs.unseen = {number: FinishedJob(*done) for number, *done in data["unseen"]}
    state.awaited.load(data["awaited"])
    reading.demand = Demand.of_plain(data["demand"])
    reading.stretched = dict(data.get("stretched", {}))
    feeds.known = {name: FeedState.load(feed) for name, feed in data["feed_states"].items()}
    feeds.recovering = _RECOVERING.read(data["recovering"])
    state.faults.open = {found.part: found for found in map(_FAULT.read, data["faults"])}
    state.promises.void = _VOID.read(data["void"])
    state.touch(state.tables)
    return state


def _part(state: State, name: str) -> Any:
    return getattr(state, name) if name else state


# Typed values as plain data (what JSON has) and back, by the annotations of their types


class Codec(NamedTuple):
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


_PLAIN = Codec(_same, _same)


@cache
def codec(kind: Any) -> Codec:
    origin, args = get_origin(kind), get_args(kind)
    if kind in (int, float, str, bool, NoneType, Any) or origin is Literal:
        return _PLAIN
    if kind is PartitionSet:
        # Pieces that touch stay what they are.
        return Codec(lambda found: [list(one) for one in found], lambda data: PartitionSet(tuple(map(tuple, data))))
    if origin is IntervalMap:
        return _pieces(codec(args[0]))
    if origin in (Union, UnionType):
        return _optional([codec(arg) for arg in args if arg is not NoneType])
    if origin is tuple and args[-1] is not Ellipsis:
        return _fixed([codec(arg) for arg in args])
    if origin is dict:
        inner = codec(args[1])
        if inner is _PLAIN:
            return Codec(dict, dict)
        return Codec(
            lambda found: {name: inner.write(value) for name, value in found.items()},
            lambda data: {name: inner.read(value) for name, value in data.items()},
        )
    if origin in (tuple, list, deque, set):
        return _many(origin, codec(args[0]))
    if is_dataclass(kind):
        return _fields(kind)
    if isinstance(kind, type) and issubclass(kind, tuple):
        # A named tuple is a list of its values.
        inner = _fixed([codec(each) for each in get_type_hints(kind).values()])
        return Codec(inner.write, lambda data: kind(*inner.read(data)))
    raise TypeError(f"{kind} has no plain form")


def _optional(kinds: list[Codec]) -> Codec:
    if all(one is _PLAIN for one in kinds):
        return _PLAIN
    (inner,) = kinds
    return Codec(
        lambda found: None if found is None else inner.write(found),
        lambda data: None if data is None else inner.read(data),
    )


def _many(kind: Callable[[Any], Any], inner: Codec) -> Codec:
    listed: Callable[[Any], list[Any]] = sorted if kind is set else list
    if inner is _PLAIN:
        return Codec(listed, kind)
    return Codec(lambda found: listed(map(inner.write, found)), lambda data: kind(map(inner.read, data)))


def _fixed(kinds: list[Codec]) -> Codec:
    if all(one is _PLAIN for one in kinds):
        return Codec(list, tuple)
    return Codec(
        lambda found: [one.write(value) for one, value in zip(kinds, found, strict=True)],
        lambda data: tuple(one.read(value) for one, value in zip(kinds, data, strict=True)),
    )


def _pieces(inner: Codec) -> Codec:
    """The only maps that are remembered are those of needs: their rule is that of `pending`."""

    def read(data: Any) -> Any:
        found: Any = pending()
        for start, end, value in data:
            found.add(PartitionSet(((start, end),)), inner.read(value))
        return found

    return Codec(lambda found: [[start, end, inner.write(value)] for start, end, value in found.pieces()], read)


def _fields(kind: Any) -> Codec:
    # Made when it is first needed: a job has jobs beside it.
    found: list[tuple[str, Codec]] = []

    def known() -> list[tuple[str, Codec]]:
        if not found:
            hints = get_type_hints(kind)
            found.extend((each.name, codec(hints[each.name])) for each in fields(kind))
        return found

    return Codec(
        lambda value: {name: one.write(getattr(value, name)) for name, one in known()},
        lambda data: kind(**{name: one.read(data[name]) for name, one in known()}),
    )


_FEED, _TABLE, _RUNNING, _REQUEST = codec(Feed), codec(TableState), codec(Running), codec(UserRequest)
_ASIDE, _FAULT = codec(QuarantinedFile), codec(Fault)
_RECOVERING, _VOID = codec(dict[str, Recovering]), codec(dict[str, Void])
