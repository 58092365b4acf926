"""Outages and pauses through the runtime, with crashes: each is on record once, and no file is lost. No Spark."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from penstock.control.events import FeedCameBack, FeedPaused, FeedResumed, FeedWentOut, UpdateFinished
from penstock.control.views.health import feed_health
from penstock.engine.commands.feeds import pause, resume
from penstock.model.time import MINUTE_US
from tests.control.replay import replay
from tests.engine.crashing import Crash, InlineRuntime, Site, make_site, stats


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A file of one row every five minutes."""
    site = make_site(tmp_path, monkeypatch)
    settings = site.folder / "penstock.toml"
    text = settings.read_text()
    assert "[feeds.stats]\n" in text
    settings.write_text(text.replace("[feeds.stats]\n", '[feeds.stats]\nperiod = "5m"\n'))
    return site


class Delivering:
    def __init__(self, site: Site) -> None:
        self.site, self.files = site, 0

    def file(self, process: InlineRuntime, minutes: int = 5) -> None:
        self.site.clock.pass_by(minutes * MINUTE_US)
        minute = self.files * 5
        at = f"01T{minute // 60:02d}:{minute % 60:02d}"
        self.site.deliver({f"stats/s{self.files:03d}.csv": stats(("a", at, 1))})
        self.files += 1
        process.run(until_idle=True)


def about_feeds(process: InlineRuntime) -> list[type]:
    kinds = (FeedWentOut, FeedCameBack, FeedPaused, FeedResumed)
    with process.store.read() as conn:
        return [type(event) for _, event in process.store.events(conn) if isinstance(event, kinds)]


def loaded(process: InlineRuntime) -> int:
    return process.controller.state.tables["stats"].counts.rows


def test_outage_crash_return_pause(site: Site) -> None:
    world = Delivering(site)
    with pytest.raises(Crash), site.running() as process:
        for _ in range(8):
            world.file(process)
        assert about_feeds(process) == []
        site.clock.pass_by(20 * MINUTE_US)
        process.run(until_idle=True)
        process.run(until_idle=True)
        assert about_feeds(process) == [FeedWentOut]
        raise Crash
    with site.running() as process:
        site.clock.pass_by(60 * MINUTE_US)
        process.run(until_idle=True)
        found = feed_health(process.controller.state, "stats", site.clock.now_us())
        assert found.health == "out" and found.said.startswith("stats: out for 1h")
        for _ in range(3):
            world.file(process, 0)
        assert about_feeds(process) == [FeedWentOut, FeedCameBack]
        assert loaded(process) == world.files == 11
        assert not process.controller.state.recovering

        warehouse, store = process.warehouse, process.store
        pause(warehouse, store, process.controller.state, "stats", "moving", site.clock.now_us())
        for _ in range(4):
            world.file(process)
        site.clock.pass_by(120 * MINUTE_US)
        process.run(until_idle=True)
        assert loaded(process) == 11
    with site.running() as process:
        assert feed_health(process.controller.state, "stats", site.clock.now_us()).waiting_files == 4
        process.run(until_idle=True)
        assert loaded(process) == 11
        resume(process.warehouse, process.store, process.controller.state, "stats", site.clock.now_us())
        process.run(until_idle=True)
        assert loaded(process) == world.files == 15
        assert about_feeds(process) == [FeedWentOut, FeedCameBack, FeedPaused, FeedResumed]
        with process.store.read() as conn:
            assert replay(process.store.events(conn)) == []


def test_what_updates_take_is_told_in_the_time_of_the_warehouse(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes sixty times as fast: half a second of work is half a minute, which is what periods are compared with."""
    ticks = count()
    monkeypatch.setattr("penstock.engine.updates.executor.perf_counter", lambda: next(ticks) * 0.5)
    site.clock.speed = 60.0
    with site.running() as process:
        Delivering(site).file(process)
        with process.store.read() as conn:
            took = [event.seconds for _, event in process.store.events(conn) if isinstance(event, UpdateFinished)]
    assert took and set(took) == {30.0}
