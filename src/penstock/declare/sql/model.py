"""A resolved query: what each SELECT reads, what its names mean, what it gives. Made by `sql_columns`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.declare.sql.functions import aggregates, walk_block

ColumnOrigin = tuple[str, str]
"""(table, column)"""


@dataclass(frozen=True, eq=False)
class OutputItem:
    """A column that a query or table gives. `name` is None for an expression that nobody named."""

    name: str | None
    type: str | None
    origins: frozenset[ColumnOrigin]
    expression: exp.Expr | None = None
    """What computes it in its SELECT; None for columns of tables and of expanded stars over structs."""
    node: exp.Expr | None = None
    """Where it was written."""


@dataclass(frozen=True, eq=False)
class Relation:
    """One thing in FROM. `outputs` is None where its columns cannot be known."""

    alias: str
    outputs: tuple[OutputItem, ...] | None
    table: str | None = None
    query: ParsedQuery | None = None
    node: exp.Expr | None = None
    lateral: bool = False
    """A generator over the rows before it (LATERAL VIEW): makes rows of rows, reads nothing of its own."""

    def find(self, name: str) -> list[OutputItem]:
        return [o for o in self.outputs or () if o.name is not None and o.name.lower() == name.lower()]

    @property
    def opaque(self) -> bool:
        return self.outputs is None or any(o.name is None for o in self.outputs)


@dataclass(frozen=True, eq=False)
class Bound:
    """What a column name means: an output of a relation, or (relation None) an alias of the same SELECT."""

    relation: Relation | None
    output: OutputItem
    path: tuple[str, ...] = ()
    """Struct fields below it."""


@dataclass(eq=False)
class Block:
    """One SELECT."""

    node: exp.Select
    relations: list[Relation]
    outputs: tuple[OutputItem, ...] | None = None
    bound: dict[int, Bound] = field(default_factory=dict)
    """By id of the column node, which the tree keeps alive."""
    subqueries: list[ParsedQuery] = field(default_factory=list)

    def meaning(self, column: exp.Expr) -> Bound | None:
        return self.bound.get(id(column))

    def clauses(self) -> Iterator[exp.Expr]:
        """Everything in this SELECT but its FROM and WITH."""
        for key, value in self.node.args.items():
            if key in ("with_", "from_", "hint"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, exp.Expr):
                    yield child

    def walk(self) -> Iterator[exp.Expr]:
        for clause in self.clauses():
            yield from walk_block(clause)

    def aggregates(self) -> list[exp.Expr]:
        having = self.node.args.get("having")
        order = self.node.args.get("order")
        return [a for part in (*self.node.expressions, having, order) if part is not None for a in aggregates(part)]

    @property
    def is_grouped(self) -> bool:
        return self.node.args.get("group") is not None or bool(self.aggregates())

    def canon(self, node: exp.Expr) -> str:
        """A spelling under which equal expressions are equal text: names resolved, case and parentheses gone."""
        if isinstance(node, exp.Paren):
            return self.canon(node.this)
        if isinstance(node, exp.Alias):
            return self.canon(node.this)
        if isinstance(node, exp.Column):
            bound = self.meaning(node)
            if bound is None:
                return "?" + ".".join(part.name.lower() for part in node.parts)
            path = "".join(f".{p.lower()}" for p in bound.path)
            if bound.relation is None and bound.output.expression is not None:
                return self.canon(bound.output.expression) + path
            alias = bound.relation.alias.lower() if bound.relation else "?"
            return f"[{alias}].[{(bound.output.name or '').lower()}]{path}"
        if isinstance(node, exp.Dot):
            return f"{self.canon(node.this)}.{node.expression.name.lower()}"
        if isinstance(node, exp.Identifier):
            return f"id:{node.name.lower()}"
        parts = []
        for key, value in sorted(node.args.items()):
            if value is None or value is False or value == []:
                continue
            values = value if isinstance(value, list) else [value]
            spelled = [self.canon(v) if isinstance(v, exp.Expr) else repr(v) for v in values]
            parts.append(f"{key}={','.join(spelled)}")
        return f"{type(node).__name__}({' '.join(parts)})"

    def columns_outside(self, node: exp.Expr, known: set[str]) -> list[exp.Column]:
        """Columns of an expression that are not part of an expression in `known` (canonical spellings): an empty
        answer proves it to be a function of those."""
        if self.canon(node) in known:
            return []
        if isinstance(node, exp.Column):
            bound = self.meaning(node)
            if bound is not None and bound.relation is None and bound.output.expression is not None:
                return self.columns_outside(bound.output.expression, known)
            return [node]
        return [c for child in node.iter_expressions() for c in self.columns_outside(child, known)]


@dataclass(frozen=True, eq=False)
class Combined:
    """UNION, INTERSECT or EXCEPT."""

    node: exp.SetOperation
    left: ParsedQuery
    right: ParsedQuery
    outputs: tuple[OutputItem, ...] | None


ParsedQuery = Block | Combined


def output_index(query: ParsedQuery, name: str) -> int | None:
    for i, output in enumerate(query.outputs or ()):
        if output.name is not None and output.name.lower() == name.lower():
            return i
    return None
