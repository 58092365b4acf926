"""The pages in a real browser: every page, what an operator does, live pictures, who may not, a lost connection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from penstock.app import Warehouse
from penstock.control.events import BackfillRequested, FeedPaused, FileArrived, RequestCancelled
from penstock.requests.job import FeedFile
from penstock.service.console import ASSETS
from penstock.service.serve import Server, watched
from penstock.store import tokens
from tests.service.conftest import Served
from tests.service.console_shots import CHROMIUM, DESK, PHONE, browser
from tests.service.console_world import served_past, write_project
from tests.waiting import LONG_S

AXE = Path(__file__).parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.skipif(not (ASSETS / "index.html").exists(), reason="needs the pages: make console"),
]
LONG_MS = LONG_S * 1000
PAGES = {
    "": "Now",
    "tables": "Tables",
    "time": "What ran",
    "what-if": "What if",
    "what-if?bounds": "What if",
    "requests": "Requests",
    "queries": "Ask",
    "health": "Health",
}


@dataclass
class World:
    server: Server
    warehouse: Warehouse

    @property
    def feed(self) -> str:
        return next(iter(self.warehouse.declared.graph.feeds))

    def events(self, kind: type[Any]) -> list[Any]:
        with self.warehouse.store.read() as conn:
            return [event for _, event in self.warehouse.store.events(conn) if isinstance(event, kind)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("console") / "project"
    write_project(folder, tables=14, feeds=3, tracks=2)
    with served_past(folder, hours=3) as (server, warehouse):
        server.start()
        yield World(server, warehouse)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    yield from opened(chromium)


def opened(chromium: Any, **looks: Any) -> Iterator[Any]:
    context = chromium.new_context(viewport=looks.pop("viewport", DESK), **looks)
    context.set_default_timeout(LONG_MS)
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    yield page
    context.close()
    assert page.problems == []


def go(page: Any, server: Server, where: str) -> None:
    page.goto("about:blank")
    page.goto(f"{server.url}/#/{where}")
    page.wait_for_selector(".live")


def settled(page: Any) -> None:
    """All that the page asked for is there."""
    page.wait_for_selector("main >> text=/^(loading …|waiting for the first picture …)$/", state="detached")


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_every_page(world: World, chromium: Any, look: str) -> None:
    """Each says what it is, throws nothing, and axe finds nothing serious in it."""
    for page in opened(
        chromium, viewport=PHONE if look == "phone" else DESK, color_scheme="dark" if look == "dark" else "light"
    ):
        for where, title in {**PAGES, f"table/{world.feed}": world.feed}.items():
            go(page, world.server, where)
            page.wait_for_selector(f"h1:has-text('{title}')", state="attached")
            settled(page)
            assert not page.locator(".problem").count(), (where, page.locator(".problem").all_inner_texts())
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
            assert not serious, (where, [(one["id"], [node["html"] for node in one["nodes"]][:4]) for one in serious])
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 1, f"{where} is {wide} px wider than the screen"


def test_find_a_table_by_keyboard(world: World, page: Any) -> None:
    name = next(name for name, table in world.warehouse.declared.graph.tables.items() if not table.is_base)
    go(page, world.server, "")
    page.click("text=List")
    page.keyboard.press("/")
    page.keyboard.type(name)
    rows = page.locator("#tables tbody tr")
    expect(rows).to_have_count(1, timeout=LONG_MS)
    assert name in rows.first.inner_text()
    rows.first.locator("a").click()
    page.wait_for_selector(f"h1:has-text('{name}')")
    settled(page)
    assert "SELECT" in page.inner_text("main")


def test_what_comes_is_seen_at_once(world: World, page: Any) -> None:
    go(page, world.server, "")
    page.wait_for_selector("#arrivals tbody tr")
    now_us = world.warehouse.clock.now_us()
    file = FeedFile(f"landing/{world.feed}/just-now.csv", "just-now", 5_000, now_us, 9_999)
    with world.warehouse.store.write() as conn:
        world.warehouse.store.append(conn, [FileArrived(now_us, world.feed, file)])
    page.wait_for_selector("#arrivals >> text=just-now.csv")


def test_a_backfill_from_plan_to_cancel(world: World, page: Any) -> None:
    go(page, world.server, f"table/{world.feed}")
    page.click("text=Backfill …")
    page.fill("dialog input[name=span]", "2024-03-05T12..2024-03-05T14")
    page.fill("dialog input[name=reason]", "seen in a test")
    page.click("text=Show the plan")
    page.wait_for_selector("dialog >> text=/update/")
    assert not world.events(BackfillRequested), "nothing is asked for before it is confirmed"
    page.click("text=Have it made again")
    page.wait_for_selector("text=/request .* was taken/")
    [asked] = world.events(BackfillRequested)
    assert asked.table == world.feed and asked.reason == "seen in a test"
    go(page, world.server, "requests")
    page.click("tbody tr:has-text('seen in a test') >> text=Cancel")
    page.click("text=Cancel the request")
    page.wait_for_selector("text=/is cancelled/")
    assert len(world.events(RequestCancelled)) == 1


def test_pause_resume_retry(world: World, page: Any) -> None:
    go(page, world.server, f"table/{world.feed}")
    page.click(f"text=Pause {world.feed}")
    page.fill("dialog input[name=reason]", "the sender is moved")
    page.click("dialog >> button.primary")
    page.wait_for_selector(f"text=Resume {world.feed}")
    [paused] = world.events(FeedPaused)
    assert paused.reason == "the sender is moved"
    page.click(f"text=Resume {world.feed}")
    page.wait_for_selector(f"button:text('Pause {world.feed}')")
    page.click("button:text('Retry')")
    page.wait_for_selector("text=/has failed/")
    go(page, world.server, "health")
    page.wait_for_selector("text=/the sender is moved/")


def test_time_zooms(world: World, page: Any) -> None:
    go(page, world.server, "time")
    page.wait_for_selector("text=/updates, .* failures/")
    before = page.inner_text("text=/updates, .* failures/")
    page.click("button:text('5m')")
    expect(page.get_by_text(before)).to_have_count(0, timeout=LONG_MS)
    drawn = page.evaluate(
        "[...document.querySelectorAll('canvas')].some(c => c.width && c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v))"
    )
    assert drawn


def test_the_log_under_other_settings(world: World, page: Any) -> None:
    go(page, world.server, "what-if")
    page.fill("textarea", "fifo\nmax-benefit")
    page.fill("input[placeholder='2,4,8']", "2,4")
    page.click("button:text('Compute')")
    page.wait_for_selector("text=/is advised|are too few/")
    assert page.locator("tbody tr:has-text('fifo')").count() == 2
    go(page, world.server, "what-if?bounds")
    page.wait_for_selector("text=/load/")
    page.locator("input[type=range]").last.fill("0")
    page.wait_for_selector("text=no outage")


def test_a_lost_connection(tmp_path: Path, chromium: Any) -> None:
    write_project(tmp_path / "project", tables=4, feeds=2)
    for page in opened(chromium):
        with served_past(tmp_path / "project", hours=1) as (server, _):
            server.start()
            port = int(server.url.rsplit(":", 1)[1])
            go(page, server, "")
        page.wait_for_selector("text=/The connection is lost/")
        with Warehouse(tmp_path / "project") as warehouse, watched(warehouse, port=port) as again:
            again.start()
            page.wait_for_selector("text=/The connection is lost/", state="detached")


def test_who_may_only_look(tmp_path: Path, chromium: Any) -> None:
    extra = '[serve]\ntokens = true\n[profiles.desk]\n[profiles.oncall]\nrole = "operator"\n'
    write_project(tmp_path / "project", tables=4, feeds=2, extra=extra)
    with Warehouse(tmp_path / "project") as made, made.store.write() as conn:
        _, reader = tokens.add(conn, "desk", "", 1)
        _, operator = tokens.add(conn, "oncall", "", 1)
    with served_past(tmp_path / "project", hours=1) as (server, warehouse):
        server.start()
        feed = next(iter(warehouse.declared.graph.feeds))
        for page in opened(chromium):
            page.goto(server.url)
            for wrong, token in (("no-such-token", reader), ("", operator)):
                page.wait_for_selector("input[name=token]")
                if wrong:
                    page.fill("input[name=token]", wrong)
                    page.click("text=Log in")
                    page.wait_for_selector("[role=alert]")
                page.fill("input[name=token]", token)
                page.click("text=Log in")
                page.wait_for_selector(".live")
                page.goto(f"{server.url}/#/table/{feed}")
                page.wait_for_selector("h1:has-text('" + feed + "')")
                assert page.is_enabled("button:text('Retry')") is (token == operator)
                assert page.is_enabled(f"button:text('Pause {feed}')") is (token == operator)
                page.click("text=Log out")


@pytest.mark.spark
def test_ask_in_the_page(shop: Served, page: Any) -> None:
    page.goto(f"{shop.url}/#/queries")
    page.wait_for_selector(".cm-content")
    page.click(".cm-content")
    page.keyboard.type("select shop, count(*) as n from sales group by shop order by shop")
    page.click("button:text('Run')")
    page.wait_for_selector("td:text('berlin')")
    assert re.search(r"berlin\s+50\s+paris\s+50", page.inner_text("main"))
