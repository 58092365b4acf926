"""The other driver of the core: where the live runtime has Spark, files and a wall clock, a simulation has a kernel.

The controller is the very one of the live system. What the world does, and how long an update takes, is said by who uses
this: a scenario, or the log of a project.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from heapq import heappop, heappush

from penstock.control.controller import Controller
from penstock.control.events import Event, StartUpdate
from penstock.control.premises import PremiseWatch
from penstock.control.views.health import FeedWatch

Action = Callable[[int], None]


class Kernel:
    """The clock of the simulation: a heap of (time, priority, sequence). It jumps from event to event; what is due at the same
    time comes by priority, then in the order in which it was planned. Nothing else decides, so a run is repeatable."""

    def __init__(self) -> None:
        self.now_us = 0
        self._heap: list[tuple[int, int, int, Action]] = []
        self._sequence = 0

    def at(self, time_us: int, priority: int, action: Action) -> None:
        """Plan something. What lies in the past is due now."""
        self._sequence += 1
        heappush(self._heap, (max(time_us, self.now_us), priority, self._sequence, action))

    @property
    def next_us(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def step(self) -> int:
        """Go to the next time at which something is due and do all of it; how much that was."""
        self.now_us = self._heap[0][0]
        done = 0
        while self._heap and self._heap[0][0] == self.now_us:
            heappop(self._heap)[3](self.now_us)
            done += 1
        return done


# What is due at the same time comes in this order.
END, ARRIVAL, WAKE = 0, 1, 2


class Driver(ABC):
    def __init__(self, *, keep_log: bool = False) -> None:
        self.kernel = Kernel()
        self.controller = Controller()
        self.log: list[Event] | None = [] if keep_log else None
        # Notices outages, where there are some.
        self.outages: FeedWatch | None = None
        # Watches what bounds rest on, where that is asked for.
        self.premises: PremiseWatch | None = None
        self._woken: dict[str, int] = {}

    def apply(self, event: Event) -> None:
        if self.log is not None:
            self.log.append(event)
        self.controller.apply(event)
        if self.outages is not None:
            self.outages.saw(event)
        if self.premises is not None:
            self.premises.saw(event)

    def due(self, horizon_us: int) -> bool:
        next_us = self.kernel.next_us
        return next_us is not None and next_us < horizon_us

    def step(self) -> None:
        """All that happens next, and what is decided then."""
        self.kernel.step()
        now_us = self.kernel.now_us
        for event in self.outages.happened(now_us) if self.outages is not None else ():
            self.apply(event)
        for event in self.premises.happened(now_us) if self.premises is not None else ():
            self.apply(event)
        decided_at = self.controller.state.applied
        for command in self.controller.decide(now_us):
            self.apply(command.started(decided_at))
            self.start(now_us, command)
        self._wake("controller", now_us, self.controller.wake_at_us)
        if self.premises is not None:
            self._wake("premises", now_us, self.premises.due_us)

    def _wake(self, who: str, now_us: int, wake: int | None) -> None:
        if wake is not None and wake > now_us and wake != self._woken.get(who):
            self._woken[who] = wake
            self.kernel.at(wake, WAKE, lambda now: None)

    @abstractmethod
    def start(self, now_us: int, command: StartUpdate) -> None:
        """Carry a command out: plan how it ends."""
