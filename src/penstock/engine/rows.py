"""Between Spark's rows and the files of a partition: cutting a DataFrame into partitions, writing, reading back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from pathlib import Path
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.engine.leftovers import delete_files, remove_if_empty
from penstock.engine.links import plain
from penstock.errors import PenstockError
from penstock.model.grain import WHOLE, Calendar, Fixed, Grain, zone_of
from penstock.model.partitions import PartitionSet
from penstock.model.schema import Column, Schema, ddl
from penstock.model.time import BEGIN_US, DAY_US, FIRST_US, LAST_US, format_instant, instant
from penstock.model.zones import first_instant_of, local_instant
from penstock.tables import DataFile, read_footer

PARTITION = "_penstock_p"
# Below this much input one task and one file are best.
SMALL_BYTES = 48 << 20


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
    at = f"least(greatest({micros(time)}, {FIRST_US}L), {LAST_US}L)"
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


def struct_of(schema: Schema) -> StructType:
    return cast(StructType, StructType.fromDDL(ddl(schema)))


@dataclass(frozen=True, slots=True)
class Staged:
    """Files that were written for one table but not published yet."""

    folder: Path
    schema: Schema
    files: tuple[DataFile, ...]
    # Columns that are in the files, but that readers do not see.
    hidden: Schema = ()

    @property
    def rows(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def stage(
    frame: DataFrame,
    folder: Path,
    root: str,
    time: str | None,
    grain: Grain,
    input_bytes: int,
    hidden: Sequence[str] = (),
) -> Staged:
    """Write a DataFrame's rows as Parquet files, each within one partition, into a folder of its own."""
    found = schema_of(frame)
    schema = tuple(column for column in found if column.name not in hidden)
    for column in schema:
        if column.type == "void":
            raise RowsProblem(f"column `{column.name}` has no type; write cast(null as <type>)")
    if grain is not WHOLE:
        assert time is not None
        frame = frame.selectExpr("*", f"{partition_start(time, grain)} as {PARTITION}")
    if input_bytes <= SMALL_BYTES:
        frame = frame.coalesce(1)
    writer = frame.write.mode("append")
    if grain is not WHOLE:
        writer = writer.partitionBy(PARTITION)
    writer.parquet(str(folder))
    own = tuple(column for column in found if column.name in hidden)
    files = tuple(_written(folder, root, grain))
    if isinstance(grain, Calendar):
        assert time is not None
        check_partitions_of(files, time, grain)
    return Staged(folder, schema, files, own)


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


def _written(folder: Path, root: str, grain: Grain) -> list[DataFile]:
    files = []
    for path in sorted(folder.rglob("*.parquet")) if folder.exists() else ():
        start = 0
        if grain is not WHOLE:
            value = path.parent.name.split("=", 1)[1]
            if not value.lstrip("-").isdigit():
                raise RowsProblem("some rows have no time (null in the time column), so they belong to no partition")
            start = int(value)
        file = read_footer(str(path), start, root)
        if file.records:
            files.append(file)
        else:
            delete_files([str(path)], Path(root).parent.parent)
    if not files:
        # Spark makes the folder before it knows that there are no rows.
        remove_if_empty(folder, Path(root).parent.parent)
    return files


def read_files(session: SparkSession, paths: Sequence[str], schema: Schema, size_bytes: int) -> DataFrame:
    """Rows of published files. The schema is known, so Spark need not look at any of them first. A small input is one
    task: then nothing that follows has to be shuffled."""
    if not paths:
        return session.createDataFrame([], struct_of(schema))
    frame = session.read.schema(ddl(schema)).parquet(*map(plain, paths))
    return frame.coalesce(1) if size_bytes <= SMALL_BYTES else frame


def time_range(files: Sequence[DataFile], time: str, zone: tzinfo) -> list[tuple[int, int]]:
    """For each file the half-open range of its rows' times, from the statistics."""
    found = []
    for file in files:
        stats = next((s for name, s in file.stats.items() if name.lower() == time.lower()), None)
        if stats is not None and stats.min is not None and stats.max is not None:
            found.append((parse_stat(stats.min, zone), parse_stat(stats.max, zone) + 1))
    return found


def instant_of(value: date | datetime, zone: tzinfo) -> int:
    """The instant of a value of a time column."""
    return parse_stat(str(value), zone)


def parse_stat(text: str, zone: tzinfo) -> int:
    """A time as the catalogue writes it: `2024-03-01`, `2024-03-01 10:00:00.5`, `… 10:00:00+00`. A date begins at midnight of
    the zone, a time without offset is what its clocks show."""
    written = datetime.fromisoformat(text)
    if len(text) == 10:
        return first_instant_of(written, zone)
    return instant(written) if written.tzinfo else local_instant(written, zone)
