"""Many replays compared: which policy, and how many tracks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from penstock.declare.config import load_policies
from penstock.errors import PenstockError
from penstock.scheduling.policies import DEFAULT, PolicyNameError, find_policy
from penstock.sim.outcome import Row, average, grouped, sweep, told_of
from penstock.sim.whatif.recording import Crowding, Recording
from penstock.sim.whatif.replay import Changes, Replay, met, weighted

# What is tried if nobody says what: one of each kind that has ever been the best somewhere.
CANDIDATES = (
    DEFAULT,
    "max-benefit",
    "reserve / max-benefit",
    "proportional(all, aggressive) / max-benefit / inherit=max",
    "edf-p",
    "fifo",
)
# What is as good as the best: a track more must bring more than this part of the staleness, or of the time in target.
_AS_GOOD = 0.05
_AS_OFTEN = 0.02
# What is there stays unless another policy is better by more than this.
_WORTH_A_CHANGE = 0.01
# So many standard errors are no chance.
_SURE = 2.0


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
    with told_of(point.policy):
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
            "outages": [str(outage) for outage in point.changes.outages],
            "added": [name for name, _ in point.changes.like],
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


@dataclass(frozen=True)
class _Tried:
    """One policy with so many tracks, over all seeds."""

    policy: str
    tracks: int
    rows: tuple[Row, ...]

    @cached_property
    def weighted_s(self) -> float:
        return average(self.rows, "weighted_staleness_s")[0]

    @cached_property
    def met(self) -> float | None:
        return None if self.rows[0]["targets_met"] is None else average(self.rows, "targets_met")[0]

    def behind(self, other: _Tried, key: str) -> tuple[float, float]:
        """By how much it is above another, and how sure that is: seeds are paired."""
        theirs = {row["seed"]: row[key] for row in other.rows}
        return average([{"d": row[key] - theirs[row["seed"]]} for row in self.rows if row["seed"] in theirs], "d")

    def as_good_as(self, best: _Tried) -> bool:
        """Where the difference is not worth a change, or could be chance."""
        staler, error = self.behind(best, "weighted_staleness_s")
        return staler <= max(_WORTH_A_CHANGE * best.weighted_s, _SURE * error) and self.as_often_as(best)

    def as_often_as(self, best: _Tried) -> bool:
        if self.met is None or best.met is None:
            return True
        less, error = best.behind(self, "targets_met")
        return less <= max(_AS_OFTEN, _SURE * error)


def advise(rows: Iterable[Row], present: str | None = None, *, keep: tuple[int, str] | None = None) -> Advice:
    """The fewest tracks with which some policy is about as good as the best of all; of these the best policy, or the
    present one, or else the default, where the difference is not worth a change or could be chance. With `keep` nothing is
    changed: the tracks there are, and why."""
    found = [_Tried(policy, tracks, tuple(some)) for (policy, tracks), some in grouped(list(rows), "policy", "tracks")]
    if keep is not None:
        tracks, why = keep
        now = next((tried for tried in found if (tried.policy, tried.tracks) == (present, tracks)), None)
        if now is not None:
            return Advice(now.policy, now.tracks, now.weighted_s, now.met, why)
    freshest = min(found, key=lambda tried: tried.weighted_s)
    surest = max(found, key=lambda tried: tried.met or 0.0)
    good = [
        tried
        for tried in found
        if tried.weighted_s <= freshest.weighted_s * (1 + _AS_GOOD) and tried.as_often_as(surest)
    ] or [tried for tried in found if tried.met == surest.met]
    best = min(good, key=lambda tried: (tried.tracks, tried.weighted_s))
    chosen = best
    for name in (DEFAULT, present):
        chosen = next((t for t in found if (t.policy, t.tracks) == (name, best.tracks) and t.as_good_as(best)), chosen)
    return Advice(chosen.policy, chosen.tracks, chosen.weighted_s, chosen.met, _why(found, chosen))


def recorded(recording: Recording) -> Row:
    """What the log says of the run that it is of, in the words of a replay."""
    return {
        "policy": recording.declared.policy,
        "tracks": recording.declared.tracks,
        "seconds": recording.seconds,
        "weighted_staleness_s": weighted(recording.freshness),
        "targets_met": met(recording.freshness),
        "updates": recording.updates,
        "failures": recording.failures,
        "utilisation": recording.busy_s / max(1e-9, recording.seconds * recording.declared.tracks),
        "crowding": recording.crowding,
        "tables": recording.freshness,
    }


def too_short(recording: Recording) -> tuple[int, str] | None:
    """The tracks to keep, and why, where the log says too little."""
    if not recording.is_short:
        return None
    why = f"{recording.updates} updates on record are too few to tell policies apart: ask again when it has run for longer"
    return recording.declared.tracks, why


def _why(found: Sequence[_Tried], chosen: _Tried) -> str:
    parts = []
    fewer = [tried for tried in found if tried.tracks < chosen.tracks]
    more = [tried for tried in found if tried.tracks > chosen.tracks]
    others = [tried for tried in found if tried.tracks == chosen.tracks and tried is not chosen]
    for some, what in ((fewer, "fewer tracks make it "), (more, "more tracks make it "), (others, "")):
        if some:
            next_best = min(some, key=lambda tried: (tried.weighted_s, tried.policy))
            who = what or f"the next best policy, {next_best.policy}, is "
            parts.append(who + _compared(next_best, chosen))
    return "; ".join(parts)


def _compared(other: _Tried, chosen: _Tried) -> str:
    """How fresh, and how often in target where that is what differs."""
    if chosen.weighted_s <= 0:
        return "as fresh"
    change = (other.weighted_s - chosen.weighted_s) / chosen.weighted_s * 100
    said = "about as fresh" if abs(change) < 0.5 else f"{abs(change):.0f} % {'staler' if change > 0 else 'fresher'}"
    if other.tracks == chosen.tracks:
        difference, error = other.behind(chosen, "weighted_staleness_s")
        if abs(change) >= 0.5 and abs(difference) <= _SURE * error:
            said += ", which may be chance"
    if other.met is not None and chosen.met is not None and abs(other.met - chosen.met) > _AS_OFTEN:
        said += f", in target {other.met * 100:.0f} % of the time instead of {chosen.met * 100:.0f} %"
    return said
