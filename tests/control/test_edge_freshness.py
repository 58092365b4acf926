"""Waiting for what has come costs nothing at the edge: a stream with late files, with the rules of waiting and with hardly any."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from random import Random
from statistics import mean

import pytest

from penstock.control import readiness
from penstock.control.state import State
from penstock.model.partitions import PartitionSet
from penstock.model.tables import Feed
from penstock.model.time import MINUTE_US, SECOND_US
from penstock.requests.in_flight import InFlight, Unsettled
from penstock.requests.needs import Piece
from penstock.requests.tablestate import TableState
from tests.control.schedule_world import World
from tests.control.test_at_most_once import DAY_1
from tests.control.test_diamonds import base, view

TABLES = [
    base("a", "fa"),
    base("x", "fx"),
    view("b", "a"),
    view("c", "a", "x"),
    view("d", "b", "c"),
    view("e", "d", "x"),
]


def only_for_the_same(
    state: State, table: TableState, pieces: Iterable[Piece], settling: InFlight | None = None
) -> Unsettled:
    """Late work waits for nothing but changes that are no newer than its own."""
    moving = InFlight(state).before(table, table.seen_us)
    found = [
        (start, end)
        for piece in pieces
        if piece.need.late
        for start, end, dates in moving.since.within(PartitionSet(((piece.start_us, piece.end_us),)))
        if dates.known_us <= piece.need.oldest_us
    ]
    return Unsettled(PartitionSet.of(*found), frozenset(moving.by) if found else frozenset())


def staleness(seed: int) -> tuple[dict[str, float], int]:
    """The mean age of the edge of each view, in seconds, under a file every 10 s of each feed, a fifth of them late; and how
    many updates there were."""
    rng = Random(seed)
    world = World(Random(seed), [Feed("fa"), Feed("fx")], TABLES, tracks=3)
    world.now = begin = DAY_1
    world.tick = lambda: world.now  # type: ignore[method-assign]
    ends: list[tuple[int, str]] = []
    ages: dict[str, list[float]] = {table.name: [] for table in TABLES if not table.is_base}
    updates = 0
    while world.now < begin + 20 * MINUTE_US:
        second = (world.now - begin) // SECOND_US
        for offset, feed in ((0, "fa"), (4, "fx")):
            if second % 10 == offset:
                late = second > 120 and rng.random() < 0.2
                at = world.now - rng.randrange(MINUTE_US, 30 * MINUTE_US) if late else world.now
                world.deliver(feed, world.new_rows([max(begin, at)]))
        while ends and ends[0][0] <= world.now:
            world.finish(heappop(ends)[1])
        for start in world.decide():
            world.start(start)
            updates += 1
            takes = Random(f"{seed} {start.job.table} {world.now}").uniform(2, 6)
            heappush(ends, (world.now + int(takes * SECOND_US), start.job.id))
        for name, found in ages.items():
            edge = world.state.tables[name].edge_us
            if edge is not None and second > 120:
                found.append((world.now - edge) / SECOND_US)
        world.now += SECOND_US
    return {name: mean(found) for name, found in ages.items()}, updates


def test_the_edge_is_as_fresh_as_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = [staleness(seed) for seed in range(3)]
    monkeypatch.setattr(readiness, "waiting", only_for_the_same)
    hurries = [staleness(seed) for seed in range(3)]
    for name in waits[0][0]:
        assert mean(found[name] for found, _ in waits) <= 1.03 * mean(found[name] for found, _ in hurries), name
    assert sum(count for _, count in waits) <= sum(count for _, count in hurries)
