"""Freshness targets that cannot be met: the data themselves come later than that, or the tracks cannot be trusted to keep
up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.control.views.recovery import adaptive, guarantees
from penstock.declare.api import TableDeclaration
from penstock.declare.problems import Problem
from penstock.model.grain import WHOLE
from penstock.model.graph import Graph
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US, format_duration


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
    graph: Graph, tables: Mapping[str, TableDeclaration], tracks: int, policy: str
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
    report, _ = guarantees(graph, {}, tracks, policy)
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
