"""Rules (i) to (vii), one by one: when the next job comes after a table has changed to recovery mode (Leontyev et al. 2010,
Sec. III). Period 12, recovery period 4; both as pure functions and as the scheduler applies them."""

from __future__ import annotations

import pytest

from penstock.scheduling.recovery.modes import Modes
from penstock.scheduling.recovery.progress import Progress
from penstock.scheduling.recovery.reweighting import Released, reweigh_finished, reweigh_running, reweigh_waiting
from penstock.scheduling.recovery.tasks import RecoveryTask

P, P_R = 12, 4


def table(threshold: int = 20) -> Modes:
    modes = Modes([RecoveryTask("v", 2, P, P_R, threshold)], 1, background=False)
    modes.changes = []
    return modes


def late(modes: Modes, at: int) -> Progress:
    """Much data come at once, and the table changes its mode."""
    modes.lags(at, "v", 100)
    modes.settle()
    assert modes["v"].recovering
    return modes["v"]


def rules(modes: Modes) -> list[str]:
    assert modes.changes is not None
    return [change.rule for change in modes.changes]


def begun(modes: Modes, release: int, start: int | None = None, end: int | None = None) -> None:
    modes.lags(release, "v", P)
    modes.settle()
    assert modes["v"].last == (release, release + P)
    if start is not None:
        modes.starts(start, "v")
    if end is not None:
        modes.ends(end, "v", 0)


def test_i_no_job_was_released_before() -> None:
    assert reweigh_waiting(None, 7, P_R).next_us == 7
    modes = table()
    assert late(modes, 7).last == (7, 7 + P_R)
    assert rules(modes) == ["i"]


def test_ii_the_last_deadline_has_passed() -> None:
    assert reweigh_waiting(Released(0, 12), 15, P_R) == ("ii", (0, 12), 15)
    modes = table()
    begun(modes, 1, 2, 4)  # released at 1, so the deadline is 13
    assert late(modes, 15).last == (15, 15 + P_R)
    assert rules(modes) == ["ii"]


def test_ii_with_a_job_that_still_waits_keeps_that_and_the_next_comes_at_the_change() -> None:
    modes = table()
    begun(modes, 1)  # never started, deadline 13
    progress = late(modes, 15)
    assert (progress.last, progress.waits, progress.next_us) == ((1, 13), True, 15)
    modes.starts(16, "v")
    modes.ends(18, "v", 90)
    modes.settle()
    assert modes["v"].last == (15, 15 + P_R)


def test_iii_the_rest_of_the_period_is_not_longer_than_a_recovery_period() -> None:
    assert reweigh_waiting(Released(0, 12), 8, P_R) == ("iii", (0, 12), 12)  # 12 - 8 = 4
    modes = table()
    begun(modes, 1, 2, 4)
    progress = late(modes, 10)  # 13 - 10 = 3 <= 4
    assert (progress.last, progress.next_us) == ((1, 13), 13)
    modes.advance(13)
    modes.settle()
    assert modes["v"].last == (13, 13 + P_R)
    assert rules(modes) == ["iii"]


def test_iv_the_rest_of_the_period_is_longer_so_the_job_counts_from_now() -> None:
    assert reweigh_waiting(Released(0, 12), 7, P_R) == ("iv", (7, 11), 11)  # 12 - 7 = 5 > 4
    modes = table()
    begun(modes, 1)  # it waits
    progress = late(modes, 3)
    assert (progress.last, progress.waits) == ((3, 7), True)
    assert [(choice.release_us, choice.deadline_us) for choice in modes.choices()] == [(3, 7)]
    assert rules(modes) == ["iv"]


def test_iv_after_a_job_that_has_ended_the_next_one_comes_a_recovery_period_later() -> None:
    modes = table()
    begun(modes, 1, 2, 4)
    assert late(modes, 5).next_us == 9
    modes.advance(9)
    modes.settle()
    assert modes["v"].last == (9, 13)


def test_v_the_running_job_is_beyond_its_deadline() -> None:
    assert reweigh_running(Released(0, 12), 13) == ("v", (0, 12), 13)
    modes = table()
    begun(modes, 1, 12)  # it runs from 12 on, deadline 13
    late(modes, 14)
    modes.ends(15, "v", 90)
    modes.settle()
    assert modes["v"].last == (14, 14 + P_R)
    assert rules(modes) == ["v"]


def test_vi_the_running_job_ends_at_its_deadline_or_later() -> None:
    assert reweigh_finished(Released(0, 12), 14, P, P_R) == ("vi", (0, 12), 12)
    modes = table()
    begun(modes, 1, 12)
    late(modes, 12)  # before the deadline 13
    modes.ends(14, "v", 90)  # after it
    modes.settle()
    assert modes["v"].last == (13, 13 + P_R)
    assert rules(modes)[-1] == "vi"


def test_vii_the_running_job_ends_before_its_deadline() -> None:
    # f (1 - 4/12) + r 4/12 + 4 = 6 * 2/3 + 0 + 4 = 8: a third of the 6 that were left after 6
    assert reweigh_finished(Released(0, 12), 6, P, P_R) == ("vii", (0, 12), 8)
    modes = table()
    begun(modes, 1, 5)
    late(modes, 6)
    modes.ends(7, "v", 90)  # 7 * 2/3 + 1/3 + 4 = 9: a third of the 6 that are left to 13
    modes.settle()
    assert (modes["v"].last, modes["v"].next_us) == ((1, 13), 9)
    modes.advance(9)
    modes.settle()
    assert modes["v"].last == (9, 13)
    assert rules(modes)[-1] == "vii"


@pytest.mark.parametrize("finished", range(2, 13))
def test_vii_never_releases_before_the_job_ended_nor_after_its_deadline(finished: int) -> None:
    found = reweigh_finished(Released(0, 12), finished, P, P_R).next_us
    assert found is not None
    assert finished <= found <= 12


def test_no_change_of_mode_beyond_what_the_tracks_hold() -> None:
    """(6): two tables of 1/3 each on one track. 2/3 for one that recovers and 1/3 for the other fit, 2/3 for both do not."""
    modes = Modes([RecoveryTask(name, 2, 6, 3, 5) for name in "ab"], 1, arbitration="increase", background=False)
    for name in "ab":
        modes.lags(10, name, 9)
    modes.settle()
    assert modes.recovering == {"a"}
    assert modes.load == pytest.approx(1)
    modes.starts(10, "a")
    modes.ends(12, "a", 0)  # fresh: back to normal at its deadline, 13
    modes.advance(13)
    assert modes.recovering == {"a"}
    modes.settle()
    assert modes.recovering == {"b"}


def test_who_recovers_first_is_by_what_users_lose_or_by_the_smallest_increase() -> None:
    tasks = [RecoveryTask("small", 1, 6, 4, 5, priority=1), RecoveryTask("dear", 1, 3, 2, 5, priority=10)]
    for arbitration, first in (("increase", "small"), ("staleness", "dear")):
        modes = Modes(tasks, 1, arbitration=arbitration, background=False)  # type: ignore[arg-type]
        modes.tracks = 0.7  # type: ignore[assignment]  # room for one
        for task in tasks:
            modes.lags(10, task.table, 9)
        modes.settle()
        assert modes.recovering == {first}
