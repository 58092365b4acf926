"""What to stage, by cost.

A node with several consumers is computed once for each of them, unless it is staged. Staging has a price, too: writing
the columns that are needed later, and reading them. An intermediate that is cheap to compute again and read only once
more is not worth it; one that is written as a target anyway can be read back for nothing but the reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from penstock.flows.graph import FlowGraph, NodeKind

EXHAUSTIVE_EFFORT = 20_000  # nodes looked at, over all combinations; beyond it is decided node by node
ROUNDS = 6


@dataclass(frozen=True)
class Rates:
    """Microseconds of one core for each byte staged."""

    cache_write_us: float = 0.004
    cache_read_us: float = 0.001
    file_read_us: float = 0.003
    # What disk takes more than memory.
    disk_write_us: float = 0.004
    disk_read_us: float = 0.002

    def write(self, place_is_cache: bool) -> float:
        return self.cache_write_us if place_is_cache else 0.0  # a target is written anyway

    def read(self, place_is_cache: bool) -> float:
        return self.cache_read_us if place_is_cache else self.file_read_us


RATES = Rates()
# Of a staged node the step that makes it: itself, or the target among its consumers that holds the same rows.
Stages = Mapping[str, str]


@dataclass(frozen=True)
class StagingChoice:
    stages: Stages
    cost_us: float
    plain_cost_us: float  # of computing everything for each target anew


def choose_stages(graph: FlowGraph, rates: Rates = RATES, effort: int = EXHAUSTIVE_EFFORT) -> StagingChoice:
    """The cheapest stages where all combinations can be tried; else by rounds, each deciding for every node as if the
    others stayed as they are, and the cheapest round is kept."""
    fixed = {name: name for name in graph.targets if graph.consumers[name]}
    options = _options(graph)
    worth = _Worth(graph, rates)
    plain = worth.total(fixed)
    combinations = prod(len(some) for some in options.values())
    if combinations * len(graph.nodes) <= effort:
        found = (fixed | _picked(options, picks) for picks in product(*options.values()))
        best = min(found, key=lambda stages: (worth.total(stages), len(stages)))
        return StagingChoice(best, worth.total(best), plain)
    stages = fixed | {name: some[-1] for name, some in options.items() if some[-1] is not None}
    best, cost = (fixed, plain) if plain <= worth.total(stages) else (stages, worth.total(stages))
    for _ in range(ROUNDS):
        following = fixed | worth.decided(options, stages)
        if following == stages:
            break
        stages = following
        if worth.total(stages) < cost:
            best, cost = stages, worth.total(stages)
    return StagingChoice(best, cost, plain)


def nothing_staged(graph: FlowGraph, rates: Rates = RATES) -> StagingChoice:
    """Nothing but targets that are read: those are written anyway."""
    fixed = {name: name for name in graph.targets if graph.consumers[name]}
    plain = _Worth(graph, rates).total(fixed)
    return StagingChoice(fixed, plain, plain)


def _picked(options: Mapping[str, tuple[str | None, ...]], picks: tuple[str | None, ...]) -> dict[str, str]:
    return {name: pick for name, pick in zip(options, picks, strict=True) if pick is not None}


def _options(graph: FlowGraph) -> dict[str, tuple[str | None, ...]]:
    """Of each node with several consumers: not staged, staged as itself, or read back from a target."""
    found: dict[str, tuple[str | None, ...]] = {}
    for name in graph.order:
        node = graph[name]
        if node.kind is NodeKind.TARGET or len(graph.consumers[name]) < 2:
            continue
        targets = [
            consumer
            for consumer in graph.consumers[name]
            if graph[consumer].kind is NodeKind.TARGET and (graph[consumer].columns or node.columns) >= node.columns
        ]
        found[name] = (None, name, *targets[:1])
    return found


class _Worth:
    """The work of a flow under stages."""

    def __init__(self, graph: FlowGraph, rates: Rates) -> None:
        self.graph, self.rates = graph, rates

    def size(self, name: str, stages: Stages) -> float:
        return self.graph.rows_out[name] * self.graph[name].width(staged_columns(self.graph, name, stages[name]))

    def is_cache(self, name: str, stages: Stages) -> bool:
        return stages[name] == name and self.graph[name].kind is not NodeKind.TARGET

    def runs(self, stages: Stages) -> tuple[dict[str, int], dict[str, int]]:
        """How often each node is computed, and how often each staged one is read."""
        computed: dict[str, int] = {}
        read: dict[str, int] = {}
        for name in reversed(self.graph.order):
            made_by = stages.get(name)
            uses = {consumer: computed[consumer] for consumer in self.graph.consumers[name]}
            if made_by is None:
                computed[name] = sum(uses.values()) if uses else 1
            else:
                computed[name] = 1
                read[name] = sum(count for consumer, count in uses.items() if consumer != made_by)
        return computed, read

    def total(self, stages: Stages) -> float:
        computed, read = self.runs(stages)
        cost = sum(count * self.graph.cost_us[name] for name, count in computed.items())
        for name, count in read.items():
            cache = self.is_cache(name, stages)
            cost += self.size(name, stages) * (self.rates.write(cache) + count * self.rates.read(cache))
        return cost

    def decided(self, options: Mapping[str, tuple[str | None, ...]], stages: Stages) -> dict[str, str]:
        """For each node what is cheapest while the others stay as they are."""
        computed, _ = self.runs(stages)
        again: dict[str, float] = {}  # the work to compute a node once more
        found: dict[str, str] = {}
        for name in self.graph.order:
            again[name] = self.graph.cost_us[name]
            for provider in self.graph.providers[name]:
                if provider in stages and stages[provider] != name:
                    again[name] += self.size(provider, stages) * self.rates.read(self.is_cache(provider, stages))
                else:
                    again[name] += again[provider]
            if name not in options:
                continue
            uses = sum(computed[consumer] for consumer in self.graph.consumers[name])
            prices: list[tuple[float, int, str | None]] = []
            for number, pick in enumerate(options[name]):
                if pick is None:
                    prices.append((uses * again[name], number, None))
                    continue
                cache = pick == name
                size = self.size(name, {name: pick})
                reads = uses if cache else uses - 1
                price = again[name] + size * (self.rates.write(cache) + reads * self.rates.read(cache))
                prices.append((price, number, pick))
            best = min(prices)[2]
            if best is not None:
                found[name] = best
        return found


def staged_columns(graph: FlowGraph, name: str, made_by: str) -> frozenset[str]:
    """The columns of a node that its consumers want, beside the one that makes it."""
    needed = graph.needed_columns
    return frozenset().union(
        *(graph.asked(name, consumer, needed) for consumer in graph.consumers[name] if consumer != made_by)
    )
