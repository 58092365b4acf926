"""A flow run pack by pack on Spark, under an operator policy.

Karagiannis, Vassiliadis and Simitsis (2013), Sec. 3.1 and 6: activities have queues of row packs with limits; a policy
names the activity that works next; it stops when its time slot is over, its input is empty, or a consumer's queue is
full, so no row is lost. Here a pack is what an activity makes of one file of a source (or of one pack of it), held in
Spark's storage until all its consumers have taken it. Activities that need all of their input first store their packs on
disk meanwhile.

On Spark this is the long way round: a query for every activity and pack. The default is the staging plan, which fuses
activities; packs are for input that is larger than memory in a single query, and for comparing policies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from penstock.engine.flows import history  # noqa: F401  (registers its activities)
from penstock.engine.flows.realise import Inputs, realise
from penstock.engine.updates.rows import read_files, struct_of
from penstock.flows.activities import Activity, Lookup, Union
from penstock.flows.description import FlowSource, Target, TypedFlow
from penstock.flows.graph import FlowError
from penstock.model.schema import Schema
from penstock.papers.flows.policies import Operator, OperatorPolicy


@dataclass(eq=False)
class Pack:
    """Rows on their way, and how many consumers have not taken them yet."""

    frame: DataFrame
    rows: int
    wanted_by: int

    def taken(self) -> None:
        self.wanted_by -= 1
        if not self.wanted_by:
            self.frame.unpersist()


@dataclass(eq=False)
class PackQueue:
    provider: str
    limit: float
    packs: deque[Pack] = field(default_factory=deque)

    @property
    def rows(self) -> int:
        return sum(pack.rows for pack in self.packs)

    @property
    def full(self) -> bool:
        return len(self.packs) >= self.limit


@dataclass(eq=False)
class _Working:
    """One node at work."""

    name: str
    does: FlowSource | Target | Activity
    inputs: list[PackQueue]
    outputs: list[PackQueue] = field(default_factory=list)
    # Of a source: what is still to be read. Of an activity that needs everything first: what it has, by input.
    left: deque[DataFrame] = field(default_factory=deque)
    stored: dict[str, list[Pack]] = field(default_factory=dict)
    rows_in: int = 0
    rows_out: int = 0
    busy_us: float = 0.0
    finished: bool = False


@dataclass(frozen=True)
class PacksOutcome:
    seconds: float
    average_packs: float  # in the queues, over time
    maximum_packs: int
    calls: int  # of the policy
    queries: int
    rows_in: dict[str, int]
    rows_out: dict[str, int]
    fullest_queue: int


class PacksRun:
    def __init__(
        self,
        session: SparkSession,
        flow: TypedFlow,
        sources: Mapping[str, Sequence[DataFrame]],
        folder: Path,
        policy: OperatorPolicy,
        queue_packs: int = 4,
    ) -> None:
        self.session, self.flow, self.folder = session, flow, folder
        graph = flow.graph()
        self.policy = policy.for_flow(graph)
        stored = self.policy.staged_edges()
        self.nodes: dict[str, _Working] = {}
        for step in flow.flow.steps:
            queues = [PackQueue(p, float("inf") if (p, step.name) in stored else queue_packs) for p in step.inputs]
            node = _Working(step.name, step.does, queues)
            if isinstance(step.does, FlowSource):
                node.left.extend(sources[step.does.table])
            for queue in queues:
                self.nodes[queue.provider].outputs.append(queue)
            self.nodes[step.name] = node
        self.queues = [queue for node in self.nodes.values() for queue in node.inputs if queue.limit < float("inf")]
        self.calls = self.queries = self.most = self.fullest = 0
        self.area = 0.0

    def run(self) -> PacksOutcome:
        began = self._at = perf_counter()
        last: str | None = None
        turn = [self.nodes[name] for name in sorted(self.nodes)]  # policies go by the order of names
        while waiting := [self._view(node) for node in turn if not node.finished]:
            name = self.policy.choose(waiting, last)
            if name is None or not any(operator.can_run for operator in waiting):
                stuck = ", ".join(operator.name for operator in waiting)
                raise FlowError(f"{self.policy.name} left rows in the queues of {stuck}: nobody can run")
            self.calls += 1
            last = name
            self._work(self.nodes[name])
        seconds = perf_counter() - began
        return PacksOutcome(
            seconds,
            self.area / seconds,
            self.most,
            self.calls,
            self.queries,
            {node.name: node.rows_in for node in self.nodes.values()},
            {node.name: node.rows_out for node in self.nodes.values()},
            self.fullest,
        )

    def _view(self, node: _Working) -> Operator:
        rows = sum(queue.rows for queue in node.inputs) if node.inputs else int(bool(node.left))
        return Operator(node.name, rows, self._can_run(node), node.rows_in, node.rows_out, node.busy_us)

    def _can_run(self, node: _Working) -> bool:
        if node.finished:
            return False
        if isinstance(node.does, FlowSource):
            return bool(node.left) and not self._blocked(node)
        if self._collects(node):
            return any(queue.packs for queue in node.inputs) or (self._ended(node) and not self._blocked(node))
        return any(queue.packs for queue in node.inputs) and not self._blocked(node)

    def _blocked(self, node: _Working) -> bool:
        return any(queue.full for queue in node.outputs)

    def _ended(self, node: _Working) -> bool:
        """Whether nothing more will come."""
        return all(self.nodes[queue.provider].finished and not queue.packs for queue in node.inputs)

    def _collects(self, node: _Working) -> bool:
        """Whether it can only take what comes, as it needs everything first; a look-up, until it has its reference."""
        if not isinstance(node.does, Activity) or isinstance(node.does, Union):
            return isinstance(node.does, Activity) and node.does.blocking
        if isinstance(node.does, Lookup):
            reference = node.inputs[1]
            return bool(node.stored.get("0")) or bool(reference.packs) or not self.nodes[reference.provider].finished
        return node.does.blocking or len(node.inputs) > 1

    # Work

    def _work(self, node: _Working) -> None:
        """Until the slot is over, the input is empty, or a consumer's queue is full."""
        slot = self.policy.slot_us(node.name)
        begun = perf_counter()
        while self._can_run(node):
            before = perf_counter()
            self._one(node)
            node.busy_us += (perf_counter() - before) * 1e6
            self._count()
            if slot is not None and (perf_counter() - begun) * 1e6 >= slot:
                break
        self._close()

    def _one(self, node: _Working) -> None:
        if isinstance(node.does, FlowSource):
            self._give(node, node.left.popleft())
        elif isinstance(node.does, Target):
            (queue,) = node.inputs
            pack = queue.packs.popleft()
            node.rows_in += pack.rows
            node.rows_out += pack.rows
            pack.frame.write.mode("append").parquet(str(self.folder / node.does.table))
            self.queries += 1
            pack.wanted_by += len(node.outputs)
            self._put(node, pack)
            pack.taken()
        elif self._collects(node):
            self._collect(node)
        else:
            queue = max(node.inputs[:1] if isinstance(node.does, Lookup) else node.inputs, key=lambda each: each.rows)
            pack = queue.packs.popleft()
            node.rows_in += pack.rows
            frames: tuple[DataFrame, ...] = (pack.frame,)
            if isinstance(node.does, Lookup):
                frames = (pack.frame, self._stored_frame(node, 1))
            self._give(node, realise(node.does, Inputs(frames, self._nothing_loaded)))
            pack.taken()

    def _collect(self, node: _Working) -> None:
        assert isinstance(node.does, Activity)
        for number, queue in enumerate(node.inputs):
            while queue.packs:
                pack = queue.packs.popleft()
                if not (isinstance(node.does, Lookup) and number):  # what a reference holds does not come in
                    node.rows_in += pack.rows
                kept = Pack(pack.frame.localCheckpoint(True, StorageLevel.DISK_ONLY), pack.rows, 1)
                self.queries += 1
                node.stored.setdefault(str(number), []).append(kept)
                pack.taken()
        if isinstance(node.does, Lookup):
            if self.nodes[node.inputs[1].provider].finished and (early := node.stored.pop("0", None)):
                # Rows that came before the reference was complete go first.
                node.inputs[0].packs.extendleft(reversed(early))
                node.rows_in -= sum(pack.rows for pack in early)
            return
        if self._ended(node):
            frames = tuple(self._stored_frame(node, number) for number in range(len(node.inputs)))
            self._give(node, realise(node.does, Inputs(frames, self._nothing_loaded)))
            node.stored = {}
            node.finished = True

    def _stored_frame(self, node: _Working, number: int) -> DataFrame:
        packs = node.stored.get(str(number), [])
        if packs:
            return reduce(DataFrame.unionAll, (pack.frame for pack in packs))
        columns = self.flow.columns(node.inputs[number].provider)
        assert columns is not None
        return self.session.createDataFrame([], struct_of(columns))

    def _nothing_loaded(self, table: str, columns: Schema) -> DataFrame:
        return read_files(self.session, (), columns, 0)

    def _give(self, node: _Working, rows: DataFrame) -> None:
        kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        count = kept.count()
        self.queries += 1
        if isinstance(node.does, FlowSource):
            node.rows_in += count
        node.rows_out += count
        if not count or not node.outputs:
            kept.unpersist()
            return
        self._put(node, Pack(kept, count, len(node.outputs)))

    def _put(self, node: _Working, pack: Pack) -> None:
        for queue in node.outputs:
            queue.packs.append(pack)
            self.fullest = max(self.fullest, len(queue.packs) if queue.limit < float("inf") else 0)

    def _close(self) -> None:
        """Who has nothing left to do, and nothing to come, is finished."""
        for node in self.nodes.values():
            if node.finished:
                continue
            if isinstance(node.does, FlowSource):
                node.finished = not node.left
            elif self._ended(node):
                # One that needs everything first has still to give what it made of it.
                node.finished = not (isinstance(node.does, Activity) and self._collects(node))

    def _count(self) -> None:
        now = perf_counter()
        packs = sum(len(queue.packs) for queue in self.queues)
        self.area += packs * (now - self._at)
        self._at = now
        self.most = max(self.most, packs)
