"""What is wrong in a scenario or a setting is told: where, what was found, what was expected. Never a stack of calls, never a
number that means nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.papers import load_all
from penstock.papers.experiment import ExperimentError, listed
from penstock.papers.scheduling.golab import mostly_better, never_worse
from penstock.scheduling.policies import ORDERS, POLICIES, find_policy
from penstock.scheduling.policies import WHOLE as WHOLES
from penstock.sim.arrivals import batches
from penstock.sim.outcome import sweep
from penstock.sim.read import scenario_of
from penstock.sim.runtime import simulate
from penstock.sim.scenario import Scenario, ScenarioError, SimTable, Slowdown


def refused(text: str) -> str:
    with pytest.raises(ScenarioError) as error:
        scenario_of(tomllib.loads(text), "file.toml")
    return str(error.value)


def told(*arguments: str) -> str:
    """What an unsuccessful command says."""
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit), (result.output, result.exception)
    return result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # The first batch.
        ("horizon=1000\n[tables.a]\nphase=500\nperiod=10", "`tables.a.phase` is 500 s; the first batch comes in the first"),
        ("[tables.a]\nphase=-1", "`tables.a.phase` is -1; expected at least 0"),
        ("[tables.a]\narrivals='traced'\ntrace=[]", "table 'a' has traced arrivals; expected `trace`"),
        ("[tables.a]\narrivals='traced'\ntrace=[-5, 60]", "`tables.a.trace.0` is -5; expected at least 0"),
        # What would have no effect.
        ("[tables.a]\n[tables.b]\nsources=['a']\nperiod=5", "`tables.b.period`: b is made from other tables and has no"),
        ("[tables.a]\n[tables.b]\nsources=['a']\narrivals='bursty'", "`tables.b.arrivals`: b is made from other tables"),
        ("[tables.a]\ntrace=[60]", '`tables.a.trace` is nothing that periodic arrivals have; leave it out, or write arrivals'),
        ("[tables.a]\narrivals='traced'\ntrace=[60]\nphase=3", "`tables.a.phase` is nothing that traced arrivals have"),
        ("[tables.a]\nlate='1h'", "`tables.a.late` needs `late_share`"),
        ("[tables.a]\nlate_share=0.2", "`tables.a.late_share` needs `late`"),
        # Outages and backfills.
        ("[tables.a]\n[tables.b]\nsources=['a']\n[[outages]]\ntable='b'\nstart=1\nend=2", "outage: b is made from other"),
        ("[tables.a]\n[tables.b]\nsources=['a']\n[[backfills]]\ntable='b'\nat=9\nstart=1\nend=2", "name one of a"),
        ("[tables.a]\n[[outages]]\nstart=20\nend=10", "the outage ends at 10 s; expected an end after its start, 20 s"),
        ("[tables.a]\n[[backfills]]\ntable='a'\nat=9\nstart=5\nend=5", "the backfill of a ends at 5 s; expected an end after"),
        ("[tables.a]\n[[backfills]]\ntable='a'\nat=9\nstart=10\nend=15", "when no rows from 10 s on have come yet"),
        ("[tables.a]\ncount=2\n[[outages]]\ntable='a'\nstart=1\nend=2", "no table 'a' in the scenario, but a-0, a-1 are"),
        ("[tables.a]\n[[outages]]\nstart=-1\nend=2", "`outages.0.start` is -1; expected at least 0"),
        ("[tables.a]\n[[outages]]\nstart=1", "`outages.0.end` is missing"),
        # Numbers.
        ("[tables.a]\nlate=-5\nlate_share=0.1", "`tables.a.late` is -5; expected at least 0"),
        ("horizon=nan\n[tables.a]", "`horizon` is nan; expected a finite number"),
        ("horizon=inf\n[tables.a]", "`horizon` is inf; expected a finite number"),
        ("horizon=0\n[tables.a]", "`horizon` is 0; expected more than 0"),
        ("horizon=1e300\n[tables.a]", "`horizon` is 1e+300; expected a number from 1e-06 to 1e+12"),
        ("[tables.a]\nperiod=1e-9", "`tables.a.period` is 1e-09; expected a number from 1e-06"),
        ("[tables.a]\nalpha=nan", "`tables.a.alpha` is nan; expected a finite number"),
        ("[tables.a]\nalpha=-1", "`tables.a.alpha` is -1; expected at least 0"),
        ("[tables.a]\nbeta=inf", "`tables.a.beta` is inf; expected a finite number"),
        ("[tables.a]\nalpha=0\nbeta=0", "table 'a': alpha and beta are both 0, but an update takes some time"),
        ("[tables.a]\npriority=0", "all priorities are 0, so no staleness counts; set one, such as priority = 1"),
        ("[tables.a]\npriority=nan", "`tables.a.priority` is nan"),
        ("[tables.a]\npatience=-1", "`tables.a.patience` is -1; expected at least 0"),
        ("tracks=0\n[tables.a]", "`tracks` is 0; expected at least 1"),
        ("jitter=1.5\n[tables.a]", "`jitter` is 1.5; expected at most 1"),
        ("failures=-0.1\n[tables.a]", "`failures` is -0.1; expected at least 0"),
        ("[slowdown]\nfactor=0.5\n[tables.a]", "`slowdown.factor` is 0.5; expected at least 1"),
        ("[slowdown]\nshare=2\n[tables.a]", "`slowdown.share` is 2; expected at most 1"),
        ("[slowdown]\ncycle=0\n[tables.a]", "`slowdown.cycle` is 0; expected more than 0"),
        # Names.
        ("partition='fortnight'\n[tables.a]", "'fortnight' is not a partitioning; expected minutes such as 5m, hour, day"),
        ('[tables.""]', "a table has no name; write for example [tables.orders]"),
        ("[tables.a]\nsources=['a']", "table 'a' reads itself; its sources are other tables"),
        ("[tables.a]\nsources=['b']\n[tables.b]\nsources=['a']", "file.toml: tables depend on each other in a circle"),
        ("[tables.orders]\n[tables.b]\nsources=['order']", "reads 'order', which is not in the scenario; did you mean `orders`?"),
        ("[tables.a]\ncount=5\n[tables.b]\nsources=['a']", "which is not in the scenario, but a-0, a-1, a-2 … are"),
        ("[tables.a]\nperid=3", "file.toml: unknown key `tables.a.perid`; did you mean `period`?"),
        ("horizn=3\n[tables.a]", "unknown key `horizn`; did you mean `horizon`?"),
        ("[slowdown]\nfaktor=3\n[tables.a]", "unknown key `slowdown.faktor`; did you mean `factor`?"),
        ("[tables.a]\narrivals='burst'", "expected one of periodic, jittered, bursty, traced; did you mean `bursty`?"),
        ("", "a scenario needs at least one table"),
    ],
)  # fmt: skip
def test_wrong_scenarios(text: str, message: str) -> None:
    assert message in refused(text)


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert len(refused("tracks=0\nhorizon=-1\n[tables.a]\nperid=3").splitlines()) == 3


def test_a_trace_in_any_order() -> None:
    scenario, _ = scenario_of({"tables": {"a": {"arrivals": "traced", "trace": [300, 60, "2m"]}}})
    assert [batch.to_us // 10**6 for batch in batches(scenario, scenario.tables[0], 1)] == [60, 120, 300]


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario((SimTable("a"),), tracks=0),
        Scenario((SimTable("a"),), horizon_s=float("inf")),
        Scenario((SimTable("a"),), jitter=float("nan")),
        Scenario((SimTable("a"),), slowdown=Slowdown(3, share=2)),
        Scenario((SimTable("a", arrivals="traced", trace_s=(9, 3)),)),
        Scenario((SimTable("a", period_s=0),)),
    ],
)
def test_a_scenario_made_by_a_program_is_checked_too(scenario: Scenario) -> None:
    with pytest.raises(ScenarioError):
        scenario.check()


def test_files_that_are_none(tmp_path: Path) -> None:
    assert "is a folder; name the scenario in it" in told("simulate", str(tmp_path))
    (tmp_path / "latin.toml").write_bytes('name = "Zürich"'.encode("latin-1"))
    assert "latin.toml: byte 9 is not UTF-8; save the file as UTF-8 text" in told(
        "simulate", str(tmp_path / "latin.toml")
    )


# Experiments


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("policies=nope", "policies=nope: 'nope' is not a policy; expected one of"),
        ("policies=max-benefit, fifi", "policies=fifi: 'fifi' is not a policy"),
        ("policies=", "policies=: expected at least one value, such as policies=max-benefit"),
        ("utilisation=0", "utilisation=0: expected more than 0"),
        ("utilisation=-1", "utilisation=-1: expected more than 0"),
        ("utilisation=0.8,x", "utilisation=x: expected a number"),
        ("tracks=0", "tracks=0: expected at least 1"),
        ("tracks=1.5", "tracks=1.5: expected a whole number"),
        ("jobs=0", "jobs=0: expected at least 1"),
        ("events=0", "events=0: expected at least 1"),
        ("events=-5", "events=-5: expected at least 1"),
        ("period=0", "period=0: expected more than 0"),
        ("long_period=-1", "long_period=-1: expected more than 0"),
        ("cycle=0", "cycle=0: expected more than 0"),
        ("jitter=5", "`jitter` is 5; expected a number from 0 to 1"),
        ("alpha=nan", "alpha=nan: expected a number"),
        ("alpha=-1", "alpha` is -"),
        ("slowdown=0.5", "slowdown=0.5: expected 1 for none, or at least 2"),
        ("slowdown=0", "slowdown=0: expected 1 for none, or at least 2"),
        ("slowdown=1.5", "slowdown=1.5: expected 1 for none, or at least 2"),
    ],
)
def test_wrong_settings(settings: str, message: str) -> None:
    assert message in told("experiment", "golab-fig9", "--set", settings)


def test_wrong_settings_of_one_for_all() -> None:
    assert "policy=nope: 'nope' is not a policy" in told("experiment", "one-for-all", "--set", "policy=nope")
    message = told("experiment", "one-for-all", "--set", "figures=golab-fig6,golab-fg8")
    assert "figures=golab-fg8: there is no such figure" in message and "did you mean `golab-fig8`?" in message
    assert "utilisation=-1: expected more than 0" in told("experiment", "one-for-all", "--set", "utilisation=-1")
    assert "utilisation=x: expected own" in told("experiment", "one-for-all", "--set", "utilisation=x")


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [("aus-section7", "policies=nope", "'nope' is not a policy"), ("unit-fig3", "scale=0", "unit-fig3 cannot run with scale=0 (")],
)  # fmt: skip
def test_settings_that_only_the_run_finds_wrong(name: str, setting: str, message: str, jobs: str) -> None:
    assert message in told("experiment", name, "--set", setting, "--seeds", "2", "--jobs", jobs)


def test_lists() -> None:
    assert (
        listed("max-benefit, fifo")
        == listed("max-benefit;fifo")
        == listed("max-benefit ; fifo,")
        == ["max-benefit", "fifo"]
    )
    assert listed("proportional(all, k=1) / edf, fifo") == ["proportional(all, k=1) / edf", "fifo"]
    known = load_all()
    set_ = known["etl-mixed"].with_settings(["policies=minimum-cost, all processors, mixed", "processors=1;2"])
    assert (set_["policies"], set_["processors"]) == (("minimum-cost, all processors", "mixed"), (1, 2))
    assert known["golab-fig9"].with_settings(["events=1e4", "utilisation=0.8,0.8"])["events"] == 10_000
    with pytest.raises(ExperimentError):
        known["golab-fig9"].with_settings(["events=1e400"])


def test_what_cannot_be_compared_is_not_judged() -> None:
    small = ["--set", "events=400", "--set", "utilisation=0.7", "--seeds", "1", "--jobs", "1"]
    for name in ("golab-fig5", "golab-fig9"):
        shown = CliRunner().invoke(app, ["experiment", name, *small, "--set", "policies=fifo"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0 and "not compared" in shown.output and "does not" not in shown.output
    assert never_worse([], "claim", "ours", ["best"]).holds is None
    assert mostly_better([], "claim", "ours", "best").holds is None


def test_the_policy_of_one_for_all_may_be_one_of_the_figure() -> None:
    found = load_all()["one-for-all"]
    set_ = found.with_settings(["figures=golab-fig6", "policy=max-benefit", "events=400", "utilisation=0.7"])
    rows = [row for task in found.tasks(set_, [1]) for row in found.work(task)]
    assert [row["policy"] for row in rows] == ["random", "edf-partitioned", "proportional(basic)", "max-benefit"]
    assert found.judge(rows)[0].holds is not None


# Policies of the user's own


HEAD = """
from penstock.scheduling.jobs import Decision, Start
from penstock.scheduling.placement.base import Placement
from penstock.scheduling.policies import IndexPolicy, register
"""
ORDER = HEAD + "@register('own-{name}')\nclass Own(IndexPolicy):\n    def why(self, job, value): return ''\n"
WHOLE = HEAD + "@register('own-{name}')\nclass Own:\n    def decide(self, situation):\n        "
FIRST = "first = next(iter(situation.ready))\n        "
WRONG = {
    "twice": (WHOLE + FIRST + "return Decision((Start(first, 0), Start(first, 1)))", "the policy started a twice"),
    "unknown": (WHOLE + "return Decision((Start('x', situation.free[0]),))", "the policy started x, which is not ready"),
    "track": (WHOLE + FIRST + "return Decision((Start(first, 7),))", "the policy put a on track 7, which is not free"),
    "stops": (WHOLE + "raise StopIteration", "the policy failed with StopIteration (policies.py:8)"),
    "divides": (WHOLE + "return 1 / 0", "the policy failed with ZeroDivisionError: division by zero (policies.py:8)"),
    "none": (WHOLE + "return None", "the policy answered None; expected a Decision"),
    "nan": (ORDER + "    def index(self, job): return float('nan'), 0.0", "its index of a is (nan, 0.0); expected two numbers"),
    "one": (ORDER + "    def index(self, job): return 3.0", "its index of a is 3.0; expected two numbers (a, b)"),
    "words": (ORDER + "    def index(self, job): return 'x', 'y'", "its index of a is ('x', 'y'); expected two numbers"),
    "fails": (ORDER + "    def index(self, job): return job.nothing", "the policy failed with AttributeError"),
    "half": (ORDER.replace("why", "index"), "the policy cannot be made: Can't instantiate abstract class Own"),
}  # fmt: skip


@pytest.fixture
def forgotten() -> Iterator[None]:
    before = [(kind, dict(kind)) for kind in (POLICIES, ORDERS, WHOLES)]
    yield
    for kind, known in before:
        kind.clear()
        kind.update(known)
    find_policy.cache_clear()


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_policy_is_told_by_its_name(name: str, tmp_path: Path) -> None:
    code, message = WRONG[name]
    file = tmp_path / "scenario.toml"
    (tmp_path / "policies.py").write_text(code.replace("{name}", name))
    file.write_text("tracks = 2\nhorizon = 500\n[tables.a]\nphase = 3\nalpha = 5\n[tables.b]\nphase = 4\nalpha = 5\n")
    for options in (("--jobs", "1"), ("--jobs", "2"), ("--jobs", "1", "--full")):
        said = told("simulate", str(file), "--policy", "fifo", "--policy", f"own-{name}", "--seeds", "2", *options)
        assert f"own-{name}: {message}" in said


def test_no_point_is_lost() -> None:
    def work(point: int) -> int:
        return next(iter(())) if point else point

    with pytest.raises(RuntimeError):
        list(sweep(work, [0, 1], jobs=1))


def test_a_trace_that_begins_late_leaves_the_table_as_stale_as_it_is() -> None:
    """Complete up to the start, and nothing comes for ten minutes; then a second of work, which the first batch takes."""
    scenario = Scenario((SimTable("a", arrivals="traced", trace_s=(600,), alpha_s=1, beta=0),), horizon_s=601)
    assert simulate(scenario, find_policy("fifo")).staleness_s["a"] == pytest.approx(601 / 2)
