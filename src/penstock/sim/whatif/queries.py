"""What if queries had been decided in another way: the queries of the log, with their contracts, predictions and needs, through the live decision code on
a virtual clock.

A run takes as long as it took, or as was predicted where it did not run to its end; an update that is asked for takes what it was thought to take. A
query needs the updates that it needed when it came, but for those that were made meanwhile: a table that queries found stale is so since the first of
them, until it was updated. What a policy that asks for less would have left stale is not in this record. So the replay of the policy that decided then
says how far it can be trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from random import Random

from penstock.control.events import DeskOpened, Event, QueriesHandled
from penstock.model.graph import Graph
from penstock.model.time import SECOND_US
from penstock.queries.contract import OutcomeWeights
from penstock.queries.desk import (
    AskForUpdates,
    Chain,
    Desk,
    DeskCommand,
    DeskEvent,
    DeskSetup,
    QueryCame,
    QueryWent,
    RunEnded,
    StartQueries,
    TableOutlook,
    TimePassed,
    TurnAway,
    UpdatesSeen,
)
from penstock.queries.estimate import Estimate
from penstock.queries.outcome import Ending, Tally
from penstock.queries.situation import QueryPolicy


@dataclass(frozen=True, slots=True)
class PastQuery:
    came: QueryCame
    # The tables that were stale for it when it came, and since when; None: no update would have helped.
    stale_us: Mapping[str, int] | None
    run_s: float
    # None if it was withdrawn, or failed.
    ending: Ending | None


@dataclass(frozen=True)
class PastDesk:
    """What came to one front door while it was open."""

    setup: DeskSetup
    queries: Sequence[PastQuery]
    updates_s: Mapping[str, float]
    tracks: int


def past_desks(events: Iterable[Event]) -> list[PastDesk]:
    """Of the front doors in a log, those that were asked something."""
    found: list[PastDesk] = []
    reader: _DeskReader | None = None
    for event in events:
        if isinstance(event, DeskOpened):
            if reader is not None:
                found.append(reader.desk())
            reader = _DeskReader(event.setup)
        elif isinstance(event, QueriesHandled) and reader is not None:
            for entry in event.entries:
                reader.read(entry.event, entry.commands)
    if reader is not None:
        found.append(reader.desk())
    return [one for one in found if one.queries]


class _DeskReader:
    def __init__(self, setup: DeskSetup) -> None:
        self.setup = setup
        self.came: dict[int, QueryCame] = {}
        self.chains: dict[int, Chain] = {}
        self.stale: dict[int, Mapping[str, int] | None] = {}
        self.stale_us: dict[str, int] = {}
        self.running: set[str] = set()
        self.endings: dict[int, Ending | None] = {}
        self.started: dict[int, int] = {}
        self.took_s: dict[int, float] = {}
        self.updates_s: dict[str, float] = {}
        self.tracks = 1

    def read(self, event: DeskEvent, commands: Sequence[DeskCommand]) -> None:
        match event:
            case UpdatesSeen():
                self.updates_s |= {name: one.cost.mean_s for name, one in event.tables.items()}
                now_running = {name for name, one in event.tables.items() if one.until_us is not None}
                for name in self.running - now_running:
                    self.stale_us.pop(name, None)
                self.running = now_running
                self.chains |= event.chains
                self.tracks = event.tracks
            case QueryCame():
                self.came[event.number] = event
                chain = self.chains.get(event.number, ())
                names = [name for name, _ in chain or ()]
                for name in event.tables:
                    if chain is not None and name not in names:
                        self.stale_us.pop(name, None)
                for name in names:
                    self.stale_us.setdefault(name, event.at_us)
                self.stale[event.number] = None if chain is None else {name: self.stale_us[name] for name in names}
            case QueryWent():
                self.endings[event.number] = event.ending
            case RunEnded() if event.number in self.started:
                took = (event.at_us - self.started[event.number]) / SECOND_US
                known = self.came[event.number].run.mean_s
                # What was stopped at its deadline would have taken longer.
                whole = self.endings.get(event.number) in (Ending.SUCCESS, Ending.STALE)
                self.took_s[event.number] = took if whole else max(took, known)
        for command in commands:
            if isinstance(command, StartQueries):
                self.started[command.numbers[0]] = event.at_us
            elif isinstance(command, TurnAway):
                self.endings[command.number] = Ending.REJECTED

    def desk(self) -> PastDesk:
        queries = [
            PastQuery(one, self.stale[number], self.took_s.get(number, one.run.mean_s), self.endings.get(number))
            for number, one in self.came.items()
        ]
        return PastDesk(self.setup, queries, self.updates_s, self.tracks)


def as_it_was(desk: PastDesk) -> Tally:
    return _tally((one.ending, one.came.weights) for one in desk.queries)


def _tally(endings: Iterable[tuple[Ending | None, OutcomeWeights]]) -> Tally:
    return sum((Tally.of(ending, weights) for ending, weights in endings if ending is not None), Tally())


def replayed(past: PastDesk, policy: QueryPolicy, name: str, graph: Graph, lanes: int | None = None) -> Tally:
    """How its queries would have ended."""
    known = past.setup.learned if name == past.setup.policy else None
    setup = replace(past.setup, policy=name, lanes=lanes or past.setup.lanes, learned=known)
    world = _QueryWorld(past, Desk(policy, graph, setup), graph)
    world.run()
    return _tally((world.ended[one.came.number], one.came.weights) for one in past.queries if one.ending is not None)


@dataclass
class _QueryWorld:
    past: PastDesk
    desk: Desk
    graph: Graph
    now_us: int = 0
    ended: dict[int, Ending] = field(default_factory=dict)
    # Updates that a query still waits for; those that run, with their ends; when the last of each began; until when others are wanted.
    needs: dict[int, list[str]] = field(default_factory=dict)
    hopeless: set[int] = field(default_factory=set)
    updating: dict[str, int] = field(default_factory=dict)
    began: dict[str, int] = field(default_factory=dict)
    serves: dict[str, set[int]] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    updates: dict[str, int] = field(default_factory=dict)
    runs: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._queries = {one.came.number: one for one in self.past.queries}
        self._due: list[tuple[int, int, int, str, int | str]] = []
        self._order = count()
        self._random = Random(0)
        self._levels = {name: place for place, name in enumerate(self.graph.order)}
        for one in self.past.queries:
            self._at(one.came.at_us, 0, "came", one.came.number)
            self._at(one.came.deadline_us, 2, "deadline", one.came.number)

    def _at(self, at_us: int, first: int, what: str, who: int | str) -> None:
        heappush(self._due, (at_us, first, next(self._order), what, who))

    def run(self) -> None:
        while self._due:
            wakes_us = self.desk.due_us()
            if wakes_us is not None and wakes_us < self._due[0][0]:
                self.now_us = max(self.now_us, wakes_us)
                more, self.updates = self.updates, {}
                self._tell(TimePassed(self.now_us, self._random.random(), more))
                continue
            self.now_us, _, _, what, who = heappop(self._due)
            if isinstance(who, str):
                self._updated(who)
            elif what == "came":
                self._came(self._queries[who])
            elif what == "deadline":
                self._end(who, Ending.MISSED)
            else:
                for number in self.runs.pop(who):
                    late = bool(self.needs[number]) or number in self.hopeless
                    self._end(number, Ending.STALE if late else Ending.SUCCESS)
                self._tell(RunEnded(self.now_us, who))

    def _came(self, one: PastQuery) -> None:
        number = one.came.number
        if one.stale_us is None:
            self.hopeless.add(number)
        needs = self.needs[number] = []
        for name, since_us in (one.stale_us or {}).items():
            fresh = self.began.get(name, -1) >= since_us
            if fresh and name in self.updating:
                self.serves[name].add(number)
            if not fresh or name in self.updating:
                needs.append(name)
        self._see()
        self._tell(one.came)

    def _see(self) -> None:
        chains: dict[int, Chain] = {
            number: None
            if number in self.hopeless
            else tuple((name, number in self.serves.get(name, ())) for name in needs)
            for number, needs in self.needs.items()
            if number not in self.ended
        }
        tables = {
            name: TableOutlook(Estimate(cost), self.updating.get(name)) for name, cost in self.past.updates_s.items()
        }
        self._tell(UpdatesSeen(self.now_us, tables, chains, tuple(self.updating.values()), self.past.tracks))

    def _end(self, number: int, ending: Ending) -> None:
        if number not in self.ended:
            self.ended[number] = ending
            self._tell(QueryWent(self.now_us, number, ending))

    def _tell(self, event: DeskEvent) -> None:
        for command in self.desk.handle(event):
            self._do(command)

    def _do(self, command: DeskCommand) -> None:
        match command:
            case TurnAway():
                self.ended[command.number] = Ending.REJECTED
            case StartQueries():
                first = command.numbers[0]
                self.runs[first] = command.numbers
                self._at(self.now_us + int(self._queries[first].run_s * SECOND_US), 1, "ran", first)
            case AskForUpdates():
                for name in self.needs[command.number]:
                    self.wanted[name] = max(command.until_us, self.wanted.get(name, 0))
                self._update()

    def _update(self) -> None:
        """Tracks take what is wanted, sources first."""
        self.wanted = {name: until for name, until in self.wanted.items() if until > self.now_us}
        for name in sorted(self.wanted, key=lambda one: self._levels[one]):
            busy = self.graph.ancestors[name] & (self.wanted.keys() | self.updating.keys())
            if len(self.updating) >= self.past.tracks or name in self.updating or busy:
                continue
            del self.wanted[name]
            self.began[name] = self.now_us
            self.updating[name] = self.now_us + max(1, int(self.past.updates_s.get(name, 1.0) * SECOND_US))
            self.serves[name] = {number for number, needs in self.needs.items() if name in needs}
            self._at(self.updating[name], 0, "updated", name)

    def _updated(self, name: str) -> None:
        del self.updating[name]
        self.updates[name] = self.updates.get(name, 0) + 1
        for number in self.serves.pop(name):
            self.needs[number].remove(name)
        self._update()
        self._see()
