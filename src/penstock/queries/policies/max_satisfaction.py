"""Most satisfaction for the work that there is: the default, for one processor and for a warehouse with lanes and tracks.

It keeps a plan: admitted queries that can all be done in time (`queries.plan`), with the updates that they need. A query that comes goes into the
plan. If not all fit any more, one goes: that which costs most work for what it is worth (Moore 1968, with weights, and with updates that all who
need them share), if its going helps whoever is late. What goes is a spare: it has its chance when there is time. Where times are uncertain, it goes
only if all that is left promises more without it.

Whether a query for which there is no time is rejected or left to lapse follows from the weights: where being rejected is better than missing the
deadline, one goes at once that is nearly hopeless, or worth less for its work than what there was no time for of late (the price of a second).

Of the plan that starts which costs least for its worth and makes no other late; then a spare that fits; then, on what is idle, spares with some
chance, and refreshes of what is read most. Nothing starts while all cores are busy: it would only slow down what runs.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from math import exp, inf, log
from typing import Any

from penstock.queries.outcome import Cause, Ending
from penstock.queries.plan import alone, chance, is_late, protected, timeline, work_s
from penstock.queries.policies.base import first_refresh
from penstock.queries.situation import Items, Next, Query, QueryPolicy, QuerySituation, Step, Updates, Waiting

# How much one query for which there is no time moves the price.
_STEP = 0.1
# With less of a chance, a query is rejected where that is better than missing its deadline.
_HOPELESS = 0.1
# What others may still ask for makes a miss likelier than it looks.
_CAREFUL = 1.2
# With less of a chance, not even idle time is spent.
_SOME = 0.02
# Of those that cost most for their worth, so many are tried as the one to go; of spares, so many as one to come back.
_TRIED, _REVIVED = 4, 5
# Reads count half after so long, or after the usual time between two updates if that is longer.
_HALF_LIFE_S = 600.0


@dataclass(slots=True)
class Plan:
    # By deadline; all can be done in time, as long as it is sound. Those that did not fit wait for idle time.
    kept: Waiting = field(default_factory=list)
    sound: bool = True
    spare: dict[int, Query] = field(default_factory=dict)
    # Kept although they will probably be late: dropping them would not help more than it costs.
    tolerated: frozenset[int] = frozenset()
    # Of each item that is read: how often of late, as of when.
    reads: dict[int, tuple[float, float]] = field(default_factory=dict)
    half_life_s: float = _HALF_LIFE_S
    # Of those, the ones that a refresh would bring something.
    behind: set[int] = field(default_factory=set)
    # What a second of work is worth: that of the queries for which there was no time of late.
    price_per_s: float = 0.0

    def put(self, query: Query) -> None:
        insort(self.kept, (query.deadline_s, query.id, query))

    def drop(self, query: Query) -> None:
        """Out of the plan, or of the spares."""
        if self.spare.pop(query.id, None) is None:
            entry = (query.deadline_s, query.id, query)
            if entry in self.kept:
                self.kept.remove(entry)

    def set_aside(self, query: Query) -> None:
        self.kept.remove((query.deadline_s, query.id, query))
        self.spare[query.id] = query


class Shares:
    """The part of the work of each query of a plan: updates are shared by all who need them, runs by all who ask the same."""

    def __init__(self, situation: QuerySituation, kept: Waiting) -> None:
        self._situation = situation
        # Of each update: how many need it, and the work of their runs.
        self._need: dict[Step, tuple[int, float]] = {}
        self._same: dict[Hashable, int] = {}
        for _, _, query in kept:
            steps = situation.steps(query)
            if steps:
                run = situation.run(query).mean_s
                for step in steps:
                    count, work = self._need.get(step, (0, 0.0))
                    self._need[step] = count + 1, work + run
            if query.same is not None:
                self._same[query.same] = self._same.get(query.same, 0) + 1

    def of(self, query: Query, lane: float = 1.0, track: float = 1.0) -> float:
        """With what a second on a lane and on a track counts."""
        situation = self._situation
        run = situation.run(query).mean_s
        if query.same is not None:
            run /= self._same.get(query.same, 1)
        steps = situation.steps(query)
        if not steps:
            return lane * run
        updates = 0.0
        count, work = 1, run
        for step in steps:
            count, work = self._need.get(step, (1, run))
            item, enough = step
            updates += ((situation.left(item) or 0.0) if enough else situation.cost(item).mean_s) / count
        # What opens a table opens it for all who wait for it, so they count as a group; of it, the longest goes first.
        return track * updates + lane * (work / count + 1e-6 * run if query.same is None else run)


class MaxSatisfaction(QueryPolicy):
    yielding = True
    updates: Updates = "demand"
    refreshes = True

    def begin(self, items: Items) -> Plan:
        return Plan(half_life_s=max(_HALF_LIFE_S, sum(items.period_s) / max(1, len(items))))

    # What comes and goes

    def admit(self, situation: QuerySituation, query: Query, memory: Plan) -> Cause | None:
        weights = query.weights
        self._read(situation, query, memory)
        mine = {item for item, _ in situation.steps(query)}
        if mine:
            # All that wait for the same updates may together be worth them.
            for other in [
                one for one in memory.spare.values() if mine.intersection(i for i, _ in situation.steps(one))
            ]:
                del memory.spare[other.id]
                memory.put(other)
        own, left = alone(situation, query), query.deadline_s - situation.now_s
        if weights.missed <= weights.rejected:
            able = situation.run(query) if situation.takes_stale(query) else own
            if weights.missed == weights.rejected and able.chance(left + 1e-9) < _SOME:
                # Told at once, it costs no more than told at its deadline.
                self._fit(situation, memory)
                return Cause.IMPOSSIBLE
            memory.put(query)
            self._fit(situation, memory)
            return None
        cause = None
        if own.chance(left + 1e-9) < _HOPELESS:
            cause = Cause.IMPOSSIBLE
        elif weights.success + weights.rejected < memory.price_per_s * work_s(situation, query) and not any(
            query.same is not None and one.same == query.same for _, _, one in memory.kept
        ):
            cause = Cause.OVERLOAD
        if cause is not None:
            self._fit(situation, memory)
            return cause
        before, spare = list(memory.kept), dict(memory.spare)
        memory.put(query)
        self._fit(situation, memory, query)
        if memory.spare.pop(query.id, None) is not None:
            return Cause.DEADLINE
        if own.spread_s and self._promise(situation, memory.kept) - self._promise(situation, before) < (
            _CAREFUL * (weights.missed - weights.rejected)
        ):
            # What it may bring is less than what it may cost, it or those whose place it takes.
            memory.kept, memory.spare = before, spare
            memory.sound = False
            return Cause.DEADLINE
        return None

    def _read(self, situation: QuerySituation, query: Query, memory: Plan) -> None:
        now = situation.now_s
        for item in query.reads:
            memory.reads[item] = _faded(memory.reads.get(item), now, memory.half_life_s) + 1, now
            if situation.behind(item):
                memory.behind.add(item)

    def take(self, situation: QuerySituation, item: int, memory: Plan) -> bool:
        if item in memory.reads:
            memory.behind.add(item)
        memory.sound = False
        return False

    def changed(self, situation: QuerySituation, memory: Plan) -> None:
        memory.sound = False

    def planned(self, situation: QuerySituation, memory: Plan) -> Waiting:
        if not memory.sound:
            self._fit(situation, memory)
        return list(memory.kept)

    def started(self, situation: QuerySituation, query: Query, memory: Plan) -> None:
        memory.drop(query)

    def ended(self, situation: QuerySituation, query: Query, ending: Ending, cause: Cause | None, memory: Plan) -> None:
        memory.drop(query)

    def withdrawn(self, situation: QuerySituation, query: Query, memory: Plan) -> None:
        memory.drop(query)

    def figures(self, memory: Plan) -> Mapping[str, float]:
        return {"price_per_s": memory.price_per_s}

    def plain(self, memory: Plan) -> Any:
        return {"price_per_s": memory.price_per_s, "reads": [[i, *one] for i, one in memory.reads.items()]}

    def of_plain(self, items: Items, found: Mapping[str, Any]) -> Plan:
        memory = self.begin(items)
        memory.price_per_s = found["price_per_s"]
        memory.reads = {item: (count, at) for item, count, at in found["reads"]}
        return memory

    # The plan

    def _fit(self, situation: QuerySituation, memory: Plan, new: Query | None = None) -> None:
        """Take out of the plan what costs most for its worth until all that is left is in time."""
        memory.tolerated = frozenset()
        while True:
            found = timeline(situation, memory.kept, memory.tolerated)
            if found.late is None:
                break
            some = memory.kept[: found.late + 1]
            last = some[-1][2]
            worst, share = self._worst(
                situation, memory.kept, some, found.ends[-1], self._scarcity(situation, found), new
            )
            if found.ends[-1][1] > 0:
                # Times are not certain: does all that is left promise more without it?
                spared = 0.0 if new is None else new.weights.missed - new.weights.rejected
                keep = self._promise(situation, memory.kept)
                without = self._promise(situation, [e for e in memory.kept if e[2] is not worst])
                without += spared if worst is new else 0.0
                other = -inf
                if worst is not last:
                    other = self._promise(situation, [e for e in memory.kept if e[2] is not last])
                    other += spared if last is new else 0.0
                if keep > max(without, other) + 1e-3:
                    memory.tolerated |= {last.id}
                    continue
                if other > without:
                    worst = last
            memory.set_aside(worst)
            if share is not None:
                density = (worst.weights.success + worst.weights.rejected) / max(share, 1e-9)
                memory.price_per_s += _STEP * (density - memory.price_per_s)
        memory.sound = True

    @staticmethod
    def _scarcity(situation: QuerySituation, found: Any) -> tuple[float, float]:
        """A second on what is short counts more; on shared cores all are equal."""
        if situation.width is not None:
            return 1.0, 1.0
        lane = found.lane_work_s / max(1, len(situation.lanes_s))
        track = found.track_work_s / max(1, len(situation.tracks_s))
        both = lane + track
        return (2 * lane / both, 2 * track / both) if both > 0 else (1.0, 1.0)

    @staticmethod
    def _worst(
        situation: QuerySituation,
        kept: Waiting,
        some: Waiting,
        end: tuple[float, float],
        scarcity: tuple[float, float],
        new: Query | None,
    ) -> tuple[Query, float | None]:
        """Which one goes, and its share of the work (None if it goes for itself: others do not help it)."""
        last = some[-1][2]
        own = alone(situation, last)
        if is_late(own.mean_s, own.spread_s**2, last.deadline_s - situation.now_s):
            return last, None
        shares = Shares(situation, kept)
        rated: list[tuple[float, int, float]] = []
        spared = protected(some, situation)
        for place, (_, _, query) in enumerate(some):
            if query.profile in spared:
                continue
            share = shares.of(query, *scarcity)
            worth = query.weights.success + (query.weights.rejected if query is new else query.weights.missed)
            rated.append((-share / worth, place, share))
        rated.sort()
        if situation.preempts:
            return some[rated[0][1]][2], rated[0][2]
        for _, place, share in rated[:_TRIED]:
            query = some[place][2]
            if query is last:
                return query, share
            others = timeline(situation, some[:place] + some[place + 1 :], whole=True).ends
            if others[-1][0] < end[0] - 1e-9:
                return query, share
        return last, None

    @staticmethod
    def _promise(situation: QuerySituation, kept: Waiting) -> float:
        """What the plan is expected to bring, over letting all lapse."""
        total = 0.0
        ends = timeline(situation, kept, whole=True).ends
        for (deadline, _, query), (mean, variance) in zip(kept, ends, strict=True):
            weights = query.weights
            total += chance(mean, variance, deadline - situation.now_s) * (weights.success + weights.missed)
        return total

    # What next

    def next(self, situation: QuerySituation, memory: Plan, lane: bool = True, track: bool = True) -> Next:
        if not memory.sound:
            self._fit(situation, memory)
        found = self._first(situation, memory, lane, track)
        if found is None:
            if not memory.kept:
                memory.price_per_s = 0.0
            if self._revive(situation, memory, lane, track):
                found = self._first(situation, memory, lane, track)
        if found is not None:
            return found
        idle = situation.preempts or situation.width is None or situation.working < situation.width - 1
        if not situation.preempts:
            guest = self._guest(situation, memory, lane, track and (idle or not memory.kept))
            if guest is not None:
                return guest
        if lane and (not memory.kept or not situation.preempts):
            for query in memory.spare.values():
                if situation.gives_up(query) or (
                    situation.preempts
                    and query.weights.stale < query.weights.missed
                    and situation.now_s + query.left_s <= query.deadline_s
                ):
                    return query
            for _, _, query in memory.kept:
                if situation.gives_up(query):
                    return query
        return self._background(situation, memory) if track and idle else None

    @staticmethod
    def _start_of(situation: QuerySituation, query: Query, lane: bool, track: bool) -> Query | int | None:
        if not situation.steps(query):
            return query if lane and situation.may_start(query) else None
        return first_refresh(situation, query) if track else None

    def _first(self, situation: QuerySituation, memory: Plan, lane: bool, track: bool) -> Query | int | None:
        """Of the plan what costs least for its worth and can go first without making another late."""
        kept = memory.kept
        if not kept:
            return None
        ends = timeline(situation, kept, memory.tolerated).ends
        shares = Shares(situation, kept)
        best, first, least, slack = None, None, inf, inf
        for place, (deadline, _, query) in enumerate(kept):
            what = self._start_of(situation, query, lane, track)
            if what is not None:
                if first is None:
                    first = what
                weights = query.weights
                own = alone(situation, query)
                likely = own.chance(deadline - situation.now_s) if own.spread_s else 1.0
                cost = shares.of(query) / ((weights.success + weights.missed) * max(likely, 0.01))
                # Where a miss costs no more than being rejected, the cheapest goes also if another is late by it: that one is dearer.
                careful = situation.preempts or weights.missed > weights.rejected
                if cost < least and (not careful or self._delays(situation, query, what) <= slack):
                    best, least = what, cost
            if place < len(ends):
                slack = min(slack, deadline - situation.now_s - ends[place][0])
        return first if best is None else best

    @staticmethod
    def _delays(situation: QuerySituation, query: Query, what: Query | int) -> float:
        """For how long it would take what those before it wait for."""
        if situation.width is not None:
            return work_s(situation, query)
        run = situation.run(query).mean_s
        return run if isinstance(what, Query) else work_s(situation, query) - run

    def _revive(self, situation: QuerySituation, memory: Plan, lane: bool, track: bool) -> bool:
        """What did not fit may fit now, the quickest first."""
        some: list[tuple[float, int, Query]] = []
        for query in memory.spare.values():
            own = alone(situation, query)
            sure = _HOPELESS if own.spread_s else 1.0
            likely = own.chance(query.deadline_s - situation.now_s + 1e-9)
            if likely >= sure and self._start_of(situation, query, lane, track) is not None:
                some.append((own.mean_s, query.id, query))
        for _, _, query in sorted(some)[:_REVIVED]:
            trial = list(memory.kept)
            insort(trial, (query.deadline_s, query.id, query))
            if not memory.kept or timeline(situation, trial, memory.tolerated).late is None:
                del memory.spare[query.id]
                memory.kept = trial
                return True
        return False

    def _guest(self, situation: QuerySituation, memory: Plan, lane: bool, track: bool) -> Query | int | None:
        """An idle lane or track: what may yet succeed, the likeliest for its work."""
        found, most = None, 0.0
        ready = any(not situation.steps(query) for _, _, query in memory.kept)
        for query in memory.spare.values():
            what = self._start_of(situation, query, lane and not ready, track)
            if what is None:
                continue
            own = alone(situation, query)
            likely = own.chance(query.deadline_s - situation.now_s)
            value = likely * (query.weights.success + query.weights.missed) / max(own.mean_s, 1e-9)
            if likely >= _SOME and value > most:
                found, most = what, value
        return found

    def _background(self, situation: QuerySituation, memory: Plan) -> int | None:
        """The item that is most wanted for its work."""
        best, most = None, 0.0
        for item in sorted(memory.behind):
            if not situation.behind(item):
                memory.behind.discard(item)
            elif situation.can_refresh(item, ()):
                wanted = _faded(memory.reads[item], situation.now_s, memory.half_life_s)
                value = wanted / max(situation.cost(item).mean_s, 1e-9)
                if value > most:
                    best, most = item, value
        return best


def _faded(counted: tuple[float, float] | None, now_s: float, half_life_s: float) -> float:
    if counted is None:
        return 0.0
    value, at = counted
    return value * exp(-log(2) * max(0.0, now_s - at) / half_life_s)
