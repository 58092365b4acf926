"""`kill -9` of the real process on Spark in the middle of backfills: the next one carries on where they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.control.events import UpdateFinished, UpdateStarted
from tests.engine.crashing import write_project
from tests.engine.test_backfill import FILES, check, day, deliver, run
from tests.engine.test_kill import QUICK_START, events, last_words
from tests.waiting import until

pytestmark = pytest.mark.spark


def correct_silently(folder: Path, number: int) -> None:
    """Other numbers in a loaded file that nobody can notice: only making it again shows them."""
    path = folder / "landing" / f"{number:03}.csv"
    before = path.stat()
    text = path.read_text().replace(f",{number}\n", f",{number + 30}\n")
    assert len(text) == before.st_size and text != path.read_text()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_killed_in_the_middle(tmp_path: Path, spark: SparkSession) -> None:
    settings = FILES["penstock.toml"] + QUICK_START.replace("\n", "\n        ")
    chopped = FILES["tables/both.sql"].replace("SELECT", "-- chop = 2\n        SELECT", 1)
    write_project(tmp_path, FILES | {"penstock.toml": settings, "tables/both.sql": chopped})
    for number in range(24):
        deliver(tmp_path, number)
    with Warehouse(tmp_path, spark=spark) as warehouse:
        run(warehouse)
        edges = {name: table.edge_us for name, table in warehouse.state().tables.items()}
        for number in range(10, 16):
            correct_silently(tmp_path, number)
        before = warehouse.state().applied
        asked = [
            warehouse.backfill("sales", f"{day(10)}..{day(15)}").request.request,
            warehouse.backfill("both", f"{day(3)}..{day(12)}").request.request,
        ]
    command = [sys.executable, "-m", "penstock.cli.main", "run", "--quiet", "--project", str(tmp_path)]
    done = len(events(tmp_path, "update-finished"))
    with (tmp_path / "run.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            # Some of it is made, and more is being made.
            until(
                lambda: (
                    process.poll() is not None
                    or (
                        len(events(tmp_path, "update-finished")) >= done + 2
                        and len(events(tmp_path, "update-started")) > len(events(tmp_path, "update-finished"))
                    )
                ),
                "the middle of the backfills",
            )
            assert process.poll() is None, last_words(tmp_path)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with Warehouse(tmp_path, spark=spark) as warehouse:
        open_ = [each for each in warehouse.requests() if each.finished_us is None]
        assert open_ and all(each.made + each.left for each in open_)
        run(warehouse)
        check(tmp_path)
        found = {each.request: each for each in warehouse.requests()}
        assert all(found[number].stage == "done" and not found[number].left for number in asked)
        assert {name: table.edge_us for name, table in warehouse.state().tables.items()} == edges
        with warehouse.store.read() as conn:
            log_ = [event for _, event in warehouse.store.events(conn, before)]
        # What was published before the kill is not made again, only what was not.
        finished = {event.job for event in log_ if isinstance(event, UpdateFinished)}
        made = [
            (event.job.table, piece.start_us, piece.end_us)
            for event in log_
            if isinstance(event, UpdateStarted) and event.job.id in finished
            for piece in event.job.pieces
        ]
        for table, start, end in made:
            assert sum(t == table and s < end and start < e for t, s, e in made) == 1, f"{table} was made twice"
