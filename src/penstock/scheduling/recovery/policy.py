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

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from math import ceil
from typing import Any, Literal

from penstock.model.cost import LONGER
from penstock.model.graph import Graph
from penstock.model.time import SECOND_US, format_duration, format_instant
from penstock.scheduling.jobs import Decision, Fact, Outlook, ReadyJob, Situation, Start
from penstock.scheduling.placement.base import upkeep
from penstock.scheduling.policies.index import MaxBenefit
from penstock.scheduling.recovery.bounds import Model
from penstock.scheduling.recovery.modes import Modes, Startable
from penstock.scheduling.recovery.progress import NO_DATA_US, JobChoice
from penstock.scheduling.recovery.reservations import NO_CHANGE, Change, changed, declared_cost_us, kept, model_of
from penstock.scheduling.recovery.reweighting import Released, anew
from penstock.scheduling.recovery.tasks import PeriodRule, RecoveryTask

Provision = Literal["worst", "average"]


class RecoveryMemory(Modes):
    """The scheduler's memory, and for which costs it was made."""

    version: tuple[int, int] = (0, 0)


class Adaptive:
    def __init__(
        self,
        *,
        plain: bool = False,
        provision: Provision = "worst",
        periods: PeriodRule = "single",
        margin: float = LONGER,
        graph: Graph | None = None,
    ) -> None:
        if margin < 1:
            raise ValueError("margin must be at least 1: a job takes as long as expected, or longer")
        self.plain, self.provision, self.periods, self.margin = plain, provision, periods, margin
        self._graph = graph
        # Tables whose updates nobody puts off: those with a reservation, and all that they are made from.
        self.kept = kept(graph) if graph is not None else frozenset[str]()
        self._benefit = MaxBenefit()
        self.index = self._benefit.index

    def for_graph(self, graph: Graph) -> Adaptive:
        return Adaptive(
            plain=self.plain, provision=self.provision, periods=self.periods, margin=self.margin, graph=graph
        )

    # Reservations

    def model(self, tracks: int, outlook: Outlook, *, fit: bool = True, change: Change = NO_CHANGE) -> Model:
        """What is reserved for whom, from costs as they are known now: what is proven is proven of this. Without `fit` it may be
        more than there is. `change` is something that is tried."""
        if self._graph is None:
            return Model((), tracks)
        graph = changed(self._graph, change)
        costs = {name: self.cost_us(name, outlook) for name in graph.updated_with}
        if change.table is not None and change.cost_us is not None:
            costs[change.table] = change.cost_us
        return model_of(
            graph,
            costs,
            change.tracks or tracks,
            "shared" if change.shared else self.periods,
            merge=not self.plain,
            startups_us=self._startups_us(graph, outlook),
            fit=fit,
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
        longest = outlook.longest_s(table)
        if longest is None:
            return self.margin * usual
        return longest if self.margin <= LONGER else max(longest, self.margin * usual)

    def _startups_us(self, graph: Graph, outlook: Outlook) -> dict[str, int]:
        """What of that a job takes however little it has to do, of tables of which that is known; 0 if it is the declared cost
        that is known."""
        found = {}
        for name in graph.updated_with:
            if declared_cost_us(graph, name) is not None:
                found[name] = 0
            elif (start_up_s := outlook.start_up_s(name)) is not None:
                part = start_up_s / outlook.period_cost_s(name)
                found[name] = int(part * self._longest_s(name, outlook) * SECOND_US)
        return found

    # Memory

    def begin(self, tracks: int, outlook: Outlook) -> Modes:
        model = self.model(tracks, outlook)
        memory = RecoveryMemory(
            self._tasks(model),
            tracks,
            arbitration="increase" if self.plain else "staleness",
            background=not self.plain,
            above=None if self.plain else model.above,
        )
        memory.version = _version(outlook)
        return memory

    def resume(self, memory: Modes, before: Mapping[str, Any], runs: Collection[str], at_us: int | None) -> None:
        """Go on from what was remembered, by this process or one before. Updates that ran and do not run any more have ended."""
        memory.restore(before)
        for table in memory.tasks:
            if memory[table].busy and table not in runs:
                memory.ends(memory.now_us if at_us is None else at_us, table, memory[table].lag_us)
            elif table in runs and not memory[table].busy:
                memory.starts(memory.now_us if at_us is None else at_us, table)

    def _tasks(self, model: Model) -> tuple[RecoveryTask, ...]:
        return model.with_thresholds().tasks if self.plain else model.tasks

    def follow(self, memory: RecoveryMemory, fact: Fact, outlook: Outlook) -> None:
        version = _version(outlook)
        if version != memory.version:
            memory.provide(self._tasks(self.model(memory.tracks, outlook)))
            memory.version = version
        if fact.table not in memory.tasks:
            return
        if fact.what == "lags":
            memory.lags(fact.at_us, fact.table, fact.lag_us)
        elif fact.what == "owed":
            memory.owe(fact.at_us, fact.table)
        elif fact.what == "starts":
            memory.starts(fact.at_us, fact.table, fact.able_us)
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
            starts += self._upkeep(situation, modes, free)
        wake = modes.due_us
        return Decision(tuple(starts), None if wake is None else max(wake, situation.now_us + 1), situation.memory)

    def _starts(self, situation: Situation, modes: Modes, free: list[int]) -> Iterator[Start]:
        taken: set[str] = set()

        def startable(table: str) -> bool:
            return table in situation.ready and table not in taken and not situation.ready[table].upkeep

        def started(choice: JobChoice) -> Start:
            taken.add(choice.table)
            why = partial(_why, choice, modes, situation.ready[choice.table])
            return Start(choice.table, free.pop(0), why, choice.take)

        for choice in self._released(situation, modes, startable):
            yield started(choice)
        # What a query waits for is first of all that nothing is promised of.
        for job in self._awaited(situation):
            if startable(job.table):
                taken.add(job.table)
                take = modes.tasks[job.table].most if job.table in modes.tasks else None
                yield Start(job.table, free.pop(0), "a query waits for it", take)
        for choice in modes.behind(startable):
            yield started(choice)
        if self._recovers(situation, modes):
            return
        # What makes no table fresher, such as a backfill; and whatever else the scheduler knows nothing of.
        for _, job in situation.ready.ranked(situation.now_us):
            if startable(job.table) and modes[job.table].lag_us <= NO_DATA_US:
                taken.add(job.table)
                yield Start(job.table, free.pop(0), "a track idles, and it has work", 1)

    def _released(self, situation: Situation, modes: Modes, startable: Startable) -> Iterable[JobChoice]:
        """Released jobs by deadline; of those that were held up, as if they had been released when they could start."""
        if not situation.able_us:
            return modes.released(startable)
        found = []
        for choice in modes.released(startable):
            able_us = max(situation.able_us.get(choice.table, 0), choice.release_us)
            release_us, deadline_us = anew(Released(choice.release_us, choice.deadline_us), able_us)
            found.append(choice._replace(release_us=release_us, deadline_us=deadline_us))
        return sorted(found, key=lambda choice: choice.deadline_us)

    def _recovers(self, situation: Situation, modes: Modes) -> bool:
        """Whether a table that is owed a recovery has something to do: then tracks do nothing besides, whether they idle or not."""
        running = {job.table for job in situation.running.values()}
        return any(table in situation.ready or table in running for table in modes.owed)

    def _awaited(self, situation: Situation) -> Iterator[ReadyJob]:
        for _, job in situation.ready.ranked(situation.now_us):
            if job.awaited_us is None:
                return
            yield job

    def _upkeep(self, situation: Situation, modes: Modes, free: list[int]) -> tuple[Start, ...]:
        if self._recovers(situation, modes):
            return ()
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
    return outlook.version, outlook.longest_version


def _why(choice: JobChoice, modes: Modes, job: ReadyJob) -> str:
    progress = modes[choice.table]
    behind = format_duration(progress.lag_us)
    if choice.background:
        return f"is {behind} behind, which costs most of all that could use an idle track"
    mode = "recovering" if progress.recovering else "in normal mode"
    return f"has the earliest deadline, {format_instant(choice.deadline_us)}; {mode}, {behind} behind"
