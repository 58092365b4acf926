"""The shapes that flows are composed of, as flows that run, over tables of TPC-H.

Karagiannis, Vassiliadis and Simitsis (2013), Fig. 1 and Sec. 7.1: line, wishbone, primary flow, tree, fork, butterfly.
`selectivity` is the share of rows that pass the first check of each source.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.declare.flow import Rows, flow
from penstock.declare.flow_check import SparkSql
from penstock.errors import PenstockError
from penstock.flows.description import Flow, TypedFlow, typed
from penstock.model.schema import Schema, ddl, parse_ddl

COLUMNS: dict[str, Schema] = {
    name: parse_ddl(columns)
    for name, columns in {
        "part": "p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, "
        "p_container string, p_retailprice decimal(15,2), p_comment string",
        "supplier": "s_suppkey bigint, s_name string, s_address string, s_nationkey bigint, s_phone string, "
        "s_acctbal decimal(15,2), s_comment string",
        "partsupp": "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(15,2), ps_comment string",
        "customer": "c_custkey bigint, c_name string, c_address string, c_nationkey bigint, c_phone string, "
        "c_acctbal decimal(15,2), c_mktsegment string, c_comment string",
        "orders": "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal(15,2), o_orderdate date, "
        "o_orderpriority string, o_clerk string, o_shippriority int, o_comment string",
        "lineitem": "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(15,2), "
        "l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string, "
        "l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string, "
        "l_shipmode string, l_comment string",
    }.items()
}
TOTAL_COST = "l_extendedprice * (1 - l_discount)"


class NoGenerator(PenstockError):
    pass


def generate(folder: Path, scale: float) -> Path:
    """Tables of TPC-H as Parquet files, made once for each scale."""
    place = folder / f"tpch-{scale:g}"
    if not (place / "lineitem.parquet").exists():
        program = shutil.which("tpcgen-cli", path=str(Path(sys.executable).parent)) or shutil.which("tpcgen-cli")
        if program is None:
            raise NoGenerator("tpcgen-cli is not installed; type `pip install tpcgen-cli`")
        place.mkdir(parents=True, exist_ok=True)
        tables = ",".join(COLUMNS)
        command = [program, "tpch", "parquet", "-s", f"{scale:g}", "--tables", tables, "--output-dir", str(place)]
        subprocess.run(command, check=True, capture_output=True)
    return place


def read(session: SparkSession, place: Path, table: str) -> DataFrame:
    return session.read.schema(ddl(COLUMNS[table])).parquet(str(place / f"{table}.parquet"))


def in_packs(session: SparkSession, place: Path, table: str, packs: int) -> list[DataFrame]:
    """The rows of a table in so many files, each a frame of its own."""
    cut = place / f"{table}-in-{packs}"
    if not cut.exists():
        read(session, place, table).repartition(packs).write.parquet(str(cut))
    files = sorted(str(path) for path in cut.glob("*.parquet"))
    return [session.read.schema(ddl(COLUMNS[table])).parquet(file) for file in files]


def passing(key: str, selectivity: float) -> str:
    """A condition that this share of the rows meets, by their key."""
    return f"pmod(hash({key}), 1000) < {round(selectivity * 1000)}"


def line(selectivity: float = 0.9) -> Flow:
    """Checks, a transformation and an aggregation of one table."""

    @flow
    def line(partsupp: Rows) -> None:
        good = partsupp.not_null("ps_partkey", "ps_suppkey").filter(passing("ps_partkey", selectivity))
        costs = good.in_domain("ps_availqty", low=1).derive("Total Cost", total_cost="ps_availqty * ps_supplycost")
        costs.aggregate("ps_partkey", cost="sum(total_cost)").into("cost_of_part")

    return _flow(line)


def _cleansed(partsupp: Rows, supplier: Rows, selectivity: float) -> tuple[Rows, Rows]:
    parts = partsupp.not_null("ps_partkey", "ps_suppkey").filter(passing("ps_partkey", selectivity))
    parts = parts.derive("Total Cost", total_cost="ps_availqty * ps_supplycost")
    suppliers = supplier.not_null("s_suppkey").filter(passing("s_suppkey", selectivity))
    suppliers = suppliers.reformat("s_phone", r"^(\d+)-(\d+)-(\d+)-(\d+)$", "+$1 $2 $3$4", name="Phone Format")
    return parts, suppliers


def wishbone(selectivity: float = 0.9) -> Flow:
    """Two lines that are joined into one."""

    @flow
    def wishbone(partsupp: Rows, supplier: Rows) -> None:
        parts, suppliers = _cleansed(partsupp, supplier, selectivity)
        parts.join(suppliers, condition="ps_suppkey = s_suppkey").into("supplied_parts")

    return _flow(wishbone)


def primary_flow(selectivity: float = 0.9) -> Flow:
    """One look-up after the other."""

    @flow
    def primary_flow(lineitem: Rows, part: Rows, supplier: Rows, orders: Rows) -> None:
        good = lineitem.not_null("l_orderkey", "l_partkey", "l_suppkey").filter(passing("l_orderkey", selectivity))
        parts = part.select("p_brand", l_partkey="p_partkey")
        suppliers = supplier.select("s_nationkey", l_suppkey="s_suppkey")
        ordered = orders.select("o_custkey", l_orderkey="o_orderkey")
        found = good.look_up(parts, "l_partkey").look_up(suppliers, "l_suppkey").look_up(ordered, "l_orderkey")
        found.into("lineitem_with_keys")

    return _flow(primary_flow)


def tree(selectivity: float = 0.9) -> Flow:
    """Several tables joined, then aggregated."""

    @flow
    def tree(lineitem: Rows, orders: Rows, customer: Rows) -> None:
        customers = customer.not_null("c_custkey").filter(passing("c_custkey", selectivity))
        ordered = orders.not_null("o_orderkey", "o_custkey").filter(passing("o_orderkey", selectivity))
        lines = lineitem.not_null("l_orderkey").filter(passing("l_orderkey", selectivity))
        whose = ordered.join(customers, condition="o_custkey = c_custkey")
        sold = lines.derive("Total Cost", total_cost=TOTAL_COST).join(whose, condition="l_orderkey = o_orderkey")
        sold.aggregate(["c_mktsegment", "c_nationkey"], revenue="sum(total_cost)").into("revenue_of_segment")

    return _flow(tree)


FORKS = {
    "part": ["l_partkey"],
    "supplier": ["l_suppkey"],
    "nation": ["s_nationkey", "l_returnflag"],
    "day": ["l_shipdate"],
    "mode": ["l_shipmode", "l_linestatus"],
    "receipt": ["l_receiptdate", "l_returnflag"],
}


def fork(selectivity: float = 0.9) -> Flow:
    """One cleansed table, six aggregations of it."""

    @flow
    def fork(lineitem: Rows, supplier: Rows) -> None:
        good = lineitem.not_null("l_orderkey", "l_partkey", "l_suppkey").filter(passing("l_orderkey", selectivity))
        good = good.matches("l_comment", "^[A-Za-z ,.?!;:'-]+$").in_domain("l_discount", low=0, high=1)
        suppliers = supplier.select("s_nationkey", l_suppkey="s_suppkey")
        found = good.look_up(suppliers, "l_suppkey").derive("Total Cost", total_cost=TOTAL_COST)
        for name, by in FORKS.items():
            measures = {"cost": "sum(total_cost)", "quantity": "sum(l_quantity)", "n": "count(*)"}
            found.aggregate(by, **measures).into(f"cost_of_{name}")

    return _flow(fork)


def butterfly(selectivity: float = 0.9) -> Flow:
    """Fig. 1: two tables are cleansed and loaded, joined, and the join is aggregated into four views."""

    @flow
    def butterfly(partsupp: Rows, supplier: Rows) -> None:
        parts, suppliers = _cleansed(partsupp, supplier, selectivity)
        joined = parts.into("dw_partsupp").join(suppliers.into("dw_supplier"), condition="ps_suppkey = s_suppkey")
        first = joined.aggregate(["s_nationkey", "ps_partkey"], cost="sum(total_cost)").into("view_1")
        first.aggregate("ps_partkey", cost="sum(cost)").into("view_2")
        third = joined.aggregate(["s_nationkey", "ps_suppkey"], cost="sum(total_cost)").into("view_3")
        third.aggregate("ps_suppkey", cost="sum(cost)").into("view_4")

    return _flow(butterfly)


def _flow(declared: object) -> Flow:
    found: Flow = declared.flow  # type: ignore[attr-defined]
    return found


ARCHETYPES: dict[str, Callable[[float], Flow]] = {
    make.__name__: make for make in (line, wishbone, primary_flow, tree, fork, butterfly)
}


def checked(found: Flow) -> TypedFlow:
    """The flow with the columns of TPC-H at every step."""
    shaped, wrong = typed(found, COLUMNS, SparkSql())
    assert not wrong, wrong
    return shaped
