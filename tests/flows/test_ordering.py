"""Orders that hold little at once."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.flows.ordering import OrderedTask, RunOrder, least_peak_order, peak_of, strata_order


@st.composite
def tasks(draw: st.DrawFn, most: int = 7) -> list[OrderedTask]:
    found: list[OrderedTask] = []
    for n in range(draw(st.integers(1, most))):
        needs = draw(st.lists(st.sampled_from(found), max_size=3, unique=True)) if found else []
        found.append(
            OrderedTask(
                f"t{n}", tuple(need.name for need in needs), float(draw(st.integers(0, 9))), draw(st.integers(1, 5))
            )
        )
    return found


def is_order(names: tuple[str, ...], of: list[OrderedTask]) -> bool:
    place = {name: number for number, name in enumerate(names)}
    return sorted(place) == sorted(task.name for task in of) and all(
        place[need] < place[task.name] for task in of for need in task.needs
    )


@settings(max_examples=60)
@given(tasks())
def test_the_search_finds_the_least_peak_of_all_orders(given_tasks: list[OrderedTask]) -> None:
    found = least_peak_order(given_tasks)
    names = [task.name for task in given_tasks]
    least = min(peak_of(given_tasks, order) for order in permutations(names) if is_order(order, given_tasks))
    assert found.exact and is_order(found.names, given_tasks)
    assert found.peak_bytes == peak_of(given_tasks, found.names) == least


@given(tasks(20))
def test_exact_is_at_most_greedy_which_is_at_most_strata(given_tasks: list[OrderedTask]) -> None:
    exact = least_peak_order(given_tasks, effort=1_000_000)
    greedy = least_peak_order(given_tasks, effort=0)
    strata = peak_of(given_tasks, strata_order(given_tasks))
    for order in (exact, greedy):
        assert is_order(order.names, given_tasks) and order.peak_bytes == peak_of(given_tasks, order.names)
    assert exact.exact and exact.peak_bytes <= greedy.peak_bytes <= strata


def test_two_chains_are_finished_one_after_the_other() -> None:
    # Strata hold both wide results at once: 10 + 10, then narrow_a beside them: 21.
    chains = [
        OrderedTask("wide_a", (), 10),
        OrderedTask("wide_b", (), 10),
        OrderedTask("narrow_a", ("wide_a",), 1),
        OrderedTask("narrow_b", ("wide_b",), 1),
        OrderedTask("both", ("narrow_a", "narrow_b")),
    ]
    assert peak_of(chains, strata_order(chains)) == 21
    # narrow_a beside wide_a are 11, then wide_b and narrow_b beside narrow_a: 1 + 10 + 1.
    assert least_peak_order(chains) == RunOrder(("wide_a", "narrow_a", "wide_b", "narrow_b", "both"), 12, True)
