"""Which versions go to a replica, and when they leave it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.requests.replicas import next_copy, to_drop


def test_those_that_agree_go_first_then_the_newest() -> None:
    kept = {"a": [9, 5, 1], "b": [8, 4]}
    agreeing = {"a": 5, "b": 4}
    copied: dict[str, set[int]] = {}
    order = []
    while (found := next_copy(kept, copied, agreeing, 2)) is not None:
        order.append(found)
        copied.setdefault(found[0], set()).add(found[1])
    assert order == [("a", 5), ("b", 4), ("a", 9), ("b", 8)]


def test_tables_with_a_larger_priority_go_first() -> None:
    kept, order, copied = {"a": [9, 5], "b": [8, 4], "c": [3]}, [], {}
    while (found := next_copy(kept, copied, {"b": 4, "a": 5}, 2, {"c": 9.0, "b": 2.0})) is not None:
        order.append(found)
        copied.setdefault(found[0], set()).add(found[1])
    assert order == [("b", 4), ("a", 5), ("c", 3), ("b", 8), ("a", 9)]


def test_what_retention_let_go_is_never_copied() -> None:
    assert next_copy({"a": [9]}, {"a": {9}}, {"a": 5}, 10) is None
    assert next_copy({"a": []}, {}, {}, 10) is None


def test_old_ones_leave_when_newer_ones_that_agree_are_there() -> None:
    kept = {"a": [9, 7, 5], "b": [8, 4]}
    assert to_drop(kept, {"a": {5, 3}, "b": {4}}, {"a": 9, "b": 8}, 1) == []
    assert to_drop(kept, {"a": {9, 5, 3}, "b": {8, 4}}, {"a": 9, "b": 8}, 1) == [("a", 3), ("a", 5), ("b", 4)]


tables = st.sampled_from("abc")
versions = st.dictionaries(tables, st.sets(st.integers(1, 30), max_size=8))


@given(st.lists(versions, min_size=1, max_size=6), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_replica_follows_and_never_loses_a_consistent_set(
    history: list[dict[str, set[int]]], most: int, r: object
) -> None:
    """Versions come and go; after each round of copying the replica has what it should, nothing else, and at every
    step in between all that agreed the last time it was complete, or all that agree now, is there."""
    copied: dict[str, set[int]] = {}
    complete: dict[str, int] = {}
    for kept_sets in history:
        kept = {name: sorted(found, reverse=True) for name, found in kept_sets.items()}
        agreeing = {name: found[-1] for name, found in kept.items() if found}

        def there(chosen: dict[str, int]) -> bool:
            return all(snapshot in copied.get(name, ()) for name, snapshot in chosen.items())

        steps = 0
        while True:
            for name, snapshot in to_drop(kept, copied, agreeing, most):
                copied[name].discard(snapshot)
            assert there(agreeing) or there(complete)
            found = next_copy(kept, copied, agreeing, most)
            if found is None:
                break
            assert found[1] in kept[found[0]]
            copied.setdefault(found[0], set()).add(found[1])
            steps += 1
        complete = agreeing
        wanted = {name: {*found[:most], agreeing[name]} for name, found in kept.items() if found}
        assert {name: found for name, found in copied.items() if found} == wanted
