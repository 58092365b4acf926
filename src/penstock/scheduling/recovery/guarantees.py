"""Which freshness targets are proven, what breaks the others, and what would mend them.

Every remedy is computed: the change is made to the model, the bounds are taken again, and only what then proves the target
is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from penstock.model.time import SECOND_US, format_duration
from penstock.scheduling.recovery.bounds import Model, RecoveryBound, tracks_needed
from penstock.scheduling.recovery.tasks import Periods, RecoveryTask, provisioned

Verdict = Literal["proven", "not proven", "no target", "best effort"]
_MORE_TRACKS = 32


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
    # After an outage of its feeds, from when its recovery begins: alone, and None if it never catches up.
    recovery_us: int | None = None
    breaks: str = ""
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    tracks: int
    utilisation: float
    provision: str
    guarantees: tuple[Guarantee, ...]
    outage_us: int | None = None
    # All feeds out for so long at once: when the last table has recovered.
    all_recovered_us: int | None = None
    # Whether the tracks can do all that is reserved.
    fits: bool = True


def judge(
    model: Model,
    targets_us: Mapping[str, int],
    costs_from: Mapping[str, str],
    *,
    provision: str = "worst",
    periods: Periods = "single",
    outage_us: int | None = None,
    unknown: frozenset[str] = frozenset(),
    followers: Mapping[str, Sequence[str]] | None = None,
) -> Report:
    """`unknown` are tables whose cost nobody knows: nothing that depends on it is proven. `followers` are those that are
    made by the updates of another one: each has a target of its own."""
    bounds = {} if unknown else model.bounds()
    guarantees = []
    each = [(name, task) for task in model.tasks for name in (task.table, *(followers or {}).get(task.table, ()))]
    for name, task in each:
        target = targets_us.get(name)
        bound = bounds.get(task.table)
        breaks, remedies = "", tuple[str, ...]()
        verdict: Verdict
        if not task.reserved:
            verdict = "best effort"
        elif target is None:
            verdict = "no target"
        elif bound is not None and bound.staleness_us <= target:
            verdict = "proven"
        else:
            verdict = "not proven"
            breaks, remedies = _explained(model, task, target, bound, periods, unknown)
        guarantees.append(
            Guarantee(
                name,
                verdict,
                task.period_us,
                None if task.table in unknown else task.cost_us,
                costs_from.get(task.table, "not known") if name == task.table else f"with {task.table}",
                None if task.table in unknown else task.utilisation if name == task.table else 0.0,
                target,
                bound,
                model.recovery_us(task.table, outage_us) if outage_us is not None and bound is not None else None,
                breaks,
                remedies,
            )
        )
    outages = {t.table: outage_us for t in model.tasks if t.table in model.deliveries and t.reserved and outage_us}
    everything = model.all_recovered_us(outages) if outages and bounds else None
    return Report(model.tracks, model.utilisation, provision, tuple(guarantees), outage_us, everything, model.fits)


def _explained(
    model: Model,
    task: RecoveryTask,
    target_us: int,
    bound: RecoveryBound | None,
    periods: Periods,
    unknown: frozenset[str],
) -> tuple[str, tuple[str, ...]]:
    if unknown:
        names = ", ".join(f"`{name}`" for name in sorted(unknown)[:4])
        more = f" and {len(unknown) - 4} more" if len(unknown) > 4 else ""
        return f"nobody knows what an update of {names}{more} costs", (
            'declare it, for example cost = "20s", or let it run for a while',
        )
    least = model.least_us(task.table)
    if target_us < least:
        parts = f"twice its period ({format_duration(task.period_us)}), its update ({format_duration(task.cost_us)})"
        rest = "what its feed has not delivered" if task.table not in model.sources else "what its sources lack"
        said = (
            f"on any number of tracks it can be {format_duration(least)} behind, the target is {format_duration(target_us)}: "
            f"{parts}, and {rest} ({format_duration(least - 2 * task.period_us - task.cost_us)})"
        )
        larger = f"a target of at least {_written(least)}"
        if bound is not None:
            larger = f"a target that is proven: freshness = {_written(bound.staleness_us)}"
        return said, (larger, *_shorter_period(model, task, target_us))
    found = tuple(_remedies(model, task, target_us, periods))
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
    longest = max(model.tasks, key=lambda t: max(t.cost_us, model.merged_us.get(t.table, 0)))
    way = " -> ".join(f"`{name}`" for name in bound.because)
    said = (
        f"it can be {format_duration(bound.staleness_us)} behind, the target is {format_duration(target_us)}: "
        f"along {way} every table adds twice its period and up to {format_duration(bound.tardiness_us)} of waiting, "
        f"most of it for updates as long as that of `{longest.table}` ({format_duration(longest.cost_us)})"
    )
    return said, found


def _remedies(model: Model, task: RecoveryTask, target_us: int, periods: Periods) -> Iterator[str]:
    """Single changes that would prove the target."""

    def proves(changed: Model) -> bool:
        bound = (
            replace(changed, tasks=tuple(provisioned(changed.tasks, changed.tracks, periods))).bounds().get(task.table)
        )
        return bound is not None and bound.staleness_us <= target_us

    first = max(model.tracks + 1, tracks_needed(model.tasks) if not model.fits else 0)
    for tracks in range(first, model.tracks + _MORE_TRACKS):
        if proves(replace(model, tracks=tracks)):
            more = tracks - model.tracks
            yield f"{more} track{'s' * (more > 1)} more: tracks = {tracks}"
            break
    if periods == "single":
        bound = replace(model, tasks=tuple(provisioned(model.tasks, model.tracks, "shared"))).bounds().get(task.table)
        if bound is not None and bound.staleness_us <= target_us:
            yield 'recovery that tables share, slower for each: policy = "adaptive(shared)"'
    yield from _other_period(model, task, proves)
    yield from _cheaper(model, proves)
    bound = model.bounds().get(task.table)
    if bound is not None:
        yield f"a target that is proven: freshness = {_written(bound.staleness_us)}"


def _shorter_period(model: Model, task: RecoveryTask, target_us: int) -> Iterator[str]:
    """For a table that is made from others; a feed comes when it comes."""
    if task.table in model.sources:
        spare = target_us - (model.least_us(task.table) - 2 * task.period_us)
        if spare >= 2 * task.cost_us:
            yield f"a period of less than {_written(spare // 2)} instead of {_written(task.period_us)}"


def _other_period(model: Model, task: RecoveryTask, proves: Callable[[Model], bool]) -> Iterator[str]:
    """A longer period of a table that uses much, or a shorter one of a table on the way."""
    for other in sorted((t for t in model.tasks if t.reserved), key=lambda t: -t.utilisation)[:4]:
        factors: tuple[float, ...] = (1.25, 1.5, 2, 3, 4, 6, 8, 12, 24)
        if model.fits and other.table == task.table:
            factors = (0.8, 0.67, 0.5, 0.33, 0.25, 0.2, 0.1)
        for factor in factors:
            period = ceil(other.period_us * factor / SECOND_US) * SECOND_US
            if period < other.cost_us or (other.table in model.deliveries and factor < 1):
                continue
            if proves(_with(model, replace(other, period_us=period))):
                kind = "longer" if factor > 1 else "shorter"
                yield f"a {kind} period of `{other.table}`: {_written(period)} instead of {_written(other.period_us)}"
                return


def _cheaper(model: Model, proves: Callable[[Model], bool]) -> Iterator[str]:
    """The least saving at one table that would do."""
    best: tuple[float, str, int] | None = None
    for other in sorted(model.tasks, key=lambda t: -t.cost_us)[:6]:
        low, high = 0.0, 1.0  # parts of the cost that do and do not prove it
        if not proves(_with(model, replace(other, cost_us=1))):
            continue
        for _ in range(12):
            middle = (low + high) / 2
            cost = max(1, int(other.cost_us * middle))
            low, high = (middle, high) if proves(_with(model, replace(other, cost_us=cost))) else (low, middle)
        if low > 0 and (best is None or low > best[0]):
            best = (low, other.table, max(1, int(other.cost_us * low)))
    if best is not None:
        part, table, cost_us = best
        yield f"a cheaper update of `{table}`: at most {format_duration(cost_us)}, {1 - part:.0%} less"


def _with(model: Model, task: RecoveryTask) -> Model:
    tasks = tuple(task if each.table == task.table else each for each in model.tasks)
    merged = {name: cost for name, cost in model.merged_us.items() if name != task.table}
    return replace(model, tasks=tasks, merged_us=merged)


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
