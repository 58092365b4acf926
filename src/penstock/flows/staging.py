"""The staging plan: how a flow runs on Spark.

On Spark a pipelined subflow is a fused stage, its queues vanish. What remains to decide is what this plan says: which
intermediates to stage and where, which of their columns to keep, in which order to run so that they are released early,
and what runs at the same time. Without staging, each target recomputes what it shares with others.

How an executor walks a plan (`penstock.flows.staging.Walk` keeps the books):

* A step computes one output: a target (write its files; publish all targets together at the end) or a staged
  intermediate. It evaluates `nodes`, in order, reading from storage what `reads` names and the sources among its nodes.
* What a step reads was staged by an earlier step, see `StagingPlan.staged`: `Place.MEMORY` and `Place.DISK` are persisted
  frames with only `Staged.columns`, `Place.TARGET` are the files that the step of `Staged.step` wrote, read back.
* Steps are in an order that, one after the other, never holds more than `peak_bytes`. To overlap them, start a step when
  the steps of its `after` are done; one that stages in memory also waits its turn among those, until what is held and
  its own bytes fit. That never blocks for good and never exceeds the limit.
* When all `readers` of something staged are done, release it. Each is released exactly once; for a target that means
  only that nobody reads it any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from heapq import heappop, heappush

from penstock.flows.choice import RATES, Rates, Stages, choose_stages, nothing_staged, staged_columns
from penstock.flows.graph import FlowGraph, NodeKind, topological
from penstock.flows.ordering import (
    LEAST_PEAK,
    SEARCH_EFFORT,
    OrderedTask,
    held_at_peak,
    measured,
    ordered,
    peak_of,
    strata_order,
)


class StagingPlace(Enum):
    MEMORY = "memory"
    DISK = "disk"
    TARGET = "target"  # written anyway, read back


@dataclass(frozen=True)
class StagedRows:
    """What is kept of one node's rows between steps."""

    node: str
    place: StagingPlace
    columns: tuple[str, ...]  # only what is read later; empty: not known, keep all
    bytes_: float  # as estimated; 0 where it costs no more than what is written anyway
    step: str  # the step that makes it
    readers: tuple[str, ...]  # the steps that read it


@dataclass(frozen=True)
class Step:
    """One Spark action. Named by the node that it makes."""

    name: str
    nodes: tuple[str, ...]  # providers first; the last one is `name`
    reads: tuple[str, ...]  # staged nodes
    after: tuple[str, ...]  # steps that make what it reads
    stages: tuple[StagedRows, ...]  # of its output; none: a target that nobody reads back
    release_after: tuple[str, ...]  # staged nodes with no reader after this step, in the order of the plan
    cost_us: float
    stratum: int


@dataclass(frozen=True)
class StagingPlan:
    flow: str
    steps: tuple[Step, ...]
    peak_bytes: float  # held in memory at the most, steps one after the other
    strata_peak_bytes: float  # the same steps in the paper's order of strata
    disk_bytes: float  # staged on disk, all together
    exact: bool  # whether no other order of these steps has a lower peak
    cost_us: float  # work of all steps, with staging
    plain_cost_us: float  # work if every target computed all of its own
    order: str = LEAST_PEAK

    @cached_property
    def staged(self) -> dict[str, StagedRows]:
        """By node."""
        return {staged.node: staged for step in self.steps for staged in step.stages}

    @cached_property
    def memory_bytes(self) -> float:
        """Staged in memory, all together."""
        return sum(_in_memory(staged) for staged in self.staged.values())

    @cached_property
    def by_name(self) -> dict[str, Step]:
        return {step.name: step for step in self.steps}


def plan_staging(
    graph: FlowGraph,
    memory_bytes: float | None = None,
    rates: Rates = RATES,
    effort: int = SEARCH_EFFORT,
    order: str = LEAST_PEAK,
    staged: bool = True,
) -> StagingPlan:
    """What to stage is decided by cost, the order by the peak (or as an operator policy would order the steps); what does
    not fit `memory_bytes` goes to disk. Or nothing is staged but what is written anyway."""
    choice = choose_stages(graph, rates) if staged else nothing_staged(graph, rates)
    drafts = _drafts(graph, choice.stages, rates)
    in_memory = {name: draft.bytes_ for name, draft in drafts.items() if graph[name].kind is not NodeKind.TARGET}
    found = ordered(_tasks(drafts, in_memory), order, effort)
    strata = strata_order(_tasks(drafts, in_memory))
    if memory_bytes is not None and found.peak_bytes > memory_bytes:
        in_memory = _fitting(drafts, in_memory, found.names, memory_bytes)
        fitting = measured(_tasks(drafts, in_memory), found.names)
        found = min((ordered(_tasks(drafts, in_memory), order, effort), fitting), key=lambda either: either.peak_bytes)
    return StagingPlan(
        graph.name,
        _steps(graph, choice.stages, drafts, found.names, in_memory, rates),
        found.peak_bytes,
        peak_of(_tasks(drafts, in_memory), strata),
        sum(draft.bytes_ for name, draft in drafts.items() if name not in in_memory),
        found.exact,
        choice.cost_us,
        choice.plain_cost_us,
        order,
    )


def tasks_of(plan: StagingPlan) -> list[OrderedTask]:
    """The steps of a plan as tasks to be ordered, providers first."""
    return [
        OrderedTask(
            step.name,
            step.after,
            sum(staged.bytes_ for staged in step.stages if staged.place is StagingPlace.MEMORY),
            step.cost_us,
        )
        for step in plan.steps
    ]


def _fitting(
    drafts: dict[str, _Draft], in_memory: dict[str, float], order: tuple[str, ...], memory_bytes: float
) -> dict[str, float]:
    """What can stay in memory in this order. Of what is held at the peak goes to disk the smallest that is enough by
    itself, else the largest; until it fits."""
    kept = dict(in_memory)
    while True:
        held = held_at_peak(_tasks(drafts, kept), order)
        over = sum(held.values()) - memory_bytes
        if over <= 0:
            return kept
        enough = {name: size for name, size in held.items() if size >= over}
        del kept[min(enough, key=enough.__getitem__) if enough else max(held, key=held.__getitem__)]


@dataclass(frozen=True)
class _Draft:
    """A step before it has its place in the order."""

    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    after: tuple[str, ...]
    bytes_: float  # of a staged output
    cost_us: float


def _drafts(graph: FlowGraph, stages: Stages, rates: Rates) -> dict[str, _Draft]:
    """A step for each target and each node that is staged as itself; those that are read first."""
    place = {name: number for number, name in enumerate(graph.order)}
    columns = {name: staged_columns(graph, name, made_by) for name, made_by in stages.items()}
    size = {name: graph.rows_out[name] * graph[name].width(columns[name]) for name in stages}
    found: dict[str, _Draft] = {}
    for name in graph.order:
        target = graph[name].kind is NodeKind.TARGET
        if not target and stages.get(name) != name:
            continue
        computed, read = _evaluations(graph, name, stages, place)
        cost = sum(count * graph.cost_us[node] for node, count in computed.items())
        for node, count in read.items():
            cost += count * size[node] * rates.read(stages[node] == node and graph[node].kind is not NodeKind.TARGET)
        bytes_ = 0.0 if target else size[name]
        found[name] = _Draft(
            tuple(sorted(computed, key=place.__getitem__)),
            tuple(sorted(read, key=place.__getitem__)),
            tuple(dict.fromkeys(stages[node] for node in sorted(read, key=place.__getitem__))),
            bytes_,
            cost + bytes_ * rates.cache_write_us,
        )
    readers: dict[str, list[str]] = {name: [] for name in found}
    for name, draft in found.items():
        for made_by in draft.after:
            readers[made_by].append(name)
    needs = {name: draft.after for name, draft in found.items()}
    order = topological(found, needs, {name: tuple(names) for name, names in readers.items()})
    return {name: found[name] for name in order}


def _evaluations(
    graph: FlowGraph, output: str, stages: Stages, place: dict[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """How often one step computes each node (once for each path to its output) and reads what is staged."""
    computed, read = {output: 1}, dict[str, int]()
    waiting = [(-place[output], output)]
    while waiting:
        _, name = heappop(waiting)
        for provider in graph.providers[name]:
            if stages.get(provider, name) == name:
                if provider not in computed:
                    heappush(waiting, (-place[provider], provider))
                computed[provider] = computed.get(provider, 0) + computed[name]
            else:
                read[provider] = read.get(provider, 0) + computed[name]
    return computed, read


def _tasks(drafts: dict[str, _Draft], in_memory: dict[str, float]) -> list[OrderedTask]:
    return [OrderedTask(name, draft.after, in_memory.get(name, 0.0), draft.cost_us) for name, draft in drafts.items()]


def _steps(
    graph: FlowGraph,
    stages: Stages,
    drafts: dict[str, _Draft],
    order: tuple[str, ...],
    in_memory: dict[str, float],
    rates: Rates,
) -> tuple[Step, ...]:
    on_disk = {name: draft.bytes_ for name, draft in drafts.items() if name not in in_memory}
    by_disk = {
        name: on_disk.get(name, 0.0) * rates.disk_write_us
        + sum(on_disk.get(made_by, 0.0) for made_by in draft.after) * rates.disk_read_us
        for name, draft in drafts.items()
    }
    readers: dict[str, list[str]] = {node: [] for node in stages}
    for name in order:
        for node in drafts[name].reads:
            readers[node].append(name)
    # A target may hold the rows of the node before it and be read itself, too: its step then stages both.
    made: dict[str, list[str]] = {}
    for node, made_by in stages.items():
        made.setdefault(made_by, []).append(node)
    stratum: dict[str, int] = {}
    for name, draft in drafts.items():
        stratum[name] = 1 + max((stratum[made_by] for made_by in draft.after), default=-1)
    last = {node: names[-1] for node, names in readers.items() if names}

    def staged(node: str, step: str) -> StagedRows:
        if graph[step].kind is NodeKind.TARGET:
            place = StagingPlace.TARGET
        else:
            place = StagingPlace.MEMORY if step in in_memory else StagingPlace.DISK
        columns = tuple(sorted(staged_columns(graph, node, step)))
        return StagedRows(node, place, columns, drafts[step].bytes_, step, tuple(readers[node]))

    return tuple(
        Step(
            name,
            drafts[name].nodes,
            drafts[name].reads,
            drafts[name].after,
            tuple(staged(node, name) for node in made.get(name, ())),
            tuple(node for node in drafts[name].reads if last[node] == name),
            drafts[name].cost_us + by_disk[name],
            stratum[name],
        )
        for name in order
    )


# An executor's walk through a staging plan: what may start, and what may be let go. Pure; the executor runs the steps.


class Walk:
    """Steps that only write targets start as soon as what they read exists. Steps that stage in memory start in the
    order of the plan, when what is held and their own bytes fit the limit. As the plan's own order fits, one after the
    other, nothing waits for good."""

    def __init__(self, plan: StagingPlan, limit_bytes: float | None = None, slots: int = 4) -> None:
        self.plan = plan
        self.limit_bytes = max(limit_bytes or 0.0, plan.peak_bytes)
        self.slots = slots
        self.waiting = {step.name: step for step in plan.steps}
        self.running: dict[str, Step] = {}
        self.finished: set[str] = set()
        self.held: dict[str, StagedRows] = {}
        self.held_bytes = 0.0
        self._left = {staged.node: len(staged.readers) for staged in plan.staged.values()}

    @property
    def done(self) -> bool:
        return not self.waiting and not self.running

    def start(self) -> tuple[Step, ...]:
        """The steps to start now; they count as running."""
        started: list[Step] = []
        turn_taken = False  # a step that stages in memory waits, so later ones do
        for step in self.waiting.values():
            if len(self.running) + len(started) >= self.slots:
                break
            taken = sum(map(_in_memory, step.stages))
            fits = not taken or (not turn_taken and self.held_bytes + taken <= self.limit_bytes * (1 + 1e-9))
            if fits and self.finished.issuperset(step.after):
                started.append(step)
                self.held |= {staged.node: staged for staged in step.stages}
                self.held_bytes += taken
            elif taken:
                turn_taken = True
        for step in started:
            self.running[step.name] = self.waiting.pop(step.name)
        return tuple(started)

    def finish(self, name: str) -> tuple[StagedRows, ...]:
        """A step has ended well: what is to be released now."""
        step = self.running.pop(name)
        self.finished.add(name)
        released: list[StagedRows] = []
        for node in step.reads:
            self._left[node] -= 1
        for node in (*step.reads, *(staged.node for staged in step.stages)):
            if not self._left[node]:
                released.append(self.held.pop(node))
        self.held_bytes -= sum(map(_in_memory, released))
        return tuple(released)


def _in_memory(staged: StagedRows) -> float:
    return staged.bytes_ if staged.place is StagingPlace.MEMORY else 0.0


@dataclass(frozen=True)
class Turn:
    """When a step would run, and what is held in memory while it does."""

    step: Step
    start_us: float
    end_us: float
    held_bytes: float  # at its start, with its own


def timetable(plan: StagingPlan, slots: int = 4, limit_bytes: float | None = None) -> tuple[Turn, ...]:
    """The walk as it would go if every step took just its estimated work, in the order of starts. Steps that overlap
    run at the same time."""
    walk = Walk(plan, limit_bytes, slots)
    now_us = 0.0
    ends: list[tuple[float, int, str]] = []
    turns: list[Turn] = []
    while not walk.done:
        for step in walk.start():
            turns.append(Turn(step, now_us, now_us + step.cost_us, walk.held_bytes))
            heappush(ends, (now_us + step.cost_us, len(turns), step.name))
        now_us, _, name = heappop(ends)
        walk.finish(name)
    return tuple(turns)
