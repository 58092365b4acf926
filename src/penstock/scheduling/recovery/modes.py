"""Releases, deadlines and modes of all tables while things happen (Leontyev, Johnson, Anderson 2010, Sec. III).

The world tells facts (a table is so far behind now; a job of it started, or ended), time passes, and the scheduler says which
jobs may start: released ones by earliest deadline. Facts of one instant are taken together, because a file that comes
just when a job ends decides whether the table was fresh. Nothing here reads a clock, and the same facts give the same
answers whoever asks in between: ask a `fork`, which is cheap, and the original knows nothing of it.

Beyond the paper, and without touching its bounds: tracks that would idle take the next file of a table that is behind
(`background`). Such a job is outside of the sequence of releases: it never holds one up, and if the table's next job is released
while it runs, it becomes that job. To others it is what the analysis already expects, one job that cannot be
interrupted.

With `above`, of each table all that it is made from, tables recover in turns: an outage owes each table that it reached one
recovery, a table has its turn when none of those above it is owed one any more, and what it is owed is paid when it leaves
recovery mode, no more than a period behind; or when its turn comes and it is no further behind than that. So a
recovery ends, whatever the phases of its sources are. Without `above` any table that is too far behind recovers, as published.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from heapq import heappop, heappush
from math import fsum
from typing import Any, Literal

from penstock.scheduling.recovery.progress import NEW, NO_DATA_US, JobChoice, ModeChange, Progress
from penstock.scheduling.recovery.reweighting import Released, anew, reweigh_finished, reweigh_running, reweigh_waiting
from penstock.scheduling.recovery.tasks import ROUNDING, RecoveryTask, total_utilisation

Arbitration = Literal["increase", "staleness"]
Startable = Callable[[str], bool]
# How it ranks, its number, and the table.
_HeapEntry = tuple[float, int, str]
_SLACK = 32


class Modes:
    """The scheduler's memory. Mutable: facts and time change it. `fork` before asking what could start."""

    def __init__(
        self,
        tasks: Iterable[RecoveryTask],
        tracks: int,
        *,
        arbitration: Arbitration = "staleness",
        background: bool = True,
        above: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self.tasks = {task.table: task for task in tasks}
        self.number = {table: number for number, table in enumerate(self.tasks)}
        self.tracks = tracks
        self.arbitration, self.background, self.above = arbitration, background, above
        self.now_us = 0
        self.normal_load = total_utilisation(self.tasks.values())
        self._progress: MutableMapping[str, Progress] = {}
        # Tables with facts of now, what is due later, released jobs by deadline, tables by what their lag costs. The heaps
        # may hold what is no longer so; that is found out when it comes up.
        self._news: set[str] = set()
        self._due: list[tuple[int, str]] = []
        self._released: list[_HeapEntry] = []
        self._behind: list[_HeapEntry] = []
        # How long these two heaps may get before they are tidied.
        self._room = (_SLACK, _SLACK)
        # In the order in which they entered; and those that must leave, because the tracks cannot carry them any more.
        self.recovering: dict[str, None] = {}
        self.demoted: set[str] = set()
        # Tables that may enter: too far behind, or owed a recovery.
        self.eligible: set[str] = set()
        self.owed: set[str] = set()
        self.changes: list[ModeChange] | None = None

    def fork(self) -> Modes:
        """A copy whose changes the original does not see."""
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._progress = ChainMap({}, self._progress)
        copy._news = set(self._news)
        copy._due, copy._released, copy._behind = list(self._due), list(self._released), list(self._behind)
        copy.recovering, copy.eligible = dict(self.recovering), set(self.eligible)
        copy.owed, copy.demoted = set(self.owed), set(self.demoted)
        copy.changes = None
        return copy

    def provide(self, tasks: Iterable[RecoveryTask]) -> None:
        """Costs are known better: other reservations for the same tables, from now on."""
        self.settle()
        self.tasks = {task.table: task for task in tasks}
        self.normal_load = total_utilisation(self.tasks.values())
        self._behind.clear()
        for table, progress in self._progress.items():
            self._lags(table, progress.lag_us, ended=True)
        self._demote()

    def _demote(self) -> None:
        """More is reserved than there is, as updates take longer than before: who entered last leaves at its next deadline."""
        load = self.load
        for table in reversed(self.recovering):
            if load <= self.tracks + ROUNDING:
                return
            load -= self.tasks[table].increase
            self.demoted.add(table)
            self._news.add(table)

    def __getitem__(self, table: str) -> Progress:
        return self._progress.get(table, NEW)

    @property
    def load(self) -> float:
        """The left side of (6): what all tables together may use now, in tracks."""
        return self.normal_load + fsum(self.tasks[table].increase for table in sorted(self.recovering))

    def dump(self) -> dict[str, Any]:
        """Everything that `restore` needs, in plain values."""
        progress = {table: list(found) for table, found in self._progress.items()}
        return {
            "now_us": self.now_us,
            "news": sorted(self._news),
            "progress": progress,
            "recovering": list(self.recovering),
            "demoted": sorted(self.demoted),
            "owed": sorted(self.owed),
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what was dumped, as far as the tables are the same."""
        known = self.tasks.keys()
        self.now_us, self._news = data["now_us"], known & set(data["news"])
        self.recovering = dict.fromkeys(table for table in data["recovering"] if table in known)
        self.demoted, self.owed = known & set(data["demoted"]), known & set(data["owed"])
        for table, values in data["progress"].items():
            if table not in known:
                continue
            progress = Progress(*values)
            last = None if progress.last is None else Released(*progress.last)
            progress = progress._replace(last=last)
            self._progress[table] = progress
            if last is not None and progress.waits:
                heappush(self._released, (self.rank(table, last), self.number[table], table))
            later = max(progress.next_us, progress.leaves_us or 0)
            if later > self.now_us and not progress.runs:
                heappush(self._due, (later, table))
        news = set(self._news)
        for table in list(self._progress):
            self._lags(table, self[table].lag_us, ended=True)
        self._news = news

    # Facts

    def lags(self, now_us: int, table: str, lag_us: int) -> None:
        """The table is so far behind its trailing edge; 0 if it is fresh."""
        self._at(now_us)
        self._lags(table, lag_us)

    def owe(self, now_us: int, table: str) -> None:
        """An outage that is over reached the table: it is owed a recovery."""
        self._at(now_us)
        if self.above is not None and self.tasks[table].reserved:
            self.owed.add(table)
            self._news.add(table)

    def starts(self, now_us: int, table: str, able_us: int | None = None) -> None:
        """A job of the table starts: the one that was released, or else one in the background. If it was held up, it counts as
        released when it could start: else it and all that follow would be in the way of others as if they had waited."""
        self._at(now_us)
        self.settle()
        progress = self[table]
        if progress.waits:
            assert progress.last is not None
            if able_us is not None and able_us > progress.last.release_us:
                last = anew(progress.last, able_us)
                progress = progress._replace(last=last, next_us=max(progress.next_us, last.deadline_us))
            self._progress[table] = progress._replace(waits=False, runs=True)
        else:
            self._progress[table] = progress._replace(background=True)

    def ends(self, now_us: int, table: str, lag_us: int) -> None:
        """The job of the table ended, and it is so far behind now."""
        self._at(now_us)
        progress = self[table]
        if progress.background:
            progress = progress._replace(background=False)
        elif progress.runs:
            progress = progress._replace(runs=False, ended_us=self.now_us)
            if progress.reweighed:
                task = self.tasks[table]
                assert progress.last is not None
                found = reweigh_finished(progress.last, self.now_us, task.period_us, task.recovery_us)
                assert found.next_us is not None
                progress = progress._replace(next_us=found.next_us, reweighed=False)
                self._note(table, True, found.rule)
            if progress.next_us > self.now_us:
                heappush(self._due, (progress.next_us, table))
        self._progress[table] = progress
        self._lags(table, lag_us, ended=True)

    def _lags(self, table: str, lag_us: int, ended: bool = False) -> None:
        progress = self[table]
        self._news.add(table)
        if lag_us == progress.lag_us and not ended:
            return
        task = self.tasks[table]
        self._progress[table] = progress._replace(lag_us=lag_us)
        if lag_us:
            heappush(self._behind, (self.loss(task, lag_us), self.number[table], table))
        self._judge(table)

    def _judge(self, table: str) -> None:
        """Whether it may enter recovery mode, as far as it depends on the table alone."""
        progress, task = self[table], self.tasks[table]
        wants = table in self.owed if self.above is not None else progress.lag_us > task.threshold_us
        if wants and not progress.recovering and task.reserved:
            self.eligible.add(table)
        else:
            self.eligible.discard(table)

    # Time

    def _at(self, now_us: int) -> None:
        if now_us > self.now_us:
            self.advance(now_us)

    def advance(self, now_us: int) -> None:
        """Time passes, up to facts that may come now."""
        if now_us <= self.now_us:
            return
        self.settle()
        while self._due and self._due[0][0] < now_us:
            self.now_us = self._due[0][0]
            self.settle()
        self.now_us = now_us

    def settle(self) -> None:
        """No more facts of this instant: what follows from them."""
        now, due, news = self.now_us, self._due, self._news
        while due and due[0][0] <= now:
            news.add(heappop(due)[1])
        if not news:
            return
        self._tidy()
        # In the order of the tables: sets have none, and decisions must not depend on that.
        tables = sorted(news, key=self.number.__getitem__)
        news.clear()
        for table in tables:
            self._leave(table)
            self._judge(table)
        if self.eligible:
            self._enter()
        for table in tables:
            self._release(table)

    def _tidy(self) -> None:
        """Throw out what is no longer so before it outweighs what is."""
        if len(self._released) > self._room[0]:
            kept = [entry for _, entry in self._found(self._released, self._waiting)]
            self._released, self._room = kept, (2 * len(kept) + _SLACK, self._room[1])
        if len(self._behind) > self._room[1]:
            kept = [entry for _, entry in self._found(self._behind, self._loses)]
            self._behind, self._room = kept, (self._room[0], 2 * len(kept) + _SLACK)

    def _leave(self, table: str) -> None:
        """Rule RN: fresh when a job ends, so back to normal at its deadline. In turns: no more than a period behind."""
        progress = self[table]
        if not progress.recovering or progress.busy or progress.waits:
            return
        if progress.leaves_us is None:
            if progress.lag_us > self._near_us(table) and table not in self.demoted:
                return
            ends = max(self.now_us, progress.last.deadline_us if progress.last else 0)
            progress = progress._replace(leaves_us=ends, next_us=ends)
            self._progress[table] = progress
            heappush(self._due, (ends, table))
        assert progress.leaves_us is not None
        if progress.leaves_us <= self.now_us:
            self._progress[table] = progress._replace(recovering=False, leaves_us=None)
            del self.recovering[table]
            if table in self.demoted:
                self.demoted.discard(table)  # what it is owed it is owed still
            else:
                self.owed.discard(table)
            self._judge(table)
            self._note(table, False, "RN")

    def _near_us(self, table: str) -> int:
        """How far behind it may be to have recovered."""
        return self.tasks[table].period_us if self.above is not None else 0

    def _enter(self) -> None:
        """Rule NR: tables that are too far behind speed up, as many as (6) allows."""
        room = self.tracks - self.load + ROUNDING
        for table in self._in_turn():
            task = self.tasks[table]
            if task.increase > room or task.recovery_us >= task.period_us:
                continue
            room -= task.increase
            self.eligible.discard(table)
            self.recovering[table] = None
            self._reweigh(table)

    def _in_turn(self) -> list[str]:
        """Those who may enter now, first to last."""
        found = sorted(self.eligible, key=self._turn)
        if self.above is None:
            return found
        while True:
            found = [table for table in found if self.owed.isdisjoint(self.above.get(table, ()))]
            paid = [t for t in found if not self[t].busy and self[t].lag_us <= self._near_us(t)]
            if not paid:
                return found
            # It is so near that there is nothing to make good; with that others may have their turn.
            self.owed.difference_update(paid)
            self.eligible.difference_update(paid)
            found = sorted(self.eligible, key=self._turn)

    def _turn(self, table: str) -> tuple[float, int]:
        task = self.tasks[table]
        by_loss = self.arbitration == "staleness"
        return -task.priority * self[table].lag_us if by_loss else task.increase, self.number[table]

    def _reweigh(self, table: str) -> None:
        progress, task, now = self[table], self.tasks[table], self.now_us
        if progress.runs:
            assert progress.last is not None
            found = reweigh_running(progress.last, now)
        else:
            found = reweigh_waiting(progress.last, now, task.recovery_us)
        progress = progress._replace(recovering=True, leaves_us=None)
        if found.next_us is None:
            progress = progress._replace(reweighed=True)
        else:
            progress = progress._replace(next_us=found.next_us)
            if found.rule != "i":
                progress = progress._replace(last=found.last)
            if found.rule == "iv" and progress.waits:
                heappush(self._released, (self.rank(table, found.last), self.number[table], table))
            heappush(self._due, (max(now, found.next_us), table))
        self._progress[table] = progress
        if found.next_us is not None and found.next_us <= now:
            self._release(table)
        self._note(table, True, found.rule)

    def _release(self, table: str) -> None:
        """(3) and (4): the next job, if the table is not fresh and it is time."""
        progress = self[table]
        # On tracks that idle there is room for what makes no table fresher; without them it is released as everything else.
        lags = progress.lag_us > (NO_DATA_US if self.background else 0)
        if progress.waits and not lags:
            # What it was to load is gone (a file was taken back): as if it had not been released.
            self._progress[table] = progress._replace(waits=False, ended_us=self.now_us)
            return
        if progress.waits or progress.runs or not lags or progress.leaves_us is not None:
            return
        now = self.now_us
        first = max(progress.next_us, progress.ended_us)
        if now < first:
            return
        task = self.tasks[table]
        if not task.reserved:
            return
        release = progress.next_us if now == first and progress.last is not None else now
        last = Released(release, release + (task.recovery_us if progress.recovering else task.period_us))
        converted = progress.background
        self._progress[table] = progress._replace(
            last=last, next_us=last.deadline_us, waits=not converted, runs=converted, background=False
        )
        if not converted:
            heappush(self._released, (self.rank(table, last), self.number[table], table))

    def _note(self, table: str, recovering: bool, rule: str) -> None:
        if self.changes is not None:
            self.changes.append(ModeChange(self.now_us, table, recovering, rule))

    # Answers

    def rank(self, table: str, job: Released) -> float:
        """The smallest goes first, equal ones in the order of the tables: earliest deadline first."""
        return job.deadline_us

    @property
    def due_us(self) -> int | None:
        """When something happens by itself."""
        return self._due[0][0] if self._due else None

    def choices(self, startable: Startable | None = None) -> Iterator[JobChoice]:
        """Jobs that may start now, first to last: released ones by deadline, then the background. `startable` says
        whether a table could run at all, for whatever reasons the world may have."""
        yield from self.released(startable)
        yield from self.behind(startable)

    def released(self, startable: Startable | None = None) -> Iterator[JobChoice]:
        """Released jobs by deadline."""
        self.settle()
        for table, progress in self._live(self._released, self._waiting):
            if startable is None or startable(table):
                assert progress.last is not None
                yield JobChoice(table, False, self.tasks[table].batch, *progress.last)

    def _waiting(self, rank: float, progress: Progress, task: RecoveryTask) -> bool:
        return progress.waits and progress.last is not None and self.rank(task.table, progress.last) == rank

    def behind(self, startable: Startable | None = None) -> Iterator[JobChoice]:
        """What tracks that idle may do: tables that are behind, who loses most goes first."""
        self.settle()
        if not self.background:
            return
        for table, progress in self._live(self._behind, self._loses):
            if not progress.busy and not progress.waits and (startable is None or startable(table)):
                yield JobChoice(table, True, self.tasks[table].most, progress.next_us, progress.next_us)

    def _loses(self, loss: float, progress: Progress, task: RecoveryTask) -> bool:
        return progress.lag_us > NO_DATA_US and loss == self.loss(task, progress.lag_us)

    def loss(self, task: RecoveryTask, lag_us: int) -> float:
        """The smallest goes first in the background: staleness by priority, for each second of work."""
        return -task.priority * lag_us / task.cost_us

    def _live(
        self, heap: list[_HeapEntry], holds: Callable[[float, Progress, RecoveryTask], bool]
    ) -> Iterator[tuple[str, Progress]]:
        """What a heap holds, in order, without what is no longer so. All of it stays in the heap."""
        kept: list[_HeapEntry] = []
        try:
            for table, entry in self._found(heap, holds):
                kept.append(entry)
                yield table, self[table]
        finally:
            for entry in kept:
                heappush(heap, entry)

    def _found(
        self, heap: list[_HeapEntry], holds: Callable[[float, Progress, RecoveryTask], bool]
    ) -> Iterator[tuple[str, _HeapEntry]]:
        seen: set[str] = set()
        while heap:
            entry = heappop(heap)
            key, _, table = entry
            if table not in seen and holds(key, self[table], self.tasks[table]):
                seen.add(table)
                yield table, entry
