"""An independent simulator that goes second by second and is as plain as can be: dictionaries, lists and loops. It shares
nothing with the real ones but the policies' definitions, which are written down here once more from the paper.

Everything is whole seconds: periods, phases, costs (alpha + beta * periods of data).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Plain:
    name: str
    sources: list[str]
    period: int
    phase: int
    priority: float
    alpha: int
    beta: int  # seconds of work per period of data (scaled below)
    fresh: int = 0
    seen: int = 0
    running: bool = False
    taking: int = 0
    release: int | None = None
    area2: int = 0  # twice the integral of staleness
    batches: list[int] = field(default_factory=list)


def run(tables: list[Plain], tracks: int, horizon: int, order: str, chop: int | None = None):
    """(starts as (second, table, track, seconds), mean staleness by table)."""
    by = {t.name: t for t in tables}
    readers = {t.name: [r for r in tables if t.name in r.sources] for t in tables}

    def weight(t: Plain) -> float:
        return max([t.priority] + [weight(r) for r in readers[t.name]])

    def level(t: Plain) -> int:
        return 1 + max([level(by[s]) for s in t.sources], default=0)

    for t in sorted(tables, key=level):
        if t.sources:
            t.period = max(by[s].period for s in t.sources)
            t.fresh = t.seen = min(by[s].fresh for s in t.sources)
        else:
            t.fresh = t.seen = t.phase - t.period
    jobs: dict[int, tuple[Plain, int, int | None]] = {}  # track -> table, end, release of what it takes
    starts = []
    for now in range(horizon):
        for track in list(jobs):
            t, end, released = jobs[track]
            if end == now:
                del jobs[track]
                t.fresh, t.running = t.taking, False
                for r in readers[t.name]:
                    edge = min(by[s].fresh for s in r.sources)
                    if edge > r.seen:
                        r.seen = edge
                        at = now if not t.sources else released
                        r.release = at if r.release is None else min(at, r.release)
        for t in tables:
            if not t.sources and now >= t.phase and (now - t.phase) % t.period == 0:
                t.seen = now
                if t.release is None:
                    t.release = now
        while len(jobs) < tracks:
            ready = [t for t in tables if not t.running and t.seen > t.fresh]
            if not ready:
                break
            best = None
            for t in ready:
                gain = t.seen - t.fresh
                if chop is not None and t.beta:
                    # So many periods, but at least so many that all starts together take a twentieth of the time.
                    gain = min(gain, max(chop, -(-19 * t.alpha // t.beta)) * t.period)
                cost = t.alpha + t.beta * gain // t.period
                exact = t.alpha + t.beta * (gain / t.period)
                assert cost == exact
                value = {
                    "max-benefit": weight(t) * gain / cost,
                    "fifo": -t.release,
                    "edf": -(t.release + t.period),
                    "edf-p": weight(t),
                }[order]
                tie = (t.release + t.period, t.release, t.name) if order == "edf-p" else (t.release, t.name)
                if best is None or value > best[0] + 1e-12 or (abs(value - best[0]) <= 1e-12 and tie < best[1]):
                    best = (value, tie, t, gain, cost)
            _, _, t, gain, cost = best
            track = next(r for r in range(tracks) if r not in jobs)
            t.running, t.taking = True, t.fresh + gain
            jobs[track] = (t, now + cost, t.release)
            if t.taking == t.seen:
                t.release = None
            elif not t.sources:
                t.release = t.taking + t.period
            starts.append((now, t.name, track, cost))
        for t in tables:  # from now to now + 1 nothing changes: the area of a trapezium, twice
            t.area2 += (now - t.fresh) + (now + 1 - t.fresh)
    return starts, {t.name: t.area2 / 2 / horizon for t in tables}
