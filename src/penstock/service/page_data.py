"""What the pages show, as plain values. Every figure is from the views that the commands print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from penstock.control.state import State
from penstock.control.views.explain import explain, waits
from penstock.control.views.status import TableStatus, overview
from penstock.declare.definition import Definition
from penstock.declare.warehouse import Definitions
from penstock.model.grain import WHOLE, zone_of
from penstock.model.graph import Graph
from penstock.model.partitions import Interval, PartitionSet
from penstock.model.time import SECOND_US
from penstock.tables import DataFile

# Of the tables that need attention most, why they do. The page of any other says it, too.
_EXPLAINED = 60
_MOST_CELLS = 4_000

# The graph, which changes with what is declared only.


def graph_picture(declared: Definitions) -> dict[str, Any]:
    graph = declared.graph
    return {
        "tables": [_node(graph, declared.definitions[name]) for name in graph.order],
        "feeds": [{"name": name, "tables": graph.fed_by[name]} for name in graph.feeds],
        "edges": [
            [edge.source, edge.table] for name in graph.order for edge in graph.into[name] if edge.source != edge.table
        ],
    }


def _node(graph: Graph, definition: Definition) -> dict[str, Any]:
    table = definition.table
    return {
        "name": table.name,
        "kind": "base" if table.is_base else "external" if table.external else "derived",
        "feed": table.feed,
        "flow": definition.flow.flow.name if definition.flow is not None else None,
        "group": table.group,
        "priority": table.priority,
        "target_us": table.target_us,
        "partition": table.partition,
        "description": definition.declaration.description,
        "columns": [column.name for column in definition.columns or () if _shown(column.name)],
        "has_time": graph.has_time[table.name],
        "final": graph.final[table.name],
    }


def described(declared: Definitions, definition: Definition) -> dict[str, Any]:
    """How a table is made, its columns, and from which columns each comes and which come from it."""
    table, view = definition.table, definition.view
    lineage = dict(view.lineage) if view is not None else {}
    below: dict[str, list[tuple[str, str]]] = {}
    for edge in declared.graph.out[table.name]:
        reader = declared.definitions[edge.table].view
        for column, origins in (reader.lineage if reader is not None else {}).items():
            for source, name in origins:
                if source == table.name:
                    below.setdefault(name, []).append((edge.table, column))
    columns = [one for one in definition.columns or () if _shown(one.name)]
    config = definition.declaration.config.model_dump(mode="json", exclude_defaults=True)
    return {
        "description": definition.declaration.description,
        "sql": definition.declaration.sql,
        "declared_at": str(definition.declaration.where),
        "settings": {name: value for name, value in config.items() if name != "description"},
        "feed_name": table.feed,
        "flow": definition.flow.flow.name if definition.flow is not None else None,
        "partition": table.partition,
        "priority": table.priority,
        "rules": list(_rules(declared, table.feed)),
        "readers": sorted({edge.table for edge in declared.graph.out[table.name]} - {table.name}),
        "columns": [
            {
                "name": one.name,
                "type": one.type,
                "from": [list(pair) for pair in lineage.get(one.name, ())],
                "to": [list(pair) for pair in below.get(one.name, ())],
            }
            for one in columns
        ],
    }


def _rules(declared: Definitions, feed: str | None) -> Sequence[str]:
    return declared.feeds[feed].config.rules if feed is not None and feed in declared.feeds else ()


def _shown(name: str) -> bool:
    return not name.startswith("_penstock_")


# How it is now.


def now_picture(state: State, now_us: int) -> dict[str, Any]:
    """Nothing in it changes with the clock alone: the page counts by itself, so that only what happened travels."""
    found = overview(state, now_us)
    late = sorted((row for row in found.tables if _pressure(row) >= 0.8), key=_pressure, reverse=True)
    explained = {row.table: _why(state, row, now_us) for row in late[:_EXPLAINED]}
    return {
        "tables": {row.table: _row(state, row, explained.get(row.table)) for row in found.tables},
        "feeds": {feed.feed: _feed(asdict(feed)) for feed in found.feeds},
        "tracks": state.tracks,
        "policy": state.policy,
        "busy": [
            {
                "track": track,
                "table": running.job.table,
                "job": running.job.id,
                "started_us": running.started_us,
                "expected_s": running.job.expected_s,
                "why": running.why,
            }
            for track, running in sorted(state.busy.items())
        ],
        "faults": [asdict(fault) for fault in found.faults],
        "recovery": [asdict(one) for one in found.recovery],
        "violated": [{"table": one.table, "said": one.said} for one in found.violated],
        "void": {name: asdict(void) for name, void in found.void.items()},
        "quarantine": [asdict(one) for one in found.quarantine],
    }


def _feed(feed: dict[str, Any]) -> dict[str, Any]:
    """Without what counts with the clock."""
    del feed["said"], feed["next_us"]
    return feed


def _pressure(row: TableStatus) -> float:
    if row.doing == "failed" or row.error is not None:
        return 1e9
    if row.target_us is None or row.staleness_us is None:
        return 0.0
    return row.staleness_us / max(1, row.target_us)


def _why(state: State, row: TableStatus, now_us: int) -> str | None:
    """Why it is late, as `explain` says it, without the figures that change with the clock."""
    if row.error is not None:
        return row.error.splitlines()[0]
    found = explain(state, row.table, now_us)
    if found.waits is not None:
        return found.waits
    for feed in found.feeds:
        return f"nothing comes on feed {feed.feed}" if feed.health != "paused" else f"feed {feed.feed} is paused"
    holding = [source.table for source in found.sources if source.holds_back]
    return f"{', '.join(holding)} has not come far enough" if holding else None


def _row(state: State, row: TableStatus, why: str | None) -> dict[str, Any]:
    table = state.tables[row.table]
    lead = state.tables[table.table.leader] if table.table.leader is not None else table
    timed = state.graph.has_time[row.table]
    return {
        "doing": row.doing,
        "edge_us": table.edge_us,
        # Since when it grows stale; null: it does not.
        "since_us": table.edge_us if timed else row.oldest_change_us if row.staleness_us is not None else None,
        "known": row.staleness_us is not None,
        "target_us": row.target_us,
        "pending_files": row.pending_files,
        "pending_partitions": row.pending_partitions,
        "held_partitions": row.held_partitions,
        "running_us": lead.running.started_us if lead.running is not None else None,
        "expected_s": round(row.expected_s, 2),
        "waits": waits(state, row.table) if row.doing in ("pending", "retrying") else None,
        "why": why,
        "error": row.error,
        "updates": row.updates,
        "merged": row.merged,
        "folded": row.folded,
        "failures": row.failures,
        "rows": row.rows,
        "refused": row.quarantined_rows,
    }


# What happened.


def bars(found: Iterable[tuple[int, str, dict[str, Any]]], since_us: int, with_why: bool) -> dict[str, Any]:
    """Updates of a stretch of the log, whose events come newest first, and what else happened in it: as columns, which travel lighter."""
    ended: dict[str, tuple[int, str, str]] = {}
    rows: list[tuple[str, str, int, int, int | None, int, str, str]] = []
    marks: list[dict[str, Any]] = []
    for number, kind, body in found:
        at_us = body["at_us"]
        if kind in ("update-finished", "update-failed", "update-stopped"):
            ended[body["job"]] = (at_us, kind, body.get("how") or body.get("error", ""))
        elif kind == "run-started":
            ended = {}
            marks.append({"at_us": at_us, "kind": kind, "what": "a process took over"})
        elif kind == "update-started":
            job = body["job"]
            end = ended.pop(job["id"], None)
            how = 0 if end is None or end[1] == "update-finished" else 1 if end[1] == "update-failed" else 2
            said = "" if end is None else end[2].splitlines()[0][:200] if end[2] else ""
            why = body["why"] if with_why else ""
            rows.append((job["table"], job["id"], body["track"], at_us, end and end[0], how, why, said))
        else:
            what = body.get("because") or body.get("reason") or ""
            about = body.get("feed") or body.get("part") or ", ".join(body.get("tables", ())[:3])
            marks.append({"at_us": at_us, "kind": kind, "number": number, "about": about, "what": what})
    # What ended in the stretch and began before it.
    names = ("table", "job", "track", "start_us", "end_us", "failed", "why", "how")
    columns = {name: [row[place] for row in reversed(rows)] for place, name in enumerate(names)}
    return {"since_us": since_us, **columns, "marks": marks[::-1]}


def curve(finished: Iterable[dict[str, Any]], table: str) -> list[tuple[int, int]]:
    """From when on a table was complete up to where, oldest first."""
    moves: list[tuple[int, int]] = []
    for body in finished:
        for publication in body.get("publications", ()):
            edge = publication["complete_us"] if publication["table"] == table else None
            if edge is not None and (not moves or edge > moves[-1][1]):
                moves.append((body["at_us"], edge))
    return moves


def calendar(state: State, name: str, files: Iterable[DataFile]) -> dict[str, Any]:
    """Every partition that there is, and what is not as it should be with others."""
    table = state.tables[name]
    grain = table.table.grain
    cells: dict[int, list[int]] = {}
    for file in files:
        cell = cells.setdefault(file.partition_us, [0, 0, 0])
        cell[0] += file.records
        cell[1] += file.size_bytes
        cell[2] = max(cell[2], file.content, file.begin)
    running = table.running.job.pieces if table.running is not None else ()
    made = sorted(cells.items())
    return {
        "table": name,
        "partition": None if grain is WHOLE else grain.name,
        "zone": str(zone_of(table.table.zone)),
        "made": [[start, _end(grain, start), *cell] for start, cell in made[-_MOST_CELLS:]],
        "left_out": max(0, len(made) - _MOST_CELLS),
        "stale": _within(table.needs.domain().intervals, made),
        "held": _within(table.held.domain().intervals, made),
        "running": _within(PartitionSet.of(*((p.start_us, p.end_us) for p in running)).intervals, made),
        "failed": table.failed,
    }


def _end(grain: Any, start_us: int) -> int:
    return start_us if grain is WHOLE else int(grain.shift(start_us, 1))


def _within(intervals: Sequence[Interval], made: Sequence[tuple[int, Any]]) -> list[Interval]:
    """Cut to a hundred years around what there is, as numbers beyond say nothing to a page."""
    low = made[0][0] if made else 0
    wide = 36_525 * 86_400 * SECOND_US
    return [(max(start, low - wide), min(end, low + 2 * wide)) for start, end in intervals]


def kinds_of_marks() -> tuple[str, ...]:
    return tuple(
        chain(
            ("feed-went-out", "feed-came-back", "feed-paused", "feed-resumed", "fault-met", "fault-ended"),
            ("guarantee-voided", "guarantee-renewed", "run-started"),
        )
    )
