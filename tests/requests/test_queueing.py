"""Whether to wait: the exact decision against all closed sets, and the arithmetic of small cases."""

from __future__ import annotations

from itertools import combinations
from math import inf
from random import Random

from penstock.papers.requests.youtube_queue import printed_recursion
from penstock.requests.closure import Duration, MinimumCut, best_closure, decide, descendants, longest


def test_a_chain_waits_as_a_whole_or_not_at_all() -> None:
    below = {"r": ["s"], "s": []}
    # Waiting saves one update of each: 10 + 5. Being late costs s 12, so together they are 3 better off.
    found = decide("r", below.__getitem__, {"r": 10, "s": 5}.__getitem__, {"r": 0, "s": 12}.__getitem__)
    assert (found.waits, found.saved, found.updates) == (True, 3, 2)
    # At 16 waiting loses 1: r runs now, and s with it.
    found = decide("r", below.__getitem__, {"r": 10, "s": 5}.__getitem__, {"r": 0, "s": 16}.__getitem__)
    assert (found.waits, found.tables) == (False, frozenset())


def test_only_a_part_below_waits() -> None:
    below = {"r": ["fast", "slow"], "fast": [], "slow": []}
    penalty = {"r": 0, "fast": inf, "slow": 0}
    found = decide("r", below.__getitem__, lambda _: 10.0, penalty.__getitem__)
    # r itself cannot wait, since a target of `fast` is at risk; `slow` can.
    assert not found.waits and found.tables == {"slow"} and found.saved == 10


def test_nothing_waits_without_a_gain() -> None:
    assert not decide("r", lambda _: (), lambda _: 5.0, lambda _: 5.0).waits


def random_case(rng: Random) -> tuple[dict[str, list[str]], dict[str, float], dict[str, float]]:
    count = rng.randrange(1, 9)
    below = {
        f"t{n}": [f"t{m}" for m in range(n + 1, count) if rng.random() < 0.35 or (m == n + 1 and rng.random() < 0.5)]
        for n in range(count)
    }
    cost = {name: float(rng.randrange(1, 20)) for name in below}
    penalty = {name: rng.choice([0.0, 0.0, float(rng.randrange(1, 40)), inf]) for name in below}
    return below, cost, penalty


def value(chosen: frozenset[str], cost: dict[str, float], penalty: dict[str, float]) -> float:
    return sum(cost[name] - penalty[name] for name in chosen)


def test_the_closure_is_the_best_of_all() -> None:
    for seed in range(400):
        below, cost, penalty = random_case(Random(seed))
        tables = descendants("t0", below.__getitem__)
        best, smallest = 0.0, 0
        for size in range(len(tables) + 1):
            for some in map(frozenset, combinations(tables, size)):
                if all(child in some for name in some for child in below[name]) and value(some, cost, penalty) > best:
                    best, smallest = value(some, cost, penalty), size
        found = best_closure("t0", below.__getitem__, {n: cost[n] - penalty[n] for n in below}.__getitem__)
        assert value(found, cost, penalty) == best, seed
        assert len(found) <= smallest or best == 0 == len(found), seed


def test_the_printed_recursion_is_not_always_the_best() -> None:
    worse = 0
    for seed in range(400):
        below, cost, penalty = random_case(Random(seed))
        exact = best_closure("t0", below.__getitem__, {n: cost[n] - penalty[n] for n in below}.__getitem__)
        printed = printed_recursion("t0", below.__getitem__, cost.__getitem__, penalty.__getitem__)
        assert value(printed, cost, penalty) <= value(exact, cost, penalty), seed
        worse += value(printed, cost, penalty) < value(exact, cost, penalty)
    assert worse > 100


def test_flows_of_textbook_networks() -> None:
    cut = MinimumCut()
    for tail, head, capacity in [
        (cut.SOURCE, "a", 16), (cut.SOURCE, "b", 13), ("b", "a", 4), ("a", "c", 12), ("c", "b", 9),
        ("b", "d", 14), ("d", "c", 7), ("c", cut.SINK, 20), ("d", cut.SINK, 4),
    ]:  # fmt: skip
        cut.connect(tail, head, capacity)
    assert cut.value() == 23  # Cormen, Leiserson, Rivest, Stein: the flow network of chapter 26
    assert cut.source_side() == {"a", "b", "d"}


def test_run_times_in_a_row() -> None:
    found = Duration(300, 30) + Duration(100, 40)
    assert (found.mean_s, found.stdev_s) == (400, 50)  # 30² + 40² = 50²
    assert found.at_most_s(2) == 500
    assert longest([Duration(10, 0), Duration(8, 2), Duration(9, 0)]) == Duration(8, 2)
    assert Duration.learned(10, 4).stdev_s == 4 * 1.2533
