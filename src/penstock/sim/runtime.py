"""A scenario, run through the controller: files arrive as events, commands are carried out by waiting as long as the
scenario says, and what would be published is told from the job alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.control.controller import Controller
from penstock.control.events import (
    Event,
    FileArrived,
    FileRewritten,
    StartUpdate,
    UpdateFailed,
    UpdateFinished,
    UpdateStarted,
    WarehouseDeclared,
)
from penstock.control.views.health import FeedWatch
from penstock.model.cost import CostModel
from penstock.model.partitions import PartitionSet
from penstock.model.time import SECOND_US
from penstock.requests.job import FeedFile, Job, PublishedTable
from penstock.requests.needs import Piece, changed_by
from penstock.scheduling.jobs import UnknownOutlook
from penstock.scheduling.policies import bound
from penstock.scheduling.protocol import UpdatePolicy
from penstock.sim.arrivals import Batch, batches, factors, first_batch_end_us, generator, slow_at
from penstock.sim.driver import ARRIVAL, END, Driver
from penstock.sim.outcome import BusySum, FreshnessSum, Outcome
from penstock.sim.scenario import Redelivery, Scenario, SimTable, us


class KnownOutlook(UnknownOutlook):
    """The outlook of a simulation whose costs and arrivals are known."""

    def __init__(self, costs_s: dict[str, float]) -> None:
        self._costs_s = costs_s
        self.next_us: dict[str, int] = {}

    def period_cost_s(self, table: str) -> float:
        return self._costs_s[table]

    def changed_since(self, version: int) -> Iterable[str]:
        return ()

    def next_release_us(self, table: str) -> int | None:
        return self.next_us.get(table)


class KnownCost(CostModel):
    """The true mean cost, for policies that need not learn it. Of a group it is known for the same amount of each table."""

    def __init__(self, scenario: Scenario, tables: Sequence[SimTable]) -> None:
        super().__init__()
        self._scenario, self._tables = scenario, tables

    def expected_s(self, amount: float) -> float:
        each = amount / SECOND_US / len(self._tables)
        return self._scenario.mean_factor * self._scenario.together_s([table.cost_s(each) for table in self._tables])

    def observe(self, amount: float, seconds: float) -> None:
        pass


class Simulation(Driver):
    """One run of a scenario under one policy."""

    def __init__(
        self, scenario: Scenario, policy: UpdatePolicy, seed: int = 0, *, trace: bool = False, keep_log: bool = False
    ) -> None:
        super().__init__(keep_log=keep_log)
        self.scenario = scenario
        graph = scenario.graph
        self.specs = {spec.name: spec for spec in scenario.tables}
        known = scenario.costs == "known"
        self.outlook = KnownOutlook(scenario.costs_s)
        self.trace: list[tuple[int, str, int, int]] | None = [] if trace else None
        # By table, the joins for which it changes how much there is to do.
        self._joins: dict[str, list[str]] = {}
        for spec in scenario.tables:
            if len(set(spec.sources)) > 1:
                for name in {spec.name, *spec.sources}:
                    self._joins.setdefault(name, []).append(spec.name)
        feeds, tables = tuple(graph.feeds.values()), tuple(graph.tables.values())
        self.apply(WarehouseDeclared(0, feeds, tables, scenario.tracks, "fifo"))
        state = self.controller.state
        self.fresh: dict[str, FreshnessSum] = {}
        for name in graph.order:
            spec = self.specs[name]
            if known:
                group = [self.specs[each] for each in graph.grouped_with(name)]
                state.know(name, cost=KnownCost(scenario, group))
            if spec.is_base:
                fresh = first_batch_end_us(spec, seed) - us(spec.period_s)
            else:
                fresh = min(self.fresh[source].fresh_us for source in spec.sources)
            self.fresh[name] = FreshnessSum(fresh)
        periods = graph.periods_us
        self.begin_us = {name: total.fresh_us - periods[name] for name, total in self.fresh.items()}
        self._draw = {name: factors(scenario, spec, seed) for name, spec in self.specs.items()}
        self._fails = {name: generator(seed, name, "failures").random for name in self.specs}
        self._slow_at = slow_at(scenario)
        self._batches: dict[str, Iterator[Batch]] = {}
        self._by_uri: dict[str, tuple[Batch, ...]] = {}
        self.snapshot = self.events = self.updates = self.failures = 0
        self.busy = BusySum()
        self._live_before()
        state.runs.forget_ended()  # the policy was not there yet
        self.controller = Controller(state, bound(policy, graph), self.outlook if known else None)
        if scenario.outages:
            self.outages = FeedWatch(state)
        for name, spec in self.specs.items():
            if spec.is_base:
                self._batches[name] = batches(scenario, spec, seed)
                self._plan(name)
        for number, backfill in enumerate(scenario.backfills):
            self.kernel.at(us(backfill.at_s), ARRIVAL, lambda now, n=number, b=backfill: self._backfill(now, n, b))  # type: ignore[misc]

    def run(self, max_events: int | None = None) -> Outcome:
        horizon = us(self.scenario.horizon_s)
        while self.due(horizon):
            if max_events is not None and self.events >= max_events:
                horizon = self.kernel.now_us
                break
            self.step()
        return self._outcome(horizon)

    def apply(self, event: Event) -> None:
        super().apply(event)
        if isinstance(event, UpdateStarted | UpdateFinished | UpdateFailed) and self._joins:
            table = event.job.table if isinstance(event, UpdateStarted) else event.table
            for each in self.controller.state.graph.grouped_with(table):
                self._measure(each)

    def _measure(self, table: str) -> None:
        """A join goes through the stretch of time that all its sources have: that is its amount, not the sum of theirs."""
        for name in self._joins.get(table, ()):
            state = self.controller.state.tables[name]
            edge = self.fresh[name].fresh_us
            if state.running is not None:
                edge = max(edge, state.running.job.complete_us or edge)
            ahead = min(self.fresh[source].fresh_us for source in self.specs[name].sources) - edge
            self.controller.state.know(name, amount=float(max(0, ahead)))

    def _again(self, name: str, pieces: Iterable[Piece]) -> int:
        """How much of the time that the table has is made again."""
        late = PartitionSet.of(*((p.start_us, p.end_us) for p in pieces if p.need.late and not p.need.append))
        begin = self.begin_us[name]
        return sum(end - start for start, end in late.within(begin, max(self.fresh[name].fresh_us, begin)))

    def _live_before(self) -> None:
        """A warehouse that is not new: every table holds the data of one period, and one update of each was seen."""
        for name, spec in self.specs.items():
            if spec.is_base:
                start, end = self.begin_us[name], self.fresh[name].fresh_us
                self._by_uri[f"{name}/before"] = (Batch(name, -1, end, start, end),)
                self.apply(FileArrived(0, name, FeedFile(f"{name}/before", "1", end - start, end)))
        while commands := self.controller.decide(0):
            for command in commands:
                job = command.job
                self.apply(command.started(self.controller.state.applied))
                self.snapshot += 1
                found = tuple(self._published(each, 0) for each in job.each)
                seconds = self._seconds([(each.table, each.amount) for each in job.each])
                self.apply(UpdateFinished(0, job.id, job.table, found, seconds))

    # The world acts

    def _plan(self, name: str) -> None:
        batch = next(self._batches[name], None)
        if batch is not None:
            self.outlook.next_us[name] = batch.arrives_us
            self.kernel.at(batch.arrives_us, ARRIVAL, lambda now: self._arrive(now, batch))
        else:
            self.outlook.next_us.pop(name, None)

    def _arrive(self, now_us: int, batch: Batch) -> None:
        self.events += 1
        uri = f"{batch.table}/{batch.number}"
        self._by_uri[uri] = (batch,)
        size = batch.to_us - batch.from_us
        self.apply(FileArrived(now_us, batch.table, FeedFile(uri, "1", size, now_us)))
        self._plan(batch.table)

    def _backfill(self, now_us: int, number: int, backfill: Redelivery) -> None:
        """The rows of a stretch of time come again, as one rewritten file."""
        self.events += 1
        start = max(us(backfill.from_s), self.begin_us[backfill.table])
        end = min(us(backfill.to_s), self.fresh[backfill.table].fresh_us)
        if start >= end:
            return
        uri = f"{backfill.table}/backfill-{number}"
        self._by_uri[uri] = (Batch(backfill.table, -1, now_us, start, end),)
        file = FeedFile(uri, "2", end - start, now_us)
        self.apply(FileRewritten(now_us, backfill.table, file, ((start, end),)))

    def start(self, now_us: int, command: StartUpdate) -> None:
        job, name = command.job, self.scenario.graph.updated_as[command.job.table]
        alone = self._seconds([(each.table, self._amount(each)) for each in job.each])
        seconds = alone * self._slow_at(now_us) * self._draw[name]()
        if self.specs[name].drift != 1:
            seconds *= self.specs[name].drift ** (now_us / us(self.scenario.horizon_s))
        took_us = max(1, round(seconds * SECOND_US))
        if job.kind == "upkeep":
            took_us = 1
        self.busy.add(now_us + took_us, took_us)
        if self.trace is not None:
            self.trace.append((now_us, job.table, command.track, took_us))
        failed = bool(self.scenario.failures) and self._fails[name]() < self.scenario.failures
        end = self._fail if failed else self._finish
        self.kernel.at(now_us + took_us, END, lambda now: end(now, job, took_us))

    def _seconds(self, amounts: Iterable[tuple[str, float]]) -> float:
        """What a job takes that goes through so much of each table, on an idle machine and without luck."""
        return self.scenario.together_s([self.specs[name].cost_s(amount / SECOND_US) for name, amount in amounts])

    def _amount(self, job: Job) -> float:
        """The stretch of data that the job goes through, in microseconds: new ones, and partitions made again."""
        if job.kind == "load":
            return job.amount
        if job.complete_us is None:
            return 0.0
        ahead = job.complete_us - self.fresh[job.table].fresh_us
        return float(max(0, ahead) + self._again(job.table, job.pieces))

    def _fail(self, now_us: int, job: Job, took_us: int) -> None:
        self.events += 1
        self.failures += 1
        self.apply(UpdateFailed(now_us, job.id, job.table, "by chance", took_us / SECOND_US))

    def _finish(self, now_us: int, job: Job, took_us: int) -> None:
        self.events += 1
        self.updates += 1
        self.snapshot += 1
        found = tuple(self._published(each, self.fresh[each.table].fresh_us) for each in job.each)
        for each in found:
            fresh = self.fresh[each.table]
            if each.complete_us is not None and each.complete_us > fresh.fresh_us:
                fresh.moved(now_us, each.complete_us)
        self.apply(UpdateFinished(now_us, job.id, job.table, found, took_us / SECOND_US))

    def _published(self, job: Job, edge: int) -> PublishedTable:
        if job.kind == "upkeep":
            return PublishedTable(job.table, self.snapshot, True)
        return self._loaded(job, edge) if self.specs[job.table].is_base else self._derived(job)

    def _loaded(self, job: Job, edge: int) -> PublishedTable:
        parts = [batch for file in job.files for batch in self._by_uri.pop(file.uri, ())]
        ranges = [(b.from_us, b.to_us) for b in parts] + [b.late_us for b in parts if b.late_us is not None]
        append = not job.pieces
        upto = max((b.to_us for b in parts), default=edge)
        return PublishedTable(
            job.table,
            self.snapshot,
            append,
            PartitionSet.of(*ranges).intervals,
            upto,
            upto - 1,
            min((b.from_us for b in parts), default=None),
            rows=len(parts),
            size_bytes=sum(b.to_us - b.from_us for b in parts),
        )

    def _derived(self, job: Job) -> PublishedTable:
        return PublishedTable(
            job.table,
            self.snapshot,
            all(piece.need.append for piece in job.pieces) and bool(self.controller.state.graph.folds[job.table]),
            changed_by(job.pieces),
            job.complete_us,
            None if job.complete_us is None else job.complete_us - 1,
            self.begin_us[job.table],
            size_bytes=int(self._amount(job)),
        )

    def _outcome(self, horizon_us: int) -> Outcome:
        stale = {name: total.mean_s(horizon_us) for name, total in self.fresh.items()}
        weighted = sum(self.specs[name].priority * mean for name, mean in stale.items())
        used = self.busy.until(horizon_us) / (horizon_us * self.scenario.tracks)
        return Outcome(stale, weighted, used, self.events, self.updates, self.failures, self.trace or [])


def simulate(
    scenario: Scenario, policy: UpdatePolicy, seed: int = 0, *, max_events: int | None = None, trace: bool = False
) -> Outcome:
    """Run a scenario through the controller."""
    return Simulation(scenario, policy, seed, trace=trace).run(max_events)
