"""One query from when it is asked until it is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from penstock.control.query_inputs import Touched
from penstock.declare.sql.read import ReadQuery
from penstock.engine.desk.answer import Answer
from penstock.queries.choice import Choice, Way
from penstock.queries.contract import Contract
from penstock.queries.estimate import AT_ONCE, Estimate
from penstock.queries.predict import PlanShape

Status = Literal["asked", "waiting", "queued", "running", "done", "failed", "withdrawn"]
ENDED = ("done", "failed", "withdrawn")


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happened to a query."""

    at_us: int
    status: Status
    what: str


@dataclass(eq=False)
class Asked:
    """Only the front changes it, and only while it holds its lock."""

    id: str
    number: int
    sql: str
    read: ReadQuery
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
    # What was weighed when it was decided.
    choice: Choice | None = field(default=None, repr=False)
    run: Estimate = AT_ONCE
    # What running it promises, over letting its deadline pass.
    gain: float = 1.0
    # The state of the log when it was last seen whether what it waits for is there.
    looked_at: int = -1
    # It does not wait for updates any longer than this.
    start_by_us: int | None = None
    answer: Answer | None = None
    error: str | None = None
    ended_us: int | None = None
    steps: list[Step] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event, repr=False)
    _listeners: list[Callable[[], object]] = field(default_factory=list, repr=False)

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    def __post_init__(self) -> None:
        # Queries that are the same here have the same answer if they read at the same time.
        self.same: tuple[object, ...] = (self.read.sql, self.limit, self.as_files, self.contract.consistent)

    def moved(self, at_us: int, status: Status, what: str) -> None:
        self.status = status
        self.steps.append(Step(at_us, status, what))
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
