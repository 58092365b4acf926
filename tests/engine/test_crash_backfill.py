"""A crash in the middle of backfills: after a restart they are carried on, and every row is there exactly once."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from penstock.control.views.requests import requests
from penstock.engine.commands.requests import Requesting
from penstock.engine.declarations import restored_state
from penstock.errors import PenstockError
from penstock.store.store import Store
from penstock.tables import Catalogue
from tests.engine.crashing import Site, check, make_site, stats
from tests.engine.test_crash_everywhere import crash_at

NOW_US = 1_720_000_000_000_000
HOURS = "2024-03-01T22..2024-03-01T23"
WISHES = [("context", "2024-03-01", True), ("stats", HOURS, True), ("daily", "all", False), ("hourly", "2024-03", True)]


def requesting(site: Site, store: Store) -> Requesting:
    return Requesting(site.warehouse, store, Catalogue(site.warehouse.declarations.data_path))


def ask(site: Site) -> None:
    store = Store(site.warehouse.declarations.store_url)
    try:
        for table, span, downstream in WISHES:
            requesting(site, store).backfill(restored_state(store), table, span, NOW_US, downstream=downstream)
    finally:
        store.close()


def stages(site: Site) -> list[str]:
    store = Store(site.warehouse.declarations.store_url)
    try:
        return [each.stage for each in requests(restored_state(store))]
    finally:
        store.close()


def correct_silently(site: Site) -> None:
    """Other content of a loaded file that nobody can notice: same size, same time. Only making it again shows it."""
    path = site.folder / "landing/stats/s1.csv"
    before = path.stat()
    path.write_text(stats(("a", "01T22:05", 80), ("b", "01T22:25", 9), ("a", "01T22:50", 5)))
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_crash_at_moments_of_backfills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(tmp_path, monkeypatch)
    site.work()
    edges = check(site)
    correct_silently(site)
    site.work([])
    with pytest.raises(AssertionError, match="published"):
        check(site)
    ask(site)
    assert stages(site)[::-1] == ["waiting", "queued", "waiting", "queued"]
    asked = tmp_path / "asked"
    shutil.copytree(site.folder, asked)
    with site.point.watched(lambda _number, _name: None):
        site.work([])
        points = site.point.count
    assert check(site) == edges and stages(site) == ["done"] * 4
    chance = random.Random(11)
    for point in sorted(chance.sample(range(1, points), 8)):
        site.replace_by(asked)
        taken = crash_at(site, point, tmp_path / "crashed")
        site.replace_by(taken)
        shutil.rmtree(taken)
        site.work([])
        assert check(site) == edges and stages(site) == ["done"] * 4, f"after a crash at point {point} of {points}"


def test_what_each_file_states_anew_is_made_again_from_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(tmp_path, monkeypatch)
    site.work()
    (site.folder / "landing/routers/r1.csv").unlink()  # which nothing is made from any more
    path = site.folder / "landing/routers/r2.csv"
    before = path.stat()
    path.write_text(path.read_text().replace("west", "home"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    store = Store(site.warehouse.declarations.store_url)
    try:
        assert requesting(site, store).backfill(restored_state(store), "routers", None, NOW_US).request.partitions == 1
    finally:
        store.close()
    site.work([])
    check(site)
    assert stages(site) == ["done"]


def test_a_base_table_is_made_again_from_the_files_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(tmp_path, monkeypatch)
    site.work()
    (file,) = sorted((site.folder / "landing/routers").glob("*.csv"))[-1:]
    content = file.read_text()
    file.unlink()
    store = Store(site.warehouse.declarations.store_url)
    state = restored_state(store)
    ask = requesting(site, store).backfill
    try:
        # Of a file that adds rows those are kept; what a snapshot said is needed.
        with pytest.raises(PenstockError, match=rf"routers/{file.name} is no longer there; put it back"):
            ask(state, "routers", None, NOW_US)
        with pytest.raises(PenstockError, match=r"partitioned by hour: say which partitions, .* hourly 2024-03-03`"):
            ask(state, "hourly", None, NOW_US)
        with pytest.raises(PenstockError, match="has nothing in 2025; it goes from 2024-03-01 22:00 to 2024-03-03"):
            ask(state, "hourly", "2025", NOW_US)
        with pytest.raises(PenstockError, match="ends before it begins"):
            ask(state, "hourly", "2024-03-02..2024-03-01", NOW_US)
        assert not state.requests
        file.write_text(content)
        assert ask(state, "stats", HOURS, NOW_US).request.partitions == 2
        with pytest.raises(PenstockError, match="there is no request 7;"):
            requesting(site, store).cancel(state, 7, NOW_US)
        (number,) = state.requests
        before, after = requesting(site, store).cancel(state, number, NOW_US)
        assert (before.stage, after.stage, after.dropped) == ("queued", "cancelled", 2)
        with pytest.raises(PenstockError, match=r"is cancelled since .*: there is nothing left to cancel"):
            requesting(site, store).cancel(state, number, NOW_US)
    finally:
        store.close()
