"""Reading a text takes little, whatever it is; and what is remembered of texts is bounded."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest

from penstock.app import Warehouse
from penstock.declare.sql.facts import SqlProblem
from penstock.engine.desk import query_text
from penstock.engine.desk.query_text import Texts, in_time
from tests.engine.shop import FILES


@pytest.fixture
def texts(tmp_path: Path) -> Texts:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text).lstrip("\n"))
    with Warehouse(tmp_path) as warehouse:
        return Texts(warehouse.declared, ())


def chain(step: str, first: str = "select amount as a from sales", length: int = 40) -> str:
    """Named queries, each made from the one before."""
    named = [f"c0 as ({first})", *(f"c{n} as ({step.format(before=f'c{n - 1}')})" for n in range(1, length))]
    return f"with {', '.join(named)} select * from c{length - 1}"


@pytest.mark.parametrize(
    "sql",
    [
        # A time, a type, a number of rows that doubles with every step; and calls that are also read as types.
        chain("select a.a from {before} a, {before} b", "select 1 as a"),
        chain("select a.a from {before} a, {before} b"),
        chain("select struct(a as x, a as y) as a from {before}"),
        chain("select map(a, a) as a from {before}"),
        chain("select (select max(a) from {before}) - (select min(a) from {before}) as a"),
        f"select {' - '.join(['amount'] * 80)} as a from sales",
        f"select {' / '.join(['amount'] * 80)} as a from sales",
        *(f"select {call * 28}ts{')' * 28} as a from sales" for call in ("struct(", "date (", "timestamp(array(")),
    ],
)
def test_nothing_doubles(texts: Texts, sql: str) -> None:
    begun = time.thread_time()
    try:
        texts.understood(sql)
    except SqlProblem as problem:
        assert "too long" not in str(problem)
    assert time.thread_time() - begun < 1


def test_work_without_end_is_interrupted() -> None:
    def endless() -> None:
        while True:
            pass

    begun = time.thread_time()
    assert in_time(endless, 0.2) is None
    assert time.thread_time() - begun < 5
    # Nothing of it is left that could meet what the thread does next.
    assert in_time(lambda: sum(range(300_000)), 5.0) == 44999850000
    with pytest.raises(KeyError):
        in_time(lambda: {}["x"], 5.0)


def test_a_text_that_takes_too_long_is_refused(texts: Texts, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr(query_text, "read_query", endless)
    monkeypatch.setattr(query_text, "_READING_S", 0.1)
    with pytest.raises(SqlProblem, match="takes too long to read"):
        texts.understood("select 1 as one")


def test_texts_are_remembered_by_their_length(texts: Texts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_text, "_REMEMBERED", 1000)
    for number in range(9):
        texts.understood(f"select '{'x' * 300}' as a, {number} as b")
    assert len(texts._known) == 3 and texts._characters == sum(map(len, texts._known)) <= 1000
    one = texts.understood("select 8 as b")
    assert texts.understood("select 8 as b") is one


@pytest.mark.parametrize(
    "moving",
    ["unix_timestamp()", "timestamp 'now'", "cast(' Today ' as date)", "now()", "current_date", "date'tomorrow'"],
)
def test_what_looks_at_the_clock_is_not_kept(texts: Texts, moving: str) -> None:
    assert not texts.understood(f"select {moving} as at from sales").steady
    assert texts.understood("select ts as at from sales where ts > timestamp '2024-01-01'").steady
