"""In which order to make things so that little is held at once.

A task holds the bytes of what it makes from its start until the last task that reads it has ended. Karagiannis et al.
(2013) run strata one after the other; this finds orders that hold less. Finding the least is the pebbling problem (hard),
so: exactly by search over what is done (the downsets) where that is small; else the best of a narrow search, of greedy by
the paper's consumption rate, and of strata.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.flows.graph import FlowError

# Searching for the order of tasks that holds the least at once. Tasks are numbers; a state is the set that is done.
#
# Three facts keep the search small:
# * a task that holds nothing of its own can only free, so it runs as soon as it can;
# * so does a task that frees at least what it takes and does not raise the peak (what a task frees can only grow while
#   others are done before it, so nothing is gained by waiting);
# * a state whose peak is not below that of the best order known leads nowhere.


class PartialOrder(NamedTuple):
    peak: float
    live: float
    done: int  # a bit for each task
    path: tuple[int, ...]
    ready: tuple[int, ...]  # tasks that could be next; all of them hold something


class Search:
    def __init__(
        self, needs: Sequence[Sequence[int]], readers: Sequence[Sequence[int]], bytes_: Sequence[float]
    ) -> None:
        self.needs, self.readers, self.bytes = needs, readers, bytes_
        self.everything = (1 << len(bytes_)) - 1
        self.need_mask = [sum(1 << need for need in some) for some in needs]
        self.reader_mask = [sum(1 << reader for reader in some) for some in readers]
        # When a task is done, others that read the same may have become free of charge.
        self.beside = [tuple({r for need in some for r in readers[need]}) for some in needs]
        self.tried = 0
        first = tuple(n for n, some in enumerate(needs) if not some)
        self.start = self._settled(0.0, 0.0, 0, (), first, list(first))

    def best_first(self, below: float, effort: int) -> tuple[PartialOrder | None, bool]:
        """The order with the least peak, if it is below a given one; and whether the search came to its end."""
        end = self.tried + effort
        heap = [(0.0, 0, 0, self.start)]
        lowest = {self.start.done: 0.0}
        count = 0
        while heap:
            *_, state = heapq.heappop(heap)
            if state.done == self.everything:
                return state, True
            if lowest[state.done] < state.peak:
                continue
            if self.tried > end:
                return None, False
            for following in self._after(state, below):
                if following.peak < lowest.get(following.done, below):
                    lowest[following.done] = following.peak
                    count += 1
                    heapq.heappush(heap, (following.peak, -len(following.path), count, following))
        return None, True

    def beam(self, below: float, effort: int) -> PartialOrder | None:
        """Layer by layer only the states that hold the least; no proof, but little work."""
        layers = 1 + sum(1 for held in self.bytes if held)
        width = max(2, effort // (6 * layers))
        layer = [self.start]
        end = self.tried + 2 * effort
        while layer and self.tried <= end:
            found: dict[int, PartialOrder] = {}
            for state in layer:
                if state.done == self.everything:
                    return state
                for following in self._after(state, below):
                    if following.done not in found or following.peak < found[following.done].peak:
                        found[following.done] = following
            layer = heapq.nsmallest(width, found.values(), key=lambda state: (state.live, state.peak))
        return None

    def _after(self, state: PartialOrder, below: float) -> list[PartialOrder]:
        found = []
        for n in state.ready:
            peak = max(state.peak, state.live + self.bytes[n])
            if peak < below:
                now, freed = self._done(state.done, n)
                ready = tuple(other for other in state.ready if other != n)
                look = [*self.readers[n], *self.beside[n]]
                found.append(self._settled(peak, state.live - freed, now, (*state.path, n), ready, look))
        return found

    def _done(self, done: int, n: int) -> tuple[int, float]:
        """Done with one more, and how much less is then held (less than nothing: more)."""
        self.tried += 1
        now = done | 1 << n
        freed = -self.bytes[n] if self.reader_mask[n] & ~now else 0.0
        for need in self.needs[n]:
            if not self.reader_mask[need] & ~now:
                freed += self.bytes[need]
        return now, freed

    def _settled(
        self, peak: float, live: float, done: int, path: tuple[int, ...], ready: tuple[int, ...], look: list[int]
    ) -> PartialOrder:
        """Everything near that can run without a loss has run."""
        waiting = dict.fromkeys(ready)
        while look:
            n = look.pop()
            if done >> n & 1 or self.need_mask[n] & ~done:
                continue
            now, freed = self._done(done, n)
            if not self.bytes[n] or (freed >= 0 and live + self.bytes[n] <= peak):
                waiting.pop(n, None)
                done, live, path = now, live - freed, (*path, n)
                look += self.readers[n]
                look += self.beside[n]
            else:
                waiting[n] = None
        return PartialOrder(peak, live, done, path, tuple(waiting))


SEARCH_EFFORT = 4_000  # so many steps are tried before the best order so far is taken
GREEDY_CHOICES = 24  # so many of the tasks that could be next are weighed, the latest first


@dataclass(frozen=True)
class OrderedTask:
    name: str
    needs: tuple[str, ...]  # tasks whose result it reads
    bytes_: float = 0.0  # held for its result
    cost_us: float = 1.0


@dataclass(frozen=True)
class RunOrder:
    names: tuple[str, ...]
    peak_bytes: float
    exact: bool  # whether no order has a lower peak


def least_peak_order(tasks: Sequence[OrderedTask], effort: int = SEARCH_EFFORT) -> RunOrder:
    """The order with the least peak if so much search finds it, else the best of several."""
    problem = _Problem(tasks)
    orders = [problem.greedy(), strata_order(tasks)]
    best = min((problem.measured(names) for names in orders), key=lambda order: order.peak_bytes)
    if best.peak_bytes <= problem.floor:
        return RunOrder(best.names, best.peak_bytes, True)
    search = Search(problem.needs, problem.readers, problem.bytes)
    narrow = search.beam(best.peak_bytes, effort // 2) if effort else None
    if narrow is not None:
        best = RunOrder(problem.names(narrow.path), narrow.peak, narrow.peak <= problem.floor)
    if best.exact:
        return best
    found, ended = search.best_first(best.peak_bytes, effort)
    if found is not None:
        best = RunOrder(problem.names(found.path), found.peak, True)
    return RunOrder(best.names, best.peak_bytes, ended)


def strata_order(tasks: Sequence[OrderedTask]) -> tuple[str, ...]:
    """The paper's: every task one stratum after the last that it reads, strata in turn."""
    level = _levels(tasks)
    return tuple(sorted(level, key=level.__getitem__))


def _levels(tasks: Sequence[OrderedTask]) -> dict[str, int]:
    level: dict[str, int] = {}
    for task in tasks:  # given providers first
        level[task.name] = 1 + max((level[need] for need in task.needs), default=-1)
    return level


def _listed(tasks: Sequence[OrderedTask], key: Callable[[OrderedTask, int], tuple[float, int]]) -> tuple[str, ...]:
    """One after the other what comes first by a key of those that can run; the key knows how many could before it."""
    problem = _Problem(tasks)
    waiting = [len(needs) for needs in problem.needs]
    ready: list[tuple[tuple[float, int], int]] = []
    seen = 0

    def add(n: int) -> None:
        nonlocal seen
        heapq.heappush(ready, (key(tasks[n], seen), n))
        seen += 1

    for n, count in enumerate(waiting):
        if not count:
            add(n)
    order: list[str] = []
    while ready:
        _, n = heapq.heappop(ready)
        order.append(tasks[n].name)
        for reader in problem.readers[n]:
            waiting[reader] -= 1
            if not waiting[reader]:
                add(reader)
    return tuple(order)


def round_robin_order(tasks: Sequence[OrderedTask]) -> tuple[str, ...]:
    """Each in turn, as it can run."""
    return _listed(tasks, lambda task, seen: (0.0, seen))


def minimum_cost_order(tasks: Sequence[OrderedTask]) -> tuple[str, ...]:
    """The one with the most work waiting for it."""
    return _listed(tasks, lambda task, seen: (-task.cost_us, seen))


def strata_peak(tasks: Sequence[OrderedTask]) -> float:
    """What is held at the most when all tasks of a stratum run at once, and are let go together at its end."""
    level = _levels(tasks)
    until = dict(level)
    for task in tasks:
        for need in task.needs:
            until[need] = max(until[need], level[task.name])
    held = [0.0] * (1 + max(level.values(), default=0))
    for task in tasks:
        for stratum in range(level[task.name], until[task.name] + 1):
            held[stratum] += task.bytes_
    return max(held)


def greedy_order(tasks: Sequence[OrderedTask]) -> tuple[str, ...]:
    """Next is what frees the most per time, together with all that can then run without holding anything."""
    return _Problem(tasks).greedy()


# The operator policies at the level of subflows.
POLICY_ORDERS: dict[str, Callable[[Sequence[OrderedTask]], tuple[str, ...]]] = {
    "round-robin": round_robin_order,
    "minimum-cost": minimum_cost_order,
    "minimum-memory": greedy_order,
    "mixed": strata_order,
}
LEAST_PEAK = "least-peak"
ORDERS = (LEAST_PEAK, *POLICY_ORDERS)


def ordered(tasks: Sequence[OrderedTask], order: str = LEAST_PEAK, effort: int = SEARCH_EFFORT) -> RunOrder:
    if order == LEAST_PEAK:
        return least_peak_order(tasks, effort)
    if order not in POLICY_ORDERS:
        raise FlowError(f"there is no order of steps {order!r}; known are {', '.join(ORDERS)}")
    return measured(tasks, POLICY_ORDERS[order](tasks))


def peak_of(tasks: Sequence[OrderedTask], names: Sequence[str]) -> float:
    """What is held at the most when tasks run one after the other in this order."""
    return measured(tasks, names).peak_bytes


def measured(tasks: Sequence[OrderedTask], names: Sequence[str]) -> RunOrder:
    return _Problem(tasks).measured(names)


def held_at_peak(tasks: Sequence[OrderedTask], names: Sequence[str]) -> dict[str, float]:
    """What is held when most is held, in this order."""
    problem = _Problem(tasks)
    left = [len(readers) for readers in problem.readers]
    held: dict[str, float] = {}
    most: dict[str, float] = {}
    live = peak = 0.0
    for name in names:
        n = problem.number[name]
        if problem.bytes[n]:
            held[name] = problem.bytes[n]
            live += problem.bytes[n]
            if live > peak:
                peak, most = live, dict(held)
        for need in problem.needs[n]:
            left[need] -= 1
        for done in (n, *problem.needs[n]):
            if not left[done]:
                live -= held.pop(tasks[done].name, 0.0)
    return most


class _Problem:
    """Tasks by number, given providers first."""

    def __init__(self, tasks: Sequence[OrderedTask]) -> None:
        self.tasks = tasks
        self.number = {task.name: n for n, task in enumerate(tasks)}
        self.needs = [tuple(self.number[need] for need in task.needs) for task in tasks]
        self.readers: list[list[int]] = [[] for _ in tasks]
        for n, needs in enumerate(self.needs):
            for need in needs:
                self.readers[need].append(n)
        self.bytes = [task.bytes_ for task in tasks]
        # Any order holds, at some time, a task's own result beside all that it reads.
        self.floor = max(
            (self.bytes[n] + sum(self.bytes[need] for need in self.needs[n]) for n in range(len(tasks))), default=0.0
        )

    def names(self, path: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.tasks[n].name for n in path)

    def measured(self, names: Sequence[str]) -> RunOrder:
        left = [len(readers) for readers in self.readers]
        live = peak = 0.0
        for name in names:
            n = self.number[name]
            live += self.bytes[n]
            peak = max(peak, live)
            live -= self._freed(n, left)
        return RunOrder(tuple(names), peak, False)

    def _freed(self, n: int, left: list[int]) -> float:
        """What is let go when a task ends; counts down the readers that are left."""
        freed = 0.0 if self.readers[n] else self.bytes[n]
        for need in self.needs[n]:
            left[need] -= 1
            if not left[need]:
                freed += self.bytes[need]
        return freed

    # Greedy

    def greedy(self) -> tuple[str, ...]:
        waiting = [len(needs) for needs in self.needs]
        left = [len(readers) for readers in self.readers]
        ready = [n for n in reversed(range(len(self.tasks))) if not waiting[n]]
        order: list[int] = []

        def run(n: int) -> None:
            free = [n]
            while free:
                done = free.pop()
                order.append(done)
                self._freed(done, left)
                for reader in self.readers[done]:
                    waiting[reader] -= 1
                    if not waiting[reader]:
                        (ready if self.bytes[reader] else free).append(reader)

        for n in [n for n in ready if not self.bytes[n]]:
            ready.remove(n)
            run(n)
        while ready:
            some = range(max(0, len(ready) - GREEDY_CHOICES), len(ready))
            at = max(some, key=lambda at: (*self._rate(ready[at], waiting, left), at))
            run(ready.pop(at))
        return self.names(order)

    def _rate(self, n: int, waiting: list[int], left: list[int]) -> tuple[float, float]:
        """The consumption rate of a task and of what follows at once: bytes let go less bytes taken, over time. Where
        nothing is gained it is better to take little."""
        net, cost = -self.bytes[n], self.tasks[n].cost_us
        read = dict.fromkeys(self.needs[n], 1)
        for reader in self.readers[n]:
            if waiting[reader] == 1 and not self.bytes[reader]:
                cost += self.tasks[reader].cost_us
                for need in self.needs[reader]:
                    read[need] = read.get(need, 0) + 1
        if not self.readers[n]:
            net += self.bytes[n]
        net += sum(self.bytes[need] for need, count in read.items() if left[need] == count)
        return (net / max(cost, 1e-9) if net > 0 else 0.0), net
