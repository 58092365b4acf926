"""Random graphs x changes x orders of completion x failures x repeated events. `PENSTOCK_REQUESTS=200000` runs more."""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Iterable

import pytest

from penstock.model.partitions import EMPTY, PartitionSet
from penstock.papers.requests.book import Book
from penstock.papers.requests.request import Demand
from penstock.papers.requests.triggers import Eager, Grouping, Lazy
from penstock.papers.requests.versions import Change, History
from tests.papers.requests.printed import PrintedDriver
from tests.papers.requests.world import Driver, Wrong

CASES = int(os.environ.get("PENSTOCK_REQUESTS", "20000"))
CHUNK = 2500
TRIGGERS = (Eager, Lazy, Grouping)
CHANGES = (1, 2, 2, 3, 4)


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_no_change_is_lost_or_applied_twice(first: int) -> None:
    failed: list[tuple[int, str]] = []
    for seed in range(first, first + CHUNK):
        try:
            driver = Driver(seed, TRIGGERS[seed % 3]())
            driver.run(driver.rng.choice(CHANGES))
        except Exception:
            failed.append((seed, traceback.format_exc(limit=-4)))
    assert not failed, f"{len(failed)} of {CHUNK}, seeds {[seed for seed, _ in failed][:9]}\n{failed[0][1]}"


def test_the_exact_content_of_every_version() -> None:
    """`History` walks back through what versions name; the checker followed single partitions forward."""
    for seed in range(400):
        driver = Driver(seed, TRIGGERS[seed % 3]())
        driver.run(driver.rng.choice(CHANGES))
        shape, changes = driver.shape, []
        history = History(shape.graph, shape.extent)
        for number, (stamp, name, numbers) in enumerate(driver.submitted):
            changes.append((number, Change(stamp, name, shape.set_of(name, numbers))))
        for run, publication in driver.runs:
            history.record(run, publication)
        for (name, n), versions in driver.checker.versions.items():
            cover = driver.checker.cover.get((name, n), 0)
            for version in versions:
                for number, change in changes:
                    if cover >> number & 1:
                        found = history.contains(name, shape.set_of(name, [n]), change, version.publication)
                        assert found == bool(version.all >> number & 1), (seed, name, n, version, change)


# What the checker is worth: each of these is wrong in one way, and it sees it.


def caught(make: Iterable[Driver | PrintedDriver]) -> Counter[str]:
    found: Counter[str] = Counter()
    for driver in make:
        try:
            driver.run(driver.rng.choice((2, 3, 4)))
        except Wrong as wrong:
            found[(str(wrong).split("deadlock")[0] and "content") or "deadlock"] += 1
    return found


def test_the_printed_rule_loses_changes_and_deadlocks() -> None:
    found = caught(PrintedDriver(seed) for seed in range(1000))
    # In about four of ten cases, as a careful reading of the rule predicts.
    assert found["content"] > 100
    assert found["deadlock"] > 5
    assert 250 < found.total() < 600, found


class Forgetful(Lazy):
    """Does not walk back: a job runs for each path."""

    def moving(self, book: Book, dataset: str, partitions: PartitionSet, version: int, reader: str) -> PartitionSet:
        return EMPTY


class Silent(Lazy):
    """Forgets to tell one of the readers now and then."""

    def _ask(self, book: Book, asked: list[tuple[str, PartitionSet, Demand]]) -> None:
        super()._ask(book, [item for item in asked if item[0] != "t3" or book.publication % 3])


@pytest.mark.parametrize("trigger", [Forgetful, Silent])
def test_a_wrong_trigger_is_caught(trigger: type) -> None:
    assert caught(Driver(seed, trigger()) for seed in range(300)).total() > 30


def test_two_writers_are_caught() -> None:
    class Hasty(Book):
        def _ready_of(self, name: str) -> PartitionSet:
            return self.pending[name].domain() if self.pending.get(name) else EMPTY

    drivers = [Driver(seed, Eager()) for seed in range(100)]
    for driver in drivers:
        driver.book = Hasty(driver.shape.graph, Eager(), driver.shape.extent)
    assert caught(drivers).total() > 20
