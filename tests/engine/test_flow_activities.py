"""Every activity on Spark against DuckDB, on random rows with nulls, duplicates and ties; and for checks: the rows that
pass and those that are refused are together the rows that came."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock.engine.flows.history  # noqa: F401
from penstock.declare.flow_check import SparkSql
from penstock.engine.flows.realise import FILE, Inputs, realise, refused
from penstock.engine.updates.rows import RowsProblem, schema_of
from penstock.flows.activities import (
    Activity,
    Aggregate,
    AttachKey,
    BlackBox,
    Check,
    Deduplicate,
    Derive,
    Difference,
    Drop,
    Filter,
    HasType,
    InDomain,
    Join,
    Lookup,
    Matches,
    NewKeys,
    NotNull,
    Overwrite,
    Pivot,
    Reformat,
    Route,
    Select,
    Sort,
    SortedUnion,
    Split,
    Union,
    Unpivot,
    Versions,
)
from penstock.model.schema import Schema, ddl, parse_ddl

pytestmark = pytest.mark.spark

T = parse_ddl("id bigint, k string, v int, price decimal(10,2), note string, day date, seen timestamp_ntz")
R = parse_ddl("k string, name string, rank int")
DIM = parse_ddl("id bigint, k string, v int, valid_from timestamp_ntz, valid_to timestamp_ntz, is_current boolean")


def rows_of(seed: int, count: int = 160) -> dict[str, tuple[Schema, list[tuple[Any, ...]]]]:
    rng = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    def row() -> tuple[Any, ...]:
        return (
            maybe(rng.randrange(30)),
            maybe(rng.choice("abcdef")),
            maybe(rng.randrange(-3, 8)),
            maybe(Decimal(rng.randrange(-500, 2000)) / 100),
            maybe(rng.choice(["12", "x7", "-3", "030-77", "4.5", "", "o'neil\\", "9999999999"])),
            maybe(date(2024, 1, rng.randrange(1, 6))),
            maybe(datetime(2024, 1, rng.randrange(1, 6), rng.randrange(3))),
        )

    reference = [(maybe(rng.choice("abcg")), maybe(rng.choice(["A", "B"])), rng.randrange(3)) for _ in range(6)]
    dimension = [
        (n, rng.choice("abc"), rng.randrange(3), datetime(2024, 1, 1 + n % 3), None, True) for n in range(0, 20, 2)
    ]
    dimension += [(n, "z", 0, datetime(2023, 1, 1), datetime(2024, 1, 1 + n % 3), False) for n in range(0, 20, 4)]
    return {
        "t": (T, [row() for _ in range(count)]),
        "u": (T, [row() for _ in range(20)]),
        "r": (R, reference),
        "dim": (DIM, dimension),
        "keys": (parse_ddl("k string, sk bigint"), [("b", 4), (None, 9)]),
    }


@dataclass
class Bench:
    spark: SparkSession
    tables: dict[str, tuple[Schema, list[tuple[Any, ...]]]]

    def __post_init__(self) -> None:
        self.duck = duckdb.connect()
        self.frames: dict[str, DataFrame] = {}
        for name, (schema, rows) in self.tables.items():
            types = ddl(schema).replace("timestamp_ntz", "timestamp").replace("string", "varchar").replace("`", '"')
            self.duck.execute(f"CREATE TABLE {name} ({types})")
            self.duck.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(schema))})", rows)
            self.frames[name] = self.spark.createDataFrame(rows, ddl(schema)).coalesce(1)

    def loaded(self, table: str, columns: Schema) -> DataFrame:
        if table not in self.frames:
            return self.spark.createDataFrame([], ddl(columns))
        return self.frames[table].select(*(column.name for column in columns))

    def inputs(self, *names: str) -> Inputs:
        return Inputs(tuple(self.frames[name] for name in names), self.loaded)

    def oracle(self, sql: str) -> Counter[tuple[Any, ...]]:
        return Counter(self.duck.execute(sql).fetchall())


@pytest.fixture(scope="module", params=[1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 10))])
def bench(request: pytest.FixtureRequest, spark: SparkSession) -> Bench:
    return Bench(spark, rows_of(request.param))


def collected(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


CHECKS: list[tuple[Check, tuple[str, ...], str, str]] = [
    # activity, inputs, rows that pass, rows with the default
    (NotNull("reject", ("k", "v")), ("t",), "SELECT * FROM t WHERE k IS NOT NULL AND v IS NOT NULL", ""),
    (Filter("reject", "v > 2 or k = 'a'"), ("t",), "SELECT * FROM t WHERE v > 2 OR k = 'a'", ""),
    (
        Matches("reject", "note", r"^\d+-\d+$|'"),
        ("t",),
        r"SELECT * FROM t WHERE regexp_matches(note, '^\d+-\d+$|''')",
        "",
    ),
    (
        HasType("reject", "note", "int"),
        ("t",),
        "SELECT * REPLACE (try_cast(note AS int) AS note) FROM t WHERE note IS NULL OR regexp_matches(note, '^-?[0-9]{1,9}$')",
        "",
    ),
    (InDomain("reject", "k", ("a", "b", "o'neil")), ("t",), "SELECT * FROM t WHERE k IN ('a', 'b', 'o''neil')", ""),
    (InDomain("reject", "price", low=0, high=10), ("t",), "SELECT * FROM t WHERE price BETWEEN 0 AND 10", ""),
    (InDomain("reject", "day", low="2024-01-03"), ("t",), "SELECT * FROM t WHERE day >= DATE '2024-01-03'", ""),
    (
        Deduplicate("reject", ("k",), ("v desc", "id")),
        ("t",),
        "SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST, id NULLS FIRST, id NULLS FIRST, "
        "k NULLS FIRST, v NULLS FIRST, price NULLS FIRST, note NULLS FIRST, day NULLS FIRST, seen NULLS FIRST) = 1",
        "",
    ),
    (
        Lookup("reject", ("k",), ("name", "rank"), ("name", "rank")),
        ("t", "r"),
        "SELECT t.*, f.name, f.rank FROM t JOIN (SELECT * FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY name "
        "NULLS FIRST, rank NULLS FIRST) = 1) f USING (k)",
        "",
    ),
]
DEFAULTS: list[tuple[Check, tuple[str, ...], str]] = [
    (
        NotNull("default", ("k", "note"), "'?'"),
        ("t",),
        "SELECT * REPLACE (coalesce(k, '?') AS k, coalesce(note, '?') AS note) FROM t",
    ),
    (
        Matches("default", "note", "^x", "upper(k)"),
        ("t",),
        "SELECT * REPLACE (CASE WHEN note LIKE 'x%' THEN note ELSE upper(k) END AS note) FROM t",
    ),
    (
        HasType("default", "note", "int", "-1"),
        ("t",),
        "SELECT * REPLACE (CASE WHEN note IS NULL OR regexp_matches(note, '^-?[0-9]{1,9}$') THEN try_cast(note AS int) ELSE -1 END "
        "AS note) FROM t",
    ),
    (
        InDomain("default", "v", (1, 2), default="0"),
        ("t",),
        "SELECT * REPLACE (CASE WHEN v IN (1, 2) THEN v ELSE 0 END AS v) FROM t",
    ),
    (
        Lookup("default", ("k",), ("rank",), ("rank",)),
        ("t", "r"),
        "SELECT t.*, f.rank FROM t LEFT JOIN (SELECT k, min(rank) rank FROM r GROUP BY k) f USING (k)",
    ),
]
OTHERS: list[tuple[Activity, tuple[str, ...], str]] = [
    (
        Derive((("total", "v * price"), ("v", "v + 1"))),
        ("t",),
        "SELECT id, k, v + 1, price, note, day, seen, v * price FROM t",
    ),
    (
        Reformat("note", r"^(\d+)-(\d+)$", "+$1 $2"),
        ("t",),
        r"SELECT * REPLACE (regexp_replace(note, '^(\d+)-(\d+)$', '+\1 \2') AS note) FROM t",
    ),
    (Select((("key", "k"), ("twice", "v * 2"))), ("t",), "SELECT k, v * 2 FROM t"),
    (Drop(("note", "price")), ("t",), "SELECT id, k, v, day, seen FROM t"),
    (Split(("k", "day")), ("t",), "SELECT k, day FROM t"),
    (Route("v > 3"), ("t",), "SELECT * FROM t WHERE v > 3"),
    (Route("k = 'a'", ("v > 3",)), ("t",), "SELECT * FROM t WHERE k = 'a' AND coalesce(v, 0) <= 3"),
    (
        Route(None, ("v > 3", "k = 'a'")),
        ("t",),
        "SELECT * FROM t WHERE coalesce(v, 0) <= 3 AND coalesce(k, '') <> 'a'",
    ),
    (Join(("k",)), ("t", "r"), "SELECT k, id, v, price, note, day, seen, name, rank FROM t JOIN r USING (k)"),
    (
        Join(("k",), how="full"),
        ("t", "r"),
        "SELECT coalesce(t.k, r.k), id, v, price, note, day, seen, name, rank FROM t FULL JOIN r ON t.k = r.k",
    ),
    (Join(("k",), how="anti"), ("t", "r"), "SELECT k, id, v, price, note, day, seen FROM t ANTI JOIN r USING (k)"),
    (Union(), ("t", "u"), "SELECT * FROM t UNION ALL SELECT * FROM u"),
    (SortedUnion(("k", "v")), ("t", "u"), "SELECT * FROM t UNION ALL SELECT * FROM u"),
    (Sort(("k", "v desc")), ("t",), "SELECT * FROM t"),
    (
        Aggregate(("k", "day"), (("n", "count(*)"), ("total", "sum(v)"), ("most", "max(price)"))),
        ("t",),
        "SELECT k, day, count(*), sum(v), max(price) FROM t GROUP BY k, day",
    ),
    (Aggregate((), (("n", "count(distinct k)"),)), ("t",), "SELECT count(DISTINCT k) FROM t"),
    (
        Pivot(("day",), "k", ("a", "b"), "sum(v)"),
        ("t",),
        "SELECT day, sum(v) FILTER (k = 'a'), sum(v) FILTER (k = 'b') FROM t GROUP BY day",
    ),
    (
        Unpivot(("id", "v64"), "what", "much"),
        ("wide",),
        "SELECT k, 'id', id FROM wide WHERE id IS NOT NULL UNION ALL SELECT k, 'v64', v64 FROM wide WHERE v64 IS NOT NULL",
    ),
    (
        NewKeys(("k",), "sk", "keys"),
        ("t",),
        "SELECT k, 9 + row_number() OVER (ORDER BY k) FROM (SELECT DISTINCT k FROM t WHERE k IS NOT NULL AND k <> 'b')",
    ),
    (
        NewKeys(("k",), "sk", "none_yet"),
        ("t",),
        "SELECT k, row_number() OVER (ORDER BY k NULLS FIRST) FROM (SELECT DISTINCT k FROM t)",
    ),
    (
        Overwrite(("k",), "seen"),
        ("t",),
        "SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY seen DESC NULLS LAST, id DESC NULLS LAST, v DESC NULLS "
        "LAST, price DESC NULLS LAST, note DESC NULLS LAST, day DESC NULLS LAST) = 1",
    ),
    (
        Difference(("id",), "current"),
        ("once",),
        """SELECT coalesce(o.id, c.id), CASE WHEN o.here THEN o.k ELSE c.k END, CASE WHEN o.here THEN o.v ELSE c.v END,
               CASE WHEN c.here IS NULL THEN 'insert' WHEN o.here IS NULL THEN 'delete' ELSE 'update' END
           FROM (SELECT *, true here FROM once) o
           FULL JOIN (SELECT id, k, v, true here FROM dim WHERE is_current) c ON o.id IS NOT DISTINCT FROM c.id
           WHERE o.here IS NULL OR c.here IS NULL OR o.k IS DISTINCT FROM c.k OR o.v IS DISTINCT FROM c.v""",
    ),
]


@pytest.fixture(scope="module")
def stocked(bench: Bench) -> Bench:
    """With some rows in the shapes that a few activities need."""
    for name, sql in {
        "wide": "SELECT k, id, CAST(v AS bigint) AS v64 FROM {t}",
        "once": "SELECT id, min(k) AS k, min(v) AS v FROM {t} GROUP BY id",
        "current": "SELECT id, k, v FROM {dim} WHERE is_current",
    }.items():
        bench.duck.execute(f"CREATE OR REPLACE TABLE {name} AS {sql.format(t='t', dim='dim')}")
        bench.frames[name] = bench.spark.sql(
            sql, **{key: bench.frames[key] for key in ("t", "dim") if f"{{{key}}}" in sql}
        )
    return bench


def named(case: Any) -> str:
    return case[0].kind if isinstance(case, tuple) else str(case)


@pytest.mark.parametrize("case", CHECKS, ids=named)
def test_checks_part_the_rows(stocked: Bench, case: tuple[Check, tuple[str, ...], str, str]) -> None:
    activity, names, sql, _ = case
    given = stocked.inputs(*names)
    passed = collected(realise(activity, given))
    assert passed == stocked.oracle(sql)
    bad = collected(refused(activity, given))
    came = stocked.oracle(f"SELECT * FROM {names[0]}")
    assert passed.total() + bad.total() == came.total()
    if not isinstance(activity, HasType | Lookup):
        assert passed + bad == came
    assert_shape(activity, given)


@pytest.mark.parametrize("case", DEFAULTS, ids=named)
def test_bad_values_are_replaced(stocked: Bench, case: tuple[Check, tuple[str, ...], str]) -> None:
    activity, names, sql = case
    assert collected(realise(activity, stocked.inputs(*names))) == stocked.oracle(sql)
    assert_shape(activity, stocked.inputs(*names))


@pytest.mark.parametrize("case", OTHERS, ids=named)
def test_against_duckdb(stocked: Bench, case: tuple[Activity, tuple[str, ...], str]) -> None:
    activity, names, sql = case
    given = stocked.inputs(*names)
    result = realise(activity, given)
    assert collected(result) == stocked.oracle(sql)
    assert_shape(activity, given, result)


def assert_shape(activity: Activity, given: Inputs, result: DataFrame | None = None) -> None:
    """What the activity says of its columns is what Spark gives."""
    result = result if result is not None else realise(activity, given)
    said = activity.shape([schema_of(frame) for frame in given.frames], SparkSql()).columns
    found = {column.name: column.type for column in schema_of(result)}
    assert {c.name: found[c.name] if c.type == "?" else c.type for c in said} == found


def test_sorted_means_sorted(stocked: Bench) -> None:
    rows = realise(Sort(("k", "v desc")), stocked.inputs("t")).collect()
    keys = [(row.k or "", -(row.v if row.v is not None else -99)) for row in rows]
    assert keys == sorted(keys)


def test_keys_are_attached_to_every_row(stocked: Bench) -> None:
    new = realise(NewKeys(("k",), "sk", "keys"), stocked.inputs("t"))
    given = Inputs((stocked.frames["t"], new), stocked.loaded)
    rows = realise(AttachKey(("k",), "sk", "keys"), given).collect()
    assert len(rows) == 160
    known = {row.k: row.sk for row in rows}
    assert len(set(known.values())) == len(known) and known["b"] == 4 and known[None] == 9


def model_of_versions(came: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Type 2, one key at a time, as one would say it: (key, k, v, at, file)."""
    result = []
    for key in {row[0] for row in came}:
        at: dict[Any, tuple[Any, ...]] = {}
        own = [row for row in came if row[0] == key]
        for row in sorted(own, key=lambda row: (row[4], [(value is not None, value) for value in row[1:3]])):
            at[row[3]] = row[1:3]  # of one moment the one that came last counts, and in the end the greatest
        versions: list[tuple[Any, tuple[Any, ...]]] = []
        for since, values in sorted(at.items()):
            if not versions or versions[-1][1] != values:
                versions.append((since, values))
        ends = [since for since, _ in versions[1:]] + [None]
        result += [(key, *values, since, end, end is None) for (since, values), end in zip(versions, ends, strict=True)]
    return Counter(result)


def test_versions_of_a_dimension(stocked: Bench) -> None:
    chance = random.Random(7)
    came = [
        (row[0], row[1], row[2], row[6], chance.randrange(3)) for row in stocked.tables["t"][1] if row[6] is not None
    ]
    rows = stocked.spark.createDataFrame(came, f"id bigint, k string, v int, since timestamp_ntz, {FILE} bigint")
    versions = Versions(("id",), "since")
    assert collected(realise(versions, Inputs((rows,), stocked.loaded))) == model_of_versions(came)
    assert_shape(versions, Inputs((rows.drop(FILE),), stocked.loaded))


def test_a_difference_needs_one_row_for_a_key(stocked: Bench) -> None:
    rows = stocked.spark.createDataFrame(
        [(1, "a", 1), (1, "b", 1), (2, "c", 1), (2, "c", 1)], "id bigint, k string, v int"
    )
    one = rows.where("id = 2")
    assert collected(realise(Difference(("id",), "nothing"), Inputs((one,), stocked.loaded))) == Counter(
        [(2, "c", 1, "insert")]
    )
    with pytest.raises(Exception, match="difference: there are several rows with id 1 and other values; keep one"):
        realise(Difference(("id",), "nothing"), Inputs((rows,), stocked.loaded)).collect()


def test_a_look_up_that_could_be_one_of_several_says_so(stocked: Bench) -> None:
    rows = stocked.spark.createDataFrame([("a",), ("b",)], "k string")
    same = stocked.spark.createDataFrame(
        [("a", 1, 1), ("a", 1, 2), ("b", 2, 1), ("c", 1, 1), ("c", 2, 2)], "k string, v int, n int"
    )
    found = realise(Lookup("reject", ("k",), ("v",)), Inputs((rows, same), stocked.loaded))
    assert collected(found) == Counter([("a", 1), ("b", 2)])  # `c`, which nobody looks up, may be anything
    with pytest.raises(Exception, match="look_up: the reference has several rows with k a and other values; say which"):
        realise(Lookup("reject", ("k",), ("n",)), Inputs((rows, same), stocked.loaded)).collect()
    first = realise(Lookup("reject", ("k",), ("n",), ("n desc",)), Inputs((rows, same), stocked.loaded))
    assert collected(first) == Counter([("a", 2), ("b", 1)])


def test_a_look_up_finds_the_version_that_held(stocked: Bench) -> None:
    chance = random.Random(3)

    def at() -> datetime:
        return datetime(2024, 1, 1 + chance.randrange(12))

    facts = [(number, chance.choice(["a", "b", "c", None]), at()) for number in range(60)]
    begins = {(key, at()) for key in "abd" for _ in range(4)}
    # Some versions end before the next one begins, some would end behind it.
    versions = [
        (key, chance.randrange(9), since, chance.choice([None, since, at(), datetime(2024, 1, 30)]))
        for key, since in sorted(begins)
    ]
    expected = Counter[tuple[Any, ...]]()
    for number, key, when in facts:
        held = max((v for v in versions if v[0] == key and v[2] <= when), key=lambda v: v[2], default=None)
        if held is not None and (held[3] is None or when < held[3]):
            expected[number, key, when, held[1]] += 1
    rows = stocked.spark.createDataFrame(facts, "n int, k string, at timestamp_ntz")
    dim = stocked.spark.createDataFrame(versions, "k string, v int, valid_from timestamp_ntz, valid_to timestamp_ntz")
    found = Lookup("reject", ("k",), as_of="at")
    assert collected(realise(found, Inputs((rows, dim), stocked.loaded))) == expected
    assert_shape(found, Inputs((rows, dim), stocked.loaded))
    bad = collected(refused(found, Inputs((rows, dim), stocked.loaded)))
    assert bad == Counter(facts) - Counter(row[:3] for row in expected) and bad
    left = collected(realise(replace(found, bad="default"), Inputs((rows, dim), stocked.loaded)))
    assert left == expected + Counter((*row, None) for row in bad)


def test_what_could_be_one_of_several_can_be_bad(stocked: Bench) -> None:
    rows = stocked.spark.createDataFrame([("a",), ("b",), ("c",)], "k string")
    reference = stocked.spark.createDataFrame([("a", 1), ("a", 2), ("b", 3), ("b", 3)], "k string, v int")
    given = Inputs((rows, reference), stocked.loaded)
    found = Lookup("quarantine", ("k",), ("v",), ambiguous="bad")
    assert collected(realise(found, given)) == Counter([("b", 3)])
    assert collected(refused(found, given)) == Counter([("a",), ("c",)])
    assert found.reason == "none, or several, k in the reference"


def test_a_row_takes_its_file_along(stocked: Bench) -> None:
    """Through everything that a flow of a base table can do."""
    rows = stocked.spark.createDataFrame([(1, "x", 2, 7), (2, None, 3, 8)], f"id int, k string, v int, {FILE} bigint")
    other = rows.select("id", "k", "v", (F.col(FILE) + 10).alias(FILE))
    for activity in (
        NotNull("default", ("k",), "'?'"),
        Filter("reject", "id > 0"),
        HasType("reject", "k", "string"),
        Derive((("w", "id"),)),
        Reformat("k", "x", "y"),
        Select((("w", "id"),)),
        Drop(("k",)),
        Split(("k",)),
        Route("id > 0"),
        Union(),
        Unpivot(("id", "v")),
    ):
        assert activity.by_row
        inputs = (rows, other) if isinstance(activity, Union) else (rows,)
        found = Counter(row[FILE] for row in realise(activity, Inputs(inputs, stocked.loaded)).collect())
        times = 2 if isinstance(activity, Unpivot) else 1
        expected = Counter({7: times, 8: times}) if len(inputs) == 1 else Counter([7, 8, 17, 18])
        assert found == expected, activity.kind


def test_a_function_must_give_what_it_says(stocked: Bench) -> None:
    def upper(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("upper(k) as K", "v")

    given = stocked.inputs("t")
    assert collected(realise(BlackBox(upper, "k string, v int"), given)) == stocked.oracle("SELECT upper(k), v FROM t")
    with pytest.raises(RowsProblem, match="gave the columns K string, v int; it says gives='k string'"):
        realise(BlackBox(upper, "k string"), given)
    nothing: Callable[..., Any] = lambda rows: None  # noqa: E731
    with pytest.raises(RowsProblem, match="returned NoneType"):
        realise(replace(BlackBox(upper, "k string"), function=nothing), given)
