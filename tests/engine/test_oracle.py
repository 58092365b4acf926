"""After a run reaches idle, every table equals what DuckDB computes from the raw feed files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.control.state import State
from penstock.model.time import moment
from tests.conftest import Write
from tests.engine.netproject import EXPECTED, FILES, Feeds
from tests.oracle import assert_same, attach

pytestmark = pytest.mark.spark


def check_all(folder: Path, state: State) -> None:
    con = attach(folder)
    con.execute(
        f"CREATE VIEW s AS SELECT router, ts::TIMESTAMPTZ AS ts, bytes::BIGINT AS bytes, load::DECIMAL(8,2) AS load FROM read_csv('{folder}/landing/stats/*.csv', header=true, all_varchar=true)"
    )
    con.execute(
        f"CREATE VIEW a AS SELECT router, \"at\"::TIMESTAMPTZ AS seen, severity::INT AS severity FROM read_json('{folder}/landing/alerts/*.json', format='newline_delimited')"
    )
    newest = max((folder / "landing" / "sites").glob("*.csv"))
    con.execute(f"CREATE VIEW t AS SELECT * FROM read_csv('{newest}', header=true)")
    for name, expected in EXPECTED.items():
        table = state.tables[name]
        assert table.error is None, f"{name}: {table.error}"
        if not table.exists:
            continue
        edge = f"TIMESTAMPTZ '{moment(table.edge_us or 0).isoformat()}'"
        assert_same(con, f"SELECT * FROM lake.{name}", expected.replace("{e}", edge), f"{name}, complete up to {edge}")
    con.close()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_random_feeds(project: Write, spark: SparkSession, seed: int) -> None:
    folder = project(FILES)
    feeds = Feeds(folder, seed)
    warehouse = Warehouse(folder, spark=spark)
    for round_ in range(5):
        for _ in range(feeds.random.randrange(2, 7)):
            feeds.advance(feeds.random.choice([1, 5, 20, 70]))
            feeds.stats()
            feeds.alerts()
        if round_ in (1, 3):
            feeds.stats(late=timedelta(minutes=1))
            feeds.stats(late=timedelta(hours=feeds.random.choice([1, 3, 26])))
            feeds.alerts(late=timedelta(minutes=40))
            feeds.again()
        if round_ == 2:
            feeds.sites()
        state = warehouse.run(until_idle=True)
        check_all(folder, state)
    assert any(state.tables[name].counts.folded for name in ("stats_hour", "stats_5m"))
    assert state.tables["loud"].counts.folded
    warehouse.close()
