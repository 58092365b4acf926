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
    assert [*modes.recovering] == ["a"]
    assert modes.load == pytest.approx(1)
    modes.starts(10, "a")
    modes.ends(12, "a", 0)  # fresh: back to normal at its deadline, 13
    modes.advance(13)
    assert [*modes.recovering] == ["a"]
    modes.settle()
    assert [*modes.recovering] == ["b"]


def test_who_recovers_first_is_by_what_users_lose_or_by_the_smallest_increase() -> None:
    tasks = [RecoveryTask("small", 1, 6, 4, 5, priority=1), RecoveryTask("dear", 1, 3, 2, 5, priority=10)]
    for arbitration, first in (("increase", "small"), ("staleness", "dear")):
        modes = Modes(tasks, 1, arbitration=arbitration, background=False)  # type: ignore[arg-type]
        modes.tracks = 0.7  # type: ignore[assignment]  # room for one
        for task in tasks:
            modes.lags(10, task.table, 9)
        modes.settle()
        assert [*modes.recovering] == [first]


def turns(tracks: int = 1) -> Modes:
    """b is made from a, and c is for itself; a period of 12, a recovery period of 4."""
    tasks = [RecoveryTask(name, 2, P, P_R) for name in "abc"]
    return Modes(tasks, tracks, background=False, above={"b": {"a"}})


def test_nobody_recovers_who_is_owed_nothing() -> None:
    modes = turns(3)
    modes.lags(10, "a", 100)
    modes.settle()
    assert not modes.recovering


def test_what_is_made_from_a_table_has_its_turn_after_it_and_each_recovers_once() -> None:
    modes = turns(3)
    modes.lags(10, "a", 2 * P)
    for name in "ab":
        modes.owe(10, name)
    modes.settle()
    assert [*modes.recovering] == ["a"]
    modes.lags(10, "b", 50)
    modes.starts(10, "a")
    modes.ends(12, "a", P)  # a period behind is near enough: it leaves at its deadline
    modes.advance(13)
    assert [*modes.recovering] == ["a"]
    modes.advance(20)
    modes.settle()
    assert [*modes.recovering] == ["b"] and modes.owed == {"b"}
    modes.lags(20, "a", 5 * P)
    modes.settle()
    assert [*modes.recovering] == ["b"]  # a had its turn


def test_who_is_near_when_its_turn_comes_is_paid() -> None:
    modes = turns()
    modes.lags(10, "b", 50)
    for name in "ab":
        modes.owe(10, name)
    modes.settle()
    assert [*modes.recovering] == ["b"] and modes.owed == {"b"}


def test_who_entered_last_leaves_when_updates_take_longer_and_is_owed_its_recovery_still() -> None:
    """Shares of 1/6 and 1/2 of three tracks each; when updates of c take 4, of its period 12 and 4, that is too much."""
    modes = turns(2)
    for name in "ac":
        modes.lags(10, name, 100)
        modes.owe(10, name)
    modes.settle()
    assert sorted(modes.recovering) == ["a", "c"]
    modes.provide([RecoveryTask(name, 4, P, P_R) for name in "abc"])  # 3 * 4/12 + 2 * (4/4 - 4/12) = 2.33 of 2
    for _, last in [(n, modes[n].last) for n in "ac"]:
        assert last is not None
    last = [*modes.recovering][-1]
    modes.starts(10, last)
    modes.ends(14, last, 90)
    modes.advance(200)
    assert last not in modes.recovering or modes.load <= 2
    assert modes.load <= 2 and modes.owed == {"a", "c"}


def test_what_is_owed_can_be_written_down() -> None:
    modes = turns(2)
    modes.lags(10, "a", 100)
    for name in "ab":
        modes.owe(10, name)
    modes.settle()
    again = turns(2)
    again.restore(modes.dump())
    assert again.dump() == modes.dump() and again.owed == {"a", "b"} and [*again.recovering] == ["a"]
