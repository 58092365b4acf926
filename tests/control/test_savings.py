"""What became of every reason to make something again."""

from __future__ import annotations

from dataclasses import replace

from penstock.control.events import BackfillRequested
from penstock.control.snapshot import dump, load
from penstock.control.views.savings import savings
from penstock.model.time import DAY_US
from tests.control.schedule_world import World
from tests.control.test_at_most_once import DAY_1, base, start_all, view, warehouse
from tests.control.test_holding import run


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


def test_what_a_pending_reason_says_already_is_a_duplicate() -> None:
    """Two sources tell a table of one request: it comes by both."""
    world = warehouse([base("a"), view("b", "a"), view("c", "a"), view("d", "b", "c")])
    backfill(world, "a", 0, 1)
    run(world)
    (row,) = [row for row in savings(world.state) if row.table == "d"]
    assert row.duplicates >= 1 and row.merged >= row.duplicates
