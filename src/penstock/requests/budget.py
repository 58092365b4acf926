"""How to split the time that a change may wait in queues over the stages of a pipeline.

A table at the end may be so much out of date; what its run times leave of that is the waiting budget of every way to it.
Splitting it evenly over the stages is not the best (beyond Xu, Gao, Davidson 2023, Sec. 4.2): an update that a queue
saves early is saved at all later stages, too, and a queue only helps where several streams of changes meet in it.

A queue that is opened by the first request and closed q seconds later turns requests that come at a rate r into
updates at the rate r / (1 + r q). `split` finds the waits per stage that make the cost of all updates least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import floor, log10

from penstock.model.time import END_US, MINUTE_US, SECOND_US
from penstock.requests.closure import Duration, longest
from penstock.requests.needs import Piece
from penstock.requests.waits import RequestView


@dataclass(frozen=True)
class Pipeline:
    """What reads what (each table after all that it reads), how often changes come from outside, what an update costs."""

    inputs: Mapping[str, Sequence[str]]
    rate_per_s: Mapping[str, float]
    cost: Mapping[str, float]

    @cached_property
    def stage(self) -> dict[str, int]:
        """Of each table how many others are one after the other above it."""
        found: dict[str, int] = {}
        for name, inputs in self.inputs.items():
            found[name] = max((found[source] + 1 for source in inputs), default=0)
        return found

    @property
    def stages(self) -> int:
        return max(self.stage.values()) + 1

    def cost_per_s(self, waits_s: Sequence[float]) -> float:
        """What all updates cost if each stage waits for so long."""
        rates: dict[str, float] = {}
        total = 0.0
        for name, inputs in self.inputs.items():
            rate = self.rate_per_s.get(name, 0.0) + sum(rates[source] for source in inputs)
            rates[name] = rate / (1.0 + rate * waits_s[self.stage[name]])
            total += self.cost.get(name, 1.0) * rates[name]
        return total

    def waits_s(self, by_stage: Sequence[float]) -> dict[str, float]:
        return {name: by_stage[stage] for name, stage in self.stage.items()}


def even(pipeline: Pipeline, budget_s: float) -> tuple[float, ...]:
    return (budget_s / pipeline.stages,) * pipeline.stages


def split(pipeline: Pipeline, budget_s: float, shares: int = 64) -> tuple[float, ...]:
    """The waits of the stages, which add up to the budget, that cost least: shares of the budget are moved from stage to
    stage as long as that helps, a half of what a stage has first and single shares in the end."""
    stages = pipeline.stages
    best, least = even(pipeline, budget_s), pipeline.cost_per_s(even(pipeline, budget_s))
    step = budget_s / 2
    while step >= budget_s / shares > 0:
        moved = False
        for giving in range(stages):
            for taking in range(stages):
                amount = min(step, best[giving])
                if giving == taking or amount <= 0:
                    continue
                tried = list(best)
                tried[giving] -= amount
                tried[taking] += amount
                cost = pipeline.cost_per_s(tried)
                if cost < least * (1 - 1e-9):
                    best, least, moved = tuple(tried), cost, True
        step = step if moved else step / 2
    return best


# Tables below a table of which it is still asked which of them should wait; and on a chain whose budget is shared out.
MOST = 512
MOST_SHARING = 32
# Targets below for which the budget is shared out.
TIGHTEST = 3
# How long changes that overtake each other are brought together at least where no target says otherwise.
OVERTAKING_US = 10 * MINUTE_US


@dataclass(frozen=True, slots=True)
class Below:
    """A table and all that is made from it: how long after the start of its update a change is there, and who reads whom."""

    name: str
    takes: Mapping[str, Duration]
    readers: Mapping[str, tuple[str, ...]]


def run_time(state: RequestView, name: str) -> Duration:
    cost = state.cost_of(name)
    return Duration.learned(cost.usual_s, cost.spread_s)


def below(state: RequestView, name: str) -> Below | None:
    """None if these are too many."""
    graph = state.graph
    readers: dict[str, tuple[str, ...]] = {}
    new = [name]
    while new:
        found = new.pop()
        if found not in readers:
            if len(readers) == MOST:
                return None
            readers[found] = tuple(dict.fromkeys(edge.table for edge in graph.out[found] if edge.table != found))
            new += readers[found]
    takes = {name: run_time(state, name)}
    for other in sorted(readers, key=graph.rank.__getitem__)[1:]:
        above = [takes[edge.source] for edge in graph.into[other] if edge.source in takes and edge.source != other]
        takes[other] = longest(above) + run_time(state, other)
    return Below(name, takes, readers)


def share_us(state: RequestView, chain: Below) -> int | None:
    """How long after a change a table may wait for another, for the sake of the targets below; None if there are none."""
    tables = state.graph.tables
    budgets = sorted(
        (target / SECOND_US - takes.at_most_s(), name)
        for name, takes in chain.takes.items()
        if (target := tables[name].target_us) is not None
    )
    # The tightest decide. Of the others, all of the budget is more than that.
    shares = [
        budget_s * (_first_share(state, chain, name, budget_s) if budget_s > 0 else 1.0)
        for budget_s, name in budgets[:TIGHTEST]
    ]
    return int(min(shares) * SECOND_US) if shares else None


def _first_share(state: RequestView, chain: Below, last: str, budget_s: float) -> float:
    """The part of the budget of all tables from the first to the last that the first should spend."""
    graph = state.graph
    between = graph.ancestors[last]
    way = [name for name in sorted(chain.takes, key=graph.rank.__getitem__) if name in between or name == last]
    if len(way) == 1 or len(way) > MOST_SHARING:
        return 1.0
    numbers = {name: number for number, name in enumerate(way)}
    inputs: list[tuple[int, ...]] = []
    rates: list[float] = []
    for name in way:
        sources = {edge.source for edge in graph.into[name]} - {name}
        inputs.append(tuple(sorted(numbers[source] for source in sources if source in numbers)))
        outside = {base for source in sources if source not in numbers for base in (source, *graph.ancestors[source])}
        rates.append(_rough(sum(state.tables[each].restated.rate_per_s for each in (*sorted(outside), name))))
    if not any(rates):
        return 1.0  # nothing is known: what is saved early is saved at all later tables, too
    costs = tuple(_rough(run_time(state, name).mean_s) for name in way)
    return _split(tuple(inputs), tuple(rates), costs, _rough(budget_s))


def _rough(value: float) -> float:
    """Two digits: enough to share out a budget, and seldom another value."""
    return round(value, 1 - floor(log10(value))) if value > 0 else 0.0


@lru_cache(maxsize=4096)
def _split(
    inputs: tuple[tuple[int, ...], ...], rates: tuple[float, ...], costs: tuple[float, ...], budget_s: float
) -> float:
    names = [str(number) for number in range(len(inputs))]
    pipeline = Pipeline(
        {name: [names[source] for source in sources] for name, sources in zip(names, inputs, strict=True)},
        dict(zip(names, rates, strict=True)),
        dict(zip(names, costs, strict=True)),
    )
    return split(pipeline, budget_s)[0] / budget_s


def latest_start_us(state: RequestView, piece: Piece, chain: Below | None) -> int:
    """When a piece must start at the latest, for the targets below and the requests that it is made for."""
    share = share_us(state, chain) if chain is not None else None
    deadline = deadline_us(state, piece, chain)
    return deadline if share is None else min(deadline, piece.need.oldest_us + share)


def deadline_us(state: RequestView, piece: Piece, chain: Below | None) -> int:
    """When a piece must start at the latest for the requests that it is made for."""
    limits = []
    last = max((takes.at_most_s() for takes in chain.takes.values()), default=0.0) if chain is not None else 0.0
    for number in piece.need.requests:
        request = state.requests.get(number)
        if request is not None and request.deadline_us is not None:
            limits.append(request.deadline_us - int(last * SECOND_US))
    return min(limits, default=END_US)


def pass_us(state: RequestView, name: str) -> int:
    """How long two changes take to come through all tables above, one after the other; also where they are collected on the way."""
    graph = state.graph
    found: dict[str, Duration] = {}
    for other in sorted(graph.ancestors[name], key=graph.rank.__getitem__):
        above = [found[edge.source] for edge in graph.into[other] if edge.source in found and edge.source != other]
        spec = graph.tables[other]
        collects_us = max(spec.queue_us, spec.patience_us or 0)
        found[other] = longest(above) + Duration(collects_us / SECOND_US) + run_time(state, other)
    takes = longest(found.values())
    return max(OVERTAKING_US, int(2 * takes.at_most_s() * SECOND_US))
