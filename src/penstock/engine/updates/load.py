"""Loading a base table: delivered files become rows of its partitions, bad rows go to its quarantine.

One pass over the files in the normal case. Only if rows were refused are their files read a second time, record by
record, to tell file and line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from penstock.declare.api import FeedDeclaration
from penstock.declare.config import BINARY
from penstock.declare.sql.parse import carrying_sql
from penstock.declare.warehouse import Definition
from penstock.engine.arrivals.as_json import write_as_json
from penstock.engine.arrivals.inspect import check_shape, spark_type, stored_schema
from penstock.engine.arrivals.parquet import as_stored, converted_types, write_converted, write_orc
from penstock.engine.arrivals.records import (
    LINE,
    ROW,
    VALUE,
    WHY,
    Malformed,
    TextForm,
    header,
    read_by_spark,
    write_lines,
    write_records,
)
from penstock.engine.spark.links import Links
from penstock.engine.spark.session import select, settings_kept
from penstock.engine.updates.executor import BadFiles
from penstock.engine.updates.provenance import FILE, tagged
from penstock.engine.updates.rows import DRIVER_BYTES, RowsProblem, micros, quoted, struct_of
from penstock.engine.updates.text_values import Values, as_text, by_clock, text
from penstock.model.schema import Column, Schema, ddl
from penstock.model.time import format_duration
from penstock.requests.job import FeedFile

CORRUPT = "_penstock_corrupt"
REASON = "_penstock_reason"
TAG = "_penstock_n"
_OTHER = "_penstock_other"
# What Spark calls what it knows of a row besides, unless a column has that name; there the files are called by their numbers.
_METADATA = "_metadata"
_FILE_NUMBER = f"cast(substring_index({_METADATA}.file_name, '.', 1) as int)"
_RAW = "_penstock_raw"
# How the reason begins of a row that is set aside because it came late.
LATE = "late: "
_SHAPE = "the row has too many or too few columns, or cannot be parsed"
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

    @property
    def reading(self) -> str:
        """The format of the files, and a fingerprint of what is said of it."""
        config = self.feed.config
        options = json.dumps(config.options, sort_keys=True) if config.options else ""
        return f"{config.format}:{sha256(options.encode()).hexdigest()[:12] if options else ''}"

    def frame(self, session: SparkSession, files: Sequence[FeedFile], *, tagged: bool = False) -> DataFrame:
        """Rows of the files with the declared columns, and for text formats why a row is none. With a tag, each
        row says in `_penstock_n` from which of the files it is, counted from 0."""
        if not any(file.size_bytes for file in files):
            more = (Column(CORRUPT, "string"), *([Column(TAG, "int")] if tagged else []))
            return session.createDataFrame([], struct_of((*self.schema, *more)))
        if self.feed.config.format in BINARY:
            alike: dict[str, list[str]] = {}
            for found in self._paths(files):
                alike.setdefault(self._stored(found), []).append(found)
            frames = (self._parquet_frame(session, stored, some, tagged) for stored, some in alike.items())
            return reduce(DataFrame.unionAll, frames)
        form = TextForm.of(self.feed.config)
        place = self.links.place()
        # CSV columns go by position, so files whose header has another order are read by themselves.
        groups: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
        for number, file in enumerate(files):
            if not file.size_bytes:
                continue
            path = self.folder / file.uri
            with self._blamed(file):
                plain = self.feed.config.format in ("csv", "json") and read_by_spark(path, form)
                if plain:
                    found = place.link(path, number, f".{self.feed.config.format}")
                else:
                    found = place.made(number, ".json", self._as_json(path))
                groups.setdefault((plain, self._order(path, form)), []).append(found)
        parts = []
        for (plain, order), paths in groups.items():
            if plain:
                reader = session.read.schema(self._as_text(order)).options(**self._options())
                rows = reader.csv(paths) if form.csv else reader.json(paths)
                parts.append(self._converted(rows, order, [f"{_FILE_NUMBER} as {TAG}"] if tagged else []))
            else:
                rows = self._parsed(session, paths, order, tagged)
                parts.append(self._converted(rows, order, [TAG] if tagged else [], parsed=True))
        return reduce(DataFrame.unionAll, parts)

    def _stored(self, path: str) -> str:
        """The columns as this file has them, in Spark's JSON: timestamps without offset where it says what a clock showed."""
        wanted = struct_of(self.schema)
        try:
            source = pq.ParquetFile(path)
        except (pa.ArrowException, OSError):
            return wanted.json()  # Spark says what is wrong with it
        leaves = (source.schema.column(number) for number in range(len(source.schema)))
        clocks = (json.loads(leaf.logical_type.to_json()).get("isAdjustedToUTC") is False for leaf in leaves)
        found = as_stored(pa.struct(list(source.schema_arrow)), wanted, clocks)
        return (found or wanted).json()

    def _parquet_frame(self, session: SparkSession, stored: str, paths: list[str], tagged: bool = False) -> DataFrame:
        found = T.StructType.fromJson(json.loads(stored))
        rows = session.read.schema(found).parquet(*paths)
        rows = _tagged(rows) if tagged else rows
        wanted = struct_of(self.schema)
        if found == wanted:
            return rows
        # By the clock of the feed's zone, which may be another than that of the session.
        pairs = zip(found.fields, wanted.fields, strict=True)
        columns = (
            f"{by_clock(quoted(old.name), old.dataType, new.dataType, self.feed.zone)} as {quoted(old.name)}"
            for old, new in pairs
        )
        return rows.selectExpr(*columns, *([TAG] if tagged else []))

    def _paths(self, files: Sequence[FeedFile]) -> list[str]:
        """Where Spark finds the files that have something in them. The n-th is called n there."""
        place = self.links.place()
        suffix = ".parquet"
        found = []
        for number, file in enumerate(files):
            if file.size_bytes:
                path = self.folder / file.uri
                with self._blamed(file):
                    check_shape(path, self.feed.config, self._columns_in(path))
                    if self.feed.config.format == "orc":
                        found.append(place.made(number, suffix, partial(write_orc, path, self.schema)))
                    elif into := converted_types(path, self.schema):
                        found.append(place.made(number, suffix, partial(write_converted, path, into)))
                    else:
                        found.append(place.link(path, number, suffix))
        return found

    def _columns_in(self, path: Path) -> Schema:
        """The declared columns that a file has: one from before the declaration changed may lack some."""
        if self.feed.config.columns is None:
            return self.schema
        names = {name.lower() for name in stored_schema(path, self.feed.config.format).names}
        return tuple(column for column in self.schema if column.name.lower() in names) or self.schema

    def _as_json(self, path: Path) -> Callable[[Path], None]:
        """What writes the records of a text file as JSON lines."""
        if self.feed.config.format in ("xml", "fixed"):
            return partial(write_as_json, path, self.feed.config, struct_of(self.schema))
        return partial(write_records, path, TextForm.of(self.feed.config))

    @contextmanager
    def _blamed(self, file: FeedFile) -> Iterator[None]:
        """What is wrong with one file sets aside that file."""
        try:
            yield
        except Malformed as malformed:
            raise BadFiles([(file, str(malformed))]) from None
        except OSError as error:
            raise BadFiles([(file, f"cannot be read: {error.strerror or error}; it is tried again")]) from None

    def _order(self, path: Path, form: TextForm) -> tuple[str, ...]:
        """The columns in the order of the file. Files from before a declaration changed may lack some or have others,
        which are read over; the columns of a feed that declares none are fixed by its first files."""
        every = tuple(column.name for column in self.schema)
        if not form.header:
            return every
        if self.feed.config.columns is None:
            check_shape(path, self.feed.config, self.schema)
        known = {name.lower(): name for name in every}
        return tuple(known.get(name.lower(), f"{_OTHER}{n}") for n, name in enumerate(header(path, form))) or every

    def _as_text(self, order: tuple[str, ...]) -> str:
        """The columns of a file as text, and one for what cannot be parsed, as DDL."""
        types = {field.name: as_text(field.dataType) for field in struct_of(self.schema).fields}
        return ddl((*(Column(name, types.get(name, "string")) for name in order), Column(CORRUPT, "string")))

    def _options(self) -> dict[str, str]:
        ours = {"encoding", "charset", "multiline", "dateformat", "timestampformat", "timestampntzformat"}
        ours |= {"rowtag", "widths"}
        options = {key: str(value) for key, value in self.feed.config.options.items() if key.lower() not in ours}
        form = TextForm.of(self.feed.config)
        if form.csv:
            options |= {"header": str(form.header).lower(), "escape": form.escape}
        return options | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}

    def _parsed(
        self, session: SparkSession, paths: list[str], order: tuple[str, ...], tagged: bool = False
    ) -> DataFrame:
        """Records as Spark's reader would have given them, each with its line and its text."""
        kept = [LINE, ROW, *([TAG] if tagged else [])]
        if self.feed.config.format == "csv":
            rows = session.read.schema(f"{LINE} bigint, {ROW} string").json(paths)
            rows = _tagged(rows) if tagged else rows
            options = {key: value for key, value in self._options().items() if key.lower() != "header"}
            parsed = rows.withColumn(VALUE, F.from_csv(ROW, self._as_text(order), options))
            return parsed.select(*kept, f"{VALUE}.*")
        # By the reader itself: other than `from_json` it leaves numbers as they are written.
        texts = ddl((Column(VALUE, f"array<{as_text(struct_of(self.schema))}>"),))
        schema = f"{LINE} string, {ROW} string, {WHY} string, {texts}, {CORRUPT} string"
        rows = session.read.schema(schema).options(**self._options()).json(paths)
        rows = _tagged(rows) if tagged else rows
        found = {name: f'coalesce({name}, regexp_extract({CORRUPT}, \'"{name}":"([^"]*)\', 1))' for name in (LINE, ROW)}
        none = f"{WHY} is null and ({CORRUPT} is not null or size({VALUE}) is null or size({VALUE}) <> 1 or {VALUE}[0] is null)"
        return rows.selectExpr(
            f"cast({found[LINE]} as bigint) as {LINE}",
            f"cast(unbase64({found[ROW]}) as string) as {ROW}",
            *kept[2:],
            WHY,
            f"if({none}, '', null) as {CORRUPT}",
            f"get({VALUE}, 0) as {VALUE}",
        ).select(*kept, WHY, CORRUPT, f"{VALUE}.*")

    def _converted(
        self, rows: DataFrame, order: tuple[str, ...], more: Sequence[str], parsed: bool = False
    ) -> DataFrame:
        """Values in place of text, and in place of what could not be parsed the reason; with some more columns, as expressions. Each step is
        one that Spark looks through again, so there are few."""
        values = self.values(rows.sparkSession)
        # Other records than CSV also say by themselves what is wrong with them.
        whys = [WHY] if parsed and self.feed.config.format != "csv" else []
        cases = [
            f"when {CORRUPT} is not null then {text(_SHAPE)}",
            *(f"when {WHY} is not null then {WHY}" for _ in whys),
        ]
        columns, texts = [], []
        for number, field in enumerate(struct_of(self.schema).fields):
            e, name, raw = quoted(field.name), field.dataType.simpleString(), f"{_RAW}{number}"
            if field.name not in order:
                columns.append(f"cast(null as {name}) as {e}")
                continue
            columns.append(f"{values.value(e, field.dataType)} as {e}")
            if (test := values.unfit(raw, field.dataType, e)) is not None:
                texts.append(f"{e} as {raw}")
                cases.append(f"when {test} then {text(f'the value of {field.name} does not fit its type {name}')}")
        if any(name.lower() == _METADATA for name in order) and not parsed and more:
            rows, more = _tagged(rows), [TAG]
        # In two steps, so that Spark converts each value once.
        both = select(rows, [*columns, *texts, *more, *whys, CORRUPT])
        names = [quoted(column.name) for column in self.schema]
        kept = [column.split(" as ")[-1] for column in more]
        return select(both, [*names, f"case {' '.join(cases)} end as {CORRUPT}", *kept])

    def values(self, session: SparkSession) -> Values:
        given = {key.lower(): str(value) for key, value in self.feed.config.options.items()}
        keys = {"date": "dateformat", "timestamp": "timestampformat", "timestamp_ntz": "timestampntzformat"}
        formats = {kind: given[key] for kind, key in keys.items() if key in given}
        same = session.conf.get("spark.sql.session.timeZone") == self.feed.zone
        return Values(self.feed.config.format == "json", formats, None if same else self.feed.zone)

    def reason(self, arrived: str, late: str | None = None) -> str:
        """Why a row is refused, as SQL; null for a good one. `arrived` is when its file did, in microseconds; `late` is the time
        before which its rows are late."""
        config = self.feed.config
        tests: list[tuple[str, str]] = []
        if config.format not in BINARY:
            tests.append((f"{CORRUPT} is not null", CORRUPT))
        if config.time is not None:
            time = quoted(config.time)
            tests.append((f"{time} is null", text(f"the event time {config.time} is null")))
            ahead = f"the event time {config.time} is more than {format_duration(config.max_ahead)} ahead of the file's arrival"
            tests.append((f"{micros(config.time)} > {arrived} + {config.max_ahead}L", text(ahead)))
        tests.extend((f"not coalesce(({rule}), false)", text(f"breaks the rule: {rule}")) for rule in config.rules)
        if config.time is not None and late is not None:
            before = f"{text(f'{LATE}{config.time} is before ')}, cast(timestamp_micros({late}) as string)"
            why = f"concat({before}, {text(', up to which the table was complete when the file came')})"
            tests.append((f"{micros(config.time)} < {late}", why))
        if not tests:
            return "cast(null as string)"
        cases = " ".join(f"when {test} then {why}" for test, why in tests)
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

    def count_refused(self, session: SparkSession, files: Sequence[FeedFile], arrived_us: int) -> int:
        reason = self.reason(f"{arrived_us}L", self.late_before(files))
        return self.frame(session, files, tagged=True).where(f"({reason}) is not null").count()

    def late_before(self, files: Sequence[FeedFile], tag: str = TAG) -> str | None:
        """The time before which rows of these files are late, as SQL over rows that are tagged; none if none is set aside."""
        if self.feed.config.late == "load" or all(file.late_us is None for file in files):
            return None
        times = (f"{file.late_us}L" if file.late_us is not None else "cast(null as bigint)" for file in files)
        return f"array({', '.join(times)})[{tag}]"

    def _with_refused(self, session: SparkSession, files: Sequence[FeedFile], arrived_us: int) -> list[FeedFile]:
        """The files that have bad rows: usually one of many, and each costs a query of its own to find the lines."""
        if len(files) == 1:
            return list(files)
        rows = (
            self.frame(session, files, tagged=True)
            .withColumn(REASON, F.expr(self.reason(f"{arrived_us}L", self.late_before(files))))
            .where(f"{REASON} is not null")
        )
        return [files[row[0]] for row in rows.select(TAG).distinct().orderBy(TAG).collect()] or list(files)

    def _refused(self, session: SparkSession, file: FeedFile, arrived_us: int) -> DataFrame:
        if self.feed.config.format in BINARY:
            (found,) = self._paths([file])
            rows = self._parquet_frame(session, self._stored(found), [found])
            index = rows.metadataColumn("_metadata").getField("row_index") + 1
            whole = F.to_json(F.struct(*(quoted(column.name) for column in self.schema)))
            rows = rows.withColumns({LINE: index, ROW: whole})
        else:
            form, path = TextForm.of(self.feed.config), self.folder / file.uri
            made = self.links.place().made(0, ".json", self._as_json(path))
            order = self._order(path, form)
            rows = self._converted(self._parsed(session, [made], order), order, [LINE, ROW], parsed=True)
        reason = self.reason(f"{arrived_us}L", self.late_before([file], "0"))
        rows = rows.withColumn(REASON, F.expr(reason)).where(f"{REASON} is not null")
        return rows.selectExpr(f"{text(file.uri)} as file", f"{LINE} as line", f"{REASON} as reason", f"{ROW} as row")


def _tagged(rows: DataFrame) -> DataFrame:
    name = rows.metadataColumn("_metadata").getField("file_name")
    return rows.withColumn(TAG, F.substring_index(name, ".", 1).cast("int"))


# Text that is a number but not only that: 007 is not 7.
_CODE = r"^\s*[+-]?0\d"
_GUESSES = ("bigint", "double", "boolean", "timestamp")


def infer_schema(
    session: SparkSession, feed: FeedDeclaration, folder: Path, files: Sequence[FeedFile], links: Links
) -> Schema:
    """The columns of a feed that declares none, from its first files. They are then fixed. Raises `BadFiles`."""
    time = (feed.config.time or "").lower()
    ways = {"csv": _infer_csv, "json": _infer_json, "parquet": _infer_binary, "orc": _infer_binary}
    found = ways[feed.config.format]
    try:
        columns = tuple(found(session, feed, folder, files, links))
    except Malformed as malformed:
        raise BadFiles([(files[0], str(malformed))]) from None
    # JSON has no type for times: a text column that is declared to be the time is one.
    return tuple(Column(c.name, "timestamp") if c.name.lower() == time and c.type == "string" else c for c in columns)


def _infer_csv(
    session: SparkSession, feed: FeedDeclaration, folder: Path, files: Sequence[FeedFile], links: Links
) -> Iterator[Column]:
    """A column has the first type that all its values fit exactly; else it is text. Dates are taken for times, as times may come."""
    form = TextForm.of(feed.config)
    first = header(folder / files[0].uri, form)
    names = first if form.header else tuple(f"_c{number}" for number in range(len(first)))
    reader = FeedReader(feed, tuple(Column(name, "string") for name in names), folder, links)
    if len({name.lower() for name in names}) < len(names) or not all(names):
        raise BadFiles(
            [(files[0], f"wrong columns: one has no name, or stands twice (found {', '.join(names)[:300]})")]
        )
    alike = [file for file in files if not form.header or _same_names(header(folder / file.uri, form), names)]
    rows = reader.frame(session, alike).where(f"{CORRUPT} is null")
    values = reader.values(session)
    tests = [f"max({quoted(name)} is not null)" for name in names]
    for name in names:
        for guess in _GUESSES:
            code = f" or {quoted(name)} rlike {text(_CODE)}" if guess in ("bigint", "double") else ""
            tests.append(f"max({values.unfit(quoted(name), _type_of(guess))}{code})")
    seen = rows.selectExpr(*tests).first()
    assert seen is not None
    for number, name in enumerate(names):
        unfit = seen[len(names) + number * len(_GUESSES) : len(names) + (number + 1) * len(_GUESSES)]
        fits = [guess for guess, bad in zip(_GUESSES, unfit, strict=True) if not bad]
        yield Column(name, fits[0] if seen[number] and fits else "string")


def _same_names(found: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return sorted(name.lower() for name in found) == sorted(name.lower() for name in names)


def _type_of(name: str) -> T.DataType:
    return struct_of((Column("c", name),)).fields[0].dataType


def _infer_json(
    session: SparkSession, feed: FeedDeclaration, folder: Path, files: Sequence[FeedFile], links: Links
) -> Iterator[Column]:
    form, place = TextForm.of(feed.config), links.place()
    paths = [place.made(n, ".json", partial(write_lines, folder / file.uri, form)) for n, file in enumerate(files)]
    options = FeedReader(feed, (), folder, links)._options() | {"columnNameOfCorruptRecord": CORRUPT}
    for field in session.read.options(**options).json(paths).schema.fields:
        if field.name != CORRUPT:
            yield Column(field.name, field.dataType.simpleString())


def _infer_binary(
    session: SparkSession, feed: FeedDeclaration, folder: Path, files: Sequence[FeedFile], links: Links
) -> Iterator[Column]:
    for field in stored_schema(folder / files[0].uri, feed.config.format):
        kind = spark_type(field.type)
        if kind is None and pa.types.is_nested(field.type):
            kind = from_arrow_type(field.type).simpleString()
        if kind is None:
            raise BadFiles([(files[0], f"column {field.name} has type {field.type}, which cannot be read")])
        yield Column(field.name, "string" if kind == "void" else kind)


def base_rows(
    session: SparkSession, definition: Definition, reader: FeedReader, files: Sequence[FeedFile], arrived_us: int
) -> tuple[DataFrame, list[Observation]]:
    """The rows that the base table gets, each with the number of its file, and counts of those refused that are known once
    they were written."""
    declaration = definition.declaration
    view = definition.view
    carrying = carrying_sql(view.parsed, FILE) if view is not None else None
    as_they_are = declaration.is_plain or definition.flow is not None
    if as_they_are or len(files) == 1 or carrying is not None:
        good, seen = _good_rows(session, reader, files, arrived_us)
        if as_they_are:
            return good, [seen] if seen else []
        if carrying is not None:
            good.createOrReplaceTempView(reader.feed.name)
            rows = session.sql(carrying)
            visible = [quoted(name) for name in rows.columns if name != FILE]
            return rows.selectExpr(*visible, FILE), [seen] if seen else []
        rows = _transformed(session, definition, reader, good.drop(FILE))
        return rows.selectExpr("*", tagged(files[0].id)), [seen] if seen else []
    # What it does to rows it does file by file, so that each of them is known by its file.
    parts = [base_rows(session, definition, reader, [file], arrived_us) for file in files]
    return reduce(DataFrame.unionAll, (rows for rows, _ in parts)), [one for _, seen in parts for one in seen]


def _good_rows(
    session: SparkSession, reader: FeedReader, files: Sequence[FeedFile], arrived_us: int
) -> tuple[DataFrame, Observation | None]:
    """The rows of files that are not refused."""
    names = [quoted(column.name) for column in reader.schema]
    if len(files) == 1 and files[0].size_bytes > DRIVER_BYTES:
        raw, number, arrived = reader.frame(session, files), tagged(files[0].id), f"{arrived_us}L"
        late = reader.late_before(files, "0")
    else:
        # Spark compiles what it is asked to compute, and a number in it is another program each time. That takes longer than a small load.
        # Numbers that are looked up are not part of the program.
        raw = reader.frame(session, files, tagged=True)
        number = f"array({', '.join(f'{file.id}L' for file in files)})[{TAG}] as {FILE}"
        arrived = f"array_repeat({arrived_us}L, {len(files)})[{TAG}]"
        late = reader.late_before(files)
    seen: Observation | None = None
    if (reason := reader.reason(arrived, late)) != "cast(null as string)":
        seen = Observation()
        raw = select(raw, [*names, number, f"{reason} as {REASON}"])
        raw = raw.observe(seen, F.expr(f"count({REASON}) as refused"))
        return raw.where(f"{REASON} is null").drop(REASON), seen
    return select(raw, [*names, number]), None


def _transformed(session: SparkSession, definition: Definition, reader: FeedReader, rows: DataFrame) -> DataFrame:
    """What a base table's own function or SELECT makes of rows."""
    function = definition.declaration.function
    if function is not None:
        with settings_kept(session):
            result = function(rows)
        if not isinstance(result, DataFrame):
            raise RowsProblem(
                f"the function of `{definition.name}` returned {type(result).__name__}, expected a DataFrame"
            )
        return result
    assert definition.view is not None
    rows.createOrReplaceTempView(reader.feed.name)
    return session.sql(definition.view.sql)


def refused_of(seen: Observation) -> int:
    """The count of refused rows, once the others were written."""
    try:
        return int(seen.get["refused"])
    except Py4JJavaError:
        return 0  # there were no rows at all, and Spark left the count out of its plan
