from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.partitions import PartitionSet
from penstock.model.time import BEGIN_US
from penstock.requests.needs import Need, Piece, changed_by, partitions_of, pending, restated

small = st.integers(0, 9)
needs = st.builds(Need, small, small, small, st.booleans(), st.booleans(), small)


@given(needs, needs, needs)
def test_merging_is_a_lattice(a: Need, b: Need, c: Need) -> None:
    assert a | b == b | a
    assert a | (b | c) == (a | b) | c
    assert a | a == a
    assert a <= a | b and b <= a | b
    assert (a <= b and b <= a) == (a == b)
    assert not (a <= b and b <= c) or a <= c
    assert not (a <= c and b <= c) or a | b <= c  # the least one


@given(needs, needs)
def test_nothing_is_forgotten(a: Need, b: Need) -> None:
    both = a | b
    assert both.since <= min(a.since, b.since) and both.edge_us <= min(a.edge_us, b.edge_us)
    assert both.late == (a.late or b.late)
    assert not both.append or (a.append and b.append)
    assert both.at_us <= min(a.at_us, b.at_us) and both.last >= max(a.last, b.last)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), needs), max_size=6), st.randoms(use_true_random=False)
)
def test_neither_order_nor_repetition_matters(found: list[tuple[int, int, Need]], rng) -> None:
    one, two = pending(), pending()
    for start, end, need in found:
        one.add(PartitionSet.of((start, end)), need)
    again = found * 2
    rng.shuffle(again)
    for start, end, need in again:
        two.add(PartitionSet.of((start, end)), need)
    assert list(one.pieces()) == list(two.pieces())


def test_new_logic_subsumes_whatever_was_pending() -> None:
    need = restated(5, last=7)
    assert Need(3, 10, 6, late=False, append=True, last=4) <= need
    assert not need.append and need.edge_us == BEGIN_US


def test_the_rest_of_a_need_begins_where_the_job_ends() -> None:
    grown = Need(3, 100, 1, late=False, append=True, last=12)
    assert grown.rest(pin=8, edge_us=150, at_us=9) == Need(9, 150, 9, late=False, append=True, last=12)


def test_what_a_job_changes() -> None:
    late, fresh, first = Need(1, 50, 0, late=True), Need(1, 120, 0), Need(1, BEGIN_US, 0, append=False)
    assert changed_by((Piece(0, 10, late),)) == ((0, 10),)  # all of an old partition
    assert changed_by((Piece(100, 200, fresh),)) == ((120, 200),)  # only what came since, and what is ahead of the edge
    assert changed_by((Piece(100, 200, first),)) == ((100, 200),)
    pieces = (Piece(0, 10, late), Piece(10, 20, late), Piece(100, 200, fresh))
    assert changed_by(pieces) == ((0, 20), (120, 200))
    assert partitions_of(pieces) == PartitionSet.of((0, 20), (100, 200))
