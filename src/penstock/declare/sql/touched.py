"""Which partitions a query can touch: what its predicates on time columns leave of each table.

Only what stands in a WHERE joined by AND counts, where a plain column is compared with a constant; anything else
touches everything. So the answer may be too much, never too little.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from sqlglot import exp

from penstock.declare.sql.functions import is_aggregate
from penstock.declare.sql.model import Block, ParsedQuery, Relation
from penstock.declare.sql.parse import PenstockSpark
from penstock.declare.sql.read import ReadQuery
from penstock.model.grain import WHOLE, Grain
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.time import BEGIN_US, DAY_US, END_US, HOUR_US, MINUTE_US, SECOND_US, instant, local_instant
from penstock.queries.predict import PlanShape


@dataclass(frozen=True, slots=True)
class Timed:
    """The time column by which a table is partitioned."""

    column: str
    grain: Grain


def touched(read: ReadQuery, tables: Mapping[str, Timed], now_us: int, zone: tzinfo = UTC) -> dict[str, PartitionSet]:
    """Of each table that the query reads, the partitions whose rows can matter to it. Times without offset are
    read in the zone, as Spark does it."""
    now = _Now(now_us, zone)
    found: dict[str, PartitionSet] = {name: PartitionSet() for name in read.tables}
    spelled = {name.lower(): name for name in read.tables}
    seen: set[int] = set()
    for block in _blocks(read.query):
        for relation in block.relations:
            name = spelled.get((relation.table or "").lower())
            if name is None or relation.node is None:
                continue
            seen.add(id(relation.node))
            found[name] |= _of_relation(block, relation, tables.get(name), now)
    for table in read.parsed.tree.find_all(exp.Table):
        name = spelled.get(str(table.name).lower())
        if name is not None and id(table) not in seen:
            found[name] = EVERYTHING  # read in a place that was not looked at, such as the right side of an anti join
    return found


def _blocks(query: ParsedQuery) -> Iterator[Block]:
    """Each once: a named query may be read in many places."""
    seen: set[int] = set()
    left = [query]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Block):
            yield one
            left += [relation.query for relation in one.relations if relation.query is not None]
            left += one.subqueries
        else:
            left += [one.left, one.right]


def _of_relation(block: Block, relation: Relation, timed: Timed | None, now: _Now) -> PartitionSet:
    where = block.node.args.get("where")
    if timed is None or timed.grain is WHOLE or where is None:
        return EVERYTHING
    low, high = BEGIN_US, END_US
    for term in _terms(where.this):
        start, end = _bounds(block, relation, timed.column, term, now)
        low, high = max(low, start), min(high, end)
    if low >= high:
        return PartitionSet()
    return EVERYTHING if (low, high) == (BEGIN_US, END_US) else _hull(timed.grain, low, high)


def _hull(grain: Grain, low: int, high: int) -> PartitionSet:
    start = grain.floor(low) if low > BEGIN_US else BEGIN_US
    return PartitionSet.of((start, grain.ceil(high) if high < END_US else END_US))


def _terms(node: exp.Expr) -> Iterator[exp.Expr]:
    """What is joined by AND."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        yield from _terms(node.this)
        yield from _terms(node.expression)
    else:
        yield node


_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}


def _bounds(block: Block, relation: Relation, time: str, term: exp.Expr, now: _Now) -> tuple[int, int]:
    """The times that one comparison leaves, as a half-open interval; all of them if it says nothing."""
    everything = BEGIN_US, END_US
    if isinstance(term, exp.Between):
        slack = _slack(block, relation, time, term.this, now.day_us)
        low, high = _constant(term.args["low"], now), _constant(term.args["high"], now)
        if slack is None or term.args.get("symmetric"):
            return everything
        return _from(low, slack), _upto(high, slack)
    if not isinstance(term, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return everything
    kind: type[exp.Expr] = type(term)
    column, other = term.this, term.expression
    slack = _slack(block, relation, time, column, now.day_us)
    if slack is None:
        column, other, kind = other, column, _TURNED.get(kind, kind)
        slack = _slack(block, relation, time, column, now.day_us)
    value = _constant(other, now)
    if slack is None or value is None:
        return everything
    if kind is exp.EQ:
        return _from(value, slack), _upto(value, slack)
    return (_from(value, slack), END_US) if kind in (exp.GT, exp.GTE) else (BEGIN_US, _upto(value, slack))


@dataclass(frozen=True, slots=True)
class _Now:
    at_us: int
    zone: tzinfo

    @property
    def day_us(self) -> int:
        """No day of the zone is longer."""
        return DAY_US if self.zone is UTC else 2 * DAY_US


@dataclass(frozen=True, slots=True)
class _Constant:
    at_us: int
    # It is "now", which will be later when the query runs.
    moving: bool = False
    # It may be so far off.
    slack_us: int = 0


def _from(value: _Constant | None, slack_us: int) -> int:
    return BEGIN_US if value is None else value.at_us - value.slack_us - slack_us


def _upto(value: _Constant | None, slack_us: int) -> int:
    return END_US if value is None or value.moving else value.at_us + value.slack_us + slack_us + 1


def _slack(block: Block, relation: Relation, time: str, node: exp.Expr, day_us: int) -> int | None:
    """How far the compared value may be from the row's time: none for the column itself, a day for its date. None if it
    is not about the time column."""
    while isinstance(node, exp.Paren):
        node = node.this
    slack = 0
    if isinstance(node, exp.TsOrDsToDate | exp.Date) or (
        isinstance(node, exp.Cast) and node.is_type(exp.DataType.Type.DATE)
    ):
        node, slack = node.this, day_us
    if not isinstance(node, exp.Column):
        return None
    bound = block.meaning(node)
    if (
        bound is None
        or bound.relation is not relation
        or bound.path
        or (bound.output.name or "").lower() != time.lower()
    ):
        return None
    return slack if bound.output.type == "timestamp" else slack + day_us


_WRITTEN = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?")
_UNITS = {"SECOND": SECOND_US, "MINUTE": MINUTE_US, "HOUR": HOUR_US, "DAY": DAY_US, "WEEK": 7 * DAY_US}


def _constant(node: exp.Expr, now: _Now) -> _Constant | None:
    match node:
        case exp.Paren():
            return _constant(node.this, now)
        case exp.Literal() if node.is_string:
            return _written(str(node.this), now)
        case exp.Cast() if isinstance(node.this, exp.Literal) and node.this.is_string:
            if node.is_type("date"):
                return _written(str(node.this.this)[:10], now)
            return (
                _written(str(node.this.this), now) if node.is_type("timestamp", "timestamptz", "timestampltz") else None
            )
        case exp.Anonymous() if str(node.this).lower() == "now":
            return _Constant(now.at_us, moving=True)
        case exp.CurrentTimestamp():
            return _Constant(now.at_us, moving=True)
        case exp.CurrentDate():
            return _Constant(now.at_us, moving=True, slack_us=now.day_us)
        case exp.Add() | exp.Sub() if isinstance(node.expression, exp.Interval):
            base, length = _constant(node.this, now), _length(node.expression)
            if base is None or length is None:
                return None
            # Spark adds days by the calendar of the zone.
            slack = base.slack_us + (0 if now.zone is UTC or length < DAY_US else DAY_US)
            return _Constant(base.at_us + (length if isinstance(node, exp.Add) else -length), base.moving, slack)
    return None


def _written(text: str, now: _Now) -> _Constant | None:
    """A time as Spark reads it."""
    if not _WRITTEN.fullmatch(text):
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _Constant(instant(parsed) if parsed.tzinfo else local_instant(parsed, now.zone))


def _length(interval: exp.Interval) -> int | None:
    unit = str(interval.args["unit"].name).upper().removesuffix("S") if interval.args.get("unit") else ""
    number = interval.this
    if unit not in _UNITS or not isinstance(number, exp.Literal) or not re.fullmatch(r"\d{1,9}", str(number.this)):
        return None
    return int(number.this) * _UNITS[unit]


# The shape of a query: what it does, without its constants. Queries of one shape take about as long on as many bytes.

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


_MOVING = {"now", "current_timestamp", "current_date", "tablesample", "unix_timestamp"}
# Strings that Spark takes for a time, wherever one is expected.
_WORDS_FOR_TIMES = {"now", "today", "yesterday", "tomorrow"}


def is_steady(read: ReadQuery) -> bool:
    """Whether it gives the same answer on the same versions whenever it is asked."""
    words = {token.text.strip().lower() for token in read.parsed.tokens}
    return not words & (_MOVING | _WORDS_FOR_TIMES)
