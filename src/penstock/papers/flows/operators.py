"""The operators of a simulated flow and the queues between them.

Rows are counted, not computed. An operator takes a pack from its longest queue; what it makes of it waits inside until
it fills a pack, and goes to all consumers together, or to none while one of their queues is full. So nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.flows.graph import FlowGraph, Node, NodeKind


@dataclass(frozen=True)
class Machine:
    """What the flow runs on. Packs, queues and slots as in Table 3 of the paper; the rest is not stated there."""

    processors: int = 1
    pack_rows: int = 400
    queue_packs: int = 100
    switch_us: float = 4_000.0  # each call of the scheduler; the paper's threads sleep 4 ms
    work_factor: float = 10.0  # how much slower than the costs of the graph
    emit_us_per_row: float = 0.1  # to give out what a blocking activity has collected
    store_us_per_row: float = 0.5  # to write rows between subflows and to read them again


class Queue:
    """Rows on the way from one operator to another."""

    __slots__ = ("limit", "received", "rows", "sent", "store_us", "stored")

    def __init__(self, limit: float, stored: bool, store_us: float) -> None:
        self.limit, self.stored, self.store_us = limit, stored, store_us
        self.rows = self.sent = self.received = 0


class RunningOperator:
    """One node at work."""

    __slots__ = (
        "busy_us",
        "collects",
        "consumers",
        "cost_us",
        "emit_us",
        "finished",
        "inputs",
        "kept",
        "left",
        "made",
        "name",
        "node",
        "outputs",
        "pack",
        "providers",
        "rows_in",
        "rows_out",
        "running",
    )

    def __init__(self, node: Node, rows: int, machine: Machine) -> None:
        self.node, self.name = node, node.name
        self.inputs: list[Queue] = []
        self.outputs: list[Queue] = []
        self.providers: list[RunningOperator] = []
        self.consumers: list[RunningOperator] = []
        self.left = rows  # still to be read by a source
        self.made = 0  # all rows made of what came in, given out or kept
        self.kept = 0  # made, and not yet given out
        self.rows_in = self.rows_out = 0
        self.busy_us = 0.0
        self.finished = self.running = False
        self.pack = machine.pack_rows
        self.cost_us = node.cost_per_row_us * machine.work_factor
        self.emit_us = machine.emit_us_per_row * machine.work_factor if node.blocking else 0.0
        self.collects = node.blocking

    @property
    def input_ended(self) -> bool:
        return all(provider.finished for provider in self.providers) and not self.queue_rows

    @property
    def queue_rows(self) -> int:
        """Rows to take in. Of a source, that has no queue, at most a pack."""
        return sum(queue.rows for queue in self.inputs) if self.inputs else min(self.left, self.pack)

    @property
    def can_run(self) -> bool:
        if self.running or self.finished:
            return False
        if self.kept < self.pack and self.queue_rows:
            return self.collects or self.has_room(self.pack)
        ready = self.kept >= self.pack or (self.kept > 0 and self.input_ended)
        return ready and self.has_room(min(self.pack, self.kept))

    def has_room(self, rows: int) -> bool:
        """Whether all consumers' queues take so many rows."""
        return all(queue.rows + rows <= queue.limit for queue in self.outputs)

    def take(self) -> float:
        """Take in a pack if there is no full one to give out; how long it works."""
        if self.kept >= self.pack or not self.queue_rows:
            return min(self.kept, self.pack) * self.emit_us
        store_us = 0.0
        if self.inputs:
            queue = max(self.inputs, key=lambda queue: queue.rows)
            rows = min(self.pack, queue.rows)
            queue.rows -= rows
            queue.received += rows
            store_us = queue.store_us
        else:
            rows = min(self.pack, self.left)
            self.left -= rows
        self.rows_in += rows
        return rows * (self.cost_us + store_us)

    def give(self) -> None:
        """Give out full packs, and at the end the rest, as far as there is room."""
        ended = self.input_ended
        self._make(ended)
        while self.kept and (self.kept >= self.pack or ended) and self.has_room(min(self.pack, self.kept)):
            rows = min(self.pack, self.kept)
            for queue in self.outputs:
                queue.rows += rows
                queue.sent += rows
            self.rows_out += rows * len(self.outputs)
            self.kept -= rows
            if self.collects:
                break  # each pack takes its time
        self.finished = ended and not self.kept

    def close(self) -> None:
        """A provider has ended."""
        if not self.running and self.input_ended:
            self._make(True)
            self.finished = not self.kept

    def _make(self, ended: bool) -> None:
        if self.collects and not ended:
            return
        selectivity = self.node.selectivity if self.node.kind is NodeKind.ACTIVITY else 1.0
        made = round(self.rows_in * selectivity) if ended else int(self.rows_in * selectivity)
        self.kept += made - self.made
        self.made = made


def operators_of(graph: FlowGraph, machine: Machine, staged: frozenset[tuple[str, str]]) -> list[RunningOperator]:
    """In the order of their names, wired by queues."""
    found = {
        name: RunningOperator(graph[name], round(graph[name].rows) if name in graph.sources else 0, machine)
        for name in sorted(graph.by_name)
    }
    for provider, consumer in graph.edges:
        stored = (provider, consumer) in staged
        # Blocking activities and recordsets store their input anyway.
        extra = stored and not graph[consumer].blocking and graph[provider].kind is NodeKind.ACTIVITY
        queue = Queue(
            float("inf") if stored else machine.pack_rows * machine.queue_packs,
            stored,
            machine.store_us_per_row * machine.work_factor if extra else 0.0,
        )
        found[provider].outputs.append(queue)
        found[consumer].inputs.append(queue)
        found[consumer].providers.append(found[provider])
        found[provider].consumers.append(found[consumer])
    return list(found.values())
