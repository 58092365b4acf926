"""What `penstock init` writes works as it is."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse, check
from penstock.cli.starter import project_name, write_starter
from penstock.declare.config import load_config
from penstock.errors import PenstockError
from tests.oracle import attach


def test_checks_without_a_problem(tmp_path: Path) -> None:
    written = write_starter(tmp_path / "shop", "shop")
    assert check(tmp_path / "shop") == []
    assert load_config(tmp_path / "shop").config.name == "shop"
    names = {str(path.relative_to(tmp_path / "shop")) for path in written}
    assert names >= {"penstock.toml", "README.md", ".gitignore", "tables/sales_hourly.sql", "tables/unpaid.py"}
    assert not any(name.endswith(".txt") for name in names)
    assert all("PROJECT_NAME" not in path.read_text() for path in written)


def test_only_into_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert write_starter(tmp_path / "empty", "x")
    with pytest.raises(PenstockError, match=r"not empty \(it has .gitignore, README.md, landing\); name a folder"):
        write_starter(tmp_path / "empty", "x")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PenstockError, match="is a file"):
        write_starter(tmp_path / "file", "x")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("given", "made"), [("shop", "shop"), ("My shop!", "My-shop"), ("2026", "p-2026"), ("…", "warehouse"), ("_a", "a")]
)
def test_any_folder_name_gives_a_project_name(given: str, made: str, tmp_path: Path) -> None:
    assert project_name(given) == made
    write_starter(tmp_path / "p", given)
    assert load_config(tmp_path / "p").config.name == made


@pytest.mark.spark
def test_runs(tmp_path: Path, spark: SparkSession) -> None:
    write_starter(tmp_path / "shop", "shop")
    with Warehouse(tmp_path / "shop", spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        assert {name: table.error for name, table in state.tables.items() if table.error} == {}
    con = attach(tmp_path / "shop")

    def rows(sql: str) -> list[tuple[object, ...]]:
        return con.execute(sql).fetchall()

    def day(number: int) -> datetime:
        return datetime(2026, 3, number, tzinfo=UTC)

    assert rows("SELECT shop, day, orders, items, revenue, best_hour FROM lake.sales_daily ORDER BY day, shop") == [
        ("berlin", day(2), 3, 16, Decimal("12.70"), Decimal("10.90")),
        ("paris", day(2), 2, 4, Decimal("45.40"), Decimal("37.50")),
        ("berlin", day(3), 1, 2, Decimal("13.60"), Decimal("13.60")),
        ("paris", day(3), 2, 4, Decimal("16.60"), Decimal("8.70")),
    ]
    # Order 9 is paid after the time up to which the table is complete, order 10 lies behind it.
    assert rows("SELECT id, due, paid FROM lake.unpaid_orders ORDER BY id") == [
        (4, Decimal("1.80"), Decimal("0.00")),
        (5, Decimal("37.50"), Decimal("30.00")),
        (9, Decimal("7.90"), Decimal("0.00")),
    ]
    assert rows("SELECT count(*) FROM lake.orders") == [(9,)]
    assert rows("SELECT file, line, reason FROM lake.orders_quarantine") == [
        ("landing/orders/orders-2026-03-03.csv", 4, "breaks the rule: quantity > 0")
    ]
    con.close()
