"""Work orders: what outside jobs are to make, and whether what they report is what was ordered.

An order is an update as any other, decided by the same rules; only that it takes no track, outlives the process that issued it, and
that somebody else does it. It pins the versions of its inputs. What changes while it is open is ordered next, when it has been reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from penstock.control.events import Event, UpdateFailed, UpdateStopped
from penstock.control.state import State
from penstock.errors import PenstockError
from penstock.model.grain import WHOLE, zone_of
from penstock.model.partitions import EVERYTHING, Interval, PartitionSet
from penstock.model.time import BEGIN_US, END_US, SECOND_US, format_duration, format_instant
from penstock.requests.needs import partitions_of
from penstock.requests.tablestate import Running, TableState


class OutOfDate(PenstockError):
    """A report of something that is not ordered, or no longer."""


@dataclass(frozen=True, slots=True)
class WorkOrder:
    order: str
    table: str
    # Half-open; the whole table, or all times of it, is one interval without ends.
    partitions: tuple[Interval, ...]
    # Which state of its inputs the result must contain: the newest version among them, and each.
    version: int
    inputs: tuple[tuple[str, int], ...]
    # All inputs can be read at this snapshot of the catalogue, as long as the order is open; rows up to a time.
    snapshot: int
    upto_us: int | None
    issued_us: int
    until_us: int
    attempt: int
    why: str
    # The table is declared anew: what it held before goes with this order.
    anew: bool


def open_orders(state: State) -> list[WorkOrder]:
    """All that are open, oldest first."""
    found = [running for running in state.busy.values() if running.job.kind == "order"]
    return [order_of(state, running) for running in sorted(found, key=lambda one: (one.started_us, one.job.id))]


def order_of(state: State, running: Running) -> WorkOrder:
    job = running.job
    table = state.graph.tables.get(job.table)
    return WorkOrder(
        job.id,
        job.table,
        _ordered(running).intervals,
        job.version,
        job.inputs,
        job.pin,
        job.edge_us,
        running.started_us,
        running.started_us + (table.order_within_us if table is not None else 0),
        job.attempt,
        running.why,
        bool(job.anew),
    )


def _ordered(running: Running) -> PartitionSet:
    return partitions_of(running.job.pieces)


def void_orders(state: State, now_us: int) -> list[Event]:
    """What becomes of orders that nobody reported: those that took too long failed, and are issued again later; those that a change of
    their partitions overtook, or whose table is no longer declared as it was, are taken back."""
    found: list[Event] = []
    for running in state.busy.values():
        if running.job.kind != "order":
            continue
        name, lasts = running.job.table, now_us - running.started_us
        table = state.tables.get(name)
        if table is None or table.running is not running or table.overrun or not table.table.external:
            found.append(UpdateStopped(now_us, running.job.id, name, lasts / SECOND_US))
        elif lasts >= table.table.order_within_us:
            limit = format_duration(table.table.order_within_us)
            found.append(
                UpdateFailed(
                    now_us, running.job.id, name, f"nobody reported {running.job.id} within {limit}", lasts / SECOND_US
                )
            )
    return found


@dataclass(frozen=True)
class Report:
    """What an outside job says that it made."""

    table: str
    partitions: PartitionSet | None = None
    order: str | None = None
    version: int | None = None
    inputs: Mapping[str, int] = field(default_factory=dict)


def matched(state: State, report: Report, fate: str = "") -> tuple[Running, bool]:
    """The order that a report answers, and whether it was made from newer inputs than ordered. Raises `OutOfDate` if it answers none;
    `fate` is what became of the order that it names."""
    table = state.tables[report.table]
    running = table.running
    if running is None or running.job.kind != "order":
        _nothing_open(state, table, report, fate)
    job = running.job
    needed = _listed(job.inputs)
    if report.order is not None and report.order != job.id:
        _refuse(
            f"{report.order} {fate or 'is not open'}; open is {job.id}: make `{report.table}` from {needed}, and report that"
        )
    if report.version is not None and report.version != job.version:
        old = "out of date" if report.version < job.version else "not ordered"
        _refuse(
            f"version {report.version} of `{report.table}` is {old}: {job.id} asks for version {job.version}, made from {needed}"
        )
    newer = _check_inputs(state, report, dict(job.inputs))
    ordered = _ordered(running)
    if report.partitions is not None:
        given = _whole(state, table, report.partitions)
        missing, more = ordered - given, given - ordered
        if missing or more:
            wrong, what = (missing, "is missing") if missing else (more, "was not ordered")
            _refuse(
                f"{job.id} asks for {shown(table, ordered)} of `{report.table}`; reported was {shown(table, given)}: {shown(table, wrong)} {what}. "
                "An order is reported as a whole; `chop` limits how much is in one"
            )
    return running, newer


def _check_inputs(state: State, report: Report, needed: Mapping[str, int]) -> bool:
    for name, version in report.inputs.items():
        if name not in needed:
            _refuse(f"`{report.table}` does not read `{name}`; it reads {', '.join(needed)}")
        if version < needed[name]:
            _refuse(
                f"out of date: it was made from version {version} of `{name}`, ordered is {needed[name]}; make it again from that, and report it"
            )
        if version > state.tables[name].snapshot:
            _refuse(f"`{name}` has no version {version} yet; its newest is {state.tables[name].snapshot}")
    silent = [name for name in needed if name not in report.inputs]
    if report.order is None and report.version is None and silent:
        _refuse(
            f"the report does not say what it was made from: name the order, its version, or the versions of all inputs "
            f"({', '.join(silent)} missing)"
        )
    return any(version > needed[name] for name, version in report.inputs.items())


def _nothing_open(state: State, table: TableState, report: Report, fate: str) -> NoReturn:
    name = report.table
    if fate:
        _refuse(f"{report.order} {fate}; no work order for `{name}` is open")
    if table.failed:
        _refuse(
            f"no work order for `{name}` is open: it failed ({table.error}); `penstock retry {name}` issues one again"
        )
    if table.needs and state.owner is None:
        _refuse(f"no work order for `{name}` is open, and no process runs the project: type `penstock run`")
    if table.needs:
        _refuse(f"no work order for `{name}` is open yet; `penstock explain {name}` says what it waits for")
    _refuse(
        f"no work order for `{name}` is open: it contains all that its inputs hold. If it was made anew for another reason, "
        f"`penstock backfill {name} RANGE` orders that"
    )


def _refuse(message: str) -> NoReturn:
    raise OutOfDate(message)


def _whole(state: State, table: TableState, partitions: PartitionSet) -> PartitionSet:
    if table.table.grain is WHOLE or not state.graph.has_time[table.table.name]:
        return EVERYTHING
    return partitions.hull(table.table.grain)


def _listed(inputs: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{name}={version}" for name, version in inputs)


def shown(table: TableState, partitions: PartitionSet) -> str:
    """Partitions for people, in the words of a range."""
    if partitions == EVERYTHING:
        return "the whole table"
    zone = zone_of(table.table.zone)
    parts = []
    for start, end in partitions.intervals[:3]:
        low = format_instant(start, zone) if start > BEGIN_US else "the beginning"
        high = format_instant(end, zone) if end < END_US else "the end"
        parts.append(f"{low} to {high}")
    more = len(partitions.intervals) - 3
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")
