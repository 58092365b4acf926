"""The state as plain data and back, so that a process need not fold the whole log when it starts.

`load(dump(state))` decides and folds exactly as `state` does. Values are JSON: numbers, strings, lists, objects. Fields
are named as in the types they come from; a state of another format is not read but folded again from the log.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.control.faults import Fault
from penstock.control.feeds import FeedState, Recovering
from penstock.control.files import QuarantinedFile
from penstock.control.plain import codec
from penstock.control.promises import Void
from penstock.control.state import State
from penstock.errors import PenstockError
from penstock.model.graph import Graph
from penstock.model.tables import Feed
from penstock.queries.demand import Demand
from penstock.requests.ledger import UserRequest
from penstock.requests.tablestate import Running, TableState
from penstock.scheduling.jobs import FinishedJob

# To be raised with every change of what is remembered or of what it means.
FORMAT = 21

_FEED, _TABLE, _RUNNING, _REQUEST = codec(Feed), codec(TableState), codec(Running), codec(UserRequest)
_ASIDE, _FAULT = codec(QuarantinedFile), codec(Fault)
_RECOVERING, _VOID = codec(dict[str, Recovering]), codec(dict[str, Void])
# The numbers of each part, and of the state itself.
_COUNTERS = {
    "": ("now_us", "owner"),
    "ledger": ("event_us", "snapshot", "applied", "number"),
    "declaration": ("tracks", "policy"),
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
