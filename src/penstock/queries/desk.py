"""The desk decides about queries, live and in what-if: which are admitted, which runs next, and which updates are asked for. Events in, commands
out; it reads no clock, and a recorded log of its events gives the same commands again.

It shows a policy the warehouse as a situation with several lanes, tracks and cores. Items are tables. A query needs a chain of updates, sources first.
Updates are not the desk's to start: it asks whoever keeps the tables fresh.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

from penstock.model.graph import Graph
from penstock.model.time import END_US, SECOND_US
from penstock.queries.contract import NAIVE, OutcomeWeights
from penstock.queries.estimate import Estimate
from penstock.queries.outcome import Cause, Ending
from penstock.queries.plan import alone, timeline
from penstock.queries.situation import Items, Query, QueryPolicy, QuerySituation, Step

# Tables whose updates a query waits for, sources first, each with whether the update that runs already is enough. Empty: it is fresh enough. None:
# no update makes it so.
Chain = tuple[tuple[str, bool], ...] | None

# With less of a chance to end in time no query starts: it would take time from what can.
HOPELESS = 0.1
# With less of a chance no query waits for updates, if a stale answer is better than none.
PATIENCE = 0.1
# So many seconds of work a profile may be ahead of others that wait.
_SLICE_S = 2.0
# What is thought to be left of what takes longer than it should.
_SOON_S = 0.05
_NEVER, _NEVER_S = -1, 1e9


# What happens


@dataclass(frozen=True, slots=True)
class TableOutlook:
    """What an update of it takes, and when the one that runs will probably end."""

    cost: Estimate
    until_us: int | None = None


@dataclass(frozen=True, slots=True)
class UpdatesSeen:
    """What became known of updates: of these tables, and what these queries wait for now."""

    at_us: int
    tables: dict[str, TableOutlook]
    chains: dict[int, Chain]
    # When the tracks that are busy will probably be free, how many there are, and the work that goes before all queries.
    busy_us: tuple[int, ...] = ()
    tracks: int = 1
    before_s: float = 0.0
    kind: Literal["updates-seen"] = "updates-seen"


@dataclass(frozen=True, slots=True)
class QueryCame:
    at_us: int
    number: int
    deadline_us: int
    tables: tuple[str, ...]
    # How long it runs, as predicted; what it takes more if no lane is warm is known of lanes.
    run: Estimate
    weights: OutcomeWeights = NAIVE
    # Whether a stale answer with a mark is better than none.
    takes_stale: bool = True
    # Those with the same one here are answered by one run.
    same: str | None = None
    profile: str = "default"
    # What it said of freshness, for who reads the record.
    lag: int | None = None
    age_us: int | None = None
    kind: Literal["query-came"] = "query-came"


@dataclass(frozen=True, slots=True)
class QueryWent:
    """A query has ended: with an answer, at its deadline; without an ending it was withdrawn, or failed."""

    at_us: int
    number: int
    ending: Ending | None
    kind: Literal["query-went"] = "query-went"


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run that was begun for a query is over; its lane is free."""

    at_us: int
    number: int
    kind: Literal["run-ended"] = "run-ended"


@dataclass(frozen=True, slots=True)
class LanesSeen:
    """What a query takes longer on each lane that has answered nothing yet."""

    at_us: int
    cold_s: tuple[float, ...]
    kind: Literal["lanes-seen"] = "lanes-seen"


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The controller of the policy looks; with the updates of each table since it did, and a lot between 0 and 1."""

    at_us: int
    lot: float
    updates: dict[str, int]
    kind: Literal["time-passed"] = "time-passed"


DeskEvent = UpdatesSeen | QueryCame | QueryWent | RunEnded | LanesSeen | TimePassed


# What is to be done


@dataclass(frozen=True, slots=True)
class Admit:
    """With its chance to be answered in time, and fresh."""

    number: int
    chance: float
    kind: Literal["admit"] = "admit"


@dataclass(frozen=True, slots=True)
class TurnAway:
    number: int
    cause: Cause
    # What it would take, as far as that is known.
    within_s: float | None
    kind: Literal["turn-away"] = "turn-away"


@dataclass(frozen=True, slots=True)
class StartQueries:
    """One run for all of them."""

    numbers: tuple[int, ...]
    kind: Literal["start-queries"] = "start-queries"


@dataclass(frozen=True, slots=True)
class AskForUpdates:
    """The chain of a query is to be done until then."""

    number: int
    until_us: int
    kind: Literal["ask-for-updates"] = "ask-for-updates"


@dataclass(frozen=True, slots=True)
class StretchPeriods:
    """At least so long between two updates of these tables, and of no others."""

    periods: dict[str, int]
    kind: Literal["stretch-periods"] = "stretch-periods"


DeskCommand = Admit | TurnAway | StartQueries | AskForUpdates | StretchPeriods


@dataclass(frozen=True, slots=True)
class DeskEntry:
    """What happened, and what followed."""

    event: DeskEvent
    commands: tuple[DeskCommand, ...]


@dataclass(frozen=True, slots=True)
class DeskSetup:
    """What a desk is made of, but for what it has learned."""

    at_us: int
    policy: str
    lanes: int
    # Lanes besides, for profiles that run nothing while all are busy.
    more: int = 0
    # That queries and updates share; None: they do not.
    cores: int | None = None
    shares: dict[str, float] = field(default_factory=dict)
    learned: Any = None


@dataclass(slots=True)
class _Running:
    first: Query
    members: list[Query]
    began_s: float
    run: Estimate

    def left_s(self, now_s: float) -> float:
        return max(_SOON_S, self.run.mean_s - (now_s - self.began_s))


class DeskSituation(QuerySituation):
    """What a policy sees of the desk."""

    def __init__(self, items: Items, numbers: Mapping[str, int], graph: Graph, setup: DeskSetup) -> None:
        super().__init__(items, preempts=False, width=setup.cores)
        self.setup = setup
        self.shares = setup.shares
        self.numbers = numbers
        self.names = list(numbers)
        self._parents = {
            number: [numbers[edge.source] for edge in graph.into[name] if edge.source != name]
            for name, number in numbers.items()
        }
        self.tables: dict[int, tuple[Estimate, float | None]] = {}
        self.chains: dict[int, Sequence[Step]] = {}
        self.takes: dict[int, bool] = {}
        self.runs: dict[int, _Running] = {}
        self.running: set[int] = set()
        self.cold_s: tuple[float, ...] = ()
        self.busy_tracks_s: list[float] = []
        self.tracks = 1
        # Seconds that each profile has used, over its share.
        self.used: dict[str, float] = {}
        # Who has something to run; and when a core is free.
        self._ready: set[str] = set()
        self._soon_s = 0.0

    def at(self, now_s: float) -> None:
        """Time has come this far."""
        self.now_s = now_s
        lanes = sorted(run.left_s(now_s) for run in self.runs.values())
        for run in self.runs.values():
            for query in run.members:
                query.left_s = run.left_s(now_s) if query is run.first else 0.0
        free = max(0, self.setup.lanes - len(lanes))
        cold = sorted(self.cold_s)[:free] if len(self.cold_s) < self.setup.lanes else ()
        self.lanes_s = (*[0.0] * (free - len(cold)), *cold, *lanes) or (0.0,)
        busy = [max(_SOON_S, until - now_s) for until in self.busy_tracks_s]
        self.tracks_s = (*[0.0] * max(0, self.tracks - len(busy)), *busy) or (0.0,)
        self.working = len(lanes) + len(busy)
        self._soon_s = min((*lanes, *busy), default=0.0)
        self._ready = {
            query.profile for _, _, query in self.waiting if query.id not in self.running and not self.steps(query)
        }

    def run(self, query: Query) -> Estimate:
        cold = min(self.cold_s) if len(self.cold_s) >= self.setup.lanes else 0.0
        return Estimate(query.cost_s + cold, query.spread_s + 0.3 * cold)

    def steps(self, query: Query) -> Sequence[Step]:
        return self.chains.get(query.id, ())

    def cost(self, item: int) -> Estimate:
        if item == _NEVER:
            return Estimate(_NEVER_S)
        known = self.tables.get(item)
        return known[0] if known is not None else Estimate(self.items.cost_s[item])

    def left(self, item: int) -> float | None:
        known = self.tables.get(item)
        return None if known is None or known[1] is None else max(_SOON_S, known[1] - self.now_s)

    def parents(self, item: int) -> Iterable[int]:
        return self._parents.get(item, ())

    def can_refresh(self, item: int, chain: Collection[int]) -> bool:
        return False

    def behind(self, item: int) -> bool:
        return False

    def takes_stale(self, query: Query) -> bool:
        return self.takes[query.id]

    def may_start(self, query: Query) -> bool:
        if query.id in self.running or self.run(query).chance(query.deadline_s - self.now_s) <= HOPELESS:
            return False
        if self.width is not None and self.working >= self.width and self._soon_s <= self.run(query).mean_s:
            # A core is free soon: beside others it would not be done earlier, and they would be later.
            return False
        if len(self.runs) < self.setup.lanes:
            return self._in_turn(query.profile)
        busy = {one.profile for run in self.runs.values() for one in run.members}
        return len(self.runs) < self.setup.lanes + self.setup.more and query.profile not in busy

    def _in_turn(self, profile: str) -> bool:
        """Whether its profile has not used much more of its share than others that have something to run."""
        others = self._ready - {profile}
        least = min((self.used.get(name, 0.0) for name in others), default=inf)
        return self.used.get(profile, 0.0) <= least + _SLICE_S

    def gives_up(self, query: Query) -> bool:
        steps = self.steps(query)
        if not steps or not self.takes_stale(query) or not self.may_start(query):
            return False
        left = query.deadline_s - self.now_s
        # Running sooner only makes it surer that a stale answer is in time: what is that worth?
        surely = 0.9 if query.weights.stale < query.weights.missed else 0.5
        return self.run(query).quantile(surely) >= left or alone(self, query).chance(left) < PATIENCE


class Desk:
    """The working memory of a front door, and of a what-if."""

    def __init__(self, policy: QueryPolicy, graph: Graph, setup: DeskSetup) -> None:
        self.policy = policy
        self.setup = setup
        self._began_us = setup.at_us
        numbers = {name: number for number, name in enumerate(graph.order)}
        self._graph = graph
        periods = [graph.periods_us[name] / SECOND_US for name in numbers]
        self.items = Items.of([1.0] * len(numbers), periods)
        self.situation = DeskSituation(self.items, numbers, graph, setup)
        learned = setup.learned
        known = learned is not None and learned["policy"] == setup.policy and learned["tables"] == list(numbers)
        self.memory = policy.of_plain(self.items, learned["memory"]) if known else policy.begin(self.items)
        self._open: dict[int, Query] = {}
        self._wanted: dict[int, Sequence[Step]] = {}
        self._stretched: dict[str, int] = {}
        self._wake_s = policy.every_s

    def plain(self) -> dict[str, Any] | None:
        """What was learned."""
        memory = self.policy.plain(self.memory)
        if memory is None:
            return None
        return {"policy": self.setup.policy, "tables": self.situation.names, "memory": memory}

    @property
    def figures(self) -> Mapping[str, float]:
        return self.policy.figures(self.memory)

    def due_us(self) -> int | None:
        """When the controller of the policy wants to look."""
        return None if self._wake_s is None else self._began_us + int(self._wake_s * SECOND_US)

    def is_waiting(self, number: int) -> bool:
        """Whether it waits for updates."""
        return self.policy.refreshes and bool(self.situation.chains.get(number))

    def handle(self, event: DeskEvent) -> tuple[DeskCommand, ...]:
        self.situation.at(self._seconds(event.at_us))
        found: list[DeskCommand] = []
        match event:
            case UpdatesSeen():
                self._seen(event)
            case QueryCame():
                found.append(self._came(event))
            case QueryWent():
                self._went(event)
            case RunEnded():
                self._run_ended(event)
            case LanesSeen():
                self.situation.cold_s = event.cold_s
                self.policy.changed(self.situation, self.memory)
            case TimePassed():
                found += self._passed(event)
        self.situation.at(self.situation.now_s)
        found += self._starts()
        found += self._asks()
        return tuple(found)

    # What happened

    def _seen(self, event: UpdatesSeen) -> None:
        situation, numbers = self.situation, self.situation.numbers
        costs = list(self.items.cost_s)
        for name, outlook in event.tables.items():
            if name in numbers:
                until = None if outlook.until_us is None else self._seconds(outlook.until_us)
                situation.tables[numbers[name]] = outlook.cost, until
                costs[numbers[name]] = max(1e-3, outlook.cost.mean_s)
        self.items.cost_s = costs
        for number, chain in event.chains.items():
            situation.chains[number] = (
                ((_NEVER, False),) if chain is None else tuple((numbers[name], enough) for name, enough in chain)
            )
        situation.busy_tracks_s = [self._seconds(until) for until in event.busy_us]
        situation.tracks, situation.update_work_s = event.tracks, event.before_s
        self.policy.changed(situation, self.memory)

    def _came(self, event: QueryCame) -> DeskCommand:
        situation = self.situation
        own = [situation.numbers[name] for name in event.tables if name in situation.numbers]
        above = {situation.numbers[one] for name in event.tables for one in self._graph.ancestors.get(name, ())}
        query = Query(
            event.number,
            own[0] if own else 0,
            situation.now_s,
            self._seconds(event.deadline_us),
            event.run.mean_s,
            others=tuple(sorted(above.union(own[1:]) - set(own[:1]))),
            spread_s=event.run.spread_s,
            weights=event.weights,
            same=event.same,
            profile=event.profile,
        )
        situation.takes[query.id] = event.takes_stale and query.weights.stale <= query.weights.missed
        waiting = [one for one in self._open.values() if one.id not in situation.running]
        if event.same is not None and any(one.same == event.same for one in waiting):
            query.left_s = 0.0  # the run of the other answers it
        if not any(one.profile == event.profile for one in waiting):
            # Who was away does not come back with a credit.
            least = min((situation.used.get(one.profile, 0.0) for one in self._open.values()), default=0.0)
            situation.used[event.profile] = max(situation.used.get(event.profile, 0.0), least)
        cause = self.policy.admit(situation, query, self.memory)
        end = self._end_of(query)
        if cause is not None:
            self.policy.ended(situation, query, Ending.REJECTED, cause, self.memory)
            self._forget(query)
            within = end.quantile(0.75) if cause is not Cause.OVERLOAD and end.mean_s < _NEVER_S / 2 else None
            return TurnAway(query.id, cause, within)
        self._open[query.id] = query
        insort(situation.waiting, (query.deadline_s, query.id, query))
        return Admit(query.id, round(end.chance(query.deadline_s - situation.now_s), 3))

    def _end_of(self, query: Query) -> Estimate:
        """When it ends if it goes among what is planned."""
        planned = [one for one in self.policy.planned(self.situation, self.memory) if one[2] is not query]
        place = (query.deadline_s, query.id, query)
        insort(planned, place)
        at = planned.index(place)
        mean, variance = timeline(self.situation, planned[: at + 1], whole=True).ends[-1]
        return Estimate(mean, variance**0.5)

    def _went(self, event: QueryWent) -> None:
        situation = self.situation
        query = self._open.pop(event.number, None)
        if query is None:
            return
        situation.waiting.remove((query.deadline_s, query.id, query))
        for run in situation.runs.values():
            if query in run.members:
                run.members.remove(query)
        self._forget(query)
        if event.ending is None:
            self.policy.withdrawn(situation, query, self.memory)
        else:
            self.policy.ended(situation, query, event.ending, None, self.memory)

    def _forget(self, query: Query) -> None:
        situation = self.situation
        situation.running.discard(query.id)
        situation.chains.pop(query.id, None)
        situation.takes.pop(query.id, None)
        self._wanted.pop(query.id, None)

    def _run_ended(self, event: RunEnded) -> None:
        situation = self.situation
        run = situation.runs.pop(event.number, None)
        if run is not None:
            passed = situation.now_s - run.began_s
            situation.busy_s += passed / self.setup.lanes
            name = run.first.profile
            situation.used[name] = situation.used.get(name, 0.0) + passed / self.setup.shares.get(name, 1.0)
            self.policy.changed(situation, self.memory)

    def _passed(self, event: TimePassed) -> list[DeskCommand]:
        for name, count in event.updates.items():
            for _ in range(count if name in self.situation.numbers else 0):
                self.policy.take(self.situation, self.situation.numbers[name], self.memory)
        every = self.policy.every_s
        if every is None:
            return []
        self.policy.wake(self.situation, event.lot, self.memory)
        self._wake_s = self.situation.now_s + every
        names = self.situation.names
        periods = {
            names[item]: END_US if period == inf else int(period * SECOND_US)
            for item, period in self.policy.stretched(self.memory)
        }
        if periods == self._stretched:
            return []
        self._stretched = periods
        return [StretchPeriods(periods)]

    # What follows

    def _starts(self) -> list[DeskCommand]:
        situation = self.situation
        found: list[DeskCommand] = []
        while situation.waiting and len(situation.runs) < self.setup.lanes + self.setup.more:
            query = self.policy.next(situation, self.memory, lane=True, track=False)
            if not isinstance(query, Query):
                break
            fresh = not situation.steps(query)
            members = [query] + [
                one
                for _, _, one in situation.waiting
                if one is not query
                and one.same is not None
                and one.same == query.same
                and one.id not in situation.running
                and (not situation.steps(one) or not fresh)
            ]
            situation.runs[query.id] = _Running(query, members, situation.now_s, situation.run(query))
            for one in members:
                situation.running.add(one.id)
                self.policy.started(situation, one, self.memory)
            found.append(StartQueries(tuple(one.id for one in members)))
            situation.at(situation.now_s)
        return found

    def _asks(self) -> list[DeskCommand]:
        """Updates that are to be made for what is planned; in idle time also those that come too late for who needs them: the next who asks has them."""
        situation = self.situation
        if not self.policy.refreshes or not situation.chains:
            return []
        planned = {query.id for _, _, query in self.policy.planned(situation, self.memory)}
        idle = situation.width is None or situation.working < situation.width or not planned
        found: list[DeskCommand] = []
        for _, number, query in situation.waiting:
            steps = situation.steps(query)
            if not steps or self._wanted.get(number) == steps or steps[0][0] == _NEVER:
                continue
            if all(enough for _, enough in steps) or not (number in planned or idle):
                continue
            self._wanted[number] = steps
            left = query.deadline_s - situation.now_s
            whole = alone(situation, query)
            if whole.chance(left) < 0.5:
                until = situation.now_s + max(left, 2 * whole.mean_s)
            else:
                until = situation.now_s + max(0.0, left - situation.run(query).quantile(0.5))
            found.append(AskForUpdates(number, self._began_us + int(until * SECOND_US)))
        return found

    def _seconds(self, at_us: int) -> float:
        return (at_us - self._began_us) / SECOND_US
