"""The demo's feeds: always the same files, with everything in them that the demo wants to show."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.netops.feeds import FEEDS, DemoFile, Generator, Network, Scale, deliver
from penstock.engine.clock import WallClock
from penstock.model.time import DAY_US, MINUTE_US, SECOND_US, parse_duration, parse_instant
from tests.waiting import LONG_S

ORIGIN_US = parse_instant("2026-03-09 23:12")
HOUR_US = 60 * MINUTE_US


def network(minutes: int = 120, seed: int = 7) -> Network:
    return Network(ORIGIN_US, minutes * MINUTE_US, seed)


def rows_of(delivery: DemoFile) -> list[dict[str, str]]:
    text = delivery.content.decode()
    if delivery.name.endswith(".json"):
        return [json.loads(line) for line in text.splitlines()]
    return list(csv.DictReader(io.StringIO(text)))


def test_the_same_seed_gives_the_same_files() -> None:
    assert network().deliveries() == network().deliveries()
    assert network().history() == network().history()
    assert network(seed=8).deliveries() != network().deliveries()


def test_a_longer_run_begins_with_the_same_rows() -> None:
    # Incidents move, what the routers report does not.
    plain = {d.path: d.content for d in network(240).deliveries() if d.kind == "plain" and not d.refused}
    shared = [d for d in network(120).deliveries() if d.kind == "plain" and d.path in plain and not d.refused]
    assert len(shared) > 500
    assert all(plain[d.path] == d.content for d in shared)


@pytest.mark.parametrize("minutes", [20, 30, 120, 600])
def test_everything_happens(minutes: int) -> None:
    made = network(minutes).deliveries()
    assert made == sorted(made, key=lambda d: d.due_us)
    kinds = Counter(d.kind for d in made)
    assert (kinds["late"], kinds["again"], kinds["corrected"], kinds["malformed"]) == (4, 1, 1, 1)
    assert kinds["held"] > 10
    assert sum(d.refused for d in made) == 7
    assert {d.feed for d in made if d.refused} == {"router_stats", "alerts"}
    assert (ORIGIN_US + minutes * MINUTE_US > parse_instant("2026-03-10")) == any(d.feed == "topology" for d in made)
    again = next(d for d in made if d.kind == "again")
    first = next(d for d in made if d.path == again.path)
    assert (first.content, first.kind) == (again.content, "plain") and first.due_us < again.due_us
    corrected = next(d for d in made if d.kind == "corrected")
    before = next(d for d in made if d.path == corrected.path)
    assert before.content != corrected.content and before.due_us < corrected.due_us


def test_lateness_within_and_beyond() -> None:
    made = network().deliveries()
    for feed, lateness, kept in (("router_stats", "3m", True), ("syslog", "0s", False)):
        files = [d for d in made if d.feed == feed and d.kind in ("plain", "late")]
        for delivery in (d for d in files if d.kind == "late"):
            newest = max(rows_of(d)[-1]["ts"] for d in files if d.due_us < delivery.due_us and d.kind == "plain")
            oldest = min(parse_instant(row["ts"]) for row in rows_of(delivery))
            assert (oldest >= parse_instant(newest) - parse_duration(lateness)) is kept


def test_the_outage() -> None:
    net = network()
    start, end = net.outage.start_us, net.outage.end_us
    came = [d.due_us for d in net.deliveries() if d.feed == "alerts"]
    assert not [due for due in came if start <= due < end]
    assert came.count(end) == (end - start) // (10 * SECOND_US) + 1


def test_rows_are_where_their_file_says() -> None:
    net = network()
    for delivery in [*net.history(), *net.deliveries()]:
        if delivery.kind == "malformed":
            continue
        found = rows_of(delivery)
        assert len(found) == delivery.rows + delivery.refused
        column = {"alerts": "raised", "topology": "day"}.get(delivery.feed, "ts")
        times = [parse_instant(row[column]) for row in found if row[column]]
        assert max(times) < delivery.due_us + (DAY_US if delivery.feed == "topology" else 0)


def test_history_comes_before() -> None:
    history = network().history()
    assert {d.feed for d in history} == set(FEEDS)
    assert all(d.due_us == ORIGIN_US for d in history)
    slots = {
        parse_instant(row["ts"]) // (5 * MINUTE_US) for d in history if d.feed == "router_stats" for row in rows_of(d)
    }
    # Few partitions: it must load fast.
    assert len(slots) <= 3 + 3


def test_delivered_whole_and_in_time(tmp_path: Path) -> None:
    net = Network(ORIGIN_US, 20 * MINUTE_US, scale=Scale(1, 4, 60, 3))
    clock = WallClock(1200, ORIGIN_US)
    generator = Generator(tmp_path, net.deliveries(), clock, net.end_us)
    generator.start()
    while not generator.finished.wait(0.05):
        delivered = list(generator.delivered)
        now = clock.now_us()
        assert all(d.due_us <= now + SECOND_US for d in delivered)
    assert generator.error is None
    assert clock.now_us() >= net.end_us
    assert generator.delivered == net.deliveries()
    files = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {d.path: d.content for d in net.deliveries()}


def test_stops_when_told(tmp_path: Path) -> None:
    net = network()
    generator = Generator(tmp_path, net.deliveries(), WallClock(1, ORIGIN_US), net.end_us)
    generator.start()
    generator.stop()
    assert generator.finished.is_set() and len(generator.delivered) < len(net.deliveries())


def test_an_error_is_kept(tmp_path: Path) -> None:
    net = network(20)
    (tmp_path / "landing").write_text("in the way")
    generator = Generator(tmp_path, net.deliveries(), WallClock(10**6, ORIGIN_US), net.end_us)
    generator.start()
    assert generator.finished.wait(LONG_S)
    assert isinstance(generator.error, OSError)


def test_deliver_replaces(tmp_path: Path) -> None:
    one = DemoFile(0, "alerts", "a.json", b"first", 1)
    deliver(tmp_path, one)
    deliver(tmp_path, replace(one, content=b"second"))
    assert [path.read_bytes() for path in (tmp_path / "landing" / "alerts").iterdir()] == [b"second"]
