"""Where a table stands between releases, and what is told of that."""

from __future__ import annotations

from typing import NamedTuple

from penstock.scheduling.recovery.reweighting import Released

# A lag of so much says that there is something to do which makes the table no fresher, such as a backfill.
NO_DATA_US = 1


class Progress(NamedTuple):
    """Where a table stands."""

    lag_us: int = 0
    recovering: bool = False
    # When it goes back to normal, if that is known already.
    leaves_us: int | None = None
    # The last job that was released, whether it waits or runs, and when it ended.
    last: Released | None = None
    waits: bool = False
    runs: bool = False
    ended_us: int = 0
    # The next job is released at this time if the table is not fresh by then.
    next_us: int = 0
    # Changed to recovery mode while a job ran: its end tells the next release.
    reweighed: bool = False
    # A job that is not one of the sequence runs.
    background: bool = False

    @property
    def busy(self) -> bool:
        return self.runs or self.background


class JobChoice(NamedTuple):
    """A job that may start."""

    table: str
    background: bool
    # Files, or periods of data, that it takes at most.
    take: int
    release_us: int
    deadline_us: int


class ModeChange(NamedTuple):
    """A change of mode, for those who want to know."""

    at_us: int
    table: str
    recovering: bool
    rule: str


NEW = Progress()
