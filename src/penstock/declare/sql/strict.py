"""What the parser reads but Spark does not take: words of other dialects, groups and windows in the wrong place, types that do
not go together. `penstock check` must not say ok where the first update would fail.

Only what is certain is refused: where a type is not known, Spark has the last word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.declare.problems import did_you_mean
from penstock.declare.sql.facts import SqlFlaw
from penstock.declare.sql.functions import FUNCTIONS, aggregates, is_aggregate, is_generator, walk_block
from penstock.declare.sql.incremental import function_name, group_keys, unknown_relation
from penstock.declare.sql.model import Block, Combined, ParsedQuery
from penstock.declare.sql.parse import Parsed, type_of
from penstock.declare.sql.types import INTEGERS, TIMES, decimal_of, infer
from penstock.model.schema import WrongColumns, parse_ddl

_SELECT = {
    "with_", "expressions", "hint", "distinct", "from_", "joins", "laterals", "where", "group", "having", "order", "sort",
    "cluster", "distribute", "limit", "offset", "qualify", "windows", "sample",
}  # fmt: skip
_OTHERS: dict[type[exp.Expr], str] = {
    exp.SimilarTo: "SIMILAR TO", exp.National: "N'…'", exp.Slice: "[a:b]: use slice(…)", exp.Fetch: "FETCH: use LIMIT",
    exp.Lock: "FOR UPDATE", exp.MatchRecognize: "MATCH_RECOGNIZE", exp.Connect: "CONNECT BY",
}  # fmt: skip
_RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Lag, exp.Lead)
_INTERVALS = {"year", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond", "quarter"}
_FIELDS = {
    "year", "y", "years", "yr", "yrs", "yearofweek", "quarter", "qtr", "month", "mon", "mons", "months", "week", "w", "weeks",
    "day", "d", "days", "dayofweek", "dow", "dayofweek_iso", "dow_iso", "doy", "hour", "h", "hours", "hr", "hrs", "minute",
    "m", "min", "mins", "minutes", "second", "s", "sec", "seconds", "secs",
}  # fmt: skip


def strict_problems(parsed: Parsed, query: ParsedQuery) -> Iterator[SqlFlaw]:
    yield from _words(parsed)
    for node in parsed.tree.walk():
        yield from _node(parsed, node)
    yield from _query(parsed, query, set())
    for output in query.outputs or ():
        wrong = _not_held(output.type, output.expression, query)
        if wrong == "void":
            yield parsed.text.at(output.node, f"column `{output.name}` has no type", "write cast(null AS <type>)")
        elif wrong is not None:
            found = f"column `{output.name}` is {wrong}, which tables do not hold"
            expected = "cast it, for example to string"
            if "void" in wrong:
                expected = "cast what has no type: cast(array() AS array<string>)"
            elif wrong.startswith("struct"):
                expected = "give each field a type that tables hold, and a name of its own"
            yield parsed.text.at(output.node, found, expected)


def _not_held(type_: str | None, node: exp.Expr | None, query: ParsedQuery) -> str | None:
    """The type, or that of a part, which no table can hold."""
    if type_ is not None:
        try:
            parse_ddl(f"held {type_}")
        except WrongColumns:
            return type_
        return None
    parts: list[exp.Expr] = []
    if isinstance(node, exp.Alias | exp.Paren):
        parts = [node.this]
    elif isinstance(node, exp.Struct):
        parts = [child.expression for child in node.expressions if isinstance(child, exp.PropertyEQ)]
    elif isinstance(node, exp.Array):
        parts = [child for child in node.expressions if not isinstance(child, exp.Null)]
    of = (lambda column: type_of(query, column)) if isinstance(query, Block) else (lambda _: None)
    return next((wrong for part in parts if (wrong := _not_held(infer(part, of), part, query))), None)


# Words


def _words(parsed: Parsed) -> Iterator[SqlFlaw]:
    for before, token in pairwise(parsed.tokens):
        if before.token_type == TokenType.ALIAS and token.token_type == TokenType.STRING:
            yield parsed.text.problem(token.start, f"a text as a name: {token.text!r}", f"write `{token.text}`")
        if before.token_type == TokenType.STAR and token.text.upper() in ("EXCLUDE", "REPLACE", "RENAME"):
            found = f"* {token.text.upper()}"
            yield parsed.text.problem(token.start, found, "Spark has * EXCEPT (…) only: name the columns")
    for first, second, third in zip(parsed.tokens, parsed.tokens[1:], parsed.tokens[2:], strict=False):
        calls = first.text.lower() == "date_trunc" and second.token_type == TokenType.L_PAREN
        if calls and third.token_type != TokenType.STRING:
            yield parsed.text.problem(third.start, f"date_trunc({third.text} …", "write the unit as text: 'hour'")


def _node(parsed: Parsed, node: exp.Expr) -> Iterator[SqlFlaw]:
    def refuse(found: str, expected: str = "expected Spark's SQL") -> SqlFlaw:
        return parsed.text.at(node, found, expected)

    other = _OTHERS.get(type(node))
    if other is not None:
        yield refuse(f"{other.split(':')[0]}, which Spark does not have", other.partition(": ")[2] or "leave it out")
    match node:
        case exp.Select():
            for key, value in node.args.items():
                if (
                    value
                    and key not in _SELECT
                    and type(value) not in _OTHERS
                    and key not in ("locks", "match", "connect")
                ):
                    yield refuse(f"{key.strip('_').upper()}, which Spark does not have")
            if isinstance(node.args.get("distinct"), exp.Distinct) and node.args["distinct"].args.get("on"):
                yield refuse("DISTINCT ON, which Spark does not have", "use row_number() and QUALIFY")
            names = [
                str(cte.alias).lower() for cte in (node.args["with_"].expressions if node.args.get("with_") else ())
            ]
            for name in {name for name in names if names.count(name) > 1}:
                yield refuse(f"two queries named `{name}` in WITH", "rename one")
            limit = node.args.get("limit")
            if isinstance(limit, exp.Limit) and limit.expression.find(exp.Column):
                yield refuse("LIMIT with a column", "expected a number")
        case exp.SetOperation() if node.args.get("by_name"):
            yield refuse(
                f"{type(node).__name__.upper()} BY NAME, which Spark's SQL does not have",
                "name the columns in one order",
            )
        case exp.Join():
            method, kind = str(node.args.get("method") or "").upper(), str(node.args.get("kind") or "").upper()
            if method not in ("", "NATURAL") or kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"):
                word = kind if kind.endswith("JOIN") else f"{method or kind} JOIN"
                yield refuse(f"{word}, which Spark does not have")
        case exp.Any() | exp.All() if isinstance(node.this, exp.Query):
            yield refuse(f"{type(node).__name__.upper()} (SELECT …), which Spark does not have", "use IN or EXISTS")
        case exp.Array() if "start" not in node.meta and node.args.get("value_constructor") is False:
            yield refuse("[…] for an array", "write array(…)")
        case exp.HexString() if "0x" in parsed.sql.lower():
            yield refuse("0x…, which is no number in Spark", "write X'…', or the number")
        case exp.Interval() if isinstance(node.args.get("unit"), exp.Var):
            unit = str(node.args["unit"].name).lower()
            if unit.removesuffix("s") not in _INTERVALS:
                yield refuse(f"INTERVAL in {unit}", f"expected {', '.join(sorted(_INTERVALS))}")
        case exp.Extract() if str(node.this.name).lower() not in _FIELDS:
            yield refuse(f"extract({node.this.name} …)", "expected YEAR, MONTH, DAY, HOUR …")
        case exp.Cast() if isinstance(node.this, exp.Literal) and node.this.is_string and type(node) is exp.Cast:
            yield from _literal(parsed, node)
        case exp.Count() if node.this is None and not node.expressions:
            yield refuse("count()", "write count(*)")
        case exp.Count() if isinstance(node.this, exp.Column) and isinstance(node.this.this, exp.Star):
            yield refuse("count(table.*)", "write count(*)")
    if isinstance(node, exp.Func) and "start" in node.meta:
        name = function_name(parsed, node)
        if re.fullmatch(r"\w+", name) and name not in FUNCTIONS and name not in _NOT_LISTED:
            yield refuse(
                f"unknown function {name}(…){did_you_mean(name, sorted(FUNCTIONS))}", "Spark has no such function"
            )


# Read by Spark's parser itself, not by its registry.
_NOT_LISTED = {
    "extract", "cast", "try_cast", "position", "trim", "overlay", "substring", "substr", "struct", "named_struct", "first",
    "last", "any_value", "timestampadd", "timestampdiff", "dateadd", "datediff", "date_add", "date_diff", "exists", "case", "if",
    "values", "interval", "convert", "listagg", "string_agg", "grouping", "grouping_id", "timestamp_add", "timestamp_diff",
}  # fmt: skip
_DATE = re.compile(r"\s*[+-]?\d{4,7}(-\d{1,2}(-\d{1,2}([ T].*)?)?)?\s*")
_MOMENT = re.compile(r"\s*([+-]?\d{4,7}(-\d{1,2}(-\d{1,2}([ T].*)?)?)?|T?\d{1,2}:.*)\s*")
_SPECIAL = re.compile(r"\s*(now|today|yesterday|tomorrow|epoch)\b.*", re.I)


def _literal(parsed: Parsed, node: exp.Cast) -> Iterator[SqlFlaw]:
    """date'…' and timestamp'…'."""
    text, to = str(node.this.this), infer(node, lambda _: None)
    wanted = {"date": _DATE, "timestamp": _MOMENT}.get(to or "")
    parts = re.match(r"\s*\d{4}-(\d{1,2})-(\d{1,2})", text)
    wrong = parts is not None and not (1 <= int(parts[1]) <= 12 and 1 <= int(parts[2]) <= 31)
    if wanted is not None and (wrong or not wanted.fullmatch(text)) and not _SPECIAL.fullmatch(text):
        yield parsed.text.at(node, f"{to} '{text}'", f"expected a {to} such as '2024-03-01'")


# Queries


def _query(parsed: Parsed, query: ParsedQuery, seen: set[int]) -> Iterator[SqlFlaw]:
    if id(query) in seen:
        return
    seen.add(id(query))
    if isinstance(query, Combined):
        yield from _query(parsed, query.left, seen)
        yield from _query(parsed, query.right, seen)
        for left, right in zip(query.left.outputs or (), query.right.outputs or (), strict=False):
            if _clash(left.type, right.type):
                found = f"{type(query.node).__name__.upper()} of `{left.name}` ({left.type}) and {right.type}"
                yield parsed.text.at(query.node.expression, found, "cast one of them")
        return
    for relation in query.relations:
        if relation.query is not None:
            yield from _query(parsed, relation.query, seen)
    for inner in query.subqueries:
        yield from _query(parsed, inner, seen)
    yield from _block(parsed, query)
    yield from _types(parsed, query)


def _block(parsed: Parsed, block: Block) -> Iterator[SqlFlaw]:
    node = block.node
    places = {"WHERE": [node.args.get("where")], "GROUP BY": [node.args.get("group")]}
    places["ON"] = [join.args.get("on") for join in node.args.get("joins") or ()]
    for place, clauses in places.items():
        for clause in clauses:
            for call in aggregates(clause) if clause is not None else ():
                if place != "GROUP BY" or not isinstance(call, exp.Grouping):
                    yield parsed.text.at(call, f"an aggregate in {place}", "use HAVING, or a query around this one")
            for window in _found(clause, exp.Window):
                yield parsed.text.at(window, f"a window function in {place}", "use QUALIFY, or a query around this one")
    names = {str(window.name).lower() for window in node.args.get("windows") or ()}
    for found in block.walk():
        if isinstance(found, exp.Window) and found.parent is not node:
            named = found.args.get("alias")
            if named is not None and str(named.name).lower() not in names:
                yield parsed.text.at(found, f"window `{named.name}` is not defined", "expected it in a WINDOW clause")
            if isinstance(_bare(found.this), _RANKS) and named is None and not found.args.get("order"):
                yield parsed.text.at(
                    found, f"{function_name(parsed, _bare(found.this))} without an order", "add ORDER BY to OVER (…)"
                )
        if isinstance(found, _RANKS) and not isinstance(_outside(found), exp.Window):
            yield parsed.text.at(found, f"{function_name(parsed, found)} without OVER", "write … OVER (ORDER BY …)")
        if is_generator(found) and isinstance(found, exp.Func) and not isinstance(found.parent, _AROUND_GENERATORS):
            yield parsed.text.at(found, f"{function_name(parsed, found)} inside an expression", "use LATERAL VIEW")
    for call in block.aggregates():
        inner = _bare(call)
        if any(is_aggregate(n) for child in inner.iter_expressions() for n in walk_block(child)):
            yield parsed.text.at(call, "an aggregate inside an aggregate", "compute the inner one in a subquery")
        if isinstance(call, exp.Filter) and aggregates(call.expression):
            yield parsed.text.at(call, "an aggregate in FILTER", "compute it in a subquery")
    if node.args.get("distinct"):
        for output in block.outputs or ():
            if _kind(output.type) == "map":
                yield parsed.text.at(
                    output.node, f"DISTINCT with the map `{output.name}`", "leave it out, or cast it to string"
                )
    yield from _grouped(parsed, block)
    yield from _positions(parsed, block)


_AROUND_GENERATORS = (exp.Select, exp.Alias, exp.Aliases, exp.Lateral, exp.Join, exp.From, exp.Table, exp.Paren)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        node = node.this
    return node


def _outside(node: exp.Expr) -> exp.Expr | None:
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    return parent


def _found(clause: exp.Expr | None, kind: type[exp.Expr]) -> list[exp.Expr]:
    return [node for node in walk_block(clause) if isinstance(node, kind)] if clause is not None else []


def _grouped(parsed: Parsed, block: Block) -> Iterator[SqlFlaw]:
    """Beside aggregates only what the groups are made by."""
    having = block.node.args.get("having")
    if not block.is_grouped and having is None:
        return
    keys = group_keys(block)
    if unknown_relation(block) is not None:
        return
    if keys is None:
        yield from _of_grouping_sets(parsed, block)
        return
    known = {block.canon(key) for key in keys}
    items = [item for item in block.node.expressions if not item.is_star]
    for item in items if having is None else [*items, having]:
        for column in _loose(block, item, known):
            name = column.sql(dialect="spark")
            expected = (
                "add it to GROUP BY, or take any_value(…) of it" if keys else f"add GROUP BY {name}, or aggregate it"
            )
            yield parsed.text.at(column, f"`{name}` is neither grouped nor aggregated", expected)
            return


_OF_SETS = (exp.Group, exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple, exp.Paren)


def _of_grouping_sets(parsed: Parsed, block: Block) -> Iterator[SqlFlaw]:
    """Behind GROUPING SETS, ROLLUP and CUBE, Spark finds in HAVING and ORDER BY plain columns that are grouped by, not expressions."""
    group = block.node.args.get("group")
    if group is None or group.args.get("all"):
        return
    plain = {block.canon(column) for column in group.find_all(exp.Column) if isinstance(column.parent, _OF_SETS)}
    for clause in ("having", "order"):
        for column in _unnamed(parsed, block.node.args.get(clause)):
            bound = block.meaning(column)
            if bound is not None and bound.relation in block.relations and block.canon(column) not in plain:
                place = "HAVING" if clause == "having" else "ORDER BY"
                found = f"`{column.sql(dialect='spark')}` in {place} behind grouping sets, where Spark knows plain grouped columns only"
                expected = "give the expression a name in SELECT and use that, or a query around this one"
                yield parsed.text.at(column, found, expected)
                return


def _unnamed(parsed: Parsed, node: exp.Expr | None) -> Iterator[exp.Column]:
    """The columns of a clause outside of aggregates."""
    if node is None or isinstance(node, exp.Query | exp.Lambda | exp.Window):
        return
    is_grouping = isinstance(node, exp.Func) and function_name(parsed, node) in ("grouping", "grouping_id")
    if is_aggregate(_bare(node)) and not is_grouping:
        return
    if isinstance(node, exp.Column):
        yield node
    else:
        for child in node.iter_expressions():
            yield from _unnamed(parsed, child)


def _loose(block: Block, node: exp.Expr, known: set[str]) -> Iterator[exp.Column]:
    if isinstance(node, exp.Query) or is_aggregate(_bare(node)) or block.canon(node) in known:
        return
    if isinstance(node, exp.Lambda | exp.Window):
        return  # names of its own; windows run over the groups
    if isinstance(node, exp.Column):
        bound = block.meaning(node)
        if bound is None:
            return
        if bound.relation is None:
            if bound.output.expression is not None and bound.output.expression is not node:
                yield from _loose(block, bound.output.expression, known)
        elif bound.relation in block.relations:
            whole = f"[{bound.relation.alias.lower()}].[{(bound.output.name or '').lower()}]"
            paths = [whole + "".join(f".{p.lower()}" for p in bound.path[:n]) for n in range(len(bound.path) + 1)]
            if not known & set(paths):
                yield node
        return
    for child in node.iter_expressions():
        yield from _loose(block, child, known)


def _positions(parsed: Parsed, block: Block) -> Iterator[SqlFlaw]:
    if block.outputs is None:
        return
    group, order = block.node.args.get("group"), block.node.args.get("order")
    places = [("GROUP BY", key) for key in (group.expressions if group is not None else ())]
    places += [("ORDER BY", key.this) for key in (order.expressions if order is not None else ())]
    for clause, key in places:
        is_position = isinstance(key, exp.Literal) and not key.is_string and str(key.this).isdigit()
        if is_position:
            if not 0 < int(key.this) <= len(block.outputs):
                found = f"{clause} {key.this}"
                yield parsed.text.at(key, found, f"expected a number from 1 to {len(block.outputs)}, or a column")
        elif clause == "ORDER BY" and block.node.args.get("distinct"):
            given = {block.canon(item) for item in block.node.expressions}
            if not any(item.is_star for item in block.node.expressions) and block.columns_outside(key, given):
                yield parsed.text.at(key, "SELECT DISTINCT in the order of something else", "select it, too")


# Types


def _kind(type_: str | None) -> str | None:
    """The family of a type; None if it is not known."""
    if type_ is None or type_ == "void":
        return None
    if type_ in INTEGERS or type_ in ("float", "double") or decimal_of(type_):
        return "number"
    if type_ in TIMES:
        return "time"
    return next((k for k in ("array", "map", "struct") if type_.startswith(f"{k}<")), type_)


_COMPLEX = ("array", "map", "struct")


def _clash(left: str | None, right: str | None) -> bool:
    """Whether Spark finds no common type. Text goes with every flat type."""
    a, b = _kind(left), _kind(right)
    if a is None or b is None or a == b:
        return False
    if a in _COMPLEX or b in _COMPLEX:
        return True
    return {a, b} == {"number", "time"} or {a, b} == {"boolean", "time"}


_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)


def _types(parsed: Parsed, block: Block) -> Iterator[SqlFlaw]:
    def of(node: exp.Expr) -> str | None:
        return infer(node, lambda column: type_of(block, column))

    def refuse(node: exp.Expr, expected: str, *types: str | None) -> SqlFlaw:
        text = node.sql(dialect="spark")
        found = text if len(text) <= 60 else text[:57] + "..."
        return parsed.text.at(node, f"{found} ({', '.join(t or '?' for t in types)})", expected)

    conditions = [block.node.args.get("where"), block.node.args.get("having")]
    for condition in [c.this for c in conditions if c is not None] + [
        join.args["on"] for join in block.node.args.get("joins") or () if join.args.get("on") is not None
    ]:
        if _kind(of(condition)) not in (None, "boolean"):
            yield refuse(condition, "expected a condition", of(condition))
    for node in block.walk():
        if isinstance(node, exp.Lambda):
            continue
        if isinstance(node, _COMPARED):
            left, right = of(node.this), of(node.expression)
            if _clash(left, right) or "map" in (_kind(left), _kind(right)):
                yield refuse(node, "cannot be compared: cast one of them", left, right)
        elif isinstance(node, exp.Add | exp.Sub):
            left, right = of(node.this), of(node.expression)
            if {_kind(left), _kind(right)} == {"time", "number"} and "date" not in (left, right):
                yield refuse(node, "write + INTERVAL … to move a timestamp", left, right)
        elif isinstance(node, exp.Not) and _kind(of(node.this)) in ("number", "time", *_COMPLEX):
            yield refuse(node, "expected a condition", of(node.this))
        elif isinstance(node, exp.Cast) and not isinstance(node.this, exp.Literal):
            was, now = of(node.this), of(node)
            from_complex = _kind(was) in _COMPLEX and _kind(now) in ("number", "time", "boolean", "binary")
            to_complex = _kind(was) not in (None, *_COMPLEX) and node.to.args.get("nested")
            of_date = (_kind(was) == "number" and now == "date") or (
                was == "date" and _kind(now) in ("number", "boolean")
            )
            if from_complex or to_complex or of_date:
                yield refuse(node, "cannot be cast", was, now or node.to.sql(dialect="spark").lower())
        elif isinstance(node, exp.Sum | exp.Avg) and _kind(of(node.this)) in ("boolean", "binary", *_COMPLEX):
            yield refuse(node, "expected numbers", of(node.this))
        elif isinstance(node, exp.Min | exp.Max) and _kind(of(node.this)) == "map":
            yield refuse(node, "maps have no order", of(node.this))
        elif isinstance(node, exp.Bracket) and _kind(of(node.this)) in ("string", "number", "time", "boolean"):
            yield refuse(node, "expected an array or a map", of(node.this))
        elif isinstance(node, exp.If | exp.Coalesce | exp.Case):
            types = [of(each) for each in _branches(node)]
            clash = next((pair for pair in pairwise(t for t in types if _kind(t)) if _clash(*pair)), None)
            if clash is not None:
                yield refuse(node, "expected values of one type", *clash)


def _branches(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.If):
        found = [node.args.get("true"), node.args.get("false")]
    elif isinstance(node, exp.Case):
        found = [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")]
    else:
        found = [node.this, *node.expressions]
    return [each for each in found if each is not None and not isinstance(each, exp.Star)]
