"""When jobs come after a table changes from normal to recovery mode (Leontyev, Johnson, Anderson 2010, Sec. III).

Seven conditions, (i) to (vii), tell the release of the next job from where the last one stands at the time of the change.
What they have in common: the part of the old period that is left shrinks as the period does, so that the table starts sooner
but never takes more than its new share.
"""

from __future__ import annotations

from typing import NamedTuple


class Released(NamedTuple):
    """The last job that was released."""

    release_us: int
    deadline_us: int


def anew(last: Released, at_us: int) -> Released:
    """The same job, as if it had been released then."""
    return Released(at_us, at_us + last.deadline_us - last.release_us)


class Reweighed(NamedTuple):
    """What follows from a change of mode."""

    rule: str
    # The last job as it counts from now on; only (iv) changes it.
    last: Released
    # The release of the next job; None if that is known only when the running one ends.
    next_us: int | None


def reweigh_waiting(last: Released | None, now_us: int, recovery_us: int) -> Reweighed:
    """Rules (i) to (iv): the table changes its mode while no job of it runs."""
    if last is None:
        return Reweighed("i", Released(0, 0), now_us)
    if last.deadline_us <= now_us:
        return Reweighed("ii", last, now_us)
    if last.deadline_us - now_us <= recovery_us:
        return Reweighed("iii", last, last.deadline_us)
    sooner = Released(now_us, now_us + recovery_us)
    return Reweighed("iv", sooner, sooner.deadline_us)


def reweigh_running(last: Released, now_us: int) -> Reweighed:
    """Rule (v), or that it must wait for the end of the running job."""
    if last.deadline_us <= now_us:
        return Reweighed("v", last, now_us)
    return Reweighed("vi or vii", last, None)


def reweigh_finished(last: Released, finished_us: int, period_us: int, recovery_us: int) -> Reweighed:
    """Rules (vi) and (vii): the job that ran at the change of mode ended.

    >>> reweigh_finished(Released(16_000_000, 19_000_000), 18_000_000, 3_000_000, 1_500_000).next_us
    18500000
    """
    if finished_us >= last.deadline_us:
        return Reweighed("vi", last, last.deadline_us)
    # f (1 - q) + r q + p^[r] with q = p^[r] / p, rounded up
    scaled = recovery_us * (last.release_us - finished_us + period_us)
    return Reweighed("vii", last, finished_us - (-scaled // period_us))
