"""Dimensions and keys are the same whatever the order and the batching of what comes: they follow from everything that was
ever delivered, as a few lines of plain Python say it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse, check
from penstock.engine.flows.work import FlowWork
from tests.conftest import Write
from tests.engine.test_flow_life import Killed, put
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

TOML = """
    name = "people"
    [feeds.people]
    path = "landing/people-*.csv"
    format = "csv"
    columns = "name string, city string, since timestamp"
    mode = "snapshot"
    settle = "0s"
    [feeds.moves]
    path = "landing/moves-*.csv"
    format = "csv"
    columns = "name string, city string, since timestamp"
    settle = "0s"
"""
FLOW = """
    import penstock as ps


    @ps.flow
    def histories(people, moves):
        known = people.not_null("name", bad="quarantine").deduplicate("name", order="city")
        known.surrogate_key("number", of="name", keys="numbers").into("numbered")
        known.scd1("person_now", key="name")
        known.scd2("person", key="name", at="since", bad="quarantine")
        known.aggregate("city", n="count(*)").into("in_city")
        moves.scd2("moved", key="name", at="since")
        moves.scd1("moved_now", key="name", at="since")
        moves.select("name", "city").scd1("moved_last", key="name")
"""
Row = tuple[str, str, datetime | None]
BEGIN = datetime(2024, 1, 1)


def csv(found: Iterable[Row]) -> str:
    return "name,city,since\n" + "".join(f"{n},{c},{t.isoformat() + 'Z' if t else ''}\n" for n, c, t in found)


def delivered(seed: int) -> list[tuple[str, list[Row]]]:
    """Files in the order in which they come: snapshots with people that come, go and return, some twice, some without a time;
    moves that come late, twice, and corrected."""
    chance = random.Random(seed)

    def row(day: int) -> Row:
        return chance.choice("abcd"), chance.choice("xyz"), BEGIN + timedelta(days=day)

    files: list[tuple[str, list[Row]]] = []
    for number in range(4):
        people = [row(number * 3 + chance.randrange(4)) for _ in range(chance.randrange(1, 5))]
        people += [("", "x", BEGIN)] if number == 2 else []
        people += [("e", "y", None)] if number == 1 else []
        files.append((f"people-{number}.csv", people))
        files.append((f"moves-{number}.csv", [row(chance.randrange(9)) for _ in range(3)]))
    return files


def of_snapshot(found: list[Row]) -> list[Row]:
    """Without nulls, and of each name the first by city."""
    best: dict[str, Row] = {}
    for row in sorted((row for row in found if row[0]), key=lambda row: (row[1], row[2] or BEGIN - timedelta(days=1))):
        best.setdefault(row[0], row)
    return list(best.values())


def versions(claims: list[Row]) -> list[tuple[Any, ...]]:
    """Claims in the order of arrival; of one moment the last counts, and within one file the greatest."""
    found: list[tuple[Any, ...]] = []
    for name in sorted({row[0] for row in claims}):
        at = {since: city for n, city, since in claims if n == name and since is not None}
        history: list[tuple[datetime, str]] = []
        for since, city in sorted(at.items()):
            if not history or history[-1][1] != city:
                history.append((since, city))
        ends = [since for since, _ in history[1:]]
        found += [
            (name, city, since, end, end is None) for (since, city), end in zip(history, [*ends, None], strict=False)
        ]
    return found


def expected(files: list[tuple[str, list[Row]]]) -> dict[str, list[tuple[Any, ...]]]:
    snapshots = [of_snapshot(found) for name, found in files if name.startswith("people")]
    moves = [sorted(found) for name, found in files if name.startswith("moves")]
    newest: dict[str, str] = {}
    for file in moves:
        newest |= {name: city for name, city, _ in sorted(file, key=lambda row: row[:2])}
    now: dict[str, tuple[datetime, int, str]] = {}
    for number, file in enumerate(moves):
        for name, city, since in file:
            assert since is not None
            now[name] = max(now.get(name, (BEGIN, -1, "")), (since, number, city))
    cities = [city for _, city, _ in snapshots[-1]]
    return {
        "person": versions([row for one in snapshots for row in sorted(one, key=str)]),
        "person_now": sorted({name: (name, city) for one in snapshots for name, city, _ in one}.values()),
        "moved": versions([row for one in moves for row in one]),
        "moved_now": sorted((name, city) for name, (_, _, city) in now.items()),
        "moved_last": sorted(newest.items()),
        "in_city": sorted((city, cities.count(city)) for city in set(cities)),
    }


def found(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    con = attach(folder)
    con.execute("SET TimeZone = 'UTC'")
    history = "SELECT name, city, valid_from::timestamp, valid_to::timestamp, is_current FROM lake.{} ORDER BY 1, 3"
    return {
        **{table: con.execute(history.format(table)).fetchall() for table in ("person", "moved")},
        **{
            table: rows(con, f"SELECT name, city FROM lake.{table}")
            for table in ("person_now", "moved_now", "moved_last")
        },
        "in_city": rows(con, "SELECT * FROM lake.in_city"),
    }


def numbers(folder: Path) -> dict[str, int]:
    return dict(rows(attach(folder), "SELECT name, number FROM lake.numbers"))


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 12))])
@pytest.mark.parametrize(
    "batched", [pytest.param(False, id="at once", marks=pytest.mark.soak), pytest.param(True, id="in batches")]
)
def test_whatever_the_batching(
    project: Write, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, batched: bool
) -> None:
    folder = project({"penstock.toml": TOML, "tables/histories.py": FLOW})
    (folder / "landing").mkdir()
    assert check(folder) == []
    files = delivered(seed)
    chance = random.Random(seed)
    deadly: list[str] = []

    def step(_work: FlowWork, name: str) -> None:
        if deadly and name == deadly[0]:
            raise Killed(deadly.pop())

    monkeypatch.setattr(FlowWork, "step", step)
    cuts = sorted(chance.sample(range(1, len(files)), 2)) if batched else []
    known: dict[str, int] = {}
    for start, end in zip([0, *cuts], [*cuts, len(files)], strict=True):
        for name, content in files[start:end]:
            put(folder, name, csv(content))
        if [start] == cuts[:1]:
            deadly.append("person done")
            with Warehouse(folder, spark=spark) as warehouse, pytest.raises(Killed):
                warehouse.run(until_idle=True)
        with Warehouse(folder, spark=spark) as warehouse:
            state = warehouse.run(until_idle=True)
        assert not state.tables["numbers"].error
        now = numbers(folder)
        assert now | known == now and len(set(now.values())) == len(now)
        known = now
    assert found(folder) == expected(files)
    everyone = {row[0] for name, content in files if name.startswith("people") for row in content if row[0]}
    assert known.keys() == everyone
    con = attach(folder)
    assert dict(rows(con, "SELECT name, number FROM lake.numbered")).items() <= known.items()
    kept = rows(con, "SELECT activity, count(*) FROM lake.histories_quarantine GROUP BY 1")
    assert kept == [("person: since is known", 1)]
