"""The data work of jobs on Spark: loads, derivations and upkeep. One instance per track, each with a session of its
own, so that temporary views of jobs that run side by side never meet."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.control.events import FeedFile, Job
from penstock.declare.sqlview import Aggregate
from penstock.declare.warehouse import Definition, Warehouse
from penstock.engine.derive import Derivation, Lookup, Slice, check_partitions
from penstock.engine.executor import BadFiles, Computed, Made, explain_error
from penstock.engine.flows.progress import Watched
from penstock.engine.flows.realise import FILE, hidden_of
from penstock.engine.flows.work import FlowWork, Kept, quarantine_of
from penstock.engine.leftovers import job_folders, remove_written
from penstock.engine.links import Links
from penstock.engine.load import QUARANTINE, FeedReader, base_rows, refused_of
from penstock.engine.rows import RowsProblem, Staged, read_files, stage, within
from penstock.engine.shared import SharedReads, shared_sources
from penstock.engine.spark import ENDED, SparkProblem, is_alive
from penstock.flows.report import FlowReport
from penstock.model.grain import WHOLE
from penstock.model.partitions import EMPTY, PartitionSet
from penstock.model.schema import Schema
from penstock.requests.needs import partitions_of
from penstock.store.store import Store
from penstock.tables import Catalogue, DataFile

SMALL_FILE_BYTES = 32 << 20
WORTH_MERGING = 8
MERGED_AT_ONCE = 32


@dataclass(frozen=True)
class Loaded:
    """What a load staged for each table, and how many rows of its files were refused."""

    staged: dict[str, Staged]
    refused: int
    report: FlowReport | None = None


class SparkWork:
    def __init__(
        self,
        session: SparkSession,
        warehouse: Warehouse,
        store: Store,
        catalogue: Catalogue,
        schema_of_feed: Callable[[str], Schema | None],
        kept: Kept | None = None,
        watched: Watched | None = None,
    ) -> None:
        self.session = session
        self.warehouse = warehouse
        self.store = store
        self.catalogue = catalogue
        self.schema_of_feed = schema_of_feed
        self.flows = FlowWork(session, warehouse, store, catalogue, kept or Kept(), watched or Watched())
        # Where Spark finds delivered files, while a job reads them.
        self._links = Links(warehouse.declarations.state_folder / "reading" / uuid.uuid4().hex)
        # What several tables of a group read, while they are made.
        self._shared: SharedReads | None = None

    def run(self, job: Job, folder: str) -> Computed:
        definition = self.warehouse.definitions[job.table]
        try:
            if job.kind == "load":
                return self._load(job, definition, folder)
            if job.kind == "derive":
                return self._derive(job, definition, folder)
            return self._merge_small_files(job, definition, folder)
        except BaseException as error:
            self._discard(job.table, definition, folder)
            if isinstance(error, Exception) and not is_alive(self.session):
                raise SparkProblem(ENDED) from error
            raise
        finally:
            self._links.clear()

    @contextmanager
    def together(self, job: Job, folder: str) -> Iterator[None]:
        self._shared = SharedReads(self.session, shared_sources(self.warehouse.graph, job))
        try:
            yield
        except BaseException:
            for each in job.each:
                self._discard(each.table, self.warehouse.definitions[each.table], folder)
            raise
        finally:
            self._shared.release()
            self._shared = None

    def _discard(self, table: str, definition: Definition, folder: str) -> None:
        names = [f"{table}_quarantine"]
        if definition.flow is not None:
            names += [quarantine_of(definition.flow.flow.name)]
            keep = self.flows.kept.folders(table)
        else:
            keep = frozenset()
        for name in (*self.warehouse.graph.made_with(table), *names):
            for left in job_folders(Path(self.catalogue.folder(name)), folder):
                if left not in keep:
                    remove_written(left)

    def _stage(
        self, frame: DataFrame, definition: Definition, folder: str, input_bytes: int, hidden: Sequence[str] = ()
    ) -> Staged:
        root = self.catalogue.folder(definition.name)
        return stage(frame, Path(root) / folder, root, definition.time, definition.table.grain, input_bytes, hidden)

    # Loads

    def _reader(self, definition: Definition) -> FeedReader:
        feed = self.warehouse.feeds[definition.table.feed or ""]
        schema = self.schema_of_feed(feed.name)
        assert schema is not None
        return FeedReader(feed, schema, self.warehouse.declarations.folder, self._links)

    def _load(self, job: Job, definition: Definition, folder: str) -> Computed:
        reader = self._reader(definition)
        self._still_there(reader, job.files)
        table = definition.table
        snapshot = definition.restated
        # Of snapshots without partitions only the newest counts.
        files = job.files[-1:] if snapshot and table.grain is WHOLE else job.files
        made: list[Made] = []
        refused = 0
        report: FlowReport | None = None
        restate = partitions_of(list(job.pieces))
        if files:
            loaded = self._load_files(job, definition, reader, files, folder, restate, inside=False)
            refused, report = loaded.refused, loaded.report
            for name, staged in loaded.staged.items():
                if not snapshot or name not in self.warehouse.definitions:
                    ended: tuple[tuple[int, int], ...] | None = ()
                elif table.grain is WHOLE:
                    ended = None
                else:
                    starts = {file.partition_us for file in staged.files}
                    ended = tuple((start, start + 1) for start in sorted(starts))
                made.append(Made(name, staged.schema, staged.files, ended))
        if restate:
            made += self._restate(job, definition, reader, files, folder, restate)
        if refused:
            made.append(self._quarantine(job, reader, files, folder))
        self._still_there(reader, job.files)
        rejected = refused + (report.rejected if report is not None else 0)
        return Computed(tuple(made), "restate" if restate else "load", rejected, report)

    def _load_files(
        self,
        job: Job,
        definition: Definition,
        reader: FeedReader,
        files: Sequence[FeedFile],
        folder: str,
        restate: PartitionSet,
        *,
        inside: bool,
    ) -> Loaded:
        """Stage the rows of files: those in the restated partitions, or those outside."""
        size = sum(file.size_bytes for file in files)
        arrived = max(file.arrived_us for file in files)
        try:
            if definition.declaration.every and len(files) > 1:
                parts = [
                    self._load_files(job, definition, reader, [file], f"{folder}-{number}", restate, inside=inside)
                    for number, file in enumerate(files)
                ]
                staged_ = [part.staged[job.table] for part in parts]
                every = tuple(file for part in staged_ for file in part.files)
                whole = replace(staged_[0], files=every)
                return Loaded({job.table: whole}, sum(part.refused for part in parts))
            rows, seen = base_rows(self.session, definition, reader, files, arrived)
            if definition.declaration.every:
                # Snapshots are told apart by when they came.
                rows = rows.selectExpr(
                    "*",
                    f"{arrived * 1000 + job.files.index(files[0]) if files[0] in job.files else arrived * 1000}L as {FILE}",
                )
            folder += "-restated" if inside else ""

            def only(own: Definition) -> str | None:
                if not restate:
                    return None
                condition = within(own.time, restate) if own.time is not None else "true"
                return condition if inside else f"not ({condition})"

            if definition.flow is not None:
                report, staged = self.flows.load(job, definition, rows, size, folder, only)
            else:
                condition = only(definition)
                rows = rows if condition is None else rows.where(condition)
                report, staged = None, {job.table: self._stage(rows, definition, folder, size, hidden_of(rows))}
            return Loaded(staged, refused_of(seen) if seen is not None else 0, report)
        except RowsProblem:
            raise
        except (PySparkException, Py4JJavaError) as error:
            self._find_bad_files(reader, files, error)
            raise

    def _restate(
        self,
        job: Job,
        definition: Definition,
        reader: FeedReader,
        files: Sequence[FeedFile],
        folder: str,
        partitions: PartitionSet,
    ) -> list[Made]:
        """Partitions made again from all delivered files that have rows in them."""
        assert definition.table.feed is not None
        with self.store.read() as conn:
            rows = [row for start, end in partitions for row in self.store.loaded_within(conn, job.table, start, end)]
            if definition.restated and definition.table.grain is WHOLE:
                rows = self.store.last_loaded(conn, job.table)
        new = {file.uri for file in files}
        known = {
            row.uri: FeedFile(row.uri, row.checksum, row.size_bytes, row.arrived_us)
            for row in rows
            if row.uri not in new
        }
        every = [*known.values(), *files]
        gone = [(file, "loaded before, but needed again and no longer there") for file in known.values()
                if not (reader.folder / file.uri).exists()]  # fmt: skip
        if gone:
            raise RowsProblem(
                f"`{job.table}` must be made again from its files, but {gone[0][0].uri} is no longer there; put it back "
                "and type `penstock retry`"
            )
        if not every:
            tables = (self.warehouse.definitions[name] for name in self.warehouse.graph.made_with(job.table))
            return [Made(own.name, own.schema or (), (), partitions.intervals) for own in tables]
        if definition.restated:
            return self._newest_of_each(job, definition, reader, every, folder, partitions)
        loaded = self._load_files(job, definition, reader, every, folder, partitions, inside=True)
        # Refused rows were told when they came first.
        return [
            Made(name, staged.schema, staged.files, partitions.intervals)
            for name, staged in loaded.staged.items()
            if name in self.warehouse.definitions
        ]

    def _newest_of_each(
        self,
        job: Job,
        definition: Definition,
        reader: FeedReader,
        files: Sequence[FeedFile],
        folder: str,
        partitions: PartitionSet,
    ) -> list[Made]:
        """Where each file states whole partitions, the newest that has rows of a partition is what counts."""
        grain = definition.table.grain
        left = partitions
        staged: dict[str, list[Staged]] = {}
        for number, file in enumerate(sorted(files, key=lambda file: file.arrived_us, reverse=True)):
            if not left:
                break
            loaded = self._load_files(job, definition, reader, [file], f"{folder}-{number}", left, inside=True)
            for name, found in loaded.staged.items():
                if name in self.warehouse.definitions:
                    staged.setdefault(name, []).append(found)
            starts = {one.partition_us for found in loaded.staged.values() for one in found.files}
            stated = PartitionSet.of(*(grain.hull(start, start + 1) for start in starts))
            left = EMPTY if grain is WHOLE else left - stated
        ended = None if grain is WHOLE else partitions.intervals
        return [
            Made(name, parts[0].schema, tuple(one for part in parts for one in part.files), ended)
            for name, parts in staged.items()
        ]

    def _still_there(self, reader: FeedReader, files: Sequence[FeedFile]) -> None:
        bad = []
        for file in files:
            path = reader.folder / file.uri
            if not path.exists():
                bad.append((file, "the file vanished before it was loaded"))
            elif path.stat().st_size != file.size_bytes:
                bad.append((file, "the file changed while it was being loaded; it is taken up again when it is whole"))
        if bad:
            raise BadFiles(bad)

    def _find_bad_files(self, reader: FeedReader, files: Sequence[FeedFile], error: Exception) -> None:
        """A load failed: find out whether single files are to blame, so that the others can go on."""
        bad = []
        for file in files:
            try:
                reader.frame(self.session, [file]).write.format("noop").mode("overwrite").save()
            except (PySparkException, Py4JJavaError) as found:
                bad.append((file, explain_error(found).splitlines()[0]))
        if bad:
            raise BadFiles(bad) from error

    def _quarantine(self, job: Job, reader: FeedReader, files: Sequence[FeedFile], folder: str) -> Made:
        name = f"{job.table}_quarantine"
        root = self.catalogue.folder(name)
        arrived = max(file.arrived_us for file in files)
        rows = reader.refused(self.session, files, arrived, job.id)
        staged = stage(rows, Path(root) / folder, root, None, WHOLE, 0)
        return Made(name, QUARANTINE, staged.files)

    # Derived tables

    def _lookup(self, job: Job) -> Lookup:
        def find(
            table: str, partitions: PartitionSet | None, added_after: int | None, described: str | None = None
        ) -> Slice:
            within = partitions.intervals if partitions is not None else None
            if self.warehouse.definitions[table].table.grain is WHOLE:
                within = None
            with self.store.read() as conn:
                files = self.catalogue.files(conn, table, job.pin, within, added_after)
                if described is not None:
                    files = self.catalogue.described(conn, table, files, described)
                schema = self.catalogue.schema(conn, table, job.pin) or self.warehouse.definitions[table].schema
            assert schema is not None
            return Slice(tuple(files), tuple(self.catalogue.locate(table, file) for file in files), schema)

        return find

    def _derive(self, job: Job, definition: Definition, folder: str) -> Computed:
        derivation = Derivation(self.session, self.warehouse, job, self._lookup(job), self._shared)
        if definition.flow is not None:
            return self.flows.derive(job, definition, derivation, folder)
        outputs, how = derivation.outputs()
        made = []
        # A table over sources without time is always made as a whole.
        partitioned = definition.table.grain is not WHOLE and self.warehouse.graph.flows[job.table]
        for number, output in enumerate(outputs):
            name = folder if not number else f"{folder}-{number}"
            staged = self._stage(output.frame, definition, name, output.input_bytes, output.hidden)
            check_partitions(job.table, staged.files, output.partitions, partitioned)
            ended: tuple[tuple[int, int], ...] | None = output.partitions.intervals if partitioned else None
            made.append(Made(job.table, staged.schema, staged.files, () if output.append else ended))
        return Computed(tuple(made), how)

    # Upkeep

    def _merge_small_files(self, job: Job, definition: Definition, folder: str) -> Computed:
        with self.store.read() as conn:
            small = self.catalogue.small_files(conn, job.table, SMALL_FILE_BYTES, WORTH_MERGING)
            schema = self.catalogue.schema(conn, job.table)
        chosen: dict[int, list[DataFile]] = {}
        for start, files in sorted(small.items()):
            # Newer content may still be wanted by itself, by a reader that folds only what came.
            settled = [file for file in files if file.content <= job.pin]
            if len(settled) >= WORTH_MERGING and len(chosen) < MERGED_AT_ONCE:
                chosen[start] = settled
        files = [file for group in chosen.values() for file in group]
        if not files or schema is None:
            return Computed((), "nothing to merge")
        hidden = _hidden(definition)
        paths = [self.catalogue.locate(job.table, file) for file in files]
        size = sum(file.size_bytes for file in files)
        rows = read_files(self.session, paths, (*schema, *hidden), size)
        staged = self._stage(rows, definition, folder, size, [column.name for column in hidden])
        content = {start: max(file.content for file in group) for start, group in chosen.items()}
        merged = tuple(replace(file, content=content[file.partition_us]) for file in staged.files)
        made = Made(job.table, schema, merged, (), tuple(file.id for file in files))
        return Computed((made,), f"merged {len(files)} files into {len(merged)}")


def _hidden(definition: Definition) -> Schema:
    view = definition.view
    if view is not None and isinstance(view.how, Aggregate) and definition.table.foldable:
        return view.how.state
    return ()
