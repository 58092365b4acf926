"""What became of every reason to make something again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.events import BackfillRequested
from penstock.control.snapshot import dump, load
from penstock.control.views.savings import in_hindsight, savings
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US
from tests.control.schedule_world import World
from tests.control.test_at_most_once import DAY_1, base, late_file, start_all, view, warehouse
from tests.control.test_holding import run
from tests.requests.live_world import LiveDriver


def backfill(world: World, table: str, first: int, last: int, reason: str = "") -> None:
    interval = (DAY_1 + first * DAY_US, DAY_1 + last * DAY_US)
    world.emit(BackfillRequested(world.tick(), table, (interval,), reason))


def test_every_fate_is_counted() -> None:
    world = warehouse([base("a"), view("b", "a"), view("c", "b"), replace(view("d", "c"), propagate=("audit",))])
    before = {row.table: row for row in savings(world.state)}

    def since(table: str, name: str) -> int:
        (now,) = [row for row in savings(world.state) if row.table == table]
        return getattr(now, name) - getattr(before[table], name)

    backfill(world, "b", 0, 3)
    backfill(world, "b", 1, 2)  # pending already
    start_all(world)
    backfill(world, "b", 0, 1)  # a running update makes it
    run(world)
    assert [since("b", name) for name in ("reasons", "updates", "merged", "joined")] == [3, 1, 2, 1]
    assert [since("c", name) for name in ("reasons", "updates", "merged", "held")] == [1, 1, 0, 0]
    assert since("d", "updates") == 0 and since("d", "held") > 0
    world.compares = True
    backfill(world, "b", 0, 3)
    run(world)
    assert since("c", "spared") == 3 and since("c", "updates") == 1
    total = savings(world.state)[-1]
    assert total.table == "" and total.reasons == sum(row.reasons for row in savings(world.state)[:-1])
    assert savings(load(dump(world.state))) == savings(world.state)


@pytest.mark.parametrize(("target_us", "least"), [(None, 1), (HOUR_US, 1), (MINUTE_US, 2)])
def test_what_hindsight_would_have_made(target_us: int | None, least: int) -> None:
    """Two changes of one day, ten minutes apart: one update is enough for whoever may be late by so much."""
    world = warehouse([base("a"), view("b", "a"), view("c", "b", target_us=target_us)])
    for _ in range(2):
        late_file(world, "fa")
        run(world)
        world.now += 10 * MINUTE_US
    found = {row.table: row for row in savings(world.state, in_hindsight(world.log))}
    assert [(found[name].made, found[name].least) for name in "bc"] == [(2, least), (2, least)]


def test_where_merged_reasons_came_from() -> None:
    world = warehouse([base("a"), base("x"), view("b", "a"), view("c", "a"), view("d", "b", "c"), view("e", "d", "x")])
    backfill(world, "a", 0, 1)  # comes to d by two ways
    run(world)
    assert in_hindsight(world.log).merged == {"same origin": 1}
    backfill(world, "b", 0, 1)
    backfill(world, "c", 0, 1)  # both are made from a
    backfill(world, "x", 0, 1)
    run(world)
    found = in_hindsight(world.log).merged
    assert found["same ancestor"] == 1 and found["independent"] == 1


def test_no_schedule_makes_less_than_hindsight() -> None:
    made = least = 0
    for seed in range(60):
        driver = LiveDriver(seed)
        driver.run(4)
        past = in_hindsight(driver.world.log)
        for row in savings(past.state, past)[:-1]:
            assert row.least <= row.made, (seed, row)
            made, least = made + row.made, least + row.least
    assert least < made < 3 * least


def test_what_a_pending_reason_says_already_is_a_duplicate() -> None:
    """Two sources tell a table of one request: it comes by both."""
    world = warehouse([base("a"), view("b", "a"), view("c", "a"), view("d", "b", "c")])
    backfill(world, "a", 0, 1)
    run(world)
    (row,) = [row for row in savings(world.state) if row.table == "d"]
    assert row.duplicates >= 1 and row.merged >= row.duplicates
