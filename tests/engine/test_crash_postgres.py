"""The same walk with the store on PostgreSQL: interrupted at random points, replaced by another process, locked."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.store.store import Fenced
from tests.engine.crashing import DELIVERIES, Crash, Delivery, Site, check, make_site
from tests.tables.conftest import postgres  # noqa: F401

EVERYTHING: Delivery = {name: content for files in DELIVERIES for name, content in files.items()}
_count = 0


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Site:
    global _count
    _count += 1
    place = request.getfixturevalue("postgres")(f"project{_count}")
    made = make_site(tmp_path, monkeypatch)
    settings = made.folder / "penstock.toml"
    store = f'name = "crashing"\n[store]\nurl = "postgresql://penstock@{place}"\n'
    settings.write_text(settings.read_text().replace('name = "crashing"\n', store))
    return made


def test_a_whole_walk(site: Site) -> None:
    site.work()
    check(site)


def test_interrupted_again_and_again(site: Site) -> None:
    chance = random.Random(12)
    for files in DELIVERIES:
        site.deliver(files)
        for _ in range(3):
            point = chance.randrange(150, 700)

            def watch(number: int, _name: str, point: int = point) -> None:
                if number == point:
                    raise Crash

            try:
                with site.point.watched(watch):
                    site.work([])
            except Crash:
                pass
    site.work([])
    check(site)


def test_a_process_that_was_replaced_publishes_nothing(site: Site) -> None:
    site.deliver(DELIVERIES[0])
    with site.running() as old:

        def watch(_number: int, name: str) -> None:
            if name == "durable":
                with old.store.write() as conn:
                    old.store.set_fact(conn, "owner", "run-another")

        with pytest.raises(Fenced, match="run-another"), site.point.watched(watch):
            old.run(until_idle=True)
        with old.store.read() as conn:
            assert old.catalogue.tables(conn) == []
    site.work([EVERYTHING])
    check(site)
