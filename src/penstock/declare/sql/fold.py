"""The fold plan of an aggregating view: what is stored beside the visible columns, and the SQL that folds it.

The law, for every split of the rows into batches: merge(delta(a), delta(b)) = delta(a + b), values and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.declare.sql.facts import AggregateWay, quoted
from penstock.declare.sql.parse import Parsed
from penstock.declare.sql.text import Call, Item, SelectList
from penstock.declare.sql.types import INTEGERS, decimal_of, of_avg
from penstock.model.schema import Column


@dataclass(frozen=True)
class StoredPartial:
    """One stored partial: an aggregate over the rows that another aggregate folds."""

    kind: str
    sql: str
    type: str | None


@dataclass(frozen=True)
class Value:
    """One aggregate call: its parts, and how its value is made of them (`{0}`, `{1}`)."""

    function: str
    parts: tuple[StoredPartial, ...]
    formula: str

    def of(self, parts: Sequence[str]) -> str:
        return self.formula.format(*parts)

    @property
    def is_plain(self) -> bool:
        return self.formula == "{0}"


def averaged(call: Call, type_: str) -> Value | None:
    """An average as sum and count, equal to Spark's own to the last digit; None where that cannot be.

    Of integers, Spark adds doubles: exact, and so independent of the order, up to 2^53 (nine million billion); beyond
    it Spark's own answer depends on the order of rows, and ours is the exact sum, rounded once. Bigints are added as
    decimals because their sum may overflow where a sum of doubles would not.
    Of decimals, Spark divides to 39 digits after the point and rounds to s + 4. Divided as SQL, the quotient keeps
    28 - p + s digits before the second rounding; the two agree for up to 10^(24 - p) rows in a group, as no quotient
    with a smaller divisor is nearer to a rounding edge. With p <= 14 that is 10^10 rows."""
    counted = StoredPartial("count", f"count({call.arguments}){call.filter}", "bigint")
    if type_ in INTEGERS:
        if type_ == "bigint":
            total = StoredPartial("sum", f"sum(cast({call.arguments} as decimal(20,0))){call.filter}", "decimal(30,0)")
        else:
            total = StoredPartial("sum", f"sum({call.arguments}){call.filter}", "bigint")
        return Value("avg", (total, counted), "(cast({0} as double) / nullif({1}, 0))")
    digits = decimal_of(type_)
    if digits is None or digits[0] > 14:
        return None
    total = StoredPartial("sum", f"sum({call.arguments}){call.filter}", f"decimal({digits[0] + 10},{digits[1]})")
    return Value("avg", (total, counted), f"cast({{0}} / nullif({{1}}, 0) as {of_avg(type_)})")


@dataclass
class FoldPlan:
    """Collects the items of a select list; `assemble` makes the SQL."""

    parsed: Parsed
    texts: SelectList
    grouped: bool
    keys: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    visible: dict[str, str] = field(default_factory=dict)
    """Each column of the view and what folds it, in order."""
    partial: dict[str, str] = field(default_factory=dict)
    """Each column that is no key, over rows."""
    state: list[tuple[Column, str, str]] = field(default_factory=list)
    """Hidden columns: what they are over rows, and over partials."""
    replaced: list[tuple[int, int, str]] = field(default_factory=list)

    def add_key(self, name: str) -> None:
        self.keys.append(name)
        self.visible[name] = quoted(name)

    def add_constant(self, name: str, item: Item) -> None:
        """A function of the keys: one value in each group."""
        self.visible[name] = f"any_value({quoted(name)})"
        self.partial[name] = splice(self.parsed.text.sql, item.start, item.end, ())

    def add(self, name: str, item: Item, values: Sequence[Value], bare: bool) -> None:
        calls = item.calls
        self.functions += [v.function for v in values]
        own = [
            # also over rows, so that computing in full and folding are the same arithmetic
            (call.start, call.end, value.of([kept.sql for kept in value.parts]))
            for value, call in zip(values, calls, strict=True)
            if not value.is_plain
        ]
        self.replaced += own
        self.partial[name] = splice(self.parsed.text.sql, item.start, item.end, own)
        if bare and values[0].is_plain:
            self.visible[name] = self._fold(values[0].parts[0], name)
            return
        merged_calls = []
        for value in values:
            merged = []
            for kept in value.parts:
                hidden = self._hidden_name(kept.kind, name)
                merged.append(self._fold(kept, hidden))
                self.state.append((Column(hidden, kept.type or ""), kept.sql, merged[-1]))
            merged_calls.append(value.of(merged))
        self.visible[name] = splice(
            self.parsed.text.sql,
            item.start,
            item.end,
            [(call.start, call.end, text) for call, text in zip(calls, merged_calls, strict=True)],
        )

    def _hidden_name(self, kind: str, name: str) -> str:
        taken = {column.name for column, _, _ in self.state}
        plain = f"_penstock_{kind}_{name}"
        return next(n for n in [plain, *(f"{plain}_{i}" for i in range(2, 1000))] if n not in taken)

    def _fold(self, kept: StoredPartial, column: str) -> str:
        name = quoted(column)
        if kept.kind == "count":
            # without GROUP BY there is always one row, and a count of nothing is 0, not NULL
            return f"sum({name})" if self.grouped else f"coalesce(sum({name}), 0)"
        if kept.kind == "sum":
            # a sum of decimal sums would be ten digits wider
            return f"cast(sum({name}) as {kept.type})" if decimal_of(kept.type) else f"sum({name})"
        return f"{kept.kind}({name})"


def splice(sql: str, start: int, end: int, changes: Sequence[tuple[int, int, str]]) -> str:
    """`sql[start:end]` with pieces of it replaced."""
    pieces, at = [], start
    for begin, stop, text in sorted(changes):
        pieces += [sql[at:begin], text]
        at = stop
    return "".join([*pieces, sql[at:end]])


def assemble(plan: FoldPlan, why: str) -> AggregateWay:
    parsed, texts = plan.parsed, plan.texts
    added = "".join(f", {sql} AS {quoted(column.name)}" for column, sql, _ in plan.state)
    changes = [*plan.replaced, (texts.end, texts.end, added)] if added else plan.replaced
    delta = splice(parsed.text.sql, parsed.tokens[0].start, parsed.tokens[-1].end + 1, changes)
    merged = [*plan.visible.items(), *((column.name, folded) for column, _, folded in plan.state)]
    state = tuple(column for column, _, _ in plan.state)
    partial = (*plan.partial.items(), *((column.name, sql) for column, sql, _ in plan.state))
    return AggregateWay(why, tuple(plan.keys), tuple(plan.visible), state, delta, tuple(merged), partial)
