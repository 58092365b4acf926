"""Random warehouses with outages, jitter and execution times within their bounds, and what must hold in every run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from penstock.papers.recovery.adaptive import File, Ran, clearing_us, run
from penstock.scheduling.recovery.bounds import Delivery, Model
from penstock.scheduling.recovery.modes import Modes
from penstock.scheduling.recovery.tasks import RecoveryTask, provisioned


@dataclass(frozen=True)
class World:
    model: Model
    feeds: dict[str, list[File]]
    # (table, start, end)
    outages: list[tuple[str, int, int]]
    horizon: int
    start_up: dict[str, float]
    seed: int

    def affected(self) -> set[str]:
        found = {table for table, _, _ in self.outages}
        for table, sources in self.model.sources.items():
            if found & set(sources):
                found.add(table)
        return found


def world(seed: int, *, merge: bool = True) -> World:
    chance = Random(seed)
    tracks = chance.randint(1, 4)
    base = [f"b{n}" for n in range(chance.randint(1, 6))]
    derived = [f"d{n}" for n in range(chance.choice([0, 0, 1, 2, 3]))]
    wanted = tracks * chance.choice([0.3, 0.6, 0.9, 1.0])
    periods = {table: 60 * chance.choice([2, 3, 5, 8]) for table in base}
    sources: dict[str, list[str]] = {}
    for number, table in enumerate(derived):
        sources[table] = chance.sample([*base, *derived[:number]], k=min(len(base) + number, chance.randint(1, 2)))
        periods[table] = max(periods[source] for source in sources[table])
    weights = {table: chance.random() + 0.05 for table in [*base, *derived]}
    scale = wanted / sum(weights.values())
    tasks = []
    for table in [*base, *derived]:
        cost = max(1, int(min(1.0, weights[table] * scale) * periods[table]))
        tasks.append(RecoveryTask(table, cost, periods[table], periods[table], priority=chance.choice([1.0, 1.0, 5.0])))
    tasks = provisioned(tasks, tracks, chance.choice(["single", "single", "shared"]))
    deliveries = {
        table: Delivery(
            periods[table],
            chance.choice([0, periods[table] // 4, periods[table]]),
            chance.choice([0, periods[table] // 3]),
            chance.randrange(periods[table]),
        )
        for table in base
    }
    start_up = {task.table: chance.random() for task in tasks}
    if chance.random() < 0.3:
        # Some tables without a reservation, in whatever is left.
        tasks = [replace(task, reserved=chance.random() < 0.6) for task in tasks]
    merged: dict[str, int] = {}
    if merge:
        limit = sorted((task.cost_us for task in tasks), reverse=True)[min(tracks, len(tasks)) - 1]
        for number, task in enumerate(tasks):
            most = 1
            while task.table in deliveries and most < 5 and _cost(task, start_up, most + 1) <= limit:
                most += 1
            if most > 1:
                tasks[number] = replace(task, most=most)
                merged[task.table] = _cost(task, start_up, most)
    model = Model(tuple(tasks), tracks, deliveries, sources, merged_us=merged)
    model = model.with_thresholds()
    longest = max(periods.values())
    horizon = 14 * longest
    outages = []
    for table in base:
        if chance.random() < 0.5:
            start = chance.randrange(longest, 4 * longest)
            outages.append((table, start, start + chance.randrange(2 * periods[table], 4 * longest)))
    feeds = {table: _files(table, deliveries[table], outages, horizon, chance) for table in base}
    return World(model, feeds, outages, horizon, start_up, seed)


def _cost(task: RecoveryTask, start_up: dict[str, float], files: int) -> int:
    part = start_up[task.table]
    return int(task.cost_us * (part + (1 - part) * files))


def _files(table: str, how: Delivery, outages: list[tuple[str, int, int]], horizon: int, chance: Random) -> list[File]:
    files: list[File] = []
    number, last = 0, 0
    while (due := how.phase_us + number * how.period_us) < horizon:
        number += 1
        arrives = due - chance.randint(0, how.jitter_us)
        stamp = arrives - chance.randint(0, how.stamp_us)
        if stamp <= last or arrives <= 0:
            stamp = last + 1
            arrives = max(arrives, stamp)
        last = stamp
        for name, start, end in outages:
            if name == table and start <= arrives < end:
                arrives = end
        if files:
            arrives = max(arrives, files[-1].arrives_us)
        files.append(File(arrives, stamp))
    return files


def simulate(found: World, *, background: bool, share: float | None = None, turns: bool = True) -> tuple[Ran, Modes]:
    """Jobs take up to their cost: exactly so much of it, or by chance."""
    chance = Random(found.seed + 1)
    tasks = {task.table: task for task in found.model.tasks}

    def duration(table: str, _number: int, amount: int, _length: int) -> int:
        longest = _cost(tasks[table], found.start_up, amount) if table in found.feeds else tasks[table].cost_us
        return max(1, int(longest * (chance.random() if share is None else share)))

    modes = Modes(
        found.model.tasks,
        found.model.tracks,
        background=background,
        arbitration=chance.choice(["increase", "staleness"]),
        above=found.model.above if turns else None,
    )
    returns = [(end, table) for table, _, end in found.outages]
    return run(modes, found.feeds, found.model.sources, duration, found.horizon, returns), modes


def violations(found: World, ran: Ran, *, background: bool, turns: bool = True) -> list[str]:
    """What must hold and does not."""
    said = []
    found = replace(found, model=replace(found.model, background=background))
    model, bounds = found.model, found.model.bounds()
    tasks = {task.table: task for task in model.tasks}
    if ran.load > model.tracks + 1e-6:
        said.append(f"load {ran.load} on {model.tracks} tracks")
    ends: dict[str, int] = {}
    releases: dict[str, int] = {}
    for job in sorted(ran.jobs, key=lambda job: (job.table, job.number)):
        task, bound = tasks[job.table], bounds.get(job.table)
        if job.start_us < ends.get(job.table, 0):
            said.append(f"{job} overlaps the one before")
        ends[job.table] = job.end_us
        if job.release_us is None:
            continue
        assert job.deadline_us is not None
        if not job.background and job.start_us < job.release_us:
            said.append(f"{job} starts before its release")
        if job.release_us < releases.get(job.table, -1):
            said.append(f"{job} is released before the one before")
        releases[job.table] = job.release_us
        if job.deadline_us - job.release_us not in (task.period_us, task.recovery_us):
            said.append(f"{job} has a deadline that is neither period away")
        if bound is None:
            continue
        if job.end_us - job.deadline_us > bound.tardiness_us:
            said.append(f"{job} is tardy beyond {bound.tardiness_us}")
        if job.end_us - job.release_us > bound.response_us:
            said.append(f"{job} took longer than {bound.response_us}")
    said += _tracks(ran, model.tracks)
    said += _staleness(found, ran)
    said += [line for line, _ in recoveries(found, ran) if line] if turns else _recovery(found, ran)
    return said


def _tracks(ran: Ran, tracks: int) -> list[str]:
    steps = sorted([(job.start_us, 1) for job in ran.jobs] + [(job.end_us, -1) for job in ran.jobs])
    busy = 0
    for at, change in steps:
        busy += change
        if busy > tracks:
            return [f"{busy} jobs at {at} on {tracks} tracks"]
    return []


def _staleness(found: World, ran: Ran) -> list[str]:
    said = []
    bounds = found.model.bounds()
    affected = found.affected()
    for table, bound in bounds.items():
        spans = [(0, found.horizon)]
        if table in affected:
            first = min(s for t, s, _ in found.outages if t == table or t in _above(found, table))
            spans = [(0, first)]
            if table in found.feeds:
                after = max(e for t, _, e in found.outages if t == table)
                fresh = next((at for at, lag in ran.lags(table) if at > after and lag == 0), None)
                if fresh is not None:
                    spans.append((fresh, found.horizon))
        for since, until in spans:
            worst = ran.stalest_us(table, since, until)
            if worst > bound.staleness_us:
                said.append(f"{table} is {worst} stale within {since}..{until}, proven {bound.staleness_us}")
    return said


def _above(found: World, table: str) -> set[str]:
    above: set[str] = set()
    for source in found.model.sources.get(table, ()):
        above |= {source} | _above(found, source)
    return above


def _recovery(found: World, ran: Ran) -> list[str]:
    said = []
    bounds = found.model.bounds()
    tasks = {task.table: task for task in found.model.tasks}
    for change in ran.changes:
        if change.table not in found.feeds or change.rule in ("RN", "vi", "vii"):
            continue
        task = tasks[change.table]
        files = found.feeds[change.table]
        fresh = max((edge for at, edge in ran.fresh[change.table] if at <= change.at_us), default=0)
        backlog = sum(file.arrives_us <= change.at_us and file.stamp_us > fresh for file in files)
        if any(t == change.table and e > change.at_us for t, _, e in found.outages):
            continue  # another outage of its feed is to come: files come later than Theorem 4 expects
        proven = clearing_us(
            task,
            bounds[change.table].response_us,
            backlog * task.period_us,
            found.model.deliveries[change.table].jitter_us,
        )
        assert proven is not None
        cleared = next((at for at, lag in ran.lags(change.table) if at > change.at_us and lag == 0), None)
        if cleared is None and change.at_us + proven < found.horizon:
            said.append(f"{change.table} did not recover after {change.at_us}, proven {proven}")
        elif cleared is not None and cleared - change.at_us > proven:
            said.append(f"{change.table} recovered {cleared - change.at_us} after {change.at_us}, proven {proven}")
    return said


def recoveries(found: World, ran: Ran) -> Iterator[tuple[str, float]]:
    """What was exceeded of what is proven of the recovery of all tables, and how much of it was used: after the last return no
    table is staler than a healthy one and what its outage held back, and after its recovery than one that has recovered."""
    model, bounds = found.model, found.model.bounds()
    if not found.outages or not bounds:
        return
    last = max(end for _, _, end in found.outages)
    reached = model.reached({t: last - min(s for o, s, _ in found.outages if o == t) for t, _, _ in found.outages})
    times = 1 if len({end for _, _, end in found.outages}) == 1 else 2
    recovery = model.recovery(reached, times=times)
    for table, bound in bounds.items():
        most = reached.get(table, 0) + bound.staleness_us
        worst = ran.stalest_us(table, 0, found.horizon)
        yield (f"{table} is {worst} stale, of at most {most}" if worst > most else ""), worst / most
        latest = recovery.latest_us(table)
        if table in reached and latest is not None and last + latest < found.horizon:
            took = ran.stale_until_us(table, last, bound.recovered_us) - last
            # Also a table that gets nothing more is stale.
            late = ran.stalest_us(table, last + latest, found.horizon) > bound.recovered_us
            said = f"{table} recovered {took} after {last}, proven {latest}" if took > latest or late else ""
            yield said, took / latest
