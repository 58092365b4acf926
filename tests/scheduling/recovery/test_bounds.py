"""Bounds and verdicts, with the arithmetic beside them (Leontyev, Johnson, Anderson 2010, Sec. III to VI)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.model.time import MINUTE_US, SECOND_US
from penstock.papers.recovery.adaptive import clearing_us
from penstock.scheduling.recovery.bounds import Delivery, Model
from penstock.scheduling.recovery.guarantees import Ground, Observed, judge, violations
from penstock.scheduling.recovery.tasks import RecoveryTask, provisioned, recovery_period_us

S = SECOND_US


def task(name: str, cost: int, period: int, recovery: int | None = None, **more: object) -> RecoveryTask:
    return RecoveryTask(name, cost * S, period * S, (recovery or period) * S, **more)  # type: ignore[arg-type]


# Costs 20, 10, 30 and periods 100, 100, 200 on two tracks.
TASKS = (task("a", 20, 100, 40), task("b", 10, 100, 50), task("c", 30, 200, 60))
MODEL = Model(
    TASKS, 2, {"a": Delivery(100 * S, 7 * S, 3 * S), "b": Delivery(100 * S)}, {"c": ("a", "b")}, background=False
)


def test_recovery_periods() -> None:
    # (7) with min: share min(1, 2 - 1.848 + 0.132) = 0.284, so 39.6 / 0.284 = 139.4 = 300 / 2.15
    assert recovery_period_us(39_600_000, 300_000_000, 1.848, 2) == pytest.approx(139.4366e6, rel=1e-5)
    # Much is left: as fast as jobs can follow one another, never faster
    assert recovery_period_us(10 * S, 100 * S, 0.5, 2) == 10 * S
    # shared: max(e, p U / m) = max(10, 100 * 1.5 / 2) = 75
    assert recovery_period_us(10 * S, 100 * S, 1.5, 2, "shared") == 75 * S
    # Nothing is left: the period stays
    assert recovery_period_us(50 * S, 100 * S, 2.0, 2) == 100 * S


def test_all_tables_can_recover_at_once_with_shared_periods() -> None:
    tasks = provisioned(TASKS, 1, "shared")
    assert sum(t.recovery_utilisation for t in tasks) <= 1 + 1e-6


def test_tardiness_response_and_staleness() -> None:
    bounds = MODEL.bounds()
    # Shares in recovery: 20/40 = 0.5, 10/50, 30/60 = 0.5; delay = (30 + 20 - 10) / (2 - 0.5) = 26.67
    assert MODEL.delay_us == pytest.approx(26_666_667, abs=1)
    assert bounds["a"].tardiness_us == pytest.approx(46_666_667, abs=1)
    assert bounds["a"].response_us == pytest.approx(146_666_667, abs=1)
    # Theta + p + (p + J + kappa) = 146.67 + 100 + 110
    assert bounds["a"].staleness_us == pytest.approx(356_666_667, abs=1)
    # Theta + p + max(A(a), A(b)) = (200 + 56.67) + 200 + 356.67
    assert bounds["c"].staleness_us == pytest.approx(813_333_334, abs=2)
    assert bounds["c"].because == ("a", "c")


def test_idle_tracks_let_an_update_look_at_its_sources_earlier() -> None:
    """A job of c that began in the background up to 30 s before its release becomes the released one."""
    bounds = replace(MODEL, background=True).bounds()
    assert bounds["c"].staleness_us == MODEL.bounds()["c"].staleness_us + 30 * S
    assert bounds["a"] == MODEL.bounds()["a"]


def test_recovery_of_one_table() -> None:
    # Q = A + p = 456.67; jobs = ceil((1000 + 456.67 + 146.67 - 100) / (100 - 40)) = 26; x = 146.67 + 26 * 40
    (only,) = MODEL.recovery({"a": 1000 * S}).lasts_us.values()
    assert only == pytest.approx(1_186_666_667, abs=1)
    assert MODEL.recovery({"a": 1000 * S}).latest_us("a") == only
    # One job more in the background, which may have begun with less than a period to do
    assert replace(MODEL, background=True).recovery({"a": 1000 * S}).lasts_us["a"] == only + 40 * S


def test_recovery_of_all() -> None:
    """One after the other in the worst case, whatever reads them last; never sooner than what is made from it."""
    reached = MODEL.reached({"a": 1000 * S, "b": 500 * S})
    assert reached == {"a": 1000 * S, "b": 500 * S, "c": 1000 * S}
    recovery = MODEL.recovery(reached)
    lasts = recovery.lasts_us
    assert None not in lasts.values()
    a, c, every = recovery.latest_us("a"), recovery.latest_us("c"), recovery.all_us
    assert a is not None and c is not None
    assert a <= lasts["a"] + lasts["b"]  # type: ignore[operator]
    assert a < c == every <= sum(lasts.values())  # type: ignore[arg-type]
    assert MODEL.recovery(reached, times=2).latest_us("c") == 2 * sum(lasts.values())  # type: ignore[arg-type]
    # On tracks that never idle the work bounds it, too.
    ours = replace(MODEL, background=True).recovery(reached)
    assert ours._work_us("c") is not None and ours.all_us is not None
    # Nothing can catch up whose period does not shrink.
    full = Model((task("never", 100, 100, 100),), 1)
    assert full.recovery({"never": S}).latest_us("never") is None
    assert clearing_us(task("never", 20, 100, 100), S, S) is None


def test_nothing_is_proven_in_an_overload() -> None:
    assert not replace(MODEL, tasks=(*TASKS, task("d", 180, 100))).bounds()
    assert not Model((task("a", 90, 100), task("b", 90, 100)), 1).bounds()


def test_best_effort_tables_need_no_load_but_their_jobs_can_be_in_the_way() -> None:
    model = replace(MODEL, tasks=(*TASKS, task("big", 300, 100, reserved=False)))
    assert model.utilisation == MODEL.utilisation
    assert "big" not in model.bounds()
    # (300 + 30 - 10) / 1.5 instead of (30 + 20 - 10) / 1.5
    assert model.delay_us == pytest.approx(213_333_334, abs=1)


def report(model: Model, **targets: int):
    return {g.table: g for g in judge(model, {k: v * S for k, v in targets.items()}, {}).guarantees}


def test_verdicts() -> None:
    found = report(MODEL, a=400, c=800)
    assert found["a"].verdict == "proven"
    assert found["b"].verdict == "no target"
    assert found["c"].verdict == "not proven"
    assert "`a` -> `c`" in found["c"].breaks
    assert 'a target that is proven: freshness = "13m34s"' in found["c"].remedies


def test_every_remedy_is_true() -> None:
    """What is offered is tried: with the tracks, the period or the cost that it names, the target is proven."""
    over = Model((task("a", 50, 60), task("b", 30, 60), task("big", 110, 120)), 2)
    found = report(over, a=1000)["a"]
    assert "need 2.25 tracks" in found.breaks and "`big`" in found.breaks
    assert found.remedies == (
        "1 track more: tracks = 3",
        'a longer period of `big`: "3m" instead of "2m"',
        "a cheaper update of `big`: at most 1m 19s, 28% less",
    )

    def mended(tracks: int, big: RecoveryTask) -> str:
        tasks = provisioned((*over.tasks[:2], big), tracks)
        return report(Model(tuple(tasks), tracks), a=1000)["a"].verdict

    assert mended(3, over.tasks[2]) == "proven"
    assert mended(2, task("big", 110, 180)) == "proven"  # 50/60 + 30/60 + 110/180 = 1.94 tracks
    assert mended(2, task("big", 79, 120)) == "proven"  # 50/60 + 30/60 + 79/120 = 1.99
    assert mended(2, task("big", 81, 120)) == "not proven"


def test_a_job_that_is_longer_than_its_period() -> None:
    found = report(Model((task("a", 70, 60),), 4), a=1000)["a"]
    assert "takes up to 1m 10s, longer than its period of 1m" in found.breaks


def test_a_target_that_no_number_of_tracks_would_prove() -> None:
    """At 60 s between files: 2 * 60 + 20 for the update, 60 until the next file. Of a table over it: 2 * 60 + 30 more."""
    model = Model((task("a", 20, 60), task("d", 30, 60)), 64, {"a": Delivery(60 * S)}, {"d": ("a",)}, background=False)
    assert (model.least_us("a"), model.least_us("d")) == (200 * S, 350 * S)
    found = report(model, a=199, d=340)
    assert found["a"].breaks == (
        "on any number of tracks it can be 3m 20s behind, the target is 3m 19s: "
        "twice its period (1m), its update (20s), and what its feed has not delivered (1m)"
    )
    # On 64 tracks it waits (20 + 30 - 20) / (64 - 1/3 - 1/2) = 0.47 s.
    assert found["a"].remedies == ('a target that is proven: freshness = "3m21s"',)
    assert found["d"].remedies[1] == 'a shorter period of `d`: "48s" instead of "1m"'
    over = report(replace(model, tracks=1, tasks=(*model.tasks, task("long", 80, 60))), a=199)
    assert over["a"].remedies == ('a target of at least "3m20s"',)
    # What a bound can be at best is what it nearly is when hardly anyone waits.
    bounds = model.bounds()
    assert all(model.least_us(name) <= bounds[name].staleness_us < model.least_us(name) + 2 * S for name in "ad")


def test_without_costs_nothing_is_proven() -> None:
    found = judge(MODEL, {"a": 10_000 * S}, {}, Ground(unknown=frozenset({"b"}))).guarantees
    assert found[0].verdict == "not proven"
    assert "nobody knows what an update of `b` costs" in found[0].breaks


@pytest.mark.parametrize(
    ("seen", "tracks", "assumption"),
    [
        ({"a": Observed(10 * MINUTE_US, 5 * S, 9 * MINUTE_US)}, None, "arrival rate"),
        ({"a": Observed(10 * MINUTE_US, 25 * S, 50 * S)}, None, "cost"),
        ({"a": Observed(10 * MINUTE_US, 5 * S, 50 * S), "c": Observed(0, 90 * S)}, None, "cost"),
        ({"a": Observed(10 * MINUTE_US, 5 * S, 50 * S)}, 1, "lost track"),
        ({"a": Observed(10 * MINUTE_US, 5 * S, 50 * S)}, None, "not known"),
    ],
)
def test_a_violated_bound_names_the_assumption_that_failed(
    seen: dict[str, Observed], tracks: int | None, assumption: str
) -> None:
    (found,) = violations(MODEL, seen, tracks)
    assert (found.table, found.assumption) == ("a", assumption)


def test_a_track_that_hangs_is_a_lost_one() -> None:
    seen = {"a": Observed(10 * MINUTE_US, 5 * S, 50 * S)}
    (found,) = violations(MODEL, seen, lost={1: "track 1 hangs"})
    assert (found.assumption, found.said) == (
        "lost track",
        f"{MODEL.tracks - 1} of {MODEL.tracks} tracks work; track 1 hangs",
    )


def test_nothing_is_said_while_the_bounds_hold() -> None:
    assert violations(MODEL, {"a": Observed(300 * S, 25 * S, 500 * S)}) == []
