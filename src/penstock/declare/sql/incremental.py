"""How a view follows new rows of its source: row by row, by folding partial aggregates, or by computing it again.

Whatever is not proved to be foldable is `Full`: slower, never wrong."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from penstock.declare.sql.facts import AggregateWay, Full, How, Rowwise
from penstock.declare.sql.fold import FoldPlan, StoredPartial, Value, assemble, averaged
from penstock.declare.sql.functions import aggregates, is_aggregate, unsteady
from penstock.declare.sql.model import Block, Combined, ParsedQuery
from penstock.declare.sql.parse import Parsed, type_of
from penstock.declare.sql.text import Call, Item, one_line, select_list
from penstock.declare.sql.types import infer, is_exact, of_sum

# Parts of a SELECT that this module understands; a query with any other is computed in full.
_UNDERSTOOD = {
    "with_", "kind", "expressions", "hint", "distinct", "from_", "joins", "laterals", "where", "group", "having",
    "order", "sort", "cluster", "distribute", "limit", "offset", "qualify", "windows",
}  # fmt: skip


class _No(Exception):
    """The reason why a view is not incremental."""


def classify(parsed: Parsed, query: ParsedQuery, tables: tuple[str, ...]) -> How:
    try:
        return _classify(parsed, query, tables)
    except _No as no:
        return Full(f"full: {no}")


def _classify(parsed: Parsed, query: ParsedQuery, tables: tuple[str, ...]) -> How:
    if parsed.parameters:
        names = ", ".join(f":{name}" for name in parsed.parameters)
        raise _No(f"{names} makes each partition a query of its own")
    if not tables:
        raise _No("it reads no table")
    if len(tables) > 1:
        raise _No(
            f"it reads {len(tables)} tables ({', '.join(tables)}): new rows of one may meet old rows of the other"
        )
    for reason in why_not_by_row(parsed, query):
        raise _No(reason)
    assert isinstance(query, Block)
    if query.is_grouped:
        return _aggregate(parsed, query)
    return Rowwise("incremental: each row is computed by itself", parsed.sql)


def why_not_by_row(parsed: Parsed, query: ParsedQuery, top: bool = True) -> Iterator[str]:
    """Reasons why new rows of the single source do not simply give new rows (or, at the top, new partial groups)."""
    if isinstance(query, Combined):
        yield f"{type(query.node).__name__.upper()} combines several queries"
        return
    node = query.node
    yield from misfits(parsed, query)
    if node.args.get("limit") or node.args.get("offset"):
        yield "LIMIT: later rows could take the places"
    if node.args.get("distinct"):
        yield "DISTINCT compares new rows with all old ones"
    if any(isinstance(n, exp.Window) for n in query.walk()):
        yield "a window function sees old rows and new ones together"
    if query.is_grouped and not top:
        yield "it computes on the result of a GROUP BY"
    for relation in query.relations:
        if relation.query is not None:
            yield from why_not_by_row(parsed, relation.query, False)


def misfits(parsed: Parsed, block: Block) -> Iterator[str]:
    """What neither incremental computation nor separation by time can stand: joins, subqueries, chance."""
    node = block.node
    relations = [r for r in block.relations if not r.lateral]
    joined = any(not isinstance(join.this, exp.Lateral) for join in node.args.get("joins") or ())
    if len(relations) > 1 or joined:
        yield "a join: new rows of one side may meet old rows of the other"
    elif block.subqueries:
        yield "a subquery may see other rows than the new ones"
    for relation in relations:
        if relation.node is not None and relation.node.args.get("sample"):
            yield "TABLESAMPLE picks other rows each time"
        if relation.node is not None and relation.node.args.get("pivots"):
            yield "PIVOT is not followed incrementally"
        if relation.table is None and relation.query is None:
            yield f"`{relation.alias}` is not a table"
    for key, value in node.args.items():
        if value and key not in _UNDERSTOOD:
            yield f"{key.strip('_').upper()} is not followed incrementally"
    laterals = [r.node for r in block.relations if r.lateral and r.node is not None]
    for clause in (*block.clauses(), *laterals):
        reason = unsteady(clause, lambda n: function_name(parsed, n))
        if reason:
            yield reason


def chances(parsed: Parsed, query: ParsedQuery) -> Iterator[str]:
    """What gives another answer each time, anywhere in a query."""
    if isinstance(query, Combined):
        yield from chances(parsed, query.left)
        yield from chances(parsed, query.right)
        return
    for clause in query.clauses():
        reason = unsteady(clause, lambda node: function_name(parsed, node))
        if reason and reason.endswith("each time"):
            yield reason
    for inner in (*(relation.query for relation in query.relations), *query.subqueries):
        if inner is not None:
            yield from chances(parsed, inner)


def function_name(parsed: Parsed, node: exp.Expr) -> str:
    if "start" in node.meta:
        return parsed.text.sql[node.meta["start"] : node.meta["end"] + 1].lower()
    return str(node.sql_name()).lower() if isinstance(node, exp.Func) else type(node).__name__.lower()


def unknown_relation(query: ParsedQuery) -> str | None:
    """A relation whose columns are not known: then a name in GROUP BY might be an alias or a column of it."""
    if isinstance(query, Combined):
        return unknown_relation(query.left) or unknown_relation(query.right)
    for relation in query.relations:
        if relation.outputs is None:
            return f"`{relation.alias}`"
        inside = unknown_relation(relation.query) if relation.query is not None else None
        if inside:
            return inside
    return None


def group_keys(block: Block) -> list[exp.Expr] | None:
    """The expressions of GROUP BY, positions and aliases replaced by what they stand for; None for grouping sets."""
    group = block.node.args.get("group")
    items = block.node.expressions
    if group is None:
        return []
    if any(group.args.get(key) for key in ("rollup", "cube", "grouping_sets", "totals")):
        return None
    if group.args.get("all"):
        plain = [i.this if isinstance(i, exp.Alias) else i for i in items]
        return [i for i in plain if not any(is_aggregate(n) for n in i.walk())]
    keys: list[exp.Expr] = []
    for expression in group.expressions:
        if isinstance(expression, exp.Rollup | exp.Cube | exp.GroupingSets):
            return None
        if isinstance(expression, exp.Tuple):
            keys += expression.expressions
        elif isinstance(expression, exp.Literal) and not expression.is_string:
            position = int(expression.this)
            if not 0 < position <= len(items) or any(i.is_star for i in items[:position]):
                return None
            item = items[position - 1]
            keys.append(item.this if isinstance(item, exp.Alias) else item)
        else:
            keys.append(expression)
    return keys


def _aggregate(parsed: Parsed, block: Block) -> AggregateWay:
    node = block.node
    if node.args.get("having"):
        raise _No("HAVING drops groups that later rows could bring back")
    if any(item.is_star for item in node.expressions):
        raise _No("* beside GROUP BY: name the columns")
    unknown = unknown_relation(block)
    if unknown is not None:
        raise _No(f"the columns of {unknown} are not known")
    keys = group_keys(block)
    if keys is None:
        raise _No("GROUPING SETS, ROLLUP and CUBE give several levels of groups")
    texts = select_list(parsed)
    if texts is None:
        raise _No("its select list could not be taken apart: write it as SELECT … FROM … GROUP BY")
    spelled = {block.canon(key): key for key in keys}
    outputs = block.outputs
    assert outputs is not None  # no star: every item is known
    shown = {block.canon(item) for item in node.expressions}
    for canonical, key in spelled.items():
        if canonical not in shown:
            raise _No(
                f"GROUP BY {key.sql(dialect='spark')} is not in the select list, so stored groups cannot be matched"
            )
    plan = FoldPlan(parsed, texts, bool(keys))
    for item, output, text in zip(node.expressions, outputs, texts.items, strict=True):
        assert output.name is not None
        if text.calls:
            _fold_item(block, plan, item, output.name, text)
        elif block.canon(item) in spelled:
            plan.add_key(output.name)
        elif not block.columns_outside(item, set(spelled)):
            plan.add_constant(output.name, text)
        else:
            raise _No(f"`{output.name}` is neither a GROUP BY key nor one of the aggregates that fold")
    return assemble(plan, _words(plan))


def _words(plan: FoldPlan) -> str:
    names = ", ".join(dict.fromkeys(plan.functions)) or "no aggregate"
    return f"incremental: {'GROUP BY' if plan.grouped else 'one group'} with {names}"


def _fold_item(block: Block, plan: FoldPlan, item: exp.Expr, name: str, text: Item) -> None:
    calls = text.calls
    expression = item.this if isinstance(item, exp.Alias) else item
    nodes = {id(n) for a in aggregates(expression) for n in a.walk()}
    loose = [c for c in expression.find_all(exp.Column) if id(c) not in nodes]
    if loose:
        raise _No(f"`{name}` mixes an aggregate with `{loose[0].sql(dialect='spark')}`: give each its own column")
    found = list(zip(aggregates(expression), calls, strict=True))
    bare = len(found) == 1 and found[0][0] is expression
    values = [_value(block, call, node) for node, call in found]
    for value, call in zip(values, calls, strict=True):
        if call.start < 0:
            raise _No(f"{one_line(call.text)} could not be found in the text")
        if not bare and any(p.type is None for p in value.parts):
            raise _No(
                f"the type of {one_line(call.text)} is not known: give it a column of its own, or cast its argument"
            )
    plan.add(name, text, values, bare)


def _value(block: Block, call: Call, node: exp.Expr) -> Value:
    """How one aggregate call is kept and folded."""
    inner = node.this if isinstance(node, exp.Filter) else node
    label = one_line(call.text)
    mean = isinstance(inner, exp.Anonymous) and str(inner.this).lower() == "mean"
    arguments = inner.expressions if mean else [inner.this, *inner.expressions]
    if any(isinstance(a, exp.Distinct) for a in arguments):
        kind = "count(distinct …)" if isinstance(inner, exp.Count) else f"DISTINCT in {label}"
        raise _No(f"{kind} cannot be folded: what was counted is not stored")
    if isinstance(inner, exp.Count | exp.CountIf):
        name = "count" if isinstance(inner, exp.Count) else "count_if"
        return Value(name, (StoredPartial("count", call.text, "bigint"),), "{0}")
    if len(arguments) != 1 or arguments[0] is None:
        raise _No(f"{label} is not one of the aggregates that fold (sum, count, count_if, min, max, avg)")
    type_ = infer(arguments[0], lambda c: _type(block, c))
    for class_, name in ((exp.Min, "min"), (exp.Max, "max"), (exp.LogicalAnd, "bool_and"), (exp.LogicalOr, "bool_or")):
        if isinstance(inner, class_):
            kept = "boolean" if name.startswith("bool") else type_
            return Value(name, (StoredPartial(name, call.text, kept),), "{0}")
    if not isinstance(inner, exp.Sum | exp.Avg) and not mean:
        raise _No(f"{label} is not one of the aggregates that fold (sum, count, count_if, min, max, avg)")
    name = "sum" if isinstance(inner, exp.Sum) else "avg"
    inside = one_line(call.arguments)
    cast = f"{name}(cast({inside} as decimal({'14' if name == 'avg' else '28'},2)))"
    if type_ is None:
        raise _No(f"the type of {inside} in {label} is not known to be exact: {cast}, for example, is incremental")
    if not is_exact(type_):
        raise _No(f"{label} over {type_} depends on the order of addition: {cast}, for example, is incremental")
    if name == "sum":
        return Value("sum", (StoredPartial("sum", call.text, of_sum(type_)),), "{0}")
    value = averaged(call, type_)
    if value is None:
        raise _No(
            f"{label} over {type_} cannot be folded to its last digit: select sum and count, or use at most 14 digits"
        )
    return value


def _type(block: Block, column: exp.Column) -> str | None:
    bound = block.meaning(column)
    return type_of(block, column) if bound is not None and bound.relation is not None else None
