"""A small world that the core can be driven in: real rows, no Spark, no clock, everything from one seed.

Base tables hold rows (time, key), a derived partition holds a sum of hashes of all rows that it was made from (or, row by
row, the rows themselves), so that a row that is lost or used twice shows. Jobs read their sources at the pinned snapshot,
fold or recompute exactly as `requests/needs.py` says, and may fail, be overtaken by other events or die with the process.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from penstock.control.controller import Controller
from penstock.control.declaration import what_is_anew
from penstock.control.events import (
    Event,
    FileArrived,
    FileQuarantined,
    FileRewritten,
    FilesOffered,
    FileWithdrawn,
    PunctuationArrived,
    RunStarted,
    UpdateFailed,
    UpdateFinished,
    UpdateStarted,
    WarehouseDeclared,
)
from penstock.control.snapshot import dump, load
from penstock.control.state import State
from penstock.model.grain import WHOLE
from penstock.model.graph import Graph
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.relations import Everything
from penstock.model.tables import Feed, Table
from penstock.model.time import BEGIN_US, END_US, SECOND_US
from penstock.requests.job import FeedFile, Job, PublishedTable
from penstock.requests.needs import changed_by, partitions_of
from penstock.scheduling.protocol import UpdatePolicy

NEVER = 1 << 60
MASK = (1 << 61) - 1


@dataclass(slots=True)
class Row:
    time: int
    key: int
    added: int  # the snapshot that holds it first
    removed: int = NEVER
    uri: str = ""  # of a base table: the file that it is from


class Content:
    """All versions of a table's rows, by partition of the table."""

    def __init__(self, grain) -> None:
        self.grain = grain
        self.starts: list[int] = []
        self.rows: dict[int, list[Row]] = {}

    def add(self, start: int, row: Row) -> None:
        if start not in self.rows:
            insort(self.starts, start)
            self.rows[start] = []
        self.rows[start].append(row)

    def end(self, start: int, snapshot: int) -> None:
        for row in self.rows.get(start, ()):
            if row.removed == NEVER:
                row.removed = snapshot

    def read(self, partitions: PartitionSet, pin: int, cut: int | None = None) -> list[Row]:
        found = []
        for low, high in partitions:
            for at in range(bisect_left(self.starts, self.grain.floor(low)), bisect_left(self.starts, high)):
                for row in self.rows[self.starts[at]]:
                    if row.added <= pin < row.removed and (cut is None or row.time < cut):
                        found.append(row)
        return found

    def at(self, start: int, pin: int = NEVER - 1) -> list[tuple[int, int]]:
        return sorted((row.time, row.key) for row in self.rows.get(start, ()) if row.added <= pin < row.removed)


def mixed(*parts: int) -> int:
    return hash(parts) & MASK


@dataclass
class Delivery:
    file: FeedFile
    feed: str
    rows: list[tuple[int, int]]
    loaded_by: set[str] = field(default_factory=set)


class World:
    """The world outside the core: what files hold, what tables hold, what runs."""

    def __init__(
        self, rng: Random, feeds: list[Feed], tables: list[Table], tracks: int = 2, policy: UpdatePolicy | None = None
    ) -> None:
        self.rng = rng
        self.now = 1_709_251_200_000_000  # 2024-03-01
        self.log: list[tuple[int, Event]] = []
        self.snapshots: list[tuple[int, dict]] = []
        self.policy = policy
        self.controller = Controller(policy=policy)
        self.snapshot = 0
        self.contents: dict[str, Content] = {}
        # What a file held by name and checksum, and which version of it is the newest.
        self.delivered: dict[tuple[str, str], Delivery] = {}
        self.newest: dict[str, Delivery] = {}
        self.running: dict[str, tuple[Job, Table, Graph]] = {}
        self.keys = 0
        self.fail_rate = 0.0
        self.counts: dict[tuple[str, int], int] = {}
        self.published: list[tuple[str, int, int | None, tuple | None]] = []
        # What each publication changed, and what each partition was last made from.
        self.changes: dict[str, list[tuple[int, PartitionSet]]] = {}
        self.made_from: dict[tuple[str, int], tuple] = {}
        self.repeated: list[tuple[str, int, str]] = []
        self.redefined = False
        self.bad: set[tuple[str, str]] = set()
        self.promises: list[tuple[str, int, list[Delivery]]] = []
        self.watches_claims = False
        # Whether it notices that what was made again has the same rows.
        self.compares = False
        # Which content of each file a table holds.
        self.held: dict[str, dict[str, Delivery]] = {}
        self.folded = 0
        self.recomputed = 0
        self.emit(RunStarted(self.now, "one"))
        self.declare(feeds, tables, tracks)

    # Events

    @property
    def state(self) -> State:
        return self.controller.state

    def emit(self, event: Event) -> None:
        number = len(self.log) + 1
        self.log.append((number, event))
        self.controller.apply(event, number)
        if isinstance(event, FileQuarantined):
            self.bad.add((event.file.uri, event.file.checksum))
        if isinstance(event, PunctuationArrived):
            before = [delivery for delivery in self.delivered.values() if delivery.feed == event.feed]
            self.promises.append((event.feed, event.upto_us, before))
        if self.promises:
            self.check_promises()
        if self.watches_claims and isinstance(event, UpdateFinished | WarehouseDeclared):
            self.check_claims()

    def check_claims(self) -> None:
        """No table says that it is complete further than what was delivered and loaded, and what is promised now, allow."""
        known: dict[str, int | None] = {}
        for name in self.graph.order:
            known[name] = truth = self.truth(name, known)
            edge = self.state.tables[name].edge_us
            assert edge is None or (truth is not None and edge <= truth), f"{name} claims {edge}, the truth is {truth}"

    def truth(self, name: str, above: dict[str, int | None]) -> int | None:
        """How far a table can be complete: by its files and promises alone, or by those of what it is made from."""
        table, graph = self.graph.tables[name], self.graph
        if not graph.has_time[name]:
            return None
        if not table.is_base:
            pairs = [
                (edge, above[edge.source])
                for edge in graph.into[name]
                if edge.source != name and graph.holds(edge) and (edge.source, name) not in graph.optional
            ]
            if any(upto is None for _, upto in pairs):
                return None
            return min((edge.map.carried(upto) for edge, upto in pairs), default=None)
        feed = self.feeds[table.feed]
        if feed.punctuated:
            kept = [
                upto
                for source, upto, before in self.promises
                if source == feed.name and all(self.dealt_with(name, delivery) for delivery in before)
            ]
            return max(kept, default=None)
        times = [t for d in self.delivered.values() if d.feed == feed.name and name in d.loaded_by for t, _ in d.rows]
        if not times:
            return None
        return table.grain.ceil(max(times) + 1) if feed.mode == "snapshot" else max(times) + 1 - feed.lateness_us

    def check_promises(self) -> None:
        """A table is only complete up to a promise if it has all files that came before it."""
        for name, table in self.state.tables.items():
            if table.table.is_base and self.feeds[table.table.feed].punctuated and table.edge_us is not None:
                assert any(
                    upto == table.edge_us and all(self.dealt_with(name, delivery) for delivery in before)
                    for feed, upto, before in self.promises
                    if feed == table.table.feed
                ), f"{name} claims to be complete too early"

    def dealt_with(self, table: str, delivery: Delivery) -> bool:
        """Loaded, or bad, or a newer content of the file is loaded."""
        uri, number = delivery.file.uri, int(delivery.file.checksum[1:])
        return (uri, delivery.file.checksum) in self.bad or any(
            known == uri and int(checksum[1:]) >= number and table in other.loaded_by
            for (known, checksum), other in self.delivered.items()
        )

    def tick(self) -> int:
        self.now += self.rng.randrange(1, 30 * SECOND_US)
        return self.now

    def declare(self, feeds: list[Feed], tables: list[Table], tracks: int = 2) -> None:
        graph = Graph(feeds, tables)
        # One that reads itself needs a time to begin with; `check` refuses it else.
        endless = {name for name in graph.chained if not graph.has_time[name]}
        tables = [
            replace(t, sources=tuple(s for s in t.sources if s.table != t.name)) if t.name in endless else t
            for t in tables
        ]
        self.feeds = {feed.name: feed for feed in feeds}
        self.tables = {table.name: table for table in tables}
        self.graph = Graph(feeds, tables)
        for table in tables:
            old = self.contents.get(table.name)
            if old is None:
                self.contents[table.name] = Content(table.grain)
        before = dict(self.state.tables)
        self.emit(WarehouseDeclared(self.tick(), tuple(feeds), tuple(tables), tracks, "max-benefit"))
        for table in tables:
            if table.is_base and table.name in before and what_is_anew(before[table.name].table, table) == "files":
                every = [d for d in self.newest.values() if d.feed == table.feed and not self.is_bad(d)]
                self.emit(FilesOffered(self.tick(), table.name, tuple(d.file for d in every)))

    def is_bad(self, delivery: Delivery) -> bool:
        return (delivery.file.uri, delivery.file.checksum) in self.bad

    def crash(self) -> None:
        """The process dies and another one folds the log again, from the start or from a saved state."""
        before = dump(self.state)
        number, saved = 0, None
        if self.snapshots and self.rng.random() < 0.7:
            number, saved = self.rng.choice(self.snapshots)
        controller = Controller(load(json.loads(json.dumps(saved))) if saved is not None else None, self.policy)
        for applied, event in self.log[number:]:
            controller.apply(event, applied)
        after = dump(controller.state)
        after["now_us"] = before["now_us"]  # the clock of a decision that started nothing is not in the log
        assert after == before, "folding the log again gives another state"
        self.controller = controller
        # Outside jobs go on.
        self.running = {name: found for name, found in self.running.items() if found[0].kind == "order"}
        self.emit(RunStarted(self.tick(), "again"))

    def save(self) -> None:
        self.snapshots.append((len(self.log), dump(self.state)))

    # Files

    def new_rows(self, times: list[int]) -> list[tuple[int, int]]:
        rows = []
        for time in times:
            self.keys += 1
            rows.append((time, self.keys))
        return rows

    def deliver(self, feed: str, rows: list[tuple[int, int]], uri: str | None = None) -> None:
        """A new file, or new content of one."""
        number = len(self.delivered)
        uri = uri or f"{feed}/{number}"
        file = FeedFile(uri, f"c{number}", 100 + 10 * len(rows), self.tick())
        old = self.newest.get(uri)
        self.delivered[uri, file.checksum] = self.newest[uri] = Delivery(file, feed, rows)
        if old is not None and old.loaded_by:
            ranges = PartitionSet.of(*((time, time + 1) for time, _ in old.rows)).intervals
            self.emit(FileRewritten(self.now, feed, file, ranges))
        else:
            self.emit(FileArrived(self.now, feed, file))

    def withdraw(self, uri: str) -> None:
        """A delivered file is taken back."""
        delivery = self.newest.pop(uri)
        loaded = [each for (known, _), each in self.delivered.items() if known == uri and each.loaded_by]
        ranges = PartitionSet.of(*((time, time + 1) for each in loaded[-1:] for time, _ in each.rows)).intervals
        self.emit(FileWithdrawn(self.tick(), delivery.feed, uri, ranges))

    def loaded(self, table: Table) -> list[Delivery]:
        """The files of which the table has what was delivered last: an older content is no longer there to be read."""
        return [d for d in self.newest.values() if d.feed == table.feed and table.name in d.loaded_by]

    # Jobs

    def decide(self) -> list[UpdateStarted]:
        decided_at = self.state.applied
        commands = self.controller.decide(self.now)
        for command in commands:
            for job in command.job.each:
                assert job.expected_s > 0, "policies divide by what an update takes"
                self.check_reads(job)
        return [c.started(decided_at) for c in commands]

    def start(self, event: UpdateStarted) -> None:
        writing = {each.table for job, _, _ in self.running.values() for each in job.each}
        assert not writing & {each.table for each in event.job.each}, "two writers of one table"
        self.emit(event)
        self.running[event.job.id] = (event.job, self.tables[event.job.table], self.graph)

    def check_reads(self, job: Job) -> None:
        """Nothing is read that is not there, or that cannot be cut where it must be."""
        if not job.makes_anew:
            return
        assert job.pieces, "a job without work"
        for edge in self.graph.into[job.table]:
            if edge.source == job.table or (edge.source, job.table) in self.graph.optional:
                continue
            source = self.state.tables[edge.source]
            assert source.exists
            if not self.graph.holds(edge):
                continue
            cut = edge.map.cut(job.edge_us)
            for piece in job.pieces:
                begun = PartitionSet(((piece.start_us, piece.end_us),)).within(
                    BEGIN_US, edge.map.table.ceil(job.edge_us)
                )
                for low, high in edge.map.required(begun):
                    assert source.edge_us >= min(high, cut), "rows are used that are not complete"
                    rolled_up = not (source.table.is_origin or source.table.exact_time or self.graph.fluid[edge.source])
                    if (
                        rolled_up
                        and (edge.source, job.table) not in self.graph.uncut
                        and source.edge_us > cut
                        and low < cut < high
                    ):
                        assert source.table.grain.floor(cut) == cut, "a roll-up is ahead and cannot be cut"

    def finish(self, identity: str) -> None:
        job, table, graph = self.running.pop(identity)
        seconds = self.rng.random() * 10
        if self.rng.random() < self.fail_rate:
            self.emit(UpdateFailed(self.tick(), job.id, job.table, "no luck", seconds, self.rng.random() < 0.1))
            return
        if job.kind == "upkeep":
            self.upkeep(job)
            self.emit(
                UpdateFinished(
                    self.tick(), job.id, job.table, (PublishedTable(job.table, self.snapshot, append=True),), seconds
                )
            )
            return
        if table.name in self.tables and self.tables[table.name].feed != table.feed:
            table = self.tables[table.name]
        if job.kind == "load":
            publications = [self.comparing(job, graph, lambda: self.load(job, table))]
        else:
            self.snapshot += 1  # one for all tables of a group
            publications = [
                self.comparing(each, graph, lambda each=each: self.derive(each, graph.tables[each.table], graph))
                for each in job.each
            ]
        for each, publication in zip(job.each, publications, strict=True):
            self.published.append((each.table, publication.snapshot, each.complete_us, each.reflects))
            changed = PartitionSet.of(*publication.changed) if graph.has_time[each.table] else EVERYTHING
            self.changes.setdefault(each.table, []).append((publication.snapshot, changed))
        self.emit(UpdateFinished(self.tick(), job.id, job.table, tuple(publications), seconds))

    def comparing(self, job: Job, graph: Graph, publish: Callable[[], PublishedTable]) -> PublishedTable:
        """What a job publishes, with those of its partitions that have the same rows as before."""
        if not self.compares or job.anew:
            return publish()
        content = self.contents[job.table]
        before = {start: content.at(start) for start in content.starts}
        publication = publish()
        grain = content.grain
        other = [s for s in content.starts if content.at(s) != before.get(s, [])]
        made = PartitionSet.of(*publication.changed) if graph.has_time[job.table] else EVERYTHING
        same = made - PartitionSet.of(*(grain.hull(start, start + 1) for start in other))
        return replace(publication, same=same.intervals)

    def upkeep(self, job: Job) -> None:
        """All files of a table become one: its rows look as if they were written now."""
        self.snapshot += 1
        content = self.contents[job.table]
        for start in list(content.starts):
            again = [row for row in content.rows[start] if row.added <= job.pin < row.removed]
            for row in again:
                row.removed = self.snapshot
                content.add(start, Row(row.time, row.key, self.snapshot, uri=row.uri))

    def load(self, job: Job, table: Table) -> PublishedTable:
        self.snapshot += 1
        feed = self.feeds[table.feed]
        if job.anew:
            self.empty(table)
        if job.anew == "files":
            self.held.pop(table.name, None)
        content = self.contents[table.name]
        grain = content.grain
        flows = feed.timed and not (feed.mode == "snapshot" and grain is WHOLE)
        deliveries = [self.delivered[file.uri, file.checksum] for file in job.files]
        for delivery in deliveries:
            delivery.loaded_by.add(table.name)
        logic = len(table.logic)
        restated = partitions_of(job.pieces)
        append = True
        changed = [(time, time + 1) for delivery in deliveries for time, _ in delivery.rows]
        if feed.mode == "snapshot":
            append = False
            if grain is WHOLE:
                content.end(BEGIN_US, self.snapshot)
                for time, key in self.restated_rows(table, BEGIN_US):
                    content.add(BEGIN_US, Row(time, mixed(logic, key), self.snapshot))
            else:
                starts = {grain.floor(time) for delivery in deliveries for time, _ in delivery.rows}
                starts |= set(restated.starts(grain))
                for start in starts:
                    content.end(start, self.snapshot)
                    for time, key in self.restated_rows(table, start):
                        content.add(start, Row(time, mixed(logic, key), self.snapshot))
                changed = [grain.hull(start, start + 1) for start in starts]
        else:
            held = self.held.setdefault(table.name, {})
            asked = partitions_of([piece for piece in job.pieces if piece.need.requests])
            uris = {delivery.file.uri for delivery in deliveries} | set(job.withdrawn)
            for start in content.starts:
                for row in content.rows[start]:
                    if row.removed == NEVER and row.uri in uris:
                        row.removed, append = self.snapshot, False
                        changed.append((row.time, row.time + 1))
                if start in asked:
                    content.end(start, self.snapshot)
                    append = False
            for uri, delivery in held.items():
                for time, key in delivery.rows if uri not in uris else ():
                    if grain.floor(time) in asked:
                        content.add(grain.floor(time), Row(time, mixed(logic, key), self.snapshot, uri=uri))
            for delivery in deliveries:
                for time, key in delivery.rows:
                    content.add(grain.floor(time), Row(time, mixed(logic, key), self.snapshot, uri=delivery.file.uri))
            held |= {delivery.file.uri: delivery for delivery in deliveries}
            for uri in job.withdrawn:
                held.pop(uri, None)
            restated = asked
        times = [time for delivery in deliveries for time, _ in delivery.rows]
        complete = None
        if flows and not feed.punctuated and times:
            complete = grain.ceil(max(times) + 1) if feed.mode == "snapshot" else max(times) + 1 - feed.lateness_us
        return PublishedTable(
            table.name,
            self.snapshot,
            append,
            PartitionSet.of(*changed, *restated).intervals if flows else (),
            complete,
            max(times, default=None),
            min(times, default=None),
            rows=len(times),
            size_bytes=10 * len(times),
            files=1,
        )

    def restated_rows(self, table: Table, start: int) -> list[tuple[int, int]]:
        """A partition of a table whose files each restate whole partitions: as the newest file has it."""
        for delivery in sorted(self.loaded(table), key=lambda d: int(d.file.checksum[1:]), reverse=True):
            rows = [(time, key) for time, key in delivery.rows if table.grain.floor(time) == start]
            if rows or table.grain is WHOLE:
                return rows
        return []

    def empty(self, table: Table) -> None:
        """A table is declared anew: what it held ends, whatever partitions that was in."""
        old = self.contents[table.name]
        self.contents[table.name] = again = Content(table.grain)
        for rows in old.rows.values():
            for row in rows:
                row.removed = min(row.removed, self.snapshot)
                again.add(table.grain.floor(row.time), row)

    def derive(self, job: Job, table: Table, graph: Graph) -> PublishedTable:
        if job.anew:
            self.empty(table)
        grain = table.grain
        content = self.contents[table.name]
        append = True
        wide = grain is WHOLE or not graph.has_time[table.name]
        writes: list[tuple[int, list[tuple[int, int]], bool]] = []
        for piece in job.pieces:
            starts = [BEGIN_US] if wide else PartitionSet(((piece.start_us, piece.end_us),)).starts(grain)
            assert len(starts) < 5000, "an endless job"
            for start in starts:
                self.count(job, table, graph, start)
                if not wide and start >= job.edge_us:
                    rows, appended = [], False  # its sources are no longer that far
                elif graph.folds[table.name] and piece.need.append:
                    self.folded += 1
                    rows, appended = self.fold(job, table, graph, start, piece.need)
                else:
                    self.recomputed += 1
                    rows, appended = self.recompute(job, table, graph, start), False
                writes.append((start, rows, appended))
        times = []
        for start, rows, appended in writes:
            append = append and appended
            if not appended:
                content.end(start, self.snapshot)
            for time, key in rows:
                times.append(time)
                content.add(start, Row(time, key, self.snapshot))
        return PublishedTable(
            table.name,
            self.snapshot,
            append,
            changed_by(job.pieces),
            job.complete_us,
            max(times, default=None),
            min(times, default=None) if grain is not WHOLE or table.exact_time else None,
            rows=len(times),
            size_bytes=10 * len(times),
            files=1,
        )

    def count(self, job: Job, table: Table, graph: Graph, start: int) -> None:
        """Note that a partition is made, and whether anything that it is made from changed since the last time."""
        key = (table.name, start)
        self.counts[key] = self.counts.get(key, 0) + 1
        partition = PartitionSet((table.grain.hull(start, start + 1),))
        if not graph.has_time[table.name]:
            partition = EVERYTHING  # it is made as a whole
        inputs = []
        for edge in graph.into[table.name]:
            required = edge.map.required(partition)
            if graph.holds(edge) and edge.source != table.name:
                required = required.within(BEGIN_US, edge.map.cut(job.edge_us))
            exact = graph.tables[edge.source].is_base or graph.tables[edge.source].exact_time
            met = [
                snapshot
                for snapshot, changed in self.changes.get(edge.source, ())
                if snapshot <= job.pin and (changed if exact else changed.hull(edge.map.source)) & required
            ]
            inputs.append(max(met, default=0))
        made_from = (job.edge_us, tuple(inputs))
        if self.made_from.get(key) == made_from:
            self.repeated.append((table.name, start, job.id))
        self.made_from[key] = made_from

    def recompute(self, job: Job, table: Table, graph: Graph, start: int) -> list[tuple[int, int]]:
        return made(table, graph, start, lambda edge, required: self.source_rows(job, graph, edge, required))

    def source_rows(self, job: Job, graph: Graph, edge, required: PartitionSet) -> list[tuple[int, int]]:
        cut = edge.map.cut(job.edge_us) if graph.holds(edge) and edge.source != job.table else None
        return [(row.time, row.key) for row in self.contents[edge.source].read(required, job.pin, cut)]

    def fold(self, job: Job, table: Table, graph: Graph, start: int, need) -> tuple[list[tuple[int, int]], bool]:
        """Rows of newer files, and rows of older ones that waited for the edge."""
        rows, total = [], 0
        for number, edge in enumerate(graph.into[table.name]):
            if edge.source not in table.looked_up:
                required = edge.map.required(PartitionSet((table.grain.hull(start, start + 1),)))
                found = self.contents[edge.source].read(required, job.pin, edge.map.cut(job.edge_us))
                new = [(r.time, r.key) for r in found if r.added >= need.since or r.time >= need.edge_us]
                total += sum(mixed(number, len(table.logic), time, key) for time, key in new)
                rows += new
        if table.exact_time:
            return made(table, graph, start, lambda _edge, _required: rows), True
        old = self.contents[table.name].at(start, job.pin)
        if not rows:
            return old, False
        if not old:
            return self.recompute(job, table, graph, start), False
        return [(row_time(table, start), (total + old[0][1]) & MASK)], False


def row_time(table: Table, start: int) -> int:
    """When a row of a roll-up is: at the start of its partition."""
    return 0 if start <= BEGIN_US else start


def made(table: Table, graph: Graph, start: int, read) -> list[tuple[int, int]]:
    """What a view makes of the rows that `read(edge, required)` gives for one partition."""
    partition = PartitionSet((table.grain.hull(start, start + 1),)) if graph.has_time[table.name] else None
    if table.exact_time:
        (edge,) = graph.into[table.name]
        logic = len(table.logic)
        rows = read(edge, edge.map.required(partition))
        return sorted((time, mixed(7, logic, key)) for time, key in rows if time in partition)
    total = 0
    any_rows = False
    windowed = any(not isinstance(e.map.relation, Everything) for e in graph.into[table.name] if e.source != table.name)
    for number, edge in enumerate(graph.into[table.name]):
        required = edge.map.required(partition) if partition is not None else PartitionSet(((BEGIN_US, END_US),))
        rows = read(edge, required)
        for time, key in rows:
            total += mixed(number, len(table.logic), time, key)
        if rows and edge.source != table.name and not (windowed and isinstance(edge.map.relation, Everything)):
            any_rows = True
    # Partitions are where the sources that are read by time have rows; the others only add to those.
    return [(row_time(table, start), total & MASK)] if any_rows else []


def denoted(
    world: World, name: str, start: int, cut: int, snapshots: dict[str, int], memo: dict
) -> list[tuple[int, int]]:
    """What a partition should hold by definition, from the base tables alone: all rows before `cut`."""
    key = (name, start, cut)
    if key in memo:
        return memo[key]
    table, graph = world.graph.tables[name], world.graph
    if table.is_base:
        pin = snapshots.get(name, NEVER - 1)
        where = PartitionSet((table.grain.hull(start, start + 1),))
        limit = cut if graph.has_time[name] else None
        found = [(row.time, row.key) for row in world.contents[name].read(where, pin, limit)]
    else:

        def read(edge, required: PartitionSet) -> list[tuple[int, int]]:
            source = graph.tables[edge.source]
            known = world.contents[edge.source].starts
            until = cut if edge.source == name else edge.map.cut(cut) if graph.holds(edge) else END_US
            rows: list[tuple[int, int]] = []
            for low, high in required:
                low = source.grain.floor(low)
                for at in range(bisect_left(known, low), bisect_left(known, min(high, until))):
                    rows += denoted(world, edge.source, known[at], until, snapshots, memo)
            return rows

        found = made(table, graph, start, read)
        if table.exact_time:
            found = [row for row in found if row[0] < cut]
    memo[key] = found
    return found
