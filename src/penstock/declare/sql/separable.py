"""Whether several time partitions may be computed by one query: does it give the rows that one query for each would?

It holds when no row of the answer depends on source rows of two partitions. The caller makes sure that the time column
of a row is the time of the source rows it came from; so it is enough that whatever brings rows together (GROUP BY,
PARTITION BY, DISTINCT) brings together only rows that agree on the time column."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from penstock.declare.sql.facts import Separable
from penstock.declare.sql.incremental import group_keys, misfits, unknown_relation
from penstock.declare.sql.model import Block, Combined, ParsedQuery, Relation, output_index
from penstock.declare.sql.parse import Parsed


def prove_separable(parsed: Parsed, query: ParsedQuery, tables: tuple[str, ...], time: str | None) -> Separable:
    if time is None:
        return Separable(False, "the table has no time column")
    if parsed.parameters:
        return Separable(False, f"uses :{parsed.parameters[0]}, which is another moment in each partition")
    if not tables:
        return Separable(False, "reads no table")
    index = output_index(query, time)
    if index is None:
        return Separable(False, f"`{time}` is not found among its output columns")
    reason = _why_not(parsed, query, index)
    return Separable(False, reason) if reason else Separable(True, f"no row depends on rows of another `{time}`")


def _why_not(parsed: Parsed, query: ParsedQuery, index: int) -> str | None:
    if isinstance(query, Combined):
        if query.node.args.get("limit") or query.node.args.get("offset"):
            return "LIMIT counts rows of all partitions"
        # rows are compared as a whole, the time column included
        return _why_not(parsed, query.left, index) or _why_not(parsed, query.right, index)
    assert query.outputs is not None
    output = query.outputs[index]
    if output.expression is None:  # through a star: the one relation's column of that name
        return _block(parsed, query, None, output.name or "")
    return _block(parsed, query, [output.expression], output.name or "")


def _block(parsed: Parsed, block: Block, times: list[exp.Expr] | None, name: str) -> str | None:
    """`times`: expressions of this SELECT that together determine the time; None for a column that * passed on."""
    for reason in misfits(parsed, block):
        return reason
    if block.node.args.get("limit") or block.node.args.get("offset"):
        return "LIMIT counts rows of all partitions"
    grouped = block.is_grouped
    windows = [n for n in block.walk() if isinstance(n, exp.Window) and n.parent is not block.node]
    unknown = unknown_relation(block)
    if (grouped or windows) and unknown is not None:
        return f"the columns of {unknown} are not known"
    if times is None:
        if grouped or windows:
            return f"`{name}` comes from *: name it"
    else:
        columns = [c for t in times for c in t.find_all(exp.Column)]
        if not columns:
            return f"`{name}` is a constant"
        if any(isinstance(n, exp.Window) for t in times for n in t.walk()):
            return f"`{name}` comes from a window function"
    if grouped:
        keys = group_keys(block)
        spelled = {block.canon(k) for k in keys or ()}
        if not keys or any(block.columns_outside(t, spelled) for t in times or ()):
            return f"`{name}` is not among the GROUP BY keys"
    for window in windows:
        parts = {block.canon(p) for p in _partition_by(block, window)}
        if any(block.columns_outside(t, parts) for t in times or ()):
            return f"a window function without `{name}` in its PARTITION BY"
    for relation in block.relations:
        reason_inside = _inside(parsed, block, relation, relation.query, times, name) if relation.query else None
        if reason_inside:
            return reason_inside
    return None


def _inside(
    parsed: Parsed, block: Block, relation: Relation, query: ParsedQuery, times: list[exp.Expr] | None, name: str
) -> str | None:
    if _by_row(query):
        return next(_misfits_inside(parsed, query), None)
    # by place: t(a, b) may rename
    if times is None:
        outputs = relation.find(name)
    else:
        bound = [block.meaning(c) for c in _base_columns(block, times)]
        outputs = [b.output for b in bound if b is not None and b.relation is relation]
    given = list(relation.outputs or ())
    indexes = sorted({given.index(o) for o in outputs if o in given})
    if not indexes or query.outputs is None:
        return f"`{name}` is lost inside a subquery"
    if isinstance(query, Combined):
        if len(indexes) > 1:
            return f"`{name}` is made of several columns of a {type(query.node).__name__.upper()}"
        return _why_not(parsed, query, indexes[0])
    inner = [query.outputs[i] for i in indexes]
    if any(o.expression is None for o in inner):
        return (
            _block(parsed, query, None, inner[0].name or "") if len(inner) == 1 else f"`{name}` comes from *: name it"
        )
    return _block(parsed, query, [o.expression for o in inner if o.expression is not None], name)


def _misfits_inside(parsed: Parsed, query: ParsedQuery) -> Iterator[str]:
    if isinstance(query, Block):
        yield from misfits(parsed, query)
        for relation in query.relations:
            if relation.query is not None:
                yield from _misfits_inside(parsed, relation.query)


def _by_row(query: ParsedQuery) -> bool:
    """A subquery that makes rows of rows may pass the time on in any form."""
    if isinstance(query, Combined):
        return False
    node = query.node
    plain = not query.is_grouped and not node.args.get("distinct") and not node.args.get("limit")
    no_windows = not any(isinstance(n, exp.Window) for n in query.walk())
    inner = [r.query for r in query.relations if r.query is not None]
    return plain and not node.args.get("offset") and no_windows and all(map(_by_row, inner))


def _base_columns(block: Block, times: list[exp.Expr]) -> list[exp.Column]:
    return [c for t in times for c in block.columns_outside(t, set())]


def _partition_by(block: Block, window: exp.Window) -> list[exp.Expr]:
    name = window.args.get("alias")
    for definition in block.node.args.get("windows") or ():
        if name is not None and definition.this.name.lower() == name.name.lower():
            return list(definition.args.get("partition_by") or ())
    return list(window.args.get("partition_by") or ())


def trace(query: ParsedQuery, name: str) -> exp.Expr | None:
    """The expression of an output column over the columns of the base tables; None across set operations."""
    index = output_index(query, name)
    if index is None or isinstance(query, Combined) or query.outputs is None:
        return None
    expression = query.outputs[index].expression
    if expression is not None:
        return _expand(query, expression)
    for relation in query.relations:
        if relation.find(name):
            return trace(relation.query, name) if relation.query else exp.column(name)
    return None


def _expand(block: Block, expression: exp.Expr) -> exp.Expr | None:
    copy = expression.copy()
    pairs = list(zip(expression.find_all(exp.Column), copy.find_all(exp.Column), strict=True))
    for column, twin in pairs:
        bound = block.meaning(column)
        if bound is None:
            continue
        inner: exp.Expr | None
        if bound.relation is None:
            inner = _expand(block, bound.output.expression) if bound.output.expression is not None else None
        elif bound.relation.query is not None:
            # a renamed column (t(a, b)) is found by its place
            inner = _by_place(bound.relation.query, bound.relation.outputs, bound.output)
        else:
            inner = exp.column(bound.output.name or "")
        if inner is None:
            return None
        for field in bound.path:
            inner = exp.Dot(this=inner, expression=exp.to_identifier(field))
        if isinstance(inner, exp.Binary) and twin.parent is not None:
            inner = exp.paren(inner, copy=False)
        if twin is copy:
            return inner
        twin.replace(inner)
    return copy


def _by_place(query: ParsedQuery, outputs: tuple[object, ...] | None, output: object) -> exp.Expr | None:
    if outputs is None or query.outputs is None or output not in outputs:
        return None
    return trace(query, query.outputs[outputs.index(output)].name or "")
