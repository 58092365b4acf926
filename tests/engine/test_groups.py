"""Groups on Spark: one job, one scan, all tables visible together or none."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse, check
from penstock.control.events import UpdateFailed, UpdateFinished
from penstock.engine.updates import recent as shared
from tests.conftest import Write
from tests.oracle import assert_same, attach

pytestmark = pytest.mark.spark

FILES = {
    "penstock.toml": """
        name = "shop"
        [feeds.sales]
        path = "in/*.csv"
        format = "csv"
        columns = "at timestamp, shop string, amount int"
        time = "at"
        partition = "day"
        """,
    "tables/per_shop.sql": """
        -- partition = "day"
        -- time = "day"
        -- group = "sums"
        select date_trunc('day', at) as day, shop, sum(amount) as amount from sales group by 1, 2
        """,
    "tables/per_month.sql": """
        -- partition = "month"
        -- time = "month"
        -- group = "sums"
        select date_trunc('month', at) as month, 10 / min(amount) as inverse, count(distinct shop) as shops
        from sales group by 1
        """,
    "tables/large.sql": """
        -- partition = "day"
        -- time = "at"
        -- group = "sums"
        select at, amount from sales where amount > 2
        """,
}
NAMES = ("per_shop", "per_month", "large")


def deliver(folder: Path, name: str, *rows: str) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_text("at,shop,amount\n" + "\n".join(rows) + "\n")


def compare(folder: Path) -> None:
    con = attach(folder)
    con.execute(
        f'create view raw as select cast("at" as timestamptz) as "at", shop, amount from read_csv(\'{folder}/in/*.csv\')'
    )
    assert_same(
        con,
        "select day, shop, amount from lake.per_shop",
        "select date_trunc('day', \"at\"), shop, sum(amount) from raw group by 1, 2",
    )
    assert_same(
        con,
        "select month, inverse, shops from lake.per_month",
        "select date_trunc('month', \"at\"), 10 / min(amount), count(distinct shop) from raw group by 1",
    )
    assert_same(con, 'select "at", amount from lake.large', 'select "at", amount from raw where amount > 2')


@pytest.mark.parametrize(("limit", "read_once"), [(0, 1), (8 << 20, 0)])
def test_a_group(
    spark: SparkSession, project: Write, monkeypatch: pytest.MonkeyPatch, limit: int, read_once: int
) -> None:
    folder = project(FILES)
    with (folder / "penstock.toml").open("a") as toml:
        toml.write(f"[run]\ndriver_bytes = {limit}\n")
    deliver(folder, "1.csv", "2026-01-01T10:00:00Z,a,1", "2026-01-02T10:00:00Z,b,5", "2026-02-01T10:00:00Z,b,3")
    reads: list[str] = []
    read = shared.read_files
    monkeypatch.setattr(
        shared, "read_files", lambda session, paths, *more: reads.extend(paths[:1]) or read(session, paths, *more)
    )
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        compare(folder)
        with warehouse.store.read() as conn:
            done = [event for _, event in warehouse.store.events(conn) if isinstance(event, UpdateFinished)]
        assert [len(event.publications) for event in done] == [1, 3]
        assert len({publication.snapshot for publication in done[1].publications}) == 1
        assert len(reads) == read_once, "what all three read is read once, and not at all if it is still in memory"
        assert [state.tables[name].counts.updates for name in ("sales", "per_shop", "per_month", "large")] == [1] * 4

        # New rows, and late ones in an old month.
        deliver(folder, "2.csv", "2026-02-02T10:00:00Z,c,7")
        deliver(folder, "3.csv", "2026-01-02T11:00:00Z,c,2")
        warehouse.run(until_idle=True)
        compare(folder)

        # One of them cannot be made: none of them moves, and all go on when it can.
        before = {name: warehouse.query(f"select * from {name}").versions[0].snapshot for name in NAMES}
        deliver(folder, "4.csv", "2026-02-03T10:00:00Z,d,0")
        with warehouse.running() as runtime:
            runtime.run(until_idle=False, on_round=lambda: runtime.stop() if _failed(warehouse) else None)
        assert {name: warehouse.query(f"select * from {name}").versions[0].snapshot for name in NAMES} == before
        assert "divi" in (warehouse.state().tables["large"].error or "").lower()
        assert "it is updated together with per_month, per_shop: group `sums`" in " ".join(
            warehouse.explain("large").lines
        )
        deliver(folder, "4.csv", "2026-02-03T10:00:00Z,d,4")
        warehouse.retry()
        warehouse.run(until_idle=True)
        compare(folder)


def _failed(warehouse: Warehouse) -> bool:
    with warehouse.store.read() as conn:
        return any(isinstance(event, UpdateFailed) for _, event in warehouse.store.events(conn))


def test_groups_that_cannot_be(project: Write) -> None:
    files = {
        **FILES,
        "tables/above.sql": """
            -- partition = "day"
            -- time = "day"
            -- group = "sums"
            select day, sum(amount) as amount from per_shop group by 1
            """,
    }
    (problem,) = (found for found in check(project(files)) if found.severity == "error")
    assert problem.message == (
        "the group of `per_shop` would have to wait for itself (per_shop -> above); take one of them out of its group"
    )
