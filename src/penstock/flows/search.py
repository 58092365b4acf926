"""Searching for the order of tasks that holds the least at once. Tasks are numbers; a state is the set that is done.

Three facts keep the search small:
* a task that holds nothing of its own can only free, so it runs as soon as it can;
* so does a task that frees at least what it takes and does not raise the peak (what a task frees can only grow while
  others are done before it, so nothing is gained by waiting);
* a state whose peak is not below that of the best order known leads nowhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple


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
