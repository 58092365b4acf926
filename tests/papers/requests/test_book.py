"""The laws of requests, and the paper's worked examples step by step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.graph import Graph
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US
from penstock.papers.requests.book import Book
from penstock.papers.requests.request import OWN, Demand, Request
from penstock.papers.requests.triggers import Eager, Grouping, Lazy
from penstock.papers.requests.triggers.grouping import Scheduled, near
from penstock.papers.requests.versions import Change, History
from penstock.requests.plan import Backfill

names = st.sampled_from(["", "a", "b", "c"])
carried = st.dictionaries(names, st.integers(1, 9), min_size=1)
demands = st.builds(Demand, st.integers(1, 9), carried, st.sampled_from([None, None, 3, 5]))


@given(demands, demands, demands)
def test_merging_is_a_semilattice(a: Demand, b: Demand, c: Demand) -> None:
    assert a | a == a
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)


@given(demands, demands, demands)
def test_the_order_is_that_of_the_lattice(a: Demand, b: Demand, c: Demand) -> None:
    assert a <= a | b and b <= a | b
    if a <= c and b <= c:
        assert a | b <= c
    if a <= b <= c:
        assert a <= c
    assert (a <= b) == (a | b == b)


def test_only_requests_of_one_dataset_are_merged() -> None:
    one, other = (Request(name, EVERYTHING, Demand(1, {OWN: 1})) for name in "ab")
    with pytest.raises(ValueError, match="a request for a cannot be merged with one for b"):
        one | other
    assert not one <= other


def whole(**reads: str) -> Graph:
    """Tables of one partition: whole(a="", b="a", d="b c")."""
    tables = [
        Table(name, sources=tuple(Source(source) for source in text.split()), feed=None if text else "f")
        for name, text in reads.items()
    ]
    return Graph([Feed("f")], tables)


DIAMOND = {"a": "", "b": "a", "c": "a", "d": "b c"}


def asked(book: Book) -> set[str]:
    return {str(request) for request in book.requests()}


def test_a_diamond_eagerly() -> None:
    """Table 4: one request for d, which waits for both of its inputs."""
    book = Book(whole(**DIAMOND), Eager())
    book.submit(Backfill("a", EVERYTHING))
    assert asked(book) == {"a[own >= 1]", "b[a >= 1]", "c[a >= 1]", "d[b >= 1, c >= 1]"}
    order = []
    while book.ready():
        name = min(book.ready())
        order.append(name)
        book.finish(book.start(name).id)
    assert order == ["a", "b", "c", "d"]
    assert book.at_rest


def test_a_diamond_lazily() -> None:
    """Table 4, step by step: the second request for d is a duplicate of the first."""
    book = Book(whole(**DIAMOND), Lazy())
    book.submit(Backfill("a", EVERYTHING))
    book.finish(book.start("a").id)
    assert asked(book) == {"b[a >= 1]", "c[a >= 1]"}
    book.finish(book.start("b").id)
    assert asked(book) == {"c[a >= 1]", "d[b >= 1, c >= 1]"}
    assert list(book.ready()) == ["c"]
    book.finish(book.start("c").id)
    assert asked(book) == {"d[b >= 1, c >= 1]"}
    assert book.counts.repeated + book.counts.subsumed == 1
    book.finish(book.start("d").id)
    assert book.at_rest and book.counts.started == 4


@pytest.mark.parametrize("trigger", [Eager, Lazy])
def test_what_comes_while_a_job_runs_is_the_next_one(trigger: type) -> None:
    book = Book(whole(a="", b="a"), trigger())
    book.submit(Backfill("a", EVERYTHING))
    first = book.start("a")
    book.submit(Backfill("a", EVERYTHING))
    assert "a" not in book.ready()  # never two writers
    book.finish(first.id)
    assert "a" in book.ready()
    book.finish(book.start("a").id)
    # The second change of a was known before b could start, so b has both in one update.
    assert list(book.ready()) == ["b"]
    book.finish(book.start("b").id)
    assert book.at_rest and book.counts.started == 3


def test_a_failed_job_is_part_of_a_newer_request() -> None:
    book = Book(whole(a="", b="a", c="a"), Eager())
    book.submit(Backfill("a", EVERYTHING))
    book.finish(book.start("a").id)
    failing = book.start("b")
    book.submit(Backfill("a", EVERYTHING))
    book.fail(failing.id)
    assert "b[a >= 2]" in asked(book)
    assert list(book.ready()) == ["a"]  # b waits for the new version: one update instead of two


def test_a_failed_job_alone_is_tried_again_with_the_same_inputs() -> None:
    book = Book(whole(a="", b="a", x=""), Eager())
    book.submit(Backfill("a", EVERYTHING), Backfill("x", EVERYTHING))
    book.finish(book.start("a").id)
    failing = book.start("b")
    book.finish(book.start("x").id)
    book.fail(failing.id)
    again = book.start("b")
    assert again.pin == failing.pin == 1 and book.publication == 2
    assert book.finish(again.id) and not book.finish(again.id) and not book.fail(failing.id)
    assert book.at_rest


def test_a_change_of_logic_cannot_be_dropped_for_another() -> None:
    """With the printed rule the request of an origin demands nothing, so anything subsumes it."""
    book = Book(whole(a="", b="a"), Eager())
    book.submit(Backfill("a", EVERYTHING))
    book.finish(book.start("a").id)
    running = book.start("b")
    book.submit(Backfill("b", EVERYTHING))  # new logic of b, while it runs with the old one
    book.finish(running.id)
    assert asked(book) == {"b[own >= 2]"}


def test_external_data_that_are_no_newer_bring_nothing() -> None:
    book = Book(whole(a="", b="a"), Eager())
    book.submit(Backfill("a", EVERYTHING), version=10)
    asked_before = book.counts.asked
    book.submit(Backfill("a", EVERYTHING), version=9)
    assert book.stamp == 1 and book.counts.subsumed == 1 and book.counts.asked == asked_before + 1
    book.submit(Backfill("a", EVERYTHING), version=11)
    assert book.stamp == 2


def test_backfills_on_mondays_at_one_and_at_two() -> None:
    """Sec. 4.3.1: c is made once, after both."""
    monday = [
        Scheduled(1 * HOUR_US, Backfill("a", EVERYTHING)),
        Scheduled(2 * HOUR_US, Backfill("b", EVERYTHING)),
        Scheduled(9 * HOUR_US, Backfill("b", EVERYTHING)),
    ]
    (first, later), trigger = near(monday, 2 * HOUR_US), Grouping()
    assert [item.at_us for item in first] == [HOUR_US, 2 * HOUR_US] and len(later) == 1
    book = Book(whole(a="", b="", c="a b"), trigger)
    trigger.announce(book, first)
    trigger.come(book, "a", EVERYTHING)
    book.finish(book.start("a").id)
    assert asked(book) == {"b[own >= 1]", "c[a >= 1, b >= 1]"}
    assert not book.ready()
    trigger.come(book, "b", EVERYTHING)
    book.finish(book.start("b").id)
    book.finish(book.start("c").id)
    assert book.at_rest and book.counts.started == 3


@pytest.mark.parametrize("trigger", [Eager, Lazy])
def test_a_table_that_reads_its_yesterday(trigger: type) -> None:
    month = PartitionSet.of((0, 30 * DAY_US))
    graph = Graph(
        [Feed("f")],
        [Table("i", "day", feed="f"), Table("a", "day", sources=(Source("i", (0, 1)), Source("a", (-1, 0))))],
    )
    book = Book(graph, trigger(), lambda _: month)
    for day in (6, 14, 22):
        book.submit(Backfill("i", PartitionSet.of(((day - 1) * DAY_US, day * DAY_US))))
    updates = 0
    while book.ready():
        run = book.start(max(book.ready()))
        updates += run.partitions.count(graph.tables[run.dataset].grain)
        book.finish(run.id)
    assert book.at_rest
    assert updates == 3 + (30 - 5) == 28  # Table 12: days 6, 14 and 22 of i, and days 6 to 30 of a


def test_ten_years_of_hours_are_one_entry_in_a_version() -> None:
    graph = Graph([Feed("f")], [Table("hours", "hour", feed="f"), Table("ever", sources=(Source("hours"),))])
    decade = PartitionSet.of((0, 87_600 * HOUR_US))
    book, history = Book(graph, Eager(), lambda name: decade if name == "hours" else EVERYTHING), History(graph)

    def finish(name: str, partitions: PartitionSet | None = None) -> None:
        run = book.start(name, partitions)
        book.finish(run.id)
        history.record(run, book.publication)

    first = Change(book.submit(Backfill("hours", decade)), "hours", decade)
    finish("hours")
    finish("ever")
    (version,) = history._versions["ever"]
    assert dict(version.read) == {"hours": 1}
    hour = PartitionSet.of((5_000 * HOUR_US, 5_001 * HOUR_US))
    second = Change(book.submit(Backfill("hours", hour)), "hours", hour)
    finish("hours")
    assert history.contains("ever", EVERYTHING, first)
    assert not history.contains("ever", EVERYTHING, second)
    finish("ever")
    assert history.contains("ever", EVERYTHING, second)
    assert not history.contains("ever", EVERYTHING, second, publication=2)
