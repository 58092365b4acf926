"""The data work of jobs on Spark: loads, derivations and upkeep. One instance per track, each with a session of its
own, so that temporary views of jobs that run side by side never meet."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from penstock.declare.spark_settings import full_name
from penstock.declare.warehouse import Definition, Definitions
from penstock.engine.faults import NotAvailable
from penstock.engine.flows.progress import Watched
from penstock.engine.flows.work import FlowWork, Kept, quarantine_of
from penstock.engine.ports import Compute, Computed, Made
from penstock.engine.spark.links import Links
from penstock.engine.spark.session import ENDED, is_alive
from penstock.engine.storage import LocalStorage
from penstock.engine.updates.baseload import BaseLoad
from penstock.engine.updates.derive import Derivation, FileLookup, Slice, check_partitions
from penstock.engine.updates.load import FeedReader
from penstock.engine.updates.provenance import COLUMN
from penstock.engine.updates.recent import RecentRows, SharedReads, shared_sources
from penstock.engine.updates.row_digest import digest_of_sums, row_number, summed
from penstock.engine.updates.rows import RowsProblem, Staged, Writer, read_files, schema_of
from penstock.model.grain import WHOLE
from penstock.model.partitions import EMPTY, PartitionSet
from penstock.model.schema import Schema
from penstock.requests.job import Job
from penstock.store.store import Store
from penstock.tables import Catalogue, DataFile

SMALL_FILE_BYTES = 32 << 20
WORTH_MERGING = 8
# Fewer files of a partition are merged, too, if opening them costs more than reading what is in them: an open costs as much as so many bytes.
OPENING_BYTES = 4 << 20
# At once as many partitions as have so many bytes, and at least one.
MERGED_BYTES = 512 << 20


def worth_merging(files: int, size_bytes: int) -> bool:
    """Whether small files of one partition are better one: soon read as often as it costs to write them again."""
    return files >= WORTH_MERGING or (files - 1) * OPENING_BYTES >= size_bytes > 0


class SparkWork(Compute):
    def __init__(
        self,
        session: SparkSession,
        warehouse: Definitions,
        store: Store,
        catalogue: Catalogue,
        schema_of_feed: Callable[[str], Schema | None],
        kept: Kept | None = None,
        watched: Watched | None = None,
        recent: RecentRows | None = None,
    ) -> None:
        self.session = session
        self.warehouse = warehouse
        self.store = store
        self.catalogue = catalogue
        self.schema_of_feed = schema_of_feed
        config = warehouse.declarations.config
        self.recent = recent or RecentRows(0, 0)
        self.writer = Writer(config.run.driver_bytes, self.recent.keep, {full_name(key) for key in config.spark})
        self.flows = FlowWork(session, warehouse, store, catalogue, self.writer, kept or Kept(), watched or Watched())
        # Where Spark finds delivered files, while a job reads them.
        self._links = Links(warehouse.declarations.state_folder / "reading" / uuid.uuid4().hex)
        # What several tables of a group read, while they are made.
        self._shared: SharedReads | None = None

    @property
    def is_alive(self) -> bool:
        return is_alive(self.session)

    def begin(self, group: str, track: int, what: str) -> None:
        with suppress(Py4JError, OSError):  # it has just ended, which the job will find
            spark = self.session.sparkContext
            spark.setLocalProperty("spark.scheduler.pool", f"track-{track}")
            spark.setJobGroup(group, what, True)
            # Threads of the job, as the steps of a flow have, make groups of their own; the tag goes with them.
            spark.clearJobTags()
            spark.addJobTag(group)

    def stop(self, group: str) -> None:
        with suppress(Py4JError, OSError):  # it has ended by itself
            self.session.sparkContext.cancelJobsWithTag(group)

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
                raise NotAvailable("spark", ENDED) from error
            raise
        finally:
            self._links.clear()

    @contextmanager
    def together(self, job: Job, folder: str) -> Iterator[None]:
        self._shared = SharedReads(self.session, shared_sources(self.warehouse.graph, job))
        try:
            yield
        except BaseException:
            self.discard(job, folder)
            raise
        finally:
            self._shared.release()
            self._shared = None

    def discard(self, job: Job, folder: str) -> None:
        for each in job.each:
            self._discard(each.table, self.warehouse.definitions[each.table], folder)

    def digest(self, table: str, files: Sequence[DataFile], schema: Schema) -> str | None:
        number = row_number(schema)
        if number is None:
            return None
        paths = [self.catalogue.locate(table, file) for file in files]
        rows = read_files(self.session, paths, schema, sum(file.size_bytes for file in files))
        batches = summed(rows, number)._collect_as_arrow(empty_list_if_zero_records=False)  # type: ignore[operator]
        (sums,) = pa.Table.from_batches(batches).to_pylist()
        return digest_of_sums(sums["high"], sums["low"])

    def _discard(self, table: str, definition: Definition, folder: str) -> None:
        names = [f"{table}_quarantine"]
        if definition.flow is not None:
            names += [quarantine_of(definition.flow.flow.name)]
            keep = self.flows.kept.folders(table)
        else:
            keep = frozenset()
        storage = LocalStorage(self.catalogue.data_path)
        for name in (*self.warehouse.graph.made_with(table), *names):
            for left in storage.job_folders(self.catalogue.folder(name), folder):
                if left not in keep:
                    storage.clear(left)

    def _stage(
        self, frame: DataFrame, definition: Definition, folder: str, input_bytes: int, hidden: Sequence[str] = ()
    ) -> Staged:
        root = self.catalogue.folder(definition.name)
        return self.writer.stage(
            frame, Path(root) / folder, root, definition.time, definition.table.grain, input_bytes, hidden
        )

    # Loads

    def _reader(self, definition: Definition) -> FeedReader:
        feed = self.warehouse.feeds[definition.table.feed or ""]
        schema = self.schema_of_feed(feed.name)
        assert schema is not None
        return FeedReader(feed, schema, self.warehouse.declarations.folder, self._links)

    def _load(self, job: Job, definition: Definition, folder: str) -> Computed:
        reader = self._reader(definition)
        load = BaseLoad(
            self.session,
            self.warehouse,
            self.store,
            self.catalogue,
            self.flows,
            self.writer,
            job,
            definition,
            reader,
            folder,
        )
        return load.run()

    # Derived tables

    def _lookup(self, job: Job) -> FileLookup:
        def find(
            table: str, partitions: PartitionSet | None, added_after: int | None, described: str | None = None
        ) -> Slice:
            within = partitions.intervals if partitions is not None else None
            if self.warehouse.definitions[table].table.grain is WHOLE:
                within = None
            with self.store.read() as conn:
                # What a table that starts anew held before is not itself.
                own = table in job.without or (job.anew and table in self.warehouse.graph.made_with(job.table))
                files = [] if own else self.catalogue.files(conn, table, job.pin, within, added_after)
                if described is not None:
                    files = self.catalogue.described(conn, table, files, described)
                stored, declared = self.catalogue.schema(conn, table, job.pin), self.warehouse.definitions[table].schema
                schema = (declared or stored) if own else (stored or declared)
            if schema is None:
                schema = self._columns_of(table, job, find)
            return Slice(tuple(files), tuple(self.catalogue.locate(table, file) for file in files), schema)

        return find

    def _columns_of(self, table: str, job: Job, find: FileLookup) -> Schema:
        """The columns of a table that was never made, and without which another goes on: what its query gives of no rows."""
        definition = self.warehouse.definitions[table]
        if definition.table.is_base or definition.flow is not None or definition.declaration.is_external:
            what = "feed" if definition.table.is_base else "table"
            raise RowsProblem(
                f"`{job.table}` goes on without `{table}`, of which nothing has come yet, so that nobody knows its columns: "
                f"declare `columns` of the {what}, or take `absent` out of `{job.table}`"
            )

        def nothing(
            table: str, partitions: PartitionSet | None, added_after: int | None, described: str | None = None
        ) -> Slice:
            return Slice((), (), find(table, EMPTY, None).schema)

        derivation = Derivation(self.session, self.warehouse, replace(job, table=table), nothing, self.recent)
        hidden = {column.name for column in definition.state}
        return tuple(column for column in schema_of(derivation.of_no_rows()) if column.name not in hidden)

    def _derive(self, job: Job, definition: Definition, folder: str) -> Computed:
        derivation = Derivation(self.session, self.warehouse, job, self._lookup(job), self.recent, self._shared)
        if definition.flow is not None:
            return self.flows.derive(job, definition, derivation, folder)
        outputs, how = derivation.outputs()
        made = []
        # A table over sources without time is always made as a whole.
        partitioned = definition.table.grain is not WHOLE and self.warehouse.graph.has_time[job.table]
        for number, output in enumerate(outputs):
            name = folder if not number else f"{folder}-{number}"
            staged = self._stage(output.frame, definition, name, output.input_bytes, output.hidden)
            check_partitions(job.table, staged.files, output.partitions, partitioned)
            ended: tuple[tuple[int, int], ...] | None = output.partitions.intervals if partitioned else None
            if job.anew:
                ended = None  # what stands there was made by another declaration
            made.append(Made(job.table, staged.schema, staged.files, () if output.append else ended))
        return Computed(tuple(made), how)

    # Upkeep

    def _merge_small_files(self, job: Job, definition: Definition, folder: str) -> Computed:
        with self.store.read() as conn:
            small = self.catalogue.small_files(conn, job.table, SMALL_FILE_BYTES, worth_merging)
            schema = self.catalogue.schema(conn, job.table)
        chosen: dict[int, list[DataFile]] = {}
        size = 0
        for start, files in sorted(small.items()):
            # Newer content may still be wanted by itself, by a reader that folds only what came.
            settled = [file for file in files if file.content <= job.pin]
            found = sum(file.size_bytes for file in settled)
            if worth_merging(len(settled), found) and (not chosen or size + found <= MERGED_BYTES):
                chosen[start] = settled
                size += found
        files = [file for group in chosen.values() for file in group]
        if not files or schema is None:
            return Computed((), "nothing to merge")
        hidden = (COLUMN,) if definition.table.is_base else definition.state
        paths = [self.catalogue.locate(job.table, file) for file in files]
        rows = read_files(self.session, paths, (*schema, *hidden), size)
        staged = self._stage(rows, definition, folder, size, [column.name for column in hidden])
        content = {start: max(file.content for file in group) for start, group in chosen.items()}
        merged = tuple(replace(file, content=content[file.partition_us]) for file in staged.files)
        made = Made(job.table, schema, merged, (), tuple(file.id for file in files))
        return Computed((made,), f"merged {len(files)} files into {len(merged)}")
