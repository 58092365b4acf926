"""Queries from outside: what may run, what may not, and which partitions they can touch."""

from __future__ import annotations

from datetime import datetime
from time import thread_time

import pytest

from penstock.declare.sql.bounds import LONGEST
from penstock.declare.sql.facts import SqlProblem
from penstock.declare.sql.read import read_query
from penstock.declare.sql.touched import Timed, touched
from penstock.model.grain import parse_grain
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.schema import Column
from penstock.model.time import END_US, HOUR_US, instant

ORDERS = (Column("id", "int"), Column("ts", "timestamp"), Column("v", "int"), Column("shop", "string"))
SCHEMAS = {"orders": ORDERS, "stores": None}

GOOD = [
    "select * from orders",
    "SELECT count(*), sum(v) FROM Orders WHERE ts >= '2024-01-01' GROUP BY shop",
    "with t(a, b) as (select id, v from orders) select a, max(b) from t group by a",
    "select * from (values (1, 2)) as x(a, b)",
    "select * from orders lateral view explode(array(1, 2)) e as z",
    "select cast(v as decimal(10,2)), row_number() over (partition by shop order by ts) from orders",
    "select o.id from orders o join stores s on o.shop = s.shop where o.id in (1, 2) and exists (select 1 from stores)",
    "select case when (v > 1) then (2) else (3) end from orders where not (v = 1)",
    "select shop, count(*) filter (where v > 1) from orders group by rollup(shop)",
    "select transform(array(1, 2), x -> x + 1), ts + interval 1 hour from orders",
    "select distinct (id), extract(hour from ts), trim(both 'x' from shop) from orders -- why not",
    "select 'reflect(a)', \"it's\", 1L, 2.5BD from orders",
]

BAD = [
    # other statements
    "", ";", "drop table orders", "insert into orders select * from orders", "create view x as select 1", "set spark.x = 1",
    "select 1; drop table x", "explain select 1", "describe orders", "show tables", "cache table orders", "table orders",
    "execute immediate 'select 1'", "begin select 1; end", "use other", "refresh table orders", "add jar '/tmp/x.jar'",
    "load data inpath '/etc/passwd' into table orders", "values (1)", "with t as (select 1) insert into orders select * from t",
    "select * from orders into outfile 'x'", "merge into orders using stores on true when matched then delete",
    # files and other systems
    "select * from parquet.`/etc/passwd`", "select * from csv.`/etc/passwd`", "select * from text.`file:///etc/passwd`",
    "select * from read_files('/etc')", "select * from `/etc/passwd`", "select * from jdbc.`x`", "select * from range(10)",
    "select * from identifier('orders')", "select * from orders version as of 3", "select * from explode(array(1, 2))",
    "select * from global_temp.x", "select * from information_schema.tables", "select * from nowhere",
    "select * from python_worker_logs()", "select * from sql_keywords()", "select * from table(orders)",
    # code, machine, memory
    "select reflect('java.lang.System', 'getenv', 'HOME')", "select `reflect`('a', 'b')", "select java_method('a', 'b')",
    "select try_reflect('a', 'b')", "select system.builtin.reflect('a', 'b')", "select reflect /* c */ ('a')",
    "from orders select reflect(id)", "select * from orders |> select reflect('a', 'b')", "select x.reflect('a') from orders x",
    "select * from values (reflect('a', 'b'))", "select * from orders, lateral (select reflect('a', 'b'))",
    "with reflect(a) as (select 1) select reflect('java.lang.System', 'exit') from orders",
    "with input_file_name(x) as (select 1) select 1, input_file_name() as y from orders", "with version(x) as (select 1) select 1, version() as v",
    "with uuid(x) as (select 1) select 1, uuid() as u", "with reflect(x) as (select 1) select id, reflect(shop, shop) as r from orders",
    "select 1, reflect(shop, shop) from (select 'a' as shop) as reflect(shop)", "select user", "select current_path", "select current_path()",
    "select transform(id) using 'cat' as (x) from orders", "map id using 'cat' from orders",
    "select * from (select transform(id) using 'cat' from orders)", "select '${env:HOME}'", "select ${spark.app.id}",
    "select input_file_name() from orders", "select current_user", "select current_user()", "select session_user()",
    "select user()", "select version()", "select current_catalog()", "select from_protobuf(id, 'a', '/etc/passwd') from orders",
    "select xpath('<a/>', 'a')", "select rand() from orders", "select repeat('a', 1000000000)", "select space(1000000000)",
    "select explode(sequence(1, 1000000000))", "with recursive t as (select 1) select * from t",
    # two readers of a text that disagree about where strings and comments end
    "select 1 -- \\\n' as x\n, reflect(\"java.lang.System\", \"getenv\") -- '\n from orders",
    "select r'\\', reflect('a', 'b') from orders", "select X'1A' from orders",
    # nonsense
    "select", "select * from orders where id = ?", "select :x", "select :partition_start from orders", "select ids from orders",
    "select 'a", "select \0 1", "select $$a$$", "\N{SNOWMAN}", "select " + "not " * 3000 + "true", "select " + "(" * 3000,
    "select 1" + "+1" * 3000, "select " + "1," * LONGEST + "1",
]  # fmt: skip


@pytest.mark.parametrize("sql", GOOD)
def test_reading_is_allowed(sql: str) -> None:
    read_query(sql, SCHEMAS)


@pytest.mark.parametrize("sql", BAD, ids=lambda sql: sql[:40])
def test_everything_else_is_refused_and_told(sql: str) -> None:
    with pytest.raises(SqlProblem) as found:
        read_query(sql, SCHEMAS)
    assert str(found.value).startswith("query:")


def test_spark_gets_the_words_without_comments() -> None:
    read = read_query("select  'a''b', 1L, o.* /* x */ from orders o -- y\n where 'it\\'s' = o.shop", SCHEMAS)
    assert read.sql == "select 'a''b', 1L, o.* from orders o where 'it\\'s' = o.shop"
    assert read_query("select /* /* */ reflect('a') */ 1 from orders", SCHEMAS).sql == "select 1 from orders"


def test_more_functions_can_be_allowed() -> None:
    with pytest.raises(SqlProblem, match="the function to_xml"):
        read_query("select to_xml(named_struct('a', shop)) from orders", SCHEMAS)
    read_query("select to_xml(named_struct('a', shop)) from orders", SCHEMAS, ["to_xml"])


def chain(count: int, select: str) -> str:
    named = "".join(f", c{i} as ({select.format(f'c{i - 1}')})" for i in range(1, count))
    return f"with c0 as (select * from orders){named} select count(*) from c{count - 1}"


HEAVY = {
    "brackets": "select " + "(" * 900 + "1" + ")" * 900,
    "cases": "select " + "case when true then " * 300 + "1" + " end" * 300,
    "types": "select cast(null as " + "array<" * 1000 + "int" + ">" * 1000 + ")",
    "structs": "select cast(null as " + "struct<a: map<string, " * 200 + "int" + ">>" * 200 + ")",
    "queries": "select * from " + "(select * from " * 400 + "orders" + ")" * 400,
    "doubled": chain(30, "select * from {0} p, {0} q"),
    "doubled names": chain(30, "select p.* from {0} p, {0} q"),
    "doubled unions": chain(30, "select * from {0} union all select * from {0}"),
    "doubled in subqueries": chain(30, "select * from {0} where id in (select id from {0})"),
    "stars": "select " + ",".join(["*"] * 900) + " from " + ", ".join(f"orders o{i}" for i in range(150)),
    "tables": "select count(*) from " + ", ".join(f"orders o{i}" for i in range(900)),
}


@pytest.mark.parametrize("name", HEAVY)
def test_what_would_take_long_to_read_is_refused_at_once(name: str) -> None:
    begun = thread_time()
    with pytest.raises(SqlProblem, match=r"too deeply|too many"):
        read_query(HEAVY[name], SCHEMAS)
    assert thread_time() - begun < 2


def test_long_and_simple_queries_are_read() -> None:
    read_query(chain(60, "select id, v from {0} where v > 1"), SCHEMAS)
    read_query("select id from orders where " + " or ".join(f"id = {i}" for i in range(400)), SCHEMAS)
    read_query("select " + "(" * 50 + "1" + ")" * 50, SCHEMAS)


BOUNDED = {
    "lpad(shop, 10000, 'x')": "lpad(shop, 10001, 'x')",
    "rpad(shop, 8)": "rpad(shop, v)",
    "space(10)": "space(id)",
    "repeat(repeat(shop, 100), 100)": "repeat(repeat(shop, 1000), 1000)",
    "array_repeat(shop, 100)": "array_repeat(shop, 20000)",
    "size(sequence(1, 10000))": "size(sequence(1, id))",
    "size(sequence(-5, 5, 2))": "size(sequence(1, 1000000000))",
    "format_string('%05d of %s', id, shop)": "format_string('%900000000d', id)",
    "printf('%20s', shop)": "printf('%9\\u0030000000d', id)",
    "format_number(v, 2)": "format_number(v, 900000000)",
    "format_number(v, '#,##0.00')": "format_number(v, id)",
    "approx_count_distinct(id, 0.01)": "approx_count_distinct(id, 0.0000001)",
    "histogram_numeric(v, 20)": "histogram_numeric(v, 2000000000)",
    "percentile_approx(v, 0.5, 100)": "percentile_approx(v, 0.5, 2000000000)",
}


@pytest.mark.parametrize("small", BOUNDED)
def test_calls_that_make_memory_from_nothing_say_how_much(small: str) -> None:
    read_query(f"select {small} from orders", SCHEMAS)
    with pytest.raises(SqlProblem, match=r"at most|widths|at least"):
        read_query(f"select {BOUNDED[small]} from orders", SCHEMAS)


def test_a_project_frees_a_call_of_its_bound() -> None:
    read_query("select lpad(shop, v, 'x') from orders", SCHEMAS, ["lpad"])


# Partitions

NOW = instant(datetime(2026, 11, 15, 12, 30))
HOUR = parse_grain("hour")


def at(text: str) -> int:
    return instant(datetime.fromisoformat(text))


EVERY = EVERYTHING.intervals[0]
JUST = [
    ("select * from orders where ts >= '2024-01-01' and ts < '2024-01-02 10:30'", at("2024-01-01"), at("2024-01-02 11:00")),
    ("select * from orders where ts between '2024-01-01 10:10' and timestamp'2024-01-01 11:00'", at("2024-01-01 10:00"), at("2024-01-01 12:00")),
    ("select * from orders o where o.ts >= now() - interval 2 hours", at("2026-11-15 10:00"), END_US),
    ("select * from orders where now() - interval '90' minutes <= ts and ts < now()", at("2026-11-15 11:00"), END_US),
    ("select * from orders where ts = '2024-01-01 10:59:59.999999'", at("2024-01-01 10:00"), at("2024-01-01 11:00")),
    ("select count(*) from (select * from orders where '2024-01-05' <= ts) x where x.v > 1", at("2024-01-05"), END_US),
    ("select * from stores where shop in (select shop from orders where ts > '2025-01-01')", at("2025-01-01"), END_US),
    # the date of a time is up to a day before it
    ("select * from orders where date(ts) = '2024-01-05'", at("2024-01-04"), at("2024-01-06 01:00")),
    # what is not understood touches everything
    ("select * from orders", *EVERY),
    ("select * from orders where ts >= '2024-01-01' or v = 1", *EVERY),
    ("select * from orders where not ts >= '2024-01-01'", *EVERY),
    ("select * from orders where ts >= '2024'", *EVERY),
    ("select * from orders where ts >= (select max(ts) from orders)", *EVERY),
    ("select * from stores s left anti join orders o on s.shop = o.shop and o.ts > '2025-01-01'", *EVERY),
    ("select (select max(v) from orders) from orders where ts > '2025-01-01'", *EVERY),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "start", "end"), JUST)
def test_predicates_bound_the_partitions(sql: str, start: int, end: int) -> None:
    found = touched(read_query(sql, SCHEMAS), {"orders": Timed("ts", HOUR)}, NOW)
    assert found["orders"] == PartitionSet.of((start, end))


def test_tables_that_are_read_twice() -> None:
    sql = "select * from orders where ts = '2024-01-01' union all select * from orders where ts = '2024-01-03'"
    found = touched(read_query(sql, SCHEMAS), {"orders": Timed("ts", HOUR)}, NOW)["orders"]
    assert found.intervals == tuple((day, day + HOUR_US) for day in (at("2024-01-01"), at("2024-01-03")))
    empty = read_query("select * from orders where ts < '2024-01-01' and ts > '2025-01-01'", SCHEMAS)
    assert not touched(empty, {"orders": Timed("ts", HOUR)}, NOW)["orders"]
