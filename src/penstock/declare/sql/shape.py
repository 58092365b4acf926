"""The shape of a query: what it does, without its constants. Queries of one shape take about as long on as many bytes."""

from __future__ import annotations

import hashlib

from sqlglot import exp

from penstock.declare.sql.functions import is_aggregate
from penstock.declare.sql.parse import PenstockSpark
from penstock.declare.sql.read import ReadQuery
from penstock.queries.predict import PlanShape

_MOMENTS = (exp.CurrentTimestamp, exp.CurrentDate)


def shape_of(read: ReadQuery) -> PlanShape:
    tree = read.parsed.tree.copy()
    counted = {"joins": 0, "aggregates": 0, "sorts": 0, "windows": 0}
    for node in tree.walk():
        counted["joins"] += isinstance(node, exp.Join)
        counted["sorts"] += isinstance(node, exp.Order)
        counted["windows"] += isinstance(node, exp.Window)
        counted["aggregates"] += isinstance(node, exp.Group) or is_aggregate(node)
    for literal in list(tree.find_all(exp.Literal)):
        literal.replace(exp.Placeholder())
    text = tree.sql(dialect=PenstockSpark, comments=False).lower()
    return PlanShape(hashlib.sha256(text.encode()).hexdigest()[:16], **counted)


def is_steady(read: ReadQuery) -> bool:
    """Whether it gives the same answer on the same versions whenever it is asked."""
    words = {token.text.lower() for token in read.parsed.tokens}
    return not words & {"now", "current_timestamp", "current_date", "tablesample"}
