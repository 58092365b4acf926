"""What is kept for whom: the tables of a warehouse as tasks of the adaptive scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from penstock.model.graph import Graph
from penstock.model.steps import held_us
from penstock.scheduling.recovery.bounds import Delivery, Model
from penstock.scheduling.recovery.proposal import with_periods
from penstock.scheduling.recovery.tasks import PeriodRule, RecoveryTask, provisioned, total_utilisation

# More files than this in one job save hardly any start-up.
_MOST_MERGED = 16
# More files, or periods of data, than ever wait.
_EVERYTHING = 1 << 40


class Change(NamedTuple):
    """One thing that a user could write down."""

    tracks: int | None = None
    shared: bool = False
    table: str | None = None
    period_us: int | None = None
    cost_us: int | None = None


NO_CHANGE = Change()


def reserved(graph: Graph) -> frozenset[str]:
    """The tables, by whose name they are planned, for which a part of the tracks is kept: all, if no table says that it wants one."""
    wanted = {graph.updated_as[name] for name, table in graph.tables.items() if table.guarantee}
    return frozenset(wanted or graph.updated_with)


def kept(graph: Graph) -> frozenset[str]:
    """These and all that they are made from."""
    names = {each for name in reserved(graph) for each in (name, *graph.updated_with[name])}
    return frozenset(names.union(*(graph.ancestors[name] for name in names)))


def changed(graph: Graph, change: Change) -> Graph:
    """The tables with another period of one of them, and what follows from that for those that are made from it."""
    if change.table is None or change.period_us is None:
        return graph
    tables = [
        replace(table, period_us=change.period_us) if table.name in graph.grouped_with(change.table) else table
        for table in graph.tables.values()
    ]
    return Graph(graph.feeds.values(), tables)


def model_of(
    graph: Graph,
    costs_us: Mapping[str, int],
    tracks: int,
    periods: PeriodRule = "single",
    *,
    merge: bool = True,
    startups_us: Mapping[str, int] | None = None,
    fit: bool = True,
) -> Model:
    """Reservations for the tables of a graph, whose jobs take at most so long with one period of data; a group is one task.
    With `fit` periods are longer where the tracks could not keep them."""
    wanted = reserved(graph)
    tasks = [
        RecoveryTask(
            name,
            costs_us[name],
            graph.updated_every_us[name],
            graph.updated_every_us[name],
            priority=sum(graph.inherited[each] for each in graph.grouped_with(name)),
            reserved=name in wanted,
        )
        for name in sorted(graph.updated_with)  # ties go to the first, whatever the order of declaration
    ]
    merged: dict[str, int] = {}
    if merge and tasks:
        tasks, merged = _merging(tasks, tracks, startups_us or {})
    if fit:
        tasks = _fitted(tasks, tracks)
    tasks = provisioned(tasks, tracks, periods)
    deliveries = {
        name: Delivery(
            graph.periods_us[name],
            jitter_us=graph.feeds[table.feed].jitter_us or 0,
            stamp_us=0 if graph.feeds[table.feed].punctuated else graph.feeds[table.feed].lateness_us,
        )
        for name, table in graph.tables.items()
        if table.feed is not None
    }
    sources = {
        # What is made by one update with another table is as far as that one.
        name: tuple(
            dict.fromkeys(
                graph.updated_as[source.source]
                for each in graph.grouped_with(name)
                for source in graph.into[each]
                # One that holds nobody back may be as old as it likes.
                if source.source != each
                and graph.holds(source)
                and graph.updated_as[source.source] in graph.updated_with
            )
        )
        for name in graph.updated_with
        if not graph.tables[name].is_base
    }
    model = Model(tuple(tasks), tracks, deliveries, sources, merged, _held(graph), background=merge, besides=True)
    return with_periods(model, _declared_recovery_us(graph))


def _declared_recovery_us(graph: Graph) -> dict[str, int]:
    """Recovery periods that were written down; of a group the shortest."""
    said = {name: [graph.tables[each].recovery_us for each in graph.grouped_with(name)] for name in graph.updated_with}
    return {name: min(us for us in every if us is not None) for name, every in said.items() if any(every)}


def declared_cost_us(graph: Graph, name: str) -> int | None:
    """The longest time of a job as it was declared; of a group, if it was for each of its tables."""
    found = [cost for each in graph.grouped_with(name) if (cost := graph.tables[each].cost_us) is not None]
    return sum(found) if len(found) == len(graph.grouped_with(name)) else None


def _held(graph: Graph) -> dict[str, int]:
    """How much later than their sources tables can be though nothing waits."""
    found: dict[str, int] = {}
    for name in graph.tables:
        if late_us := held_us(graph, name):
            known = graph.updated_as[name]
            found[known] = max(late_us, found.get(known, 0))
    return found


def _merging(
    tasks: list[RecoveryTask], tracks: int, startups_us: Mapping[str, int]
) -> tuple[list[RecoveryTask], dict[str, int]]:
    """Files that a job in the background may take: as many as fit into the longest jobs that there are anyway, so that
    nobody waits longer for it than without. Several take no longer together than one by one. Where costs are learned, and nothing is proven, as many as fit into a period."""
    limit = sorted((task.cost_us for task in tasks), reverse=True)[min(tracks, len(tasks)) - 1]
    if any(startups_us.values()):
        limit = max(limit, min(task.period_us for task in tasks))
    found, merged = [], {}
    for task in tasks:
        start_up = min(startups_us.get(task.table, 0), task.cost_us)
        each = max(1, task.cost_us - start_up)
        longest = min(limit, task.period_us)
        most = max(1, min(_MOST_MERGED, (longest - start_up) // each)) if task.table in startups_us else 1
        if most > 1:
            merged[task.table] = start_up + most * each
        found.append(replace(task, most=most))
    return found, merged


def _fitted(tasks: list[RecoveryTask], tracks: int) -> list[RecoveryTask]:
    """Periods that the tracks can keep. Where they could not, all are longer in proportion, nothing is proven, and a job takes
    all that there is."""
    stretch = total_utilisation(tasks) / tracks
    if stretch <= 1 and all(task.cost_us <= task.period_us for task in tasks):
        return tasks
    return [
        replace(
            task,
            period_us=max(ceil(task.period_us * max(1.0, stretch)), task.cost_us),
            batch=_EVERYTHING,
            most=_EVERYTHING,
        )
        for task in tasks
    ]
