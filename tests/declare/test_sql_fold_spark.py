"""Folding on Spark itself: for every split of the rows into batches, the folded table is the table computed at once from
the user's own SQL, in values and in types."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import duckdb
import pytest
import sqlglot

from penstock.declare.sql.view import AggregateWay, View, analyse
from penstock.model.schema import Column, Schema, ddl

pytestmark = pytest.mark.spark

ROWS: Schema = (
    Column("ts", "timestamp"),
    Column("day", "date"),
    Column("k", "string"),
    Column("t", "tinyint"),
    Column("i", "int"),
    Column("b", "bigint"),
    Column("m", "decimal(10,2)"),
    Column("w", "decimal(14,4)"),
    Column("h", "decimal(38,2)"),
    Column("x", "double"),
)

VIEWS = [
    "select k, sum(i) as i, sum(b) as b, sum(t) as t, count(*) as n, count(i) as ni, count_if(b > 0) as pos from r group by k",
    "select k, day, sum(m) as m, sum(w) as w, sum(h) as h, sum(m * i) as mi, sum(m + 1) as m1 from r group by k, day",
    "select date_trunc('hour', ts) as hour, min(k) as k0, max(k) as k1, min(ts) as t0, max(ts) as t1, min(day) as d0, "
    "max(m) as m1, min(x) as x0, max(x) as x1 from r group by 1",
    "select k, avg(i) as i, avg(b) as b, avg(t) as t, mean(i) as mi, avg(i + b) as ib from r group by all",
    "select k, avg(m) as m, avg(w) as w, avg(cast(t as decimal(3,0))) as d from r group by k",
    "select k, avg(m) filter (where i > 0) as m, sum(i) filter (where b > 0) as i, count(*) filter (where b is null) as n "
    "from r group by k",
    "select upper(k) as u, day, length(upper(k)) as l, 'all' as kind, cast(sum(m) as decimal(12,1)) as s, "
    "cast(count(*) as int) as n, round(sum(m) / count(m), 2) as p, max(b) - min(b) as spread from r "
    "group by upper(k), day order by 1",
    "select sum(b) as b, count(*) as n, count(k) as nk, avg(i) as i, avg(w) as w, max(ts) as t, sum(h) as h from r where i > 2",
    "with big as (select k as key, day, b * 2 as b2, coalesce(m, 0) as m from r where b > -5) "
    "select key, -- a key\n sum(b2) as total /* twice */, avg(m) as mean, bool_or(b2 > 3) as some3, "
    "bool_and(m > 1) as all1\nfrom big group by key",
    "select k, part, count(*) as n, sum(length(part)) as len from r lateral view explode(split(k, '')) e as part group by k, part",
    "select sum(i) as s, k, day from r group by day, k",
    "select day, sum(m) as m, sum(b) as b, count(b) as n, avg(t) as a from r group by day",
]
TIMES_EACH = 1


def random_rows(dice: random.Random, size: int) -> list[tuple[Any, ...]]:
    def maybe(value: Any, chance: float = 0.25) -> Any:
        return None if dice.random() < chance else value

    def cents(digits: int, scale: int) -> Decimal:
        return Decimal(dice.randint(-(10**digits), 10**digits)).scaleb(-scale)

    start = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    return [
        (
            maybe(start + dt.timedelta(minutes=dice.randint(0, 180), microseconds=dice.randint(0, 999999))),
            maybe(dt.date(2026, 3, dice.randint(1, 3))),
            maybe(dice.choice(["a", "B", "ab", "é", ""])),
            maybe(dice.randint(-128, 127)),
            maybe(dice.choice([dice.randint(-9, 9), 2**31 - 1, -(2**31)])),
            maybe(dice.choice([dice.randint(-9, 9), dice.randint(-(2**49), 2**49)])),
            maybe(cents(9, 2)),
            maybe(cents(13, 4)),
            maybe(cents(20, 2)),
            maybe(dice.choice([dice.uniform(-1, 1), float("nan"), float("inf"), 0.0])),
        )
        for _ in range(size)
    ]


def batches(dice: random.Random, rows: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """Any split, empty batches included."""
    split: list[list[tuple[Any, ...]]] = [[] for _ in range(dice.randint(1, 4))]
    for row in rows:
        dice.choice(split).append(row)
    return split


def table(spark: Any, rows: list[tuple[Any, ...]]) -> Any:
    return spark.createDataFrame(rows, ddl(ROWS))


def content(frame: Any) -> list[str]:
    return sorted(repr(tuple(row)) for row in frame.collect())


def fold(spark: Any, view: View, split: list[list[tuple[Any, ...]]]) -> Any:
    """The stored table after all batches. Nothing is computed before the end, so one Spark job serves all of it."""
    how = view.how
    assert isinstance(how, AggregateWay)
    stored = None
    for rows in split:
        table(spark, rows).createOrReplaceTempView("r")
        delta = spark.sql(how.delta_sql)
        if stored is None:
            stored = delta
            continue
        stored.createOrReplaceTempView("stored")
        merged = spark.sql(how.fold_sql("stored", small=True))
        assert merged.dtypes == stored.dtypes == delta.dtypes
        stored = merged
    assert stored is not None
    hidden = [(c.name, c.type) for c in how.state]
    assert stored.dtypes[len(how.columns) :] == hidden
    return stored


@pytest.mark.parametrize("seed", range(TIMES_EACH))
@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_folding_any_split_equals_the_query_over_all_rows(spark: Any, number: int, seed: int) -> None:
    dice = random.Random(1000 * number + seed)
    view = analyse(VIEWS[number], {"r": ROWS}, time=None, file="view.sql")
    assert isinstance(view.how, AggregateWay), view.how.why
    rows = random_rows(dice, dice.choice([3, 12, 40]))
    stored = fold(spark, view, batches(dice, rows))

    table(spark, rows).createOrReplaceTempView("r")
    at_once = spark.sql(VIEWS[number])
    visible = stored.select([f"`{name}`" for name in view.how.columns])
    assert visible.dtypes == at_once.dtypes
    assert content(visible) == content(at_once)
    assert view.columns is not None
    inferred = [(c.name, c.type or real) for c, (_, real) in zip(view.columns, at_once.dtypes, strict=True)]
    assert inferred == at_once.dtypes
    assert content(spark.sql(view.how.delta_sql)) == content(stored)


def test_the_average_of_decimals_rounds_as_spark_does(spark: Any) -> None:
    # 20 groups of awkward thirds, sevenths and exact halves at the last digit
    rows = [
        (None, None, str(g), None, None, None, None, Decimal(n * 7 + g).scaleb(-4), None, None)
        for g in range(20)
        for n in range(g + 1)
    ]
    view = analyse("select k, avg(w) as w from r group by k", {"r": ROWS}, time=None, file="view.sql")
    assert isinstance(view.how, AggregateWay)
    table(spark, rows).createOrReplaceTempView("r")
    assert content(spark.sql(view.how.delta_sql).select("k", "w")) == content(spark.sql(view.sql))


@pytest.mark.parametrize("number", [2, 10, 11])
def test_the_folded_table_equals_duckdb(spark: Any, number: int) -> None:
    dice = random.Random(number)
    rows = [(*row[:9], None) for row in random_rows(dice, 25)]  # DuckDB orders NaN differently
    view = analyse(VIEWS[number], {"r": ROWS}, time=None, file="view.sql")
    assert isinstance(view.how, AggregateWay)
    stored = fold(spark, view, batches(dice, rows))
    ours = [tuple(row)[: len(view.how.columns)] for row in stored.collect()]
    with duckdb.connect() as db:
        db.execute("set timezone = 'UTC'")
        columns = ", ".join(f"{c.name} {c.type}" for c in ROWS)
        db.execute(f"create table r ({columns})")
        db.executemany(
            f"insert into r values ({', '.join('?' * len(ROWS))})", [tuple(_naive(v) for v in r) for r in rows]
        )
        theirs = db.execute(to_duckdb(view.sql)).fetchall()
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value


def to_duckdb(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


# Each with the type that Spark gives it; None where the analysis says honestly that it does not know.
EXPRESSIONS = [
    ("i + b", "bigint"), ("i / b", "double"), ("m / i", "decimal(21,13)"), ("m * m", "decimal(21,4)"),
    ("m - 1", "decimal(11,2)"), ("i * 1.5", "decimal(13,1)"), ("t + 1", "int"), ("-m", "decimal(10,2)"),
    ("b div i", "bigint"), ("i % b", "bigint"), ("coalesce(i, b)", "bigint"), ("if(i > 1, m, i)", "decimal(12,2)"),
    ("case when i > 1 then 1 else 1.5 end", "decimal(11,1)"), ("case when i > 1 then t end", "tinyint"),
    ("h * h", "decimal(38,4)"), ("h + m", "decimal(38,2)"), ("x * i", "double"), ("cast(i as decimal(5,1))", "decimal(5,1)"),
    ("date_trunc('day', ts)", "timestamp"), ("trunc(day, 'MM')", "date"), ("year(day)", "int"), ("upper(k)", "string"),
    ("k || 'x'", "string"), ("date_format(ts, 'yyyy')", "string"), ("i > 1 and k like 'a%'", "boolean"),
    ("nullif(i, 1)", "int"), ("greatest(i, b)", "bigint"), ("2147483648", "bigint"), ("1e3", "double"), ("abs(m)", "decimal(10,2)"),
    ("0.05", "decimal(2,2)"), ("ts + interval 1 hour", None), ("round(m, 1)", None), ("floor(m)", None), ("m % 3", None),
]  # fmt: skip


def test_inferred_types_are_those_of_spark(spark: Any) -> None:
    sql = "select " + ", ".join(f"{e} as c{n}" for n, (e, _) in enumerate(EXPRESSIONS)) + " from r"
    table(spark, []).createOrReplaceTempView("r")
    real = [type_ for _, type_ in spark.sql(sql).dtypes]
    view = analyse(sql, {"r": ROWS}, time=None, file="view.sql")
    assert view.columns is not None
    for (text, expected), column, spark_type in zip(EXPRESSIONS, view.columns, real, strict=True):
        assert (text, column.type) == (text, expected)
        assert column.type in (None, spark_type), text


def test_names_are_those_of_spark(spark: Any) -> None:
    schema: Schema = (Column("A", "int"), Column("p", "struct<x:int,y:struct<z:int>>"))
    spark.createDataFrame([], ddl(schema)).createOrReplaceTempView("n")
    for sql in (
        "select a, p.X from n",
        "select N.A, (p).x, p.y.z from n",
        "select * from n",
        "select p.* from n",
        "select cast(a as string), p as q from n",
        "select a::string, p['x'] as px from n",
        "select * except (a) from n",
        "select * from n l join (select a, 1 as one from n) r using (a)",
        "select * from n l left semi join n r on l.a = r.a",
        "select t.b from (select a from n) as t(b)",
        "with c(u) as (select a from n) select * from c union all select a from n",
        "select posexplode(array(a)) as (i, e) from n",
        "select a as x, x + 1 as y from n",
    ):
        try:
            names = [c.name for c in analyse(sql, {"n": schema}, time=None, file="f").columns or ()]
        except Exception as error:
            pytest.fail(f"{sql}: {error}")
        assert names == spark.sql(sql).columns, sql
