"""Loading a base table: delivered files become rows of its partitions, bad rows go to its quarantine.

One pass over the files in the normal case. Only if rows were refused are their files read a second time, as text, to
tell file and line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

from penstock.control.events import FeedFile
from penstock.declare.api import FeedDeclaration
from penstock.declare.warehouse import Definition
from penstock.engine.inspect import header_of
from penstock.engine.links import Links
from penstock.engine.rows import RowsProblem, micros, quoted
from penstock.model.schema import Column, Schema, ddl
from penstock.model.time import format_duration

CORRUPT = "_penstock_corrupt"
REASON = "_penstock_reason"
TAG = "_penstock_n"
QUARANTINE: Schema = (
    Column("file", "string"),
    Column("line", "bigint"),
    Column("reason", "string"),
    Column("row", "string"),
    Column("job", "string"),
    Column("loaded_at", "timestamp"),
)


@dataclass(frozen=True)
class FeedReader:
    """How the rows of a feed are read."""

    feed: FeedDeclaration
    schema: Schema
    folder: Path
    links: Links

    def frame(self, session: SparkSession, files: Sequence[FeedFile], *, tagged: bool = False) -> DataFrame:
        """Rows of the files with the declared columns, and for text formats what could not be parsed. With a tag, each
        row says in `_penstock_n` from which of the files it is, counted from 0."""
        paths = self._paths(files)
        if self.feed.config.format == "parquet":
            alike: dict[frozenset[str], list[str]] = {}
            for path in paths:
                alike.setdefault(self._without_offset(path), []).append(path)
            frames = (self._parquet_frame(session, clocks, some, tagged) for clocks, some in alike.items())
            return reduce(DataFrame.unionAll, frames)
        # CSV columns go by position, so files whose header has another order are read by themselves.
        groups: dict[tuple[str, ...], list[str]] = {}
        for file, path in zip(files, paths, strict=True):
            groups.setdefault(self._order(file), []).append(path)
        parts = (self._text_frame(session, order, some, tagged) for order, some in groups.items())
        return reduce(DataFrame.unionAll, parts)

    def _without_offset(self, path: str) -> frozenset[str]:
        """The columns that are declared to be timestamps, but in this file are what a clock showed."""
        declared = {column.name.lower(): column.name for column in self.schema if column.type == "timestamp"}
        if not declared:
            return frozenset()
        try:
            columns = pq.ParquetFile(path).schema
        except (pa.ArrowException, OSError):
            return frozenset()  # Spark says what is wrong with it
        found = (columns.column(number) for number in range(len(columns)))
        return frozenset(
            declared[column.path.lower()]
            for column in found
            if column.path.lower() in declared
            and json.loads(column.logical_type.to_json()).get("isAdjustedToUTC") is False
        )

    def _parquet_frame(
        self, session: SparkSession, clocks: frozenset[str], paths: list[str], tagged: bool = False
    ) -> DataFrame:
        stored = tuple(replace(c, type="timestamp_ntz") if c.name in clocks else c for c in self.schema)
        rows = session.read.schema(ddl(stored)).parquet(*paths)
        rows = _tagged(rows) if tagged else rows
        if not clocks:
            return rows
        # By the clock of the feed's zone, which may be another than that of the session.
        zone = _text(f" {self.feed.zone}")
        read = {name: f"to_timestamp(concat(cast({quoted(name)} as string), {zone}))" for name in clocks}
        columns = (f"{read[c.name]} as {quoted(c.name)}" if c.name in read else quoted(c.name) for c in self.schema)
        return rows.selectExpr(*columns, *([TAG] if tagged else []))

    def _paths(self, files: Sequence[FeedFile]) -> list[str]:
        """Where Spark finds the files. The n-th is called n there."""
        return self.links.to([self.folder / file.uri for file in files], f".{self.feed.config.format}")

    def _order(self, file: FeedFile) -> tuple[str, ...]:
        if self.feed.config.format != "csv":
            return ()
        found = header_of(self.folder / file.uri, self.feed.config)
        known = {column.name.lower(): column.name for column in self.schema}
        return tuple(known[name.lower()] for name in found if name.lower() in known)

    def _ordered(self, order: tuple[str, ...]) -> str:
        """The columns in the order of the file, and one for what cannot be parsed, as DDL."""
        known = {column.name: column for column in self.schema}
        columns = tuple(known[name] for name in order) if order else self.schema
        return ddl((*columns, Column(CORRUPT, "string")))

    def _options(self) -> dict[str, str]:
        options = {"timeZone": self.feed.zone} | {key: str(value) for key, value in self.feed.config.options.items()}
        if self.feed.config.format == "csv":
            options = {"header": "true", **options}
        return options | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}

    def _text_frame(self, session: SparkSession, order: tuple[str, ...], paths: list[str], tagged: bool) -> DataFrame:
        reader = session.read.schema(self._ordered(order)).options(**self._options())
        rows = reader.csv(paths) if self.feed.config.format == "csv" else reader.json(paths)
        rows = _tagged(rows) if tagged else rows
        if not order or order == tuple(column.name for column in self.schema):
            return rows
        # Files from before a column was declared do not have it.
        columns = (
            quoted(column.name) if column.name in order else f"cast(null as {column.type}) as {quoted(column.name)}"
            for column in self.schema
        )
        return rows.selectExpr(*columns, CORRUPT, *([TAG] if tagged else []))

    def reason(self, arrived_us: int) -> str:
        """Why a row is refused, as SQL; null for a good one."""
        config = self.feed.config
        tests: list[tuple[str, str]] = []
        if config.format != "parquet":
            shape = "a value does not have the column's type, or the row has too many or too few columns"
            tests.append((f"{CORRUPT} is not null", shape))
        if config.time is not None:
            time = quoted(config.time)
            tests.append((f"{time} is null", f"the event time {config.time} is null"))
            ahead = f"the event time {config.time} is more than {format_duration(config.max_ahead)} ahead of the file's arrival"
            tests.append((f"{micros(config.time)} > {arrived_us + config.max_ahead}L", ahead))
        tests.extend((f"not coalesce(({rule}), false)", f"breaks the rule: {rule}") for rule in config.rules)
        if not tests:
            return "cast(null as string)"
        cases = " ".join(f"when {test} then {_text(why)}" for test, why in tests)
        return f"case {cases} end"

    def refused(self, session: SparkSession, files: Sequence[FeedFile], arrived_us: int, job: str) -> DataFrame:
        """The bad rows again, each with its file, line and text."""
        parts = [self._refused(session, file, arrived_us) for file in self._with_refused(session, files, arrived_us)]
        united = parts[0]
        for part in parts[1:]:
            united = united.unionAll(part)
        return united.select(
            "file", "line", "reason", "row", F.lit(job).alias("job"), F.current_timestamp().alias("loaded_at")
        )

    def _with_refused(self, session: SparkSession, files: Sequence[FeedFile], arrived_us: int) -> list[FeedFile]:
        """The files that have bad rows: usually one of many, and each costs a query of its own to find the lines."""
        if len(files) == 1:
            return list(files)
        rows = (
            self.frame(session, files, tagged=True)
            .withColumn(REASON, F.expr(self.reason(arrived_us)))
            .where(f"{REASON} is not null")
        )
        return [files[row[0]] for row in rows.select(TAG).distinct().orderBy(TAG).collect()] or list(files)

    def _refused(self, session: SparkSession, file: FeedFile, arrived_us: int) -> DataFrame:
        config = self.feed.config
        (path,) = self._paths([file])
        if config.format == "parquet":
            rows = self._parquet_frame(session, self._without_offset(path), [path])
            rows = rows.withColumn("line", rows.metadataColumn("_metadata").getField("row_index") + 1)
            rows = rows.withColumn("row", F.to_json(F.struct(*(column.name for column in self.schema))))
        else:
            text = session.read.option("encoding", str(config.options.get("encoding", "utf-8"))).text(path)
            # One task reads one file from top to bottom, so the running id counts its lines.
            text = text.coalesce(1).select(
                F.col("value").alias("row"),
                F.row_number().over(Window.orderBy(F.monotonically_increasing_id())).cast("bigint").alias("line"),
            )
            options = {key: value for key, value in self._options().items() if key != "header"}
            if config.format == "csv":
                if self._options()["header"].lower() == "true":
                    text = text.where("line > 1")
                parsed = F.from_csv("row", self._ordered(self._order(file)), options)
            else:
                parsed = F.from_json("row", self._ordered(()), options)
            rows = text.where(F.trim("row") != "").withColumn("_r", parsed).select("line", "row", "_r.*")
        rows = rows.withColumn("reason", F.expr(self.reason(arrived_us))).where("reason is not null")
        return rows.select(F.lit(file.uri).alias("file"), "line", "reason", "row")


def _tagged(rows: DataFrame) -> DataFrame:
    name = rows.metadataColumn("_metadata").getField("file_name")
    return rows.withColumn(TAG, F.substring_index(name, ".", 1).cast("int"))


def _text(value: str) -> str:
    """A string literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def infer_schema(session: SparkSession, feed: FeedDeclaration, paths: list[str]) -> Schema:
    """The columns of a feed that declares none, from its first files. They are then fixed."""
    options = {"timeZone": feed.zone} | {key: str(value) for key, value in feed.config.options.items()}
    reader = session.read
    if feed.config.format == "parquet":
        frame = reader.parquet(*paths)
    elif feed.config.format == "csv":
        frame = reader.options(**{"header": "true", "inferSchema": "true", **options}).csv(paths)
    else:
        frame = reader.options(**options).json(paths)
    found = tuple(Column(field.name, field.dataType.simpleString()) for field in frame.schema.fields)
    time = feed.config.time
    # JSON has no type for times: a text column that is declared to be the time is one.
    return tuple(
        Column(c.name, "timestamp") if time and c.name.lower() == time.lower() and c.type == "string" else c
        for c in found
    )


def base_rows(
    session: SparkSession, definition: Definition, reader: FeedReader, files: Sequence[FeedFile], arrived_us: int
) -> tuple[DataFrame, Observation | None]:
    """The rows that the base table gets, and a count of those refused that is known once they were written."""
    raw = reader.frame(session, files)
    names = [quoted(column.name) for column in reader.schema]
    seen: Observation | None = None
    if (reason := reader.reason(arrived_us)) != "cast(null as string)":
        seen = Observation()
        raw = raw.selectExpr(*names, f"{reason} as {REASON}")
        raw = raw.observe(seen, F.expr(f"count({REASON}) as refused"))
        raw = raw.where(f"{REASON} is null")
    good = raw.selectExpr(*names)
    declaration = definition.declaration
    if declaration.function is not None:
        result = declaration.function(good)
        if not isinstance(result, DataFrame):
            raise RowsProblem(
                f"the function of `{definition.name}` returned {type(result).__name__}, expected a DataFrame"
            )
        return result, seen
    if definition.view is not None:
        good.createOrReplaceTempView(reader.feed.name)
        return session.sql(definition.view.sql), seen
    return good, seen
