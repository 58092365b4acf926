"""Carries out one job: compute, then publish. Publishing is one transaction: the files of all tables that the job
changed, the event, the versions, the state of the loaded files. Before it nothing is visible, after it everything is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from py4j.protocol import Py4JJavaError
from sqlalchemy import Connection

from penstock.control.events import Event, FaultMet, FileQuarantined, UpdateFailed, UpdateFinished, UpdateStopped
from penstock.declare.warehouse import Definitions
from penstock.engine.arrivals.intake import UNREAD
from penstock.engine.faults import NotAvailable, WorldFault, check_storage, fault_of
from penstock.engine.ports import Compute, Computed, Made, Storage
from penstock.engine.updates.cleanup import job_folder
from penstock.engine.updates.cut_off import Rewrite, compare, read_by_file, with_digests
from penstock.engine.updates.times import time_range
from penstock.engine.upkeep.identity import FILE_NAME
from penstock.errors import PenstockError
from penstock.flows.report import fact_of
from penstock.model.grain import WHOLE, zone_of
from penstock.model.partitions import EMPTY, EVERYTHING, Interval, PartitionSet
from penstock.requests.job import FeedFile, Job, PublishedTable
from penstock.requests.needs import changed_by
from penstock.store.store import Fenced, Store
from penstock.tables import Catalogue, Note, SchemaConflict, TableChange


class BadFiles(PenstockError):
    """Delivered files that cannot be loaded after all."""

    def __init__(self, found: Sequence[tuple[FeedFile, str]]) -> None:
        self.found = tuple(found)
        super().__init__("; ".join(f"{file.uri}: {reason}" for file, reason in found))


Step = Callable[[str], None]


class Executor:
    def __init__(
        self,
        warehouse: Definitions,
        store: Store,
        catalogue: Catalogue,
        compute: Compute,
        storage: Storage,
        now_us: Callable[[], int],
        owner: str,
        step: Step = lambda _name: None,
        speed: float = 1.0,
        loaded: Callable[[Connection, str], None] = lambda _conn, _feed: None,
        await_store: Callable[[WorldFault], bool] = lambda _fault: False,
    ) -> None:
        self.warehouse = warehouse
        self.store = store
        self.catalogue = catalogue
        self.compute = compute
        self.storage = storage
        self.now_us = now_us
        self.owner = owner
        # Called between any two steps that touch the world, so that tests can stop there.
        self._step = step
        # How many seconds of the warehouse's clock pass in one of ours: what a job takes is compared with periods.
        self._speed = speed
        # Called in the transaction that publishes rows of a feed.
        self._loaded = loaded
        # Waits until the store answers again; False if that is not waited for.
        self._await_store = await_store
        # A job that is to be given up, if it is not too late for that.
        self.stopping: str | None = None

    def run(self, job: Job) -> None:
        """Do the job and log how it ended. Only another owner raises, or a store that nobody waits for."""
        began = perf_counter()

        def took() -> float:
            return (perf_counter() - began) * self._speed

        try:
            self._step("started")
            computed = self._compute(job)
            self._step("computed")
            try:
                computed, same = self._compared(job, computed)
                for one in computed:
                    self._make_durable(one)
            except Exception:  # else many faults would fill the disk
                with suppress(OSError):  # the next start does it
                    self.compute.discard(job, job_folder(job.id, self.owner))
                raise
            self._step("durable")
            self._surely(job, lambda: self._publish(job, computed, same, took()))
            self._step("published")
        except Fenced:
            raise
        except Exception as caught:
            error = self._explained(caught)
            fault = fault_of(error)
            if self.stopping == job.id:
                self._surely(job, lambda: self._stopped(job, took()))
            elif fault is not None:
                if fault.part == "store" and not self._await_store(fault):
                    raise
                self.interrupted(job, fault, took())
            else:
                self._surely(job, lambda: self._fail(job, error, took()))

    def interrupted(self, job: Job, fault: WorldFault, seconds: float = 0.0) -> None:
        """Put on record that the world did not let a job end."""
        self._surely(job, lambda: self._interrupted(job, fault, seconds))

    def _interrupted(self, job: Job, fault: WorldFault, seconds: float) -> None:
        with self.store.write() as conn:
            self.store.check_owner(conn, self.owner)
            met = FaultMet(self.now_us(), fault.part, fault.reason, job.id, job.table, seconds)
            self.store.append(conn, [met])

    def _surely(self, job: Job, write: Callable[[], None]) -> None:
        """Write how a job ended, however often the store goes away meanwhile. A transaction whose end was not heard of may have been done."""
        while True:
            try:
                return write()
            except Fenced:
                raise
            except Exception as error:
                fault = fault_of(error)
                if fault is None or fault.part != "store" or not self._await_store(fault):
                    raise
                if self._has_ended(job):
                    return None

    def _has_ended(self, job: Job) -> bool:
        kinds = ("update-finished", "update-failed", "update-stopped", "fault-met")
        with self.store.read() as conn:
            return any(event.job == job.id for _, event in self.store.events_of(conn, job.table, kinds, 10))  # type: ignore[union-attr]

    def _explained(self, error: Exception) -> Exception:
        """An error as what it is: where the data folder is away, other errors follow from that."""
        try:
            check_storage(self.catalogue.data_path, FILE_NAME)
        except NotAvailable as away:
            return away
        return error

    def _compute(self, job: Job) -> list[Computed]:
        """What each table of the job gets."""
        check_storage(self.catalogue.data_path, FILE_NAME)
        folder = job_folder(job.id, self.owner)
        if job.kind == "upkeep" and job.anew:
            return [self._emptied(job)]
        if not job.beside:
            return [self.compute.run(job, folder)]
        with self.compute.together(job, folder):
            return [self.compute.run(each, folder) for each in job.each]

    def _emptied(self, job: Job) -> Computed:
        """A table that was declared anew, and for which there is nothing yet: what it held before goes."""
        made = []
        with self.store.read() as conn:
            for name in self.warehouse.graph.made_with(job.table):
                schema = self.warehouse.definitions[name].schema or self.catalogue.schema(conn, name)
                made += [Made(name, schema, (), None)] if schema is not None else []
        return Computed(tuple(made), "emptied")

    def _compared(self, job: Job, computed: list[Computed]) -> tuple[list[Computed], dict[str, PartitionSet]]:
        """What was computed, with the digests of its files; and of each table that is not new where its rows are others now."""
        if job.kind == "upkeep" or job.anew:
            return computed, {}
        differing: dict[str, PartitionSet] = {}
        digests: dict[str, str] = {}
        with self.store.read() as conn:
            for each, one in zip(job.each, computed, strict=True):
                for name in self.warehouse.graph.made_with(each.table):
                    own, grain = self._own(name, one), self.warehouse.definitions[name].table.grain
                    if not self.warehouse.graph.out[name] or not own or read_by_file(self.warehouse, job, name):
                        continue
                    found = compare(self.catalogue, conn, name, grain, _rewrite(own), self.compute.digest)
                    if found is not None:
                        starts = (grain.hull(start, start + 1) for start in found.differing)
                        differing[name] = PartitionSet.of(*starts)
                        digests |= found.digests
        if digests:
            computed = [
                replace(one, made=tuple(replace(made, files=with_digests(made.files, digests)) for made in one.made))
                for one in computed
            ]
        return computed, differing

    def _make_durable(self, computed: Computed) -> None:
        """Data must be on disk before the catalogue says so."""
        paths = [self.catalogue.locate(made.table, file) for made in computed.made for file in made.files]
        self.storage.make_durable(paths)

    def _publish(
        self, job: Job, computed: Sequence[Computed], differing: Mapping[str, PartitionSet], seconds: float
    ) -> None:
        """All tables of the job at once."""
        parts = list(zip(job.each, computed, strict=True))
        changes = _changes([made for one in computed for made in one.made])
        with self.store.write() as conn:
            self.store.check_owner(conn, self.owner)
            at_us = self.now_us()
            names = ", ".join(each.table for each in job.each)
            note = Note("penstock", f"{job.kind} {names}", self._note(*parts[0]))
            if len(parts) > 1:
                note = replace(note, extra={**note.extra, "tables": {j.table: self._note(j, c) for j, c in parts}})
            # An update that changed nothing is a snapshot, too: a table has one version of each.
            idle = job.kind == "upkeep" and not (changes or job.anew)
            snapshot = self.catalogue.snapshot(conn) if idle else self.catalogue.publish(conn, changes, note, at_us)
            self._step("files published")
            if job.anew == "files":
                self.store.let_go(conn, job.table)
            elif job.withdrawn:
                self.store.let_go(conn, job.table, job.withdrawn)
            if job.files:
                feed = self.warehouse.definitions[job.table].table.feed
                assert feed is not None
                files = computed[0].files or job.files
                one = computed[0]
                self.store.mark_loaded(conn, job.table, feed, files, one.spans, one.readings, one.late)
                self._loaded(conn, feed)
            publications: tuple[PublishedTable, ...] = ()
            if job.kind == "upkeep":
                publications = (PublishedTable(job.table, snapshot, append=True),)
                for name in self.warehouse.graph.made_with(job.table) if job.anew else ():
                    self.store.put_version(conn, name, snapshot, at_us, None, dict(job.reflects or ()), job.id)
            else:
                for each, one in parts:
                    publications += self._recorded(conn, each, one, differing, snapshot, at_us)
            self._step("version recorded")
            how = ", ".join(dict.fromkeys(one.how for one in computed))
            self.store.append(conn, [UpdateFinished(at_us, job.id, job.table, publications, seconds, how)])
            self._step("event appended")

    def _recorded(
        self,
        conn: Connection,
        job: Job,
        computed: Computed,
        differing: Mapping[str, PartitionSet],
        snapshot: int,
        at_us: int,
    ) -> tuple[PublishedTable, ...]:
        """What was published of the tables that one part of a job makes, with a version of each on record."""
        tables = self.warehouse.graph.made_with(job.table)
        complete_us = self._complete(job, computed)
        for name in tables:
            reflects = {name: snapshot} if job.kind == "load" else None
            if job.reflects is not None:
                reflects = dict(job.reflects)
            self.store.put_version(conn, name, snapshot, at_us, complete_us, reflects, job.id)
        if computed.report is not None:
            for extent in ("", computed.report.extent):
                self.store.set_fact(conn, fact_of(computed.report.flow, extent), json.dumps(computed.report.dump()))
        found = [self._publication(job, name, computed, differing, snapshot, complete_us) for name in tables]
        lost = (
            job.kind == "load" and self.warehouse.graph.has_time[job.table] and not all(each.append for each in found)
        )
        left = self.store.loaded_times(conn, job.table) if lost else None
        refused = self._quarantined(conn, job, computed, snapshot)
        late = self.store.late_rows(conn, job.table) if refused and job.kind == "load" else 0
        return tuple(
            replace(each, left=left, quarantined_rows=refused, late_rows=late)
            if each.table == job.table
            else replace(each, left=left)
            for each in found
        )

    def _quarantined(self, conn: Connection, job: Job, computed: Computed, snapshot: int) -> int | None:
        """How many refused rows of a table, or of its flow, there are now; None if the job changed nothing in that."""
        flow = self.warehouse.definitions[job.table].flow
        names = {f"{name}_quarantine" for name in (job.table, *([flow.flow.name] if flow is not None else []))}
        if names.isdisjoint(made.table for made in computed.made):
            return None
        return sum(file.records for name in names for file in self.catalogue.files(conn, name, snapshot))

    def _note(self, job: Job, computed: Computed) -> dict[str, object]:
        """What the catalogue remembers of it, for people and other tools."""
        return {
            "job": job.id,
            "complete_us": self._complete(job, computed),
            "partitions": [list(interval) for interval in self._partitions(job, computed)],
            "pin": job.pin,
            "reflects": dict(job.reflects) if job.reflects is not None else None,
        }

    def _own(self, table: str, computed: Computed) -> list[Made]:
        return [made for made in computed.made if made.table == table]

    def _partitions(self, job: Job, computed: Computed) -> tuple[Interval, ...]:
        if job.pieces:
            return PartitionSet.of(*((piece.start_us, piece.end_us) for piece in job.pieces)).intervals
        grain = self.warehouse.definitions[job.table].table.grain
        if grain is WHOLE:
            return ()
        starts = {file.partition_us for made in self._own(job.table, computed) for file in made.files}
        return PartitionSet.of(*((start, grain.shift(start, 1)) for start in starts)).intervals

    def _ranges(self, table: str, computed: Computed) -> list[Interval]:
        time, zone = self.warehouse.definitions[table].time, zone_of(self.warehouse.zone)
        new = (made.files for made in self._own(table, computed) if not made.kept)
        return [r for files in new for r in time_range(files, time, zone)] if time else []

    def _complete(self, job: Job, computed: Computed) -> int | None:
        """Up to which time the table is complete when this is published."""
        if job.kind != "load" or job.complete_us is not None:
            return job.complete_us
        definition = self.warehouse.definitions[job.table]
        feed = self.warehouse.graph.feeds[definition.table.feed or ""]
        ranges = self._ranges(job.table, computed)
        if not self.warehouse.graph.has_time[job.table] or feed.punctuated or not ranges:
            return None
        leading = max(end for _, end in ranges)
        if feed.mode == "snapshot":
            # One file is the whole of its partitions.
            return definition.table.grain.ceil(leading)
        return leading - feed.lateness_us

    def _publication(
        self,
        job: Job,
        table: str,
        computed: Computed,
        differing: Mapping[str, PartitionSet],
        snapshot: int,
        complete_us: int | None,
    ) -> PublishedTable:
        own = self._own(table, computed)
        ranges = self._ranges(table, computed)
        if job.kind == "load":
            flows = self.warehouse.graph.has_time[table]
            # What was asked for is made again from its files, and a restated partition may have lost rows of any of its times;
            # of what was corrected it is known what went.
            grain = self.warehouse.definitions[table].table.grain
            stated = [grain.hull(*interval) for made in own for interval in made.replace or ()]
            asked = [(piece.start_us, piece.end_us) for piece in job.pieces if piece.need.requests]
            lost = [interval for made in own for interval in made.lost]
            changed = PartitionSet.of(*ranges, *stated, *asked, *lost).intervals if flows else ()
        else:
            changed = changed_by(job.pieces)
        same: PartitionSet = EMPTY
        if table in differing:
            made_again = PartitionSet.of(*changed) if self.warehouse.graph.has_time[table] else EVERYTHING
            same = made_again - differing[table]
        return PublishedTable(
            table=table,
            snapshot=snapshot,
            append=all(made.replace == () and not made.drop for made in own),
            changed=changed,
            complete_us=complete_us,
            leading_us=max((end - 1 for _, end in ranges), default=None),
            begin_us=min((start for start, _ in ranges), default=None),
            rows=sum(file.records for made in own if not made.kept for file in made.files),
            size_bytes=sum(file.size_bytes for made in own if not made.kept for file in made.files),
            files=sum(len(made.files) for made in own if made.replace == ()),
            same=same.intervals,
        )

    def _stopped(self, job: Job, seconds: float) -> None:
        with self.store.write() as conn:
            self.store.check_owner(conn, self.owner)
            self.store.append(conn, [UpdateStopped(self.now_us(), job.id, job.table, seconds)])

    def _fail(self, job: Job, error: Exception, seconds: float) -> None:
        at_us = self.now_us()
        final = isinstance(error, SchemaConflict)
        events: list[Event] = [UpdateFailed(at_us, job.id, job.table, explain_error(error), seconds, final)]
        with self.store.write() as conn:
            self.store.check_owner(conn, self.owner)
            if isinstance(error, BadFiles):
                feed = self.warehouse.definitions[job.table].table.feed
                assert feed is not None
                known = self.store.known_files(conn, feed, [file.uri for file, _ in error.found])
                for file, reason in error.found:
                    if file.uri in known and known[file.uri].checksum != file.checksum:
                        continue  # its new content was noticed already, and is loaded next
                    # After the failure, which gives all files back to the table.
                    events.append(FileQuarantined(at_us, feed, file, reason))
                    # One that is not as it was when it came is looked at again.
                    there = _is_there(self.warehouse.declarations.folder / file.uri, file)
                    self.store.put_file(conn, feed, file, 0, "quarantined" if there else UNREAD, reason)
            self.store.append(conn, events)


def _changes(made: Sequence[Made]) -> list[TableChange]:
    """One change per table: a job may both add to a table and replace partitions of it."""
    by_table: dict[str, list[Made]] = {}
    for part in made:
        by_table.setdefault(part.table, []).append(part)
    return [
        TableChange(
            table,
            parts[0].schema or parts[-1].schema,
            None
            if any(part.replace is None for part in parts)
            else PartitionSet.of(*(interval for part in parts for interval in part.replace or ())).intervals,
            [file for part in parts for file in part.files],
            [file for part in parts for file in part.drop],
        )
        for table, parts in by_table.items()
    ]


def _rewrite(made: Sequence[Made]) -> Rewrite:
    (change,) = _changes(made)
    return Rewrite(
        change.schema,
        tuple(change.add),
        None if change.replace is None else PartitionSet.of(*change.replace),
        frozenset(change.drop_ids),
        PartitionSet.of(*(interval for part in made for interval in part.lost)),
    )


def _is_there(path: Path, file: FeedFile) -> bool:
    """Whether a delivered file can be read, and is as long as when it came."""
    try:
        with path.open("rb"):
            return path.stat().st_size == file.size_bytes
    except OSError:
        return False


def explain_error(error: BaseException) -> str:
    """The part of an error that a person can use: no stack of the JVM, not the whole query plan."""
    if isinstance(error, Py4JJavaError):
        return _root_cause(error.java_exception)
    text = str(error).split("JVM stacktrace:")[0].split("\n\tat ")[0].strip()
    if (said := _raised(text)) is not None:
        return said
    text = "\n".join(line for line in text.splitlines() if line.strip())[:2000]
    return text if isinstance(error, PenstockError) else f"{type(error).__name__}: {text}"


def _raised(text: str) -> str | None:
    """What a query said with `raise_error`: the words are ours, or the user's own."""
    _, found, said = text.partition("[USER_RAISED_EXCEPTION] ")
    return said.split(" SQLSTATE:")[0][:2000] if found else None


def _root_cause(error: Any) -> str:
    """What went wrong first inside the JVM; the layers above it only say that something did."""
    while error.getCause() is not None:
        error = error.getCause()
    text = str(error.toString()).split("\n\tat ")[0].strip()
    if (said := _raised(text)) is not None:
        return said
    return text.split(": ", 1)[-1][:2000] if ": " in text else text[:2000]
