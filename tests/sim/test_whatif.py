"""A recorded run, run again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.control.events import Event, FileArrived, RunStarted, UpdateFinished, UpdateStarted, WarehouseDeclared
from penstock.declare.settings import write_settings
from penstock.model.time import MINUTE_US, SECOND_US
from penstock.scheduling.policies import DEFAULT, find_policy
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Scenario, SimTable
from penstock.sim.timeline import timeline, write_timeline
from penstock.sim.whatif.advice import advise
from penstock.sim.whatif.recording import Crowding, NothingRecorded, Recording, _Kept, record
from penstock.sim.whatif.replay import ChangeError, Changes, Replay, SlowPeriod, met, parse_changes, weighted
from penstock.store.store import Store

# Four feeds and two views, busy enough that the order matters.
WORLD = Scenario(
    (
        SimTable("a", period_s=60, phase_s=10, priority=5, alpha_s=8, beta=0.1),
        SimTable("b", period_s=60, phase_s=20, alpha_s=8, beta=0.1),
        SimTable("c", period_s=300, phase_s=30, alpha_s=20, beta=0.1),
        SimTable("d", period_s=600, phase_s=40, alpha_s=30, beta=0.1),
        SimTable("ab", ("a", "b"), priority=3, alpha_s=10, beta=0.05),
        SimTable("per_c", ("c",), alpha_s=10, beta=0.05),
    ),
    tracks=2,
    horizon_s=7200,
    partition="hour",
)


def run_log(policy: str = "max-benefit") -> tuple[list[Event], Simulation]:
    run = Simulation(WORLD, find_policy(policy), 1, trace=True, keep_log=True)
    run.run()
    assert run.log is not None
    return run.log, run


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(enumerate(run_log()[0], 1))


def test_tables_that_one_job_makes_are_published_together() -> None:
    def with_follower(event: Event) -> Event:
        if not isinstance(event, WarehouseDeclared):
            return event
        (lead,) = [table for table in event.tables if table.name == "ab"]
        follower = replace(lead, name="beside", leader="ab")
        below = replace(lead, name="below", sources=(replace(lead.sources[0], table="beside"),))
        return replace(event, tables=(*event.tables, follower, below))

    found = Replay(record(enumerate(map(with_follower, run_log()[0]), 1)), crowding=Crowding(0.0))
    found.run()
    tables = found.controller.state.tables
    assert tables["beside"].counts.updates == tables["ab"].counts.updates > 10
    assert tables["beside"].edge_us == tables["ab"].edge_us
    assert tables["below"].counts.updates > 10  # who reads a follower follows


def test_a_replay_of_what_was_gives_about_what_was(recording: Recording) -> None:
    # The simulated world has no crowding; its costs are those that the policy learned.
    again = Replay(recording, crowding=Crowding(0.0)).run()
    assert again.weighted_s == pytest.approx(weighted(recording.freshness), rel=0.05)
    assert again.updates == pytest.approx(recording.updates, rel=0.05)


def test_the_same_seed_gives_the_same_run(recording: Recording) -> None:
    assert Replay(recording, "fifo", 3, seed=4).run() == Replay(recording, "fifo", 3, seed=4).run()


def test_more_data_and_fewer_tracks_make_it_staler(recording: Recording) -> None:
    def stale(tracks: int, volume: float) -> float:
        return Replay(recording, None, tracks, parse_changes(recording.declared, volume, [], [])).run().weighted_s

    assert stale(1, 1) > stale(2, 1)
    assert stale(2, 4) > stale(2, 1)


def test_an_outage_is_seen_in_the_table_of_the_feed_and_below(recording: Recording) -> None:
    changes = parse_changes(recording.declared, 1, ["c@30m..60m"], [])
    calm = {t.table: t for t in Replay(recording).run().freshness}
    hit = {t.table: t for t in Replay(recording, changes=changes).run().freshness}
    assert hit["c"].peak_s >= 1800 > calm["c"].peak_s
    assert hit["per_c"].peak_s >= 1800 > calm["per_c"].peak_s
    assert hit["a"].peak_s < 1800


def test_a_slow_machine_makes_updates_longer_while_it_lasts(recording: Recording) -> None:
    length = recording.end_us - recording.start_us
    slow = Changes(slowdowns=(SlowPeriod(length // 4, length // 2, 3.0),))
    assert [slow.slowness(at) for at in (0, length // 4, length // 2 - 1, length // 2)] == [1.0, 3.0, 3.0, 1.0]

    def took(changes: Changes) -> dict[bool, float]:
        """The mean time of updates that start in that stretch, and of all others."""
        found = Replay(recording, changes=changes, crowding=Crowding(0.0), keep_log=True).run()
        begun = {event.job.id: event.at_us for event in found.log if isinstance(event, UpdateStarted)}
        lengths: dict[bool, list[float]] = {True: [], False: []}
        for event in found.log:
            if isinstance(event, UpdateFinished):
                inside = length // 4 <= begun[event.job] - recording.start_us < length // 2
                lengths[inside].append(event.seconds)
        return {inside: sum(all_) / len(all_) for inside, all_ in lengths.items()}

    before, after = took(Changes()), took(slow)
    assert after[True] > 2 * before[True] and after[False] < 1.5 * before[False]
    assert Replay(recording, changes=slow).run().weighted_s > Replay(recording).run().weighted_s


def test_more_tables_like_one(recording: Recording) -> None:
    changes = parse_changes(recording.declared, 1, [], ["per_c*3", "a"])
    found = Replay(recording, changes=changes).run()
    names = {t.table for t in found.freshness}
    assert {"per_c+1", "per_c+2", "per_c+3", "a+1"} <= names
    assert found.weighted_s > Replay(recording).run().weighted_s


def test_a_table_without_history_costs_about_what_others_do(recording: Recording) -> None:
    known = {name: cost for name, cost in recording.costs.items() if name != "per_c"}
    replay = Replay(replace(recording, costs=known))
    assert replay.costs["per_c"].alpha_s == recording.costs["ab"].alpha_s


@pytest.mark.parametrize(
    ("outages", "additions", "message"),
    [
        (["10m"], [], "expected START..END"),
        (["e@1m..2m"], [], "there is no feed `e`"),
        (["10m..5m"], [], "it must end after it starts"),
        (["1x..5m"], [], "is not a duration"),
        (["a:1m..5m"], [], "such as 10m..25m or feed@10m..25m"),
        ([], ["per_b"], "did you mean `per_c`?"),
        ([], ["a*0"], "expected how many"),
    ],
)
def test_wrong_changes(recording: Recording, outages: list[str], additions: list[str], message: str) -> None:
    with pytest.raises(ChangeError) as error:
        parse_changes(recording.declared, 1, outages, additions)
    assert message in str(error.value)


def test_an_empty_log() -> None:
    with pytest.raises(NothingRecorded, match="penstock run"):
        record(iter([]))


def test_crowding_is_told_from_the_log() -> None:
    """Updates that took half as long again beside another show it."""
    log, _ = run_log()
    slower: list[Event] = []
    busy: set[str] = set()
    late: dict[str, bool] = {}
    for event in log:
        if isinstance(event, UpdateStarted):
            late[event.job.id] = bool(busy)
            busy.add(event.job.id)
        elif event.kind == "update-finished":
            busy.discard(event.job)
            beside = (1 + late.pop(event.job) + 1 + len(busy)) / 2
            event = replace(event, seconds=event.seconds * (1 + 0.5 * (beside - 1)))
        slower.append(event)
    found = record(enumerate(slower, 1)).crowding
    assert found.measured and 0.2 < found.growth < 0.9
    assert found.factor(3) > found.factor(1)
    assert Crowding(0.5, 2.0).factor(2) == 1.0


def test_time_within_target() -> None:
    """Complete up to 0 at 0, up to 50 at 60, seen at 100, target 30: within it for 30 of 60 s, then 20 of 40 s."""
    kept = _Kept(0, 0, 30)
    kept.moved(60, 50)
    kept.moved(100, 50)
    assert (kept.met_us, kept.total_us, kept.peak_us) == (30 + 20, 100, 60)
    # (60² / 2 + (50² - 10²) / 2) / 100 = 30
    assert kept.area * SECOND_US**2 / 100 == pytest.approx(30)


def test_a_table_that_is_never_made_again_is_not_fresh() -> None:
    """The log ends soon after its first updates; what a replay does not get to must not look better for it."""
    log = run_log()[0]
    short = record(enumerate([event for event in log if event.at_us < MINUTE_US], 1))
    assert short.is_short and not record(enumerate(log, 1)).is_short
    slow = Changes(slowdowns=(SlowPeriod(0, 10**15, 1000.0),))
    never = {table.table: table for table in Replay(short, changes=slow).run().freshness}
    was = {table.table: table for table in short.freshness}
    assert all(never[name].mean_s >= was[name].mean_s for name in was)
    assert never["per_c"].mean_s > 0


def test_advice_takes_the_fewest_tracks_that_are_about_as_good() -> None:
    def row(policy: str, tracks: int, stale: float, often: float | None, seed: int = 1) -> dict[str, object]:
        return {"policy": policy, "tracks": tracks, "seed": seed, "weighted_staleness_s": stale, "targets_met": often}

    rows = [
        row("x", 1, 200, 0.5),
        row("x", 2, 104, 0.95),
        row("y", 2, 120, 0.95),
        row("x", 4, 100, 0.95),
    ]
    found = advise(rows)
    assert (found.policy, found.tracks) == ("x", 2)
    assert found.why == (
        "fewer tracks make it 92 % staler, in target 50 % of the time instead of 95 %; more tracks make it 4 % fresher; "
        "the next best policy, y, is 15 % staler"
    )
    # Targets go before staleness.
    assert advise([row("x", 1, 100, 0.9), row("y", 1, 140, 1.0)]).policy == "y"
    assert advise([row("x", 1, 100, None), row("y", 1, 140, None)]).policy == "x"
    # Nobody changes a policy for nothing.
    close = [row("x", 1, 100, 0.99), row("y", 1, 100.8, 0.985)]
    assert advise(close).policy == "x" and advise(close, "y").policy == "y" and advise(close, "z").policy == "x"
    assert advise([row("x", 1, 100, 1.0), row("y", 1, 103, 1.0)], "y").policy == "x"
    assert advise([row("x", 1, 100, 1.0), row("y", 2, 99, 1.0)], "y").policy == "x"
    assert advise([*close, row(DEFAULT, 1, 100.5, 0.99)], "z").policy == DEFAULT
    assert advise([*close, row(DEFAULT, 1, 100.5, 0.99)], "y").policy == "y"
    # Nor for what may be chance: seeds are compared one by one.
    lucky = [row("x", 1, stale, 0.95, seed) for seed, stale in enumerate((90, 100, 110))]
    unlike = [row("y", 1, stale, 0.92, seed) for seed, stale in enumerate((105, 96, 105))]
    alike = [row("y", 1, stale, 0.95, seed) for seed, stale in enumerate((92, 102, 112))]
    assert advise(lucky + unlike, "y").policy == "x"  # less often in target, with every seed
    assert advise(lucky + alike, "y").policy == "x"  # 2 staler, with every seed
    scattered = [replace_row | {"targets_met": 0.95} for replace_row in unlike]
    found = advise(lucky + scattered, "y")
    assert found.policy == "y" and found.why == "the next best policy, x, is 2 % fresher, which may be chance"
    # More tracks must bring more than chance, too.
    many = [
        row("x", 4, stale, often, seed) for seed, (stale, often) in enumerate(((99, 0.99), (100, 0.94), (101, 0.98)))
    ]
    assert advise([*lucky, *many]).tracks == 1
    # And with too little to go by everything stays as it is.
    found = advise(rows, "y", keep=(2, "too little is known"))
    assert (found.policy, found.tracks, found.why) == ("y", 2, "too little is known")


def test_a_timeline_is_the_trace(tmp_path: Path) -> None:
    log, run = run_log()
    found = timeline(log)
    starts = [(bar.start_us, bar.table, bar.track) for bar in found.bars if bar.start_us > 0]
    assert run.trace is not None
    assert sorted(starts) == sorted((at, table, track) for at, table, track, _ in run.trace)
    assert len([bar for bar in found.bars if bar.end_us is None]) == len(run.controller.state.busy)
    # What a dead process was doing is not there.
    assert all(bar.end_us is not None for bar in timeline([*log, RunStarted(found.end_us, "next")]).bars)
    later = timeline(log, 60 * MINUTE_US)
    assert later.start_us == 60 * MINUTE_US and len(later.bars) < len(found.bars)
    for name in ("run.svg", "run.png"):
        write_timeline(tmp_path / name, "run", found)
        assert (tmp_path / name).stat().st_size > 5000


PROJECT = {
    "penstock.toml": """name = "shop"
[run]
tracks = 2  # as many as cores

[feeds.a]
path = "in/a/*.json"
format = "json"
columns = "t timestamp, v int"
time = "t"
period = "1m"
partition = "hour"
freshness = "5m"
""",
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with a log, as if it had run."""
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / ".penstock").mkdir()
    world = replace(WORLD, tables=WORLD.tables[:1], tracks=2)
    run = Simulation(world, find_policy("max-benefit"), 1, keep_log=True)
    run.run()
    store = Store(f"sqlite:///{tmp_path}/.penstock/penstock.db")
    store.create()
    with store.write() as conn:
        store.append(conn, run.log or [])
    store.close()
    return tmp_path


def call(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*words], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output
    return result.output


def test_what_if_from_the_command_line(shop: Path) -> None:
    some = ["-p", str(shop), "--policy", "max-benefit", "--policy", "fifo", "--seeds", "1", "--jobs", "1"]
    shown = call("simulate", *some, "--volume", "2", "--outage", "a@10m..20m", "--add", "a*2")
    assert "with 2 times the volume, a out for 10m, 2 more tables" in shown and "as it was" in shown
    pictures = ["--plot", str(shop / "p.png"), "--gantt", str(shop / "g.svg")]
    result = CliRunner().invoke(app, ["simulate", *some, "--tracks", "1..2", "--json", *pictures])
    found = json.loads(result.stdout)
    assert [(row["policy"], row["tracks"]) for row in found["runs"]] == [
        ("max-benefit", 1),
        ("fifo", 1),
        ("max-benefit", 2),
        ("fifo", 2),
    ]
    assert found["advice"]["tracks"] in (1, 2) and found["recorded"]["updates"] > 10
    assert (shop / "p.png").exists() and (shop / "g.svg").exists()
    assert "after the end of the log" in call("simulate", *some, "--outage", "90h..91h", code=1)
    assert "there is no feed `b`" in call("simulate", *some, "--outage", "b@1m..2m", code=1)
    assert "is not a policy" in call("simulate", "-p", str(shop), "--policy", "best", code=1)


def test_tune_writes_what_it_finds(shop: Path) -> None:
    shown = call("tune", "-p", str(shop), "--seeds", "1", "--tracks", "1,2", "--policy", "fifo", "--jobs", "1")
    assert 'policy = "fifo"' in shown
    text = (shop / "penstock.toml").read_text()
    call("tune", "-p", str(shop), "--seeds", "1", "--tracks", "1", "--policy", "fifo", "--jobs", "1", "--write")
    changed = (shop / "penstock.toml").read_text()
    assert changed == text.replace("tracks = 2  # as many as cores", 'policy = "fifo"\ntracks = 1  # as many as cores')


def test_the_timeline_command(shop: Path) -> None:
    shown = call("timeline", "-p", str(shop), "--since", "10m", "--plot", str(shop / "t.svg"))
    assert "because it" in shown and (shop / "t.svg").exists()
    bars = json.loads(call("timeline", "-p", str(shop), "--since", "10m", "--json"))
    assert bars and {bar["table"] for bar in bars} == {"a"}
    assert "there is no table `z`" in call("timeline", "-p", str(shop), "--table", "z", code=1)
    assert "--since soon" in call("timeline", "-p", str(shop), "--since", "soon", code=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "\n\n[run]\ntracks = 3\n"),
        ('[run]\npolicy = "x" # y\n', '[run]\ntracks = 3\npolicy = "x" # y\n'),
        ("[run]\ntracks = 1\n", "[run]\ntracks = 3\n"),
        ("run.tracks = 1 # few\n", "run.tracks = 3 # few\n"),
    ],
)
def test_settings_are_written_in_place(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "penstock.toml").write_text(text)
    write_settings(tmp_path, "run", {"tracks": 3})
    assert (tmp_path / "penstock.toml").read_text() == expected


def test_arrivals_are_those_of_the_log(recording: Recording) -> None:
    log, _ = run_log()
    assert [a for a in log if isinstance(a, FileArrived)] == list(recording.arrivals)
    assert met(recording.freshness) is None
