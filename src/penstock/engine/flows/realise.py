"""How Spark does each activity. Every function takes the rows that come in and gives those that go out; for checks, also
those that are refused. Nothing runs here: frames are lazy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce, singledispatch
from typing import Protocol

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.engine.spark.session import settings_kept
from penstock.engine.updates.provenance import FILE
from penstock.engine.updates.rows import RowsProblem, quoted, schema_of
from penstock.flows.activities import (
    Activity,
    Aggregate,
    BlackBox,
    Check,
    Deduplicate,
    Derive,
    Drop,
    Filter,
    Gather,
    GroupPart,
    HasType,
    InDomain,
    Join,
    Lookup,
    Matches,
    NotNull,
    Pivot,
    Reformat,
    Route,
    Select,
    Sort,
    SortedUnion,
    Split,
    Union,
    Unpivot,
)
from penstock.flows.activities.base import direction
from penstock.flows.activities.checks import Literal
from penstock.flows.activities.combine import VALID_FROM, VALID_TO, VALIDITY
from penstock.flows.activities.group import SET
from penstock.model.schema import Schema, parse_ddl

_NUMBER, _FOUND, _LAST = "_penstock_n", "_penstock_found", "_penstock_last"
_KEY, _SINCE, _UNTIL = "_penstock_key", "_penstock_since", "_penstock_until"
# Hidden columns that rows of a flow may have; nobody sees them. The delivered file that a row came from rides along wherever a
# row comes from one row. Where there are rows of many snapshots, of each the number tells which: everything is then done
# within each snapshot.
SNAPSHOT = "_penstock_snapshot"
HIDDEN = (FILE, SNAPSHOT)


def hidden_of(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name in HIDDEN]


def within(*frames: DataFrame) -> list[str]:
    """What tells snapshots apart, where all of these have many."""
    return [SNAPSHOT] if all(SNAPSHOT in rows.columns for rows in frames) else []


def shown(rows: DataFrame) -> list[str]:
    """The columns that a user knows of."""
    return [name for name in rows.columns if name not in HIDDEN]


class FormerRows(Protocol):
    """What a target of the flow held before: its rows with these columns, none if it does not exist yet."""

    def __call__(self, table: str, columns: Schema) -> DataFrame: ...


@dataclass(frozen=True)
class Inputs:
    """What an activity gets: the rows of its providers, in order, and the way to what is loaded."""

    frames: tuple[DataFrame, ...]
    loaded: FormerRows

    @property
    def rows(self) -> DataFrame:
        return self.frames[0]


@singledispatch
def realise(activity: Activity, given: Inputs) -> DataFrame:
    raise NotImplementedError(activity.kind)


@singledispatch
def refused(activity: Check, given: Inputs) -> DataFrame:
    """The rows that a check refuses, as they came in."""
    return given.rows.where(f"not ({good(activity)})")


# Checks


@singledispatch
def good(activity: Check) -> str:
    """Whether a row is good, as SQL that is never null."""
    raise NotImplementedError(activity.kind)


@good.register
def _(activity: NotNull) -> str:
    return " and ".join(f"{quoted(name)} is not null" for name in activity.columns)


@good.register
def _(activity: Filter) -> str:
    return f"coalesce(({activity.condition}), false)"


@good.register
def _(activity: Matches) -> str:
    return f"coalesce({quoted(activity.column)} rlike {literal(activity.pattern)}, false)"


@good.register
def _(activity: HasType) -> str:
    name = quoted(activity.column)
    return f"({name} is null or try_cast({name} as {activity.type}) is not null)"


@good.register
def _(activity: InDomain) -> str:
    name = quoted(activity.column)
    if activity.values:
        return f"coalesce({name} in ({', '.join(map(literal, activity.values))}), false)"
    bounds = [f"{name} >= {literal(activity.low)}"] if activity.low is not None else []
    bounds += [f"{name} <= {literal(activity.high)}"] if activity.high is not None else []
    return f"coalesce({' and '.join(bounds)}, false)"


@realise.register
def _(activity: NotNull, given: Inputs) -> DataFrame:
    if activity.bad != "default":
        return given.rows.where(good(activity))
    return _replaced(given.rows, {name: f"coalesce({quoted(name)}, {activity.default})" for name in activity.columns})


@realise.register
def _(activity: Filter, given: Inputs) -> DataFrame:
    return given.rows.where(activity.condition)


@realise.register(Matches)
@realise.register(InDomain)
def _(activity: Matches | InDomain, given: Inputs) -> DataFrame:
    if activity.bad != "default":
        return given.rows.where(good(activity))
    name = activity.column
    return _replaced(given.rows, {name: f"if({good(activity)}, {quoted(name)}, {activity.default})"})


@realise.register
def _(activity: HasType, given: Inputs) -> DataFrame:
    name = activity.column
    value = f"try_cast({quoted(name)} as {activity.type})"
    if activity.bad == "default":
        value = f"if({good(activity)}, {value}, cast({activity.default} as {activity.type}))"
        return _replaced(given.rows, {name: value})
    return _replaced(given.rows.where(good(activity)), {name: value})


# Columns


@realise.register
def _(activity: Derive, given: Inputs) -> DataFrame:
    return _replaced(given.rows, dict(activity.expressions))


@realise.register
def _(activity: Reformat, given: Inputs) -> DataFrame:
    name = activity.column
    text = f"regexp_replace({quoted(name)}, {literal(activity.pattern)}, {literal(activity.replacement)})"
    return _replaced(given.rows, {name: text})


@realise.register
def _(activity: Select, given: Inputs) -> DataFrame:
    computed = (f"{expression} as {quoted(name)}" for name, expression in activity.expressions)
    return given.rows.selectExpr(*computed, *hidden_of(given.rows))


@realise.register
def _(activity: Drop, given: Inputs) -> DataFrame:
    return given.rows.drop(*activity.columns)


@realise.register
def _(activity: Split, given: Inputs) -> DataFrame:
    return given.rows.select(*map(quoted, activity.columns), *hidden_of(given.rows))


@realise.register
def _(activity: Route, given: Inputs) -> DataFrame:
    tests = [f"not coalesce(({before}), false)" for before in activity.before]
    tests += [f"({activity.condition})"] if activity.condition is not None else []
    return given.rows.where(" and ".join(tests))


# Several inputs

_JOINS = {"semi": "left_semi", "anti": "left_anti", "full": "full_outer"}


@realise.register
def _(activity: Join, given: Inputs) -> DataFrame:
    left, right = given.frames
    right = right.drop(FILE)  # a pair is of the left row's file
    how = _JOINS.get(activity.how, activity.how)
    both = within(left, right)
    if activity.condition is None:
        return left.join(right, [*activity.keys, *both], how)
    if both:
        right = right.withColumnRenamed(SNAPSHOT, _NUMBER)
        found = left.join(right, F.expr(f"({activity.condition}) and {SNAPSHOT} = {_NUMBER}"), how)
        if how in ("right", "full_outer"):
            found = found.withColumn(SNAPSHOT, F.expr(f"coalesce({SNAPSHOT}, {_NUMBER})"))
        return found.drop(_NUMBER)
    return left.join(right, F.expr(activity.condition), how)


@realise.register
def _(activity: Lookup, given: Inputs) -> DataFrame:
    rows, reference = given.frames
    found, on = _found(activity, rows, reference)
    how = "left" if activity.bad == "default" else "inner"
    told = "look_up: the reference has several rows with"
    hint = 'say which one counts with order="…"' if activity.as_of is None else "of one valid_from there is one version"
    one = the_one(activity.keys, told, hint)
    columns = [quoted(name) for name in rows.columns]
    columns += [f"({one}).{quoted(name)} as {quoted(name)}" for name in _wanted(activity, reference)]
    return rows.join(found, F.expr(on), how).selectExpr(*columns)


def _wanted(activity: Lookup, reference: DataFrame) -> tuple[str, ...]:
    if activity.columns:
        return activity.columns
    others = {key.lower() for key in activity.keys} | set(VALIDITY if activity.as_of is not None else ())
    return tuple(name for name in shown(reference) if name.lower() not in others)


def _found(activity: Lookup, rows: DataFrame, reference: DataFrame) -> tuple[DataFrame, str]:
    """What can be found in a reference, and on which condition a row finds it. One row for each key (and time), whatever the
    reference has: a look-up never multiplies rows. Where several differ it must be said which one counts."""
    keys = [*activity.keys, *within(rows, reference)]
    if activity.order:
        reference = _numbered(Deduplicate(key=activity.keys, order=activity.order), reference).where(f"{_NUMBER} = 1")
    wanted = _wanted(activity, reference)
    held = [VALID_FROM] if activity.as_of is not None else []
    chosen = extremes(reference, (*keys, *held), (*wanted, *([VALID_TO] if held else [])))
    if activity.ambiguous == "bad":
        chosen = chosen.where(f"{_FOUND} <=> {_LAST}")
    names = [f"{_KEY}_{number}" for number in range(len(keys))]
    columns = [f"{quoted(key)} as {name}" for key, name in zip(keys, names, strict=True)]
    on = " and ".join(f"{quoted(key)} = {name}" for key, name in zip(keys, names, strict=True))
    if held:
        # A version ends at the latest where the next one begins, so that at no time there are two.
        following = F.lead(quoted(VALID_FROM)).over(Window.partitionBy(*map(quoted, keys)).orderBy(VALID_FROM))
        chosen = chosen.withColumn(_NUMBER, following)
        columns += [f"{VALID_FROM} as {_SINCE}", f"least({_FOUND}.{VALID_TO}, {_NUMBER}) as {_UNTIL}"]
        at = quoted(activity.as_of or "")
        on += f" and {at} >= {_SINCE} and ({_UNTIL} is null or {at} < {_UNTIL})"
    return chosen.selectExpr(*columns, _FOUND, _LAST), on


def extremes(rows: DataFrame, keys: Sequence[str], wanted: Sequence[str]) -> DataFrame:
    """For each key the least and the greatest of its rows."""
    values = f"struct({', '.join(map(quoted, wanted))})"
    return rows.groupBy(*map(quoted, keys)).agg(
        F.expr(f"min({values}) as {_FOUND}"), F.expr(f"max({values}) as {_LAST}")
    )


def the_one(keys: Sequence[str], told: str, hint: str) -> str:
    """The one row that a key has, of its least and greatest, as SQL. If they differ that is an error which names the key."""
    named = ", ".join(f"'{key}', coalesce(cast({quoted(key)} as string), 'null')" for key in keys)
    text = f"concat_ws(' ', {literal(told)}, {named}, {literal('and other values; ' + hint)})"
    return f"if({_FOUND} <=> {_LAST}, {_FOUND}, raise_error({text}))"


@refused.register
def _(activity: Lookup, given: Inputs) -> DataFrame:
    rows, reference = given.frames
    found, on = _found(activity, rows, reference)
    return rows.join(found, F.expr(on), "left_anti")


@realise.register
def _(activity: Union, given: Inputs) -> DataFrame:
    return _united(given.frames)


@realise.register
def _(activity: SortedUnion, given: Inputs) -> DataFrame:
    return _sorted(_united(given.frames), activity.by)


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    hidden = dict.fromkeys(name for rows in frames for name in hidden_of(rows))
    return reduce(
        DataFrame.unionByName,
        (
            rows.selectExpr("*", *(f"cast(null as bigint) as {name}" for name in hidden if name not in rows.columns))
            for rows in frames
        ),
    )


# Groups and orders


@realise.register
def _(activity: Aggregate, given: Inputs) -> DataFrame:
    computed = [F.expr(f"{expression} as {quoted(name)}") for name, expression in activity.expressions]
    return given.rows.groupBy(*map(quoted, (*activity.by, *within(given.rows)))).agg(*computed)


@realise.register
def _(activity: Gather, given: Inputs) -> DataFrame:
    computed = [F.expr(f"{expression} as {quoted(name)}") for name, expression in activity.expressions]
    sets = [[F.col(quoted(key)) for key in keys] for keys in activity.sets]
    grouped = given.rows.groupingSets(sets, *(F.col(quoted(key)) for key in activity.keys))
    return grouped.agg(*computed, F.grouping_id().cast("int").alias(SET))


@realise.register
def _(activity: GroupPart, given: Inputs) -> DataFrame:
    own = given.rows.where(f"{SET} = {activity.number}")
    return own.select(*map(quoted, (*activity.by, *activity.measures)))


@realise.register
def _(activity: Sort, given: Inputs) -> DataFrame:
    return _sorted(given.rows, activity.by)


@realise.register
def _(activity: Deduplicate, given: Inputs) -> DataFrame:
    return _numbered(activity, given.rows).where(f"{_NUMBER} = 1").drop(_NUMBER)


@refused.register
def _(activity: Deduplicate, given: Inputs) -> DataFrame:
    return _numbered(activity, given.rows).where(f"{_NUMBER} > 1").drop(_NUMBER)


def _numbered(activity: Deduplicate, rows: DataFrame) -> DataFrame:
    """All columns decide in the end, so that the first one is the same every time."""
    ties = [F.col(quoted(name)) for name, type_ in rows.dtypes if "map<" not in type_]
    window = Window.partitionBy(*map(quoted, (*activity.key, *within(rows)))).orderBy(
        *(_order(each) for each in activity.order), *ties
    )
    return rows.withColumn(_NUMBER, F.row_number().over(window))


@realise.register
def _(activity: Pivot, given: Inputs) -> DataFrame:
    grouped = given.rows.groupBy(*map(quoted, (*activity.by, *within(given.rows))))
    return grouped.pivot(activity.column, list(activity.values)).agg(F.expr(activity.aggregate))


@realise.register
def _(activity: Unpivot, given: Inputs) -> DataFrame:
    turned = {name.lower() for name in activity.columns}
    kept = [quoted(name) for name in given.rows.columns if name.lower() not in turned]
    values = [quoted(name) for name in activity.columns]
    long = given.rows.unpivot(kept, values, activity.name, activity.value)  # type: ignore[arg-type]
    return long.where(f"{quoted(activity.value)} is not null")


def _order(text: str) -> Column:
    name, descending = direction(text)
    return F.col(quoted(name)).desc() if descending else F.col(quoted(name)).asc()


def _sorted(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """To find ranges of equal size Spark evaluates what it sorts a second time. Behind a shuffle that is only read again;
    else all activities before it would be done, and their rows counted, twice."""
    return rows.repartition(*(quoted(direction(each)[0]) for each in by)).sort(*(_order(each) for each in by))


# Anything else


@realise.register
def _(activity: BlackBox, given: Inputs) -> DataFrame:
    with settings_kept(given.frames[0].sparkSession):
        result = activity.function(*(rows.drop(*hidden_of(rows)) for rows in given.frames))
    if not isinstance(result, DataFrame):
        raise RowsProblem(f"the function {_called(activity)} returned {type(result).__name__}, expected a DataFrame")
    found = {column.name.lower(): column.type for column in schema_of(result)}
    promised = parse_ddl(activity.gives)
    wrong = [c.name for c in promised if found.get(c.name.lower()) != c.type]
    if wrong or len(found) != len(promised):
        given_ = ", ".join(f"{column.name} {column.type}" for column in schema_of(result))
        raise RowsProblem(
            f"the function {_called(activity)} gave the columns {given_}; it says gives={activity.gives!r}"
        )
    return result.select(*(quoted(column.name) for column in promised))


def _called(activity: BlackBox) -> str:
    return getattr(activity.function, "__name__", "of the flow")


# Expressions


def _replaced(rows: DataFrame, expressions: dict[str, str]) -> DataFrame:
    """The rows with columns replaced where they stand, or added."""
    new = {name.lower(): f"{text} as {quoted(name)}" for name, text in expressions.items()}
    kept = [new.pop(name.lower(), quoted(name)) for name in rows.columns]
    return rows.selectExpr(*kept, *new.values())


def literal(value: Literal) -> str:
    """A value as Spark SQL writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"{value!r}D" if isinstance(value, float) else str(value)
