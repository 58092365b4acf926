"""The pipeline of Xu, Gao, Davidson 2023, Table 13, on the controller that users run: three tables that are loaded, one
that is made from them, three that are made from that. Ten changes come, as files or as backfills; settings are those that
a project can declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Any

from penstock.control.controller import Controller
from penstock.control.events import BackfillRequested, Event, FileArrived, RunStarted, UpdateFinished, WarehouseDeclared
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import BEGIN_US, END_US, SECOND_US
from penstock.papers.experiment import Experiment, Finding, Picture, add
from penstock.papers.requests.youtube import flat, minutes, points
from penstock.papers.requests.youtube_queue import BUSINESS, LOADED, STAGES
from penstock.requests.job import FeedFile, PublishedTable
from penstock.sim.rows import Row, averages

# Of each way to run it: the settings of tables that are loaded, and of all tables.
WAYS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "default": ({}, {}),
    "patience 10m": ({}, {"patience_us": 600 * SECOND_US}),
    "queue 3m": ({"queue_us": 180 * SECOND_US}, {}),
}
# What the trial of these rules came to, and the paper with a queue.
_EXPECTED = {"default": 16.0, "patience 10m": 13.0, "queue 3m": 7.0}


@dataclass
class Ran:
    updates: int = 0
    # The longest time from the arrival of a change until the last table had it.
    most_late_s: float = 0.0


def run_live(way: str, changes: list[tuple[float, str]], rng: Random, *, files: bool) -> Ran:
    """All changes through the pipeline, from rest to rest."""
    loads, every = WAYS[way]
    feeds = [Feed(f"feed_{name}", mode="snapshot", timed=False) for name in LOADED]
    tables = [
        Table(name, feed=f"feed_{name}", logic="x", **loads, **every)
        if not sources
        else Table(name, sources=tuple(Source(source) for source in sources), logic="x", **every)
        for name, sources in STAGES.items()
    ]
    controller = Controller()
    queue: list[tuple[int, int, Event]] = []
    begin = 10**12
    events: list[Event] = [
        RunStarted(begin, "one"),
        WarehouseDeclared(begin, tuple(feeds), tuple(tables), len(tables), "max-benefit"),
    ]
    # Each table learns what its updates take.
    events += [_file(name, begin + n * 900 * SECOND_US, n) for n in range(1, 6) for name in LOADED]
    rest = begin + 6 * 900 * SECOND_US
    for number, (at_s, name) in enumerate(changes):
        at_us = rest + int(at_s * SECOND_US)
        asked = BackfillRequested(at_us, name, ((BEGIN_US, END_US),))
        events.append(_file(name, at_us, 100 + number) if files else asked)
    for number, event in enumerate(events):
        heappush(queue, (event.at_us, number, event))
    return _drive(controller, queue, rng, rest)


def _file(table: str, at_us: int, number: int) -> FileArrived:
    return FileArrived(at_us, f"feed_{table}", FeedFile(f"{table}/{number}", f"c{number}", 100, at_us))


def _drive(controller: Controller, queue: list[tuple[int, int, Event]], rng: Random, rest_us: int) -> Ran:
    ran, number, snapshot = Ran(), len(queue), 0
    since: dict[str, int] = {}
    now = 0
    while queue or controller.wake_at_us is not None:
        wake = controller.wake_at_us
        if queue and (wake is None or queue[0][0] <= wake):
            now, _, event = heappop(queue)
            if isinstance(event, UpdateFinished):
                snapshot += 1
                done = PublishedTable(event.table, snapshot, append=False)
                event = UpdateFinished(now, event.job, event.table, (done,), event.seconds)
            controller.apply(event)
            if now >= rest_us and isinstance(event, FileArrived | BackfillRequested):
                since.setdefault("oldest", now)
        else:
            assert wake is not None
            now = max(now, wake)
        if queue and queue[0][0] == now:
            continue  # what comes at one moment is known together
        for start in controller.decide(now):
            controller.apply(start.started(controller.state.applied))
            seconds = minutes(start.job.table, rng)
            number += 1
            end = now + int(seconds * SECOND_US)
            heappush(queue, (end, number, UpdateFinished(end, start.job.id, start.job.table, (), seconds)))
            ran.updates += now >= rest_us
        state = controller.state
        calm = not state.busy and not any(table.needs or table.files for table in state.tables.values())
        if calm and "oldest" in since:
            ran.most_late_s = max(ran.most_late_s, (now - since.pop("oldest")) / SECOND_US)
    return ran


def _pipeline(point: Any) -> list[Row]:
    rng = Random(point["seed"])
    at, changes = 0.0, []
    for _ in range(point["changes"]):
        at += rng.uniform(1.0, 30.0)
        changes.append((at, rng.choice(LOADED)))
    rows = []
    for way in point["ways"]:
        for files in (True, False):
            found = run_live(way, changes, Random(point["seed"]), files=files)
            rows.append(
                {
                    "experiment": point["experiment"],
                    "way": way,
                    "comes_as": "files" if files else "backfills",
                    "seed": point["seed"],
                    "updates": found.updates,
                    "least": len({name for _, name in changes}) + 1 + len(BUSINESS),
                    "most_late_s": found.most_late_s,
                }
            )
    return flat(rows, point)


def _judge(rows: list[Row]) -> list[Finding]:
    found = averages(rows, "updates", "way", "comes_as")
    late = max((row["most_late_s"] for row in rows if row["way"] == "queue 3m"), default=0.0)
    return [
        *(
            Finding(
                f"{way}: about {_EXPECTED[way]:g} updates",
                abs(at - _EXPECTED[way]) <= 1,
                f"{at:.1f} on average, by {comes_as}",
            )
            for (way, comes_as), at in found.items()
            if comes_as == "files"
        ),
        Finding("with a queue all is there within 10 minutes", late <= 600, f"{late:.0f} s at most"),
    ]


add(
    Experiment(
        "youtube-live",
        "Table 13 on the live controller: ten changes of a 3-1-3 pipeline, as files and as backfills",
        {"changes": 10, "ways": tuple(WAYS)},
        points("youtube-live"),
        _pipeline,
        _judge,
        Picture("way", "updates", "comes_as"),
    )
)
