"""Which freshness targets are proven, what breaks the others, and what would mend them.

Every remedy is computed: the change is made to the model, as it would be if it were written down, the bounds are taken again,
and only what then keeps the target is offered.

    proven      by declared costs
    expected    by costs that were learned from enough updates: a quantile, with its sample size
    assumed     if something is so that nobody knows, which is said
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Literal

from penstock.model.time import SECOND_US, format_duration
from penstock.scheduling.recovery.bounds import Model, RecoveryBound, tracks_needed
from penstock.scheduling.recovery.reservations import Change
from penstock.scheduling.recovery.tasks import RecoveryTask, provisioned

Certainty = Literal["proven", "expected", "assumed"]
Verdict = Literal["proven", "expected", "assumed", "not proven", "no target", "best effort"]
_MORE_TRACKS = 32


Remake = Callable[[Change], Model]
Proves = Callable[[Change], bool]


def remade(model: Model) -> Remake:
    """A model with something changed, as far as that follows from the model alone."""

    def make(change: Change) -> Model:
        tasks, merged = list(model.tasks), dict(model.merged_us)
        if change.table is not None:
            merged.pop(change.table, None)
            old = model.known[change.table]
            new = replace(old, period_us=change.period_us or old.period_us, cost_us=change.cost_us or old.cost_us)
            tasks = [new if task is old else task for task in tasks]
        tracks = change.tracks or model.tracks
        tasks = provisioned(tasks, tracks, "shared" if change.shared else "single")
        return replace(model, tasks=tuple(tasks), tracks=tracks, merged_us=merged)

    return make


@dataclass(frozen=True, slots=True)
class Guarantee:
    table: str
    verdict: Verdict
    period_us: int
    cost_us: int | None
    # Where the cost is from: declared, learned, or not known.
    cost_from: str
    utilisation: float | None
    target_us: int | None
    bound: RecoveryBound | None
    # After an outage of all its feeds, from their return on; None if nothing is known of it.
    recovery_us: int | None = None
    breaks: str = ""
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundsReport:
    tracks: int
    utilisation: float
    provision: str
    guarantees: tuple[Guarantee, ...]
    outage_us: int | None = None
    # All feeds out for so long at once: when the last table has recovered, of base tables and of those made from them.
    all_recovered_us: int | None = None
    # Whether the tracks can do all that is reserved.
    fits: bool = True
    certainty: Certainty = "proven"
    # What all of it rests on, in sentences.
    assumes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ground:
    """What the bounds of a model rest on."""

    certainty: Certainty = "proven"
    assumes: tuple[str, ...] = ()
    # Tables whose cost nobody knows: nothing that depends on it is proven.
    unknown: frozenset[str] = frozenset()
    # Why nothing is proven of a table, or of the whole.
    doubts: Mapping[str, str] = field(default_factory=dict)
    doubt: str = ""
    remedies: tuple[str, ...] = ()


def judge(
    model: Model,
    targets_us: Mapping[str, int],
    costs_from: Mapping[str, str],
    ground: Ground | None = None,
    *,
    provision: str = "worst",
    outage_us: int | None = None,
    followers: Mapping[str, Sequence[str]] | None = None,
    remake: Remake | None = None,
    most_tracks: int | None = None,
) -> BoundsReport:
    """`followers` are tables that are made by the updates of another one: each has a target of its own. No remedy has more than
    `most_tracks`, beyond which the costs are not those of now."""
    ground = ground or Ground()
    known = _Judged(model, ground, remake or remade(model), most_tracks)
    guarantees = []
    each = [(name, task) for task in model.tasks for name in (task.table, *(followers or {}).get(task.table, ()))]
    for name, task in each:
        target, bound = targets_us.get(name), known.bounds.get(task.table)
        verdict, breaks, remedies = known.verdict(task, target)
        unknown = task.table in ground.unknown
        guarantees.append(
            Guarantee(
                name,
                verdict,
                task.period_us,
                None if unknown else task.cost_us,
                costs_from.get(task.table, "not known") if name == task.table else f"with {task.table}",
                None if unknown else task.utilisation if name == task.table else 0.0,
                target,
                bound,
                _recovers_us(model, task.table, outage_us) if outage_us is not None and bound is not None else None,
                breaks,
                remedies,
            )
        )
    everything = None
    if outage_us and known.bounds:
        everything = model.recovery(model.reached(dict.fromkeys(_bases(model), outage_us))).all_us
    return BoundsReport(
        model.tracks,
        model.utilisation,
        provision,
        tuple(guarantees),
        outage_us,
        everything,
        model.fits,
        ground.certainty,
        ground.assumes,
    )


def _bases(model: Model) -> list[str]:
    return [task.table for task in model.tasks if task.reserved and task.table not in model.sources]


def _recovers_us(model: Model, table: str, outage_us: int) -> int | None:
    """After an outage of all feeds that a table is made from, and of no others."""
    above = model.above.get(table, frozenset()) | {table}
    out = {base: outage_us for base in _bases(model) if base in above}
    return model.recovery(model.reached(out)).latest_us(table)


class _Judged:
    """Verdicts on the tables of one model."""

    def __init__(self, model: Model, ground: Ground, remake: Remake, most_tracks: int | None) -> None:
        self.model, self.ground, self.remake, self.most_tracks = model, ground, remake, most_tracks
        self.bounds = {} if ground.unknown else model.bounds()
        self.bounds = {name: bound for name, bound in self.bounds.items() if not self._doubt(name)}

    def _doubt(self, table: str) -> str:
        above = self.model.above.get(table, frozenset())
        return next((why for name, why in self.ground.doubts.items() if name == table or name in above), "")

    def verdict(self, task: RecoveryTask, target_us: int | None) -> tuple[Verdict, str, tuple[str, ...]]:
        bound = self.bounds.get(task.table)
        if not task.reserved:
            return "best effort", "", ()
        if target_us is None:
            return "no target", "", ()
        if self.ground.doubt:
            return "not proven", self.ground.doubt, self.ground.remedies
        if bound is not None and bound.staleness_us <= target_us:
            return self.ground.certainty, "", ()
        if doubt := self._doubt(task.table):
            return "not proven", doubt, ()
        return ("not proven", *_explained(self.model, task, target_us, bound, self))


def _explained(
    model: Model,
    task: RecoveryTask,
    target_us: int,
    bound: RecoveryBound | None,
    judged: _Judged,
) -> tuple[str, tuple[str, ...]]:
    unknown = judged.ground.unknown
    if unknown:
        names = ", ".join(f"`{name}`" for name in sorted(unknown)[:4])
        more = f" and {len(unknown) - 4} more" if len(unknown) > 4 else ""
        return f"nobody knows what an update of {names}{more} costs", (
            'declare it, for example cost = "20s", or let it run for a while',
        )
    least = model.least_us(task.table)
    if target_us < least:
        updates = task.cost_us + model.early_us(task)
        its = "its update" if updates == task.cost_us else "two of its updates"
        parts = f"twice its period ({format_duration(task.period_us)}), {its} ({format_duration(updates)})"
        rest = "what its feed has not delivered" if task.table not in model.sources else "what its sources lack"
        said = (
            f"on any number of tracks it can be {format_duration(least)} behind, the target is {format_duration(target_us)}: "
            f"{parts}, and {rest} ({format_duration(least - 2 * task.period_us - updates)})"
        )
        larger = f"a target of at least {_written(least)}"
        if bound is not None:
            larger = f"a target that is {judged.ground.certainty}: freshness = {_written(bound.staleness_us)}"
        return said, (larger, *_shorter_period(model, task, _proves(task, target_us, judged)))
    found = tuple(_remedies(model, task, target_us, judged))
    long = [t for t in model.tasks if t.reserved and t.cost_us > t.period_us]
    if long:
        worst = max(long, key=lambda t: t.utilisation)
        said = f"an update of `{worst.table}` takes up to {format_duration(worst.cost_us)}, longer than its period of {format_duration(worst.period_us)}"
        return said, found
    if not model.fits:
        most = max((t for t in model.tasks if t.reserved), key=lambda t: t.utilisation)
        said = (
            f"all tables together need {model.utilisation:.2f} tracks, and there are {model.tracks}; "
            f"`{most.table}` alone needs {most.utilisation:.2f}"
        )
        return said, found
    if bound is None:
        return "a table that it reads has no guarantee", ()
    longest = max(model.tasks, key=model.longest_of)
    way = " -> ".join(f"`{name}`" for name in bound.because)
    said = (
        f"it can be {format_duration(bound.staleness_us)} behind, the target is {format_duration(target_us)}: "
        f"along {way} every table adds twice its period and up to {format_duration(bound.tardiness_us)} of waiting, "
        f"most of it for updates as long as that of `{longest.table}` ({format_duration(longest.cost_us)})"
    )
    return said, found


def _proves(task: RecoveryTask, target_us: int, judged: _Judged) -> Proves:
    def proves(change: Change) -> bool:
        bound = judged.remake(change).bounds().get(task.table)
        return bound is not None and bound.staleness_us <= target_us

    return proves


def _remedies(model: Model, task: RecoveryTask, target_us: int, judged: _Judged) -> Iterator[str]:
    """Single changes that would keep the target."""
    proves = _proves(task, target_us, judged)
    first = max(model.tracks + 1, tracks_needed(model.tasks) if not model.fits else 0)
    most = model.tracks + _MORE_TRACKS
    for tracks in range(first, most if judged.most_tracks is None else min(most, judged.most_tracks + 1)):
        if proves(Change(tracks=tracks)):
            more = tracks - model.tracks
            yield f"{more} track{'s' * (more > 1)} more: tracks = {tracks}"
            break
    if proves(Change(shared=True)):
        yield 'recovery that tables share, slower for each: policy = "adaptive(shared)"'
    yield from _other_period(model, task, proves)
    yield from _cheaper(model, proves)
    bound = judged.bounds.get(task.table)
    if bound is not None:
        yield f"a target that is {judged.ground.certainty}: freshness = {_written(bound.staleness_us)}"


def _shorter_period(model: Model, task: RecoveryTask, proves: Proves) -> Iterator[str]:
    """For a table that is made from others; a feed comes when it comes."""
    if task.table in model.sources:
        yield from _tried(task, (0.8, 0.67, 0.5, 0.33, 0.25, 0.2, 0.1), proves)


def _tried(task: RecoveryTask, factors: Sequence[float], proves: Proves) -> Iterator[str]:
    """The first of these periods that would do."""
    for factor in factors:
        period = ceil(task.period_us * factor / SECOND_US) * SECOND_US
        if task.cost_us <= period != task.period_us and proves(Change(table=task.table, period_us=period)):
            kind = "longer" if factor > 1 else "shorter"
            yield f"a {kind} period of `{task.table}`: {_written(period)} instead of {_written(task.period_us)}"
            return


def _other_period(model: Model, task: RecoveryTask, proves: Proves) -> Iterator[str]:
    """A longer period of a table that uses much, or a shorter one of the table itself. Feeds come when they come."""
    derived = [t for t in model.tasks if t.reserved and t.table not in model.deliveries]
    for other in sorted(derived, key=lambda t: -t.utilisation)[:4]:
        if model.fits and other.table == task.table:
            found = list(_shorter_period(model, task, proves))
        else:
            found = list(_tried(other, (1.25, 1.5, 2, 3, 4, 6, 8, 12, 24), proves))
        if found:
            yield from found
            return


def _cheaper(model: Model, proves: Proves) -> Iterator[str]:
    """The least saving at one table that would do."""
    best: tuple[float, str, int] | None = None
    for other in sorted(model.tasks, key=lambda t: -t.cost_us)[:6]:
        low, high = 0.0, 1.0  # parts of the cost that do and do not prove it
        if not proves(Change(table=other.table, cost_us=SECOND_US)):
            continue
        for _ in range(12):
            middle = (low + high) / 2
            done = proves(Change(table=other.table, cost_us=max(SECOND_US, int(other.cost_us * middle))))
            low, high = (middle, high) if done else (low, middle)
        # In whole seconds, as it is written.
        cost_us = int(other.cost_us * low) // SECOND_US * SECOND_US
        part = cost_us / other.cost_us
        if cost_us and (best is None or part > best[0]):
            best = (part, other.table, cost_us)
    if best is not None:
        part, table, cost_us = best
        yield f"a cheaper update of `{table}`: at most {format_duration(cost_us)}, {1 - part:.0%} less"


def _written(duration_us: int) -> str:
    """As it is written in settings, rounded up to a second."""
    seconds = ceil(duration_us / SECOND_US)
    parts = [(seconds // 3600, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    return '"' + ("".join(f"{count}{unit}" for count, unit in parts if count) or "0s") + '"'


# While running


@dataclass(frozen=True, slots=True)
class Observed:
    """What is seen of a table now."""

    staleness_us: int
    # The longest that a finished update took lately; how long ago the last file of its feeds came; 0 if not known.
    took_us: int = 0
    silent_us: int = 0


@dataclass(frozen=True, slots=True)
class Violation:
    table: str
    staleness_us: int
    bound_us: int
    assumption: Literal["arrival rate", "cost", "lost track", "not known"]
    said: str


def violations(
    model: Model, seen: Mapping[str, Observed], tracks: int | None = None, lost: Mapping[int, str] | None = None
) -> list[Violation]:
    """Tables that are staler than was proven, each with the assumption that does not hold. `tracks` are those that there
    are, if not as many as the model has; `lost` are those of them that do not work, each with the reason."""
    reasons = list((lost or {}).values())
    there = model.tracks if tracks is None else tracks
    works = ""
    if reasons or there < model.tracks:
        works = "; ".join((f"{there - len(reasons)} of {model.tracks} tracks work", *reasons))
    tasks = {task.table: task for task in model.tasks}
    found = []
    for table, bound in model.bounds().items():
        now = seen.get(table)
        if now is None or now.staleness_us <= bound.staleness_us:
            continue
        assumption, said = _failed(model, tasks, seen, table, bound, works)
        found.append(Violation(table, now.staleness_us, bound.staleness_us, assumption, said))
    return found


def _failed(
    model: Model,
    tasks: Mapping[str, RecoveryTask],
    seen: Mapping[str, Observed],
    table: str,
    bound: RecoveryBound,
    works: str,
) -> tuple[Literal["arrival rate", "cost", "lost track", "not known"], str]:
    for name in bound.because:
        delivery, now = model.deliveries.get(name), seen.get(name)
        if delivery is not None and now is not None and now.silent_us > delivery.period_us + delivery.jitter_us:
            return "arrival rate", (
                f"the last file of `{name}` came {format_duration(now.silent_us)} ago, "
                f"one every {format_duration(delivery.period_us)} was expected"
            )
    if works:
        return "lost track", works
    dear = [name for name in tasks if name in seen and seen[name].took_us > tasks[name].cost_us]
    # Its own way first, then whoever may have held it up.
    for name in sorted(dear, key=lambda name: (name not in bound.because, -seen[name].took_us)):
        took, cost = format_duration(seen[name].took_us), format_duration(tasks[name].cost_us)
        return "cost", f"an update of `{name}` took {took}, at most {cost} was assumed"
    return "not known", "all that is watched is as assumed; the feed may have held data back"
