"""The policies of queries at the front door of a live warehouse: which ways of answering each uses, whom it turns away, and when tables are
updated. The same modules as in the simulator (`penstock.queries.policies`); what they see of a warehouse is in `steering`.

immediate             updates run as they come, queries read what is there
on-demand             updates run when a query needs them, every query waits for its own
qmf, unit             updates run in periods that are stretched under load, fewer queries are admitted
admission+on-demand   as on-demand, but queries that would be late, or make others late, are turned away
unit+on-demand        both
default               the best way by expected satisfaction; updates follow the demand
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from penstock.model.graph import Graph
from penstock.model.time import END_US, SECOND_US
from penstock.queries.choice import Choice, Option, Way, choose, refuse
from penstock.queries.contract import Contract, OutcomeWeights
from penstock.queries.outcome import Cause, Ending
from penstock.queries.policies import DEFAULT, POLICIES
from penstock.queries.policies.qmf import Qmf
from penstock.queries.policies.unit import Unit, UnitOnDemand, UnitSettings
from penstock.queries.situation import Items, Query, QueryPolicy, QuerySituation, Updates

_PATIENT = (Way.REFRESH, Way.WAIT)
# With less of a chance to succeed, no query waits for updates.
PATIENCE = 0.1
# How long a controller waits until it judges what it did.
GRACE_S = 30.0
# Those with a controller have the pace of a warehouse, not that of the paper's traces.
_MADE: dict[str, Callable[[], QueryPolicy]] = {
    **POLICIES,
    "qmf": lambda: Qmf(GRACE_S),
    "unit": lambda: Unit(UnitSettings(GRACE_S)),
    "unit+on-demand": lambda: UnitOnDemand(UnitSettings(GRACE_S)),
}
NAMES = ("default", *(name for name in POLICIES if name != DEFAULT))


@dataclass(frozen=True, slots=True)
class LivePolicy:
    name: str
    policy: QueryPolicy

    @property
    def is_default(self) -> bool:
        return self.name == "default"

    @property
    def updates(self) -> Updates:
        return self.policy.updates

    def choose(
        self,
        contract: Contract,
        options: Sequence[Option],
        now_us: int,
        arrived_us: int,
        price_per_s: float = 0.0,
        refused: Cause | None = None,
    ) -> Choice:
        """What is done with a query; `refused` is why the policy does not admit it."""
        if self.is_default:
            best = choose(contract, options, now_us, arrived_us, price_per_s)
            if best.way in _PATIENT and best.prospect is not None and best.prospect.success < PATIENCE:
                # Waiting would hardly help, and only keep back what can be answered at once.
                able = [option for option in options if option.way not in _PATIENT]
                other = choose(contract, able, now_us, arrived_us, price_per_s)
                return best if other.way is Way.REJECT else other
            return best
        if refused is not None:
            return refuse(contract, options, now_us, arrived_us, refused)
        patient = [option for option in options if option.way in _PATIENT]
        able = patient if patient and self.policy.refreshes else [one for one in options if one.way not in _PATIENT]
        best = choose(contract, able, now_us, arrived_us)
        if best.way is not Way.REJECT:
            return best
        allowed = [option for option in able if option.consistent or not contract.consistent]
        if not allowed:
            return best
        return Choice(allowed[0].way, f"{allowed[0].way}: {self.name} admits it", allowed[0])


def find_live_policy(name: str) -> LivePolicy:
    if name not in NAMES:
        raise ValueError(f"there is no policy of queries {name!r}; expected one of {', '.join(NAMES)}")
    return LivePolicy(name, _MADE[DEFAULT if name == "default" else name]())


# What a policy of one processor sees of a live warehouse, so that the policies of the simulator decide here too.
#
# Items are tables. A query reads the tables that it names and what these are made from. Updates run on tracks of their own, so that none goes before
# a query; with several lanes the work before a query is shared by them. An update that the policy would drop is deferred and merged
# into the next: what follows from its memory are least times between two updates of a table.


class Steering:
    """Mutable: the working memory of a front door. It reads no clock and draws no lots."""

    def __init__(
        self,
        policy: QueryPolicy,
        graph: Graph,
        cost_s: Mapping[str, float],
        weights: OutcomeWeights,
        lanes: int,
        now_us: int,
    ) -> None:
        self.policy = policy
        self.lanes = lanes
        self._graph = graph
        self._names = list(graph.order)
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._since_us = now_us
        costs = [max(1e-3, cost_s.get(name, 0.0)) for name in self._names]
        periods = [graph.periods_us[name] / SECOND_US for name in self._names]
        self._memory = policy.begin(Items.of(costs, periods))
        # What a refresh costs is that of all that a table is made from, as far as it is stale.
        self._refresh_s = list(costs)
        self._situation = QuerySituation(Items.of(self._refresh_s, periods))
        self._situation.lanes_s = (0.0,) * lanes
        self._open: dict[int, Query] = {}
        self._started_s: dict[int, float] = {}
        self._updates: dict[str, int] = {}
        self._wake_s = policy.every_s or inf

    def admit(
        self,
        number: int,
        tables: Sequence[str],
        now_us: int,
        deadline_us: int,
        run_s: float,
        refresh_s: float,
        weights: OutcomeWeights,
    ) -> Cause | None:
        """Why the policy does not admit a query, or None; `refresh_s` is what must be done before it reads fresh data, 0 if nothing."""
        now = self._at(now_us)
        for one, started in self._started_s.items():
            query = self._open[one]
            query.left_s = max(0.0, query.cost_s - (now - started))
        own = [self._numbers[name] for name in tables]
        above = {self._numbers[name] for table in tables for name in self._graph.ancestors[table]}
        item, others = (own[0], tuple(above.union(own[1:]) - {own[0]})) if own else (0, ())
        self._refresh_s[item] = refresh_s
        self._situation.items.arrived[item] = int(refresh_s > 0)
        query = Query(number, item, now, self._seconds(deadline_us), run_s, others=others, weights=weights)
        cause = self.policy.admit(self._situation, query, self._memory)
        if cause is None:
            self._open[number] = query
            insort(self._situation.waiting, (query.deadline_s, query.id, query))
        else:
            self.policy.ended(self._situation, query, Ending.REJECTED, cause, self._memory)
        return cause

    def started(self, number: int, now_us: int) -> None:
        if number in self._open:
            self._started_s[number] = self._seconds(now_us)

    def worked(self, seconds: float) -> None:
        self._situation.busy_s += seconds / self.lanes

    def ended(self, number: int, now_us: int, ending: Ending | None, weights: OutcomeWeights) -> None:
        """Once for each admitted query; without an ending it was withdrawn, or failed."""
        query = self._open.pop(number, None)
        self._started_s.pop(number, None)
        if query is None:
            return
        self._at(now_us)
        self._situation.waiting.remove((query.deadline_s, query.id, query))
        if ending is not None:
            self.policy.ended(self._situation, query, ending, None, self._memory)

    def due_us(self) -> int | None:
        """When the controller wants to look."""
        return None if self._wake_s == inf else self._since_us + int(self._wake_s * SECOND_US)

    def wake(self, updates: Mapping[str, int], lot: float, now_us: int) -> None:
        """The controller looks: at how queries ended, and at how often each table was updated so far."""
        now = self._at(now_us)
        for name, count in updates.items():
            for _ in range(count - self._updates.get(name, count)):
                self.policy.take(self._situation, self._numbers[name], self._memory)
        self._updates = dict(updates)
        self.policy.wake(self._situation, lot, self._memory)
        self._wake_s = now + (self.policy.every_s or inf)

    def periods_us(self) -> dict[str, int]:
        """The least time between two updates of each table whose updates the policy stretches."""
        return {
            self._names[item]: END_US if period == inf else int(period * SECOND_US)
            for item, period in self.policy.stretched(self._memory)
        }

    def _at(self, now_us: int) -> float:
        self._situation.now_s = self._seconds(now_us)
        return self._situation.now_s

    def _seconds(self, at_us: int) -> float:
        return (at_us - self._since_us) / SECOND_US
