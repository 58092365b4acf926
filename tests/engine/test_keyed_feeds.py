"""Feeds of changes and upserts: the current rows follow from what was delivered, in whatever order and number it came, and
changes of a partition reach readers as changes of that partition."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse, check
from penstock.engine.commands.feeds import withdraw
from tests.conftest import Write
from tests.engine.crashing import Site, make_site, write_project
from tests.oracle import attach, rows

TOML = """
    name = "keyed"
    [run]
    tracks = 1
    [feeds.customers]
    path = "landing/customers-*.csv"
    format = "csv"
    columns = "id bigint, op string, seq bigint, name string"
    mode = "changes"
    key = "id"
    order = "column seq"
    history = true
    settle = "0s"
    [feeds.sales]
    path = "landing/sales-*.csv"
    format = "csv"
    columns = "id bigint, ts timestamp, seq bigint, amount bigint"
    mode = "upsert"
    key = "id, ts"
    order = "column seq"
    time = "ts"
    partition = "day"
    settle = "0s"
"""
DAILY = """
    -- partition = "day"
    -- time = "day"
    SELECT date_trunc('day', ts) AS day, sum(amount) AS amount, count(*) AS n FROM sales GROUP BY date_trunc('day', ts)
"""
FILES = {"penstock.toml": TOML, "tables/daily.sql": DAILY}
HEADS = {"customers": "id,op,seq,name", "sales": "id,ts,seq,amount"}


@dataclass
class Deliveries:
    """Files at random: of few keys, so that they meet; late, rewritten and withdrawn ones, too."""

    chance: random.Random
    files: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def drawn(self, feed: str) -> list[tuple[Any, ...]]:
        count = self.chance.randrange(1, 6)
        if feed == "sales":
            keys = [self.chance.randrange(8) for _ in range(count)]
            return [
                (k, f"2024-03-0{1 + k % 4}T0{k}:00:00Z", self.chance.randrange(50), self.chance.randrange(1, 99))
                for k in keys
            ]
        found = []
        for _ in range(count):
            op = self.chance.choice(["I", "u", "D", "update_preimage", "c"])
            name = "" if op == "D" else self.chance.choice("abc")
            found.append((self.chance.randrange(6), op, self.chance.randrange(40), name))
        return found

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """What is done to which file."""
        for turn in range(11):
            feed = self.chance.choice(["customers", "sales"]) if turn > 1 else ["customers", "sales"][turn]
            mine = [name for name in self.files if name.startswith(feed)]
            what = self.chance.choice(["new", "new", "rewritten", "withdrawn"]) if turn > 1 else "new"
            if what == "withdrawn" and mine:
                name = self.chance.choice(mine)
                del self.files[name]
                yield "withdraw", name
                continue
            name = self.chance.choice(mine) if what == "rewritten" and mine else f"{feed}-{turn}.csv"
            self.files[name] = self.drawn(feed)
            yield "deliver", name

    def text(self, name: str) -> str:
        return "\n".join([HEADS[name.partition("-")[0]], *(",".join(map(str, row)) for row in self.files[name]), ""])

    def of(self, feed: str) -> list[tuple[Any, ...]]:
        return [row for name, found in self.files.items() if name.startswith(feed) for row in found]

    def customers(self) -> list[tuple[Any, ...]]:
        """The current rows, and every version."""
        last: dict[tuple[int, int], tuple[Any, ...]] = {}
        for id_, op, seq, name in self.of("customers"):
            if op != "update_preimage":
                found = (op == "D", name, seq)
                last[id_, seq] = max(found, last.get((id_, seq), (False, "", -1)))
        versions = []
        for (id_, seq), (gone, name, _) in last.items():
            until = min((other for key, other in last if key == id_ and other > seq), default=None)
            if not gone:
                versions.append((id_, seq, name or None, seq, until, until is None))
        return versions

    def sales(self) -> list[tuple[int, int]]:
        last: dict[int, tuple[int, int]] = {}
        for id_, _ts, seq, amount in self.of("sales"):
            last[id_] = max((seq, amount), last.get(id_, (-1, -1)))
        return [(id_, amount) for id_, (_, amount) in last.items()]


def compare(folder: Path, drawn: Deliveries, why: str) -> None:
    con = attach(folder)
    versions = drawn.customers()
    order = lambda row: tuple(str(value) for value in row)  # noqa: E731
    told = "id, seq, name, valid_from, valid_to, is_current"
    assert rows(con, f"SELECT {told} FROM lake.main.customers_history") == sorted(versions, key=order), why
    now = sorted((row[:3] for row in versions if row[5]), key=order)
    assert rows(con, "SELECT id, seq, name FROM lake.main.customers") == now, why
    sales = drawn.sales()
    assert rows(con, "SELECT id, amount FROM lake.main.sales") == sorted(sales, key=order), why
    days = [(sum(a for k, a in sales if k % 4 == d), sum(k % 4 == d for k, _ in sales)) for d in range(4)]
    assert rows(con, "SELECT amount, n FROM lake.main.daily") == sorted((d for d in days if d[1]), key=order), why


@pytest.mark.parametrize("seed", range(6))
def test_current_rows_follow_from_what_was_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    site = keyed_site(tmp_path, monkeypatch)
    drawn = Deliveries(random.Random(seed))
    done = []
    with site.running() as process:
        for what, name in drawn:
            done.append(f"{what} {name}")
            if what == "withdraw":
                process.run(until_idle=True)  # what was never seen cannot be withdrawn
                withdraw(site.warehouse, process.store, process.controller.state, [f"landing/{name}"], "", 0)
            else:
                site.deliver({name: drawn.text(name)})
            if len(drawn.files) > 1 and (drawn.chance.random() < 0.7 or what == "withdraw"):
                process.run(until_idle=True)
                compare(site.folder, drawn, "; ".join(done))
        process.run(until_idle=True)
    compare(site.folder, drawn, "; ".join(done))


def keyed_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = make_site(tmp_path, monkeypatch)
    for path in (site.folder / "tables").iterdir():
        path.unlink()
    write_project(site.folder, FILES)
    return site


def test_a_change_of_a_partition_makes_that_partition_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = keyed_site(tmp_path, monkeypatch)
    with site.running() as process:
        site.deliver({"sales-1.csv": f"{HEADS['sales']}\n1,2024-03-01T01:00:00Z,1,5\n2,2024-03-02T01:00:00Z,1,7\n"})
        process.run(until_idle=True)
        files = "SELECT data_file FROM ducklake_list_files('lake', 'daily')"
        before = rows(attach(site.folder), files)
        site.deliver({"sales-2.csv": f"{HEADS['sales']}\n2,2024-03-02T01:00:00Z,2,9\n"})
        process.run(until_idle=True)
    con = attach(site.folder)
    assert rows(con, "SELECT amount FROM lake.main.daily") == [(5,), (9,)]
    assert len(set(before) & set(rows(con, files))) == 1


@pytest.mark.spark
def test_changes_on_spark(tmp_path: Path, spark: SparkSession, project: Write) -> None:
    """Deletes that say no more than the key; words that nobody knows; partitions; rules that are for rows that stay."""
    project(FILES)
    text = tmp_path / "penstock.toml"
    text.write_text(text.read_text().replace("history = true", 'history = true\nrules = ["length(name) > 1"]', 1))
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "customers-1.csv").write_text(
        "id,op,seq,name\n1,U,5,Ann\n1,I,1,Anne\n2,c,2,Bob\n2,D,3,\n3,r,1,Cy\n4,x,1,Dot\n,I,1,Eve\n5,I,,Flo\n6,I,1,G\n"
    )
    (landing / "sales-1.csv").write_text(
        f"{HEADS['sales']}\n1,2024-03-01T01:00:00Z,1,5\n1,2024-03-01T01:00:00Z,3,6\n1,2024-03-01T01:00:00Z,2,7\n"
    )
    with Warehouse(tmp_path, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        found = sorted(map(tuple, warehouse.query("select id, seq, name from customers").rows))
        assert found == [(1, 5, "Ann"), (3, 1, "Cy")]
        (landing / "customers-2.csv").write_text("id,op,seq,name\n1,D,4,\n3,delete,2,\n2,I,4,Bo\n")
        warehouse.run(until_idle=True)
        assert sorted(map(tuple, warehouse.query("select id, name from customers").rows)) == [(1, "Ann"), (2, "Bo")]
        told = "select id, valid_from, valid_to, is_current from customers_history where id < 3"
        assert sorted(map(tuple, warehouse.query(told).rows)) == [
            (1, 1, 4, False),
            (1, 5, None, True),
            (2, 2, 3, False),
            (2, 4, None, True),
        ]
        refused = "select line, reason from customers_changes_quarantine"
        lines = dict(map(tuple, warehouse.query(refused).rows))
        assert sorted(lines) == [7, 8, 9, 10] and "is not null" in lines[8]
        assert [tuple(row) for row in warehouse.query("select amount from daily").rows] == [(6,)]


BAD = {
    'mode = "changes"': ('mode = "append"', "`key` has no effect"),
    'key = "id"\n': ("", "no `key`"),
    'order = "column seq"': ('order = "arrival"', "order = \"column changed_at\""),
    '"id bigint, op string,': ('"id bigint, kind string,', "`op` of `change` does not exist"),
    'key = "id, ts"': ('key = "id"', "`ts` must be part of `key`"),
}  # fmt: skip


@pytest.mark.parametrize("old", BAD)
def test_what_is_wrong_with_a_feed_of_changes_is_said(project: Write, old: str) -> None:
    new, message = BAD[old]
    assert old in TOML.replace("    ", "")
    folder = project({**FILES, "penstock.toml": TOML.replace("    ", "").replace(old, new, 1)})
    assert any(message in problem.message for problem in check(folder)), [str(p) for p in check(folder)]
