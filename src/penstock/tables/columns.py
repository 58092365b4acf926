"""A table's columns as the catalogue's rows, and which column of a file is which.

Columns are matched by name, by one `map_by_name` mapping a table, not by Parquet field ids. The writer of a
file then needs to know nothing of the catalogue: with field ids it would have to learn the ids of columns
before it writes, a schema evolved by someone else in between would make its staged files wrong, and Spark
cannot set ids on the elements of arrays and maps at all. By name, columns that the mapping does not list (our
hidden ones) are ignored, and columns that the file has not read as null. Names are safe as keys because
`evolution` never renames or drops. A new mapping is made only when the columns change; readers cache mappings
by id, so one is never altered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.model.schema import Column, Schema
from penstock.tables.evolution import Added, Relaxed, SchemaStep, Widened
from penstock.tables.types import SchemaConflict, Type, from_lake, parse, to_lake


@dataclass(frozen=True, slots=True)
class ColumnNode:
    """One live row of `ducklake_column`; nested columns have several."""

    id: int
    order: int
    name: str
    type: str
    nullable: bool
    parent: int | None


def rows_of(schema: Schema, first_id: int = 1) -> list[ColumnNode]:
    """Depth first, parents before children, numbered on, as DuckDB numbers them."""
    nodes: list[ColumnNode] = []
    for column in schema:
        _grow(nodes, first_id, column.name, parse(column.type), column.nullable, None)
    return nodes


def _grow(nodes: list[ColumnNode], first_id: int, name: str, kind: Type, nullable: bool, parent: int | None) -> None:
    own = first_id + len(nodes)
    nodes.append(ColumnNode(own, own, name, to_lake(kind), nullable, parent))
    for child_name, child in kind.children:
        _grow(nodes, first_id, child_name, child, True, own)


def schema_of(nodes: Iterable[ColumnNode]) -> Schema:
    below: dict[int | None, list[ColumnNode]] = {}
    for node in sorted(nodes, key=lambda node: node.order):
        below.setdefault(node.parent, []).append(node)

    def kind(node: ColumnNode) -> Type:
        return from_lake(node.type, tuple((child.name, kind(child)) for child in below.get(node.id, ())))

    return tuple(Column(node.name, str(kind(node)), node.nullable) for node in below.get(None, ()))


def paths(nodes: Sequence[ColumnNode]) -> dict[tuple[str, ...], ColumnNode]:
    by_id = {node.id: node for node in nodes}

    def path(node: ColumnNode) -> tuple[str, ...]:
        return (*(path(by_id[node.parent]) if node.parent is not None else ()), node.name)

    return {path(node): node for node in nodes}


def leaves(nodes: Sequence[ColumnNode]) -> Iterator[tuple[str, ColumnNode]]:
    """The columns that have values of their own, by the dotted paths that `footer` uses; ambiguous ones left
    out.
    """
    parents = {node.parent for node in nodes}
    named: dict[str, ColumnNode | None] = {}
    for path, node in paths(nodes).items():
        if node.id not in parents:
            dotted = ".".join(path)
            named[dotted] = None if dotted in named else node
    return ((name, node) for name, node in named.items() if node is not None)


@dataclass(frozen=True, slots=True)
class Altered:
    """Rows that end, rows that begin, and the columns as they are then."""

    ended: tuple[int, ...]
    begun: tuple[ColumnNode, ...]
    nodes: tuple[ColumnNode, ...]


def alter(nodes: Sequence[ColumnNode], steps: Sequence[SchemaStep], next_id: int) -> Altered:
    """Carry out `steps`. A changed column keeps its id: that is what makes old files readable as it."""
    at = paths(nodes)
    now = {node.id: node for node in nodes}
    ended: set[int] = set()
    begun: dict[int, ColumnNode] = {}
    for step in steps:
        match step:
            case Added(path, kind):
                fresh: list[ColumnNode] = []
                parent = at[path[:-1]].id if len(path) > 1 else None
                _grow(fresh, next_id, path[-1], kind, True, parent)
                next_id += len(fresh)
                begun |= {node.id: node for node in fresh}
                now |= {node.id: node for node in fresh}
            case Widened(path, _, kind):
                node = now[at[path].id]
                now[node.id] = begun[node.id] = replace(node, type=to_lake(kind))
                ended.add(node.id)
            case Relaxed(path):
                node = now[at[path].id]
                now[node.id] = begun[node.id] = replace(node, nullable=True)
                ended.add(node.id)
    return Altered(tuple(sorted(ended)), tuple(begun.values()), tuple(now.values()))


def replaced(nodes: Sequence[ColumnNode], schema: Schema, next_id: int) -> Altered:
    """All columns end, and new ones begin: for a table of which no file stays."""
    fresh = rows_of(schema, next_id)
    return Altered(tuple(sorted(node.id for node in nodes)), tuple(fresh), tuple(fresh))


def column_values(table_id: int, begin: int, nodes: Iterable[ColumnNode]) -> list[dict[str, Any]]:
    return [
        {
            "column_id": node.id,
            "begin_snapshot": begin,
            "end_snapshot": None,
            "table_id": table_id,
            "column_order": node.order,
            "column_name": node.name,
            "column_type": node.type,
            "initial_default": None,
            "default_value": "NULL",
            "nulls_allowed": node.nullable,
            "parent_column": node.parent,
            "default_value_type": "" if node.type in ("list", "struct", "map") else "literal",
            "default_value_dialect": "duckdb",
        }
        for node in nodes
    ]


def mapping_values(mapping_id: int, nodes: Sequence[ColumnNode]) -> list[dict[str, Any]]:
    ordinal = {node.id: number for number, node in enumerate(nodes)}
    lists = {node.id for node in nodes if node.type == "list"}
    return [
        {
            "mapping_id": mapping_id,
            "column_id": ordinal[node.id],
            # The repeated group of a Parquet list, which DuckDB's own mappings name as well.
            "source_name": "list" if node.parent in lists else node.name,
            "target_field_id": node.id,
            "parent_column": None if node.parent is None else ordinal[node.parent],
            "is_partition": False,
        }
        for node in nodes
    ]


def check_not_empty(schema: Schema, table: str) -> None:
    if not schema:
        raise SchemaConflict(f"{table}: a table needs at least one column; the schema given has none")
