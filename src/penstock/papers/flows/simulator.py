"""Runs a flow of row packs under an operator policy, on one or several processors.

The scheduler of Karagiannis et al. (2013), Sec. 3.1: the policy names an operator, which works pack by pack until its
time slot is over, its input is empty, or a consumer's queue is full. Memory is what lies in the queues.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from penstock.flows.graph import FlowError, FlowGraph
from penstock.papers.flows.operators import Machine, Queue, RunningOperator, operators_of
from penstock.papers.flows.policies import Operator, OperatorPolicy


@dataclass(frozen=True)
class FlowOutcome:
    time_s: float
    average_packs: float  # in the queues, over time
    maximum_packs: float
    calls: int  # of the scheduler
    idle_calls: int  # of these, of an operator that could not run
    rows_in: dict[str, int]
    rows_out: dict[str, int]  # to each consumer
    fullest_queue_packs: float


class _Run:
    def __init__(self, graph: FlowGraph, policy: OperatorPolicy, machine: Machine) -> None:
        self.policy, self.machine = policy.for_flow(graph), machine
        self.operators = operators_of(graph, machine, self.policy.staged_edges())
        self.by_name = {operator.name: operator for operator in self.operators}
        self.queues: list[Queue] = [
            queue for operator in self.operators for queue in operator.inputs if not queue.stored
        ]
        self.now_us = 0.0
        self.queued = self.most = 0
        self.area = 0.0
        self.fullest = 0
        self.calls = self.idle_calls = 0
        self.last: str | None = None

    def pass_time(self, now_us: float) -> None:
        self.area += self.queued * (now_us - self.now_us)
        self.now_us = now_us

    def count(self, operator: RunningOperator) -> None:
        """What lies in the queues, after an operator took or gave."""
        self.queued = sum(queue.rows for queue in self.queues)
        self.most = max(self.most, self.queued)
        for queue in operator.outputs:
            if not queue.stored and queue.rows > self.fullest:
                self.fullest = queue.rows

    def choose(self) -> RunningOperator | None:
        views = [
            Operator(
                operator.name,
                operator.queue_rows,
                operator.can_run,
                operator.rows_in,
                operator.rows_out,
                operator.busy_us,
                operator.running,
            )
            for operator in self.operators
            if not operator.finished
        ]
        name = self.policy.choose(views, self.last) if views else None
        if name is None:
            return None
        self.last = name
        self.calls += 1
        return self.by_name[name]

    def run(self) -> None:
        """Events are ends: of a call of the scheduler, or of work on a pack."""
        number = 0
        # When, the operator (None: one that could not run), until when its slot lasts, and whether it worked.
        events: list[tuple[float, int, RunningOperator | None, float, bool]] = []
        idle = self.machine.processors
        while True:
            while idle and (chosen := self.choose()) is not None:
                begins = self.now_us + self.machine.switch_us
                slot = self.policy.slot_us(chosen.name)
                until = float("inf") if slot is None else begins + slot
                able = chosen.can_run
                chosen.running = chosen.running or able
                self.idle_calls += not able
                heappush(events, (begins, number, chosen if able else None, until, False))
                number += 1
                idle -= 1
            if not events:
                break
            now_us, _, operator, until, worked = heappop(events)
            self.pass_time(now_us)
            if operator is None:
                idle += 1
                continue
            if worked:
                operator.give()
                self.count(operator)
            operator.running = False
            self.close_behind(operator)
            if operator.can_run and now_us < until:
                operator.running = True
                took_us = operator.take()
                operator.busy_us += took_us
                self.count(operator)
                heappush(events, (now_us + took_us, number, operator, until, True))
                number += 1
            else:
                idle += 1
        stuck = [operator.name for operator in self.operators if not operator.finished]
        if stuck:
            raise FlowError(f"{self.policy.name} left rows in the queues of {', '.join(stuck)}: it chose nobody to run")

    def close_behind(self, operator: RunningOperator) -> None:
        ended = [operator]
        while ended:
            one = ended.pop()
            if one.finished:
                for consumer in one.consumers:
                    if not consumer.finished:
                        consumer.close()
                        ended.append(consumer)


def simulate_flow(graph: FlowGraph, policy: OperatorPolicy, machine: Machine = Machine()) -> FlowOutcome:
    run = _Run(graph, policy, machine)
    run.run()
    packs = float(machine.pack_rows)
    return FlowOutcome(
        run.now_us / 1e6,
        run.area / run.now_us / packs if run.now_us else 0.0,
        run.most / packs,
        run.calls,
        run.idle_calls,
        {operator.name: operator.rows_in for operator in run.operators},
        {operator.name: operator.made for operator in run.operators},
        run.fullest / packs,
    )
