"""Queries of other processes of this machine, through the socket in the project's folder."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.app import Warehouse
from penstock.engine.desk.front import Busy
from penstock.engine.desk.versions import QueryError
from penstock.errors import PenstockError
from penstock.service import local_queries
from penstock.service.local_queries import NAME, answering, ask_beside
from tests.conftest import Write
from tests.engine.shop import FILES
from tests.waiting import until


class Ticket:
    """One query, which ends at once or never."""

    def __init__(self, answer: object = None, error: str | None = None, ends: bool = True) -> None:
        self.answer, self.error, self.ends = answer, error, ends

    def wait(self, seconds: float) -> bool:
        return self.ends


class Front:
    """In the place of the front door: it takes down what it is asked."""

    def __init__(self, found: Ticket | Exception) -> None:
        self.found = found
        self.asked: list[Any] = []

    def ask(self, sql: str, contract: object, **more: object) -> Ticket:
        self.asked.append((sql, contract, more))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def withdraw(self, ticket: Ticket) -> None:
        ticket.ends = True


@pytest.fixture
def warehouse(project: Write) -> Iterator[Warehouse]:
    with Warehouse(project(FILES)) as found:
        yield found


@contextmanager
def opened(warehouse: Warehouse, found: Ticket | Exception) -> Iterator[Front]:
    front = Front(found)
    with answering(warehouse, lambda: front):  # type: ignore[arg-type,return-value]
        yield front


def ask(warehouse: Warehouse, sql: str = "select 1", profile: str | None = None, **said: object) -> Any:
    return ask_beside(warehouse, sql, 7, profile, said, lambda: None)


def folder(warehouse: Warehouse) -> Path:
    return warehouse.declared.declarations.state_folder


def test_the_process_that_runs_the_project_answers(warehouse: Warehouse) -> None:
    assert ask(warehouse) is None  # nobody runs it
    answer = SimpleNamespace(rows=[(1,)])
    with opened(warehouse, Ticket(answer)) as front:
        assert stat.S_IMODE((folder(warehouse) / NAME).stat().st_mode) == 0o600
        assert ask(warehouse, "select 'ä\n'", "audit", lag=3).rows == [(1,)]
        ((sql, contract, more),) = front.asked
        assert (sql, contract.freshness.lag, more) == ("select 'ä\n'", 3, {"limit": 7, "profile": "audit"})
    assert not (folder(warehouse) / NAME).exists() and ask(warehouse) is None


def test_what_it_says_of_a_query_is_said(warehouse: Warehouse) -> None:
    for error in (QueryError("no rows yet"), Busy("too many"), Ticket(error="division by zero")):
        with opened(warehouse, error), pytest.raises(QueryError, match=r"no rows|too many|zero"):
            ask(warehouse)


def test_what_it_cannot_know_is_asked_elsewhere(warehouse: Warehouse) -> None:
    """Its project may be an older one, and it may end at any time."""
    for found in (PenstockError("no such table"), RuntimeError("odd"), Ticket()):
        with opened(warehouse, found):
            assert ask(warehouse) is None
    with opened(warehouse, Ticket(SimpleNamespace())):
        assert ask(warehouse, profile="new") is None


def test_who_is_gone_wants_no_answer(warehouse: Warehouse) -> None:
    ticket = Ticket(ends=False)
    with opened(warehouse, ticket) as front, socket.socket(socket.AF_UNIX) as line:
        with local_queries._address(folder(warehouse)) as address:
            line.connect(address)
        line.sendall(json.dumps({"sql": "", "limit": 1, "profile": None, "said": {}}).encode() + b"\n")
        until(lambda: front.asked, "the query")
        line.close()
        until(lambda: ticket.ends, "its end")


def test_a_dead_process_and_a_long_path_do_no_harm(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = socket.socket(socket.AF_UNIX)
    monkeypatch.setattr(local_queries, "_LONGEST_NAME", 10)
    with local_queries._address(folder(warehouse)) as address:
        left.bind(address)
    left.close()
    assert ask(warehouse) is None
    with opened(warehouse, Ticket(SimpleNamespace(rows=[]))):
        assert ask(warehouse).rows == []
    with socket.socket(socket.AF_UNIX) as deaf, local_queries._address(folder(warehouse)) as address:
        deaf.bind(address)
        deaf.listen(1)
        monkeypatch.setattr(local_queries, "_READY_S", 0.05)
        assert ask(warehouse) is None
