"""What the rules of waiting may read of the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.model.cost import CostModel
from penstock.model.graph import Graph
from penstock.requests.ledger import UserRequest
from penstock.requests.tablestate import TableState
from penstock.requests.waits import QueryWaits


class RequestView(Protocol):
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
