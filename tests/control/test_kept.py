"""What must not hold up tables of which something is promised: demand, queries, patience, queues, backfills, upkeep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.control.controller import Controller
from penstock.control.events import (
    BackfillRequested,
    DemandSeen,
    FileArrived,
    RefreshRequested,
    RunStarted,
    StartUpdate,
    UpdateFinished,
    WarehouseDeclared,
)
from penstock.control.views.explain import explain
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import HOUR_US, MINUTE_US, SECOND_US
from penstock.requests.job import FeedFile, PublishedTable

FEEDS = (Feed("stats", 5 * MINUTE_US), Feed("other", 5 * MINUTE_US))
TABLES = (
    Table("stats", "hour", feed="stats", cost_us=20 * SECOND_US, guarantee=True, queue_us=HOUR_US, exact_time=True),
    Table("other", "hour", feed="other", cost_us=20 * SECOND_US, exact_time=True),
    Table("hourly", "hour", sources=(Source("stats", (0, 1)),), cost_us=40 * SECOND_US, guarantee=True),
)


class World:
    def __init__(self, tracks: int = 1, policy: str = "adaptive") -> None:
        self.controller = Controller()
        self.now = 0
        self.snapshot = 0
        self.controller.apply(RunStarted(0, "me"))
        self.controller.apply(WarehouseDeclared(0, FEEDS, TABLES, tracks, policy, "demand"))

    def file(self, feed: str, number: int) -> None:
        at = number * 5 * MINUTE_US
        self.controller.apply(FileArrived(self.now, feed, FeedFile(f"{feed}/{number}", "1", 10, at)))

    def work(self, until: int) -> Iterator[StartUpdate]:
        """Everything that starts up to some time; a job takes 10 s."""
        state = self.controller.state
        while self.now < until:
            for command in self.controller.decide(self.now):
                self.controller.apply(command.started(state.applied))
                yield command
            busy = list(state.busy.values())
            self.now += 10 * SECOND_US
            for running in busy:
                self._finish(running.job)

    def _finish(self, job) -> None:
        self.snapshot += 1
        numbers = [int(file.uri.partition("/")[2]) for file in job.files]
        upto = max(numbers, default=0) * 5 * MINUTE_US
        changed = ((min(numbers, default=1) * 5 * MINUTE_US - 5 * MINUTE_US, upto),) if numbers else ()
        changed += tuple((piece.start_us, piece.end_us) for piece in job.pieces)
        complete = upto or job.complete_us
        found = PublishedTable(job.table, self.snapshot, not job.pieces, changed, complete, complete, 0)
        self.controller.apply(UpdateFinished(self.now, job.id, job.table, (found,), 10.0))


def test_demand_and_queues_do_not_put_off_what_is_promised() -> None:
    world = World()
    starts = []
    for number in range(1, 25):
        for feed in ("stats", "other"):
            world.file(feed, number)
        world.controller.apply(DemandSeen(world.now, (("other", 100),)))
        starts += [command.job.table for command in world.work(number * 5 * MINUTE_US)]
    assert starts.count("stats") == 24 and starts.count("hourly") >= 23


def test_a_query_waits_until_released_updates_have_started() -> None:
    world = World()
    for feed in ("other", "stats"):
        world.file(feed, 1)
    world.controller.apply(RefreshRequested(0, "q", (("other", ((0, HOUR_US),)),), HOUR_US))
    first, second = [next(world.work(HOUR_US)) for _ in range(2)]
    assert (first.job.table, second.job.table) == ("stats", "other")
    assert "a query waits" in second.why


@pytest.mark.parametrize("policy", ["adaptive", "adaptive(plain)"])
def test_a_backfill_of_a_base_table_is_cut_and_comes_after_new_files(policy: str) -> None:
    """Forty-seven hours were asked for: an hour at a time, and no update that loads a file makes any of them."""
    world = World(policy=policy)
    for number in range(1, 12 * 48):
        world.file("stats", number)
        list(world.work(number * 5 * MINUTE_US))
    start = world.now
    world.controller.apply(BackfillRequested(start, "stats", ((0, 47 * HOUR_US),)))
    world.file("stats", 12 * 48)
    starts = [each.job for each in world.work(start + 2 * HOUR_US) if each.job.table == "stats"]
    assert starts[0].files and not starts[0].pieces
    made = [sum(piece.end_us - piece.start_us for piece in job.pieces) for job in starts[1:] if job.pieces]
    assert max(made) == HOUR_US and sum(made) == 47 * HOUR_US


def test_a_flood_of_queries_makes_the_warehouse_update_less() -> None:
    """One price for both: what queries take, updates cannot have. Nothing was put off for them, however many they were."""

    def starts(busy: float) -> tuple[int, str]:
        world = World()
        found = 0
        for number in range(1, 49):
            world.file("other", number)
            world.controller.apply(DemandSeen(world.now, (("stats", 100), ("other", 10)), busy))
            found += [command.job.table for command in world.work(number * 5 * MINUTE_US)].count("other")
        return found, explain(world.controller.state, "other", world.now).demand or ""

    calm, crowd = starts(0.0), starts(1.0)
    assert calm[0] == 48 and crowd[0] <= 40
    assert "as updates and queries take 100%" in crowd[1]
