"""Would the core decide again what it decided? A recorded log, with the decisions taken again at the same moments.

The live loop folds the log up to event n, decides, and appends what it starts; events of other processes may come in
between. A recorded start says which n that was. So a replay folds the same events, decides where decisions are on
record, compares, and then goes on with what was recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.control.controller import Controller
from penstock.control.events import Event, StartUpdate, UpdateStarted
from penstock.control.state import State
from penstock.requests.job import Job
from penstock.scheduling.protocol import UpdatePolicy


@dataclass(frozen=True, slots=True)
class RecordedStart:
    """What one decision started on one track."""

    job: Job
    track: int
    why: str


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """A decision that comes out otherwise than it is on record."""

    decided_at: int
    at_us: int
    recorded: tuple[RecordedStart, ...]
    decided: tuple[RecordedStart, ...]

    def __str__(self) -> str:
        return f"after event {self.decided_at}: recorded {_said(self.recorded)}, decided {_said(self.decided)}"


def _said(choices: tuple[RecordedStart, ...]) -> str:
    return ", ".join(f"{choice.job.table} on track {choice.track}" for choice in choices) or "nothing"


def replay(
    log: Iterable[tuple[int, Event]], policy: UpdatePolicy | None = None, state: State | None = None
) -> list[ReplayDifference]:
    """Fold a log and take every recorded decision again; the differences. `state` is where the log begins, if it is
    not the whole; decisions that were taken before that are not compared."""
    events = list(log)
    recorded: dict[int, dict[int, list[UpdateStarted]]] = {}
    for _, event in events:
        if isinstance(event, UpdateStarted):
            recorded.setdefault(event.decided_at, {}).setdefault(event.at_us, []).append(event)
    controller = Controller(state, policy)
    found: list[ReplayDifference] = []
    found += _compared(controller, recorded.pop(controller.state.applied, {}))
    for number, event in events:
        controller.apply(event, number)
        found += _compared(controller, recorded.pop(number, {}))
    return found


def _compared(controller: Controller, recorded: dict[int, list[UpdateStarted]]) -> list[ReplayDifference]:
    found = []
    for at_us, starts in sorted(recorded.items()):
        then = tuple(RecordedStart(start.job, start.track, start.why) for start in starts)
        again = tuple(_choice(command) for command in controller.decide(at_us))
        if then != again:
            found.append(ReplayDifference(starts[0].decided_at, at_us, then, again))
    return found


def _choice(command: StartUpdate) -> RecordedStart:
    return RecordedStart(command.job, command.track, command.why)
