"""Was what was promised kept? Every update and every table is held against its bound, as of the moment.

It follows a controller: `before` and `after` each event. `audited` does so for a log, as if nobody had watched it: the premises are
watched again, so that also a log from before there was a watch can be asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from penstock.control.controller import Controller
from penstock.control.events import (
    Event,
    GuaranteeRenewed,
    GuaranteeVoided,
    UpdateFinished,
    UpdateStarted,
)
from penstock.control.premises import UNEXPLAINED, PremiseWatch
from penstock.scheduling.recovery.modes import Modes

What = Literal["tardiness", "response", "staleness", "recovery", "after recovery"]


@dataclass(slots=True)
class Margin:
    """How much of a bound was ever used, of how many times that it was asked."""

    table: str
    what: What
    used: float = 0.0
    at_us: int = 0
    times: int = 0


class _Job(NamedTuple):
    table: str
    release_us: int
    deadline_us: int


@dataclass
class Audit:
    controller: Controller
    premises: PremiseWatch
    margins: dict[tuple[str, What], Margin] = field(default_factory=dict)
    # Promises that were void, with the reason; and those that were broken without one.
    voided: list[GuaranteeVoided] = field(default_factory=list)
    broken: list[Margin | GuaranteeVoided] = field(default_factory=list)
    _jobs: dict[str, _Job] = field(default_factory=dict)

    def before(self, event: Event) -> None:
        if isinstance(event, UpdateFinished):
            self._staleness(event)
            self._response(event)

    def after(self, event: Event) -> None:
        memory = self.controller.memory
        if isinstance(event, UpdateStarted) and isinstance(memory, Modes):
            name = self.controller.state.graph.updated_as.get(event.job.table, event.job.table)
            progress = memory[name]
            if event.job.kind != "upkeep" and progress.runs and progress.last is not None:
                self._jobs[event.job.id] = _Job(name, *progress.last)
        elif isinstance(event, GuaranteeVoided):
            self.voided.append(event)
            if UNEXPLAINED in event.because:
                self.broken.append(event)

    def _use(self, table: str, what: What, part: float, at_us: int) -> None:
        margin = self.margins.setdefault((table, what), Margin(table, what))
        margin.times += 1
        if part > margin.used:
            margin.used, margin.at_us = part, at_us
        if part > 1:
            self.broken.append(Margin(table, what, part, at_us, 1))

    def _staleness(self, event: UpdateFinished) -> None:
        """Just before an update is published its table is as stale as it gets."""
        state, promised = self.controller.state, self.premises.promised()
        for publication in event.publications:
            table = state.tables.get(publication.table)
            if table is None or table.edge_us is None:
                continue
            name, stale = table.table.name, event.at_us - table.edge_us
            bound, recovers = promised.get(state.graph.updated_as[name]), self.premises.recovers.get(name)
            if bound is not None:
                self._use(name, "staleness", stale / bound.staleness_us, event.at_us)
            if recovers is not None and event.at_us > recovers.latest_us:
                self._use(name, "after recovery", stale / recovers.most_us, event.at_us)
            if recovers is not None and stale > recovers.most_us:
                needed = event.at_us - recovers.since_us
                self._use(name, "recovery", needed / max(1, recovers.latest_us - recovers.since_us), event.at_us)

    def _response(self, event: UpdateFinished) -> None:
        job = self._jobs.pop(event.job, None)
        void = self.controller.state.void.values()
        bound = self.premises.bounds().get(job.table) if job is not None else None
        if job is None or bound is None or any(each.extent == "all" for each in void):
            return
        self._use(job.table, "tardiness", max(0, event.at_us - job.deadline_us) / bound.tardiness_us, event.at_us)
        self._use(job.table, "response", (event.at_us - job.release_us) / bound.response_us, event.at_us)


def audited(log: Iterable[tuple[int, Event]]) -> Audit:
    """What came of the promises of a whole log."""
    controller = Controller()
    premises = PremiseWatch(controller)
    audit = Audit(controller, premises)

    def apply(event: Event, number: int) -> None:
        audit.before(event)
        controller.apply(event, number)
        premises.saw(event)
        audit.after(event)

    for number, event in log:
        for each in premises.happened(event.at_us):
            apply(each, controller.state.applied)
        if not isinstance(event, GuaranteeVoided | GuaranteeRenewed):
            apply(event, number)
    return audit
