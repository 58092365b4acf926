"""What became of every reason to make something again, table by table: how much merging, waiting and comparing saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from penstock.control.events import BackfillRequested, Event, UpdateFinished
from penstock.control.state import State
from penstock.model.grain import WHOLE
from penstock.model.partitions import IntervalMap, PartitionSet
from penstock.model.time import END_US
from penstock.requests.needs import Need
from penstock.requests.tablestate import TableState


@dataclass(frozen=True, slots=True)
class Savings:
    """Of one table, or of all (`table` is empty)."""

    table: str
    # Reasons that came: files, changes of sources, requests, other logic.
    reasons: int
    updates: int
    # Reasons that made nothing run that was not to run anyway; of these, those that said what a pending one says, and those that a
    # running update met.
    merged: int
    duplicates: int
    joined: int
    # Held back by the table's policy.
    held: int
    # Partitions that were not made again, as what they read has the same rows as before.
    spared: int
    # Old partitions that were made again, and the least that hindsight would have made; 0 if nobody looked back.
    made: int = 0
    least: int = 0


def savings(state: State, past: Hindsight | None = None) -> list[Savings]:
    """In the order in which changes travel; the sum at the end."""
    found = []
    for name in state.graph.order:
        counts = state.tables[name].counts
        found.append(
            Savings(
                name,
                counts.requests,
                counts.updates,
                counts.merged,
                counts.duplicates,
                counts.joined,
                counts.held,
                counts.spared,
                past.made[name] if past is not None else 0,
                past.least[name] if past is not None else 0,
            )
        )
    return [*found, _sum(found)]


def _sum(each: Iterable[Savings]) -> Savings:
    every = list(each)
    return Savings("", *(sum(getattr(one, field.name) for one in every) for field in fields(Savings)[1:]))


# What hindsight says of a log: the least that would have had to be made again, and where merged reasons came from


# Of two reasons that were merged: one change that came twice, changes of one table (or of two that are made from one), or others.
Kinship = Literal["same origin", "same ancestor", "independent"]


class Hindsight:
    def __init__(self) -> None:
        self.state = State()
        self.state.ledger.watch = self._required
        # Of each table, old partitions that were made again, and the least.
        self.made: Counter[str] = Counter()
        self.least: Counter[str] = Counter()
        self.merged: Counter[Kinship] = Counter()
        # By when each partition has to be made for what came; and which change is whose, by the time of its commit or its number.
        self._due: dict[str, IntervalMap[int]] = {}
        self._origins: dict[int, str] = {}
        self._again = False

    def apply(self, event: Event, number: int) -> None:
        if isinstance(event, BackfillRequested):
            self._origins[-number] = event.table
        elif isinstance(event, UpdateFinished):
            self._ends(event)
            known = self.state.tables.get(event.table)
            if known is not None and known.table.is_origin:
                self._origins[event.at_us] = event.table
        # What did not come to its end is pending again: that is no other reason.
        self._again = event.kind in ("update-failed", "update-stopped", "fault-met", "run-started")
        self.state.apply(event, number)

    def _ends(self, event: UpdateFinished) -> None:
        for table in self.state.tables.values() if event.publications else ():
            running = table.running
            if running is not None and running.job.id == event.job and running.job.kind != "upkeep":
                late = [(piece.start_us, piece.end_us) for piece in running.job.pieces if piece.need.late]
                self.made[table.table.name] += self._count(table, PartitionSet.of(*late))

    def _required(self, table: TableState, partitions: PartitionSet, need: Need) -> None:
        if not need.late or not partitions or self._again or not table.exists:
            return
        name = table.table.name
        due = self._due.setdefault(name, IntervalMap(max))
        open_ = PartitionSet.of(*((start, end) for start, end, at in due.within(partitions) if at >= need.oldest_us))
        new = partitions - open_
        if new:
            self.least[name] += self._count(table, new)
            due.remove(new)
            due.add(new, min(END_US, need.oldest_us + self._allowed_us(name)))
        pending = [other for _, _, other in table.needs.within(partitions)]
        mine = self._of(need)
        if pending and mine:
            theirs = {origin for other in pending for origin in self._of(other)}
            self.merged[self._relation(mine, theirs)] += 1

    def _allowed_us(self, name: str) -> int:
        graph = self.state.graph
        below = [each for each in graph.order if each == name or name in graph.ancestors[each]]
        return min((t for each in below if (t := graph.tables[each].target_us) is not None), default=END_US)

    def _count(self, table: TableState, partitions: PartitionSet) -> int:
        if table.table.grain is WHOLE or table.table.anywhere:
            return 1 if partitions else 0
        return (partitions & self.state.extent(table)).count(table.table.grain)

    def _of(self, need: Need) -> set[int]:
        """The changes that are in a need, as far as it knows them."""
        return {
            origin for origin in (need.at_us, need.newest_us, *(-n for n in need.requests)) if origin in self._origins
        }

    def _relation(self, mine: set[int], theirs: set[int]) -> Kinship:
        if mine <= theirs:
            return "same origin"
        graph = self.state.graph
        above = [
            {
                each
                for name in {self._origins[o] for o in origins}
                if name in graph.tables
                for each in (name, *graph.ancestors[name])
            }
            for origins in (mine - theirs, theirs - mine or theirs)
        ]
        return "same ancestor" if above[0] & above[1] else "independent"


def in_hindsight(log: Iterable[tuple[int, Event]]) -> Hindsight:
    found = Hindsight()
    for number, event in log:
        found.apply(event, number)
    return found
