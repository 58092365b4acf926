"""A warehouse with lanes, tracks and cores on a virtual clock, around the desk: what runs takes as long as the world says, and longer beside others."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import exp, log, sqrt
from random import Random

from penstock.model.graph import Graph
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import SECOND_US
from penstock.queries.contract import NAIVE, OutcomeWeights
from penstock.queries.desk import (
    Admit,
    AskForUpdates,
    Desk,
    DeskCommand,
    DeskEntry,
    DeskEvent,
    DeskSetup,
    QueryCame,
    QueryWent,
    RunEnded,
    StartQueries,
    StretchPeriods,
    TableOutlook,
    TimePassed,
    TurnAway,
    UpdatesSeen,
)
from penstock.queries.estimate import Estimate
from penstock.queries.outcome import Cause, Ending
from penstock.queries.policies import find_query_policy

S = SECOND_US
BEGIN = 1_700_000_000 * S


def graph() -> Graph:
    """Two feeds, each with a table and what is made of it; and one made of both."""
    feeds = [Feed(name, period_us=10 * S) for name in ("f", "g")]
    tables = [
        Table("hot", feed="f"),
        Table("cold", feed="g"),
        Table("hourly", sources=(Source("hot"),)),
        Table("daily", sources=(Source("hourly"),)),
        Table("both", sources=(Source("hourly"), Source("cold"))),
    ]
    return Graph(feeds, tables)


GRAPH = graph()


@dataclass
class World:
    policy: str
    lanes: int = 1
    tracks: int = 1
    cores: int | None = None
    more: int = 0
    shares: dict[str, float] = field(default_factory=dict)
    update_s: float = 1.0
    # What is thought of times is off by a factor: log-normal with this deviation.
    error: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        setup = DeskSetup(BEGIN, self.policy, self.lanes, self.more, self.cores, self.shares)
        self.setup = setup
        self.desk = Desk(find_query_policy(self.policy), GRAPH, setup)
        self.now_us = BEGIN
        self.random = Random(self.seed)
        self.entries: list[DeskEntry] = []
        self.ended: dict[int, Ending] = {}
        self.causes: dict[int, Cause] = {}
        self.chance: dict[int, float] = {}
        self.asked: dict[int, QueryCame] = {}
        self.true_s: dict[int, float] = {}
        self.runs: dict[int, list[int]] = {}
        self.began: list[tuple[str, float]] = []
        self.numbers = count(1)
        self.stale: set[str] = set()
        self.needs: dict[int, list[str]] = {}
        self.wanted: dict[str, int] = {}
        self.updating: dict[str, int] = {}
        self.updates: dict[str, int] = {}
        self.stretched: dict[str, int] = {}
        # What runs (queries by number, updates by table), and the work that is left of it.
        self.left_s: dict[int | str, float] = {}
        self._due: list[tuple[int, int, int]] = []
        self._order = count()

    # What happens

    def tell(self, event: DeskEvent) -> tuple[DeskCommand, ...]:
        commands = self.desk.handle(event)
        self.entries.append(DeskEntry(event, commands))
        for command in commands:
            self._do(command)
        return commands

    def file(self, base: str) -> None:
        """Something comes for a table: it is stale, and all that is made of it."""
        self.stale |= {base} | {name for name in GRAPH.tables if base in GRAPH.ancestors[name]}
        self.see()

    def ask(
        self,
        table: str = "hot",
        within_s: float = 5.0,
        run_s: float = 1.0,
        weights: OutcomeWeights = NAIVE,
        same: str | None = None,
        profile: str = "default",
        takes_stale: bool = True,
    ) -> int:
        number = next(self.numbers)
        self.true_s[number] = run_s
        run = Estimate(run_s)
        if self.error:
            # What is seen, shrunk to the usual: half a second to two.
            seen, usual = log(run_s) + self.random.gauss(0, self.error), 0.6
            known, prior = 1 / self.error**2, 1 / usual**2
            place, variance = seen * known / (known + prior), 1 / (known + prior)
            mean = exp(place + variance / 2)
            run = Estimate(mean, mean * sqrt(exp(variance) - 1))
        names = [one for one in GRAPH.order if one == table or one in GRAPH.ancestors[table]]
        self.needs[number] = [name for name in names if name in self.stale]
        deadline = self.now_us + int(within_s * S)
        self.asked[number] = QueryCame(
            self.now_us, number, deadline, (table,), run, weights, takes_stale, same, profile
        )
        heappush(self._due, (deadline + 1, next(self._order), number))
        self.see(number)
        self.tell(self.asked[number])
        return number

    def see(self, *numbers: int) -> None:
        chains = {
            number: tuple((name, name in self.updating) for name in GRAPH.order if name in needs)
            for number, needs in self.needs.items()
            if number in numbers or (number not in self.ended and number in self.asked)
        }
        tables = {name: TableOutlook(Estimate(self.update_s), self.updating.get(name)) for name in GRAPH.order}
        self.tell(UpdatesSeen(self.now_us, tables, chains, tuple(self.updating.values()), self.tracks))

    def withdraw(self, number: int) -> None:
        self.tell(QueryWent(self.now_us, number, None))

    def end(self, number: int, ending: Ending) -> None:
        if number not in self.ended:
            self.ended[number] = ending
            self.tell(QueryWent(self.now_us, number, ending))

    # What the desk wants

    def _do(self, command: DeskCommand) -> None:
        match command:
            case Admit():
                self.chance[command.number] = command.chance
            case TurnAway():
                self.ended[command.number], self.causes[command.number] = Ending.REJECTED, command.cause
            case StartQueries():
                first = command.numbers[0]
                self.runs[first] = list(command.numbers)
                self.began.append((f"query {first}", self._seconds))
                self.left_s[first] = self.true_s[first]
            case AskForUpdates():
                for name in self.needs[command.number]:
                    self.wanted[name] = min(command.until_us, self.wanted.get(name, command.until_us))
                self._update()
            case StretchPeriods():
                self.stretched = dict(command.periods)

    def _update(self) -> None:
        """Tracks take what is wanted, the earliest first, after its sources."""
        self.wanted = {name: until for name, until in self.wanted.items() if until > self.now_us}
        for name in sorted(self.wanted, key=lambda one: (self.wanted[one], GRAPH.order.index(one))):
            if len(self.updating) >= self.tracks or name in self.updating or name not in self.stale:
                continue
            if self.stale & GRAPH.ancestors[name]:
                continue
            self.updating[name] = self.now_us + int(self.update_s * S)
            self.left_s[name] = self.update_s
            self.began.append((name, self._seconds))

    @property
    def _pace(self) -> float:
        """Beside more than there are cores, all are slower."""
        return min(1.0, self.cores / len(self.left_s)) if self.cores is not None and self.left_s else 1.0

    # Time

    @property
    def _seconds(self) -> float:
        return (self.now_us - BEGIN) / S

    def pass_s(self, seconds: float) -> None:
        until = self.now_us + int(seconds * S)
        while True:
            wakes = self.desk.due_us()
            first = min(self.left_s, key=lambda one: (self.left_s[one], str(one)), default=None)
            ends = until + 1 if first is None else self.now_us + max(0, round(self.left_s[first] / self._pace * S))
            deadline = self._due[0][0] if self._due else until + 1
            then = min(ends, deadline, until, max(self.now_us, wakes) if wakes is not None else until)
            passed = (then - self.now_us) / S * self._pace
            for one in self.left_s:
                self.left_s[one] -= passed
            self.now_us = then
            if first is not None and ends <= then:
                del self.left_s[first]
                self._done(first)
            elif deadline <= then:
                number = heappop(self._due)[2]
                self.end(number, Ending.MISSED)
            elif wakes is not None and wakes <= then:
                self.tell(TimePassed(self.now_us, self.random.random(), dict(self.updates)))
                self.updates.clear()
            else:
                return

    def _done(self, who: int | str) -> None:
        if isinstance(who, int):
            for number in self.runs.pop(who):
                self.end(number, Ending.STALE if self.needs[number] else Ending.SUCCESS)
            self.tell(RunEnded(self.now_us, who))
            return
        del self.updating[who]
        self.stale.discard(who)
        self.wanted.pop(who, None)
        self.updates[who] = self.updates.get(who, 0) + 1
        for needs in self.needs.values():
            if who in needs:
                needs.remove(who)
        self._update()
        self.see()
