"""Small questions about names, asked while a query is resolved."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sqlglot import exp

from penstock.declare.sql.model import Block, Output, Relation
from penstock.declare.sql.types import fields


def trusted(relation: Relation, name: str) -> frozenset[tuple[str, str]]:
    return frozenset({(relation.table, name)}) if relation.table else frozenset()


def names_relation(relation: Relation, qualifier: Sequence[str]) -> bool:
    wanted = ".".join(qualifier).lower()
    table = relation.node is not None and not relation.node.alias and relation.table
    return wanted == relation.alias.lower() or bool(table and wanted == str(relation.table).lower())


def renamed(outputs: tuple[Output, ...] | None, names: Sequence[exp.Identifier]) -> tuple[Output, ...] | None:
    if outputs is None or not names:
        return outputs
    pairs = zip(outputs, names, strict=False)
    return tuple(Output(n.name, o.type, o.origins, o.expression, o.node) for o, n in pairs)


def item_name(block: Block, item: exp.Expr) -> str | None:
    """The name that Spark gives an item of the select list without being asked; None where it is only a spelling."""
    while isinstance(item, exp.Paren):
        item = item.this
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column):
        return str(item.name)
    if isinstance(item, exp.Dot) and isinstance(item.expression, exp.Identifier):
        return str(item.expression.name)
    if isinstance(item, exp.Cast) and isinstance(item.this, exp.Column):
        bound = block.meaning(item.this)  # cast(a as int) is named a, but cast(struct.a as int) is not
        return None if bound is None or bound.path else str(item.this.name)
    return None


def type_of(block: Block, column: exp.Column) -> str | None:
    bound = block.meaning(column)
    return field_type(bound.output.type, bound.path) if bound else None


def field_type(type_: str | None, path: Sequence[str]) -> str | None:
    for part in path:
        type_ = {name.lower(): t for name, t in fields(type_) or ()}.get(part.lower())
    return type_


def known_columns(name: str, candidates: Sequence[str], label: str = "there are", more: Sequence[str] = ()) -> str:
    close = difflib.get_close_matches(name.lower(), {c.lower(): c for c in (*candidates, *more)}, 1, 0.6)
    spelled = {c.lower(): c for c in (*candidates, *more)}
    hint = f"did you mean `{spelled[close[0]]}`? " if close else ""
    listed = ", ".join(dict.fromkeys(candidates)) or "nothing"
    return f"{hint}{label}: {listed}"
