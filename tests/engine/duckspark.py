"""DuckDB in the place of a Spark session, as far as the engine uses one: real rows, real Parquet files, no JVM.

Only what the engine's own code calls is here; views must be written in the SQL that both understand. Frames are computed
at once, and files are written as Spark writes them: under `_temporary` first, each with its checksum file beside it.
"""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException

from penstock.model.schema import Schema

ARROW = {
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
}
SPARK = {str(kind): name for name, kind in ARROW.items()} | {"large_string": "string"}
MACROS = (
    "unix_micros(t) AS epoch_us(t)",
    "timestamp_micros(n) AS make_timestamptz(n)",
    "timestamp_seconds(n) AS make_timestamptz((n * 1000000)::BIGINT)",
    "unix_seconds(t) AS epoch_us(t) // 1000000",
    "pmod(a, b) AS ((a % b) + b) % b",
    "from_utc_timestamp(t, zone) AS make_timestamptz(epoch_us(timezone(zone, t)))",
    "to_utc_timestamp(t, zone) AS timezone(zone, make_timestamp(epoch_us(t)))",
    "unix_date(d) AS date_diff('day', DATE '1970-01-01', d)",
    "date_from_unix_date(n) AS (DATE '1970-01-01' + n::INTEGER)",
    "raise_error(message) AS error(message)",
    "monotonically_increasing_id() AS 0",
    "octet_length(t) AS strlen(t)",
    "current_timestamp() AS now()",
    "trunc_date(d, unit) AS date_trunc(unit, d)::DATE",
)


def duck(sql: str) -> str:
    sql = re.sub(r"(-?\b\d+)L\b", r"\1", sql.replace("`", '"').replace("\\'", "''"))
    for name, written in CALLS.items():
        sql = _rewritten(sql, name, written)
    # A timestamp of Spark is an instant; whole division is a word there.
    return (
        re.sub(r"\bas timestamp\)", "as timestamptz)", sql, flags=re.IGNORECASE)
        .replace(" div ", " // ")
        .replace("unix_date(trunc(", "unix_date(trunc_date(")
    )


def _date_trunc(found: list[str]) -> str:
    """DuckDB takes the later one of hours that come twice, Spark that of the row."""
    width = {"'hour'": 3_600_000_000, "'minute'": 60_000_000}.get(found[0].lower())
    if width is None:
        return f"date_trunc({', '.join(found)})"
    at = f"({found[1]})::TIMESTAMPTZ"
    return f"make_timestamptz(epoch_us({at}) - pmod(epoch_us(timezone(current_setting('TimeZone'), {at})), {width}))"


# Functions of any number of arguments, which macros cannot have; and one that means another thing.
CALLS: dict[str, Callable[[list[str]], str]] = {
    "map": lambda found: f"MAP([{', '.join(found[::2])}], [{', '.join(found[1::2])}])",
    "struct": lambda found: f"struct_pack({', '.join(f'{one} := {one}' for one in found)})",
    # DuckDB gives a list of what it found; Spark the value.
    "date_trunc": _date_trunc,
    "element_at": lambda found: f"({found[0]})[{found[1]}]",
    "xxhash64": lambda found: f"((hash({', '.join(found)}) >> 1)::BIGINT)",
    # Spark leaves out fields that are null.
    "to_json": lambda found: f"json_merge_patch('{{}}', json({found[0]}::JSON))",
}
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\w+\(|.", re.DOTALL)


def _rewritten(sql: str, name: str, written: Callable[[list[str]], str]) -> str:
    """The text with each call of a function written otherwise; quoted text is left alone."""
    if f"{name}(" not in sql:
        return sql
    done: list[str] = []
    # Of each bracket that is open: what stood before it, its arguments so far, and whether it is such a call.
    opened: list[tuple[list[str], list[str], bool]] = []
    for token in _TOKEN.findall(sql):
        if token[-1] == "(" and token[0] not in "'\"":
            called = token == f"{name}("
            opened.append(([*done, "" if called else token], [], called))
            done = []
        elif token == ")" and opened:
            before, arguments, called = opened.pop()
            arguments.append("".join(done).strip())
            done = [*before, written(arguments) if called else f"{arguments[0]})"]
        elif token == "," and opened and opened[-1][2]:
            opened[-1][1].append("".join(done).strip())
            done = []
        else:
            done.append(token)
    return "".join(done)


@dataclass(frozen=True)
class _Type:
    name: str

    def simpleString(self) -> str:
        return self.name


@dataclass(frozen=True)
class _Field:
    name: str
    dataType: _Type


@dataclass(frozen=True)
class _Struct:
    fields: list[_Field]

    def json(self) -> str:
        return "{}"


class Frame:
    """A DataFrame whose rows are known."""

    def __init__(self, session: Session, rows: pa.Table) -> None:
        self.session = session
        self.rows = rows

    @property
    def schema(self) -> _Struct:
        return _Struct([_Field(field.name, _Type(_spark_type(field.type))) for field in self.rows.schema])

    @property
    def columns(self) -> list[str]:
        return list(self.rows.column_names)

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        return [(field.name, _spark_type(field.type)) for field in self.rows.schema]

    def head(self) -> tuple[Any, ...] | None:
        found = self.rows.slice(0, 1).to_pylist()
        return tuple(found[0].values()) if found else None

    def createOrReplaceTempView(self, name: str) -> None:
        self.session.connection.register(name, self.rows)

    def selectExpr(self, *items: str) -> Frame:
        try:
            return self._query(f"SELECT {', '.join(items)} FROM _frame")
        except PySparkException as error:
            return _Failing(self.session, self.rows, error)

    def where(self, condition: str) -> Frame:
        return self._query(f"SELECT * FROM _frame WHERE {condition}")

    def _query(self, sql: str) -> Frame:
        self.createOrReplaceTempView("_frame")
        return self.session.sql(sql)

    def unionAll(self, other: Frame) -> Frame:
        return Frame(self.session, pa.concat_tables([self.rows, other.rows.cast(self.rows.schema)]))

    def limit(self, count: int) -> Frame:
        return Frame(self.session, self.rows.slice(0, count))

    def coalesce(self, _count: int) -> Frame:
        return self

    @property
    def sparkSession(self) -> Session:
        return self.session

    def _collect_as_arrow(self, empty_list_if_zero_records: bool) -> list[pa.RecordBatch]:
        whole = self.rows.combine_chunks()
        return whole.to_batches() or [pa.RecordBatch.from_pylist([], schema=whole.schema)]

    def persist(self, *_level: Any) -> Frame:
        return self

    def unpersist(self, *_blocking: Any) -> Frame:
        return self

    @property
    def write(self) -> _Writer:
        return _Writer(self)


class _Failing(Frame):
    """Spark computes rows when they are asked for, and then raises."""

    def __init__(self, session: Session, rows: pa.Table, error: PySparkException) -> None:
        super().__init__(session, rows)
        self.error = error

    def _collect_as_arrow(self, empty_list_if_zero_records: bool) -> list[pa.RecordBatch]:
        raise self.error


def _spark_type(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return SPARK[str(kind)]


class _Writer:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._by: str | None = None

    def mode(self, _mode: str) -> _Writer:
        return self

    def option(self, _name: str, _value: str) -> _Writer:
        return self

    def partitionBy(self, column: str) -> _Writer:
        self._by = column
        return self

    def parquet(self, folder: str) -> None:
        rows = self._frame.rows
        parts: list[tuple[str, pa.Table]] = [("", rows)]
        if self._by is not None:
            values = rows.column(self._by)
            plain = rows.drop_columns([self._by])
            parts = [
                (f"{self._by}={start}/", plain.filter(pa.compute.equal(values, start)))
                for start in sorted(set(values.drop_null().to_pylist()))
            ]
            if values.null_count:
                parts.append((f"{self._by}=__HIVE_DEFAULT_PARTITION__/", plain.filter(values.is_null())))
        point = self._frame.session.point
        attempt = Path(folder) / "_temporary" / "0"
        attempt.mkdir(parents=True, exist_ok=True)  # also if there are no rows
        for place, part in parts:
            self._write(attempt, Path(folder), place, part, point)
        shutil.rmtree(attempt.parent, ignore_errors=True)
        point("staged")

    def _write(self, attempt: Path, folder: Path, place: str, rows: pa.Table, point: Callable[[str], None]) -> None:
        name = f"part-00000-{uuid4()}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        content = sink.getvalue().to_pybytes()
        (attempt / place).mkdir(parents=True, exist_ok=True)
        (folder / place).mkdir(parents=True, exist_ok=True)
        with (attempt / place / name).open("wb") as stream:
            stream.write(content[: len(content) // 2])
            stream.flush()
            point("half a file written")
            stream.write(content[len(content) // 2 :])
        (attempt / place / f".{name}.crc").write_bytes(b"crc")
        point("file written")
        (attempt / place / f".{name}.crc").rename(folder / place / f".{name}.crc")
        (attempt / place / name).rename(folder / place / name)
        point("file in place")


class _Reader:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._schema: Schema = ()

    def schema(self, columns: Schema) -> _Reader:
        self._schema = columns
        return self

    def parquet(self, *paths: str) -> Frame:
        wanted = _arrow_schema(self._schema)
        tables = [
            pq.ParquetFile(path).read(columns=wanted.names, use_threads=False).select(wanted.names).cast(wanted)
            for path in paths
        ]
        return Frame(self._session, pa.concat_tables(tables))


@lru_cache(maxsize=1)
def _connection() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"threads": 1})
    con.execute("SET TimeZone = 'UTC'")
    for macro in MACROS:
        con.execute(f"CREATE MACRO {macro}")
    return con


@dataclass(frozen=True)
class _Settings:
    """As far as a session of the JVM is asked for its settings, and whether it lives."""

    connection: duckdb.DuckDBPyConnection

    def get(self, _name: str) -> str:
        return "snappy"

    def set(self, name: str, value: str) -> None:
        if name == "spark.sql.session.timeZone":
            self.connection.execute(f"SET TimeZone = '{value}'")

    def sessionState(self) -> _Settings:
        return self

    conf = getAllConfs = sc = sessionState
    _jsc = property(sessionState)

    def isStopped(self) -> bool:
        return False

    def mkString(self, between: str) -> str:
        return ""


class Session:
    """Each step that touches the disk is told to `point`."""

    def __init__(self, point: Callable[[str], None] = lambda _name: None) -> None:
        self.point = point
        self.connection = _connection()

    def newSession(self) -> Session:
        return self

    @property
    def conf(self) -> _Settings:
        return _Settings(self.connection)

    _jsparkSession = sparkContext = conf

    @property
    def read(self) -> _Reader:
        return _Reader(self)

    def createDataFrame(self, rows: Sequence[Any], schema: Schema) -> Frame:
        assert not rows
        return Frame(self, _arrow_schema(schema).empty_table())

    def _create_from_arrow_table(self, rows: pa.Table, schema: Schema, *_settings: Any) -> Frame:
        return Frame(self, rows.cast(_arrow_schema(schema)))

    @property
    def catalog(self) -> Session:
        return self

    def dropTempView(self, name: str) -> None:
        self.connection.unregister(name)

    def sql(self, sql: str, args: Any = None) -> Frame:
        for name, moment in (args or {}).items():
            sql = re.sub(rf":{name}\b", f"TIMESTAMPTZ '{moment.isoformat()}'", sql)
        return Frame(self, self.arrow(duck(sql)))

    def arrow(self, sql: str) -> pa.Table:
        try:
            rows = self.connection.execute(sql).to_arrow_table()
        except duckdb.InvalidInputException as error:
            raise PySparkException(str(error)) from None  # what `raise_error` says
        return rows.cast(pa.schema([(field.name, _narrow(field.type)) for field in rows.schema]))


def _narrow(kind: pa.DataType) -> pa.DataType:
    """DuckDB adds up whole numbers in 128 bits, Spark in 64; and its times have the session's zone."""
    if kind == pa.decimal128(38, 0):
        return pa.int64()
    return ARROW["timestamp"] if pa.types.is_timestamp(kind) and kind.tz else kind


def _arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([(column.name, _arrow_type(column.type)) for column in schema])


def _arrow_type(name: str) -> pa.DataType:
    if name.startswith("decimal"):
        precision, scale = name.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return ARROW[name]


def delivered(session: Session, kind: str, path: str, schema: Schema, options: Mapping[str, Any]) -> Frame:
    """The rows of a delivered file. A column that it does not have is null."""
    if not Path(path).stat().st_size:
        return Frame(session, _arrow_schema(schema).empty_table())
    sep = options.get("sep", ",")
    there = {column.name.lower() for column in schema}
    if kind == "parquet":
        there = {name.lower() for name in pq.read_schema(path).names}
    elif kind == "csv":
        with Path(path).open(newline="", encoding="utf-8") as stream:
            header = next(csv.reader(stream, delimiter=sep))
        there = {name.lower() for name in header}
    columns = [column for column in schema if column.name.lower() in there]
    rows = _delivered(session, kind, path, columns, header if kind == "csv" else [], sep, options.get("nullValue"))
    for column in schema:
        if column not in columns:
            nothing = pa.nulls(rows.rows.num_rows, _arrow_type(column.type))
            rows = Frame(session, rows.rows.append_column(column.name, nothing))
    return Frame(session, rows.rows.select([column.name for column in schema]))


def _delivered(
    session: Session, kind: str, path: str, schema: Sequence[Any], header: Sequence[str], sep: str, null: str | None
) -> Frame:
    if kind == "parquet":
        return session.read.schema(schema).parquet(path)  # type: ignore[arg-type]
    names = {"string": "VARCHAR", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP"}
    types = {column.name.lower(): names.get(column.type, column.type.upper()) for column in schema}
    order = header or [column.name for column in schema]
    columns = {name: types.get(name.lower(), "VARCHAR") for name in order}
    listed = "{" + ", ".join(f"{_literal(name)}: '{kind}'" for name, kind in columns.items()) + "}"
    if kind == "json":
        read = f"read_json({_literal(path)}, format = 'newline_delimited', columns = {listed})"
    else:
        nulls = f", nullstr = ['', {_literal(null)}]" if null is not None else ""
        form = f"delim = {_literal(sep)}, quote = '\"', escape = '\"'{nulls}"
        read = f"read_csv({_literal(path)}, header = true, columns = {listed}, auto_detect = false, {form})"
    return Frame(session, session.arrow(f"SELECT * FROM {read}"))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
