"""What breaks a promise is told, with the reason; and when it holds again."""

from __future__ import annotations

from dataclasses import replace

from penstock.control.events import FeedPaused, FeedResumed, GuaranteeRenewed, GuaranteeVoided, UpdateFinished
from penstock.control.premises import PremiseWatch
from penstock.control.snapshot import dump, load
from penstock.control.views.explain import explain
from penstock.control.views.recovery import recoveries
from penstock.control.views.status import overview
from penstock.model.time import HOUR_US, MINUTE_US, SECOND_US
from penstock.scheduling.policies import find_policy
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Outage, SimTable
from tests.control.live_worlds import Promised


def simulated(*, drift: float = 1.0, outages: tuple[Outage, ...] = (), failures: float = 0.0) -> Simulation:
    """A feed every minute and a view of it, on two tracks; an update takes 6 s, and 7 s are declared."""
    base = SimTable("base", (), 60.0, phase_s=60.0, alpha_s=3.0, beta=0.05, drift=drift)
    view = SimTable("view", ("base",), alpha_s=3.0, beta=0.05)
    other = replace(base, name="other", phase_s=30.0, drift=1.0)
    costs = {"base": 7.0, "view": 7.0, "other": 7.0}
    scenario = Promised(
        (base, view, other), tracks=2, horizon_s=3_600.0, outages=outages, failures=failures, costs="learned",
        partition="hour", declared_s=costs,
    )  # fmt: skip
    simulation = Simulation(scenario, find_policy("adaptive"), 1, keep_log=True)
    simulation.premises = PremiseWatch(simulation.controller)
    return simulation


def told(simulation: Simulation) -> list[GuaranteeVoided | GuaranteeRenewed]:
    assert simulation.log is not None
    return [event for event in simulation.log if isinstance(event, GuaranteeVoided | GuaranteeRenewed)]


def test_nothing_is_told_while_all_is_as_assumed() -> None:
    simulation = simulated()
    simulation.run()
    assert told(simulation) == []


def test_an_update_that_takes_too_long_concerns_all_tables_and_is_told_before_it_ends() -> None:
    simulation = simulated(drift=3.0)
    simulation.run()
    first, second = told(simulation)[:2]
    assert isinstance(first, GuaranteeVoided) and first.tables == ("base", "other", "view")
    assert first.because == "an update of `base` takes longer than the 7s that were assumed"
    assert isinstance(second, GuaranteeRenewed)
    assert simulation.log is not None
    after = simulation.log[simulation.log.index(first) :]
    assert next(event for event in after if isinstance(event, UpdateFinished)).table == "base"


def test_an_outage_concerns_the_feed_and_what_is_made_from_it_until_that_is_fresh() -> None:
    simulation = simulated(outages=(Outage(600.0, 1_800.0, "base"),))
    simulation.run()
    voided, *renewed = told(simulation)
    assert isinstance(voided, GuaranteeVoided) and voided.tables == ("base", "view")
    assert (voided.because, voided.extent) == ("feed `base` is out", "outage")
    assert {name for event in renewed for name in event.tables} == {"base", "view"}
    assert all(1_800 * SECOND_US < event.at_us < 2_400 * SECOND_US for event in renewed)


def test_an_end_of_a_recovery_is_not_proven_where_tracks_share_too_few_cores() -> None:
    simulation = simulated(outages=(Outage(600.0, 1_800.0, "base"),))
    state = simulation.controller.state
    state.reading.updates, state.declaration.policy = "always", "adaptive"
    while not state.recovering:
        simulation.step()
    latest = [found.latest_end_us for found in recoveries(state)]
    assert latest and None not in latest
    state.declaration.cores = 1
    assert {found.latest_end_us for found in recoveries(load(dump(state)))} == {None}


def test_it_is_shown_and_written_down() -> None:
    simulation = simulated()
    for _ in range(20):
        simulation.step()
    now = simulation.kernel.now_us
    simulation.apply(FeedPaused(now, "base"))
    simulation.step()
    state = load(dump(simulation.controller.state))
    assert overview(state, now).void["view"].because == "feed `base` is paused"
    state.tables["view"].table = replace(state.tables["view"].table, zone="Asia/Tokyo")
    lines = explain(state, "view", now).lines
    assert any(line.startswith("its guarantee is void since 1970-01-01 09:") for line in lines)
    simulation.apply(FeedResumed(now + MINUTE_US, "base"))
    while simulation.due(HOUR_US):
        simulation.step()
    assert not simulation.controller.state.void
