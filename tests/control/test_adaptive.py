"""The adaptive policy behind the controller: the same schedule as the model, on random graphs, and again from the log."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.control.controller import Controller
from penstock.control.events import FileArrived, RunStarted, UpdateFinished, UpdateStarted, WarehouseDeclared
from penstock.control.outlook import LearnedOutlook
from penstock.control.snapshot import dump, load
from penstock.control.views.recovery import assumed
from penstock.model.tables import Feed, Table
from penstock.model.time import MINUTE_US, SECOND_US
from penstock.papers.recovery import adaptive
from penstock.papers.recovery.aus import PARAMETERS, section7
from penstock.requests.job import FeedFile
from penstock.scheduling.policies import PolicyNameError, bound, find_policy
from penstock.scheduling.recovery.modes import Modes
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Outage, SimTable
from penstock.sim.scenario import Scenario as SimScenario
from tests.control.replay import replay
from tests.control.scenarios import Scenario, check_at_rest


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("plain", [True, False])
def test_the_controller_gives_the_schedule_of_the_model(seed: int, plain: bool) -> None:
    scenario = section7(PARAMETERS, 2_000.0 + 500 * seed, "random")
    # The model begins with empty tables, the controller with ones that are up to date: the first file of each is a whole
    # period after the start of both.
    tables = [replace(t, phase_s=t.period_s * (1 + n * (seed + 1) % 13 / 31)) for n, t in enumerate(scenario.tables)]
    scenario = replace(scenario, horizon_s=14_000.0, tables=tuple(tables))
    policy = find_policy("adaptive(plain, margin=1.2)" if plain else "adaptive(margin=1.2)")
    simulation = Simulation(scenario, policy, seed, trace=True, keep_log=True)
    simulation.run()
    model = adaptive.model_of(scenario, worst=True)
    if not plain:
        model = replace(model, tasks=tuple(replace(t, threshold_us=2 * t.period_us) for t in model.tasks))
    model = replace(model, tasks=tuple(sorted(model.tasks, key=lambda task: task.table)))
    ran = adaptive.simulate(scenario, model, seed, plain=plain)
    running = {(job.start_us, job.table, job.end_us) for job in ran.jobs}
    done = {(at, table, at + took) for at, table, _, took in simulation.trace or [] if at + took < 14_000_000_000}
    assert running == done
    assert any(change.recovering for change in ran.changes)
    assert simulation.log is not None


def test_a_job_loads_one_file_in_normal_mode_whatever_has_piled_up() -> None:
    scenario = section7(PARAMETERS, 5_000.0, "random")
    simulation = Simulation(replace(scenario, horizon_s=12_000.0), find_policy("adaptive(plain)"), 1, keep_log=True)
    simulation.run()
    assert simulation.log is not None
    loads = [event.job for event in simulation.log if isinstance(event, UpdateStarted) and event.at_us > 0]
    assert loads and all(len(job.files) == 1 for job in loads)


@pytest.mark.parametrize("partition", ["5min", "hour", "day", "none"])
def test_a_derived_table_takes_one_period_of_data_at_a_time(partition: str) -> None:
    """However long its partitions are: what a job takes goes up to some time inside of one."""
    base = SimTable("base", period_s=600.0, phase_s=600.0, alpha_s=10, beta=0.1)
    view = SimTable("view", ("base",), alpha_s=5, beta=0.1)
    other = replace(base, name="other", phase_s=10.0, alpha_s=500.0, period_s=3_600.0)
    scenario = SimScenario((base, view, other), tracks=1, horizon_s=7_200.0, partition=partition)
    simulation = Simulation(scenario, find_policy("adaptive(plain)"), 1, keep_log=True)
    simulation.run()
    assert simulation.log is not None
    views = [e.job for e in simulation.log if isinstance(e, UpdateStarted) and e.job.table == "view" and e.at_us > 0]
    edges = [job.complete_us for job in views if job.complete_us is not None]
    lengths = [(after - before) // 1_000_000 for before, after in pairwise(edges)]
    assert lengths and max(lengths) == min(lengths) == 600
    assert len(views) >= 8


@pytest.mark.parametrize("policy", ["adaptive", "adaptive(plain)", "adaptive(average, shared)"])
def test_everything_gets_done_on_random_graphs_and_a_log_gives_the_same_decisions_again(policy: str) -> None:
    for seed in range(12):
        scenario = Scenario(seed, policy=find_policy(policy))
        scenario.run(60)
        scenario.settle()
        check_at_rest(scenario.world)
        assert [str(d) for d in replay(scenario.world.log, find_policy(policy))] == [], f"seed {seed}"


def test_what_it_remembers_can_be_written_down_and_read_again() -> None:
    scenario = section7(PARAMETERS, 3_000.0, "random")
    for until_s in (4_000.0, 8_100.0, 8_900.0, 9_700.0):
        simulation = Simulation(replace(scenario, horizon_s=until_s), find_policy("adaptive(plain)"), 5)
        simulation.run()
        memory = simulation.controller._memory
        assert isinstance(memory, Modes)
        again = Modes(memory.tasks.values(), memory.tracks, arbitration=memory.arbitration, background=False)
        again.restore(json.loads(json.dumps(memory.dump())))
        assert again.dump() == memory.dump()
        later = memory.now_us
        for _ in range(20):
            later += 97_000_000
            old, new = memory.fork(), again.fork()
            old.advance(later)
            new.advance(later)
            assert list(old.choices()) == list(new.choices())
            assert old.load == new.load


def test_names() -> None:
    for name in ("adaptive", "adaptive(plain)", "adaptive(average, shared)", "adaptive(margin=1.5)"):
        assert find_policy(name)
    with pytest.raises(PolicyNameError, match="called 'reserve'"):
        find_policy("adaptive / max-benefit-youngest / inherit=chain")
    with pytest.raises(PolicyNameError, match="at least 1"):
        find_policy("adaptive(margin=0.5)")


def test_backlogged_files_are_merged_on_idle_tracks_where_start_up_is_dear() -> None:
    cheap = [SimTable(f"cheap{n}", period_s=300.0, alpha_s=20.0, beta=0.01) for n in range(3)]
    dear = [SimTable(f"dear{n}", period_s=900.0, alpha_s=30.0, beta=0.1) for n in range(2)]
    scenario = SimScenario(
        (*cheap, *dear), tracks=2, horizon_s=14_000.0, costs="learned", outages=(Outage(4_000.0, 9_000.0, "cheap0"),)
    )
    simulation = Simulation(scenario, find_policy("adaptive"), 1, keep_log=True)
    simulation.run()
    assert simulation.log is not None
    loads = [e.job for e in simulation.log if isinstance(e, UpdateStarted) and e.at_us > 0]
    merged = [job for job in loads if len(job.files) > 1]
    assert merged and {job.table for job in merged} == {"cheap0"}
    # No longer than the second longest job there is: 30 + 0.1 * 900 = 120 s, a quarter more as the longest.
    assert max(20 + 0.01 * 300 * len(job.files) for job in merged) <= 150


def test_guaranteed_tables_go_first_and_the_rest_share_what_is_left_by_benefit() -> None:
    feeds = tuple(Feed(name, MINUTE_US) for name in ("kept", "dear", "cheap"))
    tables = (
        Table("kept", "hour", feed="kept", guarantee=True, cost_us=20 * SECOND_US),
        Table("dear", "hour", feed="dear", priority=100, cost_us=20 * SECOND_US),
        Table("cheap", "hour", feed="cheap", cost_us=20 * SECOND_US),
    )
    controller = Controller()
    controller.apply(WarehouseDeclared(0, feeds, tables, 1, "adaptive"))
    order = []
    for second in (60, 80, 100):
        at = second * SECOND_US
        if second == 60:
            for number, feed in enumerate(("cheap", "dear", "kept")):
                controller.apply(FileArrived(at, feed, FeedFile(f"{feed}/1", "1", number + 1, at)))
        (command,) = controller.decide(at)
        order.append((command.job.table, "idle track" if "an idle track" in command.why else "deadline"))
        controller.apply(UpdateStarted(at, command.job, command.track, command.why))
        controller.apply(UpdateFinished(at + 20 * SECOND_US, command.job.id, command.job.table, (), 20.0))
    assert order == [("kept", "deadline"), ("dear", "idle track"), ("cheap", "idle track")]


def test_the_policy_reserves_what_the_bounds_assume() -> None:
    """Learned costs that vary: what is proven is proven of the reservations that are made."""
    feeds = (Feed("often", MINUTE_US), Feed("seldom", 10 * MINUTE_US))
    tables = tuple(Table(feed.name, "hour", feed=feed.name) for feed in feeds)
    controller = Controller()
    controller.apply(WarehouseDeclared(0, feeds, tables, 2, "adaptive"))
    for number, seconds in enumerate((5.0, 6.0, 4.0, 9.0, 5.0, 7.0, 3.0, 5.5)):
        for name, table in controller.state.tables.items():
            table.cost.observe(100.0 + number, seconds if name == "often" else 10 * seconds)
    outlook = LearnedOutlook(controller.state)
    policy = find_policy("adaptive").for_graph(controller.state.graph)  # type: ignore[attr-defined]
    learned = {name: table.cost for name, table in controller.state.tables.items()}
    reserved = policy.model(2, outlook)
    proven = assumed(controller.state.graph, learned, 2).model
    assert reserved.tasks == proven.tasks and reserved.merged_us == proven.merged_us
    costs = {task.table: task.cost_us / SECOND_US for task in reserved.tasks}
    assert costs["often"] >= learned["often"].usual_s + 3 * learned["often"].spread_s


@pytest.mark.parametrize("policy", ["adaptive", "adaptive(plain)"])
def test_modes_releases_and_what_is_owed_survive_a_restart(policy: str) -> None:
    """A process ends in the middle of a recovery. What the next one starts from is what the first one knew."""
    scenario = section7(PARAMETERS, 3_000.0, "random")
    simulation = Simulation(replace(scenario, horizon_s=8_900.0), find_policy(policy), 5, keep_log=True)
    simulation.run()
    before = simulation.controller.memory
    assert before.recovering
    # The state of a simulation was declared under another policy.
    simulation.controller.state.declaration.policy = policy
    state = load(json.loads(json.dumps(dump(simulation.controller.state))))
    again = Controller(state, bound(find_policy(policy), state.graph), simulation.outlook)
    assert again.memory.dump() == before.dump()
    now = simulation.kernel.now_us + 1
    running = {name for name in before.tasks if before[name].busy}
    again.apply(RunStarted(now, "second"))
    assert running and not any(again.memory[name].busy for name in running)
    assert [*again.memory.recovering] == [*before.recovering] and again.memory.owed == before.owed
