"""Computing a derived table: full, partition by partition or many at once, or folded from the rows that came.

Every source is read at one snapshot and only up to the trailing edge, so that the result is that of one state of its
sources whatever is published meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import reduce
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.declare.sql.view import AggregateWay, Rowwise
from penstock.declare.warehouse import Definition, Definitions
from penstock.engine.spark.session import settings_kept
from penstock.engine.spark.sizing import SMALL_BYTES
from penstock.engine.updates.recent import RecentRows, SharedReads
from penstock.engine.updates.rows import (
    RowsProblem,
    instant_literal,
    local,
    quoted,
    read_files,
    rows_between,
    schema_of,
)
from penstock.engine.updates.rows import within as rows_within
from penstock.engine.updates.times import time_range
from penstock.errors import PenstockError
from penstock.model.grain import WHOLE, zone_of
from penstock.model.graph import Graph
from penstock.model.partitions import EVERYTHING, Interval, PartitionSet
from penstock.model.schema import Schema
from penstock.model.tables import Edge
from penstock.model.time import BEGIN_US, END_US, FIRST_US, LAST_US, format_instant, moment
from penstock.requests.job import Job
from penstock.requests.needs import Need, Piece, partitions_of
from penstock.tables import DataFile

# What is stored and what came, while the one is folded into the other.
_ROWS = "_penstock_stored"
# The columns that queries give, by their text and the columns of what they read.
_COLUMNS: dict[tuple[str, Schema], Schema] = {}
_MOST_COLUMNS = 4096


@dataclass(frozen=True, slots=True)
class Slice:
    """Files of one table as one job reads them."""

    files: tuple[DataFile, ...]
    paths: tuple[str, ...]
    schema: Schema

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class FileLookup(Protocol):
    """The files of a table at the job's snapshot: those of some partitions, or all; only those with content after a
    snapshot; described by the statistics of one column."""

    def __call__(
        self, table: str, partitions: PartitionSet | None, added_after: int | None, described: str | None = None
    ) -> Slice: ...


@dataclass(frozen=True, slots=True)
class TableOutput:
    """Rows for some partitions of a table, which replace what is there or come in addition."""

    frame: DataFrame
    partitions: PartitionSet
    append: bool
    input_bytes: int
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What a Python view that asks for `partition` gets: the partition that it is to compute."""

    start_us: int
    end_us: int
    zone: tzinfo = UTC

    @property
    def start(self) -> datetime:
        """In the project's zone."""
        return moment(self.first_us, self.zone)

    @property
    def end(self) -> datetime:
        return moment(self.last_us, self.zone)

    @property
    def first_us(self) -> int:
        return max(self.start_us, FIRST_US)

    @property
    def last_us(self) -> int:
        return min(self.end_us, LAST_US)


class Derivation:
    def __init__(
        self,
        session: SparkSession,
        warehouse: Definitions,
        job: Job,
        lookup: FileLookup,
        recent: RecentRows,
        shared: SharedReads | None = None,
    ) -> None:
        self.session = session
        self.definition: Definition = warehouse.definitions[job.table]
        self.warehouse = warehouse
        self.graph: Graph = warehouse.graph
        self.job = job
        self.lookup = lookup
        self.recent = recent
        self.shared = shared
        self.grain = self.definition.table.grain
        self.bytes = 0
        # The sources whose rows were not read from files.
        self._in_memory: set[str] = set()

    def outputs(self) -> tuple[list[TableOutput], str]:
        """What to write, and in a few words how it was computed."""
        if not self.folds():
            return [self._recompute(self.job.pieces)], "full"
        # Usually all pieces share one need and this is one query.
        groups: dict[tuple[int, int], list[Piece]] = {}
        again: list[Piece] = []
        for piece in self.job.pieces:
            if piece.need.append:
                groups.setdefault((piece.need.since, piece.need.edge_us), []).append(piece)
            else:
                again.append(piece)
        outputs = [self._fold(list(groups.values()))]
        if again:
            outputs.append(self._recompute(tuple(again)))
        return outputs, "fold" if not again else "fold and full"

    def folds(self) -> bool:
        """Whether new rows are enough where a piece of the job says so."""
        if not self.definition.table.foldable or not any(piece.need.append for piece in self.job.pieces):
            return False
        if self.job.anew:
            return False
        for name in self.graph.made_with(self.job.table):
            # Files rewritten by someone else lost what folding needs.
            if wanted := {column.name for column in self.warehouse.definitions[name].state}:
                stored = self.lookup(name, partitions_of(self.job.pieces), None).files
                if not all(wanted <= set(file.physical.split(",")) for file in stored):
                    return False
        return True

    # Full

    def _recompute(self, pieces: Sequence[Piece]) -> TableOutput:
        """A partition keeps the rows of what the view gives for it whose time lies in it."""
        partitions = partitions_of(list(pieces))
        if self.grain is WHOLE or not self.graph.has_time[self.job.table]:
            frame = self._view(partitions, None)
        elif self.definition.at_once:
            frame = self._cut(self._view(partitions, None), partitions)
        else:
            single = [PartitionSet(((start, self.grain.shift(start, 1)),)) for start in partitions.starts(self.grain)]
            frames = [self._cut(self._view(each, each.intervals[0]), each) for each in single if self.has_input(each)]
            # Without input there are no rows, but the columns must be known.
            frame = (
                reduce(DataFrame.unionAll, frames) if frames else self._view(single[0], single[0].intervals[0]).limit(0)
            )
        return TableOutput(frame, partitions, False, self.bytes, self._hidden())

    def has_input(self, partition: PartitionSet) -> bool:
        """A partition exists only where some source has rows for it: an aggregate without GROUP BY would else give a row
        for every hour that nothing happened in, back to the first record ever. And only up to the edge: one that lies behind
        it was made when its sources had been declared to be further."""
        if self.job.edge_us is not None and partition.intervals[0][0] >= self.job.edge_us:
            return False
        return any(
            self.lookup(edge.source, _unless_everything(edge.map.required(partition)), None).files
            for edge in self.graph.into[self.job.table]
            if self.graph.has_time[edge.source]
        )

    def _hidden(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.definition.state)

    def of_no_rows(self) -> DataFrame:
        """What the query gives where its sources have nothing: no rows that matter, but its columns."""
        return self._view(EVERYTHING, (0, 1))

    def _view(self, partitions: PartitionSet, one: Interval | None) -> DataFrame:
        """The view's rows for some partitions."""
        frames = self.sources(partitions)
        view = self.definition.view
        if view is None:
            return self._called(frames, one)
        sql = view.sql
        if isinstance(view.how, AggregateWay) and self.definition.table.foldable:
            sql = view.how.delta_sql  # over all rows it gives the whole result, with the state that folding needs
        if view.parameters:
            assert one is not None
            partition = PartitionContext(*one)
            sql = view.parsed.with_moments({"partition_start": partition.first_us, "partition_end": partition.last_us})
        return self._over(frames, sql)

    def sources(
        self,
        partitions: PartitionSet,
        seen: Callable[[tuple[str, Slice]], None] = lambda _: None,
        lack: Need | None = None,
    ) -> dict[str, DataFrame]:
        """The rows of each source that some partitions are made from; `seen` is told the files of each. Of sources whose new
        rows are enough only those that the partitions lack, if it is said what that is."""
        new = self.graph.folds[self.job.table] if lack is not None else frozenset()
        return {
            edge.source: self._new_rows(edge, partitions, lack, seen)
            if lack is not None and edge.source in new
            else self._source(edge, partitions, seen)
            for edge in self.graph.into[self.job.table]
        }

    def _called(self, frames: dict[str, DataFrame], one: Interval | None) -> DataFrame:
        function = self.definition.declaration.function
        assert function is not None
        extra = {}
        if self.definition.wants_partition:
            extra["partition"] = PartitionContext(*(one or (BEGIN_US, END_US)), zone_of(self.warehouse.zone))
        with settings_kept(self.session):
            result = function(**frames, **extra)
        if not isinstance(result, DataFrame):
            raise RowsProblem(
                f"the function of `{self.job.table}` returned {type(result).__name__}, expected a DataFrame"
            )
        return result

    def _source(
        self, edge: Edge, partitions: PartitionSet, seen: Callable[[tuple[str, Slice]], None] = lambda _: None
    ) -> DataFrame:
        within = _unless_everything(edge.map.required(partitions))
        found = self.lookup(edge.source, within, None)
        seen((edge.source, found))
        self.bytes += found.size_bytes
        return self._read(edge, within, [(found, None)])

    def _inside(self, source: str, within: PartitionSet | None, found: Slice, frame: DataFrame) -> DataFrame:
        """Only rows of these partitions, where files of other programs may have others, too."""
        time = self.warehouse.definitions[source].time
        if within is None or time is None or not any(file.unplaced for file in found.files):
            return frame
        return frame.where(rows_within(time, within))

    def _read(self, edge: Edge, within: PartitionSet | None, parts: Sequence[tuple[Slice, int | None]]) -> DataFrame:
        """The rows of some files before the trailing edge, and not before another instant if one is given."""
        source = edge.source
        parts = [part for part in parts if part[0].paths] or parts[:1]
        found = [self._from_memory(edge, each, from_us) for each, from_us in parts]
        kept = [rows for rows in found if rows is not None]
        frames = [
            self._from_files(edge, within, each, from_us)
            for rows, (each, from_us) in zip(found, parts, strict=True)
            if rows is None
        ]
        if kept:
            self._in_memory.add(source)
            frames.append(local(self.session, pa.concat_tables(kept), parts[0][0].schema))
        frame = reduce(DataFrame.unionAll, frames)
        return frame.coalesce(1) if len(frames) > 1 and self.bytes <= SMALL_BYTES else frame

    def _from_memory(self, edge: Edge, found: Slice, from_us: int | None) -> pa.Table | None:
        # A function of the project's may ask its input for what only files can tell.
        rows = self.recent.rows(found.paths, found.schema) if self.definition.view is not None else None
        cut_us = self._cut_of(edge)
        if rows is None or (cut_us is None and from_us is None):
            return rows
        return rows_between(rows, self.warehouse.definitions[edge.source].time or "", from_us, cut_us)

    def _from_files(self, edge: Edge, within: PartitionSet | None, found: Slice, from_us: int | None) -> DataFrame:
        source = edge.source
        if self.shared is not None:
            frame = self.shared.read(source, found.paths, found.schema, found.size_bytes)
        else:
            frame = read_files(self.session, found.paths, found.schema, found.size_bytes)
        frame = self._inside(source, within, found, frame)
        time = quoted(self.warehouse.definitions[source].time or "")
        bounds = [
            f"{time} {sign} {instant_literal(at_us)}"
            for sign, at_us in (("<", self._cut_of(edge)), (">=", from_us))
            if at_us is not None
        ]
        return frame.where(" and ".join(bounds)) if bounds else frame

    def _over(self, frames: Mapping[str, DataFrame], sql: str) -> DataFrame:
        """A query over frames by the names of their tables. The session forgets names behind which there are rows in memory."""
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        rows = self.session.sql(sql)
        for name in frames.keys() & self._in_memory:
            self.session.catalog.dropTempView(name)
        return rows

    def _cut_of(self, edge: Edge) -> int | None:
        """The instant before which the rows of a source are used; None if all are."""
        time = self.warehouse.definitions[edge.source].time
        if self.job.edge_us is None or time is None or not self.graph.holds(edge) or edge.source == self.job.table:
            return None
        return edge.map.cut(self.job.edge_us)

    def _cut(self, frame: DataFrame, partitions: PartitionSet) -> DataFrame:
        """Only those rows of what was computed for some partitions that are theirs. Others are made where they belong; but
        if no other partition reads what they are made of, they would be lost, and that is an error. A row without a time goes
        on: who writes it says what is wrong with it."""
        definition = self.definition
        timed = [e for e in self.graph.into[self.job.table] if e.source != e.table and self.graph.has_time[e.source]]
        exact = all(edge.map.required(partitions) == partitions for edge in timed)
        if definition.table.grain is WHOLE or (exact and definition.in_place):
            return frame
        assert definition.time is not None
        time = quoted(definition.time)
        inside = f"{time} is null or {rows_within(definition.time, partitions)}"
        if not exact or definition.placed:
            return frame.where(inside)
        found = f"`{definition.name}` gave a row of another partition than it was asked for, of "
        hint = (
            ": its time column must lie in the partition that the row is made for; check `time`, or say how the source "
            "is read with `sources`"
        )
        error = f"raise_error(concat('{found}', cast({time} as string), '{hint}'))"
        return frame.where(f"case when {inside} then true else {error} end")

    # Folding

    def _fold(self, groups: list[list[Piece]]) -> TableOutput:
        """What rows that the partitions do not contain yet give; of an aggregate, folded into what is stored. One query, whatever the
        pieces lack."""
        view = self.definition.view
        assert view is not None and isinstance(view.how, Rowwise | AggregateWay)
        (edge,) = self.graph.into[self.job.table]
        read: list[Schema] = []
        news = [
            self._new_rows(edge, partitions_of(pieces), pieces[0].need, lambda found: read.append(found[1].schema))
            for pieces in groups
        ]
        frames = {edge.source: reduce(DataFrame.unionAll, news)}
        partitions = partitions_of([piece for pieces in groups for piece in pieces])
        if isinstance(view.how, Rowwise):
            return TableOutput(self._over(frames, view.how.delta_sql), partitions, True, self.bytes)
        stored = self.lookup(self.job.table, partitions, None)
        self.bytes += stored.size_bytes
        sql = view.how.delta_sql
        if stored.files:
            columns = self._columns(frames, sql, read[0])
            frames[_ROWS] = self.recent.read(self.session, stored.paths, columns, stored.size_bytes)
            self._in_memory.add(_ROWS)
            sql = view.how.fold_sql(_ROWS, self.bytes <= SMALL_BYTES)
        return TableOutput(self._over(frames, sql), partitions, False, self.bytes, self._hidden())

    def _columns(self, frames: Mapping[str, DataFrame], sql: str, read: Schema) -> Schema:
        """The columns that a query gives over rows with some columns. Spark is asked once."""
        key = (sql, read)
        if key not in _COLUMNS:
            if len(_COLUMNS) > _MOST_COLUMNS:
                _COLUMNS.clear()
            _COLUMNS[key] = schema_of(self._over(frames, sql))
        return _COLUMNS[key]

    def _new_rows(
        self,
        edge: Edge,
        partitions: PartitionSet,
        need: Need,
        seen: Callable[[tuple[str, Slice]], None] = lambda _: None,
    ) -> DataFrame:
        """What partitions with a need do not contain of a source: all rows of newer files, and of older ones those that waited
        for the trailing edge."""
        within = _unless_everything(edge.map.required(partitions))
        newer = self.lookup(edge.source, within, need.since - 1)
        seen((edge.source, newer))
        self.bytes += newer.size_bytes
        parts: list[tuple[Slice, int | None]] = [(newer, None)]
        time = self.warehouse.definitions[edge.source].time
        if self.job.edge_us is not None and time is not None:
            waited = self._waited(edge, within, newer, need.edge_us, time)
            if waited.files:
                seen((edge.source, waited))
                self.bytes += waited.size_bytes
                parts.append((waited, need.edge_us if need.edge_us > BEGIN_US else None))
        return self._read(edge, within, parts)

    def _waited(self, edge: Edge, within: PartitionSet | None, newer: Slice, edge_us: int, time: str) -> Slice:
        """Older files with rows between the table's old and its new edge: whatever held those back, and whether or not it still
        would. The statistics say which files have any, most often none."""
        assert self.job.edge_us is not None
        grain = edge.map.source
        reach = PartitionSet.of((grain.floor(edge_us) if edge_us > BEGIN_US else BEGIN_US, END_US))
        asked = None if grain is WHOLE else reach if within is None else within & reach
        every = self.lookup(edge.source, asked, None, time)
        known = {file.id for file in newer.files}
        older = [
            (file, path)
            for file, path in zip(every.files, every.paths, strict=True)
            if file.id not in known and self._meets(file, time, edge_us, edge.map.cut(self.job.edge_us))
        ]
        return Slice(tuple(file for file, _ in older), tuple(path for _, path in older), every.schema)

    def _meets(self, file: DataFile, time: str, low_us: int, high_us: int) -> bool:
        """Whether a file may have rows between two times."""
        ranges = time_range([file], time, zone_of(self.warehouse.zone))
        return not ranges or (ranges[0][0] < high_us and ranges[0][1] > low_us)


def _unless_everything(partitions: PartitionSet) -> PartitionSet | None:
    return None if partitions == EVERYTHING else partitions


def check_partitions(table: str, files: Sequence[DataFile], partitions: PartitionSet, partitioned: bool) -> None:
    """A view may only give rows of the partitions that it was asked for."""
    if not partitioned:
        return
    outside = [file for file in files if file.partition_us not in partitions]
    if outside:
        rows = sum(file.records for file in outside)
        raise ViewProblem(
            f"`{table}` gave {rows} rows of other partitions than it was asked for, for example of "
            f"{format_instant(outside[0].partition_us)} UTC: its time column must lie in the partition that the row is made for; "
            "check `time`, or say how the source is read with `sources`"
        )


class ViewProblem(PenstockError):
    pass
