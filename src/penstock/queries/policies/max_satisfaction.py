"""Most satisfaction for the work that there is: the default.

It keeps a plan: a set of admitted queries that can all be done in time, in the order of their deadlines, with the refreshes that they need. A
query that comes goes into the plan. If not all fit any more, the one goes that costs most work for what it is worth, until they fit
(Moore 1968, with weights, and with refreshes that all queries of an item share). Whether that is the query which just came
or an older one, and whether a query for which there is no time is rejected or left to lapse, follows from the weights: where being rejected
is better than missing the deadline, one that is worth less for its work than those for which there was no time of late is rejected at once.

Of the plan that query runs which costs least and makes no other late: what is done is certain, and if more comes, what is left is what
was least worth it. Items are refreshed when a query of the plan needs them, and in idle time, most wanted first. Nothing is started that
cannot end in time.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from penstock.queries.contract import OutcomeWeights
from penstock.queries.outcome import Cause, Ending
from penstock.queries.policies.base import BasePolicy
from penstock.queries.situation import Items, Next, Query, QuerySituation, Updates, Waiting, refresh_s

# How much one query for which there is no time moves the price.
_STEP = 0.1


@dataclass(slots=True)
class KeptQueries:
    # By deadline; all can be done in time, as long as it is sound. Those that did not fit wait for idle time.
    kept: Waiting = field(default_factory=list)
    sound: bool = True
    # By item and number.
    spare: dict[int, dict[int, Query]] = field(default_factory=dict)
    # Of each item with queries in the plan: how many, and their work.
    groups: dict[int, tuple[int, float]] = field(default_factory=dict)
    reads: dict[int, int] = field(default_factory=dict)
    # Stale items, most wanted first: (-reads per second of work, item). May name fresh ones, and one twice.
    wanted: list[tuple[float, int]] = field(default_factory=list)
    # What a second of work is worth: that of the queries for which there was no time of late.
    price_per_s: float = 0.0
    shortest_s: float = inf

    def put(self, query: Query) -> None:
        insort(self.kept, (query.deadline_s, query.id, query))
        count, work = self.groups.get(query.item, (0, 0.0))
        self.groups[query.item] = count + 1, work + query.cost_s
        self.shortest_s = min(self.shortest_s, query.cost_s)

    def put_back(self, item: int) -> None:
        """All that wait for idle time with an item: together they may be worth its refresh."""
        for query in self.spare.pop(item, {}).values():
            self.put(query)

    def set_aside(self, query: Query) -> None:
        self.drop(query)
        self.spare.setdefault(query.item, {})[query.id] = query

    def forget(self, query: Query) -> bool:
        """Whether it waited for idle time; not any more."""
        some = self.spare.get(query.item)
        if some is None or some.pop(query.id, None) is None:
            return False
        if not some:
            del self.spare[query.item]
        return True

    def drop(self, query: Query) -> None:
        self.kept.remove((query.deadline_s, query.id, query))
        count, work = self.groups[query.item]
        if count > 1:
            self.groups[query.item] = count - 1, work - query.cost_s
        else:
            del self.groups[query.item]


class MaxSatisfaction(BasePolicy):
    yielding = True
    updates: Updates = "demand"
    refreshes = True

    def begin(self, items: Items, weights: OutcomeWeights) -> KeptQueries:
        return KeptQueries()

    def admit(self, situation: QuerySituation, query: Query, memory: KeptQueries) -> Cause | None:
        item, weights = query.item, situation.weights
        memory.reads[item] = memory.reads.get(item, 0) + 1
        own = query.cost_s
        if situation.items.stale(item):
            self._want(situation, item, memory)
            own += refresh_s(situation, item)
            memory.put_back(item)
        if weights.missed <= weights.rejected:
            memory.put(query)
            self._fit(situation, memory)
            return None
        if own > query.deadline_s - situation.now_s or weights.success + weights.rejected < memory.price_per_s * own:
            self._fit(situation, memory)
            return Cause.IMPOSSIBLE if own > query.deadline_s - situation.now_s else Cause.OVERLOAD
        memory.put(query)
        self._fit(situation, memory, query)
        return Cause.DEADLINE if memory.forget(query) else None

    def take(self, situation: QuerySituation, item: int, memory: KeptQueries) -> bool:
        if item in memory.reads:
            self._want(situation, item, memory)
        if item in memory.groups:
            memory.sound = False
        return False

    def _want(self, situation: QuerySituation, item: int, memory: KeptQueries) -> None:
        heappush(memory.wanted, (-memory.reads[item] / situation.items.cost_s[item], item))

    def ended(
        self, situation: QuerySituation, query: Query, ending: Ending, cause: Cause | None, memory: KeptQueries
    ) -> None:
        if not memory.forget(query) and ending is not Ending.REJECTED:
            memory.drop(query)

    def _fit(self, situation: QuerySituation, memory: KeptQueries, new: Query | None = None) -> None:
        """Take out of the plan what costs most for its worth until all that is left can be done in time."""
        while (late := self._late(situation, memory)) is not None:
            weights = situation.weights
            worst, cost, most = memory.kept[0][2], 0.0, -1.0
            for _, _, query in memory.kept[: late + 1]:
                if situation.items.stale(query.item):
                    count, work = memory.groups[query.item]
                    # The queries of an item share its refresh; of these the longest goes first.
                    share = (refresh_s(situation, query.item) + work) / count + 1e-6 * query.cost_s
                else:
                    share = query.left_s
                loss = weights.success + (weights.rejected if query is new else weights.missed)
                if share > most * loss:
                    worst, cost, most = query, share, share / loss
            memory.set_aside(worst)
            density = (weights.success + weights.rejected) / max(cost, 1e-9)
            memory.price_per_s += _STEP * (density - memory.price_per_s)
        memory.sound = True

    def _late(self, situation: QuerySituation, memory: KeptQueries) -> int | None:
        """The first of the plan that would be late if all ran in the order of deadlines."""
        arrived, applied = situation.items.arrived, situation.items.applied
        end = situation.now_s
        refreshed: set[int] = set()
        for place, (deadline, _, query) in enumerate(memory.kept):
            item = query.item
            if arrived[item] == applied[item]:
                end += query.left_s
            else:
                end += query.cost_s  # an update aborts what it has read
                if item not in refreshed:
                    refreshed.add(item)
                    end += refresh_s(situation, item)
            if end > deadline + 1e-9:
                return place
        return None

    def next(self, situation: QuerySituation, memory: KeptQueries) -> Next:
        if not memory.sound:
            self._fit(situation, memory)
        if not memory.kept:
            memory.price_per_s = 0.0
            self._revive(situation, memory)
        if memory.kept:
            query = self._first(situation, memory)
            return query.item if situation.items.stale(query.item) else query
        weights = situation.weights
        if weights.stale < weights.missed:
            for query in (one for some in memory.spare.values() for one in some.values()):
                if situation.now_s + query.left_s <= query.deadline_s:
                    return query
        wanted = memory.wanted
        while wanted and not situation.items.stale(wanted[0][1]):
            heappop(wanted)
        return wanted[0][1] if wanted else None

    def _first(self, situation: QuerySituation, memory: KeptQueries) -> Query:
        """Of the plan the query that costs least and can go first without making another late."""
        arrived, applied = situation.items.arrived, situation.items.applied
        groups, shortest = memory.groups, memory.shortest_s
        best, least = memory.kept[0][2], inf
        end, slack = situation.now_s, inf
        refreshed: set[int] = set()
        for deadline, _, query in memory.kept:
            item = query.item
            if arrived[item] == applied[item]:
                need = own = cost = query.left_s
            else:
                refresh = refresh_s(situation, item)
                count, work = groups[item]
                cost = (refresh + work) / count
                need = query.cost_s
                own = need + refresh
                if item not in refreshed:
                    refreshed.add(item)
                    need = own
            if cost < least and own <= slack:
                best, least = query, cost
            end += need
            if deadline - end < slack:
                slack = deadline - end
                if slack < shortest and slack < best.left_s:
                    break
        return best

    def _revive(self, situation: QuerySituation, memory: KeptQueries) -> None:
        """In idle time: what did not fit may fit now, the cheapest first."""
        found, least = None, inf
        for query in (one for some in memory.spare.values() for one in some.values()):
            stale = situation.items.stale(query.item)
            cost = query.cost_s + refresh_s(situation, query.item) if stale else query.left_s
            if cost < least and situation.now_s + cost <= query.deadline_s:
                found, least = query, cost
        if found is not None:
            memory.forget(found)
            memory.put(found)
