"""Feeds that fall silent, come back, are paused and resumed: what the core says of them, and what it does."""

from __future__ import annotations

import json
from math import ceil

import pytest

from penstock.control.controller import Controller
from penstock.control.events import (
    Event,
    FeedCameBack,
    FeedPaused,
    FeedResumed,
    FeedWentOut,
    FileArrived,
    RunStarted,
    RunStopped,
    UpdateFinished,
    UpdateStarted,
    WarehouseDeclared,
)
from penstock.control.snapshot import dump, load
from penstock.control.state import State
from penstock.control.views.explain import explain
from penstock.control.views.health import FeedWatch, feed_health
from penstock.control.views.recovery import assumed, broken, guarantees, hanging, recoveries, violated
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import MINUTE_US, SECOND_US, parse_instant
from penstock.requests.job import FeedFile, Job, PublishedTable
from penstock.store.schema import decode, encode
from tests.control.replay import replay

T0 = parse_instant("2024-03-01 09:00")
STATS = Feed("router_stats", 2 * MINUTE_US)
TABLES = (
    Table("stats", "day", feed="router_stats", logic="x"),
    Table("hourly", "day", sources=(Source("stats", (0, 1)),), logic="x"),
)


class Life:
    """A controller and a watch, driven by hand as a runtime does it."""

    def __init__(self, feed: Feed = STATS, policy: str = "max-benefit") -> None:
        self.log: list[tuple[int, Event]] = []
        self.controller = Controller()
        self.watch = FeedWatch(self.controller.state)
        self.snapshot = 0
        self.tell(RunStarted(T0, "one"), WarehouseDeclared(T0, (feed,), TABLES, 1, policy))

    @property
    def state(self) -> State:
        return self.controller.state

    def tell(self, *events: Event) -> None:
        for event in events:
            self.log.append((len(self.log) + 1, decode(encode(event))))
            self.controller.apply(*reversed(self.log[-1]))
            self.watch.saw(event)

    def file(self, at_us: int) -> None:
        number = len(self.log)
        self.tell(FileArrived(at_us, "router_stats", FeedFile(f"{number}.csv", "c", 100, at_us)))

    def look(self, at_us: int) -> list[Event]:
        found = self.watch.happened(at_us)
        self.tell(*found)
        return found

    def work(self, at_us: int, seconds: float = 1.0) -> list[str]:
        """Everything that is ready, one after the other."""
        ran = []
        while commands := self.controller.decide(at_us):
            for command in commands:
                job = command.job
                self.tell(UpdateStarted(at_us, job, command.track, command.why, self.state.applied))
                self.snapshot += 1
                newest = max((file.arrived_us for file in job.files), default=at_us) - 5 * SECOND_US
                edge = newest if job.files else job.complete_us
                published = PublishedTable(job.table, self.snapshot, True, ((T0, newest),), edge, newest, T0, 1, 1, 1)
                self.tell(UpdateFinished(at_us, job.id, job.table, (published,), seconds))
                ran.append(job.table)
        return ran

    def health(self, at_us: int):
        return feed_health(self.state, "router_stats", at_us)

    def resumed_from_disk(self) -> Life:
        """Another process: the state as it was saved, or folded again."""
        again = Life.__new__(Life)
        again.log, again.snapshot = list(self.log), self.snapshot
        folded = State().fold(self.log)
        assert dump(folded) == dump(load(json.loads(json.dumps(dump(self.state))))) | {"now_us": folded.now_us}
        again.controller = Controller(folded)
        again.watch = FeedWatch(folded)
        return again


def delivered(minutes: int = 12, **more) -> Life:
    """A file every two minutes from 09:00 to 09:12, all loaded."""
    life = Life(**more)
    for n in range(0, minutes + 1, 2):
        life.file(T0 + n * MINUTE_US)
        life.work(T0 + n * MINUTE_US + SECOND_US)
    return life


def minute(n: float) -> int:
    return T0 + round(n * MINUTE_US)


def test_healthy_late_out() -> None:
    life = delivered()
    # p = 2 min, J = 0: due at 09:14, late after p + p/4 = 2.5 min, out after 3 p = 6 min.
    assert life.health(minute(14.5)).health == "healthy"
    late = life.health(minute(14.6))
    assert (late.health, late.since_us) == ("late", minute(14))
    assert life.health(minute(18)).health == "late"
    assert life.health(minute(28)).said == "router_stats: out for 14m, last file 09:12"
    assert life.look(minute(18)) == []
    assert life.look(minute(18.1)) == [FeedWentOut(minute(18.1), "router_stats", minute(14), minute(12))]
    assert life.look(minute(18.2)) == []
    assert life.health(minute(28)).said == "router_stats: out for 14m, last file 09:12"


def test_it_comes_back() -> None:
    life = delivered()
    life.look(minute(19))
    life.file(minute(30))
    assert life.health(minute(30)).health == "healthy"
    assert life.look(minute(30)) == [FeedCameBack(minute(30), "router_stats", minute(14))]
    assert life.look(minute(30)) == []
    assert life.state.feeds["router_stats"].out_since_us is None
    # One long silence of seven changes nothing of what is usual.
    found = life.health(minute(31))
    assert (found.health, found.period_us, found.jitter_us, found.learned_period_us) == (
        "healthy",
        2 * MINUTE_US,
        0,
        2 * MINUTE_US,
    )
    assert found.next_us == minute(32)


def test_seconds_are_told_where_they_matter() -> None:
    assert delivered().health(minute(14.6)).said == "router_stats: late by 36s, last file 09:12:00"


def test_how_old_records_are_is_learned() -> None:
    assert delivered().health(minute(13)).stamp_us == 5 * SECOND_US


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_crash_loses_and_doubles_no_outage(cut: str) -> None:
    life = delivered()
    if cut == "after":
        life.look(minute(19))
    again = life.resumed_from_disk()
    assert bool(again.look(minute(20))) == (cut == "before")
    # The next process begins to wait when it starts, and ends the outage that is on record.
    third = again.resumed_from_disk()
    third.tell(RunStarted(minute(21), "two"))
    assert third.look(minute(40)) == []
    third.file(minute(41))
    crashed = third.resumed_from_disk()
    assert [type(event) for event in crashed.look(minute(41))] == [FeedCameBack]
    assert [type(event) for event in third.look(minute(41))] == [FeedCameBack]
    assert third.look(minute(42)) == []


def test_silence_counts_only_while_someone_looks() -> None:
    life = delivered()
    life.tell(RunStopped(minute(13), "one"))
    assert life.health(minute(300)).health == "not watched"
    life.tell(RunStarted(minute(300), "two"))
    assert life.look(minute(302)) == []
    assert life.health(minute(302)).health == "healthy"
    # Nothing had come in all that time: then it was out all the time.
    assert life.look(minute(307)) == [FeedWentOut(minute(307), "router_stats", minute(14), minute(12))]


def test_a_feed_of_which_nothing_is_known() -> None:
    guessed = Feed("router_stats", guessed=True)
    life = Life(guessed)
    assert life.health(minute(100)).said == "router_stats: learning, no file yet"
    life.file(T0)
    assert life.look(minute(5000)) == []
    assert life.health(minute(5000)).health == "learning"
    known = delivered(30, feed=guessed)
    assert known.health(minute(31)).period_us == 2 * MINUTE_US
    assert [type(event) for event in known.look(minute(37))] == [FeedWentOut]


def test_declared_jitter_is_patience() -> None:
    life = delivered(feed=Feed("router_stats", 2 * MINUTE_US, jitter_us=10 * MINUTE_US))
    assert life.look(minute(28)) == []  # 12 + 3 * 2 + 10
    assert life.look(minute(28.1)) != []


def test_paused_files_wait_and_nothing_is_lost() -> None:
    life = delivered()
    life.tell(FeedPaused(minute(13), "router_stats", "new routers"))
    for n in (14, 16, 18):
        life.file(minute(n))
    assert life.work(minute(18)) == []
    assert life.controller.idle
    found = life.health(minute(23))
    assert found.said == "router_stats: paused for 10m (new routers), 3 files waiting, last file 09:18"
    assert life.look(minute(60)) == []
    said = explain(life.state, "stats", minute(23)).lines
    assert any(
        "its feed router_stats is paused (new routers); `penstock resume router_stats` goes on" in line for line in said
    )
    assert any("made from router_stats: paused" in line for line in explain(life.state, "hourly", minute(23)).lines)

    again = life.resumed_from_disk()
    again.tell(FeedResumed(minute(60), "router_stats"))
    assert again.look(minute(61)) == []  # the wait begins anew
    late = again.health(minute(63))
    assert late.said == "router_stats: late by 1m, last file 09:18"
    assert again.work(minute(61)) == ["stats", "hourly"]
    assert again.state.tables["stats"].last is not None and len(again.state.tables["stats"].last.job.files) == 3
    assert replay(again.log) == []


def test_the_adaptive_policy_does_not_wait_for_what_is_paused() -> None:
    life = delivered(policy="adaptive")
    life.tell(FeedPaused(minute(13), "router_stats"))
    for n in (14, 16, 18, 20):
        life.file(minute(n))
    assert life.work(minute(20)) == []
    assert life.controller.wake_at_us is None and life.controller.idle
    life.tell(FeedResumed(minute(21), "router_stats"))
    assert set(life.state.recovering) == {"stats", "hourly"}
    ran = [life.work(minute(21) + n * 10 * SECOND_US) for n in range(60)]
    assert sum("stats" in each for each in ran) >= 1 and not life.state.tables["stats"].files
    assert not life.state.recovering
    assert replay(life.log) == []


def test_a_feed_may_be_paused_before_the_first_run() -> None:
    state = State().fold([(1, FeedPaused(T0, "router_stats", "not yet"))])
    state.fold(enumerate((RunStarted(T0, "one"), WarehouseDeclared(T0, (STATS,), TABLES, 1, "fifo")), 2))
    state.apply(FileArrived(T0, "router_stats", FeedFile("1.csv", "c", 1, T0)))
    assert Controller(state).decide(T0) == []


def test_recovery_begins_with_the_return_and_ends_when_caught_up() -> None:
    life = delivered()
    life.look(minute(19))
    for n in range(5):
        life.file(minute(30) + n * SECOND_US)
    life.look(minute(31))
    assert set(life.state.recovering) == {"stats", "hourly"}
    found = life.state.recovering["hourly"]
    assert (found.feed, found.cause, found.outage_us) == ("router_stats", "outage", 16 * MINUTE_US)
    life.resumed_from_disk()
    life.work(minute(31))
    assert not life.state.recovering


def test_nothing_recovers_from_a_pause_in_which_nothing_came() -> None:
    life = delivered()
    life.tell(FeedPaused(minute(13), "router_stats"), FeedResumed(minute(14), "router_stats"))
    assert not life.state.recovering


def test_explain_says_that_the_feed_is_out() -> None:
    life = delivered()
    life.look(minute(19))
    found = explain(life.state, "hourly", minute(28))
    assert "made from router_stats: out for 14m, last file 09:12" in found.lines
    assert [feed.health for feed in found.feeds] == ["out"]


def test_a_bound_that_does_not_hold_is_told_with_the_assumption_that_failed() -> None:
    feeds = (Feed("router_stats", 5 * MINUTE_US), Feed("alerts", MINUTE_US))
    tables = tuple(Table(feed.name, "hour", feed=feed.name, cost_us=20 * SECOND_US) for feed in feeds)
    state = State()
    state.apply(RunStarted(T0, "me"))
    state.apply(WarehouseDeclared(T0, feeds, tables, 2, "adaptive"))
    state.apply(FileArrived(T0, "router_stats", FeedFile("a", "1", 10, T0)))
    state.tables["router_stats"].edge_us = T0
    (found,) = violated(state, minute(30))
    # Y = 20 + (20 + 20 - 20) / (2 - 1) = 40 s; behind by (5m + 40s) + 5m + 5m
    assert (found.bound_us, found.assumption) == (940 * SECOND_US, "arrival rate")
    assert found.said == "the last file of `router_stats` came 30m ago, one every 5m was expected"
    state.apply(FeedPaused(minute(30), "router_stats"))
    assert violated(state, minute(30)) == []


def test_an_update_that_hangs_is_a_lost_track() -> None:
    """Files come as they should, but the update of one table does not end."""
    feeds = (Feed("router_stats", MINUTE_US), Feed("alerts", MINUTE_US))
    tables = tuple(Table(feed.name, "hour", feed=feed.name, cost_us=20 * SECOND_US) for feed in feeds)
    state = State()
    state.apply(RunStarted(T0, "me"))
    state.apply(WarehouseDeclared(T0, feeds, tables, 2, "adaptive"))
    hangs = FeedFile("a", "1", 10, T0)
    state.apply(FileArrived(T0, "router_stats", hangs))
    state.apply(UpdateStarted(T0, Job("1", "router_stats", "load", 0, (hangs,)), 1, "is late"))
    for n in range(1, 11):
        for feed in feeds:
            state.apply(FileArrived(minute(n), feed.name, FeedFile(f"{feed.name}{n}", "1", 10, minute(n))))
    state.tables["router_stats"].edge_us, state.tables["alerts"].edge_us = T0, minute(10)
    # A job of at most 20 s hangs after 100 s; Y = 20 + 20 / (2 - 1) = 40 s; behind by (1m + 40s) + 1m + 1m = 3m 40s.
    assert hanging(state, guarantees(state.graph, {}, 2)[1], T0 + 100 * SECOND_US) == {}
    assert violated(state, T0 + 100 * SECOND_US) == []
    (found,) = violated(state, minute(10))
    assert (found.table, found.bound_us, found.assumption) == ("router_stats", 220 * SECOND_US, "lost track")
    assert found.said == "1 of 2 tracks work; track 1 has been at `router_stats` for 10m, at most 20s was assumed"
    # So is one that the bounds count on and that nobody has.
    (found,) = broken(state, assumed(state.graph, {}, 3), minute(10))
    assert found.said.startswith("1 of 3 tracks work; track 1 has been")


def behind(policy: str, files: int = 10) -> State:
    """Two tracks, a feed every 5 minutes, 20 s an update; out from 09:05 and back at 10:00 with all that was missed."""
    feeds = (Feed("router_stats", 5 * MINUTE_US),)
    tables = (
        Table("stats", "hour", feed="router_stats", cost_us=20 * SECOND_US),
        Table("hourly", "hour", sources=(Source("stats", (0, 1)),), cost_us=40 * SECOND_US),
    )
    state = State()
    state.apply(RunStarted(T0, "me"))
    state.apply(WarehouseDeclared(T0, feeds, tables, 2, policy))
    state.apply(FileArrived(T0, "router_stats", FeedFile("a", "1", 10, T0)))
    state.apply(FeedWentOut(minute(20), "router_stats", minute(5), T0))
    for n in range(files):
        state.apply(FileArrived(minute(60), "router_stats", FeedFile(f"{n}", "1", 10, minute(60))))
    state.apply(FeedCameBack(minute(60), "router_stats", minute(5)))
    return state


def test_a_recovery_with_its_expected_and_its_proven_end() -> None:
    stats, hourly = recoveries(behind("adaptive"), minute(60))
    assert (stats.table, stats.cause, stats.outage_us, stats.pending_files) == ("stats", "outage", 55 * MINUTE_US, 11)
    assert (stats.lag_us, hourly.lag_us) == (55 * MINUTE_US, 55 * MINUTE_US)
    # 11 updates of 20 s, in what its own normal share of 20/300 leaves of a track; then 11 of 40 s with a share of 40/300.
    assert stats.expected_end_us == minute(60) + ceil(220 * SECOND_US / (1 - 20 / 300))
    assert hourly.expected_end_us == stats.expected_end_us + ceil(440 * SECOND_US / (1 - 40 / 300))
    # Y = 20 + (20 + 40 - 20) / (2 - 1) = 60 s, Theta = 360 s; p' = 20 s as the rest of a track is free:
    # Q = 360 + 3 * 300 = 1260 s; ceil((3300 + 1260 + 360 - 300) / (300 - 20)) + 1 = 18 jobs; x = 360 + 18 * 20 = 720 s
    assert stats.latest_end_us == minute(60) + 720 * SECOND_US
    assert hourly.latest_end_us is not None and hourly.latest_end_us > stats.latest_end_us


def test_nothing_is_proven_under_another_policy() -> None:
    stats, _ = recoveries(behind("fifo"), minute(60))
    assert stats.expected_end_us is not None and stats.latest_end_us is None


def test_a_recovery_that_is_paused_is_not_one() -> None:
    state = behind("adaptive")
    state.apply(FeedPaused(minute(60), "router_stats"))
    assert recoveries(state, minute(60)) == []
