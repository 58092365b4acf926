"""Groups: tables that are updated by one job cannot wait for each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.declare.api import TableDeclaration
from penstock.declare.problems import Problem
from penstock.model.graph import Graph


def group_problems(graph: Graph, tables: Mapping[str, TableDeclaration]) -> Iterator[Problem]:
    for group, members in graph.groups.items():
        for name in members:
            if graph.tables[name].is_base:
                message = (
                    f"table `{name}` is in group `{group}`, but it is loaded from a feed; groups are of derived tables"
                )
                yield Problem(tables[name].where, message)
    for path in circles(graph):
        first = path[0]
        way = " -> ".join(path)
        message = f"the group of `{first}` would have to wait for itself ({way}); take one of them out of its group"
        yield Problem(tables[first].where, message)


def circles(graph: Graph) -> Iterator[list[str]]:
    """For each group a way from one of its tables back to one of them, if there is any, through other groups as well."""
    for members in graph.groups.values():
        came: dict[str, str | None] = dict.fromkeys(members)
        waiting = list(members)
        while waiting:
            name = waiting.pop()
            for edge in graph.out[name]:
                if edge.table == name:
                    continue
                if edge.table in members:
                    yield [*_way(came, name), edge.table]
                    waiting.clear()
                    break
                for other in graph.grouped_with(edge.table):
                    if other not in came:
                        came[other] = name
                        waiting.append(other)


def _way(came: Mapping[str, str | None], name: str | None) -> list[str]:
    path: list[str] = []
    while name is not None:
        path.append(name)
        name = came[name]
    return path[::-1]
