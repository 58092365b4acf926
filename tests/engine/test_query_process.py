"""Queries in processes of their own: whatever one does, it can be ended, and nothing else ends with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.declare.sql.facts import SqlProblem
from penstock.declare.sql.read import read_query
from penstock.engine.desk import query_process
from penstock.engine.desk.query_process import ProcessSettings, QueryEnded, QueryFailed, QueryProcess, _worked_s
from penstock.engine.desk.question import PinnedTable, Question
from penstock.model.schema import Column
from tests.waiting import until

pytestmark = pytest.mark.spark

SMALL_JVM = {"driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
IDS = (Column("id", "bigint"),)
# Spark does not look whether it was cancelled while it counts such pairs.
ENDLESS = "select count(*) as n from " + ", ".join(f"ids i{n}" for n in range(12))
# A text that becomes 2^40 characters.
HUGE = f"select max(length(aggregate(array({','.join('1' * 40)}), 'x', (a, b) -> concat(a, a)))) as n from ids"


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryProcess]:
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    pq.write_table(pa.table({"id": pa.array(range(300), pa.int64())}), tmp_path / "ids.parquet")
    process = QueryProcess(ProcessSettings(tmp_path / "queries", SMALL_JVM, functions=["sequence"], memory="600m"))
    yield process
    process.close()


def question(place: Path, sql: str, limit: int = 100, **more: object) -> Question:
    read_query(sql, {"ids": IDS})  # the check of the text lets it through
    view = PinnedTable("ids", IDS, (str(place / "ids.parquet"),), 3000)
    told = {"inline_rows": 1000, "inline_bytes": 1 << 20, **more}
    return Question("a-group", sql, (view,), limit, **told)  # type: ignore[arg-type]


def group(process: QueryProcess) -> list[int]:
    """Who is in its group of processes: Python, and Java."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            # The name of a program may have any character, also a space.
            state, _, pgrp = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:3]
        except (OSError, IndexError, ValueError):
            continue
        if entry.name.isdigit() and int(pgrp) == process._process.pid and state != "Z":
            found.append(int(entry.name))
    return found


def test_it_answers_and_is_not_told_secrets(started: QueryProcess, tmp_path: Path) -> None:
    rows = started.answer(question(tmp_path, "select sum(id) as s, 'ä' as a from ids"))
    assert (rows.table.to_pylist(), rows.types, rows.truncated) == (
        [{"s": 44850, "a": "ä"}],
        ("bigint", "string"),
        False,
    )
    # Wrong, and not allowed though the text looks harmless: what Spark makes of it decides. The process goes on.
    with pytest.raises(QueryFailed, match="DIVIDE_BY_ZERO"):
        started.answer(question(tmp_path, "select 1 / (id - id) as x from ids"))
    free = PinnedTable("t", (Column("x", "int"),), (), 0)
    for word in ("user", "current_user", "session_user", "current_path", "`user`"):
        with pytest.raises(QueryFailed, match="not among the functions"):
            started.answer(Question("g", f"select {word} as u from t", (free,), 10, 10, 1000))
    for sql in (
        "select version() as v",
        "select reflect('java.lang.System', 'getenv', 'HOME') as v",
        "select uuid() as u",
    ):
        with pytest.raises(QueryFailed, match="UNRESOLVED_ROUTINE"):
            started.answer(Question("g", sql, (), 10, 10, 1000))
    for sql in (
        "select * from range(3)",
        f"select * from parquet.`{tmp_path}/ids.parquet`",
        "show tables",
        "set x = 1",
    ):
        with pytest.raises(QueryFailed):
            started.answer(Question("g", sql, (), 10, 10, 1000))
    # By bytes, not only by rows.
    wide = "select a.id, repeat('x', 10000) as r from ids a, ids b"
    cut = started.answer(question(tmp_path, wide, 2000))
    assert cut.truncated and 0 < cut.count < 1000 and cut.nbytes <= 1 << 20 and not cut.files
    filed = started.answer(question(tmp_path, wide, 2000, folder=str(tmp_path / "result")))
    assert filed.files and filed.count == 2000 and all(file.exists() for file in filed.files)
    secrets = [(Path("/proc") / str(pid) / "environ").read_bytes() for pid in group(started)]
    assert len(secrets) >= 2 and not any(b"s3cret" in one for one in secrets)


def test_the_first_query_is_nobodys(started: QueryProcess, tmp_path: Path) -> None:
    """As it takes ten times as long, it was late, killed for it, and the next one began as cold."""
    took = []
    for number in range(2):
        before = _worked_s(started._process.pid)
        started.answer(question(tmp_path, f"select count(*) as n{number}, sum(id) as s from ids"))
        took.append(_worked_s(started._process.pid) - before)
    assert before > 1 and took[0] < 4 * took[1] + 0.5


def test_who_is_cancelled_has_time_to_stop(
    started: QueryProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is busy with something else does not get to work in a second; what works on for a second is killed."""
    monkeypatch.setattr(query_process, "GRACE_S", 0.05)
    monkeypatch.setattr(query_process, "_LONGEST_GRACE_S", 1e9)
    worked, looked = [0.0], []

    def said(group: int) -> float:
        looked.append(group)
        return worked[0]

    monkeypatch.setattr(query_process, "_worked_s", said)
    started._running = "a-group"
    started.cancel("a-group")
    until(lambda: len(looked) > 3, "some looks")
    assert started.is_alive
    worked[0] = 1.0
    until(lambda: not started.is_alive, "the end")


def test_what_does_not_stop_is_ended(started: QueryProcess, tmp_path: Path) -> None:
    assert started.answer(question(tmp_path, "select count(*) as n from ids")).table.to_pylist() == [{"n": 300}]
    threading.Timer(2.0, started.cancel, ("a-group",)).start()
    with pytest.raises((QueryEnded, QueryFailed)) as found:
        started.answer(question(tmp_path, ENDLESS))
    if isinstance(found.value, QueryEnded):
        assert "did not stop" in str(found.value)
        until(lambda: not group(started), "its processes to end")
        assert not (tmp_path / "queries").exists() or not list((tmp_path / "queries").iterdir())


def test_what_starts_for_nobody_is_ended(tmp_path: Path) -> None:
    """Else a server that ends waited for it."""
    with pytest.raises(QueryEnded, match="not wanted"):
        QueryProcess(ProcessSettings(tmp_path / "queries", SMALL_JVM), is_wanted=lambda: False)
    assert not list((tmp_path / "queries").iterdir())


def test_memory_that_ends_ends_one_process(started: QueryProcess, tmp_path: Path) -> None:
    with pytest.raises(QueryEnded, match=r"queries\.memory"):
        started.answer(question(tmp_path, HUGE))
    until(lambda: not group(started), "its processes to end")


def test_the_texts_that_killed_a_machine_are_refused() -> None:
    for sql in (
        "select max(length(format_string('%900000000d', id))) as n from ids",
        "select explode(sequence(1, 2000000000)) as n from ids",
        "select max(length(repeat(repeat('x', 10000), 10000))) as n from ids",
    ):
        with pytest.raises(SqlProblem):
            read_query(sql, {"ids": IDS})
