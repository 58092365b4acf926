"""Flows in a warehouse: checked before they run, all targets published together, counted, quarantined, partitioned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse, check
from penstock.control.controller import Controller
from penstock.engine.flows.progress import FlowProgress
from penstock.engine.flows.work import FlowWork
from penstock.errors import PenstockError
from penstock.flows.report import FlowReport, load
from tests.conftest import Write
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

# Karagiannis et al. 2013, Fig. 1.
TOML = """
    name = "butterfly"
    [feeds.partsupp_in]
    path = "landing/partsupp-*.csv"
    format = "csv"
    columns = "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(12,2)"
    mode = "snapshot"
    settle = "0s"
    [feeds.supplier_in]
    path = "landing/supplier-*.csv"
    format = "csv"
    columns = "s_suppkey bigint, s_nationkey int, s_phone string"
    mode = "snapshot"
    settle = "0s"
"""
BUTTERFLY = """
    import penstock as ps


    @ps.flow
    def butterfly(partsupp_in, supplier_in):
        parts = (
            partsupp_in.not_null("ps_partkey", "ps_suppkey", bad="quarantine")
            .derive("Total Cost", total_cost="ps_availqty * ps_supplycost")
            .into("partsupp")
        )
        suppliers = (
            supplier_in.not_null("s_suppkey", bad="quarantine")
            .reformat("s_phone", r"^(\\d+)-(\\d+)-(\\d+)$", "+$1 $2$3", name="Phone Format")
            .into("supplier")
        )
        joined = parts.join(suppliers, condition="ps_suppkey = s_suppkey").into("parts_of_suppliers")
        first = joined.aggregate(["s_nationkey", "ps_partkey"], cost="sum(total_cost)").into("view_1")
        first.aggregate("ps_partkey", cost="sum(cost)").into("view_2")
        third = joined.aggregate(["s_nationkey", "ps_suppkey"], cost="sum(total_cost)").into("view_3")
        third.aggregate("ps_suppkey", cost="sum(cost)").into("view_4")
"""
PARTS = (
    "ps_partkey,ps_suppkey,ps_availqty,ps_supplycost\n1,10,2,1.50\n1,20,1,2.00\n2,10,4,0.25\n,10,1,1.00\n3,,1,1.00\n"
)
SUPPLIERS = "s_suppkey,s_nationkey,s_phone\n10,7,49-30-1234\n20,8,odd\n,9,1-2-3\n"


def put(folder: Path, name: str, text: str) -> None:
    (folder / "landing").mkdir(exist_ok=True)
    (folder / "landing" / f".{name}").write_text(text)
    (folder / "landing" / f".{name}").rename(folder / "landing" / name)


def report(warehouse: Warehouse, flow: str) -> FlowReport:
    with warehouse.store.read() as conn:
        return load(json.loads(warehouse.store.fact(conn, f"flow {flow}") or ""))


def test_the_butterfly_is_one_job(project: Write, spark: SparkSession) -> None:
    folder = project({"penstock.toml": TOML, "tables/butterfly.py": BUTTERFLY})
    put(folder, "partsupp-1.csv", PARTS)
    put(folder, "supplier-1.csv", SUPPLIERS)
    assert check(folder) == []
    with Warehouse(folder, spark=spark) as warehouse:
        asked = "SELECT activity, count(*) AS n FROM butterfly_quarantine GROUP BY activity ORDER BY activity"
        assert warehouse.query(asked).rows == []
        state = warehouse.run(until_idle=True)
        found = report(warehouse, "butterfly")
        assert [tuple(row) for row in warehouse.query(asked).rows] == [("not_null", 2), ("not_null 2", 1)]
        with pytest.raises(PenstockError, match=r"`butterfly` is a flow, which makes partsupp, .*flow show butterfly"):
            warehouse.explain("butterfly")
    con = attach(folder)
    assert rows(con, "SELECT s_suppkey, s_phone FROM lake.supplier") == [(10, "+49 301234"), (20, "odd")]
    assert rows(con, "SELECT * FROM lake.view_1") == [(7, 1, 3), (7, 2, 1), (8, 1, 2)]
    assert rows(con, "SELECT * FROM lake.view_2") == [(1, 5), (2, 1)]
    assert rows(con, "SELECT * FROM lake.view_4") == [(10, 4), (20, 2)]
    kept = rows(con, "SELECT activity, reason, json_extract_string(row, 'ps_partkey') FROM lake.butterfly_quarantine")
    assert kept == [
        ("not_null", "null in ps_partkey or ps_suppkey", "3"),
        ("not_null", "null in ps_partkey or ps_suppkey", None),
        ("not_null 2", "null in s_suppkey", None),
    ]
    # One job, one snapshot for all of them.
    targets = ("partsupp", "supplier", "parts_of_suppliers", "view_1", "view_2", "view_3", "view_4")
    assert len({state.tables[name].snapshot for name in targets}) == 1
    assert [state.tables[name].counts.updates for name in targets] == [1] * 7
    # Every row is accounted for.
    counted = {run.name: (run.rows_in, run.rows_out, run.rejected) for run in found.activities}
    assert counted == {
        "not_null": (5, 3, 2),
        "Total Cost": (3, 3, 0),
        "not_null 2": (3, 2, 1),
        "Phone Format": (2, 2, 0),
        "join": (5, 3, 0),
        "aggregate": (3, 3, 0),
        "aggregate 2": (3, 2, 0),
        "aggregate 3": (3, 2, 0),
        "aggregate 4": (2, 2, 0),
    }
    assert state.tables["partsupp"].counts.quarantined_rows == 3
    # What a step took is shared out among what it and its activities did.
    for step in found.steps:
        of_activities = sum(run.cpu_s for run in found.activities if run.step == step.name)
        assert 0 < of_activities < step.cpu_s


SALES = """
    name = "sales"
    [feeds.orders]
    path = "landing/*.csv"
    format = "csv"
    columns = "id bigint, at timestamp, customer string, quantity int, price decimal(10,2)"
    time = "at"
    partition = "day"
    settle = "0s"
"""
DAILY = '''
    import penstock as ps


    @ps.flow(partition="day", time="day")
    def daily(orders):
        """Orders and revenue of each day."""
        good = orders.in_domain("quantity", low=1, bad="quarantine").derive(day="date_trunc('day', at)", total="quantity * price")
        sold = good.into("sold")
        sold.aggregate(["day", "customer"], revenue="sum(total)").into("revenue")
'''


def test_a_flow_is_made_partition_by_partition(project: Write, spark: SparkSession) -> None:
    folder = project({"penstock.toml": SALES, "tables/daily.py": DAILY})
    (folder / "tables/total.sql").write_text(
        "SELECT customer, sum(revenue) AS revenue FROM revenue GROUP BY customer\n"
    )
    head = "id,at,customer,quantity,price\n"
    put(
        folder,
        "1.csv",
        head + "1,2024-01-01T10:00:00Z,a,2,1.5\n2,2024-01-02T10:00:00Z,a,0,1\n3,2024-01-02T11:00:00Z,b,1,4\n",
    )
    assert check(folder) == []
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        first = warehouse.state().tables["revenue"].snapshot
        # A late row of the first day: that day is made again, in both tables, and nothing else.
        put(folder, "2.csv", head + "4,2024-01-01T12:00:00Z,c,1,7\n5,2024-01-02T13:00:00Z,b,1,1\n")
        state = warehouse.run(until_idle=True)
    con = attach(folder)
    sql = "SELECT strftime(day, '%d'), customer, revenue FROM lake.revenue"
    assert rows(con, sql) == [("01", "a", 3), ("01", "c", 7), ("02", "b", 5)]
    assert rows(con, "SELECT * FROM lake.total") == [("a", 3), ("b", 5), ("c", 7)]
    assert rows(con, "SELECT count(*) FROM lake.sold") == [(4,)]
    assert state.tables["revenue"].snapshot == state.tables["sold"].snapshot > first
    assert state.tables["revenue"].edge_us == state.tables["sold"].edge_us
    assert state.tables["total"].reflects == state.tables["sold"].reflects


STOPPED = """
    from pathlib import Path

    import penstock as ps

    SLEEP = Path(__file__).parents[1] / "sleep"
    COLUMNS = "day timestamp, customer string, total decimal(21,2)"


    def slowly(rows):
        if not SLEEP.exists():
            return rows
        sleeps = "if(java_method('java.lang.Thread', 'sleep', 600000L) = '', cast(0 as decimal(21,2)), total) as total"
        return rows.selectExpr("day", "customer", sleeps)


    @ps.flow(partition="day", time="day", overrun="preempt")
    def daily(orders):
        totals = orders.select("customer", day="date_trunc('day', at)", total="quantity * price").select("day", "customer", "total")
        sold = totals.apply(slowly, gives=COLUMNS).into("sold")
        sold.aggregate(["day", "customer"], revenue="sum(total)").into("revenue")
"""


def test_a_backfill_of_any_of_its_tables_is_one_of_the_flow_and_can_be_stopped(
    project: Write, spark: SparkSession
) -> None:
    folder = project({"penstock.toml": SALES, "tables/daily.py": STOPPED})
    head = "id,at,customer,quantity,price\n"
    put(folder, "1.csv", head + "1,2024-01-01T10:00:00Z,a,2,1.5\n2,2024-01-02T10:00:00Z,a,3,1\n")
    assert check(folder) == []
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        assert [work.table for work in warehouse.plan(("revenue", "2024-01-01")).work] == ["sold", "revenue"]
        # A job that would sleep for ten minutes, with all its steps, ends when a change of the same day comes.
        (folder / "sleep").touch()
        assert warehouse.backfill("revenue", "2024-01-01").request.table == "sold"

        def on_round(controller: Controller) -> None:
            if controller.state.tables["sold"].running and not (folder / "landing/2.csv").exists():
                put(folder, "2.csv", head + "3,2024-01-01T12:00:00Z,b,1,7\n")
            if controller.state.tables["sold"].overrun:
                (folder / "sleep").unlink(missing_ok=True)

        state = warehouse.run(until_idle=True, on_round=on_round)
        with warehouse.store.read() as conn:
            kinds = [event.kind for _, event in warehouse.store.events(conn)]
            assert list(warehouse.catalogue.unknown_files(conn)) == []
        assert kinds.count("update-stopped") == 1 and "update-failed" not in kinds
        assert [each.stage for each in warehouse.requests()] == ["done"]
    sql = "SELECT strftime(day, '%d'), customer, revenue FROM lake.revenue"
    assert rows(attach(folder), sql) == [("01", "a", 3), ("01", "b", 7), ("02", "a", 3)]
    assert state.tables["revenue"].snapshot == state.tables["sold"].snapshot


PEOPLE = """
    name = "people"
    [feeds.people]
    path = "landing/*.csv"
    format = "csv"
    columns = "name string, city string, since timestamp"
    mode = "snapshot"
    settle = "0s"
"""
DIMENSIONS = """
    import penstock as ps


    @ps.flow
    def dimensions(people):
        known = people.deduplicate("name", order="since desc", bad="fail")
        known.surrogate_key("person_key", of="name", keys="person_keys").into("people_with_keys")
        known.difference("person_now", key="name").into("changes")
        known.scd1("person_now", key="name")
        known.scd2("person", key="name", at="since")
"""


def test_dimensions_grow_with_what_comes(project: Write, spark: SparkSession) -> None:
    folder = project({"penstock.toml": PEOPLE, "tables/dimensions.py": DIMENSIONS})
    head = "name,city,since\n"
    put(folder, "1.csv", head + "ann,rome,2024-01-01T00:00:00Z\nbob,oslo,2024-01-01T00:00:00Z\n")
    assert check(folder) == []
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        put(folder, "2.csv", head + "cid,bonn,2024-02-01T00:00:00Z\nann,lyon,2024-02-01T00:00:00Z\n")
        warehouse.run(until_idle=True)
        con = attach(folder)
        assert rows(con, "SELECT * FROM lake.person_keys") == [("ann", 1), ("bob", 2), ("cid", 3)]
        assert rows(con, "SELECT name, person_key FROM lake.people_with_keys") == [("ann", 1), ("cid", 3)]
        assert rows(con, "SELECT name, city, change FROM lake.changes") == [
            ("ann", "lyon", "update"),
            ("bob", "oslo", "delete"),
            ("cid", "bonn", "insert"),
        ]
        assert rows(con, "SELECT name, city FROM lake.person_now") == [
            ("ann", "lyon"),
            ("bob", "oslo"),
            ("cid", "bonn"),
        ]
        assert rows(con, "SELECT name, city, valid_to IS NULL, is_current FROM lake.person") == [
            ("ann", "lyon", True, True),
            ("ann", "rome", False, False),
            ("bob", "oslo", True, True),
            ("cid", "bonn", True, True),
        ]
        # A rule that says fail: nothing of it is published, and trying again is of no use.
        put(folder, "3.csv", head + "ann,nice,2024-03-01T00:00:00Z\nann,metz,2024-03-01T00:00:00Z\n")
        state = warehouse.run(until_idle=True)
    assert "rows: another row has the same name" in (state.tables["person_keys"].error or "")
    assert rows(attach(folder), "SELECT city FROM lake.person_now WHERE name = 'ann'") == [("lyon",)]


def expected(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    con = attach(folder)
    return {name: rows(con, f"SELECT * FROM lake.{name}") for name in TARGETS}


TARGETS = ("partsupp", "supplier", "parts_of_suppliers", "view_1", "view_2", "view_3", "view_4")


class Killed(BaseException):
    pass


def test_killed_or_failed_in_the_middle_of_each_stratum(
    project: Write, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever moment it is: nothing is published, nothing is left over, and the next try gives the same tables."""
    folder = project({"penstock.toml": TOML, "tables/butterfly.py": BUTTERFLY})
    put(folder, "partsupp-1.csv", PARTS)
    put(folder, "supplier-1.csv", SUPPLIERS)
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
    truth = expected(folder)
    stop: list[tuple[str, type[BaseException]]] = []

    def step(_work: FlowWork, name: str) -> None:
        if stop and stop[0][0] == name:
            raise stop.pop()[1](name)

    monkeypatch.setattr(FlowWork, "step", step)
    for number, (moment, kind) in enumerate(
        (
            ("supplier begins", Killed),
            ("partsupp done", RuntimeError),
            ("view_1 begins", Killed),
            ("view_3 done", RuntimeError),
            ("view_4 done", Killed),
        ),
        2,
    ):
        # With one more bad row: the same rows again would be no change.
        put(folder, f"partsupp-{number}.csv", f"{PARTS},10,{number},1.00\n")
        stop.append((moment, kind))
        with Warehouse(folder, spark=spark) as warehouse:
            before = warehouse.state().tables["view_4"].snapshot
            if kind is Killed:
                with pytest.raises(Killed):
                    warehouse.run(until_idle=True)
                assert warehouse.state().tables["view_4"].snapshot == before
        with Warehouse(folder, spark=spark) as warehouse:
            state = warehouse.run(until_idle=True)
            found = report(warehouse, "butterfly")
            with warehouse.store.read() as conn:
                assert list(warehouse.catalogue.unknown_files(conn)) == []
        assert not stop and expected(folder) == truth
        assert state.tables["view_4"].snapshot > before
        assert found.rejected == 4
        # What had been made before the failure is used.
        assert any(each.reused for each in found.steps) == (kind is RuntimeError)
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()  # nothing is kept


STAGING = """
    import penstock as ps


    @ps.flow
    def staging(partsupp_in):
        found = partsupp_in.deduplicate(["ps_partkey", "ps_suppkey"], order="ps_availqty")
        found = found.aggregate(["ps_partkey", "ps_suppkey"], quantity="sum(ps_availqty)", cost="sum(ps_supplycost)")
        for name in ("ps_partkey", "ps_suppkey", "cost"):
            found.aggregate(name, quantity="sum(quantity)", cost2="sum(cost)").into(f"by_{name}")
"""


def test_what_is_staged_is_measured_kept_for_a_retry_and_let_go(
    project: Write, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project({"penstock.toml": TOML, "tables/staging.py": STAGING})
    put(folder, "partsupp-1.csv", PARTS)
    put(folder, "supplier-1.csv", SUPPLIERS)
    seen: list[FlowProgress] = []
    failing = ["by_cost begins"]

    def step(work: FlowWork, name: str) -> None:
        seen.extend(work.watched.progress())
        if name in failing:
            failing.remove(name)
            raise RuntimeError(name)

    monkeypatch.setattr(FlowWork, "step", step)
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        found = report(warehouse, "staging")
    assert not failing and state.tables["by_cost"].counts.updates == 1
    (staged,) = [each for each in found.steps if each.place is not None]
    assert staged.place == "memory" and staged.staged_bytes > 0 and staged.reused
    assert found.peak_memory_bytes >= staged.staged_bytes and found.peak_disk_bytes == 0
    assert {(each.flow, each.steps) for each in seen} == {("staging", 4)}
    assert seen[0].done == 0 and seen[-1].done >= 1 and any(each.running for each in seen)
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


LOADING = """
    import penstock as ps


    @ps.flow(feed="orders", partition="day", time="at")
    def loading(orders):
        good = orders.not_null("customer", bad="quarantine").derive(total="quantity * price")
        large, small = good.route("total >= 10")
        large.into("large_orders")
        small.into("small_orders")
"""


def test_the_transform_of_base_tables_is_a_flow(project: Write, spark: SparkSession) -> None:
    folder = project({"penstock.toml": SALES.replace('    partition = "day"\n', ""), "tables/loading.py": LOADING})
    head = "id,at,customer,quantity,price\n"
    put(
        folder,
        "1.csv",
        head + "1,2024-01-01T10:00:00Z,a,2,5\n2,2024-01-02T10:00:00Z,,1,1\n3,2024-01-02T11:00:00Z,b,1,4\n",
    )
    put(folder, "2.csv", head + "4,2024-01-02T12:00:00Z,c,9,9\n")
    assert check(folder) == []
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        con = attach(folder)
        assert rows(con, "SELECT id, total FROM lake.large_orders") == [(1, 10), (4, 81)]
        assert rows(con, "SELECT id, total FROM lake.small_orders") == [(3, 4)]
        # A file that comes again with other content: both tables forget the old one.
        put(folder, "1.csv", head + "1,2024-01-01T10:00:00Z,a,1,5\n3,2024-01-02T11:00:00Z,b,9,4.5\n")
        state = warehouse.run(until_idle=True)
    con = attach(folder)
    assert rows(con, "SELECT id, total FROM lake.large_orders") == [(3, 40.5), (4, 81)]
    assert rows(con, "SELECT id, total FROM lake.small_orders") == [(1, 5)]
    assert rows(con, "SELECT count(*) FROM lake.loading_quarantine") == [(0,)], "the file has no bad row any more"
    assert state.tables["large_orders"].snapshot == state.tables["small_orders"].snapshot
