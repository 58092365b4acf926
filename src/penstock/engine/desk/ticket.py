"""One query from when it is asked until it is answered."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.control.query_inputs import Touched
from penstock.engine.desk.answer import Answer
from penstock.engine.desk.question import ResultRows
from penstock.queries.contract import Contract
from penstock.queries.desk import Chain
from penstock.queries.estimate import AT_ONCE, Estimate, RefreshStep
from penstock.queries.outcome import Way
from penstock.queries.predict import PlanShape

Status = Literal["asked", "waiting", "queued", "running", "done", "failed", "withdrawn"]
ENDED = ("done", "failed", "withdrawn")


@dataclass(frozen=True, slots=True)
class QueryStep:
    """Something that happened to a query."""

    at_us: int
    status: Status
    what: str


@dataclass(eq=False)
class QueryTicket:
    """Only the front changes it, and only while it holds its lock."""

    id: str
    number: int
    sql: str
    # What Spark gets, and the tables that it reads.
    text: str
    tables: tuple[str, ...]
    touched: Touched
    shape: PlanShape
    steady: bool
    profile: str
    contract: Contract
    limit: int
    arrived_us: int
    # Firm: that of the contract, or the longest that anything may take.
    deadline_us: int
    # Rows beyond what fits into a message become files.
    as_files: bool = False
    status: Status = "asked"
    way: Way = Way.NOW
    why: str = ""
    run: Estimate = AT_ONCE
    # The updates that it waits for; None: no update makes it as fresh as it needs.
    steps_before: tuple[RefreshStep, ...] = ()
    chain: Chain = ()
    # The state of the log when that was last seen.
    looked_at: int = -1
    # That it would be answered in time, and fresh, as it seemed when it was admitted.
    chance: float | None = None
    answer: Answer | None = None
    error: str | None = None
    ended_us: int | None = None
    steps: list[QueryStep] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event, repr=False)
    _listeners: list[Callable[[], object]] = field(default_factory=list, repr=False)

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    def __post_init__(self) -> None:
        # Queries that are the same here have the same answer if they read at the same time.
        self.same: tuple[object, ...] = (self.text, self.limit, self.as_files, self.contract.consistent)

    def moved(self, at_us: int, status: Status, what: str) -> None:
        self.status = status
        self.steps.append(QueryStep(at_us, status, what))
        if self.has_ended:
            self.ended_us = at_us
            self._ended.set()
        for listener in list(self._listeners):
            with suppress(RuntimeError):  # the loop that listened is gone
                listener()

    def wait(self, seconds: float | None = None) -> bool:
        return self._ended.wait(seconds)

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Be told of every change, in some thread; what is returned ends that."""
        self._listeners.append(listener)

        def end() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return end


# The queries that were asked: found by their id, or by the key with which they were asked, as long as they are open and for a while after.


class Register:
    """Not safe for threads: the front holds its lock around what changes it."""

    def __init__(self, most_ended: int, most_bytes: int) -> None:
        self._most = most_ended
        self._most_bytes = most_bytes
        # Those that ended with rows, oldest first. Several may have the same rows: those count once.
        self._with_rows: deque[QueryTicket] = deque()
        self._shown: dict[int, int] = {}
        self._bytes = 0
        self._queries: OrderedDict[str, QueryTicket] = OrderedDict()
        self._by_key: dict[tuple[str, str], QueryTicket] = {}
        self._keys: dict[str, tuple[str, str]] = {}
        self.open = 0
        self._numbers = 0

    def __iter__(self) -> Iterator[QueryTicket]:
        return iter(list(self._queries.values()))

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def find(self, identity: str) -> QueryTicket | None:
        return self._queries.get(identity)

    def known(self, profile: str, key: str | None) -> QueryTicket | None:
        return None if key is None else self._by_key.get((profile, key))

    def add(self, asked: QueryTicket, key: str | None) -> None:
        self.open += 1
        self._queries[asked.id] = asked
        if key is not None:
            self._by_key[asked.profile, key] = asked
            self._keys[asked.id] = asked.profile, key

    def keep(self, asked: QueryTicket) -> None:
        """Its rows, until there are too many: then the oldest go."""
        rows = _rows(asked)
        if rows is None:
            return
        self._with_rows.append(asked)
        if not self._shown.get(id(rows)):
            self._bytes += rows.nbytes
        self._shown[id(rows)] = self._shown.get(id(rows), 0) + 1
        while self._bytes > self._most_bytes and len(self._with_rows) > 1:
            self._drop(self._with_rows.popleft())

    def _drop(self, asked: QueryTicket) -> None:
        rows = _rows(asked)
        if rows is None or asked.answer is None:
            return
        self._shown[id(rows)] -= 1
        if not self._shown[id(rows)]:
            del self._shown[id(rows)]
            self._bytes -= rows.nbytes
        asked.answer = replace(asked.answer, found=None, dropped=True)

    def ended(self) -> None:
        """One more has ended; the oldest that ended are forgotten."""
        self.open -= 1
        while len(self._queries) > self._most:
            oldest = next(iter(self._queries.values()))
            if not oldest.has_ended:
                break
            del self._queries[oldest.id]
            if oldest.id in self._keys:
                self._by_key.pop(self._keys.pop(oldest.id), None)
            self._drop(oldest)
            with suppress(ValueError):
                self._with_rows.remove(oldest)


def _rows(asked: QueryTicket) -> ResultRows | None:
    return asked.answer.found if asked.answer is not None else None
