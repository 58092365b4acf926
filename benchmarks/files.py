"""Looking for files: many lie in the landing folder (`PENSTOCK_BENCH_FILES`, a million unless told), all loaded long ago, and a few come.

Times are processor time of this process except for `new file known`, which is the clock's. Against: a plain list with the size and time of
each file, which is what any look at all of them costs at least.
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, process_time, sleep

from sqlalchemy import insert

from penstock.app import Warehouse
from penstock.engine.arrivals.intake import Arrivals
from penstock.engine.arrivals.watcher import Lookout
from penstock.store.schema import file

FILES = int(os.environ.get("PENSTOCK_BENCH_FILES", "1000000"))
IDLE_S = 30.0
NEW = 20
PROJECT = """
name = "files"
[feeds.f]
path = "landing/**/*.csv"
format = "csv"
columns = "k string"
settle = "0s"
"""


def run() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as made:
        folder = Path(made)
        (folder / "penstock.toml").write_text(PROJECT)
        landing = folder / "landing"
        landing.mkdir()
        for number in range(FILES):
            with open(landing / f"f{number:07d}.csv", "w") as stream:
                stream.write("k\na\n")
        with Warehouse(folder) as warehouse:
            plain, statuses = _listed(landing)
            _put_on_record(warehouse, statuses)
            return [*_looked(warehouse, landing, plain)]


def _listed(landing: Path) -> tuple[float, dict[str, os.stat_result]]:
    began = process_time()
    with os.scandir(landing) as entries:
        found = {entry.name: entry.stat() for entry in entries}
    return process_time() - began, found


def _put_on_record(warehouse: Warehouse, statuses: dict[str, os.stat_result]) -> None:
    """As loaded long ago."""
    rows = [
        {"feed": "f", "uri": f"landing/{name}", "checksum": "0" * 32, "size_bytes": status.st_size, "mtime_ns": status.st_mtime_ns,
         "status": "loaded", "arrived_us": 0, "id": number}
        for number, (name, status) in enumerate(sorted(statuses.items()), 1)
    ]  # fmt: skip
    with warehouse.store.write() as conn:
        conn.execute(insert(file), rows)


def _looked(warehouse: Warehouse, landing: Path, plain: float) -> list[dict[str, object]]:
    declared = warehouse.declared
    feeds = list(declared.feeds.values())
    arrivals = Arrivals(
        warehouse.store, declared.declarations.folder, feeds, declared.feed_schemas.get, warehouse.clock.now_us
    )
    news = threading.Event()
    lookout = Lookout(arrivals, 0.2, news.set)
    began = process_time()
    lookout.start()
    while not lookout.is_done(idle=True):
        news.wait(0.1)
        news.clear()
        lookout.found()
    first = process_time() - began
    began_cpu, began = process_time(), monotonic()
    while monotonic() - began < IDLE_S:
        sleep(0.5)
        lookout.found()
    idle = (process_time() - began_cpu) / (monotonic() - began)
    took = []
    for number in range(NEW):
        (landing / "new.tmp").write_text(f"k\n{number}\n")
        news.clear()
        began = perf_counter()
        (landing / "new.tmp").rename(landing / f"new{number}.csv")
        while not lookout.found():
            news.wait(0.01)
            news.clear()
        took.append(perf_counter() - began)
        sleep(0.05 * (number % 5))
    lookout.stop()
    arrivals.close()
    return [
        {
            "benchmark": f"first look at {FILES:,} files, s",
            "value": first,
            "against": "plain list",
            "theirs": plain,
            "ratio": first / plain,
        },
        {"benchmark": f"idle with {FILES:,} files, % of a core", "value": 100 * idle, "limit": 2.0},
        {"benchmark": "new file known, ms (median)", "value": 1000 * median(took)},
        {"benchmark": "new file known, ms (worst)", "value": 1000 * max(took), "limit": 1000.0},
    ]
