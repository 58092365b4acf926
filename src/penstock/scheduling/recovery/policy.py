"""The adaptive policy: `policy = "adaptive"` (Leontyev, Johnson, Anderson 2010, Sec. III, and what was added to it).

    adaptive                     idle tracks catch up in the background, who loses most goes first
    adaptive(plain)              the algorithm of the paper
    adaptive(average)            reservations for average costs; bounds then hold on average only
    adaptive(shared)             recovery periods with which all tables could recover at once
    adaptive(margin=1.5)         a longest job takes at least 1.5 times what is expected

Tables with `guarantee = true` have reservations, and all others use what is left, by benefit; if no table says so, all have
reservations. If the tables need more than there is, all periods are longer in proportion and a job takes the files of such a
period: nothing is proven then, but nobody starves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any, Literal

from penstock.model.cost import LONGER
from penstock.model.grain import WHOLE
from penstock.model.graph import Graph
from penstock.model.time import SECOND_US, format_duration, format_instant
from penstock.scheduling.jobs import Decision, Fact, Outlook, ReadyJob, Situation, Start
from penstock.scheduling.placement.base import upkeep
from penstock.scheduling.policies.max_benefit import MaxBenefit
from penstock.scheduling.recovery.bounds import Delivery, Model
from penstock.scheduling.recovery.modes import Modes
from penstock.scheduling.recovery.progress import JobChoice
from penstock.scheduling.recovery.tasks import Periods, RecoveryTask, provisioned, total_utilisation

Provision = Literal["worst", "average"]
# More files than this in one job save hardly any start-up.
_MOST_MERGED = 16


class Followed(Modes):
    """The scheduler's memory, and for which costs it was made."""

    version: tuple[int, int] = (0, 0)


class Adaptive:
    def __init__(
        self,
        *,
        plain: bool = False,
        provision: Provision = "worst",
        periods: Periods = "single",
        margin: float = LONGER,
        graph: Graph | None = None,
    ) -> None:
        if margin < 1:
            raise ValueError("margin must be at least 1: a job takes as long as expected, or longer")
        self.plain, self.provision, self.periods, self.margin = plain, provision, periods, margin
        self._graph = graph
        self._benefit = MaxBenefit()
        self.index = self._benefit.index

    def for_graph(self, graph: Graph) -> Adaptive:
        return Adaptive(
            plain=self.plain, provision=self.provision, periods=self.periods, margin=self.margin, graph=graph
        )

    # Reservations

    def model(self, tracks: int, outlook: Outlook) -> Model:
        """What is reserved for whom, from costs as they are known now."""
        graph = self._graph
        if graph is None:
            return Model((), tracks)
        return model_of(
            graph,
            {name: self.cost_us(name, outlook) for name in graph.updated_with},
            tracks,
            self.periods,
            merge=not self.plain,
            startups_us={name: self._start_up_us(name, outlook) for name in graph.updated_with},
        )

    def cost_us(self, table: str, outlook: Outlook) -> int:
        """The longest time of a job: as declared, or what is expected and some more."""
        assert self._graph is not None
        declared = declared_cost_us(self._graph, table)
        return declared if declared is not None else max(1, ceil(self._longest_s(table, outlook) * SECOND_US))

    def _longest_s(self, table: str, outlook: Outlook) -> float:
        usual = outlook.period_cost_s(table)
        if self.provision == "average":
            return usual
        known = getattr(outlook, "longest_s", None)
        if known is None:
            return self.margin * usual
        longest: float = known(table)
        return longest if self.margin <= LONGER else max(longest, self.margin * usual)

    def _start_up_us(self, table: str, outlook: Outlook) -> int:
        """What of that a job takes however little it has to do; 0 if that is not known."""
        known = getattr(outlook, "start_up_s", None)
        if known is None:
            return 0
        return int(known(table) * self._longest_s(table, outlook) / outlook.period_cost_s(table) * SECOND_US)

    # Memory

    def begin(self, tracks: int, outlook: Outlook) -> Modes:
        memory = Followed(
            self.tasks(tracks, outlook),
            tracks,
            arbitration="increase" if self.plain else "staleness",
            background=not self.plain,
        )
        memory.version = _version(outlook)
        return memory

    def tasks(self, tracks: int, outlook: Outlook) -> tuple[RecoveryTask, ...]:
        model = self.model(tracks, outlook)
        if self.plain:
            return model.with_thresholds().tasks
        return tuple(replace(task, threshold_us=2 * task.period_us) for task in model.tasks)

    def follow(self, memory: Followed, fact: Fact, outlook: Outlook) -> None:
        version = _version(outlook)
        if version != memory.version:
            memory.provide(self.tasks(memory.tracks, outlook))
            memory.version = version
        if fact.table not in memory.tasks:
            return
        if fact.what == "lags":
            memory.lags(fact.at_us, fact.table, fact.lag_us)
        elif fact.what == "starts":
            memory.starts(fact.at_us, fact.table)
        else:
            memory.ends(fact.at_us, fact.table, fact.lag_us)

    # Decisions

    def decide(self, situation: Situation) -> Decision:
        memory: Any = situation.memory
        if not isinstance(memory, Modes):
            memory = self._as_if_new(situation)
        modes = memory.fork()
        modes.advance(situation.now_us)
        modes.settle()
        free = list(situation.free)
        starts: list[Start] = []
        for start in self._starts(situation, modes, free):
            starts.append(start)
            if not free:
                break
        if not starts and free:
            starts += self._upkeep(situation, free)
        wake = modes.due_us
        return Decision(tuple(starts), None if wake is None else max(wake, situation.now_us + 1), situation.memory)

    def _starts(self, situation: Situation, modes: Modes, free: list[int]) -> Iterator[Start]:
        taken: set[str] = set()

        def startable(table: str) -> bool:
            return table in situation.ready and table not in taken and not situation.ready[table].upkeep

        for job in self._awaited(situation):
            taken.add(job.table)
            yield Start(job.table, free.pop(0), "a query waits for it")
        for choice in modes.choices(startable):
            taken.add(choice.table)
            yield Start(
                choice.table, free.pop(0), partial(_why, choice, modes, situation.ready[choice.table]), choice.take
            )
        # Whatever the world holds ready and the scheduler knows nothing of.
        for _, job in situation.ready.ranked(situation.now_us):
            if startable(job.table) and not modes[job.table].lag_us:
                taken.add(job.table)
                yield Start(job.table, free.pop(0), "a track idles, and it has work", 1)

    def _awaited(self, situation: Situation) -> Iterator[ReadyJob]:
        for _, job in situation.ready.ranked(situation.now_us):
            if job.awaited_us is None:
                return
            yield job

    def _upkeep(self, situation: Situation, free: list[int]) -> tuple[Start, ...]:
        for _, job in situation.ready.ranked(situation.now_us):
            if job.upkeep:
                return upkeep(situation, job, free)
        return ()

    def _as_if_new(self, situation: Situation) -> Modes:
        """Without a memory that follows (a single question): every ready table just fell behind."""
        graph = self._graph
        modes = self.begin(situation.tracks, situation.outlook)
        for table, job in situation.ready.items():
            if graph is not None and table in modes.tasks and not job.upkeep:
                modes.lags(situation.now_us, table, max(1, job.gain_us))
        return modes


def _version(outlook: Outlook) -> tuple[int, int]:
    return outlook.version, getattr(outlook, "longest_version", 0)


def _why(choice: JobChoice, modes: Modes, job: ReadyJob) -> str:
    progress = modes[choice.table]
    behind = format_duration(progress.lag_us)
    if choice.background:
        return f"is {behind} behind, which costs most of all that could use an idle track"
    mode = "recovering" if progress.recovering else "in normal mode"
    return f"has the earliest deadline, {format_instant(choice.deadline_us)}; {mode}, {behind} behind"


def model_of(
    graph: Graph,
    costs_us: Mapping[str, int],
    tracks: int,
    periods: Periods = "single",
    *,
    merge: bool = True,
    startups_us: Mapping[str, int] | None = None,
    fit: bool = True,
) -> Model:
    """Reservations for the tables of a graph, whose jobs take at most so long with one period of data; a group is one task.
    With `fit` periods are longer where the tracks could not keep them."""
    some = any(table.guarantee for table in graph.tables.values())
    tasks = [
        RecoveryTask(
            name,
            costs_us[name],
            graph.updated_every_us[name],
            graph.updated_every_us[name],
            priority=sum(graph.inherited[each] for each in graph.grouped_with(name)),
            reserved=not some or any(graph.tables[each].guarantee for each in graph.grouped_with(name)),
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
                graph.updated_as[source.table]
                for each in graph.grouped_with(name)
                for source in graph.tables[each].sources
                if source.table != each
            )
        )
        for name in graph.updated_with
        if not graph.tables[name].is_base
    }
    return Model(tuple(tasks), tracks, deliveries, sources, merged, _held(graph))


def declared_cost_us(graph: Graph, name: str) -> int | None:
    """The longest time of a job as it was declared; of a group, if it was for each of its tables."""
    found = [cost for each in graph.grouped_with(name) if (cost := graph.tables[each].cost_us) is not None]
    return sum(found) if len(found) == len(graph.grouped_with(name)) else None


def _held(graph: Graph) -> dict[str, int]:
    """What tables that only make whole partitions wait for: the length of one."""
    held: dict[str, int] = {}
    for name, table in graph.tables.items():
        if table.when == "closed" and table.grain is not WHOLE:
            start = table.grain.floor(0)
            known = graph.updated_as[name]
            held[known] = max(table.grain.shift(start, 1) - start, held.get(known, 0))
    return held


def _merging(
    tasks: list[RecoveryTask], tracks: int, startups_us: Mapping[str, int]
) -> tuple[list[RecoveryTask], dict[str, int]]:
    """Files that a job in the background may take: as many as fit into the longest jobs that there are anyway, so that
    nobody waits longer for it than without. Where the tracks cannot do all, nothing is proven that could be lost: then as
    many as fit into a period."""
    longest_others = sorted((task.cost_us for task in tasks), reverse=True)[min(tracks, len(tasks)) - 1]
    limit = longest_others if total_utilisation(tasks) <= tracks else max(task.period_us for task in tasks)
    found, merged = [], {}
    for task in tasks:
        start_up = min(startups_us.get(task.table, 0), task.cost_us)
        each = max(1, task.cost_us - start_up)
        longest = min(limit, task.period_us)
        most = max(1, min(_MOST_MERGED, (longest - start_up) // each)) if start_up else 1
        if most > 1:
            merged[task.table] = start_up + most * each
        found.append(replace(task, most=most))
    return found, merged


def _fitted(tasks: list[RecoveryTask], tracks: int) -> list[RecoveryTask]:
    """Periods that the tracks can keep. Where they could not, all are longer in proportion, and a job takes the files of
    such a period."""
    stretch = max(1.0, total_utilisation(tasks) / tracks)
    fitted = []
    for task in tasks:
        period = max(ceil(task.period_us * stretch), task.cost_us)
        batch = max(task.batch, ceil(period / task.period_us))
        fitted.append(replace(task, period_us=period, batch=batch, most=max(task.most, batch)))
    return fitted
