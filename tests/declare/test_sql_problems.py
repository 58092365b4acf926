"""What is refused, where, and with which words."""

from __future__ import annotations

import pytest

from penstock.declare.sql.view import SqlProblem, analyse, sources
from penstock.errors import PenstockError
from penstock.model.schema import Column

FLOWS = (
    Column("ts", "timestamp"),
    Column("router", "string"),
    Column("bytes", "bigint"),
    Column("place", "struct<city:string,geo:struct<lat:double>>"),
)
ROUTERS = (Column("router", "string"), Column("site", "string"))
SCHEMAS = {"flows": FLOWS, "routers": ROUTERS}
HAS = "`flows` has: ts, router, bytes, place"
FILES = "read declared tables only: declare a feed or a table for it and read that"
ONE = "write one SELECT (it may begin with WITH)"


def problems(sql: str, time: str | None = None, line: int = 1) -> list[str]:
    with pytest.raises(SqlProblem) as caught:
        analyse(sql, SCHEMAS, time=time, file="v.sql", line=line)
    assert isinstance(caught.value, PenstockError)
    assert str(caught.value).split("\n") == [str(p) for p in caught.value.problems]
    return [str(p) for p in caught.value.problems]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", f"v.sql:1:1: no statement; {ONE}"),
        ("-- nothing\n;", f"v.sql:1:1: no statement; {ONE}"),
        ("selec a from flows", f"v.sql:1:1: a statement that begins with 'selec'; {ONE}"),
        ("\n  insert into x select 1", f"v.sql:2:3: a statement that begins with 'insert'; {ONE}"),
        ("create table x as select 1 as a", f"v.sql:1:1: a statement that begins with 'create'; {ONE}"),
        ("delete from flows", f"v.sql:1:1: a statement that begins with 'delete'; {ONE}"),
        ("with a as (select 1 as b) insert into x select * from a", f"v.sql:1:1: INSERT instead of a query; {ONE}"),
        (
            "select ts from flows;\nselect 2",
            "v.sql:2:1: 2 statements; write exactly one SELECT: use CTEs, or several of them",
        ),
        ("select ts from", "v.sql:1:11: the query ends after 'from'; expected table name"),
        ("select ts\nfrom flows\nwhere (bytes > 1", "v.sql:3:16: near '1'; expected )"),
        ("select ts frm flows x where", "v.sql:1:15: unexpected 'flows'; expected a SELECT in Spark's SQL"),
        ("select 'abc\nfrom flows", "v.sql:1:8: \"'abc\\nfrom flows\" is not closed; a closing '"),
        ("select ts, -- it's\n `router from flows", "v.sql:2:2: '`router from flows' is not closed; a closing `"),
        ("select ts,, bytes from flows", "v.sql:1:10: nothing between ',' and ','; expected an expression, or one comma less"),
        ("select ts,\nfrom flows", "v.sql:1:10: nothing between ',' and 'from'; expected an expression, or one comma less"),
        ("select * from parquet.`/data/x`", f"v.sql:1:15: parquet./data/x reads files; {FILES}"),
        ("select * from read_files('/data')", f"v.sql:1:15: read_files(…) reads files or another system; {FILES}"),
        (
            "select ts from flows version as of 3",
            "v.sql:1:16: a version of `flows`; Penstock chooses the version: leave AS OF out",
        ),
        (
            "select ts from identifier('flows')",
            "v.sql:1:16: identifier(…) in FROM; expected the table's name itself, so that it can be followed",
        ),
        (
            "select ts from flows where ts > :since",
            "v.sql:1:33: parameter :since; only :partition_start and :partition_end are known",
        ),
        ("select ts from flows where bytes > ?", "v.sql:1:36: parameter ?; only :partition_start and :partition_end are known"),
        (
            "select count(*) as n from flows group by window(ts, '1 hour')",
            "v.sql:1:51: unexpected ','; window(…) of a timestamp is not read here: use date_trunc, or a view in Python",
        ),
        ("select ruter from flows", f"v.sql:1:8: unknown column `ruter`; did you mean `router`? {HAS}"),
        ("select f.zzz from flows f", "v.sql:1:8: unknown column `f.zzz`; `f` has: ts, router, bytes, place"),
        ("select x.bytes from flows f", "v.sql:1:8: unknown column `x.bytes`; tables here: f"),
        ("select flows.bytes from flows f", "v.sql:1:8: unknown column `flows.bytes`; tables here: f"),
        ("select place.town as t from flows", "v.sql:1:8: unknown field `place.town`; `place` has: city, geo"),
        (
            "select place.geo.lta as t from flows",
            "v.sql:1:8: unknown field `place.geo.lta`; did you mean `lat`? `place.geo` has: lat",
        ),
        ("select bytes as b from flows where b > 1", f"v.sql:1:36: unknown column `b`; {HAS}"),
        ("select x from (select bytes as y from flows)", "v.sql:1:8: unknown column `x`; the subquery has: y"),
        ("with c as (select bytes as y from flows) select bytes from c", "v.sql:1:49: unknown column `bytes`; `c` has: y"),
        (
            "select router from flows join routers on flows.router = routers.router",
            "v.sql:1:8: `router` is ambiguous; write `flows.router` or `routers.router`",
        ),
        (
            "select ts from flows f where exists (select 1 from routers r where r.router = f.ruter)",
            "v.sql:1:79: unknown column `f.ruter`; did you mean `router`? `f` has: ts, router, bytes, place",
        ),
        ("select bytes + 1 from flows", "v.sql:1:8: output column 1 has no name; give it one: … AS name"),
        ("select ts, count(*) from flows group by ts", "v.sql:1:12: output column 2 has no name; give it one: … AS name"),
        ("select ts, bytes as TS from flows", "v.sql:1:12: two output columns named `TS`; rename one: … AS other_name"),
        (
            "select * from flows f join routers r on f.router = r.router",
            "v.sql:1:8: two output columns named `router`; rename one: … AS other_name",
        ),
        ("select ts as _penstock_sum_x from flows", "v.sql:1:8: output column `_penstock_sum_x`; names that begin with _penstock_ are kept for state"),
        ("select ts from flows union all select ts, bytes from flows", "v.sql:1:39: UNION of 1 and 2 columns; expected as many on both sides"),
        ("select * except (byts) from flows", "v.sql:1:18: unknown column `byts`; did you mean `bytes`? there are: ts, router, bytes, place"),
    ],
)  # fmt: skip
def test_one_problem(sql: str, expected: str) -> None:
    assert problems(sql) == [expected]


def test_all_problems_are_told_in_order_and_lines_count_from_where_the_text_stands() -> None:
    sql = "select ruter,\n  bites as b,\n  f.nothing\nfrom flows f\nwhere sight = 1"
    assert problems(sql, line=11) == [
        "v.sql:11:8: unknown column `ruter`; did you mean `router`? `f` has: ts, router, bytes, place",
        "v.sql:12:3: unknown column `bites`; did you mean `bytes`? `f` has: ts, router, bytes, place",
        "v.sql:13:3: unknown column `f.nothing`; `f` has: ts, router, bytes, place",
        "v.sql:15:7: unknown column `sight`; `f` has: ts, router, bytes, place",
    ]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select * from (flows join routers using (router))", ["router", "ts", "bytes", "place", "site"]),
        ("select router from flows natural join routers", ["router"]),
        ("select * from values (1, 2)", ["col1", "col2"]),
        ("select a from (values (1), (2)) as v(a) union all select bytes from flows", ["a"]),
        ("select place.* from flows", ["city", "geo"]),
        ("select * except (ts, place) from flows", ["router", "bytes"]),
        ("select r.* from routers r left anti join flows f on r.router = f.router", ["router", "site"]),
        (
            "select router as r, r || 'x' as rx from flows f where exists (select 1 from routers where f.router = router)",
            ["r", "rx"],
        ),
    ],
)
def test_no_problem(sql: str, names: list[str]) -> None:
    view = analyse(sql, SCHEMAS, time=None, file="v.sql")
    assert [c.name for c in view.columns or ()] == names


def test_the_time_column_must_be_given() -> None:
    assert problems("select ts, bytes as hours from flows", time="hour") == [
        "v.sql:1:1: the time column `hour` is not among the output columns; did you mean `hours`? there are: ts, hours"
    ]


def test_the_place_is_in_the_error_itself() -> None:
    with pytest.raises(SqlProblem) as caught:
        analyse("select\n nope from flows", SCHEMAS, time=None, file="views/x.sql", line=3)
    assert (caught.value.file, caught.value.line, caught.value.column) == ("views/x.sql", 4, 2)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select 1 as a", ()),
        ("select * from flows", ("flows",)),
        ("select * from b join a using (x) join B using (x)", ("b", "a")),
        ("with c as (select * from z), d as (select * from c) select * from d, c, y", ("z", "y")),
        ("select (select max(x) from u) as m from t where a in (select b from v) union select x from w", ("u", "t", "v", "w")),
        ("select * from (select * from (select * from deep))", ("deep",)),
        ("select * from net.flows", ("net.flows",)),
        ("with a as (select * from a) select * from a", ("a",)),
        ("with a as (with b as (select * from x) select * from b) select * from a join b", ("x", "b")),
        ("with recursive r(n) as (select 1 union all select n + 1 from r) select * from r", ()),
        ("select * from t lateral view explode(xs) e as x", ("t",)),
        ("select * from range(3) join t", ("t",)),
        ("select /*+ broadcast(s) */ * from t join s", ("t", "s")),
        ("from t select a", ("t",)),
    ],
)  # fmt: skip
def test_sources(sql: str, expected: tuple[str, ...]) -> None:
    assert sources(sql) == expected


def test_a_table_without_schema_is_taken_on_trust() -> None:
    view = analyse("select a, f.b, router from unknown u join flows f on u.x = f.bytes", {}, time=None, file="f")
    assert [c.name for c in view.columns or ()] == ["a", "b", "router"]
    assert analyse("select * from unknown", {}, time=None, file="f").columns is None
