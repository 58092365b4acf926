"""Every policy through the guard on random scenarios: no two writers, chronological order, nothing lost, no track overused.

Orders, placements, inheritance and chopping are combined so that every pair of parts is tried at least once. What is checked
is read from the log alone (`legality`), and policies and logs that are wrong show that it can fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest

from penstock.control.events import Event, FileArrived, FileRewritten, UpdateFailed, UpdateFinished, UpdateStarted
from penstock.model.time import SECOND_US
from penstock.scheduling import guard
from penstock.scheduling.jobs import Decision, PolicyError, Situation, Start
from penstock.scheduling.policies import DEFAULT, ORDERS, PLACEMENTS, WHOLE, find_policy
from penstock.scheduling.policies.index import Fifo
from penstock.scheduling.protocol import UpdatePolicy
from penstock.sim.runtime import Simulation
from penstock.sim.scenario import Outage, Redelivery, Scenario, Slowdown
from tests.scheduling.legality import Illegal, check
from tests.sim.test_same_schedule import tree

ORDER = tuple(sorted(ORDERS))
PLACEMENT = (
    "global",
    "edf-partitioned",
    "edf-partitioned(aggressive)",
    "proportional(basic)",
    "proportional(basic, aggressive)",
    "proportional(all)",
    "proportional(all, aggressive)",
    "proportional(all, P, k=2)",
    "reserve",
    "reserve(headroom=2, forget=0.5, k=3)",
    "hold",
    "hold(headroom=2, care=0.5, better=1)",
)
INHERIT = ("none", "sum", "max", "max-plus(1.5)", "chain")
CHOP = ("", "1", "3", "2..10")
ADAPTIVE = ("adaptive", "adaptive(plain)", "adaptive(worst)", "adaptive(average, shared)", "adaptive(single)")


def combined() -> list[str]:
    """Every order with every placement; the other parts such that every pair of any two parts is there."""
    found = []
    for row, order in enumerate(ORDER):
        for column, placement in enumerate(PLACEMENT):
            inherit, chop = INHERIT[(row + column) % len(INHERIT)], CHOP[(row + 2 * column + column // 2) % len(CHOP)]
            found.append((order, placement, inherit, chop))
    return [f"{p} / {o} / inherit={i}" + (f" / chop={c}" if c else "") for o, p, i, c in found]


def test_every_pair_of_parts_is_tried() -> None:
    names = [name.split(" / ") for name in combined()]
    pairs = {pair for parts in names for pair in combinations(parts, 2)}
    for (one, some), (other, more) in combinations(enumerate((PLACEMENT, ORDER, [f"inherit={i}" for i in INHERIT])), 2):
        assert one < other
        for pair in product(some, more):
            assert pair in pairs, pair
    chops = [(part, parts[3] if len(parts) > 3 else "") for parts in names for part in parts[:3]]
    for part in (*PLACEMENT, *ORDER, *(f"inherit={i}" for i in INHERIT)):
        assert {chop for name, chop in chops if name == part} == {"", "chop=1", "chop=3", "chop=2..10"}, part
    assert {name.partition("(")[0] for name in PLACEMENT} == set(PLACEMENTS)
    assert {name.partition("(")[0] for name in ADAPTIVE} == set(WHOLE)


def troubled(seed: int) -> Scenario:
    """Late data, arrivals of all kinds, outages, slowdowns, failures, backfills, learned costs; until arrivals stop."""
    chance = Random(seed)
    tables = tree(chance, several_sources=True)
    for number, table in enumerate(tables):
        if table.is_base:
            kind = chance.choice(("periodic", "jittered", "bursty", "traced"))
            times = tuple(sorted(chance.uniform(0, 1500) for _ in range(12)))
            late = chance.choice((0.0, 0.3))
            tables[number] = replace(table, arrivals=kind, trace_s=times, burst=3, late_share=late, late_s=400)
    base = [t.name for t in tables if t.is_base]
    return Scenario(
        tuple(tables),
        tracks=chance.randint(1, 3),
        horizon_s=1_000_000,
        jitter=0.5,
        slowdown=Slowdown(3, 400),
        outages=(Outage(300, 500, base[0]), Outage(800, 900), Outage(1500, 2_000_000)),
        backfills=(Redelivery(700, base[-1], 0, 600), Redelivery(1200, base[0], 100, 1100)),
        failures=0.1,
        costs=chance.choice(("learned", "learned", "known")),
        partition=chance.choice(("5m", "hour")),
    )


def log_of(policy: UpdatePolicy, seed: int) -> list[Event]:
    run = Simulation(troubled(seed), policy, seed, keep_log=True)
    while run.due(1_000_000 * SECOND_US):
        run.step()
    assert run.log is not None
    return run.log


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", [*combined(), *ADAPTIVE, DEFAULT])
def test_every_policy_is_legal_and_loses_nothing(name: str, seed: int) -> None:
    # All policies have the same 40 scenarios between them, each other ones.
    where = (sum(map(ord, name)) + 20 * seed) % 40
    check(log_of(find_policy(name), where))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
@pytest.mark.parametrize("name", [*combined(), *ADAPTIVE, DEFAULT])
def test_on_many_more_scenarios(name: str, seed: int) -> None:
    check(log_of(find_policy(name), seed))


def test_the_scenarios_have_everything_in_them() -> None:
    seen = [log_of(find_policy("max-benefit"), seed) for seed in range(8)]
    assert all(any(isinstance(event, FileRewritten) for event in log) for log in seen)
    assert all(any(isinstance(event, UpdateFailed) for event in log) for log in seen)
    jobs = [event.job for log in seen for event in log if isinstance(event, UpdateStarted)]
    assert any(piece.need.late for job in jobs for piece in job.pieces), "late changes reach views"
    assert any(len(job.files) > 1 for job in jobs), "files are merged"


# Policies that are wrong


class Twice(Fifo):
    """The first job on all tracks at once."""

    def decide(self, situation: Situation) -> Decision:
        (_, job), *_ = self.ranked(situation)
        return Decision(tuple(Start(job.table, track, "") for track in situation.free))


class Crowded(Fifo):
    """Everything on track 0, busy or not."""

    def decide(self, situation: Situation) -> Decision:
        (_, job), *_ = self.ranked(situation)
        return Decision((Start(job.table, 0, ""),))


class Beyond(Fifo):
    """A track that does not exist."""

    def decide(self, situation: Situation) -> Decision:
        (_, job), *_ = self.ranked(situation)
        return Decision((Start(job.table, situation.tracks, ""),))


class Neglectful(Fifo):
    """Never the last of the tables."""

    def decide(self, situation: Situation) -> Decision:
        last = max(situation.ready)
        found = [job for _, job in self.ranked(situation) if job.table != last or last[0] == "b"]
        return Decision(tuple(Start(job.table, track, "") for track, job in zip(situation.free, found, strict=False)))


# With a view, and more than one track.
FOIL = next(seed for seed in range(99) if troubled(seed).tracks > 1 and len(troubled(seed).tables) > 6)


@pytest.mark.parametrize("policy", [Twice(), Crowded(), Beyond()])
def test_the_guard_refuses(policy: UpdatePolicy) -> None:
    with pytest.raises(PolicyError):
        log_of(policy, FOIL)


@pytest.mark.parametrize(
    ("policy", "what"),
    [(Twice(), "two writers"), (Crowded(), "two jobs on track 0"), (Beyond(), "there is no track")],
)
def test_without_the_guard_the_check_finds_it(policy: UpdatePolicy, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "guard", lambda situation, decision: None)
    run = Simulation(troubled(FOIL), policy, FOIL, keep_log=True)
    try:
        while run.due(1000 * SECOND_US):
            run.step()
    except (KeyError, AssertionError):
        pass  # the state may well fall over what it was told; what was started until then is on record
    with pytest.raises(Illegal, match=what):
        check(run.log or [])


def test_a_policy_that_neglects_a_table_is_found() -> None:
    with pytest.raises(Illegal, match=r"is behind its sources|never saw a change"):
        check(log_of(Neglectful(), FOIL))


# Logs that are wrong


def altered(log: list[Event], wanted: Callable[[Event], bool], change: Callable[[Event], Event | None]) -> list[Event]:
    """The log with its last such event changed, or left out."""
    at = max(n for n, event in enumerate(log) if wanted(event))
    made = change(log[at])
    return [*log[:at], *([made] if made is not None else []), *log[at + 1 :]]


def is_load(event: Event) -> bool:
    return isinstance(event, UpdateStarted) and event.job.kind == "load"


def is_derive(event: Event) -> bool:
    return isinstance(event, UpdateStarted) and event.job.kind == "derive" and event.job.complete_us is not None


WRONG = {
    "never loaded": (is_load, lambda e: replace(e, job=replace(e.job, files=()))),
    "a file twice": (is_load, lambda e: replace(e, job=replace(e.job, files=e.job.files * 2))),
    "sources do not have yet": (is_derive, lambda e: replace(e, job=replace(e.job, complete_us=e.at_us * 10))),
    "goes back in time": (is_derive, lambda e: replace(e, job=replace(e.job, complete_us=-(10**15)))),
    "never saw a change": (is_derive, lambda e: replace(e, job=replace(e.job, pin=0))),
    "without having started": (lambda e: isinstance(e, UpdateStarted), lambda e: None),
    "something runs|two": (lambda e: isinstance(e, UpdateFinished), lambda e: None),
    "did not come": (lambda e: isinstance(e, FileArrived), lambda e: None),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_check_finds_what_is_wrong(what: str) -> None:
    log = log_of(find_policy("max-benefit"), FOIL)
    check(log)
    with pytest.raises(Illegal, match=what):
        check(altered(log, *WRONG[what]))


def test_the_check_finds_a_file_that_overtakes() -> None:
    log = log_of(find_policy("max-benefit"), FOIL)
    arrivals = [n for n, e in enumerate(log) if isinstance(e, FileArrived) and e.at_us > 0]
    loads = [e.job.files for e in log if is_load(e)]
    # Two files of one table that were loaded one after the other: had they come in the other order, that was wrong.
    loaded = {a: n for a in arrivals for n, files in enumerate(loads) for file in files if file.uri == log[a].file.uri}
    one, other = next(
        (a, b) for a in loaded for b in loaded if a < b and log[a].feed == log[b].feed and loaded[a] < loaded[b]
    )
    late = replace(log[other], at_us=log[one].at_us)
    swapped = [*log[:one], late, *log[one:other], *log[other + 1 :]]
    with pytest.raises(Illegal, match="before an older one"):
        check(swapped)
