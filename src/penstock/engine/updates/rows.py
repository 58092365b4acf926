"""Between Spark's rows and the files of a partition: cutting a DataFrame into partitions, writing, reading back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.engine.spark.links import plain
from penstock.engine.spark.sizing import SMALL_BYTES, Sizing
from penstock.engine.storage import LocalStorage
from penstock.engine.updates.row_digest import row_number
from penstock.engine.updates.small_results import PARTITION, codec_of, collect, collects, write
from penstock.engine.updates.times import time_range
from penstock.errors import PenstockError
from penstock.model.grain import WHOLE, Calendar, Fixed, Grain, zone_of
from penstock.model.partitions import PartitionSet
from penstock.model.schema import Column, Schema, ddl
from penstock.model.time import BEGIN_US, DAY_US, FIRST_US, LAST_US, format_instant
from penstock.tables import DataFile
from penstock.tables.footer import read_footer

# Below this much input rows are collected, and written by this process; unless they turn out to be this many times as much.
DRIVER_BYTES = 8 << 20
MOST_TIMES = 4
_NO_TIME = "some rows have no time (null in the time column), so they belong to no partition"


class RowsProblem(PenstockError):
    """What a view or transform gave cannot be stored; trying again gives the same."""


def micros(time: str) -> str:
    """The time of a row in microseconds, as SQL: a date begins at midnight of the session's zone, a time without offset is what
    its clocks show. Expressions are text throughout: each call into the JVM costs."""
    return f"unix_micros(cast({quoted(time)} as timestamp))"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def instant_literal(instant_us: int) -> str:
    return f"timestamp_micros({instant_us}L)"


def within(time: str, partitions: PartitionSet) -> str:
    """Whether a row's time lies in the partitions, as SQL."""
    return " or ".join(
        f"({micros(time)} >= {max(start, -(2**62))}L and {micros(time)} < {end}L)" for start, end in partitions
    ) or "false"  # fmt: skip


def partition_start(time: str, grain: Grain) -> str:
    """The start of each row's partition in microseconds, exactly as the model computes it, as SQL.

    It does not depend on the zone of the session, except that this is the one of times without offset."""
    # A row without a time has no partition, either.
    at = f"case when {micros(time)} < {FIRST_US}L then {FIRST_US}L when {micros(time)} > {LAST_US}L then {LAST_US}L else {micros(time)} end"
    if isinstance(grain, Fixed):
        start = f"{at} - pmod({at} - {grain.offset_us}L, {grain.width_us}L)"
        return _from_the_beginning(start)
    assert isinstance(grain, Calendar)
    # Moved by the zone's offset, a time looks as if it were one of UTC: its day can then be counted.
    local = f"unix_micros(from_utc_timestamp(timestamp_micros({at}), '{grain.zone}'))"
    first = f"cast(({local} - pmod({local}, {DAY_US}L)) div {DAY_US}L as int)"
    if grain.name != "day":
        first = f"unix_date(trunc(date_from_unix_date({first}), '{grain.name}'))"
    start = f"unix_micros(to_utc_timestamp(timestamp_micros({first} * {DAY_US}L), '{grain.zone}'))"
    if odd := grain.irregular():
        cases = " ".join(f"when {at} >= {begin}L and {at} < {end}L then {grain.floor(begin)}L" for begin, end in odd)
        start = f"case {cases} else {start} end"
    return _from_the_beginning(start)


def _from_the_beginning(start: str) -> str:
    """The first partition reaches back to the beginning of time."""
    return f"if({start} <= {FIRST_US}L, {BEGIN_US}L, {start})"


def schema_of(frame: DataFrame) -> Schema:
    return tuple(Column(field.name, field.dataType.simpleString()) for field in frame.schema.fields)


@lru_cache(maxsize=1024)
def struct_of(schema: Schema) -> StructType:
    """The columns as Spark has them. Asking it takes time, so what it said is kept; nobody may change that."""
    return cast(StructType, StructType.fromDDL(ddl(schema)))


@dataclass(frozen=True, slots=True)
class Staged:
    """Files that were written for one table but not published yet."""

    folder: Path
    schema: Schema
    files: tuple[DataFile, ...]
    # Columns that are in the files, but that readers do not see.
    hidden: Schema = ()
    # Whether the rows were computed a second time: what was counted on the way the first time is not all.
    twice: bool = False

    @property
    def rows(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class Writer:
    """Writes rows as Parquet files that nobody sees yet. A small result is collected and written by this process, others by Spark itself."""

    def __init__(
        self,
        driver_bytes: int = DRIVER_BYTES,
        wrote: Callable[[str, pa.Table, Schema], None] = lambda *_: None,
        given: Collection[str] = (),
    ) -> None:
        self._driver_bytes = driver_bytes
        # The settings of Spark that are the project's own.
        self._given = given
        self._sizing: Sizing | None = None
        # Told the rows of each file that this process writes.
        self._wrote = wrote
        # Learned, by the folder of a table: of how much input it gave too many rows.
        self._too_many: dict[str, int] = {}
        self._codec: str | None = ""

    def fit(self, session: SparkSession, input_bytes: int) -> bool:
        """Set up the session, always the same, for what reads so much; true if that is much."""
        self._sizing = self._sizing or Sizing(session, self._given)
        return self._sizing.fit(input_bytes)

    def stage(
        self,
        frame: DataFrame,
        folder: Path,
        root: str,
        time: str | None,
        grain: Grain,
        input_bytes: int,
        hidden: Sequence[str] = (),
    ) -> Staged:
        """Write a DataFrame's rows into a folder of its own, each file within one partition."""
        found = schema_of(frame)
        schema = tuple(column for column in found if column.name not in hidden)
        for column in schema:
            if column.type == "void":
                raise RowsProblem(f"column `{column.name}` has no type; write cast(null as <type>)")
        start = None
        if grain is not WHOLE:
            assert time is not None
            start = partition_start(time, grain)
        notes = frame.schema.json()
        large = self.fit(frame.sparkSession, input_bytes)
        whole = frame if large else frame.coalesce(1)
        twice, files = False, None
        if self._is_small(root, input_bytes) and (codec := self._codec_of(whole)) and collects(found, notes):
            rows = collect(whole, found, start or "0L", MOST_TIMES * self._driver_bytes, row_number(schema))
            if rows is None:
                twice, self._too_many[root] = True, input_bytes
            elif rows.column(PARTITION).null_count:
                raise RowsProblem(_NO_TIME)
            else:
                files = []
                for path, part, file in write(rows, notes, folder, root, start is not None, codec):
                    files.append(file)
                    self._wrote(path, part, found)
        if files is None:
            files = _written_by_spark(frame if twice else whole, folder, root, start, large)
        if isinstance(grain, Calendar):
            assert time is not None
            check_partitions_of(files, time, grain)
        own = tuple(column for column in found if column.name in hidden)
        return Staged(folder, schema, tuple(files), own, twice)

    def _is_small(self, root: str, input_bytes: int) -> bool:
        return input_bytes <= self._driver_bytes and input_bytes < self._too_many.get(root, input_bytes + 1)

    def _codec_of(self, frame: DataFrame) -> str | None:
        """How files are compressed; None if only Spark can do it."""
        if self._codec == "":
            self._codec = codec_of(str(frame.sparkSession.conf.get("spark.sql.parquet.compression.codec")))
        return self._codec


def _written_by_spark(frame: DataFrame, folder: Path, root: str, start: str | None, large: bool) -> list[DataFile]:
    if start is not None:
        rows = frame.selectExpr("*", f"{start} as {PARTITION}")
        if large:
            # The rows of a partition come together, or into as many files as they are worth.
            rows = rows.hint("rebalance", PARTITION)
        rows.write.mode("append").partitionBy(PARTITION).parquet(str(folder))
    else:
        frame.write.mode("append").parquet(str(folder))
    return _written(folder, root, start is not None)


def check_partitions_of(files: Sequence[DataFile], time: str, grain: Calendar) -> None:
    """Java has its own data about zones, which may be older or newer than those of Python. Where they differ, a row would come
    into a partition that is not its own: better none at all."""
    for file in files:
        for first, end in time_range([file], time, zone_of(grain.zone)):
            for at in (first, end - 1):
                if grain.floor(at) != file.partition_us:
                    raise RowsProblem(
                        f"Java and Python disagree about the clocks of {grain.zone} near {format_instant(at)} UTC; update the older of "
                        "the two (Java itself, or the system's tzdata, or `pip install --upgrade tzdata`), then type `penstock retry`"
                    )


def _written(folder: Path, root: str, partitioned: bool) -> list[DataFile]:
    storage = LocalStorage(Path(root).parent.parent)
    files = []
    for path in sorted(folder.rglob("*.parquet")) if folder.exists() else ():
        start = 0
        if partitioned:
            value = path.parent.name.split("=", 1)[1]
            if not value.lstrip("-").isdigit():
                raise RowsProblem(_NO_TIME)
            start = int(value)
        file = read_footer(str(path), start, root)
        if file.records:
            files.append(file)
        else:
            storage.delete([str(path)])
    if not files:
        # Spark makes the folder before it knows that there are no rows.
        storage.remove_if_empty(folder)
    return files


def read_files(session: SparkSession, paths: Sequence[str], schema: Schema, size_bytes: int) -> DataFrame:
    """Rows of published files. The schema is known, so Spark need not look at any of them first. A small input is one
    task: then nothing that follows has to be shuffled."""
    if not paths:
        return session.createDataFrame([], struct_of(schema))
    frame = session.read.schema(ddl(schema)).parquet(*map(plain, paths))
    return frame.coalesce(1) if size_bytes <= SMALL_BYTES else frame


def rows_between(rows: pa.Table, time: str, from_us: int | None, until_us: int | None) -> pa.Table | None:
    """The rows whose time lies between two instants; None if that depends on a zone."""
    name = next(name for name in rows.column_names if name.lower() == time.lower())
    kind = rows.schema.field(name).type
    if not pa.types.is_timestamp(kind) or kind.tz is None or kind.unit != "us":
        return None
    for beyond, at_us in ((pc.less, until_us), (pc.greater_equal, from_us)):
        if at_us is not None:
            rows = rows.filter(beyond(rows.column(name), pa.scalar(at_us, kind)))
    return rows


def local(session: SparkSession, rows: pa.Table, schema: Schema) -> DataFrame:
    """A frame of rows of this process, in one task as a small file is. (Spark's own `createDataFrame` asks the JVM for six settings first.)"""
    frame: DataFrame = session._create_from_arrow_table(
        rows, struct_of(schema), "UTC", False, False, max(1, rows.num_rows)
    )
    return frame.coalesce(1)
