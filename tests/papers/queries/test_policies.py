"""Query policies on one processor: by hand, against brute force, and on loads made to trouble them."""

from __future__ import annotations

import json
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.papers.queries.processor import Served, serve
from penstock.papers.queries.workload import TRACES, Load, Workload, workload
from penstock.queries.contract import NAIVE, OutcomeWeights
from penstock.queries.outcome import Cause, Ending
from penstock.queries.policies import DEFAULT, POLICIES
from penstock.queries.policies.max_satisfaction import MaxSatisfaction
from penstock.queries.policies.unit import Unit, UnitMemory, UnitSettings
from penstock.queries.situation import Items

NEVER = 1e9


def small(
    queries: list[tuple[float, int, float, float]], cost: list[float], period: list[float], first: list[float]
) -> Workload:
    return Workload(1000.0, queries, cost, period, first)


def ends(served: Served) -> tuple[int, int, int, int]:
    return served.success, served.rejected, served.missed, served.stale


# Item 0 is renewed at 10 and costs 5, item 1 at 11 and costs 4. A query of 3 s for item 0 arrives at 12 with 9 s of time, another of
# 2 s for item 2, which is never renewed, at 12.5 with 4 s.
CASE = small([(12.0, 0, 3.0, 9.0), (12.5, 2, 2.0, 4.0)], [5.0, 4.0, 1.0], [NEVER] * 3, [10.0, 11.0, NEVER])


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # Updates 10-15 and 15-19; then 2 s are left for 3 s, and the other lapsed at 16.5.
        ("immediate", (0, 0, 2, 0)),
        # The refresh of item 0 from 12 to 17 goes before the second query (lapsed at 16.5); then the first, 17-20.
        ("on-demand", (1, 0, 1, 0)),
        # First: 5 + 3 <= 9, admitted, refresh 12-17. Second: behind 4.5 s of refresh it needs 6.5 of its 4 s.
        ("admission+on-demand", (1, 1, 0, 0)),
        # First: 8 s of updates before it: too much. Second: 6.5 + 2 > 4.
        ("unit", (0, 2, 0, 0)),
        # Idle: item 0 is refreshed as soon as it is asked for; the second goes between, 12.5-14.5; refresh until 19. Then 3 s
        # do not fit before 21. Together 5 + 3 + 2 = 10 > 9: one must go, the costly one.
        (DEFAULT, (1, 0, 1, 0)),
    ],
)
def test_a_case_by_hand(policy: str, expected: tuple[int, int, int, int]) -> None:
    assert ends(serve(CASE, POLICIES[policy]())) == expected


def test_an_update_aborts_who_reads() -> None:
    # A query from 0 to 10; at 4 its item is renewed, update 4-9, then it begins anew: 9-19.
    case = small([(0.0, 0, 10.0, 18.9)], [5.0], [NEVER], [4.0])
    assert ends(serve(case, POLICIES["immediate"]())) == (0, 0, 1, 0)
    case = small([(0.0, 0, 10.0, 19.1)], [5.0], [NEVER], [4.0])
    assert ends(serve(case, POLICIES["immediate"]())) == (1, 0, 0, 0)
    # An update of another item only interrupts it: 0-4, 9-15.
    case = small([(0.0, 0, 10.0, 15.1)], [5.0, 5.0], [NEVER] * 2, [NEVER, 4.0])
    assert ends(serve(case, POLICIES["immediate"]())) == (1, 0, 0, 0)


def test_who_shares_a_refresh() -> None:
    """Three queries of a stale item, 1 s each, and one of a fresh item of 4 s; 9 s for all, a refresh takes 5: the three and the refresh
    cost 8 s, so the one of 4 s goes."""
    asked = [(1.0, 1, 4.0, 9.0)] + [(1.0, 0, 1.0, 9.0)] * 3
    case = small(asked, [5.0, 1.0], [NEVER] * 2, [0.5, NEVER])
    assert ends(serve(case, MaxSatisfaction())) == (3, 0, 1, 0)


def test_idle_time_is_used() -> None:
    """Item 0 was asked for before and is renewed at 20: refreshed in idle time, so that a query at 40 has no need to wait."""
    asked = [(1.0, 0, 1.0, 5.0), (40.0, 0, 1.0, 1.5)]
    case = small(asked, [10.0], [NEVER], [20.0])
    assert ends(serve(case, MaxSatisfaction())) == (2, 0, 0, 0)
    assert ends(serve(case, POLICIES["on-demand"]())) == (1, 0, 1, 0)


WEIGHTS = st.sampled_from(
    [
        NAIVE,
        OutcomeWeights(1, 0.5, 0.1, 0.1),
        OutcomeWeights(1, 1, 5, 1),
        OutcomeWeights(1, 5, 1, 1),
        OutcomeWeights(1, 1, 1, 5),
    ]
)
TIMES = st.integers(0, 60)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=60)
@given(
    asked=st.lists(
        st.tuples(TIMES, st.integers(0, 3), st.integers(1, 12), st.integers(1, 40)), min_size=1, max_size=25
    ),
    cost=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    period=st.lists(st.integers(3, 50), min_size=4, max_size=4),
    weights=WEIGHTS,
)
def test_every_query_ends_in_exactly_one_way(
    policy: str, asked: list[tuple[int, int, int, int]], cost: list[int], period: list[int], weights: OutcomeWeights
) -> None:
    queries = [(float(a), i, float(c), float(d)) for a, i, c, d in sorted(asked)]
    case = small(queries, [float(c) for c in cost], [float(p) for p in period], [p / 2 for p in period])
    served = serve(case, POLICIES[policy](), weights)
    assert sum(ends(served)) == len(queries) == sum(served.reads)
    assert sum(served.causes.values()) == served.rejected
    assert served.busy <= 1 + 1e-9
    assert all(done <= came + 1 for done, came in zip(served.updated, served.arrived, strict=True))
    if policy in ("immediate", "on-demand"):
        assert served.rejected == 0
    if policy == "on-demand":
        assert served.stale == 0
    # A query that could not end in time even alone never succeeds.
    assert served.success <= sum(c <= d for _, _, c, d in asked)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 25)), min_size=1, max_size=8))
def test_as_many_as_possible(asked: list[tuple[int, int]]) -> None:
    """All come at once and all is fresh: the plan serves as many as any choice of queries could."""

    def possible(some: tuple[tuple[int, int], ...]) -> bool:
        end = 0
        for cost, within in sorted(some, key=lambda one: one[1]):
            end += cost
            if end > within:
                return False
        return True

    most = max(n for n in range(len(asked) + 1) if any(possible(some) for some in combinations(asked, n)))
    queries = [(0.0, n, float(cost), within + 0.001) for n, (cost, within) in enumerate(asked)]
    case = small(queries, [1.0] * len(asked), [NEVER] * len(asked), [NEVER] * len(asked))
    assert serve(case, MaxSatisfaction()).success == most


# Loads made to trouble the controller


def flooded(seed: int, duration: float = 20_000.0) -> Workload:
    """Updates need three times the processor; queries are few and short."""
    chance = Random(seed)
    times = sorted(chance.uniform(0, duration) for _ in range(2000))
    queries = [(at, chance.randrange(50), 1.0, 60.0) for at in times]
    return Workload(duration, queries, [3.0] * 50, [50.0] * 50, [chance.uniform(0, 50) for _ in range(50)])


def rejected_late(policy: Unit, load: Workload) -> float:
    """The part of the queries of the second half that is rejected."""
    ended: list[Ending] = []

    class Watched(type(policy)):  # type: ignore[misc]
        def ended(self, situation, query, ending, cause, memory):  # type: ignore[no-untyped-def]
            if query.arrived_s > load.duration_s / 2:
                ended.append(ending)
            super().ended(situation, query, ending, cause, memory)

    serve(load, Watched(policy.settings))
    return ended.count(Ending.REJECTED) / len(ended)


class Unattributed(Unit):
    """As printed: a rejection is a rejection, whatever caused it."""

    def ended(self, situation, query, ending, cause, memory):  # type: ignore[no-untyped-def]
        super().ended(situation, query, ending, cause and Cause.DEADLINE, memory)


def test_unit_does_not_lock_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates leave no time for queries, so all are rejected. With C_flex of at least 1, as printed, loosening does not help, and nothing
    else is tried; rejections that count for their cause degrade updates, and queries get through."""
    monkeypatch.setattr("penstock.queries.policies.unit.LOOSEST", 1.0)
    assert rejected_late(Unattributed(UnitSettings(200.0)), flooded(1)) > 0.95
    assert rejected_late(Unit(UnitSettings(200.0)), flooded(1)) < 0.6


def test_unit_does_not_swing() -> None:
    """Under a steady load C_flex stays away from its ends and changes little from one round to the next."""
    chance = Random(3)
    times = sorted(chance.uniform(0, 60_000) for _ in range(6000))
    queries = [(at, chance.randrange(50), chance.uniform(1, 9), chance.uniform(20, 300)) for at in times]
    case = Workload(60_000, queries, [3.0] * 50, [300.0] * 50, [chance.uniform(0, 300) for _ in range(50)])
    seen: list[float] = []

    class Watched(Unit):
        def wake(self, situation, lot, memory):  # type: ignore[no-untyped-def]
            super().wake(situation, lot, memory)
            seen.append(memory.balance.flex)

    served = serve(case, Watched())
    assert served.success > 0.8 * served.queries
    turns = sum((b - a) * (c - b) < 0 for a, b, c in zip(seen, seen[1:], seen[2:], strict=False))
    assert turns < len(seen) / 10
    late = seen[len(seen) // 2 :]
    assert max(late) / min(late) < 3


def test_memory_can_be_kept() -> None:
    load = workload("med-unif", 1, Load(scale=0.005))
    served = serve(load, Unit())
    items = Items.of(load.cost_s, load.period_s)
    found: UnitMemory = served.memory
    again: UnitMemory = Unit().of_plain(items, json.loads(json.dumps(Unit().plain(found))))
    assert again.plain() == found.plain()
    assert [again.tickets.lottery.draw(n / 50) for n in range(50)] == [
        found.tickets.lottery.draw(n / 50) for n in range(50)
    ]


# The workloads


@pytest.mark.parametrize("trace", TRACES)
def test_traces_are_what_they_say(trace: str) -> None:
    load = Load(scale=0.02)
    made = workload(trace, 3, load)
    volume, _, distribution = trace.partition("-")
    busy = sum(c / p for c, p in zip(made.cost_s, made.period_s, strict=True))
    assert busy == pytest.approx({"low": 0.15, "med": 0.75, "high": 1.5}[volume], rel=1e-6)
    rate = sum(1 / p for p in made.period_s) * 3_848_104
    assert rate == pytest.approx({"low": 6144, "med": 30_000, "high": 61_440}[volume], rel=1e-6)
    assert sum(q[2] for q in made.queries) / made.duration_s == pytest.approx(load.load, rel=1e-6)
    assert len(made.queries) == round(110_035 * 0.02) and made.queries == sorted(made.queries)
    assert made.queries == workload("low-unif", 3, load).queries  # paired
    counts = [0] * 512
    half = workload(trace, 3, Load(scale=0.5))
    for _, item, *_ in half.queries:
        counts[item] += 1
    correlation = _of_ranks(counts, [1 / p for p in half.period_s])
    assert correlation == pytest.approx({"unif": 0.0, "pos": 0.78, "neg": -0.78}[distribution], abs=0.08)


def _of_ranks(a: list[float] | list[int], b: list[float]) -> float:
    if len(set(b)) == 1:
        return 0.0
    rank_a = {item: rank for rank, item in enumerate(sorted(range(len(a)), key=lambda item: a[item]))}
    rank_b = {item: rank for rank, item in enumerate(sorted(range(len(b)), key=lambda item: b[item]))}
    count = len(a)
    return 1 - 6 * sum((rank_a[n] - rank_b[n]) ** 2 for n in range(count)) / (count * (count**2 - 1))


def test_bias_makes_bursts() -> None:
    def busiest(bias: float) -> float:
        """The part of all queries in the busiest hundredth of the time."""
        made = workload("low-unif", 1, Load(scale=0.05, bias=bias))
        counts = [0] * 100
        for at, *_ in made.queries:
            counts[min(99, int(100 * at / made.duration_s))] += 1
        return max(counts) / len(made.queries)

    assert busiest(0.5) < 0.02 < 0.05 < busiest(0.7)
