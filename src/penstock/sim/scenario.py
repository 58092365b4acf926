"""What is simulated: tables with their arrivals and costs, tracks, and what goes wrong when.

Times are seconds from the start of the simulation. `read.py` reads scenarios from files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from penstock.declare.check_names import circles
from penstock.declare.problems import did_you_mean
from penstock.errors import PenstockError
from penstock.model.graph import CycleError, Graph
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import SECOND_US

Arrivals = Literal["periodic", "jittered", "bursty", "traced"]
# Time is counted in whole microseconds, and ends before there are more than fit (a million million seconds).
_LEAST = 1e-6
_MOST = 1e12


class ScenarioError(PenstockError):
    """A scenario that cannot be simulated."""


@dataclass(frozen=True, slots=True)
class SimTable:
    name: str
    # Base tables have a period, derived ones have sources.
    sources: tuple[str, ...] = ()
    period_s: float = 100.0
    # When the first batch comes; None: anywhere in the first period, by the seed.
    phase_s: float | None = None
    priority: float = 1.0
    # An update with the data of n seconds takes alpha + beta * n.
    alpha_s: float = 1.0
    beta: float = 0.1
    arrivals: Arrivals = "periodic"
    # jittered: how late a batch may come, in periods. bursty: how many batches come together.
    arrival_jitter: float = 0.5
    burst: int = 4
    # traced: when batches come.
    trace_s: tuple[float, ...] = ()
    # This part of the batches also holds rows that are so much older.
    late_share: float = 0.0
    late_s: float = 0.0
    # How long late work may wait for a newer change, and when old data are stated anew.
    patience_s: float | None = None
    restated: str = ""
    # Tables of one group are updated by one job.
    group: str | None = None
    # By how many times what an update takes has changed at the end of the run.
    drift: float = 1.0

    @property
    def is_base(self) -> bool:
        return not self.sources

    def cost_s(self, seconds: float) -> float:
        """What an update with so much data takes."""
        return self.alpha_s + self.beta * seconds


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The machine alternates: normal, then slower by `factor` for a part of each cycle. Or a cycle is any row of phases."""

    factor: float = 3.0
    cycle_s: float = 2000.0
    # The slow part of a cycle; it comes at its end.
    share: float = 0.5
    # Instead of all that: how long each phase of a cycle is in seconds, and how many times longer updates take in it.
    phases: tuple[tuple[float, float], ...] = ()

    @property
    def cycle(self) -> tuple[tuple[float, float], ...]:
        slow_s = self.cycle_s * self.share
        return self.phases or ((self.cycle_s - slow_s, 1.0), (slow_s, self.factor))

    @property
    def mean_factor(self) -> float:
        if not self.phases:
            return 1 + self.share * (self.factor - 1)
        return sum(length * factor for length, factor in self.phases) / sum(length for length, _ in self.phases)


@dataclass(frozen=True, slots=True)
class Outage:
    """What should have come between two times comes at the end, all at once; of one table or of all."""

    start_s: float
    end_s: float
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Redelivery:
    """At some time, the rows of a base table between two times are delivered again with other content."""

    at_s: float
    table: str
    from_s: float
    to_s: float


@dataclass(frozen=True)
class Scenario:
    tables: tuple[SimTable, ...]
    name: str = "scenario"
    tracks: int = 4
    horizon_s: float = 100_000.0
    # The time of a job is drawn from [1 - b, 1 + b] times the expected one.
    jitter: float = 0.0
    slowdown: Slowdown | None = None
    outages: tuple[Outage, ...] = ()
    backfills: tuple[Redelivery, ...] = ()
    # The part of the jobs that fail at their end.
    failures: float = 0.0
    # Whether policies are told the true mean costs, or learn them from finished jobs as live.
    costs: Literal["known", "learned"] = "known"
    partition: str = "day"
    # The part of an update that is the reading of its sources: a group does that once.
    scan: float = 0.5

    @cached_property
    def graph(self) -> Graph:
        """The tables as the controller knows them: row-wise views, so that the edge of a view is that of its sources."""
        self.check()
        feeds = [Feed(table.name, us(table.period_s)) for table in self.tables if table.is_base]
        tables = [
            Table(
                table.name,
                partition=self.partition,
                feed=table.name if table.is_base else None,
                sources=tuple(Source(source, (0, 1)) for source in table.sources),
                priority=table.priority,
                exact_time=True,
                foldable=True,
                attempts=1_000_000,
                patience_us=us(table.patience_s) if table.patience_s is not None else None,
                restated=table.restated,
                group=table.group,
            )
            for table in self.tables
        ]
        try:
            graph = Graph(feeds, tables)
        except CycleError as error:
            raise ScenarioError(str(error)) from None
        for way in circles(graph):
            raise ScenarioError(
                f"the group of {way[0]!r} would have to wait for itself ({' -> '.join(way)}); take one of them out of it"
            )
        return graph

    def check(self) -> None:
        """Whatever would fail later, have no effect, or give numbers that mean nothing."""
        names = {table.name for table in self.tables}
        if not self.tables:
            raise ScenarioError("a scenario needs at least one table, such as [tables.orders]")
        if "" in names:
            raise ScenarioError("a table has no name; write for example [tables.orders]")
        for key, value, least, most in self._numbers():
            if not least <= value <= most:
                raise ScenarioError(f"`{key}` is {value:g}; expected a number from {least:g} to {most:g}")
        if len(names) < len(self.tables):
            twice = next(t.name for t in self.tables if sum(o.name == t.name for o in self.tables) > 1)
            raise ScenarioError(f"table {twice!r} is there twice")
        for table in self.tables:
            for source in table.sources:
                if source not in names:
                    near = _near(source, names)
                    raise ScenarioError(f"table {table.name!r} reads {source!r}, which is not in the scenario{near}")
                if source == table.name:
                    raise ScenarioError(f"table {source!r} reads itself; its sources are other tables")
            if table.is_base and table.group is not None:
                raise ScenarioError(
                    f"table {table.name!r} is in group {table.group!r}, but it has batches of its own; groups are of "
                    "tables with `sources`"
                )
            if not table.alpha_s and not table.beta:
                raise ScenarioError(
                    f"table {table.name!r}: alpha and beta are both 0, but an update takes some time; set one of them"
                )
            if table.arrivals == "traced" and (not table.trace_s or list(table.trace_s) != sorted(table.trace_s)):
                raise ScenarioError(
                    f"table {table.name!r} has traced arrivals; expected `trace`, the times of its batches in order, "
                    'such as trace = [60, "10m"]'
                )
        if not any(table.priority for table in self.tables):
            raise ScenarioError("all priorities are 0, so no staleness counts; set one, such as priority = 1")
        for outage in self.outages:
            self._check_batches("outage", outage.table, names, outage.start_s, outage.end_s)
        for backfill in self.backfills:
            self._check_batches("backfill", backfill.table, names, backfill.from_s, backfill.to_s)
            if backfill.from_s >= backfill.at_s:
                raise ScenarioError(
                    f"the backfill of {backfill.table} is at {backfill.at_s:g} s, when no rows from {backfill.from_s:g} s "
                    "on have come yet; expected a later `at`, or an earlier `start`"
                )

    def _numbers(self) -> Iterator[tuple[str, float, float, float]]:
        """Every number, with the least and the most that it may be."""
        yield "tracks", self.tracks, 1, _MOST
        yield "horizon", self.horizon_s, _LEAST, _MOST
        yield "jitter", self.jitter, 0, 1
        yield "failures", self.failures, 0, 1
        yield "scan", self.scan, 0, 1
        if self.slowdown is not None:
            yield "slowdown.factor", self.slowdown.factor, 1, _MOST
            yield "slowdown.cycle", self.slowdown.cycle_s, _LEAST, _MOST
            yield "slowdown.share", self.slowdown.share, 0, 1
            for length_s, factor in self.slowdown.phases:
                yield "slowdown.phases", length_s, _LEAST, _MOST
                yield "slowdown.phases", factor, _LEAST, _MOST
        for table in self.tables:
            place = f"tables.{table.name}"
            yield f"{place}.period", table.period_s, _LEAST, _MOST
            yield f"{place}.priority", table.priority, 0, _MOST
            yield f"{place}.alpha", table.alpha_s, 0, _MOST
            yield f"{place}.beta", table.beta, 0, _MOST
            yield f"{place}.drift", table.drift, _LEAST, _MOST
            yield f"{place}.late", table.late_s, 0, _MOST
            yield f"{place}.patience", table.patience_s or 0, 0, _MOST
            for time in table.trace_s:
                yield f"{place}.trace", time, 0, _MOST
        for outage in self.outages:
            yield "outages.end", outage.end_s, 0, _MOST
        for backfill in self.backfills:
            yield "backfills.end", backfill.to_s, 0, _MOST

    def _check_batches(
        self, what: str, table: str | None, names: Collection[str], start_s: float, end_s: float
    ) -> None:
        """An outage or a backfill: only batches can be missing, or come again."""
        if table is not None and table not in names:
            raise ScenarioError(f"{what}: there is no table {table!r} in the scenario{_near(table, names)}")
        base = [each.name for each in self.tables if each.is_base]
        if table is not None and table not in base:
            raise ScenarioError(
                f"{what}: {table} is made from other tables, and only what comes from outside can have one; "
                f"name one of {', '.join(base[:12])}"
            )
        if not start_s < end_s:
            of = f" of {table}" if table else ""
            raise ScenarioError(f"the {what}{of} ends at {end_s:g} s; expected an end after its start, {start_s:g} s")

    @property
    def mean_factor(self) -> float:
        return 1.0 if self.slowdown is None else self.slowdown.mean_factor

    @cached_property
    def costs_s(self) -> dict[str, float]:
        """E(P) of each table, with the mean slowdown; of a table in a group, that of the group."""
        graph = self.graph
        alone = {t.name: t.cost_s(graph.periods_us[t.name] / SECOND_US) for t in self.tables}
        return {
            name: self.mean_factor * self.together_s([alone[each] for each in graph.grouped_with(name)])
            for name in alone
        }

    def together_s(self, alone_s: Sequence[float]) -> float:
        """What one job takes whose parts take so long by themselves."""
        return alone_s[0] if len(alone_s) == 1 else (1 - self.scan) * sum(alone_s) + self.scan * max(alone_s)

    @property
    def utilisation(self) -> float:
        """The load that is offered if every batch is loaded on its own, as a part of all tracks."""
        periods = self.graph.updated_every_us
        return sum(self.costs_s[name] * SECOND_US / period for name, period in periods.items()) / self.tracks


def _near(name: str, names: Collection[str]) -> str:
    """What was probably meant: a table that there is several times is known by its numbers."""
    numbered = [each for each in names if each.rpartition("-")[0] == name and each.rpartition("-")[2].isdigit()]
    if numbered:
        numbered.sort(key=lambda each: int(each.rpartition("-")[2]))
        return f", but {', '.join(numbered[:3])}{' …' if len(numbered) > 3 else ''} {'are' if numbered[1:] else 'is'}"
    return did_you_mean(name, names)


def us(seconds: float) -> int:
    return round(seconds * SECOND_US)


def loaded_to(
    tables: Sequence[SimTable], utilisation: float, tracks: int, slowdown: Slowdown | None
) -> tuple[SimTable, ...]:
    """The same tables with all costs scaled, so that they offer this load."""
    now = Scenario(tuple(tables), tracks=tracks, slowdown=slowdown).utilisation
    factor = utilisation / now
    return tuple(replace(t, alpha_s=t.alpha_s * factor, beta=t.beta * factor) for t in tables)
