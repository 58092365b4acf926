"""Partitions that are made again with the same rows, through the engine: nobody who reads them is told, whoever wrote the files, and
whenever the process crashes."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from penstock.control.events import UpdateFinished
from penstock.engine.commands.requests import Requesting
from penstock.engine.declarations import restored_state
from penstock.store.store import Store
from penstock.tables import Catalogue
from tests.control.replay import replay
from tests.engine.crashing import Site, check, make_site, stats
from tests.engine.test_crash_everywhere import crash_at

NOW_US = 1_720_000_000_000_000
# The same rows in another order, and the same list of routers once more.
SAME = {
    "stats/s2.csv": stats(("b", "01T23:45", 2), ("b", "02T00:40", 20), ("a", "01T23:05", 4)),
    "routers/r3.csv": "router,site\nc,east\na,west\nb,south\n",
}


def finished(site: Site) -> list[UpdateFinished]:
    store = Store(site.warehouse.declarations.store_url)
    try:
        with store.read() as conn:
            log = list(store.events(conn))
        assert replay(log) == []
        return [event for _, event in log if isinstance(event, UpdateFinished) and event.how != "nothing to merge"]
    finally:
        store.close()


def updates(site: Site, after: int) -> Counter[str]:
    return Counter(event.table for event in finished(site)[after:] if not event.how.startswith("merged"))


def ask(site: Site, table: str, span: str) -> None:
    store = Store(site.warehouse.declarations.store_url)
    try:
        asking = Requesting(site.warehouse, store, Catalogue(site.warehouse.declarations.data_path))
        asking.backfill(restored_state(store), table, span, NOW_US)
    finally:
        store.close()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Where all is made; of some tables the engine writes the files itself, of others Spark does."""
    site = make_site(tmp_path, monkeypatch)
    site.work()
    return site


def test_the_same_rows_in_another_file_go_no_further(site: Site) -> None:
    before = len(finished(site))
    site.work([SAME])
    check(site)
    assert updates(site, before) == {"stats": 1, "routers": 1}
    # A row more is noticed, where it is.
    before = len(finished(site))
    more = {"stats/s2.csv": SAME["stats/s2.csv"] + "a,2024-03-01T23:50:00Z,1\n"}
    site.work([more])
    check(site)
    assert updates(site, before)["hourly"] == 1
    last = [event for event in finished(site)[before:] if event.table == "stats"]
    assert any(publication.same for event in last for publication in event.publications)


@pytest.mark.parametrize("table", ["hourly", "daily", "stats"])
def test_a_backfill_that_changes_nothing_goes_no_further(site: Site, table: str) -> None:
    """`hourly` is folded, and Spark writes it: its digests are computed when they are needed; `daily` is read by a table that reads
    itself."""
    before = len(finished(site))
    ask(site, table, "all")
    site.work([])
    check(site)
    assert set(updates(site, before)) == {table}
    # What was compared is known from then on.
    store = Store(site.warehouse.declarations.store_url)
    try:
        state = restored_state(store)
        catalogue = Catalogue(site.warehouse.declarations.data_path)
        with store.read() as conn:
            files = catalogue.files(conn, table, catalogue.snapshot(conn))
    finally:
        store.close()
    assert files and all(file.digest for file in files)
    assert sum(found.counts.spared for found in state.tables.values()) > 0
    (request,) = state.requests.values()
    assert request.finished_us is not None


def test_a_crash_while_the_same_rows_are_published(site: Site, tmp_path: Path) -> None:
    before = len(finished(site))
    asked = tmp_path / "asked"
    shutil.copytree(site.folder, asked)
    with site.point.watched(lambda _number, _name: None):
        site.work([SAME])
        points = site.point.count
    edges = check(site)
    chance = random.Random(5)
    for point in sorted(chance.sample(range(1, points), 12)):
        site.replace_by(asked)
        site.deliver(SAME)
        taken = crash_at(site, point, tmp_path / "crashed")
        site.replace_by(taken)
        shutil.rmtree(taken)
        site.work([SAME])
        assert check(site) == edges
        made = updates(site, before)
        assert set(made) <= {"stats", "routers"}, f"after a crash at point {point} of {points}: {made}"
