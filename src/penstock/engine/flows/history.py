"""Dimensions, keys and differences, on Spark. Keys are compared so that null equals null."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from penstock.engine.flows.realise import HIDDEN, Inputs, extremes, hidden_of, realise, shown, the_one
from penstock.engine.updates.rows import quoted, schema_of
from penstock.flows.activities import AttachKey, Difference, NewKeys, Overwrite, Versions
from penstock.flows.activities.combine import CURRENT, VALID_FROM, VALID_TO
from penstock.flows.activities.history import CHANGE
from penstock.model.schema import Column, Schema

_OLD, _NEW, _KEY = "_penstock_old", "_penstock_new", "_penstock_key"


@realise.register
def _(activity: NewKeys, given: Inputs) -> DataFrame:
    natural = [quoted(name) for name in activity.natural]
    known = given.loaded(activity.table, _key_columns(given.rows, activity))
    new = given.rows.select(*natural).distinct()
    fresh = _joined(new, known, activity.natural, "left_anti")
    # Only new keys are numbered, in one task: their order decides, so that trying again gives the same numbers.
    last = known.agg(F.expr(f"coalesce(max({quoted(activity.key)}), 0L) as {_OLD}"))
    number = F.row_number().over(Window.orderBy(*natural)).cast("bigint")
    numbered = fresh.withColumn(_NEW, number).crossJoin(F.broadcast(last))
    return numbered.selectExpr(*natural, f"{_OLD} + {_NEW} as {quoted(activity.key)}")


@realise.register
def _(activity: AttachKey, given: Inputs) -> DataFrame:
    rows, new = given.frames
    known = given.loaded(activity.table, _key_columns(rows, activity)).unionByName(new)
    mine = [quoted(name) for name in rows.columns]
    return _joined(rows, known, activity.natural, "inner").selectExpr(*mine, quoted(activity.key))


def _key_columns(rows: DataFrame, activity: NewKeys | AttachKey) -> Schema:
    natural = {name.lower() for name in activity.natural}
    return (*(c for c in schema_of(rows) if c.name.lower() in natural), Column(activity.key, "bigint"))


@realise.register
def _(activity: Overwrite, given: Inputs) -> DataFrame:
    rows = given.rows
    newest = _newest(rows, activity.key, [activity.at] if activity.at is not None else [])
    return newest.drop(*hidden_of(rows))


@realise.register
def _(activity: Versions, given: Inputs) -> DataFrame:
    """Of each key and time one row; of those in order of time, each that says other than the one before it."""
    rows = given.rows
    since = next(c for c in schema_of(rows) if c.name.lower() == activity.at.lower())
    kept = [name for name in shown(rows) if name != since.name]
    keys = {name.lower() for name in activity.key}
    values = [quoted(name) for name in kept if name.lower() not in keys]
    said = f"struct({', '.join(values)})" if values else "true"
    rows = _newest(rows, (*activity.key, since.name), [])
    by_time = Window.partitionBy(*map(quoted, activity.key)).orderBy(quoted(since.name))
    rows = rows.withColumn(_OLD, F.lag(F.expr(said)).over(by_time)).where(f"{_OLD} is null or not ({_OLD} <=> {said})")
    rows = rows.withColumn(_NEW, F.lead(quoted(since.name)).over(by_time))
    validity = (f"{quoted(since.name)} as {VALID_FROM}", f"{_NEW} as {VALID_TO}", f"{_NEW} is null as {CURRENT}")
    return rows.selectExpr(*map(quoted, kept), *validity)


def _newest(rows: DataFrame, key: Sequence[str], by: Sequence[str]) -> DataFrame:
    """Of rows with equal key the newest: by these columns, then by the order of the files that they came with. All columns
    decide in the end, so that it is the same one every time."""
    order = [
        *by,
        *hidden_of(rows),
        *(name for name, type_ in rows.dtypes if "map<" not in type_ and name not in HIDDEN),
    ]
    newest_first = [F.col(quoted(name)).desc_nulls_last() for name in order]
    window = Window.partitionBy(*map(quoted, key)).orderBy(*newest_first)
    return rows.withColumn(_NEW, F.row_number().over(window)).where(f"{_NEW} = 1").drop(_NEW)


@realise.register
def _(activity: Difference, given: Inputs) -> DataFrame:
    rows = given.rows.drop(*hidden_of(given.rows))
    found = the_one(
        activity.key, "difference: there are several rows with", "keep one of them with deduplicate(…) before it"
    )
    keys = [quoted(name) for name in activity.key]

    def each(rows_: DataFrame, name: str) -> DataFrame:
        return extremes(rows_, activity.key, rows.columns).selectExpr(*keys, f"{found} as {name}")

    new, old = each(rows, _NEW), each(given.loaded(activity.table, schema_of(rows)), _OLD)
    both = _joined(new, old, activity.key, "full_outer").where(f"not ({_NEW} <=> {_OLD})")
    change = f"case when {_OLD} is null then 'insert' when {_NEW} is null then 'delete' else 'update' end as {CHANGE}"
    return both.selectExpr(f"coalesce({_NEW}, {_OLD}) as {_KEY}", change).selectExpr(f"{_KEY}.*", CHANGE)


def _joined(left: DataFrame, right: DataFrame, keys: Sequence[str], how: str) -> DataFrame:
    """Joined where keys are equal or both null. The right side's keys do not come out."""
    renamed = {name: f"{_KEY}_{number}" for number, name in enumerate(keys)}
    right = right.withColumnsRenamed({_spelled(right, name): new for name, new in renamed.items()})
    on = " and ".join(f"{quoted(name)} <=> {new}" for name, new in renamed.items())
    return left.join(right, F.expr(on), how).drop(*renamed.values())


def _spelled(rows: DataFrame, name: str) -> str:
    return next(each for each in rows.columns if each.lower() == name.lower())
