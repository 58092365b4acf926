"""Many replays compared: which policy, and how many tracks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.declare.policies import load_policies
from penstock.errors import PenstockError
from penstock.scheduling.policies import DEFAULT, PolicyNameError, find_policy
from penstock.sim.experiments.base import Row, average, grouped
from penstock.sim.sweep import sweep
from penstock.sim.whatif.change import Changes
from penstock.sim.whatif.recording import Crowding, Recording
from penstock.sim.whatif.replay import Replay

# What is as good as the best: a track more must bring more than this part of the staleness, or of the time in target.
_AS_GOOD = 0.05
_AS_OFTEN = 0.01
# What is there stays unless another policy is better by more than this.
_WORTH_A_CHANGE = 0.01


@dataclass(frozen=True)
class Advice:
    policy: str
    tracks: int
    weighted_s: float
    met: float | None
    # Why no more tracks, and why not another policy.
    why: str


@dataclass(frozen=True)
class _Point:
    recording: Recording
    changes: Changes
    policy: str
    tracks: int
    seed: int
    folder: Path


def compare(
    recording: Recording,
    policies: Sequence[str],
    tracks: Sequence[int],
    seeds: Sequence[int],
    changes: Changes,
    folder: Path,
    jobs: int | None = None,
) -> tuple[int, Iterator[list[Row]]]:
    """How many replays there are, and their rows as they come."""
    load_policies(folder)
    for name in policies:
        try:
            find_policy(name)
        except PolicyNameError as error:
            raise PenstockError(str(error)) from None
    points = [
        _Point(recording, changes, policy, count, seed, folder)
        for count in tracks
        for seed in seeds
        for policy in policies
    ]
    return len(points), sweep(_replayed, points, jobs)


def _replayed(point: _Point) -> list[Row]:
    load_policies(point.folder)  # in a process that does not know them yet
    found = Replay(point.recording, point.policy, point.tracks, point.changes, point.seed).run()
    # Nobody waits for anybody: what the same arrivals and costs would give at best.
    alone = Crowding(0.0, point.recording.crowding.usual)
    many = len(point.recording.declared.tables) + len(point.changes.like)
    ideal = Replay(point.recording, "fifo", many, point.changes, point.seed, crowding=alone).run()
    return [
        {
            "policy": point.policy,
            "tracks": point.tracks,
            "seed": point.seed,
            "volume": point.changes.volume,
            "weighted_staleness_s": found.weighted_s,
            "relative_lateness": found.weighted_s / ideal.weighted_s if ideal.weighted_s > 0 else 1.0,
            "targets_met": found.met,
            "utilisation": found.utilisation,
            "updates": found.updates,
            "staleness_s": {table.table: table.mean_s for table in found.freshness},
            "peak_s": {table.table: table.peak_s for table in found.freshness},
            "target_s": {table.table: table.target_s for table in found.freshness},
            "met": {table.table: table.met for table in found.freshness},
        }
    ]


def advise(rows: Iterable[Row], present: str | None = None) -> Advice:
    """The fewest tracks with which some policy is about as good as the best of all; of these the best policy, or the
    present one, or else the default, where the difference is not worth a change."""
    found: list[tuple[int, float, float | None, str]] = []
    for (policy, tracks), some in grouped(list(rows), "policy", "tracks"):
        often = None if some[0]["targets_met"] is None else average(some, "targets_met")[0]
        found.append((tracks, average(some, "weighted_staleness_s")[0], often, policy))
    best_s = min(weighted for _, weighted, _, _ in found)
    best_met = max((often for _, _, often, _ in found if often is not None), default=None)
    good = [
        point
        for point in found
        if point[1] <= best_s * (1 + _AS_GOOD) and (best_met is None or (point[2] or 0.0) >= best_met - _AS_OFTEN)
    ] or [point for point in found if point[2] == best_met]
    chosen = min(good, key=lambda point: (point[0], point[1]))
    near = [point for point in good if point[0] == chosen[0] and point[1] <= chosen[1] * (1 + _WORTH_A_CHANGE)]
    for name in (DEFAULT, present):
        chosen = next((point for point in near if point[3] == name), chosen)
    tracks, weighted, often, policy = chosen
    return Advice(policy, tracks, weighted, often, _why(found, tracks, weighted, policy))


def _why(found: Sequence[tuple[int, float, float | None, str]], tracks: int, weighted: float, policy: str) -> str:
    parts = []
    fewer = min((w for t, w, _, _ in found if t < tracks), default=None)
    more = min((w for t, w, _, _ in found if t > tracks), default=None)
    others = [(w, p) for t, w, _, p in found if t == tracks and p != policy]
    if fewer is not None:
        parts.append(f"fewer tracks make it {_percent(fewer, weighted)}")
    if more is not None:
        parts.append(f"more tracks make it {_percent(more, weighted)}")
    if others:
        second, name = min(others)
        parts.append(f"the next best policy, {name}, is {_percent(second, weighted)}")
    return "; ".join(parts)


def _percent(other: float, weighted: float) -> str:
    if weighted <= 0:
        return "as fresh"
    change = (other - weighted) / weighted * 100
    return "about as fresh" if abs(change) < 0.5 else f"{abs(change):.0f} % {'staler' if change > 0 else 'fresher'}"
