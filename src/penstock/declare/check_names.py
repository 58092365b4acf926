"""Names: each once, of letters that every part understands, and none that is kept for something else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from penstock.control.views.recovery import adaptive, guarantees
from penstock.declare.api import FeedDeclaration, TableDeclaration
from penstock.declare.config import FILE_NAME
from penstock.declare.problems import Location, Problem, did_you_mean, key_lines, line_of
from penstock.declare.project import Declarations
from penstock.declare.values import NAME, NAME_RULE
from penstock.model.grain import WHOLE
from penstock.model.graph import Graph
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US, format_duration

# The parameter by which a Python function is given its partition.
CONTEXT = "partition"


def feed_names(feeds: Iterable[FeedDeclaration]) -> Iterator[Problem]:
    seen: dict[str, FeedDeclaration] = {}
    for feed in feeds:
        first = seen.setdefault(feed.name, feed)
        if first is not feed:
            yield Problem(feed.where, f"feed `{feed.name}` is declared twice, first at {first.where}")
        elif not NAME.fullmatch(feed.name):
            yield Problem(feed.where, f"{feed.name!r} cannot be the name of a feed; {NAME_RULE}")


def table_names(tables: Iterable[TableDeclaration]) -> Iterator[Problem]:
    seen: dict[str, TableDeclaration] = {}
    for table in tables:
        first = seen.setdefault(table.name, table)
        if first is not table:
            yield from _twice(first, table)
        elif not table.is_plain and not NAME.fullmatch(table.name):
            yield Problem(table.where, f"{table.name!r} cannot be the name of a table; {NAME_RULE}")
        elif table.name.endswith("_quarantine") or table.name.startswith("_penstock"):
            kept = "names that end in _quarantine hold refused rows, those that begin with _penstock are kept for state"
            yield Problem(table.where, f"table `{table.name}` needs another name: {kept}")
        elif table.name == CONTEXT:
            message = f"table `{CONTEXT}` needs another name: Python functions are given their partition by this one"
            yield Problem(table.where, message)


def _twice(first: TableDeclaration, second: TableDeclaration) -> Iterator[Problem]:
    if not second.is_plain:
        yield Problem(second.where, f"table `{second.name}` is declared twice, first at {first.where}")
    elif not first.is_plain:  # two feeds of one name are told as such
        message = f"table `{first.name}` has the name of a feed ({second.where}), whose rows it does not take"
        hint = f'rename one of them, or write feed = "{first.name}" if it is the base table'
        yield Problem(first.where, f"{message}; {hint}")


# Groups: tables that are updated by one job cannot wait for each other.


def group_problems(graph: Graph, tables: Mapping[str, TableDeclaration]) -> Iterator[Problem]:
    for group, members in graph.groups.items():
        for name in members:
            if graph.tables[name].is_base:
                message = (
                    f"table `{name}` is in group `{group}`, but it is loaded from a feed; groups are of derived tables"
                )
                yield Problem(tables[name].where, message)
    for path in circles(graph):
        first = path[0]
        way = " -> ".join(path)
        message = f"the group of `{first}` would have to wait for itself ({way}); take one of them out of its group"
        yield Problem(tables[first].where, message)


def circles(graph: Graph) -> Iterator[list[str]]:
    """For each group a way from one of its tables back to one of them, if there is any, through other groups as well."""
    for members in graph.groups.values():
        came: dict[str, str | None] = dict.fromkeys(members)
        waiting = list(members)
        while waiting:
            name = waiting.pop()
            for edge in graph.out[name]:
                if edge.table == name:
                    continue
                if edge.table in members:
                    yield [*_way(came, name), edge.table]
                    waiting.clear()
                    break
                for other in graph.grouped_with(edge.table):
                    if other not in came:
                        came[other] = name
                        waiting.append(other)


def _way(came: Mapping[str, str | None], name: str | None) -> list[str]:
    path: list[str] = []
    while name is not None:
        path.append(name)
        name = came[name]
    return path[::-1]


# What tables do about changes they are told of: settings that cannot work, or that would do nothing.


def policy_problems(table: TableDeclaration, read: Collection[str]) -> Iterator[Problem]:
    config = table.config
    what = f"table `{table.name}`"
    if config.feed is not None:
        for name in ("propagate", "overrun", "absent", "waits"):
            if name in config.model_fields_set and name not in table.broken:
                message = (
                    f"base {what}: `{name}` is for tables that read tables; a base table takes every file of its feed"
                )
                yield Problem(table.at(name), message)
        return
    others = [name for name in read if name != table.name]
    for name in config.absent:
        if name != "*" and name not in others:
            hint = did_you_mean(name, others) or f"; it reads: {', '.join(others) or 'nothing'}"
            message = f"{what} says what to do while `{name}` is absent, but does not read it{hint}"
            yield Problem(table.at(f"absent.{name}"), message)
    for name in config.waits:
        if name != "*" and name not in others:
            hint = did_you_mean(name, others) or f"; it reads: {', '.join(others) or 'nothing'}"
            yield Problem(
                table.at(f"waits.{name}"), f"{what} says whether it waits for `{name}`, but does not read it{hint}"
            )
    choices = [config.absent.get(name, config.absent.get("*", "wait")) for name in others]
    if choices and all(choice == "empty" for choice in choices):
        one = "its source" if len(others) == 1 else "none of its sources"
        message = f'{what} is not to wait for {one}: absent = "empty" needs another source that says up to when there are data'
        yield Problem(table.at("absent"), message)


def waiting_problems(graph: Graph, tables: Mapping[str, TableDeclaration]) -> Iterator[Problem]:
    """Tables without partitions over several sources with times: whoever joins such may not expect that rows of one wait."""
    for name in graph.order:
        edges = [e for e in graph.into[name] if graph.holds(e) and (e.source, name) not in graph.optional]
        origins = {frozenset(base for base in graph.origins[e.source] if graph.has_time[base]) for e in edges}
        said = tables[name].config.waits
        if graph.tables[name].grain is not WHOLE or len(origins) < 2 or "*" in said:
            continue
        silent = [edge.source for edge in edges if edge.source not in said]
        if len(silent) > 1:
            listed = " and ".join(f"`{source}`" for source in silent)
            message = f"table `{name}` is made up to the time that both {listed} have reached: later rows of one wait for the other"
            hint = "write waits = false to read all that is there, or waits = true if that is meant"
            yield Problem(tables[name].where, f"{message}; {hint}", "warning")


# Replicas: tables that there are, in places that are not used for something else.


def replica_problems(declarations: Declarations, tables: Collection[str]) -> Iterator[Problem]:
    if not declarations.config.replicas:
        return
    lines = key_lines((declarations.folder / FILE_NAME).read_text())
    taken = {declarations.data_path: "the warehouse itself"}
    for name, replica in declarations.config.replicas.items():
        where = Location(FILE_NAME, line_of(lines, ("replicas", name)))
        for table in replica.tables:
            if table not in tables:
                yield Problem(
                    where,
                    f"replica `{name}` is of table `{table}`, which is not there{did_you_mean(table, list(tables))}",
                )
        path = declarations.replica_path(name)
        other = next((use for used, use in taken.items() if path == used or path.startswith(used + "/")), None)
        if other is not None:
            yield Problem(
                where, f"replica `{name}` is at {replica.path}, which is the place of {other}; give it its own"
            )
        taken[path] = f"replica `{name}`"


# Freshness targets that cannot be met: the data themselves come later than that, or the tracks cannot be trusted to keep
# up.


def target_problems(graph: Graph, tables: Mapping[str, TableDeclaration]) -> Iterator[Problem]:
    """Just before a delivery a table lacks a period of its feed, and what may still come late."""
    for name in graph.order:
        target = graph.tables[name].target_us
        if target is None or not graph.has_time[name]:
            continue
        worst, why = 0, ""
        for origin in graph.origins[name]:
            feed = graph.feeds[graph.tables[origin].feed or ""]
            # A snapshot is the whole of its partition: once it has come the table is complete to that partition's end.
            if not graph.has_time[origin] or feed.mode == "snapshot":
                continue
            behind = feed.period_us + (0 if feed.punctuated else feed.lateness_us)
            if behind > worst:
                late = f" and may be {format_duration(feed.lateness_us)} late" if behind > feed.period_us else ""
                worst, why = behind, f"feed `{feed.name}` delivers every {format_duration(feed.period_us)}{late}"
        held, waits = _held_back(graph, name)
        if target < worst + held:
            needed = _written(worst + held)
            message = f"table `{name}` cannot be kept as fresh as {format_duration(target)}: {why}{waits}"
            hint = f'so it is up to {needed} behind; write freshness = "{needed}" or more'
            yield Problem(tables[name].at("freshness"), f"{message}, {hint}", "warning")


def unproven_problems(
    graph: Graph, tables: Mapping[str, TableDeclaration], tracks: int, policy: str, cores: int | None
) -> Iterator[Problem]:
    """Guarantees that the policy does not give. And where it could, and the cost of every table is declared, targets that the
    machine cannot be trusted to meet."""
    if adaptive(policy) is None:
        for name, table in graph.tables.items():
            if table.guarantee:
                message = f'table `{name}` has guarantee = true, and policy = "{policy}" gives none; write policy = "adaptive"'
                yield Problem(tables[name].at("guarantee"), message, "warning")
        return
    if not graph.tables or any(table.cost_us is None and table.leader is None for table in graph.tables.values()):
        return
    report, _ = guarantees(graph, {}, tracks, policy, cores=cores)
    for found in report.guarantees:
        if found.verdict == "not proven":
            remedy = f"; {found.remedies[0]}" if found.remedies else ""
            message = (
                f"the freshness of table `{found.table}` is not proven: {found.breaks}{remedy}; see `penstock bounds`"
            )
            yield Problem(tables[found.table].at("freshness"), message, "warning")


def _written(duration_us: int) -> str:
    """The duration in full, as it is written in settings."""
    units = (("d", DAY_US), ("h", HOUR_US), ("m", MINUTE_US), ("s", SECOND_US), ("us", 1))
    parts = []
    for unit, size in units:
        count, duration_us = divmod(duration_us, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _held_back(graph: Graph, name: str) -> tuple[int, str]:
    """What tables that only make whole partitions add: the longest of them on the way."""
    closed = [
        each
        for each in (name, *sorted(graph.ancestors[name]))
        if graph.tables[each].when == "closed" and graph.tables[each].grain is not WHOLE
    ]
    if not closed:
        return 0, ""
    widths = {each: _width(graph, each) for each in closed}
    longest = max(closed, key=lambda each: widths[each])
    which = "it" if longest == name else f"`{longest}`"
    return widths[longest], f", and {which} is made by whole partitions of a {graph.tables[longest].grain}"


def _width(graph: Graph, name: str) -> int:
    grain = graph.tables[name].grain
    start = grain.floor(0)
    return grain.shift(start, 1) - start
