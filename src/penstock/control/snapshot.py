"""The state as plain data and back, so that a process need not fold the whole log when it starts.

`load(dump(state))` decides and folds exactly as `state` does. Values are JSON: numbers, strings, lists, objects. Fields
are named as in the types they come from; a state of another format is not read but folded again from the log.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import Any

from penstock.control.faults import Fault
from penstock.control.feeds import FeedState, Recovering
from penstock.control.files import QuarantinedFile
from penstock.control.promises import Void
from penstock.control.state import State
from penstock.errors import PenstockError
from penstock.model.cost import CostModel
from penstock.model.freshness import Staleness
from penstock.model.graph import Graph
from penstock.model.partitions import IntervalMap, PartitionSet
from penstock.model.tables import Feed, Part, Source, Table
from penstock.queries.demand import Demand
from penstock.requests.cadence import Restated
from penstock.requests.job import FeedFile, Job
from penstock.requests.ledger import UserRequest
from penstock.requests.needs import Need, Piece, pending
from penstock.requests.tablestate import Running, TableState, UpdateCounts
from penstock.scheduling.jobs import FinishedJob

# To be raised with every change of what is remembered or of what it means.
FORMAT = 19

_PLAIN = (
    "edge_us",
    "seen_us",
    "leading_us",
    "begin_us",
    "promised_us",
    "snapshot",
    "consistent",
    "amount",
    "arrived",
    "loading",
    "last_arrival_us",
    "overrun",
    "stopped",
    "redefined",
    "last_how",
    "last_finished_us",
    "attempt",
    "deaths",
    "error",
    "retry_at_us",
    "failed",
    "small_files",
    "merged_snapshot",
    "anew",
    "emptied",
)
_NAMES = ("propagate", "optional", "required", "looked_up")
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
        "feeds": [_dump_feed(feed) for feed in state.graph.feeds.values()],
        "tables": [_dump_table(table) for table in state.tables.values()],
        "retired": [_dump_table(table) for table in state.retired.values()],
        "former": sorted(state.former),
        "quarantine": [asdict(entry) for entry in state.quarantine.values()],
        "rewritten": dict(state.rewritten),
        "requests": [_dump_request(request) for request in state.requests.values()],
        "ended": list(state.backfills.ended),
        "busy": [_dump_running(running) for running in state.busy.values()],
        "memory": dict(state.memory),
        "followed": state.runs.remembered,
        "unseen": [[number, *done] for number, done in state.unseen.items()],
        "awaited": state.awaited.dump(),
        "demand": state.demand.plain(),
        "stretched": dict(state.stretched),
        "feed_states": {name: feed.dump() for name, feed in state.feeds.items()},
        "faults": [asdict(fault) for fault in state.faults.open.values()],
        "recovering": {name: asdict(found) for name, found in state.recovering.items()},
        "void": {name: asdict(found) for name, found in state.void.items()},
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
    ledger, files, runs, reading, feeds = state.ledger, state.files, state.runs, state.reading, state.known_feeds
    runs.busy = {entry["track"]: _load_running(entry) for entry in data["busy"]}
    tables = [_load_table(entry) for entry in data["tables"]]
    for table in tables:
        busy = state.busy.get(table.running.track) if table.running is not None else None
        if busy is not None and table.running is not None and busy.job.table == table.table.name:
            # One thing, not two; but other tables of a group have a running job of their own beside it.
            table.running = busy if busy.job.id == table.running.job.id else table.running
    ledger.graph = Graph(map(_load_feed, data["feeds"]), (table.table for table in tables))
    ledger.tables = {table.table.name: table for table in tables}
    files.retired = {table.table.name: table for table in map(_load_table, data["retired"])}
    ledger.former = set(data["former"])
    files.quarantine = {
        entry["file"]["uri"]: QuarantinedFile(entry["feed"], FeedFile(**entry["file"]), entry["reason"], entry["at_us"])
        for entry in data["quarantine"]
    }
    files.rewritten = dict(data["rewritten"])
    ledger.requests = {entry["number"]: _load_request(entry) for entry in data["requests"]}
    state.backfills.ended = deque(data["ended"])
    runs.memory = dict(data["memory"])
    runs.followed = dict(data["followed"])
    runs.unseen = {number: FinishedJob(*done) for number, *done in data["unseen"]}
    state.awaited.load(data["awaited"])
    reading.demand = Demand.of_plain(data["demand"])
    reading.stretched = dict(data.get("stretched", {}))
    feeds.known = {name: FeedState.load(feed) for name, feed in data["feed_states"].items()}
    feeds.recovering = {name: Recovering(**found) for name, found in data["recovering"].items()}
    state.faults.open = {entry["part"]: Fault(**entry) for entry in data["faults"]}
    state.promises.void = {name: Void(**found) for name, found in data["void"].items()}
    state.touch(state.tables)
    return state


def _dump_feed(feed: Feed) -> dict[str, Any]:
    return {**asdict(feed), "reasons": [list(each) for each in feed.reasons]}


def _load_feed(data: dict[str, Any]) -> Feed:
    return Feed(**{**data, "reasons": tuple((pattern, reason) for pattern, reason in data["reasons"])})


def _part(state: State, name: str) -> Any:
    return getattr(state, name) if name else state


def _dump_table(table: TableState) -> dict[str, Any]:
    staleness = table.staleness
    return {
        "table": _lists(asdict(table.table)),
        **{name: getattr(table, name) for name in _PLAIN},
        "reflects": dict(table.reflects),
        "needs": [[start, end, _dump_need(need)] for start, end, need in table.needs.pieces()],
        "held": [[start, end, _dump_need(need)] for start, end, need in table.held.pieces()],
        "files": [asdict(file) for file in table.files.values()],
        "order": dict(table.order),
        "again": sorted(table.again),
        "came": dict(table.came),
        "withdrawn": sorted(table.withdrawn),
        "promises": [list(promise) for promise in table.promises],
        "running": _dump_running(table.running) if table.running else None,
        "last": _dump_running(table.last) if table.last else None,
        "cost": asdict(table.cost),
        "restated": asdict(table.restated),
        "staleness": {name: getattr(staleness, name) for name in Staleness.__slots__},
        "counts": asdict(table.counts),
    }


def _load_table(data: dict[str, Any]) -> TableState:
    spec = data["table"]
    sources = tuple(
        Source(
            source["table"],
            source["window"] and (source["window"][0], source["window"][1]),
            source["waits"],
            tuple(Part(*part) for part in source["parts"]),
        )
        for source in spec["sources"]
    )
    spec = {**spec, "sources": sources, **{name: tuple(spec[name]) for name in _NAMES}}
    table = TableState(Table(**spec), **{name: data[name] for name in _PLAIN})
    table.reflects = dict(data["reflects"])
    table.needs = _load_needs(data["needs"])
    table.held = _load_needs(data["held"])
    table.files = {file["uri"]: FeedFile(**file) for file in data["files"]}
    table.order = dict(data["order"])
    table.again = set(data["again"])
    table.came = dict(data["came"])
    table.withdrawn = set(data["withdrawn"])
    table.promises = deque((number, upto) for number, upto in data["promises"])
    table.running = _load_running(data["running"]) if data["running"] is not None else None
    table.last = _load_running(data["last"]) if data["last"] is not None else None
    table.cost = CostModel(**data["cost"])
    table.restated = Restated(**data["restated"])
    for name in Staleness.__slots__:
        setattr(table.staleness, name, data["staleness"][name])
    table.counts = UpdateCounts(**data["counts"])
    return table


def _dump_need(need: Need) -> list[Any]:
    return [
        need.since,
        need.edge_us,
        need.at_us,
        need.late,
        need.append,
        need.last,
        list(need.requests),
        need.changed,
        need.parked,
        need.upto_us,
        need.came_us,
        need.told_us,
        list(need.reasons),
    ]


def _load_need(data: list[Any]) -> Need:
    since, edge_us, at_us, late, append, last, requests, changed, parked, upto_us, came_us, told_us, reasons = data
    dates = (upto_us, came_us, told_us)
    return Need(since, edge_us, at_us, late, append, last, tuple(requests), changed, parked, *dates, tuple(reasons))


def _load_needs(entries: list[list[Any]]) -> IntervalMap[Need]:
    needs = pending()
    for start, end, need in entries:
        needs.add(PartitionSet(((start, end),)), _load_need(need))
    return needs


def _dump_running(running: Running) -> dict[str, Any]:
    return {
        "job": _dump_job(running.job),
        "track": running.track,
        "started_us": running.started_us,
        "why": running.why,
    }


def _dump_job(job: Job) -> dict[str, Any]:
    return {
        **{name: getattr(job, name) for name in _JOB},
        "files": [asdict(file) for file in job.files],
        "pieces": [[piece.start_us, piece.end_us, _dump_need(piece.need)] for piece in job.pieces],
        "reflects": None if job.reflects is None else [list(pair) for pair in job.reflects],
        "withdrawn": list(job.withdrawn),
        "without": list(job.without),
        "inputs": [list(pair) for pair in job.inputs],
        "beside": [_dump_job(other) for other in job.beside],
    }


_JOB = ("id", "table", "kind", "pin", "edge_us", "complete_us", "amount", "expected_s", "attempt", "anew")


def _load_running(data: dict[str, Any]) -> Running:
    return Running(_load_job(data["job"]), data["track"], data["started_us"], data["why"])


def _load_job(entry: dict[str, Any]) -> Job:
    reflects = entry["reflects"]
    return Job(
        **{name: entry[name] for name in _JOB},
        files=tuple(FeedFile(**file) for file in entry["files"]),
        pieces=tuple(Piece(start, end, _load_need(need)) for start, end, need in entry["pieces"]),
        reflects=None if reflects is None else tuple((base, snapshot) for base, snapshot in reflects),
        withdrawn=tuple(entry["withdrawn"]),
        without=tuple(entry["without"]),
        inputs=tuple((source, version) for source, version in entry["inputs"]),
        beside=tuple(_load_job(other) for other in entry["beside"]),
    )


def _dump_request(request: UserRequest) -> dict[str, Any]:
    return {
        **asdict(request),
        "wanted": [list(interval) for interval in request.wanted],
        "dropped": [list(interval) for interval in request.dropped],
        "open": sorted(request.open),
    }


def _load_request(data: dict[str, Any]) -> UserRequest:
    sets = {name: PartitionSet(tuple((start, end) for start, end in data[name])) for name in ("wanted", "dropped")}
    return UserRequest(**{**data, **sets, "open": set(data["open"])})


def _lists(data: dict[str, Any]) -> dict[str, Any]:
    """Tuples as lists, as they come back from JSON."""
    return {
        **data,
        **{name: list(data[name]) for name in _NAMES},
        "sources": [
            {
                **source,
                "window": source["window"] and list(source["window"]),
                "parts": [list(p) for p in source["parts"]],
            }
            for source in data["sources"]
        ],
    }
