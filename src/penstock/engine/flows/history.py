"""Activities that look at what is loaded, on Spark. Keys are compared so that null equals null."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from penstock.engine.flows.realise import Inputs, realise
from penstock.engine.rows import quoted, schema_of
from penstock.flows.activities import AttachKey, Difference, NewKeys, Overwrite, Versions
from penstock.flows.activities.history import CHANGE, CURRENT, VALID_FROM, VALID_TO
from penstock.model.schema import Column, Schema

_OLD, _NEW, _LOADED, _KEY = "_penstock_old", "_penstock_new", "_penstock_loaded", "_penstock_key"


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
    kept = _joined(given.loaded(activity.table, schema_of(rows)), rows, activity.key, "left_anti")
    return rows.unionByName(kept)


@realise.register
def _(activity: Versions, given: Inputs) -> DataFrame:
    """Versions that were valid up to now and those that come, in order of time; one that says the same as the one before
    it is none. What was closed before stays as it is, and what comes too late to change it is left out."""
    rows = given.rows
    since = next(c for c in schema_of(rows) if c.name.lower() == activity.at.lower())
    kept = [c for c in schema_of(rows) if c.name != since.name]
    stored: Schema = (*kept, Column(VALID_FROM, since.type), Column(VALID_TO, since.type), Column(CURRENT, "boolean"))
    before = given.loaded(activity.table, stored)
    keys = {name.lower() for name in activity.key}
    values = [quoted(c.name) for c in kept if c.name.lower() not in keys]
    columns = [quoted(c.name) for c in kept]
    said = f"struct({', '.join(values)})" if values else "true"
    incoming = rows.selectExpr(*columns, f"{quoted(since.name)} as {VALID_FROM}", f"false as {_LOADED}")
    current = before.where(CURRENT).selectExpr(*columns, VALID_FROM, f"true as {_LOADED}")
    by_key = Window.partitionBy(*(quoted(name) for name in activity.key))
    ties = [F.col(name) for name in values]
    by_time = by_key.orderBy(F.col(VALID_FROM), F.col(_LOADED).desc(), *ties)
    both = current.unionByName(incoming)
    both = both.withColumn(_OLD, F.expr(f"max(if({_LOADED}, {VALID_FROM}, null))").over(by_key))
    # Of several rows of one moment the last in order counts; the loaded one, unless something newer came.
    both = both.where(f"{_LOADED} or {_OLD} is null or {VALID_FROM} > {_OLD}")
    both = both.withColumn(_NEW, F.lead(VALID_FROM).over(by_time)).where(f"{_NEW} is null or {_NEW} > {VALID_FROM}")
    both = both.withColumn(_KEY, F.lag(F.expr(said)).over(by_time)).where(
        f"{_LOADED} or not ({_KEY} <=> {said}) or {_KEY} is null"
    )
    open_ = both.withColumn(VALID_TO, F.lead(VALID_FROM).over(by_time))
    versions = open_.selectExpr(*columns, VALID_FROM, VALID_TO, f"{VALID_TO} is null as {CURRENT}")
    return before.where(f"not {CURRENT}").unionByName(versions)


@realise.register
def _(activity: Difference, given: Inputs) -> DataFrame:
    rows = given.rows
    names = [quoted(name) for name in rows.columns]
    whole = f"struct({', '.join(names)})"
    keys = [f"{quoted(name)} as {quoted(name)}" for name in activity.key]
    new = rows.selectExpr(*keys, f"{whole} as {_NEW}")
    old = given.loaded(activity.table, schema_of(rows)).selectExpr(*keys, f"{whole} as {_OLD}")
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
