"""In which steps tables go on: what cannot keep up, and how much later than its sources a table can be though nothing waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.model.graph import Graph
from penstock.model.steps import cannot_keep_up, held_us
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US

FEED = Feed("f", 5 * MINUTE_US)
BASE = Table("base", "hour", feed="f")
VIEW = Table("view", "hour", sources=(Source("base", (0, 1)),))
CLOSED = replace(VIEW, when="closed")


def graph(view: Table) -> Graph:
    return Graph([FEED], [BASE, view])


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (VIEW, ""),
        (replace(VIEW, propagate=("late",)), "does not take up new rows"),
        (replace(VIEW, propagate=("late", "new")), ""),
        (replace(VIEW, sources=(*VIEW.sources, Source("view", (-1, 0)))), "reads its own earlier partitions"),
        (CLOSED, "a whole hour at least, which is more than its period of 5m: write a period of one hour"),
        (replace(CLOSED, period_us=HOUR_US), ""),
        (replace(CLOSED, period_us=90 * MINUTE_US), "no multiple of: write a period of 1h"),
        (replace(CLOSED, period_us=2 * HOUR_US), ""),
        (replace(CLOSED, period_us=2 * HOUR_US, chop=1), "no multiple of"),
        (replace(CLOSED, partition="month", period_us=31 * DAY_US), "write a period of 28d"),
        (replace(CLOSED, partition="month", period_us=28 * DAY_US), ""),
        (replace(CLOSED, partition="day", zone="Europe/Berlin", period_us=DAY_US), ""),
        (replace(VIEW, period_us=3 * HOUR_US, chop=2), "makes 2 partitions at most (`chop`)"),
    ],
)
def test_what_cannot_keep_up(view: Table, why: str) -> None:
    found = cannot_keep_up(graph(view), "view")
    assert why in found and bool(why) == bool(found)


@pytest.mark.parametrize(
    ("view", "held"),
    [
        (VIEW, 0),
        (replace(CLOSED, period_us=HOUR_US), HOUR_US),
        (replace(CLOSED, partition="month", period_us=28 * DAY_US), 31 * DAY_US + 2 * HOUR_US),
        # It reads the hour after its own, too.
        (replace(VIEW, sources=(Source("base", (0, 2)),)), 3 * HOUR_US),
        (replace(VIEW, sources=(Source("base", (-1, 0)),)), 0),
        # Where it goes from one hour to the next it stops.
        (replace(VIEW, chop=1), 5 * MINUTE_US),
        (replace(VIEW, chop=2), 0),
        (replace(VIEW, group="g", period_us=HOUR_US), HOUR_US),
    ],
)
def test_how_long_it_is_held(view: Table, held: int) -> None:
    assert held_us(graph(view), "view") == held


def test_a_roll_up_is_cut_at_its_ends_where_another_source_is_behind() -> None:
    other = Table("other", "hour", feed="g")
    rolled = replace(VIEW, name="rolled")
    both = Table("both", "day", sources=(Source("rolled", (0, 1)), Source("other", (0, 1))))
    found = Graph([FEED, Feed("g", MINUTE_US)], [BASE, other, rolled, both])
    assert "both" in found.stepped and held_us(found, "both") == DAY_US
