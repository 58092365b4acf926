"""The core alone, without Spark and without a store: folding a log, and deciding among many tables.

Times are processor time of this process, so that a busy machine does not spoil them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from statistics import median
from time import process_time

from penstock.control.controller import Controller
from penstock.control.events import (
    Event,
    FileArrived,
    FileRewritten,
    RunStarted,
    UpdateFinished,
    UpdateStarted,
    WarehouseDeclared,
)
from penstock.control.snapshot import dump, load
from penstock.control.state import State
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import MINUTE_US, SECOND_US, parse_instant
from penstock.requests.job import FeedFile, Job, PublishedTable
from penstock.requests.needs import Need, Piece
from penstock.scheduling.policies import DEFAULT

T0 = parse_instant("2024-03-01")
Log = Iterator[tuple[int, Event]]


def run() -> list[dict[str, object]]:
    return [*folding(), *deciding(grow=False), *deciding(grow=True), *replanning(), *replanning(tracks=2)]


# Folding


def warehouse(bases: int) -> WarehouseDeclared:
    """Of each base table an hourly roll-up, the same rows, a daily roll-up of the hours, and one of all time."""
    tables: list[Table] = []
    for n in range(bases):
        tables += [
            Table(f"base{n}", "hour", feed=f"feed{n}"),
            Table(f"hours{n}", "hour", sources=(Source(f"base{n}", (0, 1)),), foldable=True),
            Table(f"rows{n}", "day", sources=(Source(f"base{n}", (0, 1)),), exact_time=True, foldable=True),
            Table(f"days{n}", "day", sources=(Source(f"hours{n}", (0, 1)),)),
            Table(f"ever{n}", sources=(Source(f"hours{n}"),)),
        ]
    return WarehouseDeclared(T0, tuple(Feed(f"feed{n}") for n in range(bases)), tuple(tables), 8, "max-benefit")


def history(bases: int) -> Log:
    """What such a warehouse logs when a file comes for each feed every minute: arrivals, starts, finishes."""
    declared = warehouse(bases)
    derived = [table for table in declared.tables if not table.is_base]
    number, snapshot, jobs = 2, 0, 0
    yield 1, RunStarted(T0, "bench")
    yield 2, declared
    minute = 0
    while True:
        start, end = T0 + minute * MINUTE_US, T0 + (minute + 1) * MINUTE_US
        now = end
        for n in range(bases):
            now += 1000
            file = FeedFile(f"feed{n}/{minute}", "c", 10_000, now)
            job = Job(f"job-{jobs + 1:06d}", f"base{n}", "load", snapshot, files=(file,))
            jobs, snapshot = jobs + 1, snapshot + 1
            published = PublishedTable(f"base{n}", snapshot, True, ((start, end),), end, end - 1, start, 100, 9_000, 1)
            yield number + 1, FileArrived(now, f"feed{n}", file)
            yield number + 2, UpdateStarted(now, job, n % 8, "", number + 1)
            yield number + 3, UpdateFinished(now, job.id, job.table, (published,), 0.2)
            number += 3
        for n, table in enumerate(derived):
            now += 1000
            piece = Piece(*table.grain.hull(start, end), Need(snapshot, start, now))
            job = Job(f"job-{jobs + 1:06d}", table.name, "derive", snapshot, (), (piece,), end, end)
            jobs, snapshot = jobs + 1, snapshot + 1
            published = PublishedTable(
                table.name, snapshot, table.exact_time, ((start, end),), end, end - 1, start, 100, 9_000, 1
            )
            yield number + 1, UpdateStarted(now, job, n % 8, "", number)
            yield number + 2, UpdateFinished(now, job.id, table.name, (published,), 0.3, "fold")
            number += 2
        minute += 1


def folding(events: int = 1_000_000, bases: int = 40, chunk: int = 20_000) -> list[dict[str, object]]:
    log = history(bases)
    state = State()
    seconds = 0.0
    sizes: list[int] = []
    while state.applied < events:
        some = list(islice(log, chunk))
        began = process_time()
        state.fold(some)
        seconds += process_time() - began
        # Like a controller that asks now and then; else the set of touched tables is all that would grow.
        state.take_touched()
        sizes.append(len(json.dumps(dump(state))))
    began = process_time()
    saved = dump(state)
    saving = process_time() - began
    began = process_time()
    load(saved)
    loading = process_time() - began
    what = f"{events:,} events, {5 * bases} tables"
    return [
        {"benchmark": f"fold {what}", "value": seconds, "unit": "s", "limit": 30.0},
        {"benchmark": "fold one event", "value": seconds / events * 1e6, "unit": "us"},
        {
            "benchmark": f"saved state after {events // 10:,} events",
            "value": sizes[len(sizes) // 10] / 1e3,
            "unit": "kB",
        },
        {"benchmark": f"saved state after {events:,} events", "value": sizes[-1] / 1e3, "unit": "kB"},
        {"benchmark": "save the state", "value": saving * 1e3, "unit": "ms"},
        {"benchmark": "load the state", "value": loading * 1e3, "unit": "ms"},
    ]


# Deciding


def crowded(
    tables: int, grow: bool, policy: str = "max-benefit", apart_us: int = SECOND_US // 100, tracks: int = 2
) -> tuple[Controller, int]:
    """A warehouse in which every table has work to do; with `grow` it is all late, so that every index grows."""
    rng = random.Random(1)
    half = tables // 2
    feeds = tuple(Feed(f"feed{n}", 60 * MINUTE_US) for n in range(half))
    declared = [Table(f"base{n}", "hour", feed=f"feed{n}", priority=rng.choice([0.1, 1.0, 10.0])) for n in range(half)]
    declared += [Table(f"view{n}", "hour", sources=(Source(f"base{n}", (0, 1)),)) for n in range(half)]
    controller = Controller()
    controller.apply(RunStarted(T0, "bench"))
    controller.apply(WarehouseDeclared(T0, feeds, tuple(declared), tracks, policy))
    now = T0 + 90 * MINUTE_US
    snapshot = 0

    def update(job: Job, *ranges: tuple[int, int], edge: int) -> None:
        nonlocal snapshot, now
        now += rng.randrange(1, apart_us)
        snapshot += 1
        published = PublishedTable(job.table, snapshot, True, ranges, edge, edge - 1, T0, 10, 1_000, 1)
        controller.apply(UpdateStarted(now, job, 0, "", controller.state.applied))
        controller.apply(UpdateFinished(now, job.id, job.table, (published,), rng.uniform(0.1, 3.0)))

    for n in range(half):
        edge = T0 + 80 * MINUTE_US
        update(Job(f"first-{n}", f"base{n}", "load", snapshot), (T0, edge), edge=edge)
        pieces = (Piece(T0, T0 + 120 * MINUTE_US, Need(1, T0, now)),)
        update(Job(f"view-{n}", f"view{n}", "derive", snapshot, (), pieces, edge, edge), (T0, edge), edge=edge)
        late = (T0 + n % 60 * MINUTE_US, T0 + (n % 60 + 1) * MINUTE_US)
        newer = edge if grow else edge + MINUTE_US
        update(Job(f"late-{n}", f"base{n}", "load", snapshot), late if grow else (edge, newer), edge=newer)
        now += 1  # later than what the views wait for, so that they need not wait for this, too
        file = FeedFile(f"feed{n}/1", "c", rng.randrange(1_000, 1_000_000), now)
        if grow:
            controller.apply(FileRewritten(now, f"feed{n}", file, (late,)))
        else:
            controller.apply(FileArrived(now, f"feed{n}", file))
    return controller, now


def deciding(tables: int = 10_000, rounds: int = 300, *, grow: bool) -> list[dict[str, object]]:
    """One event, the refresh of what it touched, and a decision, each time a little later."""
    controller, now = crowded(tables, grow)
    began = process_time()
    controller.decide(now)
    first = process_time() - began
    rng = random.Random(2)
    times: list[float] = []
    for turn in range(rounds):
        now += rng.randrange(SECOND_US // 10, 20 * SECOND_US)
        n = rng.randrange(tables // 2)
        file = FeedFile(f"feed{n}/{turn + 2}", "c", 10_000, now)
        began = process_time()
        controller.apply(FileArrived(now, f"feed{n}", file))
        starts = controller.decide(now)
        times.append(process_time() - began)
        assert len(starts) == 2 and len(controller.ready) == tables
    times.sort()
    what = f"{tables:,} tables ready, " + ("all indices grow" if grow else "indices constant")
    return [
        {"benchmark": f"decide, {what}: median", "value": median(times) * 1e3, "unit": "ms", "limit": 5.0},
        {"benchmark": f"decide, {what}: 99 %", "value": times[int(rounds * 0.99)] * 1e3, "unit": "ms", "limit": 5.0},
        {"benchmark": f"decide, {what}: first time", "value": first * 1e3, "unit": "ms"},
    ]


def replanning(tables: int = 10_000, rounds: int = 300, tracks: int = 8) -> list[dict[str, object]]:
    """The default policy, while costs are learned: an update is started and ends after a time that is another than
    expected, so that plans made from its cost must be made again; then a decision."""
    # Batches come spread over half an hour, as they do, not all at once.
    controller, now = crowded(tables, False, DEFAULT, 30 * MINUTE_US // tables, tracks)
    rng = random.Random(3)
    state = controller.state
    (command, *_) = controller.decide(now)
    times: list[float] = []
    replanned = 0
    for turn in range(rounds):
        now += rng.randrange(SECOND_US // 10, 20 * SECOND_US)
        controller.apply(command.started(state.applied))
        table = command.job.table
        took_s = state.tables[table].cost.expected_s(command.job.amount) * rng.choice((0.4, 0.7, 1.5, 2.5))
        done = PublishedTable(table, state.snapshot + 1, True, ((now, now + 1),), state.tables[table].edge_us, None, T0)
        ended = UpdateFinished(now, command.job.id, table, (done,), took_s)
        file = FeedFile(f"again/{turn}", "c", 10_000, now)
        version = controller.outlook.version
        began = process_time()
        controller.apply(ended)
        controller.apply(FileArrived(now, f"feed{rng.randrange(tables // 2)}", file))
        command, *_ = controller.decide(now)
        times.append(process_time() - began)
        replanned += controller.outlook.version != version
    times.sort()
    what = f"default policy, {tables:,} tables ready, {tracks} tracks, a cost changes in {replanned / rounds:.0%} of the decisions"
    return [
        {"benchmark": f"decide, {what}: median", "value": median(times) * 1e3, "unit": "ms", "limit": 5.0},
        {"benchmark": f"decide, {what}: 99 %", "value": times[int(rounds * 0.99)] * 1e3, "unit": "ms", "limit": 5.0},
    ]


if __name__ == "__main__":
    for row in run():
        print(f"{row['benchmark']:60} {row['value']:10.3f} {row['unit']:3} {row.get('limit', '')}")
