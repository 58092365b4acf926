"""Where the time column of a view comes from: which column of which source, and what was done to it on the way.

A partition of a table keeps the rows whose time lies in it. To make it, one must know where such rows can come from: from
the same stretch of time if the time is that of the source's row, from an hour before if an hour was added to it, from
anywhere if it is another column. What is not understood here is said to be unknown, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp

from penstock.declare.sql.facts import (
    Chosen,
    ColumnTerm,
    Local,
    Origin,
    PartitionBounds,
    Rounded,
    Shifted,
    Step,
    Unknown,
    Within,
)
from penstock.declare.sql.functions import is_aggregate
from penstock.declare.sql.incremental import group_keys
from penstock.declare.sql.model import Block, Bound, Combined, ParsedQuery, Relation, output_index
from penstock.declare.sql.parse import PenstockSpark
from penstock.declare.sql.types import infer

_DAY = Within("day")


def time_origins(query: ParsedQuery, time: str) -> frozenset[Origin]:
    """All that the values of an output column may come from."""
    index = output_index(query, time)
    return frozenset({Unknown(time)}) if index is None else frozenset(_output(query, index))


_RANGES = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)


def time_ranges(query: ParsedQuery) -> Iterator[tuple[ColumnTerm, ColumnTerm]]:
    """The pairs of columns of two relations that a join or filter compares by order: their rows need not be of one time."""
    if isinstance(query, Combined):
        yield from time_ranges(query.left)
        yield from time_ranges(query.right)
        return
    for relation in query.relations:
        if relation.query is not None:
            yield from time_ranges(relation.query)
    for node in query.walk():
        if isinstance(node, _RANGES):
            bound = [b for b in (query.meaning(column) for column in node.find_all(exp.Column)) if b is not None]
            found = [(b, origin) for b in bound for origin in _bound(query, b, "") if isinstance(origin, ColumnTerm)]
            yield from ((a, b) for one, a in found for two, b in found if one.relation is not two.relation)


def _output(query: ParsedQuery, index: int) -> Iterator[Origin]:
    if isinstance(query, Combined):
        yield from _output(query.left, index)
        if isinstance(query.node, exp.Union):
            name = query.outputs[index].name if query.outputs else None
            by_name = query.node.args.get("by_name")
            right = output_index(query.right, name or "") if by_name else index
            yield from _output(query.right, right) if right is not None else [Unknown(name or "")]
        return
    assert query.outputs is not None
    output = query.outputs[index]
    if output.expression is not None:
        yield from _of(query, output.expression)
        return
    passed = [(r, o) for r in query.relations for o in r.find(output.name or "")]
    if len({id(relation) for relation, _ in passed}) == 1:
        yield from _bound(query, Bound(*passed[0]), output.name or "")
    else:
        yield Unknown(output.name or "")


def _bound(block: Block, bound: Bound, text: str) -> Iterator[Origin]:
    relation: Relation | None = bound.relation
    if bound.path:
        yield Unknown(text)
    elif relation is None:
        yield from _of(block, bound.output.expression) if bound.output.expression is not None else [Unknown(text)]
    elif relation.query is not None and relation.query.outputs is not None and relation.outputs is not None:
        place = relation.outputs.index(bound.output) if bound.output in relation.outputs else None
        yield from _output(relation.query, place) if place is not None else [Unknown(text)]
    elif relation.table is not None and not (relation.node is not None and relation.node.args.get("pivots")):
        yield ColumnTerm(relation.table, (bound.output.name or "").lower())
    else:
        yield Unknown(text)


def _of(block: Block, node: exp.Expr) -> Iterator[Origin]:
    """The values of an expression of a SELECT."""
    text = node.sql(dialect=PenstockSpark)
    match node:
        case exp.Paren() | exp.Alias():
            yield from _of(block, node.this)
        case exp.Column():
            bound = block.meaning(node)
            yield from _bound(block, bound, text) if bound is not None else [Unknown(text)]
        case exp.Placeholder():
            yield PartitionBounds(str(node.name).lower())
        case exp.Window():
            yield _chosen(block, node.this, list(node.args.get("partition_by") or ()), text)
        case _ if is_aggregate(_unwrapped(node)):
            yield _chosen(block, node, group_keys(block) or [], text)
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            for child in (node.this, *node.expressions):
                yield from _branch(block, child)
        case exp.If() | exp.Nvl2():
            for child in (node.args.get("true"), node.args.get("false")):
                yield from _branch(block, child)
        case exp.Case():
            for child in (*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")):
                yield from _branch(block, child)
        case exp.Nullif():
            yield from _of(block, node.this)
        case _:
            inner, steps = _moved(node)
            if inner is None:
                yield Unknown(text)
            else:
                for origin in _of(block, inner):
                    yield _after(origin, steps, text)


def _branch(block: Block, node: exp.Expr | None) -> Iterator[Origin]:
    if node is not None and not isinstance(node, exp.Null):
        yield from _of(block, node)


def _after(origin: Origin, steps: tuple[Step, ...], text: str) -> Origin:
    match origin:
        case ColumnTerm():
            return ColumnTerm(origin.table, origin.column, origin.steps + steps)
        case PartitionBounds():
            return PartitionBounds(origin.name, origin.steps + steps)
        case Chosen():
            return Chosen(text, frozenset(_after(value, steps, text) for value in origin.values), origin.keys)
        case Unknown():
            return Unknown(text)


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    return node


# Aggregates and window functions whose answer is one of the values that they are given.
_CHOOSE = (
    exp.Max, exp.Min, exp.First, exp.Last, exp.AnyValue, exp.ArgMax, exp.ArgMin, exp.FirstValue, exp.LastValue, exp.Lag,
    exp.Lead, exp.NthValue,
)  # fmt: skip


def _chosen(block: Block, node: exp.Expr, keys: list[exp.Expr], text: str) -> Origin:
    call = _unwrapped(node)
    if not isinstance(call, _CHOOSE) or (isinstance(call, exp.Lag | exp.Lead) and call.args.get("default")):
        return Unknown(text)
    return Chosen(text, frozenset(_of(block, call.this)), tuple(frozenset(_of(block, key)) for key in keys))


# Steps


_SINCE_1970 = {"timestamp_seconds": 10**6, "timestamp_millis": 1000, "timestamp_micros": 1}


def _rounded(number: exp.Expr) -> tuple[exp.Expr | None, int]:
    """The time in `floor(unix_seconds(ts) / 300) * 300`, or with `div` or `%`, and how many seconds that is rounded to. (The
    latter round to the other side before 1970. A row that gets out of its partition by that stops the update; none is lost.)
    """
    while isinstance(number, exp.Paren | exp.Cast):
        number = number.this
    if isinstance(number, exp.Sub):
        rest = number.expression
        while isinstance(rest, exp.Paren):
            rest = rest.this
        if isinstance(rest, exp.Anonymous) and str(rest.this).lower() == "pmod" and len(rest.expressions) == 2:
            rest = exp.Mod(this=rest.expressions[0].copy(), expression=rest.expressions[1].copy())
        width = _count(rest.expression) if isinstance(rest, exp.Mod) else None
        while isinstance(inside := rest.this, exp.Paren):
            rest = exp.Mod(this=inside.this.copy(), expression=rest.expression.copy())
        return (number.this, width) if width and width > 0 and rest.this == number.this else (None, 0)
    if not isinstance(number, exp.Mul):
        return None, 0
    for count, floor in ((number.this, number.expression), (number.expression, number.this)):
        while isinstance(floor, exp.Paren | exp.Cast):
            floor = floor.this
        width = _count(count)
        inner = floor.this if isinstance(floor, exp.Floor) and not floor.args.get("decimals") else floor
        divides = exp.Div if inner is not floor else exp.IntDiv
        if width and width > 0 and isinstance(inner, divides) and _count(inner.expression) == width:
            return inner.this, width
    return None, 0


def _moved(node: exp.Expr) -> tuple[exp.Expr | None, tuple[Step, ...]]:
    """What an expression is made of, and how it moves that; None if it is no such expression."""
    match node:
        case exp.Anonymous() if str(node.this).lower() in _SINCE_1970 and len(node.expressions) == 1:
            inner, width = _rounded(node.expressions[0])
            scale = _SINCE_1970[str(node.this).lower()]
            kinds = {10**6: (exp.UnixSeconds, exp.StrToUnix), 1000: (exp.UnixMillis,), 1: (exp.UnixMicros,)}[scale]
            return (inner.this, (Rounded(width * scale),)) if isinstance(inner, kinds) else (None, ())
        case exp.TimestampTrunc():
            unit = _UNITS.get(_unit(node))
            return (node.this, (Within(unit),)) if unit else (None, ())
        case exp.DateTrunc():
            unit = _UNITS.get(_unit(node))
            return (node.this, (Within(unit),)) if unit in ("week", "month", "quarter", "year") else (None, ())
        case exp.TsOrDsToDate() if not node.args.get("format"):
            return node.this, (_DAY,)
        case exp.Cast():
            to = infer(node, lambda _: None)
            steps: dict[str | None, tuple[Step, ...]] = {"date": (_DAY,), "timestamp": (), "timestamp_ntz": (Local(),)}
            return (node.this, steps[to]) if to in steps else (None, ())
        case exp.LastDay():
            return node.this, (_DAY, Within("month", back=False))
        case exp.NextDay():
            return node.this, (_DAY, Shifted(days=(1, 7)))
        case exp.AddMonths():
            count = _count(node.expression)
            return (node.this, (_DAY, Shifted(months=(count, count)))) if count is not None else (None, ())
        case exp.TsOrDsAdd():
            count = _count(node.expression)
            return (node.this, (_DAY, Shifted(days=(count, count)))) if count is not None else (None, ())
        case exp.TimestampAdd():
            step = _interval(node.expression, _unit(node))
            return (node.this, (step,)) if step is not None else (None, ())
        case exp.Add() | exp.Sub() | exp.SafeAdd() | exp.SafeSubtract():
            sign = 1 if isinstance(node, exp.Add | exp.SafeAdd) else -1
            step = _step(node.expression, sign)
            if step is not None:
                return node.this, (step,)
            step = _step(node.this, 1) if sign > 0 else None
            return (node.expression, (step,)) if step is not None else (None, ())
    return None, ()


_UNITS = {
    "year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mon": "month", "mm": "month",
    "week": "week", "day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second",
    "millisecond": "second", "microsecond": "second",
}  # fmt: skip


def _unit(node: exp.Expr) -> str:
    return str(node.args["unit"].name).lower() if node.args.get("unit") is not None else ""


def _count(node: exp.Expr) -> int | None:
    """A whole number that is written down."""
    match node:
        case exp.Paren():
            return _count(node.this)
        case exp.Neg():
            count = _count(node.this)
            return None if count is None else -count
        case exp.Mul():
            counts = _count(node.this), _count(node.expression)
            return counts[0] * counts[1] if counts[0] is not None and counts[1] is not None else None
        case exp.Literal() if re.fullmatch(r"\s*[-+]?\d+\s*", str(node.this)):
            return int(node.this)
    return None


_PAIRS = re.compile(r"\s*([-+]?\s*\d+)\s+([a-z]+)\s*", re.I)


def _step(node: exp.Expr, sign: int) -> Shifted | None:
    """A constant that is added to a time: an interval, or days."""
    match node:
        case exp.Paren():
            return _step(node.this, sign)
        case exp.Neg():
            return _step(node.this, -sign)
        case exp.Add():
            first, second = _step(node.this, sign), _step(node.expression, sign)
            return _sum(first, second) if first is not None and second is not None else None
        case exp.Literal() if not node.is_string:
            count = _count(node)
            return Shifted(days=(sign * count, sign * count)) if count is not None else None
        case exp.Interval() if isinstance(node.this, exp.Literal):
            text = str(node.this.this)
            if node.args.get("unit") is not None and not isinstance(node.args["unit"], exp.IntervalSpan):
                return _interval(node.this, _unit(node), sign)
            total: Shifted | None = Shifted()
            if node.args.get("unit") is not None or not re.fullmatch(f"(?:{_PAIRS.pattern})+", text, re.I):
                return None
            for count_text, unit in _PAIRS.findall(text):
                part = _interval(exp.Literal.string(count_text.replace(" ", "")), unit.lower(), sign)
                total = _sum(total, part) if total is not None and part is not None else None
            return total
    return None


def _sum(a: Shifted, b: Shifted) -> Shifted:
    return Shifted(
        (a.months[0] + b.months[0], a.months[1] + b.months[1]),
        (a.days[0] + b.days[0], a.days[1] + b.days[1]),
        (a.micros[0] + b.micros[0], a.micros[1] + b.micros[1]),
    )


_MICROS = {"microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def _interval(count: exp.Expr, unit: str, sign: int = 1) -> Shifted | None:
    number, unit = _count(count), unit.lower().removesuffix("s")
    if number is None:
        seconds = re.fullmatch(r"[-+]?\d+\.\d{1,6}", str(count.this)) if isinstance(count, exp.Literal) else None
        if unit == "second" and seconds:
            micros = sign * round(float(seconds[0]) * 10**6)
            return Shifted(micros=(micros, micros))
        return None
    number *= sign
    if unit in _MICROS:
        return Shifted(micros=(number * _MICROS[unit], number * _MICROS[unit]))
    if unit in _DAYS:
        return Shifted(days=(number * _DAYS[unit], number * _DAYS[unit]))
    return Shifted(months=(number * _MONTHS[unit], number * _MONTHS[unit])) if unit in _MONTHS else None
