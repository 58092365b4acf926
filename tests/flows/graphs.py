"""Any flow graph."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.flows.graph import FlowGraph, Node, NodeKind


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> FlowGraph:
    """Sources, activities that read one to three of what is before them, targets behind what nobody reads and some
    others; some targets are read again."""
    nodes = [
        Node(f"s{n}", NodeKind.SOURCE, rows=draw(st.integers(1, 50)) * 100) for n in range(draw(st.integers(1, 3)))
    ]
    edges: list[tuple[str, str]] = []
    columns = frozenset("abcdef")
    for n in range(draw(st.integers(0, most))):
        if draw(st.integers(0, 5)) == 0:
            node = Node(f"t{n}", NodeKind.TARGET, columns=columns)
            inputs = [draw(st.sampled_from(nodes))]
        else:
            node = Node(
                f"a{n}",
                blocking=draw(st.booleans()),
                selectivity=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.5])),
                cost_per_row_us=draw(st.sampled_from([0.1, 1.0, 5.0])),
                columns=columns,
                reads=draw(st.one_of(st.none(), st.frozensets(st.sampled_from("abcdef")))),
            )
            inputs = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True))
        edges += [(provider.name, node.name) for provider in inputs]
        nodes.append(node)
    read = {provider for provider, _ in edges}
    for node in list(nodes):
        if node.name not in read and node.kind is not NodeKind.TARGET:
            nodes.append(Node(f"t_{node.name}", NodeKind.TARGET, columns=node.columns))
            edges.append((node.name, f"t_{node.name}"))
    return FlowGraph(tuple(nodes), tuple(edges))
