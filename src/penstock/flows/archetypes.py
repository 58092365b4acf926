"""The shapes that flows are composed of: line, wishbone, primary flow, tree, fork, butterfly.

Karagiannis, Vassiliadis and Simitsis (2013), Fig. 1 and Sec. 7.1, over tables of TPC-H. `scale` is the scale factor of
TPC-H, `selectivity` the share of rows that pass each cleansing activity. Costs are rough figures of one core.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.flows.graph import FlowGraph, Node, NodeKind

# Columns of TPC-H that the archetypes use, with their bytes.
WIDTHS: dict[str, dict[str, float]] = {
    "partsupp": {"ps_partkey": 8, "ps_suppkey": 8, "ps_availqty": 4, "ps_supplycost": 8, "ps_comment": 124},
    "supplier": {
        "s_suppkey": 8,
        "s_name": 18,
        "s_address": 25,
        "s_nationkey": 4,
        "s_phone": 15,
        "s_acctbal": 8,
        "s_comment": 63,
    },
    "lineitem": {
        "l_orderkey": 8,
        "l_partkey": 8,
        "l_suppkey": 8,
        "l_quantity": 8,
        "l_extendedprice": 8,
        "l_discount": 8,
        "l_returnflag": 1,
        "l_shipdate": 4,
        "l_shipmode": 6,
        "l_comment": 27,
    },
    "orders": {"o_orderkey": 8, "o_custkey": 8, "o_orderdate": 4, "o_totalprice": 8, "o_comment": 49},
    "customer": {"c_custkey": 8, "c_name": 18, "c_nationkey": 4, "c_mktsegment": 9, "c_comment": 73},
    "lookup_part": {"l_partkey": 8, "part_sk": 8},
    "lookup_supplier": {"l_suppkey": 8, "supplier_sk": 8},
    "lookup_order": {"l_orderkey": 8, "order_sk": 8},
}
ROWS = {
    "partsupp": 800_000,
    "supplier": 10_000,
    "lineitem": 6_000_000,
    "orders": 1_500_000,
    "customer": 150_000,
    "lookup_part": 200_000,
    "lookup_supplier": 10_000,
    "lookup_order": 1_500_000,
}
_MADE = {"total_cost": 8.0, "measure": 8.0, "rows": 8.0}
_ALL_WIDTHS = {column: width for table in WIDTHS.values() for column, width in table.items()} | _MADE

READ_US, CHECK_US, COMPUTE_US, JOIN_US, AGGREGATE_US, WRITE_US = 0.8, 0.2, 0.5, 2.0, 1.5, 1.0


class _Builder:
    """A graph in the making; each method adds a node behind others and gives its name."""

    def __init__(self, name: str, scale: float) -> None:
        self.name, self.scale = name, scale
        self.nodes: dict[str, Node] = {}
        self.edges: list[tuple[str, str]] = []

    def _add(self, node: Node, *providers: str) -> str:
        self.nodes[node.name] = node
        self.edges += [(provider, node.name) for provider in providers]
        return node.name

    def _passed(self, *providers: str) -> frozenset[str]:
        return frozenset().union(*(self.nodes[provider].columns for provider in providers))

    def source(self, table: str) -> str:
        columns = WIDTHS[table]
        return self._add(
            Node(
                table,
                NodeKind.SOURCE,
                rows=ROWS[table] * self.scale,
                cost_per_row_us=READ_US,
                columns=frozenset(columns),
                column_bytes=tuple(columns.items()),
            )
        )

    def activity(
        self,
        name: str,
        *providers: str,
        reads: str,
        makes: str = "",
        selectivity: float = 1.0,
        cost: float = CHECK_US,
        blocking: bool = False,
    ) -> str:
        columns = self._passed(*providers) | frozenset(makes.split())
        node = Node(
            name,
            NodeKind.ACTIVITY,
            blocking,
            selectivity=selectivity,
            cost_per_row_us=cost,
            columns=columns,
            reads=frozenset(reads.split()),
            makes=frozenset(makes.split()),
            column_bytes=tuple(sorted((column, _ALL_WIDTHS[column]) for column in columns)),
        )
        return self._add(node, *providers)

    def join(self, name: str, left: str, right: str, on: str, selectivity: float, *, blocking: bool = True) -> str:
        """Sort-merge by default; with `blocking=False` a look-up that pipelines its left input."""
        return self.activity(
            name, left, right, reads=on, selectivity=selectivity, cost=JOIN_US if blocking else 0.6, blocking=blocking
        )

    def aggregate(self, name: str, provider: str, by: str, measure: str, selectivity: float) -> str:
        keys = frozenset(by.split())
        columns = keys | {"measure", "rows"}
        node = Node(
            name,
            NodeKind.ACTIVITY,
            blocking=True,
            selectivity=selectivity,
            cost_per_row_us=AGGREGATE_US,
            columns=columns,
            reads=keys | frozenset(measure.split()),
            makes=frozenset({"measure", "rows"}),
            column_bytes=tuple(sorted((column, _ALL_WIDTHS[column]) for column in columns)),
        )
        return self._add(node, provider)

    def target(self, name: str, provider: str) -> str:
        made = self.nodes[provider]
        node = Node(
            name, NodeKind.TARGET, cost_per_row_us=WRITE_US, columns=made.columns, column_bytes=made.column_bytes
        )
        return self._add(node, provider)

    def graph(self) -> FlowGraph:
        return FlowGraph(tuple(self.nodes.values()), tuple(self.edges), self.name)


def line(scale: float = 1.0, selectivity: float = 0.9) -> FlowGraph:
    """Filters, a transformation and an aggregation over one table on the way to one target."""
    flow = _Builder("line", scale)
    last = flow.activity("not_null", flow.source("partsupp"), reads="ps_partkey ps_suppkey", selectivity=selectivity)
    last = flow.activity("in_domain", last, reads="ps_availqty ps_supplycost", selectivity=selectivity)
    last = flow.activity(
        "total_cost", last, reads="ps_availqty ps_supplycost", makes="total_cost", selectivity=1.0, cost=COMPUTE_US
    )
    last = flow.aggregate("sum_by_part", last, "ps_partkey", "total_cost", 0.25)
    flow.target("cost_of_part", last)
    return flow.graph()


def _two_lines(flow: _Builder, selectivity: float) -> tuple[str, str]:
    """The left wing of Fig. 1."""
    parts = flow.activity(
        "not_null_partsupp", flow.source("partsupp"), reads="ps_partkey ps_suppkey", selectivity=selectivity
    )
    parts = flow.activity("total_cost", parts, reads="ps_availqty ps_supplycost", makes="total_cost", cost=COMPUTE_US)
    suppliers = flow.activity("not_null_supplier", flow.source("supplier"), reads="s_suppkey", selectivity=selectivity)
    suppliers = flow.activity("phone_format", suppliers, reads="s_phone", makes="s_phone", cost=COMPUTE_US)
    return parts, suppliers


def _match(selectivity: float) -> float:
    """Rows out of the join of Fig. 1 over the rows of both inputs: a part's row stays if its supplier did."""
    return selectivity * ROWS["partsupp"] / (ROWS["partsupp"] + ROWS["supplier"])


def wishbone(scale: float = 1.0, selectivity: float = 0.9) -> FlowGraph:
    """Two lines that are joined into one."""
    flow = _Builder("wishbone", scale)
    parts, suppliers = _two_lines(flow, selectivity)
    last = flow.join("join", parts, suppliers, "ps_suppkey s_suppkey", _match(selectivity))
    flow.target("supplied_parts", last)
    return flow.graph()


def primary_flow(scale: float = 1.0, selectivity: float = 0.9) -> FlowGraph:
    """Surrogate keys for production keys, one look-up after the other."""
    flow = _Builder("primary_flow", scale)
    last = flow.activity(
        "not_null", flow.source("lineitem"), reads="l_orderkey l_partkey l_suppkey", selectivity=selectivity
    )
    kept = ROWS["lineitem"] * selectivity
    for key, column in (("part", "l_partkey"), ("supplier", "l_suppkey"), ("order", "l_orderkey")):
        look_up = flow.source(f"lookup_{key}")
        share = kept / (kept + ROWS[look_up])
        last = flow.join(f"{key}_key", last, look_up, column, share, blocking=False)
    flow.target("lineitem_with_keys", last)
    return flow.graph()


def tree(scale: float = 1.0, selectivity: float = 0.9) -> FlowGraph:
    """Several tables joined, then aggregated."""
    flow = _Builder("tree", scale)
    customers = flow.activity("not_null_customer", flow.source("customer"), reads="c_custkey", selectivity=selectivity)
    orders = flow.activity(
        "not_null_orders", flow.source("orders"), reads="o_orderkey o_custkey", selectivity=selectivity
    )
    lines = flow.activity("not_null_lineitem", flow.source("lineitem"), reads="l_orderkey", selectivity=selectivity)
    whose = flow.join(
        "join_customer",
        orders,
        customers,
        "o_custkey c_custkey",
        selectivity * ROWS["orders"] / (ROWS["orders"] + ROWS["customer"]),
    )
    kept = ROWS["lineitem"] / (ROWS["lineitem"] + ROWS["orders"] * selectivity)
    sold = flow.join("join_orders", lines, whose, "l_orderkey o_orderkey", kept * selectivity**2)
    last = flow.aggregate(
        "sum_by_segment", sold, "c_mktsegment c_nationkey o_orderdate", "l_extendedprice l_discount", 0.05
    )
    flow.target("revenue_of_segment", last)
    return flow.graph()


_FORKS = (
    ("part", "l_partkey", 0.033),
    ("supplier", "l_suppkey", 0.0017),
    ("order", "l_orderkey", 0.25),
    ("day", "l_shipdate", 0.0004),
    ("mode", "l_shipmode", 0.00001),
    ("return", "l_returnflag l_shipdate", 0.001),
)


def fork(scale: float = 1.0, selectivity: float = 0.9) -> FlowGraph:
    """One cleaned table, many aggregations of it."""
    flow = _Builder("fork", scale)
    last = flow.activity(
        "not_null", flow.source("lineitem"), reads="l_orderkey l_partkey l_suppkey", selectivity=selectivity
    )
    last = flow.activity("total_cost", last, reads="l_extendedprice l_discount", makes="total_cost", cost=COMPUTE_US)
    for name, keys, share in _FORKS:
        flow.target(f"cost_of_{name}", flow.aggregate(f"sum_by_{name}", last, keys, "total_cost l_quantity", share))
    return flow.graph()


def butterfly(scale: float = 1.0, selectivity: float = 0.9, *, recordsets: bool = True) -> FlowGraph:
    """Fig. 1: two tables are cleaned and loaded, joined, and the join is aggregated into four views.

    As drawn, the loaded tables and views are recordsets on the way: the join reads what was loaded, the smaller views
    read the larger ones. With `recordsets=False` rows fan out to a target and to the next activity instead.
    """
    flow = _Builder("butterfly", scale)
    parts, suppliers = _two_lines(flow, selectivity)
    loaded_parts = flow.target("dw_partsupp", parts)
    loaded_suppliers = flow.target("dw_supplier", suppliers)
    left, right = (loaded_parts, loaded_suppliers) if recordsets else (parts, suppliers)
    joined = flow.join("join", left, right, "ps_suppkey s_suppkey", _match(selectivity))
    flow.target("join_table", joined)
    for large, small, both, one, share in (
        ("view_1", "view_2", "s_nationkey ps_partkey", "ps_partkey", 0.95),
        ("view_3", "view_4", "s_nationkey ps_suppkey", "ps_suppkey", 0.0125),
    ):
        made = flow.aggregate(f"aggregate_{large[-1]}", joined, both, "total_cost", share)
        view = flow.target(large, made)
        again = flow.aggregate(f"aggregate_{small[-1]}", view if recordsets else made, one, "measure", 0.27)
        flow.target(small, again)
    return flow.graph()


ARCHETYPES: dict[str, Callable[..., FlowGraph]] = {
    make.__name__: make for make in (line, wishbone, primary_flow, tree, fork, butterfly)
}
