"""Loads: the rows of delivered files become rows of a base table, each with the number of its file.

What a base table holds follows from the files that it took and nothing else. New files add rows. A file that has other
content now, or was withdrawn, takes its own rows away, found by that number. A table that is declared anew takes its rows
along into their new partitions, or its files are read again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import expr

from penstock.declare.warehouse import Definition, Definitions
from penstock.engine.flows.work import REFUSED, FlowWork, quarantine_of
from penstock.engine.ports import Computed, Made
from penstock.engine.storage import LocalStorage
from penstock.engine.updates.executor import BadFiles, explain_error
from penstock.engine.updates.load import LATE, QUARANTINE, FeedReader, base_rows, refused_of
from penstock.engine.updates.provenance import COLUMN, FILE, spans_by_file
from penstock.engine.updates.rows import RowsProblem, Staged, Writer, micros, quoted, read_files, struct_of, within
from penstock.engine.updates.text_values import Values, text
from penstock.engine.updates.times import instant_of
from penstock.flows.activities import BlackBox
from penstock.flows.report import FlowReport, total
from penstock.model.grain import WHOLE, Fixed, Grain, zone_of
from penstock.model.partitions import EMPTY, EVERYTHING, Interval, PartitionSet
from penstock.model.schema import Column, Schema
from penstock.model.time import HOUR_US
from penstock.requests.job import FeedFile, Job
from penstock.requests.needs import partitions_of
from penstock.store.store import Store, feed_file, spans_of
from penstock.tables import Catalogue, DataFile
from penstock.tables.footer import read_footer

# At the end of how a file was read: then the newest counted, of what files state.
NEWEST = "~"


@dataclass(frozen=True)
class StagedLoad:
    """What a load staged for each table, and how many rows of its files were refused."""

    staged: dict[str, Staged]
    refused: int
    report: FlowReport | None = None


@dataclass
class BaseLoad:
    """One job of one base table."""

    session: SparkSession
    warehouse: Definitions
    store: Store
    catalogue: Catalogue
    flows: FlowWork
    writer: Writer
    job: Job
    definition: Definition
    reader: FeedReader
    folder: str
    made: list[Made] = field(default_factory=list)
    refused: int = 0
    reports: list[FlowReport] = field(default_factory=list)
    # The files that were read, and those of which it is told what was refused.
    read: list[FeedFile] = field(default_factory=list)
    judged: list[FeedFile] = field(default_factory=list)
    # How many rows of each file were set aside as late.
    late: Counter[str] = field(default_factory=Counter)
    # What was staged of statements that are older than what the table has.
    superseded: list[DataFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        # The files of the job, each with what orders it.
        self.files = self.job.files
        # How the feed's files are read now, and how those were of which rows are taken along.
        self.reading = f"{self.reader.reading}:{self.definition.table.logic}{NEWEST if self.snapshot_mode else ''}"
        self.kept_as: dict[str, str] = {}
        kind, _, column = self.reader.feed.config.order.partition(" ")
        # Also for a table that keeps the rows of all: its readers want to know which is the newest.
        if kind == "column" and self.reader.feed.config.mode == "snapshot":
            self.files = tuple(replace(file, order=self._greatest(file, column)) for file in self.job.files)

    def _greatest(self, file: FeedFile, column: str) -> str:
        """The greatest value of a column in a file, as text that compares as the values do."""
        if not self._is_there(file):
            return file.order
        found = self.reader.frame(self.session, [file]).selectExpr(f"max({quoted(column)})")
        if found.dtypes[0][1] == "timestamp":
            # Not as what a clock shows: that comes twice where it is set back.
            found = found.selectExpr(micros(found.columns[0]))
        row = found.head()
        value = None if row is None else row[0]
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            return f"{Decimal(value) + 10**20:048.15f}"
        if isinstance(value, date):
            return value.isoformat()
        return re.sub(r"\d+", lambda number: number[0].zfill(20), str(value or ""))

    @property
    def snapshot_mode(self) -> bool:
        return self.definition.restated

    @property
    def one_counts(self) -> bool:
        """Whether the table is what its newest file says."""
        return self.snapshot_mode and self.definition.table.grain is WHOLE

    @property
    def tables(self) -> list[Definition]:
        return [self.warehouse.definitions[name] for name in self.warehouse.graph.made_with(self.job.table)]

    def run(self) -> Computed:
        job = self.job
        with self.store.read() as conn:
            held = self.store.held(conn, job.table, None if job.anew else [*(f.uri for f in job.files), *job.withdrawn])
        # Another content of a file that is there came when that did.
        self.files = tuple(replace(f, late_us=held[f.uri].late_us) if f.uri in held else f for f in self.files)
        if job.anew == "rows":
            self.kept_as = {uri: row.reading for uri, row in held.items()}
            self.late.update({uri: row.late_rows for uri, row in held.items()})
            self._take_along(self._rows_of(None))
            how = "made anew from its rows"
        elif job.anew:
            self._read_again(held)
            how = "made anew from its files"
        else:
            how = self._load(held)
        if self.refused:
            self._quarantine()
        self._still_there(job.files if job.anew != "files" else self.read)
        report = total(self.reports) if self.reports else None
        spans = self._spans()
        self._remove_superseded()
        readings = {file.uri: self.kept_as.get(file.uri, self.reading) for file in self.files}
        return Computed(tuple(self.made), how, report, spans, self.files, readings, self.late)

    # What came

    def _load(self, held: Mapping[str, Any]) -> str:
        job = self.job
        self._still_there(job.files)
        asked = partitions_of([piece for piece in job.pieces if piece.need.requests])
        files = self._counting(self.files)
        stated = EMPTY
        if files and not (asked and self.one_counts):
            loaded = self._stage_files(files, self.folder, lambda own: _outside(own, asked))
            self._judge(loaded, files)
            stated = self._add(loaded.staged, replacing=self.snapshot_mode)
        gone = [row for uri, row in held.items() if row.min_us is not None or spans_of(row)]
        if gone:
            self._drop_rows(gone, stated | asked)
        if asked:
            self._restate(asked, files)
        if self.judged and self.one_counts:  # what was refused of the others counts no longer, as their rows do not
            with self.store.read() as conn:
                held = self.store.held(conn, job.table)
        self._drop_refused(list(held.values()))
        return "restate" if asked else "correct" if gone else "load"

    def _counting(self, files: Sequence[FeedFile]) -> list[FeedFile]:
        """Of snapshots without partitions only the newest counts."""
        if not files or not self.one_counts:
            return list(files)
        newest = max(files, key=_rank)
        with self.store.read() as conn:
            before = self.store.last_loaded(conn, self.job.table)
        again = {file.uri for file in files}
        if any(row.uri not in again and _rank(feed_file(row)) > _rank(newest) for row in before):
            return []  # an older statement that came late
        return [newest]

    def _add(self, staged: Mapping[str, Staged], *, replacing: bool) -> PartitionSet:
        """Publish what was staged: in addition, or in the place of the partitions that it has. Gives those partitions."""
        stated = EMPTY
        for name, found in staged.items():
            own = self.warehouse.definitions.get(name)
            files, ended = found.files, ()  # type: tuple[DataFile, ...], tuple[Interval, ...] | None
            if own is not None and replacing:
                ended = None
                if own.table.grain is not WHOLE:
                    files = self._newer_than_stored(own, files)
                    starts = sorted({file.partition_us for file in files})
                    ended = tuple((start, start + 1) for start in starts)
                    stated |= PartitionSet.of(*(own.table.grain.hull(start, start + 1) for start in starts))
            self.made.append(Made(name, found.schema, files, ended))
        return stated

    def _newer_than_stored(self, own: Definition, files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
        """Where each file states whole partitions, an older statement that comes late does not count."""
        if self.reader.feed.config.order == "arrival" or not files:
            return files
        again = {file.uri for file in self.files}
        with self.store.read() as conn:
            ranked = self.store.ranked(conn, self.job.table)
        ranks = {row.file_id: (row.order_key, row.arrived_us, row.file_id) for row in ranked if row.uri not in again}
        mine = max(_rank(file) for file in self.files)
        stored, _ = self._stored(
            own.name, PartitionSet.of(*((file.partition_us, file.partition_us + 1) for file in files))
        )
        root = self.catalogue.folder(own.name)
        newer = set()
        for file in stored:
            low, high = _numbers(read_footer(self.catalogue.locate(own.name, file), file.partition_us, root))
            if low == high and high in ranks and ranks[high] > mine:
                newer.add(file.partition_us)
        late = [file for file in files if file.partition_us in newer]
        self.superseded += late
        return tuple(file for file in files if file.partition_us not in newer)

    # What goes

    def _drop_rows(self, gone: Sequence[Any], stated: PartitionSet) -> None:
        """Take the rows of earlier contents of files away. `stated` are partitions that are replaced as a whole by this job."""
        whole = self.definition.table.grain
        unknown = [row.uri for row in gone if not row.file_id and PartitionSet.of(*spans_of(row)).hull(whole) - stated]
        if unknown:
            raise RowsProblem(
                f"`{self.job.table}` was loaded by an older Penstock, which did not keep from which file a row came, so the rows of "
                f"{unknown[0]} cannot be found; type `penstock backfill {self.job.table} all` to read its files again"
            )
        numbers = {row.file_id for row in gone}
        spans = PartitionSet.of(*(span for row in gone for span in spans_of(row)))
        for own in self.tables:
            grain = own.table.grain
            where = None if grain is WHOLE else spans.hull(grain) - stated
            if stated == EVERYTHING or (where is not None and not where):
                continue
            if any(made.table == own.name and made.replace is None for made in self.made):
                continue
            kept, dropped = self._rewritten(own.name, own.time, grain, where, numbers)
            fallen = EMPTY
            if self.snapshot_mode:
                fallen = PartitionSet.of(*(grain.hull(f.partition_us, f.partition_us + 1) for f in dropped))
            self.made.append(
                Made(own.name, self._schema(own), kept, (), tuple(file.id for file in dropped), spans.intervals, True)
            )
            if fallen and own.name == self.job.table:
                self._fall_back(fallen, {row.uri for row in gone})

    def _drop_refused(self, gone: Sequence[Any]) -> None:
        """Take what was refused of earlier contents of files out of the quarantine; that may have been all of a file."""
        if self.definition.flow is not None and (numbers := {row.file_id for row in gone if row.file_id}):
            name = quarantine_of(self.definition.flow.flow.name)
            kept, dropped = self._rewritten(name, None, WHOLE, None, numbers)
            if dropped:
                self.made.append(Made(name, REFUSED, kept, (), tuple(file.id for file in dropped), kept=True))
        if gone:
            self._forget_refused({row.uri for row in gone})

    def _judge(self, loaded: StagedLoad, files: Sequence[FeedFile]) -> None:
        """What was refused of these files is told."""
        self.refused += loaded.refused
        self.judged = [*files] if self.one_counts else [*self.judged, *files]

    def _add_refused(self, loaded: StagedLoad) -> None:
        """What a flow refused goes into its quarantine."""
        if self.definition.flow is None:
            return
        name = quarantine_of(self.definition.flow.flow.name)
        if name in loaded.staged:
            self.made.append(Made(name, REFUSED, loaded.staged[name].files))

    def _forget_refused(self, names: set[str]) -> None:
        """Rows of these files are no longer in the quarantine."""
        name = f"{self.job.table}_quarantine"
        found, schema = self._stored(name, None)
        dropped, rest = [], []
        for file in found:
            path = self.catalogue.locate(name, file)
            with pq.ParquetFile(path) as source:
                files = set(source.read(columns=["file"]).column(0).to_pylist())
            if files & names:
                dropped.append(file.id)
                rest += [path] if files - names else []
        if not dropped:
            return
        kept: tuple[DataFile, ...] = ()
        if rest:
            rows = read_files(self.session, rest, schema, 0)
            rows = rows.where(f"file not in ({', '.join(map(text, sorted(names)))})")
            root = self.catalogue.folder(name)
            kept = self.writer.stage(rows, Path(root) / f"{self.folder}-kept", root, None, WHOLE, 0).files
        self.made.append(Made(name, schema, kept, (), tuple(dropped), kept=True))

    def _rewritten(
        self, name: str, time: str | None, grain: Grain, where: PartitionSet | None, numbers: set[int]
    ) -> tuple[tuple[DataFile, ...], list[DataFile]]:
        """What is to stand in the place of the data files that hold rows of some contents, and those."""
        found, schema = self._stored(name, where)
        root = self.catalogue.folder(name)
        holding: dict[int, list[DataFile]] = {}
        dropped = []
        for file in found:
            if FILE not in file.physical.split(","):
                continue  # of before rows knew their file, or of another writer
            low, high = _numbers(read_footer(self.catalogue.locate(name, file), file.partition_us, root))
            if not any(low <= number <= high for number in numbers):
                continue
            dropped.append(file)
            if low != high:
                holding.setdefault(file.content, []).append(file)
        kept: list[DataFile] = []
        for content, files in holding.items():
            # Files with the same content number stay one: who folds what came since then must see neither more nor less.
            paths = [self.catalogue.locate(name, file) for file in files]
            size = sum(file.size_bytes for file in files)
            rows = read_files(self.session, paths, (*schema, COLUMN), size)
            rows = rows.where(f"coalesce({FILE}, 0L) not in ({', '.join(f'{number}L' for number in sorted(numbers))})")
            staged = self.writer.stage(
                rows, Path(root) / f"{self.folder}-kept-{content}", root, time, grain, size, [FILE]
            )
            kept += (replace(file, content=content) for file in staged.files)
        return tuple(kept), dropped

    def _fall_back(self, partitions: PartitionSet, without: set[str]) -> None:
        """A statement of partitions is gone: what the newest other file says of them counts again."""
        every = self._holding(partitions, without)
        if every:
            self._newest_of_each(every, partitions, f"{self.folder}-before")

    # What is made again

    def _restate(self, partitions: PartitionSet, files: Sequence[FeedFile]) -> None:
        """Partitions made again from the delivered files that have rows in them, because a user asked for it."""
        new = {file.uri for file in files}
        known = [file for file in self._holding(partitions) if file.uri not in new]
        if self.snapshot_mode:
            self._newest_of_each([*known, *files], partitions, f"{self.folder}-again")
            return
        there, gone = self._split(known)
        with self.store.read() as conn:
            held = [row for low, high in partitions for row in self.store.held_within(conn, self.job.table, low, high)]
        # Of a file whose newest content could not be loaded, the rows of the one before stay.
        names = new | {file.uri for file in there} | set(self.job.withdrawn)
        kept = {row.file_id for row in held if row.uri not in names} | {file.id for file in gone}
        loaded = None
        if there or files:
            loaded = self._stage_files(
                [*there, *files], f"{self.folder}-again", partial(_inside, partitions=partitions)
            )
        for own in self.tables:
            # Refused rows were told when they came first.
            again = loaded.staged[own.name].files if loaded is not None else ()
            made = (*again, *self._kept(own, kept, partitions, f"{self.folder}-again"))
            self.made.append(Made(own.name, self._schema(own), made, partitions.intervals))

    def _read_again(self, held: Mapping[str, Any]) -> None:
        """The whole table from the files that it was made from. Of a file that is no longer there, its rows are taken along
        where they are as they were delivered."""
        there, gone = self._split(self.files, held)
        if self.snapshot_mode:
            every = sorted([*there, *gone], key=_rank)
            if not self.one_counts:
                self._newest_of_each(every, EVERYTHING, self.folder, held)
                self._drop_refused([row for uri, row in held.items() if uri not in {file.uri for file in gone}])
                return
            there, gone = self._split(every[-1:], held)
            if gone and self._holds_others(gone[0]):
                self._still_needed(gone[0])
        self.read = there
        loaded = self._stage_files(there, self.folder, lambda _own: None) if there else None
        if loaded is not None:
            self._judge(loaded, there)
            self._add_refused(loaded)
        for own in self.tables:
            files = loaded.staged[own.name].files if loaded is not None else ()
            schema = loaded.staged[own.name].schema if loaded is not None else self._schema(own)
            self.made.append(Made(own.name, schema, (*files, *self._kept(own, _numbered(gone), None)), None))
        self._drop_refused([row for uri, row in held.items() if uri not in {file.uri for file in gone}])
        self.late.update({file.uri: held[file.uri].late_rows for file in gone if file.uri in held})

    def _holds_others(self, file: FeedFile) -> bool:
        """Whether the rows that the table has are those of other files, so that those of this one are lost."""
        root = self.catalogue.folder(self.job.table)
        found = [f for f in self._stored(self.job.table, None)[0] if FILE in f.physical.split(",")]
        numbers = [_numbers(read_footer(self.catalogue.locate(self.job.table, f), f.partition_us, root)) for f in found]
        return bool(numbers) and not any(low <= file.id <= high for low, high in numbers)

    def _take_along(self, rows: Mapping[str, DataFrame]) -> None:
        """The rows as they are, into the partitions of now."""
        for own in self.tables:
            frame = rows.get(own.name)
            staged = self._stage(frame, own, self.folder, self._size(own.name)) if frame is not None else None
            schema = staged.schema if staged is not None else self._schema(own)
            self.made.append(Made(own.name, schema, staged.files if staged is not None else (), None))

    def _kept(
        self, own: Definition, numbers: set[int], partitions: PartitionSet | None, folder: str = ""
    ) -> tuple[DataFile, ...]:
        """Rows of some contents, as they are stored."""
        if not numbers:
            return ()
        rows = self._rows_of(partitions if own.table.grain is not WHOLE else None).get(own.name)
        if rows is None:
            return ()
        rows = rows.where(f"{FILE} in ({', '.join(f'{number}L' for number in sorted(numbers))})")
        if partitions is not None and own.time is not None:
            rows = rows.where(within(own.time, partitions))
        rules = self._rules()
        if rules:
            keeps = " and ".join(f"coalesce(({rule}), false)" for rule in rules)
            self._refuse_stored(rows.where(f"not ({keeps})"), f"{folder or self.folder}-refused")
            rows = rows.where(keeps)
        return self._stage(rows, own, f"{folder or self.folder}-kept", self._size(own.name)).files

    def _rules(self) -> dict[str, str]:
        """What the rows of a table that takes them as they come must keep, each with what is said of one that does not."""
        if not self.definition.declaration.is_plain:
            return {}
        rules = {rule: f"breaks the rule: {rule}" for rule in self.reader.feed.config.rules}
        time = self.definition.time
        return rules if time is None else rules | {f"{quoted(time)} is not null": f"the event time {time} is null"}

    def _refuse_stored(self, rows: DataFrame, folder: str) -> None:
        """Stored rows that break the rules of now go to the quarantine."""
        name = f"{self.job.table}_quarantine"
        root = self.catalogue.folder(name)
        broken = " ".join(
            f"when not coalesce(({rule}), false) then {text(reason)}" for rule, reason in self._rules().items()
        )
        whole = ", ".join(quoted(column.name) for column in self.reader.schema)
        refused = rows.selectExpr(
            f"{self._file()} as file",
            "cast(null as bigint) as line",
            f"case {broken} end as reason",
            f"to_json(struct({whole})) as row",
            f"{text(self.job.id)} as job",
            "current_timestamp() as loaded_at",
        )
        staged = self.writer.stage(refused, Path(root) / folder, root, None, WHOLE, 0)
        if staged.files:
            self.made.append(Made(name, QUARANTINE, staged.files))

    def _split(
        self, files: Sequence[FeedFile], held: Mapping[str, Any] | None = None
    ) -> tuple[list[FeedFile], list[FeedFile]]:
        """Files that are there, and those of which only the rows are left: they are gone, or would be read otherwise now."""
        with self.store.read() as conn:
            known = held if held is not None else self.store.held(conn, self.job.table, [file.uri for file in files])
        there = [file for file in files if self._is_there(file) and not self._other(known.get(file.uri), held is None)]
        gone = [file for file in files if file not in there]
        if held is not None:
            gone = [replace(file, id=held[file.uri].file_id) for file in gone if file.uri in held]
        # Rows of a transform are as they should be only if they were made by what is declared now.
        plain = self.definition.declaration.is_plain and self._readable_as_declared()
        same = [plain or self._made_so(known.get(file.uri)) for file in gone]
        if not self.snapshot_mode:
            lost = self._lost(gone, known) if gone else []
            same = [one and file not in lost for one, file in zip(same, gone, strict=True)]
        if gone and (not all(same) or any(not file.id for file in gone)):
            first, also = gone[0].uri, f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
            advice = "take it out with `penstock withdraw`, or undo the change"
            if self._is_there(gone[0]):
                was = known[first].reading.partition(":")[0]
                raise RowsProblem(
                    f"`{self.job.table}` must be made again from its files, but {first}{also} was loaded as {was}, and the feed is "
                    f"{self.reader.feed.config.format} now; {advice}"
                )
            raise RowsProblem(
                f"`{self.job.table}` must be made again from its files, but {first} is no longer there{also}; "
                f"put it back and type `penstock retry {self.job.table}`, {advice}"
            )
        mark = NEWEST if self.snapshot_mode else ""
        self.kept_as |= {f.uri: known[f.uri].reading.rstrip(NEWEST) + mark for f in gone if f.uri in known}
        return there, gone

    def _lost(self, files: Sequence[FeedFile], known: Mapping[str, Any]) -> list[FeedFile]:
        """Of files that are gone, those whose rows are not stored, or not all: when the newest counted, others took their place."""
        loaded = [f for f in files if f.uri in known and (known[f.uri].reading or "").endswith(NEWEST)]
        had = {f.id: PartitionSet.of(*spans_of(known[f.uri])) for f in files if f.uri in known}
        found, schema = self._stored(self.job.table, None)
        time = self.definition.time
        is_there = time is None or time.lower() in (column.name.lower() for column in schema)
        paths = [self.catalogue.locate(self.job.table, f) for f in found if FILE in f.physical.split(",")]
        zone = zone_of(self.warehouse.zone)
        stored = spans_by_file(paths, time if is_there else None, HOUR_US, lambda value: instant_of(value, zone))
        lost = [file for file in files if had.get(file.id) and file.id not in stored]
        for file in loaded:
            grain = self.definition.table.grain
            here = PartitionSet.of(*stored.get(file.id, ())).hull(grain)
            if not is_there or not had[file.id] or had[file.id].hull(grain) - here:
                lost.append(file)
        return lost

    def _readable_as_declared(self) -> bool:
        """Whether what the files of the stored rows said can be read with the columns of now."""
        types = {column.name: column.type for column in self._schema(self.definition)}
        changed = [
            {column.type, types[column.name]}
            for column in self._stored(self.job.table, EMPTY)[1]
            if types.get(column.name, column.type) != column.type
        ]
        if any("<" in kind or kind == "binary" for kinds in changed for kind in kinds):
            return False
        # A clock time is told in the project's zone.
        here = self.reader.feed.config.zone in (None, self.warehouse.zone)
        return here or not any("timestamp" in kinds for kinds in changed)

    def _is_there(self, file: FeedFile) -> bool:
        return (self.reader.folder / file.uri).exists()

    def _other(self, row: Any | None, asked: bool) -> bool:
        """Whether a file was loaded in another way than it would be now. Who asks for it, or has a transform, wants it read with the
        options of now; but in another format nothing can be read."""
        if row is None or not row.reading:
            return False
        then, now = row.reading.split(":", 2), self.reading.split(":", 2)
        if asked or not self.definition.declaration.is_plain:
            return bool(then[0] != now[0])
        return bool(then[:2] != now[:2])

    def _made_so(self, row: Any | None) -> bool:
        return row is not None and bool(row.reading.rstrip(NEWEST) == self.reading.rstrip(NEWEST))

    def _newest_of_each(
        self,
        files: Sequence[FeedFile],
        partitions: PartitionSet,
        folder: str,
        held: Mapping[str, Any] | None = None,
    ) -> None:
        """Where each file states whole partitions, the newest that has rows of a partition is what counts. Rows of files that
        are no longer there are taken from what is stored, if that is to be had."""
        grain = self.definition.table.grain
        left = partitions
        found: dict[str, list[DataFile]] = {own.name: [] for own in self.tables}
        for number, file in enumerate(sorted(files, key=_rank, reverse=True)):
            if not left:
                break
            place = f"{folder}-{number}"
            wanted = left
            if held is not None and not self._split([file], held)[0]:
                gone = self._split([file], held)[1]
                parts = {own.name: self._kept(own, _numbered(gone), wanted, place) for own in self.tables}
                had = PartitionSet.of(*(s for f in gone for s in spans_of(held[f.uri]))).hull(grain) & wanted
                kept = [each.partition_us for each in parts[self.job.table]]
                if had - PartitionSet.of(*(grain.hull(start, start + 1) for start in kept)):
                    self._still_needed(file)  # it is the newest where another was until now
            else:
                self._still_needed(file)
                self.read.append(file)
                # When all is read again it is seen where each file has rows, also those that do not count.
                some = None if held is not None else partial(_inside, partitions=wanted)
                loaded = self._stage_files([file], place, some or (lambda _own: None))
                if held is not None or self.one_counts:  # else they were told when they came
                    self._judge(loaded, [file])
                    self._add_refused(loaded)
                parts = {name: _within(found_in.files, wanted) for name, found_in in loaded.staged.items()}
                staged = loaded.staged[self.job.table].files
                self.superseded += [each for each in staged if each not in parts[self.job.table]]
            for name in found:
                found[name] += parts.get(name, ())
            starts = {one.partition_us for name in found for one in parts.get(name, ())}
            stated = PartitionSet.of(*(grain.hull(start, start + 1) for start in starts))
            left = EMPTY if grain is WHOLE else left - stated
        ended = None if grain is WHOLE or partitions == EVERYTHING else partitions.intervals
        for own in self.tables:
            self.made.append(Made(own.name, self._schema(own), tuple(found[own.name]), ended))

    def _still_needed(self, file: FeedFile) -> None:
        if not self._is_there(file):
            raise RowsProblem(
                f"`{self.job.table}` needs {file.uri} again, the newest other file that states the same partitions, but it is no longer "
                f"there; put it back and type `penstock retry {self.job.table}`, or take it out with `penstock withdraw`"
            )

    # Files and rows

    def _holding(self, partitions: PartitionSet, without: Iterable[str] = ()) -> list[FeedFile]:
        """The files of which the table has, or had, rows in some partitions; where each states all, the last one. What is
        withdrawn does not count."""
        without = {*without, *self.job.withdrawn}
        with self.store.read() as conn:
            if self.one_counts:
                rows = self.store.last_loaded(conn, self.job.table, without)
            else:
                rows = [
                    r for low, high in partitions for r in self.store.loaded_within(conn, self.job.table, low, high)
                ]
        return list({row.uri: feed_file(row) for row in rows if row.uri not in without}.values())

    def _stored(self, table: str, partitions: PartitionSet | None) -> tuple[list[DataFile], Schema]:
        within = partitions.intervals if partitions is not None else None
        with self.store.read() as conn:
            found = self.catalogue.files(conn, table, self.job.pin, within)
            schema = self.catalogue.schema(conn, table, self.job.pin)
        return found, schema or ()

    def _schema(self, own: Definition) -> Schema:
        return own.schema or self._stored(own.name, EMPTY)[1]

    def _rows_of(self, partitions: PartitionSet | None) -> dict[str, DataFrame]:
        """The stored rows of the tables that the job makes, with the numbers of their files; of columns that are new, null."""
        rows = {}
        for own in self.tables:
            found, schema = self._stored(own.name, partitions)
            if not found:
                continue
            paths = [self.catalogue.locate(own.name, file) for file in found]
            frame = read_files(self.session, paths, (*schema, COLUMN), sum(f.size_bytes for f in found))
            before = {column.name: column.type for column in schema}
            known = {name.lower() for name in before}
            other = {
                c.name: self._as_delivered(c, before[c.name])
                for c in self._schema(own)
                if c.type != before.get(c.name, c.type)
            }
            frame = frame.withColumns(other) if other else frame
            new = [
                f"cast(null as {c.type}) as {quoted(c.name)}" for c in self._schema(own) if c.name.lower() not in known
            ]
            rows[own.name] = frame.selectExpr("*", *new) if new else frame
        return rows

    def _as_delivered(self, column: Column, before: str) -> SparkColumn:
        """A stored value in the type that its column has now, as if its file were read again: what its text says, or the same number
        or time. What would be cut or lost is an error."""
        value, kind, values = quoted(column.name), struct_of((column,)).fields[0].dataType, self._values(before)
        said = f"cast({value} as string)"
        ways = [(f"{value} is null", f"cast(null as {column.type})")]
        if (unfit := values.unfit(said, kind)) is not None:
            ways.append((f"not ({unfit})", values.value(said, kind)))
        through = [said, value] if _is_number(before) and _is_number(column.type) else [said]
        for way in through:
            now = f"try_cast({way} as {column.type})"
            back = f"cast({now} as string)" if way is said else now
            ways.append((f"coalesce(try_cast({back} as {before}) = {value}, false)", now))
        cases = " ".join(f"when {test} then {now}" for test, now in ways)
        changed = f"{column.name} was {before} and is {column.type} now, but "
        file = f"coalesce({self._file()}, 'a file')"  # one of another job
        hint = f": put it back and type `penstock retry {self.job.table}`, take it out with `penstock withdraw`, or undo the change"
        error = f"concat({text(changed)}, {file}, ', of which only the rows are left, has ', {said}, {text(hint)})"
        return expr(f"case {cases} else raise_error({error}) end")

    def _file(self) -> str:
        """The name of the file that a stored row is of."""
        files = ", ".join(f"{file.id}L, {text(file.uri)}" for file in self.job.files)
        return f"element_at(map({files}), {FILE})" if files else "cast(null as string)"

    def _values(self, before: str) -> Values:
        """How the text of stored values is to be understood: what was text is as it was delivered."""
        return self.reader.values(self.session) if before == "string" else Values()

    def _size(self, table: str) -> int:
        return sum(file.size_bytes for file in self._stored(table, None)[0])

    def _stage(self, frame: DataFrame, own: Definition, folder: str, size: int) -> Staged:
        root = self.catalogue.folder(own.name)
        return self.writer.stage(frame, Path(root) / folder, root, own.time, own.table.grain, size, [FILE])

    def _stage_files(
        self, files: Sequence[FeedFile], folder: str, only: Callable[[Definition], str | None]
    ) -> StagedLoad:
        """Stage the rows of files, of each table those that are wanted."""
        size = sum(file.size_bytes for file in files)
        arrived = max(file.arrived_us for file in files)
        try:
            if self.definition.flow is not None:
                return self._run_flow(files, folder, only)
            rows, seen = base_rows(self.session, self.definition, self.reader, files, arrived)
            condition = only(self.definition)
            rows = rows if condition is None else rows.where(condition)
            staged = {self.job.table: self._stage(rows, self.definition, folder, size)}
            return StagedLoad(staged, self._refused_of(files, arrived, seen, staged))
        except RowsProblem:
            raise
        except (PySparkException, Py4JJavaError) as error:
            self._find_bad_files(files, error)
            raise

    def _run_flow(self, files: Sequence[FeedFile], folder: str, only: Callable[[Definition], str | None]) -> StagedLoad:
        """A flow over the rows, which carry the numbers of their files. Where a function of the user's may lose those, over
        each file by itself."""
        assert self.definition.flow is not None
        loses = any(isinstance(step.does, BlackBox) for step in self.definition.flow.flow.steps)
        staged: dict[str, list[Staged]] = {}
        refused = 0
        for number, some in enumerate([[file] for file in files] if loses else [list(files)]):
            arrived = max(file.arrived_us for file in some)
            rows, seen = base_rows(self.session, self.definition, self.reader, some, arrived)
            place = folder if not number else f"{folder}-{number}"
            size = sum(file.size_bytes for file in some)
            tag = some[0].id if loses else None
            report, made = self.flows.load(self.job, self.definition, rows, size, place, only, tag)
            refused += self._refused_of(some, arrived, seen, made)
            self.reports.append(report)
            for name, found in made.items():
                staged.setdefault(name, []).append(found)
        return StagedLoad(
            {
                name: Staged(parts[0].folder, parts[0].schema, tuple(one for part in parts for one in part.files))
                for name, parts in staged.items()
            },
            refused,
        )

    def _refused_of(
        self, files: Sequence[FeedFile], arrived: int, seen: Sequence[Observation], staged: Mapping[str, Staged]
    ) -> int:
        """How many rows were refused while the others were written."""
        if seen and any(each.twice for each in staged.values()):
            return self.reader.count_refused(self.session, files, arrived)
        return sum(refused_of(one) for one in seen)

    def _still_there(self, files: Iterable[FeedFile]) -> None:
        bad = []
        for file in files:
            path = self.reader.folder / file.uri
            if not path.exists():
                bad.append((file, "the file vanished before it was loaded"))
            elif path.stat().st_size != file.size_bytes:
                bad.append((file, "the file changed while it was being loaded; it is taken up again when it is whole"))
        if bad:
            raise BadFiles(bad)

    def _find_bad_files(self, files: Sequence[FeedFile], error: Exception) -> None:
        """A load failed: find out whether single files are to blame, so that the others can go on."""
        bad = []
        for file in files:
            try:
                self.reader.frame(self.session, [file]).write.format("noop").mode("overwrite").save()
            except (PySparkException, Py4JJavaError) as found:
                bad.append((file, explain_error(found).splitlines()[0]))
        if bad:
            raise BadFiles(bad) from error

    def _quarantine(self) -> None:
        name = f"{self.job.table}_quarantine"
        root = self.catalogue.folder(name)
        files = self.judged
        arrived = max(file.arrived_us for file in files)
        rows = self.reader.refused(self.session, files, arrived, self.job.id)
        staged = self.writer.stage(rows, Path(root) / self.folder, root, None, WHOLE, 0)
        self.made.append(Made(name, QUARANTINE, staged.files))
        if self.reader.late_before(files) is not None:
            for file in staged.files:
                stored = pq.read_table(self.catalogue.locate(name, file), columns=["file", "reason"]).to_pylist()
                self.late.update(row["file"] for row in stored if row["reason"].startswith(LATE))

    def _remove_superseded(self) -> None:
        paths = [self.catalogue.locate(self.job.table, file) for file in self.superseded]
        LocalStorage(self.catalogue.data_path).delete(paths)

    def _spans(self) -> dict[str, tuple[Interval, ...]]:
        """In which stretches of time each file has rows now."""
        by_number: dict[int, list[Interval]] = {}
        zone = zone_of(self.warehouse.zone)
        for own in self.tables:
            grain = own.table.grain
            width = grain.width_us if isinstance(grain, Fixed) else HOUR_US
            files = [file for made in self.made if made.table == own.name and not made.kept for file in made.files]
            files += self.superseded if own.name == self.job.table else []
            paths = [self.catalogue.locate(own.name, file) for file in files]
            time = own.time if self.warehouse.graph.has_time[own.name] else None
            for number, spans in spans_by_file(paths, time, width, lambda value: instant_of(value, zone)).items():
                by_number.setdefault(number, []).extend(spans)
        known = {file.id: file.uri for file in self.job.files}
        return {
            known[number]: PartitionSet.of(*spans).intervals for number, spans in by_number.items() if number in known
        }


def _is_number(type_: str) -> bool:
    return type_ in ("tinyint", "smallint", "int", "bigint", "float", "double") or type_.startswith("decimal")


def _rank(file: FeedFile) -> tuple[str, int, int]:
    """What orders files that state the same."""
    return file.order, file.arrived_us, file.id


def _numbered(files: Sequence[FeedFile]) -> set[int]:
    return {file.id for file in files}


def _within(files: Sequence[DataFile], partitions: PartitionSet) -> tuple[DataFile, ...]:
    return tuple(file for file in files if PartitionSet.of((file.partition_us, file.partition_us + 1)) & partitions)


def _inside(own: Definition, partitions: PartitionSet) -> str:
    return within(own.time, partitions) if own.time is not None else "true"


def _outside(own: Definition, partitions: PartitionSet) -> str | None:
    return f"not ({_inside(own, partitions)})" if partitions else None


def _numbers(file: DataFile) -> tuple[int, int]:
    """The least and the largest number of a delivered file of which a data file has rows."""
    stats = file.stats.get(FILE)
    if stats is None or stats.min is None or stats.max is None:
        return 0, 2**62
    return int(stats.min), int(stats.max)
