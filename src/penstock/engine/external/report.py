"""What outside jobs report: one transaction registers their files, records the version and ends the work order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from penstock.control.events import Event, TablePublished, UpdateFailed, UpdateFinished, UpdateStopped
from penstock.control.orders import Report, WorkOrder, matched, order_of
from penstock.control.state import State
from penstock.declare.problems import near_or_all
from penstock.declare.warehouse import Definition, Definitions
from penstock.engine.external.registered_files import NotAccepted, files_below, look, unchanged
from penstock.engine.storage import to_disk
from penstock.engine.updates.times import time_range
from penstock.errors import PenstockError
from penstock.model.grain import WHOLE, zone_of
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.span import parse_span
from penstock.model.time import SECOND_US, format_instant
from penstock.requests.job import PublishedTable
from penstock.requests.needs import changed_by, partitions_of
from penstock.store.store import Store
from penstock.tables import Catalogue, DataFile, Note, TableChange

# Files that `penstock versions` can name.
_NAMED = 100
_ENDS = ("update-finished", "update-failed", "update-stopped")


@dataclass(frozen=True, slots=True)
class Handed:
    """What was published."""

    table: str
    # The version of the table that it is now.
    version: int
    # None if it was no answer to one.
    order: str | None
    files: int
    rows: int
    complete_us: int | None
    # Whether it was made from newer inputs than ordered: then no consistent read uses it, and the next order brings the rest.
    mixed: bool = False


class Reports:
    def __init__(self, warehouse: Definitions, store: Store, catalogue: Catalogue) -> None:
        self.warehouse, self.store, self.catalogue = warehouse, store, catalogue
        self.zone = zone_of(warehouse.zone)

    def publish(
        self,
        state: State,
        table: str,
        spans: Sequence[str],
        now_us: int,
        *,
        order: str | None = None,
        version: int | None = None,
        inputs: Mapping[str, int] | None = None,
        files: Sequence[str | Path] | None = None,
        complete_us: int | None = None,
        by: str = "",
    ) -> Handed:
        """Take what an outside job made. Refuses what is out of date, rows that were not reported, and files that do not fit."""
        definition = self._external(table)
        partitions = self._partitions(spans)
        report = Report(table, partitions, order, version, inputs or {})
        kind, _, place = definition.table.external.partition(" ")
        if kind in ("lake", "replica"):
            said = definition.table.external
            raise PenstockError(f'`{table}` follows what others publish (data = "{said}"), so nothing is reported')
        if kind != "files" and files:
            raise NotAccepted(
                f'the rows of `{table}` are in data = "{definition.table.external}", so no files are handed over'
            )
        if definition.table.sources:
            # Once before the files are looked at, which may take a while; what counts is the look in the transaction.
            self._catch_up(state)
            matched(state, report, self._fate(table, order))
        if kind == "files" and files is None:
            raise NotAccepted(
                f"no files are named; the rows of `{table}` are handed over as Parquet files (none at all: say so)"
            )
        paths = [Path(path) for path in files or ()]
        if kind == "folder":
            paths = files_below(self.warehouse.declarations.folder / place)
        within = partitions
        if definition.table.sources and partitions is None and (running := state.tables[table].running) is not None:
            within = partitions_of(running.job.pieces)
        looked = look(
            paths, definition, self.warehouse.zone, self.catalogue.data_path, within, all_of_them=kind == "files"
        )
        for file in looked:
            to_disk(file.path)
        with self.store.write() as conn:
            state.fold(self.store.events(conn, state.applied))  # nobody writes from here on
            if definition.table.sources:
                return self._answered(conn, state, definition, report, looked, now_us)
            return self._of_its_own(conn, state, definition, report, looked, now_us, complete_us, by)

    def give_back(self, state: State, order: str, now_us: int, failed: str | None = None) -> WorkOrder:
        """An outside job will not do an order: it is issued anew, with the newest inputs; with `failed` later, as after a failed update."""
        with self.store.write() as conn:
            state.fold(self.store.events(conn, state.applied))
            running = next(
                (one for one in state.busy.values() if one.job.id == order and one.job.kind == "order"), None
            )
            if running is None:
                raise PenstockError(f"there is no open work order {order}; `penstock orders` lists them")
            seconds = (now_us - running.started_us) / SECOND_US
            event: Event = UpdateStopped(now_us, order, running.job.table, seconds)
            if failed is not None:
                event = UpdateFailed(now_us, order, running.job.table, failed or "the outside job failed", seconds)
            self.store.append(conn, [event])
            return order_of(state, running)

    # Orders

    def _answered(
        self,
        conn: Connection,
        state: State,
        definition: Definition,
        report: Report,
        files: Sequence[DataFile],
        now_us: int,
    ) -> Handed:
        name = definition.name
        running, newer = matched(state, report, self._fate(name, report.order))
        job = running.job
        ordered = partitions_of(job.pieces)
        whole = definition.table.grain is WHOLE or bool(job.anew) or not self.warehouse.graph.has_time[name]
        made_from = {**dict(job.inputs), **report.inputs}
        snapshot = self._registered(conn, definition, files, None if whole else ordered, job.id, now_us, made_from)
        reflects = dict(job.reflects) if job.reflects is not None and not newer else None
        self.store.put_version(conn, name, snapshot, now_us, job.complete_us, reflects, job.id)
        changed = changed_by(job.pieces)
        publication = self._publication(definition, files, snapshot, changed, job.complete_us, newer)
        seconds = (now_us - running.started_us) / SECOND_US
        self.store.append(conn, [UpdateFinished(now_us, job.id, name, (publication,), seconds, "handed over")])
        return Handed(name, snapshot, job.id, len(files), publication.rows, job.complete_us, newer)

    def _fate(self, table: str, order: str | None) -> str:
        """What became of an order that is not open."""
        if order is None:
            return ""
        with self.store.read() as conn:
            for _, event in self.store.events_of(conn, table, _ENDS, 200):
                if isinstance(event, UpdateFinished | UpdateFailed | UpdateStopped) and event.job == order:
                    when = format_instant(event.at_us // SECOND_US * SECOND_US, self.zone)
                    if isinstance(event, UpdateFinished):
                        return f"was reported already at {when}, as version {event.publications[0].snapshot}"
                    return f"is closed since {when}" + (f" ({event.error})" if isinstance(event, UpdateFailed) else "")
        return "was never issued for this table"

    # Tables that read none of ours

    def _of_its_own(
        self,
        conn: Connection,
        state: State,
        definition: Definition,
        report: Report,
        files: Sequence[DataFile],
        now_us: int,
        complete_us: int | None,
        by: str,
    ) -> Handed:
        name, grain = definition.name, definition.table.grain
        if report.order is not None or report.inputs:
            raise PenstockError(
                f"`{name}` reads no table of ours, so there are no work orders and no inputs; leave out --order and --inputs"
            )
        if name not in state.tables:
            raise PenstockError(f"`{name}` is declared, but no run has taken it up yet: type `penstock run`")
        self._check_newer(conn, name, report.version)
        timed = self.warehouse.graph.has_time[name]
        where = report.partitions.hull(grain) if report.partitions is not None and timed else EVERYTHING
        if timed and grain is not WHOLE and report.partitions is None:
            starts = {file.partition_us for file in files}
            if not starts:
                raise PenstockError(
                    f"say which partitions of `{name}` were made, for example `penstock publish {name} 2024-03-01`"
                )
            where = PartitionSet.of(*((start, grain.shift(start, 1)) for start in starts))
        whole = grain is WHOLE or not timed
        snapshot = self._registered(conn, definition, files, None if whole else where, "report", now_us)
        if timed and complete_us is None:
            ends = [end for _, end in time_range(files, definition.time or "", self.zone)]
            complete_us = max(ends, default=None) if whole else where.intervals[-1][1]
        publication = self._publication(
            definition, files, snapshot, where.intervals if timed else (), complete_us, False
        )
        self.store.put_version(conn, name, snapshot, now_us, complete_us, {name: snapshot}, f"report-{snapshot}")
        why = f"was published{f' by {by}' if by else ''}" + (
            f" as version {report.version}" if report.version is not None else ""
        )
        self.store.append(conn, [TablePublished(now_us, name, publication, f"report-{snapshot}", why)])
        return Handed(name, snapshot, None, len(files), publication.rows, complete_us)

    def _check_newer(self, conn: Connection, table: str, version: int | None) -> None:
        """Versions of theirs only grow."""
        last = self.store.fact(conn, f"published version of {table}")
        if version is None:
            return
        if last is not None and version <= int(last):
            raise PenstockError(f"version {version} of `{table}` is out of date: version {last} was published already")
        self.store.set_fact(conn, f"published version of {table}", str(version))

    # Both

    def _registered(
        self,
        conn: Connection,
        definition: Definition,
        files: Sequence[DataFile],
        partitions: PartitionSet | None,
        job: str,
        now_us: int,
        inputs: Mapping[str, int] | None = None,
    ) -> int:
        """The files in place of those of the partitions, or of all; the number of the version."""
        name = definition.name
        changes = []
        if not definition.table.external.startswith("elsewhere"):
            unchanged(
                ((one.path, one.size_bytes, one.records) for one in self.catalogue.stored_files_of(conn, name)), files
            )
            replaced = None if partitions is None else partitions.intervals
            changes = [TableChange(name, definition.schema or (), replaced, list(files))]
        extra = {
            "job": job,
            "partitions": [list(each) for each in (partitions.intervals if partitions is not None else ())],
            "inputs": dict(inputs or {}),
            "files": [file.path for file in files[:_NAMED]],
        }
        return self.catalogue.publish(conn, changes, Note("penstock", f"publish {name}", extra), now_us)

    def _publication(
        self,
        definition: Definition,
        files: Sequence[DataFile],
        snapshot: int,
        changed: tuple[tuple[int, int], ...],
        complete_us: int | None,
        mixed: bool,
    ) -> PublishedTable:
        ranges = time_range(files, definition.time, self.zone) if definition.time else []
        known = [start for start, _ in changed if start > EVERYTHING.intervals[0][0]]
        return PublishedTable(
            definition.name,
            snapshot,
            append=False,
            changed=changed,
            complete_us=complete_us,
            leading_us=max(
                (end - 1 for _, end in ranges), default=complete_us - 1 if complete_us is not None else None
            ),
            begin_us=min((start for start, _ in ranges), default=min(known, default=None)),
            rows=sum(file.records for file in files),
            size_bytes=sum(file.size_bytes for file in files),
            mixed=mixed,
        )

    def _external(self, table: str) -> Definition:
        definition = self.warehouse.definitions.get(table)
        if definition is None:
            raise PenstockError(
                f"there is no table `{table}` in this project{near_or_all(table, self.warehouse.definitions)}"
            )
        if not definition.table.external:
            others = [name for name, one in self.warehouse.definitions.items() if one.table.external]
            known = f"; made by others: {', '.join(others)}" if others else '; such tables say kind = "external"'
            raise PenstockError(f"`{table}` is made here, so nothing is published for it{known}")
        return definition

    def _partitions(self, spans: Sequence[str]) -> PartitionSet | None:
        try:
            return PartitionSet.of(*(parse_span(span, self.zone) for span in spans)) if spans else None
        except ValueError as error:
            raise PenstockError(str(error)) from None

    def _catch_up(self, state: State) -> None:
        with self.store.read() as conn:
            state.fold(self.store.events(conn, state.applied))
