"""The demo itself: its project is sound, its folder is safe, and a short run ends with nothing lost."""

from __future__ import annotations

import fcntl
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from penstock.app import Warehouse, check
from penstock.cli.demo import (
    DemoClock,
    DemoSummary,
    default_network,
    render_summary,
    run_demo,
    write_demo,
)
from penstock.cli.netops.feeds import FEEDS, DemoFile, Network, Scale
from penstock.cli.netops.screen import Frame, live_table, one_line, screen_for
from penstock.control.state import State
from penstock.control.views.status import TableStatus
from penstock.engine.runtime import Runtime
from penstock.errors import PenstockError
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, moment, parse_instant
from tests.oracle import assert_same, attach
from tests.waiting import until

SPEED = 180.0
NETWORK = Network(parse_instant("2026-03-09 23:48"), 30 * MINUTE_US, scale=Scale(2, 8, 30, 20))


def test_checks_without_a_problem(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    assert check(tmp_path / "demo") == []
    with Warehouse(tmp_path / "demo") as warehouse:
        graph = warehouse.declared.graph
        derived = [table for table in graph.tables.values() if not table.is_base]
        assert len(derived) == 12 and len(graph.feeds) == 4
        assert any(table.foldable for table in derived)
        assert len({table.priority for table in derived}) > 3
        assert all(table.target_us for table in derived)


class TestFolder:
    def test_a_demo_is_replaced(self, tmp_path: Path) -> None:
        folder = tmp_path / "demo"
        write_demo(folder)
        (folder / "landing" / "alerts" / "old.json").write_text("{}")
        (folder / ".penstock").mkdir()
        (folder / ".penstock" / "penstock.db").write_text("old")
        (folder / "tables" / "mine.sql").write_text("select 1")
        (folder / "notes.txt").write_text("kept")
        write_demo(folder)
        left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert not left & {"landing/alerts/old.json", ".penstock/penstock.db", "tables/mine.sql"}
        assert left >= {"notes.txt", "penstock.toml", "tables/health.py", "tables/traffic_5m.sql"}

    def test_anything_else_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").write_text("mine")
        with pytest.raises(PenstockError, match="was not made by the demo"):
            write_demo(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
        with pytest.raises(PenstockError, match="is a file"):
            write_demo(tmp_path / "mine.txt")

    def test_a_running_demo_is_left_alone(self, tmp_path: Path) -> None:
        write_demo(tmp_path / "demo")
        lock = tmp_path / "demo" / ".penstock" / "run.lock"
        lock.parent.mkdir()
        with lock.open("a+") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(PenstockError, match="still running"):
                write_demo(tmp_path / "demo")
        write_demo(tmp_path / "demo")


class TestTime:
    def test_the_default_passes_midnight_and_lies_in_the_past(self) -> None:
        network = default_network(60, 120)
        assert network.duration_us == 2 * HOUR_US
        assert network.origin_us % DAY_US == 23 * HOUR_US + 12 * MINUTE_US
        assert network.end_us < time.time() * 1e6

    @pytest.mark.parametrize(("seconds", "speed"), [(9, 120), (60, 1), (60, 10_000)])
    def test_too_short_or_too_long(self, seconds: float, speed: float) -> None:
        with pytest.raises(PenstockError, match=r"of the network's time; .*--seconds or --speed"):
            default_network(seconds, speed)

    def test_the_clock_races_only_after_the_beginning(self) -> None:
        clock = DemoClock(1000.0, 10**15)
        before = clock.now_us()
        time.sleep(0.05)
        assert before < clock.now_us() < 10**15
        clock.begin()
        first = clock.now_us()
        time.sleep(0.05)
        assert first >= 10**15 and clock.now_us() - first >= 50 * 10**6
        assert clock.wall_s(10**9) == 1.0


def row(**other: object) -> TableStatus:
    values: dict[str, object] = {
        name: None if "None" in str(kind) else 0 for name, kind in TableStatus.__annotations__.items()
    }
    return TableStatus(**{**values, "table": "t", "kind": "derived", "doing": "pending", **other})  # type: ignore[arg-type]


def frame(phase: str = "live") -> Frame:
    rows = (
        row(table="good", complete_us=0, staleness_us=MINUTE_US, target_us=2 * MINUTE_US, met=True, updates=3),
        row(table="bad", complete_us=0, staleness_us=HOUR_US, target_us=MINUTE_US, met=False, pending_files=2),
        row(table="new", doing="empty", pending_partitions=1),
    )
    return Frame(phase, 0, 0.5, rows, ("good",), 2, 7, ("alerts: outage, nothing comes",))


class TestScreen:
    def test_lines_elsewhere(self) -> None:
        console = Console(file=io.StringIO(), width=200)
        with screen_for(console) as screen:
            with screen.working("Starting Spark"):
                pass
            assert screen.due() and not screen.due()
            screen.show(frame())
        assert console.file.getvalue() == (  # type: ignore[attr-defined]
            "Starting Spark …\n"
            "Thu 00:00 | feeds deliver | 7 files came, 2 wait | 3 updates | running: good | past their target: bad | "
            "alerts: outage, nothing comes\n"
        )
        assert "past" not in one_line(frame("history")).plain

    def test_a_live_table_on_a_terminal(self) -> None:
        console = Console(file=io.StringIO(), width=80, force_terminal=True, legacy_windows=False)
        with screen_for(console) as screen:
            with screen.working("Starting Spark"):
                pass
            screen.show(frame())
        shown = console.file.getvalue()  # type: ignore[attr-defined]
        assert "Thu 00:00:00" in shown and "alerts: outage" in shown and "2 files" in shown

    def test_the_table_fits(self) -> None:
        console = Console(file=io.StringIO(), width=80)
        console.print(live_table(frame().rows))
        assert "…" not in console.file.getvalue()  # type: ignore[attr-defined]

    def test_nothing_without_a_console(self) -> None:
        with screen_for(None) as screen, screen.working("x"):
            assert not screen.due()


# One short run, looked at from several sides


@pytest.fixture(scope="module")
def demo(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[tuple[DemoSummary, State, duckdb.DuckDBPyConnection, str]]:
    folder = tmp_path_factory.mktemp("run") / "demo"
    console = Console(file=io.StringIO(), width=200)
    went_on: list[int] = []

    def look(_: DemoSummary, runtime: Runtime) -> None:
        """Who looks at the pages afterwards sees feeds that go on. What they bring is not loaded here."""
        landing = folder / "landing" / "alerts"
        before = len(list(landing.iterdir()))
        until(lambda: len(list(landing.iterdir())) > before, "another file of a feed")
        went_on.append(before)

    summary = run_demo(folder, speed=SPEED, console=console, spark=spark, network=NETWORK, afterwards=look)
    assert went_on
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.state()
    con = attach(folder)
    yield summary, state, con, console.file.getvalue()  # type: ignore[attr-defined]
    con.close()


Run = tuple[DemoSummary, State, duckdb.DuckDBPyConnection, str]


@pytest.mark.spark
def test_nothing_is_lost(demo: Run) -> None:
    _, state, con, _ = demo
    counts = expected_rows([*NETWORK.history(), *NETWORK.deliveries()])
    for table, rows in counts.items():
        assert con.execute(f"SELECT count(*) FROM lake.{table}").fetchall() == [(rows,)], table
    assert {name: table.error for name, table in state.tables.items() if table.failed or table.error} == {}
    assert all(table.exists for table in state.tables.values())
    assert not any(table.files for table in state.tables.values())
    refused = con.execute("SELECT count(*) FROM lake.router_stats_quarantine").fetchall()
    assert refused == [(6,)]
    assert con.execute("SELECT count(*) FROM lake.alerts_quarantine").fetchall() == [(1,)]
    # The corrected file: the network counts no errors in it any more.
    minute = moment(parse_instant("2026-03-10 00:00")).isoformat()
    sql = f"SELECT sum(errors) FROM lake.router_stats WHERE ts >= '{minute}' AND ts < '{minute}'::TIMESTAMPTZ + INTERVAL 1 MINUTE"
    assert con.execute(sql).fetchall() == [(0,)]


ROUTER_DAYS = """
    SELECT router, date_trunc('day', ts) AS day, sum(bytes_in + bytes_out)::BIGINT AS bytes, sum(errors)::BIGINT AS errors
    FROM lake.router_stats WHERE ts < {edge} GROUP BY ALL
"""
ORACLE = {
    "traffic_5m": """
        SELECT router, time_bucket(INTERVAL 5 MINUTE, ts), sum(bytes_in)::BIGINT, sum(bytes_out)::BIGINT,
            sum(errors)::BIGINT, avg(cpu), count(*)
        FROM lake.router_stats WHERE ts < {edge} GROUP BY ALL""",
    "traffic_hourly": """
        SELECT router, date_trunc('hour', ts), sum(bytes_in)::BIGINT, sum(bytes_out)::BIGINT, sum(errors)::BIGINT,
            max(cpu), count(*)
        FROM lake.router_stats WHERE ts < {edge} GROUP BY ALL""",
    "critical_alerts": "SELECT raised, router, severity, code, message FROM lake.alerts WHERE severity >= 4 AND raised < {edge}",
    "alerts_hourly": """
        SELECT router, date_trunc('hour', raised), count(*), count_if(severity >= 4)::BIGINT, max(severity)
        FROM lake.alerts WHERE raised < {edge} GROUP BY ALL""",
    "error_rates": """
        SELECT router, date_trunc('hour', ts), count(*), count_if(level <= 3)::BIGINT, count_if(level <= 3) / count(*)
        FROM lake.syslog WHERE ts < {edge} GROUP BY ALL""",
    "alert_context": """
        SELECT a.raised, a.router, a.code, t.bytes, t.errors, t.cpu
        FROM lake.alerts a LEFT JOIN (
            SELECT router, time_bucket(INTERVAL 5 MINUTE, ts) AS slot, sum(bytes_in + bytes_out)::BIGINT AS bytes,
                sum(errors)::BIGINT AS errors, avg(cpu) AS cpu
            FROM lake.router_stats WHERE ts < {edge} GROUP BY ALL
        ) t ON t.router = a.router AND t.slot = time_bucket(INTERVAL 5 MINUTE, a.raised)
        WHERE a.severity >= 4 AND a.raised < {edge}""",
    "site_traffic": """
        SELECT p.region, p.site, t.hour, count(*), sum(t.bytes)::BIGINT, sum(t.errors)::BIGINT
        FROM (
            SELECT router, date_trunc('hour', ts) AS hour, sum(bytes_in + bytes_out)::BIGINT AS bytes,
                sum(errors)::BIGINT AS errors
            FROM lake.router_stats WHERE ts < {edge} GROUP BY ALL
        ) t JOIN lake.topology p ON p.router = t.router AND p.day = t.hour::DATE
        GROUP BY ALL""",
    "router_lifetime": f"""
        SELECT d.day, r.router, count(*), sum(r.bytes)::BIGINT, sum(r.errors)::BIGINT
        FROM (SELECT DISTINCT day FROM ({ROUTER_DAYS})) d JOIN ({ROUTER_DAYS}) r ON r.day <= d.day GROUP BY ALL""",
    "top_talkers": f"""
        SELECT day, router, bytes FROM ({ROUTER_DAYS})
        QUALIFY row_number() OVER (PARTITION BY day ORDER BY bytes DESC, router) <= 10""",
}


@pytest.mark.spark
@pytest.mark.parametrize("table", list(ORACLE))
def test_every_table_is_what_its_sources_say(demo: Run, table: str) -> None:
    _, state, con, _ = demo
    edge_us = state.tables[table].edge_us
    assert edge_us is not None and edge_us > NETWORK.origin_us
    edge = f"TIMESTAMPTZ '{moment(edge_us).isoformat()}'"
    assert_same(con, f"SELECT * FROM lake.{table}", ORACLE[table].replace("{edge}", edge), f"{table} up to {edge}")


@pytest.mark.spark
def test_the_summary(demo: Run) -> None:
    summary, state, _, printed = demo
    assert (summary.late_files, summary.repeated_files) == (4, 1)
    # On a slow machine the correction comes before the file was loaded, and is nothing special then.
    assert summary.corrected_files in (0, 1)
    assert (summary.quarantined_files, summary.quarantined_rows, summary.failures) == (1, 7, 0)
    assert summary.files == len(NETWORK.deliveries())
    assert summary.requests >= summary.files - 1
    assert 0 < summary.updates < summary.requests and summary.merged > 0 and summary.folded > 0
    assert summary.failed == ()
    assert {table.table for table in summary.tables} == set(state.tables)
    for table in summary.tables:
        assert table.mean_staleness_us is not None and table.peak_staleness_us is not None
        assert 0 < table.mean_staleness_us <= table.peak_staleness_us
    assert json.loads(json.dumps(summary.as_dict()))["updates"] == summary.updates
    assert "Starting Spark" in printed and "loading some hours of history" in printed and "feeds deliver" in printed
    console = Console(file=io.StringIO(), width=80)
    console.print(render_summary(summary))
    shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert f"{summary.updates} updates" in shown and f"answered {summary.requests} requests" in shown
    assert "1 malformed file and 7 bad rows" in shown and "alert_context 10 15m" in shown


def expected_rows(deliveries: list[DemoFile]) -> dict[str, int]:
    """How many rows each base table holds once everything is loaded: a name that comes again counts once."""
    last: dict[str, DemoFile] = {}
    for delivery in deliveries:
        last[delivery.path] = delivery
    counts = dict.fromkeys(FEEDS, 0)
    for delivery in last.values():
        counts[delivery.feed] += delivery.rows
    return counts
