"""Classes, reasons, separability, columns, lineage, fingerprints: exact cases."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.declare.sql.view import AggregateWay, Full, Rowwise, View, analyse, separable
from penstock.model.schema import Column

FLOWS = (
    Column("ts", "timestamp"),
    Column("router", "string"),
    Column("bytes", "bigint"),
    Column("packets", "int"),
    Column("price", "decimal(10,2)"),
    Column("wide", "decimal(20,2)"),
    Column("load", "double"),
    Column("tags", "array<string>"),
    Column("place", "struct<city:string,floor:int>"),
)
SCHEMAS = {"flows": FLOWS, "routers": (Column("router", "string"), Column("site", "string"))}
H = "date_trunc('hour', ts)"


def view(sql: str, time: str | None = None) -> View:
    return analyse(sql, SCHEMAS, time=time, file="v.sql")


ROW = "incremental: each row is computed by itself"
JOIN = "full: a join: new rows of one side may meet old rows of the other"
WINDOW = "full: a window function sees old rows and new ones together"
FOLDS = "is not one of the aggregates that fold (sum, count, count_if, min, max, avg)"


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select * from flows", ROW),
        ("select ts, bytes * 8 as bits from flows where router like 'a%' order by ts", ROW),
        ("select ts, explode(tags) as tag from flows", ROW),
        ("select ts, tag from flows lateral view outer explode(tags) t as tag where tag <> ''", ROW),
        ("with a as (select *, bytes * 2 as b2 from flows where bytes > 0), b as (select ts, b2 from a) select * from b", ROW),
        ("select transform(tags, t -> upper(t)) as tags from flows", ROW),
        ("select ts from flows where router like any ('a', 'b')", ROW),
        ("select a.ts from flows a, flows b", JOIN),
        ("select a.ts from flows a left semi join flows b on a.ts = b.ts", JOIN),
        ("select a.ts from flows a lateral view explode(tags) e as tag left anti join flows b on a.ts = b.ts", JOIN),
        ("select ts, site from flows join routers using (router)",
         "full: it reads 2 tables (flows, routers): new rows of one may meet old rows of the other"),
        ("select ts from flows where bytes > (select avg(bytes) from flows)", "full: a subquery may see other rows than the new ones"),
        ("select ts from flows union all select ts from flows", "full: UNION combines several queries"),
        ("select distinct router from flows", "full: DISTINCT compares new rows with all old ones"),
        ("select ts from flows order by ts limit 3", "full: LIMIT: later rows could take the places"),
        ("select ts, row_number() over (order by ts) as n from flows", WINDOW),
        ("select ts, sum(bytes) over (partition by router) as n from flows", WINDOW),
        ("select ts, rand() as r from flows", "full: rand gives another answer each time"),
        ("select ts, uuid() as r from flows", "full: uuid gives another answer each time"),
        ("select ts from flows where ts < now()", "full: now() gives another answer each time"),
        ("select ts from flows where ts < current_timestamp", "full: current_timestamp gives another answer each time"),
        ("select ts from flows where ts < current_date()", "full: current_date gives another answer each time"),
        ("select ts from flows where ts < timestamp'now'", "full: 'now' is another moment each time"),
        ("select ts, input_file_name() as f from flows", "full: input_file_name() gives another answer each time"),
        ("select ts, monotonically_increasing_id() as f from flows", "full: monotonically_increasing_id() gives another answer each time"),
        ("select ts, aes_encrypt(router, 'k') as f from flows", "full: aes_encrypt() gives another answer each time"),
        ("select ts, my_udf(bytes) as u from flows", "full: my_udf() is not a function known to give the same answer for the same row"),
        ("select ts from flows tablesample (10 percent)", "full: TABLESAMPLE picks other rows each time"),
        ("select ts from flows where ts >= :partition_start", "full: :partition_start makes each partition a query of its own"),
        ("select 1 as a", "full: it reads no table"),
        ("select n + 1 as m from (select router, count(*) as n from flows group by router)", "full: it computes on the result of a GROUP BY"),
        # aggregates
        (f"select {H} as hour, router, sum(bytes) as b, count(*) as n from flows group by {H}, router", "incremental: GROUP BY with sum, count"),
        (f"select {H} as hour, sum(bytes) as b from flows where bytes > 0 group by hour order by hour", "incremental: GROUP BY with sum"),
        ("select router, max(ts) as last, min(load) as l from flows group by 1", "incremental: GROUP BY with max, min"),
        ("select router, avg(packets) as a, mean(price) as m from flows group by all", "incremental: GROUP BY with avg"),
        ("select router, sum(price) filter (where packets > 1) as s, count_if(bytes > 1) as c from flows group by ROUTER",
         "incremental: GROUP BY with sum, count_if"),
        ("select router, cast(sum(bytes) as int) as s, round(sum(price) / count(*), 2) as p from flows group by router",
         "incremental: GROUP BY with sum, count"),
        ("select upper(router) as u, length(upper(router)) as l, 1 as one, count(*) as n from flows group by upper((router))",
         "incremental: GROUP BY with count"),
        ("select router from flows group by router", "incremental: GROUP BY with no aggregate"),
        ("select count(*) as n, sum(bytes) as s from flows", "incremental: one group with count, sum"),
        ("with c as (select router as r, bytes + 1 as b from flows) select r, sum(b) as s from c group by r", "incremental: GROUP BY with sum"),
        ("select place.city as city, sum(place.floor) as s from flows group by place.city", "incremental: GROUP BY with sum"),
        ("from flows select router, sum(bytes) as s group by router", "incremental: GROUP BY with sum"),
        ("select router, count(*) as n from flows group by router having count(*) > 1", "full: HAVING drops groups that later rows could bring back"),
        ("select router, count(distinct ts) as n from flows group by router", "full: count(distinct …) cannot be folded: what was counted is not stored"),
        ("select router, sum(distinct bytes) as n from flows group by router",
         "full: DISTINCT in sum(distinct bytes) cannot be folded: what was counted is not stored"),
        ("select router, collect_list(ts) as n from flows group by router", f"full: collect_list(ts) {FOLDS}"),
        ("select router, percentile(bytes, 0.5) as n from flows group by router", f"full: PERCENTILE(bytes, 0.5) {FOLDS}"),
        ("select router, try_sum(bytes) as n from flows group by router", f"full: try_sum(bytes) {FOLDS}"),
        ("select router, first(ts) as n from flows group by router", f"full: first(ts) {FOLDS}"),
        ("select router, my_sum(bytes) as n from flows group by router",
         "full: my_sum() is not a function known to give the same answer for the same row"),
        ("select router, sum(load) as s from flows group by router",
         "full: sum(load) over double depends on the order of addition: sum(cast(load as decimal(28,2))), for example, is incremental"),
        ("select router, avg(bytes / 2) as s from flows group by router",
         "full: avg(bytes / 2) over double depends on the order of addition: avg(cast(bytes / 2 as decimal(14,2))), for example, is incremental"),
        ("select router, sum(round(price, 1)) as s from flows group by router",
         "full: the type of round(price, 1) in sum(round(price, 1)) is not known to be exact: "
         "sum(cast(round(price, 1) as decimal(28,2))), for example, is incremental"),
        ("select router, avg(wide) as s from flows group by router",
         "full: avg(wide) over decimal(20,2) cannot be folded to its last digit: select sum and count, or use at most 14 digits"),
        ("select router, count(*) as n from flows group by router, ts",
         "full: GROUP BY ts is not in the select list, so stored groups cannot be matched"),
        # `router` in GROUP BY is the column, not the alias, as in Spark
        ("select upper(router) as router, count(*) as n from flows group by router",
         "full: GROUP BY router is not in the select list, so stored groups cannot be matched"),
        # 'YYYY' is the year of the week: not the same key
        ("select date_format(ts, 'yyyy') as y, count(*) as n from flows group by date_format(ts, 'yyyy'), date_format(ts, 'YYYY')",
         "full: GROUP BY DATE_FORMAT(ts, 'YYYY') is not in the select list, so stored groups cannot be matched"),
        ("select router, ts, count(*) as n from flows group by rollup(router, ts)", "full: GROUPING SETS, ROLLUP and CUBE give several levels of groups"),
        ("select router, ts, count(*) as n from flows group by router, ts with cube", "full: GROUPING SETS, ROLLUP and CUBE give several levels of groups"),
        ("select router, concat(router, count(*)) as n from flows group by router",
         "full: `n` mixes an aggregate with `router`: give each its own column"),
        ("select router, sum(bytes) as s, s / 2 as half from flows group by router",
         "full: `half` is neither a GROUP BY key nor one of the aggregates that fold"),
        ("select k, count(*) as n from elsewhere group by k", "full: the columns of `elsewhere` are not known"),
        ("select router, count(*) as n from flows group by router limit 5", "full: LIMIT: later rows could take the places"),
    ],
)  # fmt: skip
def test_class_and_reason(sql: str, why: str) -> None:
    how = view(sql).how
    assert how.why == why
    expected = Full if why.startswith("full") else Rowwise if why == ROW else AggregateWay
    assert type(how) is expected


def test_a_rowwise_delta_is_the_query_itself_in_the_users_words() -> None:
    how = view("-- first\nselect ts, -- why\n  bytes\nfrom flows;\n").how
    assert isinstance(how, Rowwise)
    assert how.delta_sql == "select ts, -- why\n  bytes\nfrom flows"


def test_the_fold_plan_in_full() -> None:
    how = view(
        "select router, sum(price) as s, avg(packets) as a, -- mean\n  avg(bytes) filter (where packets > 0) as ab\n"
        "from flows group by router"
    ).how
    assert isinstance(how, AggregateWay)
    assert how.keys == ("router",)
    assert how.columns == ("router", "s", "a", "ab")
    assert how.state == (
        Column("_penstock_sum_a", "bigint"),
        Column("_penstock_count_a", "bigint"),
        Column("_penstock_sum_ab", "decimal(30,0)"),
        Column("_penstock_count_ab", "bigint"),
    )
    assert how.delta_sql == (
        "select router, sum(price) as s, (cast(sum(packets) as double) / nullif(count(packets), 0)) as a, -- mean\n"
        "  (cast(sum(cast(bytes as decimal(20,0))) filter (where packets > 0) as double) / "
        "nullif(count(bytes) filter (where packets > 0), 0)) as ab, "
        "sum(packets) AS `_penstock_sum_a`, count(packets) AS `_penstock_count_a`, "
        "sum(cast(bytes as decimal(20,0))) filter (where packets > 0) AS `_penstock_sum_ab`, "
        "count(bytes) filter (where packets > 0) AS `_penstock_count_ab`\n"
        "from flows group by router"
    )
    stored = (
        "`router`, `s`, `a`, `ab`, `_penstock_sum_a`, `_penstock_count_a`, `_penstock_sum_ab`, `_penstock_count_ab`"
    )
    assert how.fold_sql("old", small=False) == (
        "SELECT\n  `router` AS `router`,\n  cast(sum(`s`) as decimal(20,2)) AS `s`,\n"
        "  (cast(sum(`_penstock_sum_a`) as double) / nullif(sum(`_penstock_count_a`), 0)) AS `a`,\n"
        "  (cast(cast(sum(`_penstock_sum_ab`) as decimal(30,0)) as double) / "
        "nullif(sum(`_penstock_count_ab`), 0)) AS `ab`,\n"
        "  sum(`_penstock_sum_a`) AS `_penstock_sum_a`,\n  sum(`_penstock_count_a`) AS `_penstock_count_a`,\n"
        "  cast(sum(`_penstock_sum_ab`) as decimal(30,0)) AS `_penstock_sum_ab`,\n"
        "  sum(`_penstock_count_ab`) AS `_penstock_count_ab`\n"
        f"FROM (\nSELECT {stored} FROM `old` UNION ALL SELECT {stored} FROM (\n{how.delta_sql}\n)\n) AS _penstock_rows\n"
        "GROUP BY `router`"
    )


YES = "no row depends on rows of another `hour`"
INNER = f"select {H} as hour, router, count(distinct packets) as n from flows group by 1, 2"


@pytest.mark.parametrize(
    ("sql", "why", "expression"),
    [
        (f"select {H} as hour, bytes from flows", YES, "DATE_TRUNC('HOUR', ts)"),
        ("select ts as hour, bytes from flows", YES, "ts"),
        (f"select distinct {H} as hour, router from flows", YES, "DATE_TRUNC('HOUR', ts)"),
        (f"select {H} as hour, sum(bytes) as b from flows group by 1", YES, "DATE_TRUNC('HOUR', ts)"),
        (f"select {H} as hour, count(distinct router) as b from flows group by hour having count(*) > 1", YES, "DATE_TRUNC('HOUR', ts)"),
        (f"select {H} as hour, collect_list(router) as b, percentile(bytes, 0.5) as p from flows group by hour", YES, "DATE_TRUNC('HOUR', ts)"),
        (f"select {H} as hour, rank() over (partition by {H}, router order by bytes) as r from flows", YES, "DATE_TRUNC('HOUR', ts)"),
        (f"select {H} as hour, rank() over w as r from flows window w as (partition by {H} order by bytes)", YES, "DATE_TRUNC('HOUR', ts)"),
        (f"select hour, max(n) over (partition by hour) as m from ({INNER})", YES, "DATE_TRUNC('HOUR', ts)"),
        (f"select date_trunc('day', hour) as hour, n from ({INNER})", YES, "DATE_TRUNC('DAY', DATE_TRUNC('HOUR', ts))"),
        (f"with i as ({INNER}) select * from i where n > 1", YES, "DATE_TRUNC('HOUR', ts)"),
        (f"with i(h, r, c) as ({INNER}) select h as hour, c from i", YES, "DATE_TRUNC('HOUR', ts)"),
        ("select ts as hour from flows union select ts from flows where bytes > 1", YES, None),
        ("select ts as hour, bytes as b from flows union all select seen, 1 from alerts", YES, None),
        ("select ts as hour from flows where ts < :partition_end", "uses :partition_end, which is another moment in each partition", "ts"),
        ("select ts as hour, site from flows join routers using (router)", "a join: new rows of one side may meet old rows of the other", "ts"),
        ("select a.ts as hour from flows a join flows b on a.ts = b.ts", "a join: new rows of one side may meet old rows of the other", "ts"),
        ("select ts as hour from flows where bytes > (select avg(bytes) from flows)", "a subquery may see other rows than the new ones", "ts"),
        ("select ts as hour from flows limit 3", "LIMIT counts rows of all partitions", "ts"),
        ("select ts as hour from flows union all select ts from flows limit 3", "LIMIT counts rows of all partitions", None),
        ("select ts as hour from (select ts from flows limit 3)", "LIMIT counts rows of all partitions", "ts"),
        ("select max(ts) as hour, router from flows group by router", "`hour` is not among the GROUP BY keys", "MAX(ts)"),
        ("select max(ts) as hour from flows", "`hour` is not among the GROUP BY keys", "MAX(ts)"),
        (f"select {H} as hour, count(*) as n from flows group by rollup({H})", "`hour` is not among the GROUP BY keys", "DATE_TRUNC('HOUR', ts)"),
        (f"select {H} as hour, rank() over (partition by router order by ts) as r from flows",
         "a window function without `hour` in its PARTITION BY", "DATE_TRUNC('HOUR', ts)"),
        ("select max(ts) over (partition by router) as hour from flows", "`hour` comes from a window function", None),
        (f"select {H} as hour, rand() as r from flows", "rand gives another answer each time", "DATE_TRUNC('HOUR', ts)"),
        (f"select {H} as hour from (select ts from flows where rand() > 0.5)", "rand gives another answer each time", "DATE_TRUNC('HOUR', ts)"),
        ("select timestamp'2026-01-01' as hour, bytes from flows", "`hour` is a constant", None),
        ("select last as hour, n from (select max(ts) as last, router, count(*) as n from flows group by router)",
         "`hour` is not among the GROUP BY keys", "MAX(ts)"),
        ("select k as hour, count(distinct x) as n from elsewhere group by k", "the columns of `elsewhere` are not known", "k"),
    ],
)  # fmt: skip
def test_separable(sql: str, why: str, expression: str | None) -> None:
    analysed = view(sql, "hour")
    assert (analysed.separable.why, bool(analysed.separable)) == (why, why == YES)
    assert separable(analysed, "hour") == analysed.separable
    if expression is not None:
        assert analysed.time_expression == expression


TOGETHER = [
    f"select distinct {H} as hour, router from flows",
    f"select {H} as hour, count(distinct router) as b from flows group by hour having count(*) > 1",
    f"select {H} as hour, bytes, rank() over (partition by {H}, router order by bytes) as r from flows",
    f"select hour, router, max(n) over (partition by hour) as m from ({INNER})",
    "select ts as hour from flows union select ts from flows where bytes > 1",
    "select ts as hour, router from flows except all select ts, router from flows where bytes > 1",
]


@settings(max_examples=30, deadline=None)
@given(
    sql=st.sampled_from(TOGETHER),
    rows=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3)), max_size=12
    ),
)
def test_separable_views_give_the_same_rows_partition_by_partition(
    db: Any, sql: str, rows: list[tuple[Any, ...]]
) -> None:
    assert view(sql, "hour").separable

    def answer(part: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        db.execute("create or replace table flows (ts timestamp, router varchar, bytes bigint, packets int)")
        if part:
            start = dt.datetime(2026, 1, 1)
            moments = [(start + dt.timedelta(minutes=30 * n), *rest) for n, *rest in part]
            db.executemany("insert into flows values (?, ?, ?, ?)", moments)
        return list(db.execute(to_duckdb(sql)).fetchall())

    hours = [[row for row in rows if row[0] // 2 == hour] for hour in range(3)]
    assert sorted(answer(rows)) == sorted(row for part in hours for row in answer(part))


def test_columns_and_lineage() -> None:
    analysed = view(
        "with c as (select f.*, r.site as where_ from flows f join routers r using (router)) "
        "select where_, bytes * packets as bp, place.city, cast(load as int), count(*) over () as n, "
        "(select max(bytes) from flows) as top from c"
    )
    assert [(c.name, c.type) for c in analysed.columns or ()] == [
        ("where_", "string"), ("bp", "bigint"), ("city", "string"), ("load", "int"), ("n", "bigint"), ("top", None),
    ]  # fmt: skip
    assert analysed.lineage == {
        "where_": (("routers", "site"),),
        "bp": (("flows", "bytes"), ("flows", "packets")),
        "city": (("flows", "place"),),
        "load": (("flows", "load"),),
        "n": (),
        "top": (("flows", "bytes"),),
    }


def test_parameters_are_told() -> None:
    analysed = view("select ts from flows where ts >= :partition_start and ts < :PARTITION_END")
    assert analysed.parameters == ("partition_start", "partition_end")


SAME = [
    ("select a from t", "SELECT a\n\nFROM t -- c\n;"),
    (
        "select sum(a) as s from t where a > 1 and b < 2",
        "select /* x */ SUM(a) AS s from t WHERE ((a > 1) and (b < 2))",
    ),
    ("select a + b * c as d from t", "select ((a + (b * c))) as d from t"),
    ("select a from t union all select b from u", "(select a from t) UNION ALL (select b from u)"),
    ("select a from (select a from t)", "select (a) from ((select a from t))"),
    ("select case when a then b end as c from t", "SELECT CASE WHEN (a) THEN (b) END AS c FROM t"),
]
DIFFERENT = [
    ("select a from t", "select A from t"),
    ("select a as date from t", "select a as Date from t"),
    ("select a from t", "select a from t2"),
    ("select 'a' as b", "select 'A' as b"),
    ("select date_format(a, 'yyyy') as b from t", "select date_format(a, 'YYYY') as b from t"),
    ("select a - (b - c) as d from t", "select a - b - c as d from t"),
    ("select (a + b) * c as d from t", "select a + b * c as d from t"),
    ("select a from t where a or b and c", "select a from t where (a or b) and c"),
    ("select not (a = b) as d from t", "select (not a) = b as d from t"),
    ("select (a | b) & c as d from t", "select a | b & c as d from t"),
    ("select a from t union select a from t", "select a from t union all select a from t"),
    ("select cast(a as int) as b from t", "select try_cast(a as int) as b from t"),
    ("select 1 as b", "select 1L as b"),
    ("select a, b from t", "select b, a from t"),
]


def fingerprint(sql: str) -> str:
    return analyse(sql, {}, time=None, file="f").fingerprint


@pytest.mark.parametrize(("left", "right"), SAME)
def test_fingerprints_that_agree(left: str, right: str) -> None:
    assert fingerprint(left) == fingerprint(right)


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_fingerprints_that_differ(left: str, right: str) -> None:
    assert fingerprint(left) != fingerprint(right)


def test_a_fingerprint_is_stable_over_time() -> None:
    # stored beside tables: another value would recompute every view of every user
    assert fingerprint("select router, sum(bytes) as b from flows group by router") == "ffa280f3a5858ad7"


# Folding in DuckDB: many splits, cheaply. The same on Spark, with its types: test_sql_fold_spark.py
ROWS = (
    Column("k", "string"),
    Column("d", "date"),
    Column("i", "int"),
    Column("b", "bigint"),
    Column("m", "decimal(10,2)"),
)
FOLDED = [
    "select k, sum(i) as s, count(*) as n, count(b) as nb from r group by k",
    "select d, k, min(k) as k0, max(d) as d1, min(m) as m0, sum(m) as sm from r group by 1, 2",
    "select k, avg(i) as a, avg(b) filter (where i > 0) as ab from r group by all",
    "select upper(k) as u, max(b) - min(b) as spread, cast(sum(m) as decimal(12,1)) as s from r group by upper(k)",
    "select count(*) as n, sum(b) as b, avg(i) as a, max(k) as k from r where b > 0",
]
row = st.tuples(
    st.none() | st.sampled_from(["a", "A", ""]),
    st.none() | st.dates(dt.date(2026, 1, 1), dt.date(2026, 1, 2)),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.integers(-(2**40), 2**40),
    st.none() | st.decimals(-1000, 1000, places=2),
)


def to_duckdb(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


@pytest.fixture(scope="module")
def db() -> Any:
    with duckdb.connect() as connection:
        yield connection


@settings(max_examples=40, deadline=None)
@given(sql=st.sampled_from(FOLDED), split=st.lists(st.lists(row, max_size=6), min_size=1, max_size=4))
def test_folding_in_duckdb(db: Any, sql: str, split: list[list[tuple[Any, ...]]]) -> None:
    how = analyse(sql, {"r": ROWS}, time=None, file="f").how
    assert isinstance(how, AggregateWay), how.why

    def load(rows: list[tuple[Any, ...]]) -> None:
        db.execute("create or replace table r (k varchar, d date, i int, b bigint, m decimal(10,2))")
        if rows:
            db.executemany("insert into r values (?, ?, ?, ?, ?)", rows)

    for number, rows in enumerate(split):
        load(rows)
        folded = how.fold_sql("stored", small=number % 2 == 0) if number else how.delta_sql
        db.execute(f"create or replace table stored as {to_duckdb(folded)}")
    load([r for rows in split for r in rows])
    names = ", ".join(f'"{name}"' for name in how.columns)
    found = db.execute(f"select {names} from stored").fetchall()
    assert sorted(map(_key, found)) == sorted(map(_key, db.execute(to_duckdb(sql)).fetchall()))


def _key(values: tuple[Any, ...]) -> str:
    return repr(tuple(float(v) if isinstance(v, Decimal) else v for v in values))
