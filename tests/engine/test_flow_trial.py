"""Flows on a few rows: nothing is published, every activity tells its rows; tests of flows in files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.errors import PenstockError
from tests.conftest import Write
from tests.engine.test_flow_life import put

pytestmark = pytest.mark.spark

TOML = """
    name = "tried"
    [feeds.orders]
    path = "landing/orders-*.csv"
    format = "csv"
    columns = "id bigint, at timestamp, customer bigint, quantity int"
    time = "at"
    partition = "day"
    settle = "0s"
    [feeds.customers]
    path = "landing/customers-*.csv"
    format = "csv"
    columns = "customer bigint, country string"
    mode = "snapshot"
    settle = "0s"
"""
FLOW = """
    import penstock as ps


    @ps.flow(partition="day", time="day", sources={"customers": "everything"})
    def sales(orders, customers):
        good = orders.not_null("customer", bad="quarantine").derive(day=":partition_start", twice="quantity * 2")
        sold = good.look_up(customers, on="customer", columns=["country"]).into("sold")
        sold.aggregate(["day", "country"], n="count(*)").into("by_country")


    @ps.flow
    def people(customers):
        keyed = customers.surrogate_key("sk", of=["customer"], keys="person_keys").into("persons")
"""
CASES = {
    "tests/sales/good/case.toml": 'partition = "2024-03-01"\n',
    "tests/sales/good/in/orders.csv": "id,at,customer,quantity\n1,2024-03-01T01:00:00Z,7,2\n2,2024-03-01T02:00:00Z,,1\n",
    "tests/sales/good/in/customers.csv": "customer,country\n7,DE\n",
    "tests/sales/good/out/by_country.csv": "country,n\nDE,1\n",
    "tests/sales/good/out/sold.json": '{"id": 1, "at": "2024-03-01T01:00:00Z", "customer": 7, "quantity": 2, '
    '"day": "2024-03-01T00:00:00Z", "twice": 4, "country": "DE"}\n',
    "tests/sales/wrong/case.toml": 'partition = "2024-03-01"\n',
    "tests/sales/wrong/in/orders.csv": "id,customer,quantity\n1,7,2\n",
    "tests/sales/wrong/in/customers.csv": "customer,country\n7,DE\n",
    "tests/sales/wrong/out/by_country.csv": "country,n\nFR,1\n",
    "tests/sales/unsaid/in/orders.csv": "id\n1\n",
    "tests/sales/unsaid/out/sold.csv": "id\n1\n",
    "tests/people/known/in/customers.csv": "customer,country\n7,DE\n8,FR\n",
    "tests/people/known/in/person_keys.csv": "customer,sk\n7,5\n",
    "tests/people/known/out/persons.csv": "customer,sk\n7,5\n8,6\n",
}  # fmt: skip


def test_flows_are_tried_before_they_run(tmp_path: Path, spark: SparkSession, project: Write) -> None:
    folder = project({"penstock.toml": TOML, "tables/flows.py": FLOW, **CASES})
    with Warehouse(folder, spark=spark) as warehouse:
        results = {(each.case, each.table): each for each in warehouse.trials.test("sales")}
        assert results["good", "by_country"].good and results["good", "sold"].good, results
        assert results["wrong", "by_country"].missing == ("country=FR, n=1",)
        assert results["wrong", "by_country"].extra == ("country=DE, n=1",)
        assert "tests/sales/unsaid/case.toml" in results["unsaid", ""].error
        assert [each.good for each in warehouse.trials.test("people")] == [True]
        with pytest.raises(PenstockError, match="did you mean `sales`"):
            warehouse.trials.test("sale")
        put(folder, "orders-1.csv", "id,at,customer,quantity\n" + "".join(
            f"{n},2024-03-0{1 + n % 2}T01:00:00Z,{n % 3 if n % 5 else ''},1\n" for n in range(40)
        ))  # fmt: skip
        put(folder, "customers-1.csv", "customer,country\n0,DE\n1,FR\n")
        warehouse.run(until_idle=True)
        before = warehouse.catalogue.snapshot(warehouse.store.engine.connect())
        tried = warehouse.trials.sample("sales", 10, show=2, partition="2024-03-01")
        told = {step.name: (step.rows_in, step.rows_out, step.rejected) for step in tried.steps}
        assert told["orders"][1] == 10 and told["customers"][1] == 2
        (taken, left, bad) = told["not_null"]
        assert taken == 10 and left + bad == 10
        assert all(len(step.rows) == min(2, step.rows_out) for step in tried.steps)
        assert warehouse.catalogue.snapshot(warehouse.store.engine.connect()) == before
        with pytest.raises(PenstockError, match=r"asks for :partition_start; say for which partition"):
            warehouse.trials.sample("sales")
        # Bad rows are kept with their partition.
        kept = warehouse.query(
            "select activity, partition, count(*) from sales_quarantine group by 1, 2 order by 2"
        ).rows
        assert [(row[0], row[1].day, row[2]) for row in kept] == [("not_null", 1, 4), ("not_null", 2, 4)]
        # After a fix they are looked at again: only their partitions are made again.
        _, asked = warehouse.replay("sales")
        assert [(each.request.table, each.request.partitions) for each in asked] == [("sold", 2)]
        warehouse.run(until_idle=True)
        again = warehouse.query("select count(*), count(distinct job) from sales_quarantine").rows
        assert tuple(again[0]) == (8, 1)
        assert warehouse.replay("orders")[0].taken == ()
        with pytest.raises(PenstockError, match="`sale` has no quarantine; did you mean `sales`"):
            warehouse.replay("sale")


def test_rows_that_were_refused_come_back_after_a_fix(tmp_path: Path, spark: SparkSession, project: Write) -> None:
    settings = TOML.partition("[feeds.customers]")[0]
    folder = project({"penstock.toml": settings})
    put(folder, "orders-1.csv", "id,at,customer,quantity\n1,2024-03-01,7,2\n2,01.03.2024 05:00,7,1\n")
    put(folder, "orders-2.csv", "id,at,customer,quantity\n3,02.03.2024 05:00,7,1\n")
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        assert [row[0] for row in warehouse.query("select id from orders").rows] == [1]
        assert [tuple(row) for row in warehouse.query("select count(*) from orders_quarantine").rows] == [(2,)]
    said = 'options = { timestampFormat = "[dd.MM.yyyy HH:mm][yyyy-MM-dd]" }'
    project({"penstock.toml": settings + f"    {said}\n"})
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        assert [row[0] for row in warehouse.query("select id from orders").rows] == [1]
        assert len(warehouse.replay("orders")[0].taken) == 2
        warehouse.run(until_idle=True)
        assert [row[0] for row in warehouse.query("select id from orders order by id").rows] == [1, 2, 3]
        assert [tuple(row) for row in warehouse.query("select count(*) from orders_quarantine").rows] == [(0,)]
