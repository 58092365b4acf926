from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.flows.graph import FlowError, FlowGraph, Node, source, target


def line(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple(pairwise(names))


def test_rows_cost_and_order_of_a_line() -> None:
    flow = FlowGraph(
        (
            target("t"),
            Node("filter", selectivity=0.25, cost_per_row_us=2),
            source("s", 1000),
            Node("sort", blocking=True, cost_per_row_us=4),
        ),
        line("s", "filter", "sort", "t"),
    )
    assert flow.order == ("s", "filter", "sort", "t")
    assert flow.rows_in == {"s": 1000, "filter": 1000, "sort": 250, "t": 250}
    assert flow.rows_out == {"s": 1000, "filter": 250, "sort": 250, "t": 250}
    assert flow.cost_us["filter"] == 2000 and flow.cost_us["sort"] == 1000
    assert flow.sources == ("s",) and flow.targets == ("t",)


def test_only_columns_that_someone_looks_at_are_needed() -> None:
    columns = frozenset("abcd")
    flow = FlowGraph(
        (
            source("s", columns=columns),
            Node("keep", columns=columns, reads=frozenset("d")),
            Node("double", columns=columns | {"e"}, reads=frozenset("b"), makes=frozenset("e")),
            Node("sum", blocking=True, columns=frozenset("ae"), reads=frozenset("ae"), makes=frozenset("e")),
            target("t", columns=frozenset("ae")),
        ),
        line("s", "keep", "double", "sum", "t"),
    )
    assert flow.needed_columns["double"] == {"a", "e"}
    assert flow.needed_columns["keep"] == {"a", "b"}  # e is made by `double`, c is looked at by nobody
    assert flow.needed_columns["s"] == {"a", "b", "d"}
    assert flow["keep"].width() == 32 and flow["keep"].width({"a", "b"}) == 16


@pytest.mark.parametrize(
    ("nodes", "edges", "says"),
    [
        ((), (), "no nodes"),
        ((source("s"), source("s")), (), "two nodes named 's'"),
        ((source("s"), target("t")), (("s", "u"),), "'u', which is no node"),
        ((source("s"), target("t")), (("s", "t"), ("s", "t")), "twice"),
        ((source("s"), target("t")), (("t", "s"),), "a source has none"),
        ((source("s"), source("r"), target("t")), (("s", "t"), ("r", "t")), "put a union before it"),
        ((source("s"), Node("a"), target("t")), (("s", "t"), ("a", "t")), "no input"),
        ((source("s"), Node("a"), target("t")), (("s", "t"), ("s", "a")), "no consumer"),
        ((source("s"), Node("a", selectivity=-1), target("t")), line("s", "a", "t"), "negative"),
        (
            (source("s"), Node("a"), Node("b"), target("t")),
            (("s", "a"), ("a", "b"), ("b", "a"), ("b", "t")),
            "in a circle: a -> b -> a",
        ),
    ],
)
def test_a_graph_that_cannot_be_is_refused(
    nodes: tuple[Node, ...], edges: tuple[tuple[str, str], ...], says: str
) -> None:
    with pytest.raises(FlowError, match=says):
        FlowGraph(nodes, edges)
