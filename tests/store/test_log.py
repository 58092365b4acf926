"""The log: what goes in comes out, in the order of the commits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.control.events import Event, FileArrived, RunStarted, TableRetried, UpdateFinished, UpdateStarted
from penstock.queries.contract import OutcomeWeights
from penstock.queries.desk import DeskSetup
from penstock.requests.job import FeedFile, Job
from penstock.store.schema import decode, encode, subject
from penstock.store.store import Store

KINDS = get_args(Event)
NUMBERS = st.integers(-(2**62), 2**62)
st.register_type_strategy(int, NUMBERS)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
# PostgreSQL has no zero character, and nothing that is named may hold one.
st.register_type_strategy(str, st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.from_type(int) | st.from_type(float) | st.from_type(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_type(str), inner, max_size=3),
    max_leaves=5,
)
MEMORIES = st.none() | st.dictionaries(st.from_type(str), PLAIN, max_size=3)
st.register_type_strategy(UpdateStarted, st.builds(UpdateStarted, decided_at=NUMBERS, memory=MEMORIES))
WORTH = st.floats(0, 1e6)
st.register_type_strategy(OutcomeWeights, st.builds(OutcomeWeights, st.floats(0.001, 1e6), WORTH, WORTH, WORTH))
st.register_type_strategy(DeskSetup, st.builds(DeskSetup, learned=PLAIN))


def test_there_is_a_kind_for_every_event() -> None:
    kinds = [kind.__dataclass_fields__["kind"].default for kind in KINDS]
    assert len(set(kinds)) == len(kinds) == len(KINDS) >= 11


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_every_event_survives_as_text(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(st.from_type(kind))
    again = decode(encode(event))
    assert again == event
    assert type(again) is kind
    assert encode(again) == encode(event)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(events=st.lists(st.one_of(*map(st.from_type, KINDS)), max_size=8))
def test_what_is_appended_is_read_in_order(store: Store, events: list[Event]) -> None:
    with store.write() as conn:
        before = store.last_number(conn)
        last = store.append(conn, events)
    with store.read() as conn:
        found = list(store.events(conn, before))
        assert [event for _, event in found] == events
        numbers = [number for number, _ in found]
        assert numbers == sorted(set(numbers)) and all(number > before for number in numbers)
        assert store.last_number(conn) == (last if events else before)


def test_reading_goes_on_where_it_stopped(store: Store) -> None:
    with store.write() as conn:
        store.append(conn, [TableRetried(at, "t") for at in range(10)])
    with store.read() as conn:
        first = list(store.events(conn, limit=4))
        rest = list(store.events(conn, first[-1][0]))
    assert [event.at_us for _, event in first + rest] == list(range(10))


def test_events_about_a_table_come_newest_first(store: Store) -> None:
    job = Job("job-1", "hourly", "derive", 7)
    file = FeedFile("a.csv", "c", 1, 2)
    with store.write() as conn:
        store.append(conn, [UpdateStarted(1, job, 0, "why"), FileArrived(2, "hourly", file), TableRetried(3, "hourly")])
        store.append(conn, [UpdateFinished(4, "job-1", "hourly", (), 1.5), TableRetried(5, "daily")])
    with store.read() as conn:
        found = store.events_of(conn, "hourly", ["update-started", "update-finished", "table-retried"], 2)
        assert [event.at_us for _, event in found] == [4, 3]
        assert store.events_of(conn, "hourly", ["run-started"], 9) == []


def test_what_an_event_is_about() -> None:
    assert subject(UpdateStarted(1, Job("j", "hourly", "load", 1), 0, "")) == "hourly"
    assert subject(UpdateFinished(1, "job-1", "daily", (), 0.0)) == "daily"
    assert subject(FileArrived(1, "stats", FeedFile("a", "b", 1, 2))) == "stats"
    assert subject(RunStarted(1, "run-1")) is None


def test_a_transaction_that_fails_leaves_nothing(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.write() as conn:
        store.append(conn, [RunStarted(1, "run-1")])
        store.set_fact(conn, "owner", "run-1")
        raise ZeroDivisionError
    with store.read() as conn:
        assert list(store.events(conn)) == []
        assert store.fact(conn, "owner") is None


def together(work: Callable[[int], None], threads: int) -> None:
    """Run the same thing in several threads; the first error of any is raised."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=guarded, args=[number]) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]


def test_numbers_follow_the_order_of_commits(store: Store, url: str) -> None:
    """A reader that goes on from the last number that it has seen misses nothing, however many write: no event ever
    appears with a number below one that was already visible."""
    writers, each = 4, 25
    over = threading.Event()
    seen: list[tuple[int, str]] = []

    def tail() -> None:
        reader = Store(url)
        while True:
            last_round = over.is_set()
            with reader.read() as conn:
                found = list(reader.events(conn, seen[-1][0] if seen else 0))
            seen.extend((number, event.table) for number, event in found)
            if last_round:
                break
        reader.close()

    def write(number: int) -> None:
        own = Store(url)
        for turn in range(each):
            with own.write() as conn:
                own.append(conn, [TableRetried(turn, f"{number}-{turn}"), TableRetried(turn, f"{number}-{turn}+")])
        own.close()

    reading = threading.Thread(target=tail)
    reading.start()
    try:
        together(write, writers)
    finally:
        over.set()
        reading.join()
    names = [name for _, name in seen]
    assert len(names) == len(set(names)) == writers * each * 2
    for writer in range(writers):
        own = [name for name in names if name.startswith(f"{writer}-")]
        assert own == [f"{writer}-{turn}{end}" for turn in range(each) for end in ("", "+")]
    # Each transaction's events stand together.
    assert all(names[at + 1] == names[at] + "+" for at in range(0, len(names), 2))
