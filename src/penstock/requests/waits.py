"""What queries wait for: partitions that someone wants brought up to date, each with the earliest deadline.

A want adds no work, as whatever is stale is pending already. It says which part of the pending work comes first, and only that
part: a query need not wait for the rest of its tables. It is over when the update starts, or when its deadline has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from penstock.model.cost import CostModel
from penstock.model.graph import Graph
from penstock.model.partitions import EMPTY, IntervalMap, PartitionSet
from penstock.model.time import END_US
from penstock.requests.ledger import UserRequest
from penstock.requests.tablestate import TableState


class QueryWaits:
    def __init__(self) -> None:
        self._tables: dict[str, IntervalMap[int]] = {}
        # No want is over before this.
        self.next_us = END_US

    def __bool__(self) -> bool:
        return bool(self._tables)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueryWaits) and self.dump() == other.dump()

    def __contains__(self, table: str) -> bool:
        return table in self._tables

    def add(self, table: str, partitions: PartitionSet, deadline_us: int) -> None:
        self._tables.setdefault(table, IntervalMap(min)).add(partitions, deadline_us)
        self.next_us = min(self.next_us, deadline_us)

    def ends(self, now_us: int) -> dict[str, int]:
        """The tables that someone still waits for, and when the last who does gives up."""
        last = {name: max(until for _, _, until in wants.pieces()) for name, wants in self._tables.items()}
        return {name: until for name, until in last.items() if until >= now_us}

    def partitions(self, table: str) -> PartitionSet:
        found = self._tables.get(table)
        return EMPTY if found is None else found.domain()

    def until(self, table: str, partitions: PartitionSet) -> int | None:
        """The earliest deadline of any of these partitions."""
        found = self._tables.get(table)
        return None if found is None else min((until for _, _, until in found.within(partitions)), default=None)

    def started(self, table: str, partitions: PartitionSet) -> None:
        found = self._tables.get(table)
        if found is not None:
            found.remove(partitions)
            if not found:
                del self._tables[table]

    def expire(self, now_us: int) -> list[str]:
        """Forget what is over; the tables concerned."""
        concerned = []
        for table, wants in list(self._tables.items()):
            over = [(start, end) for start, end, until in wants.pieces() if until < now_us]
            if over:
                concerned.append(table)
                self.started(table, PartitionSet.of(*over))
        pieces = (until for wants in self._tables.values() for _, _, until in wants.pieces())
        self.next_us = min(pieces, default=END_US)
        return concerned

    def keep(self, tables: Iterable[str]) -> None:
        """Only of these tables: the others are no longer declared."""
        self._tables = {name: self._tables[name] for name in tables if name in self._tables}

    def dump(self) -> dict[str, Any]:
        return {table: [list(piece) for piece in wants.pieces()] for table, wants in self._tables.items()}

    def load(self, data: dict[str, Any]) -> None:
        """Add what another one dumped."""
        for table, pieces in data.items():
            for start, end, until in pieces:
                self.add(table, PartitionSet(((start, end),)), until)


class RequestView(Protocol):
    """What the rules of waiting may read of the state."""

    @property
    def graph(self) -> Graph: ...
    @property
    def tables(self) -> Mapping[str, TableState]: ...
    @property
    def requests(self) -> Mapping[int, UserRequest]: ...
    @property
    def awaited(self) -> QueryWaits: ...
    @property
    def now_us(self) -> int: ...
    @property
    def kept(self) -> frozenset[str]: ...
    @property
    def cost_of(self) -> Callable[[str], CostModel]: ...
    @property
    def paused(self) -> Callable[[TableState], object]: ...
    @property
    def deferred_until(self) -> Callable[[TableState], int | None]: ...
