"""Which changes a table follows, what overruns it, and what it does without: said, checked, and understood."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.declare.warehouse import Definitions
from penstock.model.tables import ALL

from .conftest import Check

HOURLY = "SELECT date_trunc('hour', ts) AS hour, count(*) AS n FROM stats GROUP BY 1"
JOINED = "SELECT t.router, t.ts, s.site FROM stats t LEFT JOIN sites s ON t.router = s.router"
EXPECTED = 'expected "all", "none", "closed", or a list of reasons such as ["new", "compliance"]'


def header(*lines: str, sql: str = HOURLY, time: str = "hour") -> str:
    return "".join(f"-- {line}\n" for line in ('partition = "hour"', f'time = "{time}"', *lines)) + sql


@pytest.mark.parametrize(
    ("written", "follows", "when"),
    [
        ('propagate = "all"', ALL, "continuous"),
        ('propagate = "none"', (), "continuous"),
        ('propagate = "closed"', ALL, "closed"),
        ('propagate = ["new", "compliance"]', ("new", "compliance"), "continuous"),
    ],
)
def test_propagate(load: Callable[..., Definitions], written: str, follows: tuple[str, ...], when: str) -> None:
    table = load({"tables/a.sql": header(written)}).graph.tables["a"]
    assert (table.propagate, table.when) == (follows, when)


def test_absent_and_overrun(load: Callable[..., Definitions]) -> None:
    found = load(
        {
            "tables/a.sql": header('absent.sites = "empty"', 'overrun = "preempt"', sql=JOINED, time="ts"),
            "tables/m.py": 'import penstock as ps\n@ps.table(absent="fail")\ndef b(stats, sites): ...\n',
        }
    ).graph.tables
    assert (found["a"].optional, found["a"].required, found["a"].overrun) == (("sites",), (), "preempt")
    assert (found["b"].optional, found["b"].required) == ((), ("stats", "sites"))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.sql": header('propagate = "some"')}, [f"tables/a.sql:3: `propagate`: 'some' is not a choice of changes; {EXPECTED}"]),
        ({"a.sql": header('propagate = ["all"]')}, [f"tables/a.sql:3: `propagate`: 'all' cannot be a reason; {EXPECTED}"]),
        ({"a.sql": header('overrun = "stop"')}, ["tables/a.sql:3: `overrun` is 'stop'; expected one of queue, preempt, skip"]),
        ({"a.sql": header('absent = "emtpy"')}, ["tables/a.sql:3: `absent`: 'emtpy' is not a choice; expected one of wait, empty, fail; did you mean `empty`?"]),
        ({"a.sql": header('absent.site = "empty"')}, ["tables/a.sql:3: table `a` says what to do while `site` is absent, but does not read it; it reads: stats"]),
        ({"a.sql": header('absent = "empty"')}, ['tables/a.sql:3: table `a` is not to wait for its source: absent = "empty" needs another source that says up to when there are data']),
        ({"raw.sql": "-- feed = 'stats'\n-- overrun = 'skip'\nSELECT * FROM stats"},
         ["penstock.toml:8: warning: feed `stats`: `partition` has no effect, as its rows go to table `raw`; set it there",
          "tables/raw.sql:2: base table `raw`: `overrun` is for tables that read tables; a base table takes every file of its feed"]),
    ],
)  # fmt: skip
def test_what_is_wrong(check: Check, files: dict[str, str], expected: list[str]) -> None:
    assert check({f"tables/{name}": text for name, text in files.items()}) == expected
