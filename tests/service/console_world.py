"""A warehouse of any size with a past, without Spark: the log is that of a simulated run of the project's own tables.

python -m tests.service.console_world FOLDER --tables 1000 --port 8400   serves its pages, for looking and measuring.
"""

from __future__ import annotations

import argparse
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

from penstock.app import Warehouse
from penstock.control.events import Event, FileArrived, RunStarted, WarehouseDeclared
from penstock.engine.clock import WallClock
from penstock.model.cost import CostModel
from penstock.model.time import HOUR_US, MINUTE_US, SECOND_US
from penstock.requests.job import FeedFile
from penstock.service.serve import Server, watched
from penstock.sim.whatif.recording import Contents, Crowding, Recording
from penstock.sim.whatif.replay import Changes, FeedOutage, Replay, SlowPeriod
from penstock.store.lock import RunLock

# A Tuesday in the evening.
NOW_US = 1_709_668_800 * SECOND_US - 3 * HOUR_US
AREAS = ("net", "bill", "crm", "web", "ops", "fin", "geo")
KINDS = ("clean", "join", "hourly", "daily", "report", "score")
TARGETS = ("5m", "15m", "30m", "1h", "2h", "6h")


def write_project(folder: Path, tables: int = 40, feeds: int = 8, tracks: int = 6, extra: str = "") -> None:
    rng = random.Random(7)
    lines = ['name = "northwind"', f"[run]\ntracks = {tracks}", extra]
    names = [f"{AREAS[n % len(AREAS)]}_feed_{n}" for n in range(feeds)]
    for n, name in enumerate(names):
        period = ("1m", "2m", "5m", "15m")[n % 4]
        lines.append(
            f'[feeds.{name}]\npath = "landing/{name}/*.csv"\nformat = "csv"\ncolumns = "id bigint, ts timestamp, region string, amount bigint"\n'
            f'time = "ts"\nperiod = "{period}"\nlateness = "30s"\npartition = "hour"\nfreshness = "{("5m", "15m", "1h")[n % 3]}"'
        )
    (folder / "tables").mkdir(parents=True)
    (folder / "penstock.toml").write_text("\n".join(lines) + "\n")
    known, grain = list(names), dict.fromkeys(names, "hour")
    for n in range(tables - feeds):
        area, kind = AREAS[n % len(AREAS)], KINDS[rng.randrange(len(KINDS))]
        name = f"{area}_{kind}_{n}"
        source = known[rng.randrange(max(0, len(known) - 90), len(known))] if rng.random() < 0.8 else rng.choice(known)
        part = "day" if kind in ("daily", "report") or grain[source] == "day" else "hour"
        head = f'-- {kind.capitalize()} of {source.replace("_", " ")}, for {area}.\n-- partition = "{part}"\n-- time = "ts"\n'
        if rng.random() < 0.85:
            head += f'-- freshness = "{TARGETS[rng.randrange(len(TARGETS))]}"\n'
        if kind in ("hourly", "daily"):
            body = f"SELECT region, date_trunc('{part}', ts) AS ts, sum(amount) AS amount, count(*) AS id\nFROM {source}\nGROUP BY region, date_trunc('{part}', ts)"
        elif kind in ("join", "report"):
            other = rng.choice([one for one in known if grain[one] == grain[source]])
            body = f"SELECT a.id, date_trunc('{part}', a.ts) AS ts, a.region, a.amount + coalesce(b.amount, 0) AS amount\nFROM {source} a\nLEFT JOIN {other} b ON a.id = b.id AND a.ts = b.ts"
        else:
            body = f"SELECT id, ts, region, amount\nFROM {source}\nWHERE amount > 0"
        (folder / "tables" / f"{name}.sql").write_text(head + body + "\n")
        known.append(name)
        grain[name] = part


def past(warehouse: Warehouse, hours: float, load: float = 1.0, seed: int = 1) -> list[Event]:
    """So many hours of the project, up to `NOW_US`, with an outage and a slow hour in them."""
    declared = warehouse.declared
    graph = declared.graph
    start_us = NOW_US - int(hours * HOUR_US)
    rng = random.Random(seed)
    arrivals: list[FileArrived] = []
    contents = {}
    for feed in graph.feeds.values():
        for n, at in enumerate(range(start_us, NOW_US, feed.period_us)):
            came = at + rng.randrange(feed.period_us // 4)
            file = FeedFile(f"landing/{feed.name}/{n:05}.csv", f"{n}", rng.randrange(40_000, 400_000), came, n + 1)
            arrivals.append(FileArrived(came, feed.name, file))
            changed = ((max(start_us, at - feed.period_us), at),) if n else ((at - MINUTE_US, at),)
            for table in graph.fed_by[feed.name]:
                contents[table, file.uri, file.checksum] = Contents(changed, at, 400, file.size_bytes)
    costs = {}
    for name in graph.order:
        cost = costs[name] = CostModel()
        wanted = load * rng.uniform(1.0, 14.0) * (len(graph.feeds) / len(graph.order)) * 4
        for _ in range(6):
            cost.observe(200_000.0, wanted)
    config = declared.declarations
    first = WarehouseDeclared(
        start_us, tuple(graph.feeds.values()), tuple(graph.tables.values()), config.tracks, config.config.run.policy
    )
    recording = Recording(
        first, start_us, NOW_US, tuple(sorted(arrivals, key=lambda one: one.at_us)), contents, costs,
        dict.fromkeys(graph.order, (0.7, 1.0, 1.3, 1.8)), dict.fromkeys(graph.order, 0.6), 1.0, Crowding(), 1.0, (), 0, 0, 0.0,
    )  # fmt: skip
    broken = next(iter(graph.feeds))
    changes = Changes(
        outages=(FeedOutage(int((hours - 1) * HOUR_US), int((hours - 0.25) * HOUR_US), broken),),
        slowdowns=(SlowPeriod(int((hours - 2.5) * HOUR_US), int((hours - 2) * HOUR_US), 3.0),),
    )
    replay = Replay(recording, tracks=config.tracks, changes=changes, seed=seed, keep_log=True)
    log = list(replay.run().log)
    return [log[0], RunStarted(start_us, "simulated"), *log[1:]]


@contextmanager
def served_past(
    folder: Path, hours: float = 6, *, load: float = 1.0, speed: float = 1.0, port: int = 0, run: bool = True
) -> Iterator[tuple[Server, Warehouse]]:
    """Its pages, with a clock that goes on from the end of the log; `run`: as if a process ran it."""
    with Warehouse(folder, clock=WallClock(speed, NOW_US)) as warehouse:
        with warehouse.store.read() as conn:
            empty = warehouse.store.last_number(conn) == 0
        if empty:
            log = past(warehouse, hours, load)
            with warehouse.store.write() as conn:
                warehouse.store.append(conn, log)
        lock = RunLock(warehouse.store, warehouse.declared.declarations.state_folder / "run.lock")
        if run:
            lock.acquire("simulated")
        try:
            with watched(warehouse, port=port) as server:
                yield server, warehouse
        finally:
            if run:
                lock.release()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--tables", type=int, default=60)
    asked.add_argument("--feeds", type=int, default=8)
    asked.add_argument("--hours", type=float, default=6)
    asked.add_argument("--port", type=int, default=8400)
    told = asked.parse_args()
    if not told.folder.exists():
        write_project(told.folder, told.tables, told.feeds)
    with served_past(told.folder, told.hours, port=told.port) as (server, warehouse):
        server.start()
        print(server.url, flush=True)
        stop = threading.Event()
        n = 100_000
        while not stop.is_set():
            sleep(2)
            n += 1
            now_us = warehouse.clock.now_us()
            feed = next(iter(warehouse.declared.graph.feeds))
            file = FeedFile(f"landing/{feed}/{n}.csv", f"{n}", 120_000, now_us, n)
            with warehouse.store.write() as conn:
                warehouse.store.append(conn, [FileArrived(now_us, feed, file)])


if __name__ == "__main__":
    main()
