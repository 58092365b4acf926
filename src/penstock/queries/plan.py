"""When queries can be done, if they go in the order of their deadlines: each on the lane that is free first, after the updates that it needs, each of
these once, after its own sources, on the track that is free first. Where lanes and tracks share cores, whatever runs takes one of them.

Times are not certain: their means and variances add up, and a query is late if the chance to be in time is below one half, that is, if the median of
its end is after its deadline. One processor that can stop what it does at any time is the special case of one core.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import sqrt

from penstock.queries.estimate import Estimate
from penstock.queries.situation import Query, QuerySituation, Step, Waiting

_EPS = 1e-9


@dataclass(slots=True)
class QueryTimes:
    """The end of each query, as mean and variance, up to the first that is late, and the work before it."""

    ends: list[tuple[float, float]] = field(default_factory=list)
    # The place of the first query that is late.
    late: int | None = None
    lane_work_s: float = 0.0
    track_work_s: float = 0.0


def is_late(mean_s: float, variance: float, left_s: float) -> bool:
    if variance <= 0:
        return mean_s > left_s + _EPS
    return mean_s * mean_s > left_s * sqrt(mean_s * mean_s + variance)


def chance(mean_s: float, variance: float, left_s: float) -> float:
    if variance <= 0:
        return 1.0 if mean_s <= left_s + _EPS else 0.0
    return Estimate(mean_s, sqrt(variance)).chance(left_s)


def alone(situation: QuerySituation, query: Query) -> Estimate:
    """How long it would take if nothing else were asked: the longest path through its updates, then its run."""
    steps = situation.steps(query)
    if not steps:
        return situation.run(query)
    if situation.preempts:
        work = situation.run(query)
        for item, _ in steps:
            work = situation.cost(item).then(work)
        return work
    done: dict[int, Estimate] = {}
    last = Estimate(0.0)
    for item, enough in steps:
        left = situation.left(item)
        if enough:
            done[item] = Estimate(left or 0.0)
        else:
            at = max((done[one] for one in situation.parents(item) if one in done), default=Estimate(0.0))
            if left is not None and left > at.mean_s:
                at = Estimate(left)
            done[item] = at.then(situation.cost(item))
        last = max(last, done[item])
    return last.then(situation.run(query))


def work_s(situation: QuerySituation, query: Query) -> float:
    """The work that it needs, if nobody shares it."""
    found = situation.run(query).mean_s
    return found + sum(situation.cost(item).mean_s for item, enough in situation.steps(query) if not enough)


def timeline(
    situation: QuerySituation, kept: Waiting, tolerated: frozenset[int] = frozenset(), whole: bool = False
) -> QueryTimes:
    """`whole`: go on after one that is late."""
    if situation.preempts:
        return _of_one_processor(situation, kept, tolerated, whole)
    return _of_lanes(situation, kept, tolerated, whole)


def _of_one_processor(situation: QuerySituation, kept: Waiting, tolerated: frozenset[int], whole: bool) -> QueryTimes:
    found = QueryTimes()
    ends = found.ends
    now = situation.now_s
    end = variance = 0.0
    refreshed: set[int] = set()
    for place, (deadline, number, query) in enumerate(kept):
        for item, _ in situation.steps(query):
            if item not in refreshed:
                refreshed.add(item)
                mean, spread = situation.cost(item)
                end += mean
                variance += spread * spread
        mean, spread = situation.run(query)
        end += mean
        variance += spread * spread
        if not whole and is_late(end, variance, deadline - now) and number not in tolerated:
            found.late = place
            ends.append((end, variance))
            break
        ends.append((end, variance))
    return found


# Until it is free, the variance of that.
_Server = list[float]


def _of_lanes(situation: QuerySituation, kept: Waiting, tolerated: frozenset[int], whole: bool) -> QueryTimes:
    found = QueryTimes()
    now = situation.now_s
    lanes: list[_Server] = [[free, 0.0] for free in situation.lanes_s] or [[0.0, 0.0]]
    tracks: list[_Server] = [[free, 0.0] for free in situation.tracks_s] or [[0.0, 0.0]]
    cores: list[_Server] | None = None
    if situation.width is not None:
        cores = [[0.0, 0.0] for _ in range(situation.width)]
        for busy in sorted(free for free in (*situation.lanes_s, *situation.tracks_s) if free > 0):
            min(cores)[0] += busy
    done: dict[Step, tuple[float, float]] = {}
    answered: dict[Hashable, tuple[float, float, float]] = {}
    for place, (deadline, number, query) in enumerate(kept):
        ready = (0.0, 0.0)
        for step in situation.steps(query):
            if step not in done:
                item, enough = step
                left = situation.left(item) or 0.0
                if enough:
                    done[step] = left, 0.0
                else:
                    at = (left, 0.0)
                    for parent in situation.parents(item):
                        at = max(at, done.get((parent, False), at), done.get((parent, True), at))
                    cost = situation.cost(item)
                    found.track_work_s += cost.mean_s
                    done[step] = _placed(tracks, cores, at, cost)
            ready = max(ready, done[step])
        shared = answered.get(query.same) if query.same is not None else None
        if shared is not None and shared[2] >= ready[0] - _EPS:
            end, variance, _ = shared
        else:
            run = situation.run(query)
            found.lane_work_s += run.mean_s
            end, variance = _placed(lanes, cores, ready, run)
            if query.same is not None:
                answered[query.same] = end, variance, end - run.mean_s
        found.ends.append((end, variance))
        if not whole and is_late(end, variance, deadline - now) and number not in tolerated:
            found.late = place
            break
    return found


def _placed(
    servers: list[_Server], cores: list[_Server] | None, ready: tuple[float, float], work: Estimate
) -> tuple[float, float]:
    """Begin when it is ready and a server (and a core) is free; mean and variance of its end."""
    server = _free(servers, ready[0])
    start, variance = max((server[0], server[1]), ready)
    core = None
    if cores is not None:
        core = _free(cores, start)
        if core[0] > start:
            # Where it is busy for longer than this takes, both share it: then this takes twice as long.
            start, variance = (core[0], core[1]) if core[0] <= start + work.mean_s else (start + work.mean_s, variance)
    server[0], server[1] = start + work.mean_s, variance + work.spread_s**2
    if core is not None:
        core[0], core[1] = max((core[0] + work.mean_s, core[1]), (server[0], server[1]))
    return server[0], server[1]


def _free(servers: Sequence[_Server], at: float) -> _Server:
    """Of those that are free by then the one that is free last, so that the others keep their gaps; else the first that will be."""
    if len(servers) == 1:
        return servers[0]
    best: _Server | None = None
    for server in servers:
        if server[0] <= at and (best is None or server[0] > best[0]):
            best = server
    return min(servers) if best is None else best


def protected(some: Waiting, situation: QuerySituation) -> set[str]:
    """Profiles that want less of the work than their share, where others want more: theirs are not the queries that go."""
    work: dict[str, float] = {}
    for _, _, query in some:
        work[query.profile] = work.get(query.profile, 0.0) + situation.run(query).mean_s
    if len(work) < 2:
        return set()
    shares = {name: situation.shares.get(name, 1.0) for name in work}
    even = sum(work.values()) / sum(shares.values())
    return {name for name, seconds in work.items() if seconds < even * shares[name] - _EPS}
