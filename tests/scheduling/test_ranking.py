from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduling.jobs import ReadyJob, ReadyJobs
from penstock.scheduling.ranking import Ranking

# Few different numbers, so that ties, equal slopes and crossings are common.
numbers = st.sampled_from([-7.5, -1.0, 0.0, 0.1, 0.3, 1.0, 2.0, 1e6, 1e9 + 0.125])
slopes = st.sampled_from([0.0, 0.0, 0.1, 0.2, 0.30000000000000004, 1.0, 2.5])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 12), numbers, slopes, st.integers(0, 2)),
        st.tuples(st.just("discard"), st.integers(0, 12)),
        st.tuples(st.just("time"), st.sampled_from([-3.0, 0.0, 0.5, 1.0, 10.0, 1e6, 1e9])),
    ),
    max_size=40,
)


@given(steps, st.booleans())
def test_ranking_is_sorting(found: list[tuple], many: bool) -> None:
    ranking, naive, now = Ranking(), {}, 0.0
    for number in range(20, 60 if many else 20):  # a few are kept otherwise than many
        naive[f"t{number}"] = (number % 7 / 10, number % 3 / 10, (0, f"t{number}"))
        ranking.put(f"t{number}", *naive[f"t{number}"], f"t{number}")
    for what, *arguments in found:
        if what == "put":
            number, a, b, tie = arguments
            naive[f"t{number}"] = (a, b, (tie, f"t{number}"))
            ranking.put(f"t{number}", *naive[f"t{number}"], f"t{number}")
        elif what == "discard":
            naive.pop(f"t{arguments[0]}", None)
            ranking.discard(f"t{arguments[0]}")
        else:
            now += arguments[0]
        expected = sorted((-(a + b * now), tie, key) for key, (a, b, tie) in naive.items())
        assert [(-value, key) for value, key in ranking.ranked(now)] == [(value, key) for value, _, key in expected]
        assert len(ranking) == len(naive)


def test_many_that_grow_at_different_speeds() -> None:
    rng = random.Random(1)
    ranking, naive = Ranking(), {}
    for n in range(1000):
        naive[f"t{n}"] = (rng.random() * 100, rng.choice([0.0, rng.random()]), (n, f"t{n}"))
        ranking.put(f"t{n}", *naive[f"t{n}"], f"t{n}")
    now = 1_700_000_000.0
    for _ in range(200):
        now += rng.random() * 50
        key = f"t{rng.randrange(1000)}"
        naive[key] = (rng.random() * 100 - naive[key][1] * now, naive[key][1], naive[key][2])
        ranking.put(key, *naive[key], key)
        expected = sorted(naive, key=lambda k: (-(naive[k][0] + naive[k][1] * now), naive[k][2]))[:5]
        best = ranking.ranked(now)
        assert [next(best)[1] for _ in range(5)] == expected


def ready(table: str, **more) -> ReadyJob:
    known = {
        "priority": 1.0, "inherited": 1.0, "release_us": 0, "deadline_us": 0, "gain_us": 0, "late": 0, "late_since_us": 0,
        "history_weight": 0.1, "amount": 0.0, "expected_s": 1.0,
    }  # fmt: skip
    return ReadyJob(table, **{**known, **more})


def test_jobs_are_replaced_and_dropped() -> None:
    jobs = ReadyJobs(lambda job: (job.priority, 0.0))
    jobs.put(ready("a", priority=1.0))
    jobs.put(ready("b", priority=2.0))
    jobs.put(ready("a", priority=3.0))
    assert [job.table for _, job in jobs.ranked(0)] == ["a", "b"]
    jobs.discard("a")
    jobs.discard("never")
    assert list(jobs) == ["b"] and len(jobs) == 1 and jobs["b"].priority == 2.0


def test_ties_do_not_depend_on_who_came_first() -> None:
    for order in ("abc", "cba", "bca"):
        jobs = ReadyJobs(lambda job: (1.0, 0.0))
        for name in order:
            jobs.put(ready(name, release_us=5 if name == "a" else 3))
        assert [job.table for _, job in jobs.ranked(0)] == ["b", "c", "a"]


def test_upkeep_comes_last_whatever_the_policy_says() -> None:
    jobs = ReadyJobs(lambda job: (-1e9, 0.0))
    jobs.put(ready("upkeep", upkeep=True))
    jobs.put(ready("work"))
    assert [job.table for _, job in jobs.ranked(0)] == ["work", "upkeep"]
