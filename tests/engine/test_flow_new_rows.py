"""A flow whose activities let new rows pass works on them alone, and is the same as one that was made again from everything:
flows at random, files at random (late, rewritten and withdrawn ones, too), against DuckDB."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse, check
from tests.conftest import Write
from tests.engine.test_flow_life import put
from tests.oracle import assert_same, attach

pytestmark = pytest.mark.spark

TOML = """
    name = "fresh"
    [feeds.orders]
    path = "landing/orders-*.csv"
    format = "csv"
    columns = "id bigint, at timestamp, customer string, quantity int, price decimal(8,2)"
    time = "at"
    settle = "0s"
    partition = "day"
    [feeds.returned]
    path = "landing/returned-*.csv"
    format = "csv"
    columns = "id bigint, at timestamp, customer string, quantity int, price decimal(8,2)"
    time = "at"
    settle = "0s"
    partition = "day"
    [feeds.customers]
    path = "landing/customers-*.csv"
    format = "csv"
    columns = "customer string, country string"
    mode = "snapshot"
    settle = "0s"
"""
HEAD = "id,at,customer,quantity,price\n"
BEGIN = datetime(2024, 1, 1)
GOOD = "SELECT *, quantity * price AS total, date_trunc('day', \"at\") AS day FROM {} WHERE customer IS NOT NULL AND quantity >= 1"


class Drawn:
    """A flow at random, with the same in DuckDB's SQL for each of its tables."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.partition = chance.choice(["day", "day", "none"])
        two = chance.random() < 0.6
        self.tables: dict[str, str] = {}
        head = ', partition="day", time="day"' if self.partition == "day" else ""
        lines = [
            "import penstock as ps",
            f'@ps.flow(sources={{"customers": "everything"}}{head})' if head else "@ps.flow",
            f"def sales(orders, {'returned, ' if two else ''}customers):",
            '    known = customers.not_null("customer", bad="quarantine")',
            '    good = orders.not_null("customer", bad="quarantine").in_domain("quantity", low=1, bad="quarantine")'
            '.derive(total="quantity * price", day="date_trunc(\'day\', at)")',
        ]
        sql = GOOD.format("orders")
        if two:
            lines.append(
                '    back = returned.not_null("customer").in_domain("quantity", low=1).derive(total="quantity * price",'
                " day=\"date_trunc('day', at)\")"
            )
            lines.append("    good = good.union(back)")
            sql += " UNION ALL " + GOOD.format("returned")
        self.quarantine = chance.random() < 0.5
        found = "inner" if chance.random() < 0.5 else "left"
        rule = "default" if found == "left" else "quarantine" if self.quarantine else "reject"
        lines.append(f'    sold = good.look_up(known, on="customer", columns="country", bad="{rule}").into("sold")')
        sold = f"SELECT g.*, country FROM ({sql}) g {found.upper()} JOIN (SELECT * FROM customers WHERE customer IS NOT NULL) USING (customer)"
        self.tables["sold"] = sold
        keys = ["day"] if self.partition == "day" else []
        for number in range(chance.choice([1, 2, 4])):
            own = [*keys, *chance.sample(["country", "customer"], chance.choice([1, 2]))]
            measures = chance.sample(
                [
                    ("n", "count(*)"),
                    ("s", "sum(total)"),
                    ("hi", "max(price)"),
                    ("lo", "min(id)"),
                    ("mean", "avg(quantity)"),
                    ("share", "sum(quantity) + count(*)"),
                ],
                chance.choice([1, 2, 3]),
            )
            if number == 3:
                measures = self.same
            self.same = measures
            text = ", ".join(f'{name}="{value}"' for name, value in measures)
            lines.append(f'    sold.aggregate({own}, {text}).into("by_{number}")')
            values = ", ".join(f"{value} AS {name}" for name, value in measures)
            self.tables[f"by_{number}"] = f"SELECT {', '.join(own)}, {values} FROM ({sold}) GROUP BY {', '.join(own)}"
        if chance.random() < 0.5:
            lines.append('    big, small = sold.route("total > 20")')
            lines.append('    big.select("id", "day", "total").into("big")')
            self.tables["big"] = f"SELECT id, day, total FROM ({sold}) WHERE total > 20"
            lines.append('    small.select("id", "day").into("small")')
            self.tables["small"] = f"SELECT id, day FROM ({sold}) WHERE NOT coalesce(total > 20, false)"
        self.code = "\n".join(lines) + "\n"
        self.feeds = ("orders", "returned") if two else ("orders",)


def csv(chance: random.Random, day: int) -> str:
    lines = []
    for _ in range(chance.choice([1, 2, 4])):
        at = BEGIN + timedelta(days=day, minutes=chance.randrange(1440))
        customer = chance.choice(["ann", "bob", "cem", "dee", ""])
        lines.append(
            f"{chance.randrange(10**6)},{at.isoformat()}Z,{customer},{chance.randrange(5)},{chance.randrange(1500) / 100:.2f}"
        )
    return HEAD + "\n".join(lines) + "\n"


def people(chance: random.Random) -> str:
    names = chance.sample(["ann", "bob", "cem", "dee"], 3)
    return "customer,country\n" + "".join(f"{name},{chance.choice(['de', 'fr', 'it'])}\n" for name in (*names, ""))


def happens(chance: random.Random, folder: Path, feeds: tuple[str, ...], held: dict[str, str]) -> Iterator[str]:
    """What comes, one thing after the other; `held` is what every file says now."""
    for turn in range(7):
        feed = chance.choice(feeds)
        what = chance.choice(["new", "new", "new", "late", "rewritten", "withdrawn", "people"]) if turn > 1 else "new"
        mine = [name for name in held if name.startswith(feed)]
        if what == "people":
            name = f"customers-{turn}.csv"
            for old in [each for each in held if each.startswith("customers")]:
                del held[old]
            held[name] = people(chance)
            put(folder, name, held[name])
        elif what in ("rewritten", "withdrawn") and mine:
            name = chance.choice(mine)
            if what == "withdrawn":
                del held[name]
                yield f"withdraw {name}"
                continue
            held[name] = csv(chance, turn)
            put(folder, name, held[name])
        else:
            name = f"{feed}-{turn}.csv"
            held[name] = csv(chance, chance.randrange(turn) if what == "late" and turn else turn)
            put(folder, name, held[name])
        yield what


@pytest.mark.parametrize("seed", [2, 5, *(pytest.param(n, marks=pytest.mark.soak) for n in range(10, 26))])
def test_new_rows_are_enough(project: Write, spark: SparkSession, seed: int) -> None:
    chance, drawn = random.Random(seed), Drawn(seed)
    folder = project({"penstock.toml": TOML, "tables/sales.py": drawn.code})
    held = {"customers-0.csv": people(chance)}
    put(folder, "customers-0.csv", held["customers-0.csv"])
    for feed in drawn.feeds:
        held[f"{feed}-first.csv"] = csv(chance, 0)
        put(folder, f"{feed}-first.csv", held[f"{feed}-first.csv"])
    assert [each for each in check(folder) if each.severity == "error"] == [], drawn.code
    how: list[str] = []
    with Warehouse(folder, spark=spark) as warehouse:
        for what in happens(chance, folder, drawn.feeds, held):
            if what.startswith("withdraw "):
                name = what.removeprefix("withdraw ")
                warehouse.withdraw(f"landing/{name}")
            # Rows wait for the trailing edge: a marker of time moves it.
            state = warehouse.run(until_idle=True)
            assert not state.tables["sold"].error, state.tables["sold"].error
            how.append(state.tables["sold"].last_how)
            verify(folder, drawn, held, f"seed {seed}, after {what}\n{drawn.code}")
    assert "fold" in how, how


def verify(folder: Path, drawn: Drawn, held: dict[str, str], why: str) -> None:
    con = attach(folder)
    columns = (
        "{'id': 'BIGINT', 'at': 'TIMESTAMPTZ', 'customer': 'VARCHAR', 'quantity': 'INTEGER', 'price': 'DECIMAL(8,2)'}"
    )
    for feed in drawn.feeds:
        files = [str(folder / "landing" / name) for name in held if name.startswith(feed)]
        read = f"read_csv({files}, header=true, columns={columns})" if files else None
        empty = "SELECT 0::BIGINT id, now() AS \"at\", '' customer, 0 quantity, 0::DECIMAL(8,2) price WHERE false"
        con.execute(f"CREATE TEMP TABLE all_{feed} AS {f'SELECT * FROM {read}' if read else empty}")
    # Up to the trailing edge: the least of the newest times.
    edge = (
        "least("
        + ", ".join(f'(SELECT max("at") FROM all_{feed})' for feed in drawn.feeds)
        + ", 'infinity'::TIMESTAMPTZ)"
    )
    for feed in drawn.feeds:
        con.execute(f'CREATE TEMP VIEW {feed} AS SELECT * FROM all_{feed} WHERE "at" <= {edge}')
    (customers,) = [str(folder / "landing" / name) for name in held if name.startswith("customers")]
    con.execute(f"CREATE TEMP TABLE customers AS SELECT * FROM read_csv('{customers}', header=true)")
    for table, expected in drawn.tables.items():
        names = con.execute(f"SELECT * FROM ({expected}) LIMIT 0").description
        listed = ", ".join(f'CAST("{name[0]}" AS VARCHAR)' for name in names)
        assert_same(con, f"SELECT {listed} FROM lake.{table}", f"SELECT {listed} FROM ({expected})", f"{table}: {why}")
    bad = "SELECT count(*) FROM orders WHERE customer IS NULL OR quantity < 1"
    listed = "SELECT count(*) FROM lake.sales_quarantine WHERE activity IN ('not_null 2', 'in_domain')"
    assert_same(con, listed, bad, f"quarantine: {why}")


FACTS = """
    import penstock as ps


    @ps.flow(partition="day", time="day")
    def facts(orders):
        keyed = orders.surrogate_key("customer_key", of="customer", keys="customer_keys")
        sold = keyed.derive(day="date_trunc('day', at)").into("sold")
        sold.aggregate(["day", "customer_key"], n="count(*)").into("by_customer")
"""


def test_keys_of_a_table_with_partitions_are_added_and_old_rows_stay(project: Write, spark: SparkSession) -> None:
    chance = random.Random(1)
    folder = project({"penstock.toml": TOML, "tables/facts.py": FACTS})
    held = {f"orders-{day}.csv": csv(chance, day) for day in range(3)}
    for name, text in held.items():
        put(folder, name, text)
    assert [each for each in check(folder) if each.severity == "error"] == []
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        first = attach(folder).execute("SELECT * FROM lake.customer_keys").fetchall()
        held["orders-4.csv"] = HEAD + "1,2024-01-01T00:00:00Z,new,1,1.00\n2,2024-01-05T00:00:00Z,newer,1,1.00\n"
        held["orders-4.csv"] += "3,2024-01-05T10:00:00Z,new,1,1.00\n4,2024-01-02T10:00:00Z,ann,1,1.00\n"
        put(folder, "orders-4.csv", held["orders-4.csv"])
        state = warehouse.run(until_idle=True)
        assert state.tables["sold"].last_how == "fold", state.tables["sold"].error
        del held["orders-0.csv"]
        warehouse.withdraw("landing/orders-0.csv")
        state = warehouse.run(until_idle=True)
        assert state.tables["sold"].last_how == "flow" and not state.tables["sold"].error
    con = attach(folder)
    keys = con.execute("SELECT * FROM lake.customer_keys").fetchall()
    assert set(first) < set(keys)
    assert len({name for name, _ in keys}) == len({key for _, key in keys}) == len(keys)
    files = [str(folder / "landing" / name) for name in held]
    con.execute(f"CREATE TEMP VIEW orders AS SELECT * FROM read_csv({files}, header=true)")
    sold = "SELECT id, k.customer_key, CAST(o.at AS VARCHAR) FROM {} o JOIN lake.customer_keys k ON o.{} IS NOT DISTINCT FROM k.{}"
    assert_same(con, sold.format("lake.sold", *["customer_key"] * 2), sold.format("orders", *["customer"] * 2))
    counted = "SELECT date_trunc('day', o.at), customer_key, count(*) FROM lake.sold o GROUP BY 1, 2"
    assert_same(con, "SELECT day, customer_key, n FROM lake.by_customer", counted)
