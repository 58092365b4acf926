"""The controller that users run: graphs with diamonds, several levels and self-reference, late, corrected and withdrawn
files, snapshots, other logic, backfills, failures, any order of ends. `PENSTOCK_REQUESTS=20000` runs more."""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.control import controller
from penstock.control.readiness import Work, ready_work
from penstock.control.state import State
from penstock.model.time import MINUTE_US
from penstock.requests import in_flight
from penstock.requests.in_flight import InFlight, Moving
from penstock.requests.propagation import Propagation, PublishedChange
from penstock.requests.tablestate import TableState
from tests.requests.live_world import LiveDriver
from tests.requests.printed import PrintedDriver
from tests.requests.world import Wrong

CASES = int(os.environ.get("PENSTOCK_REQUESTS", "2000"))
CHUNK = 500


def run(seeds: range, *, set_up: bool = False) -> Counter[str]:
    found: Counter[str] = Counter()
    failed: list[tuple[int, str]] = []
    for seed in seeds:
        try:
            driver = LiveDriver(seed, set_up=set_up)
            driver.run(driver.rng.choice((1, 2, 2, 3, 4, 6)))
            found += driver.found
        except Exception:
            failed.append((seed, traceback.format_exc(limit=-4)))
    assert not failed, f"{len(failed)} of {len(seeds)}, seeds {[seed for seed, _ in failed][:12]}\n{failed[0][1]}"
    return found


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 20_000, 2_000))
def test_twenty_thousand_cases(first: int) -> None:
    run(range(first, first + 2_000))
    run(range(first, first + 2_000), set_up=True)


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_each_partition_is_made_once_for_what_had_come(first: int) -> None:
    found = run(range(first, first + CHUNK))
    assert found["makes"] > CHUNK
    assert found["edges"] > CHUNK / 10
    # Nearly nobody has to give up waiting.
    assert found["gave up waiting"] < 0.01 * found["makes"]


@pytest.mark.parametrize("first", range(0, CASES // 4, CHUNK))
def test_so_it_is_with_queues_targets_groups_and_all_else(first: int) -> None:
    found = run(range(first, first + CHUNK), set_up=True)
    assert found["makes"] > CHUNK
    assert found["gave up waiting"] < 0.05 * found["makes"]


# What the checker is worth: each of these is wrong in one way, and it sees it.


def caught(drivers: Iterable[LiveDriver | PrintedDriver]) -> Counter[str]:
    found: Counter[str] = Counter()
    for driver in drivers:
        try:
            driver.run(driver.rng.choice((2, 3, 4)))
        except Wrong as wrong:
            found["deadlock" if "deadlock" in str(wrong) else "content"] += 1
    return found


def test_the_printed_rule_loses_changes_and_deadlocks() -> None:
    found = caught(PrintedDriver(seed) for seed in range(1000))
    # In about four of ten cases, as a careful reading of the rule predicts.
    assert found["content"] > 100
    assert found["deadlock"] > 5
    assert 250 < found.total() < 600, found


def test_a_controller_that_waits_for_nobody_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InFlight, "of", lambda *_: Moving())
    assert caught(LiveDriver(seed) for seed in range(100)).total() > 10


def test_a_controller_that_gives_up_too_soon_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "pass_us", lambda *_: MINUTE_US)
    assert caught(LiveDriver(seed) for seed in range(300)).total() > 3


def test_a_controller_that_keeps_the_edge_waiting_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def patient(state: State, table: TableState, *more: Any, **named: Any) -> Work:
        moves = InFlight(state).before(table, table.seen_us).since
        return Work() if moves else ready_work(state, table, *more, **named)

    drivers = [LiveDriver(seed) for seed in range(300)]
    monkeypatch.setattr(controller, "ready_work", patient)
    assert caught(drivers).total() > 3


def test_a_controller_that_forgets_a_reader_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Propagation.tell_readers

    def forgetful(self: Propagation, source: TableState, change: PublishedChange) -> None:
        if source.table.name != "t2":
            told(self, source, change)

    drivers = [LiveDriver(seed) for seed in range(60)]
    monkeypatch.setattr(Propagation, "tell_readers", forgetful)
    assert caught(drivers).total() > 10
