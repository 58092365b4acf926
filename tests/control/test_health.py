"""Feeds that deliver and feeds that do not, as `penstock status` tells them."""

from __future__ import annotations

from datetime import UTC

import pytest

from penstock.cli.inspect import feed_notes
from penstock.control.controller import Controller
from penstock.control.events import FeedFile, FileArrived, RunStarted, UpdateFinished, UpdateStarted, WarehouseDeclared
from penstock.control.health import feed_health
from penstock.model.tables import Feed, Table
from penstock.model.time import MINUTE_US, SECOND_US, parse_instant

T = parse_instant("2024-03-01T09:12")


def world(policy: str = "fifo") -> Controller:
    controller = Controller()
    controller.apply(RunStarted(T, "me"))
    feeds = (Feed("router_stats", 5 * MINUTE_US), Feed("alerts", MINUTE_US))
    tables = tuple(Table(feed.name, "hour", feed=feed.name, cost_us=20 * SECOND_US) for feed in feeds)
    controller.apply(WarehouseDeclared(T, feeds, tables, 2, policy))
    controller.apply(FileArrived(T, "router_stats", FeedFile("a", "1", 10, T)))
    return controller


@pytest.mark.parametrize(
    ("minutes", "condition", "overdue"), [(4, "healthy", 0), (7, "healthy", 2), (8, "late", 3), (19, "out", 14)]
)
def test_conditions(minutes: int, condition: str, overdue: int) -> None:
    found = feed_health(world().state, T + minutes * MINUTE_US)
    assert (found[0].condition, found[0].overdue_us, found[0].last_us) == (condition, overdue * MINUTE_US, T)
    assert found[1].condition == "unknown"


def test_what_is_running_or_loaded_counts_too() -> None:
    controller = world()
    (command,) = controller.decide(T)
    controller.apply(UpdateStarted(T, command.job, command.track, command.why))
    assert feed_health(controller.state, T)[0].last_us == T
    controller.apply(UpdateFinished(T, command.job.id, "router_stats", (), 1.0))
    assert feed_health(controller.state, T)[0].last_us == T


def test_the_notes_of_status() -> None:
    state = world().state
    assert feed_notes(state, T + MINUTE_US, UTC) == []
    (note,) = feed_notes(state, T + 19 * MINUTE_US, UTC)
    assert note.plain == "router_stats: out for 14m, last file 2024-03-01 09:12"


def test_a_bound_that_does_not_hold_is_told_with_the_assumption_that_failed() -> None:
    state = world("adaptive").state
    state.tables["router_stats"].edge_us = T
    (out, violated) = feed_notes(state, T + 30 * MINUTE_US, UTC)
    assert out.plain.startswith("router_stats: out for 25m")
    # Y = 20 + (20 + 20 - 20) / (2 - 1) = 40 s; behind by (5m + 40s) + 5m + 5m
    assert violated.plain == (
        "router_stats is staler than the 15m 40s that were proven: "
        "arrival rate: the last file of `router_stats` came 30m ago, one every 5m was expected"
    )
