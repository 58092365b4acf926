"""Texts drawn from a grammar of good and hostile pieces: each is read, or refused with a reason, and soon; and what is read has nothing in it that a
query may not do, as another and simpler reader sees it."""

from __future__ import annotations

import re
from time import thread_time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.declare.sql.facts import SqlProblem
from penstock.declare.sql.functions import ALLOWED, FUNCTIONS, WORDS
from penstock.declare.sql.read import read_query
from penstock.engine.spark.plan_check import NotAllowed, PlanCheck
from penstock.engine.spark.session import session_in
from penstock.model.schema import Column

ORDERS = (Column("id", "int"), Column("ts", "timestamp"), Column("v", "int"), Column("shop", "string"))
SCHEMAS = {"orders": ORDERS, "user": None, "version": (Column("version", "int"),)}

_names = st.sampled_from(
    [
        "id",
        "v",
        "shop",
        "ts",
        "user",
        "version",
        "`id`",
        "`user`",
        "o.id",
        "x",
        "current_path",
        "reflect",
        "`a b`",
        "*",
        "o.*",
    ]
)
_functions = st.sampled_from(
    sorted(FUNCTIONS | {"nothing", "`reflect`", "system.builtin.version", "orders.reflect", "${x}"})
)
_literals = st.sampled_from(
    [
        "1",
        "1L",
        "2.5BD",
        "'a'",
        '"b"',
        "'it''s'",
        "'\\''",
        "r'\\'",
        "null",
        "true",
        "900000000",
        "X'1A'",
        "date'now'",
        "interval 1 day",
        ":x",
        "?",
    ]
)
_gaps = st.sampled_from(
    [" ", "\n", "\t", " /* c */ ", " -- c\n", "/*+ BROADCAST(o) */ ", " /* /* */ reflect('a') */ ", ""]
)
_tables = st.sampled_from(
    [
        "orders",
        "orders o",
        "user",
        "version",
        "c",
        "nowhere",
        "parquet.`/etc/passwd`",
        "range(3)",
        "(values (1)) as x(id)",
        "orders version as of 3",
    ]
)


def _calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda name, gap, given: f"{name}{gap}({', '.join(given)})", _functions, _gaps, st.lists(inner, max_size=3)
    )


_expressions = st.recursive(
    st.one_of(_names, _literals),
    lambda inner: st.one_of(
        _calls(inner),
        st.builds(lambda a, o, b: f"({a} {o} {b})", inner, st.sampled_from(["+", "=", "and", "||", "in", "like", "::", "<=>", "|>", "->"]), inner),
        st.builds("case when {} then {} end".format, inner, inner),
        st.builds("cast({} as {})".format, inner, st.sampled_from(["int", "string", "array<int>", "decimal(9,2)", "struct<a:int>"])),
        st.builds("(select {} from {})".format, inner, _tables),
        st.builds("{} over (partition by {})".format, inner, inner),
    ),
    max_leaves=8,
)  # fmt: skip


@st.composite
def queries(draw: st.DrawFn) -> str:
    columns = draw(
        st.lists(
            st.builds("{}{}".format, _expressions, st.sampled_from(["", " as a", " b", " as `reflect`"])),
            min_size=1,
            max_size=3,
        )
    )
    gap = draw(_gaps) or " "
    text = f"select{gap}{', '.join(columns)}"
    if draw(st.booleans()):
        text += f"{gap}from {draw(_tables)}"
        if draw(st.booleans()):
            text += f" {draw(st.sampled_from([',', 'join', 'left join', 'lateral view explode(array(1))', 'cross join']))} {draw(_tables)}"
        if draw(st.booleans()):
            text += f" where {draw(_expressions)}"
        if draw(st.booleans()):
            text += f" group by {draw(_expressions)}"
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.one_of(st.sampled_from(["c", "orders"]), _functions))
        text = f"with {name}{draw(st.sampled_from(['', '(x)', '(a, b)']))} as (select {draw(_expressions)}{gap}from {draw(_tables)}) {text}"
    if draw(st.integers(0, 5)) == 0:
        text += draw(
            st.sampled_from(
                [
                    " union all select 1",
                    "; drop table orders",
                    " limit 3",
                    " for update",
                    ";",
                    " into outfile 'x'",
                    " using 'cat'",
                ]
            )
        )
    if draw(st.integers(0, 9)) == 0:  # a piece goes, or is doubled
        at = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 9))
        text = text[:at] + draw(st.sampled_from(["", text[at : at + length] * 2])) + text[at + length :]
    return text


_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.S)
_CALL = re.compile(r"(`(?:[^`]|``)*`|[A-Za-z_][\w$]*)\s*\(")
_NAMED = re.compile(r"(?:\bas|\bwith|,|\))\s*(`(?:[^`]|``)*`|\w+)\s*\([\w\s,`]*\)", re.I)


def read(sql: str) -> str | None:
    begun = thread_time()
    try:
        found: str | None = read_query(sql, SCHEMAS).sql
    except SqlProblem as problem:
        assert str(problem).startswith("query:") and problem.line >= 1 and problem.column >= 1
        found = None
    assert thread_time() - begun < 5
    return found


def check(sql: str) -> None:
    found = read(sql)
    if found is None:
        return
    bare = _STRING.sub("''", found)
    assert "--" not in bare and "/*" not in bare and "${" not in found and ";" not in bare
    names = {name.strip("`").lower() for name in _NAMED.findall(bare)} - FUNCTIONS
    for call in _CALL.findall(bare):
        name = call.strip("`").lower()
        assert name in ALLOWED or (name in WORDS and "`" not in call) or name in names, found
    assert (
        not re.search(r"\b(drop|insert|parquet|passwd|outfile|transform\s+using|range)\b", bare, re.I) or "`" in bare
    ), found


QUIET = settings(suppress_health_check=list(HealthCheck), database=None)


@settings(QUIET, max_examples=400)
@given(queries())
def test_whatever_is_asked_is_read_or_refused(sql: str) -> None:
    check(sql)


@settings(QUIET, max_examples=150)
@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(sql: str) -> None:
    check(sql)


@pytest.mark.soak
@settings(QUIET, max_examples=20_000, derandomize=False)
@given(queries())
def test_whatever_is_asked_for_long(sql: str) -> None:
    check(sql)


class Agreement:
    """What the text lets through, the plan lets through as well: neither is alone."""

    def __init__(self, spark: SparkSession) -> None:
        self.session = session_in(spark, "UTC")
        self.check = PlanCheck(self.session)
        rows = self.session.createDataFrame([], "id int, ts timestamp, v int, shop string")
        rows.createOrReplaceTempView("orders")
        self.session.createDataFrame([], "version int").createOrReplaceTempView("version")
        self.session.createDataFrame([], "user string").createOrReplaceTempView("user")

    def see(self, sql: str) -> bool:
        found = read(sql)
        if found is None:
            return False
        try:
            frame = self.session.sql(found)
        except Exception:  # Spark does not take it
            return False
        try:
            self.check.check(frame, ())
        except NotAllowed as error:
            # Where the columns of a table are not known, only Spark can tell a column from such a word.
            assert re.search(r"Current(User|Path|Catalog|Database|Schema)", str(error)), found
        return True


@pytest.mark.spark
def test_the_text_and_the_plan_agree(spark: SparkSession) -> None:
    agreement = Agreement(spark)
    seen: list[bool] = []

    @settings(QUIET, max_examples=150)
    @given(queries())
    def run(sql: str) -> None:
        seen.append(agreement.see(sql))

    run()
    for name in sorted(ALLOWED):
        for call in (f"{name}(id)", f"{name}(shop)", f"{name}(id, v)", f"{name}()"):
            seen.append(agreement.see(f"select {call} as x from orders"))
    assert sum(seen) > 150


@pytest.mark.soak
@pytest.mark.spark
def test_the_text_and_the_plan_agree_for_long(spark: SparkSession) -> None:
    agreement = Agreement(spark)

    @settings(QUIET, max_examples=3_000, derandomize=False)
    @given(queries())
    def run(sql: str) -> None:
        agreement.see(sql)

    run()
