"""Requests of users: partitions to be made again, merged with whatever else wants them, and followed to their end.

A request adds needs, nothing more; so it merges with every other reason to make the same partitions:

* with queued work, because needs of one partition are one need;
* with a running job of a view that makes the partition anew anyway, which then is for this request, too;
* with all that comes to the same partitions further down: a table waits for what had come when it was first told of a
  change (see `in_flight`), whether that was asked for, is a file, or both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.model.grain import WHOLE
from penstock.model.partitions import EMPTY, EVERYTHING, Interval, PartitionSet
from penstock.requests.job import Job
from penstock.requests.ledger import Ledger, UserRequest
from penstock.requests.needs import Need, Piece, asked, partitions_of
from penstock.requests.tablestate import TableState

# Finished requests that are remembered, so that people see what became of them.
REMEMBERED = 50


class Backfills:
    """Begins, cancels and finishes the requests in a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        # Requests that may be forgotten when others have come to their end.
        self.ended: deque[int] = deque()

    def wanted(self, state: TableState, ranges: PartitionSet) -> PartitionSet:
        """The partitions that a request for some stretch of time is about."""
        if not state.exists:
            return EMPTY
        if state.table.grain is WHOLE or not self.ledger.graph.has_time[state.table.name]:
            return EVERYTHING
        return ranges.hull(state.table.grain) & self.ledger.extent(state)

    def ask(self, request: UserRequest, ranges: Sequence[Interval]) -> None:
        """Take up a request for some stretches of time."""
        state = self.ledger.tables.get(request.table)
        if state is not None and state.table.leader is not None:
            state = self.ledger.tables[state.table.leader]  # whose jobs make this table, too
            request.table = state.table.name
        self.ledger.requests[request.number] = request
        if state is not None:
            request.wanted = self.wanted(state, PartitionSet.of(*ranges))
        if state is None or not request.wanted:
            self._finish(request, request.at_us)
            return
        rest = request.wanted - self.join_running(state, request.wanted, request.number)
        if rest:
            self.ledger.reason(state, rest)
        else:
            state.counts.requests += 1
            state.counts.merged += 1
            state.counts.joined += 1
        if rest:
            self.ledger.require(state, rest, asked(request.at_us, request.number))
        request.open.add(request.table)
        if state.failed or state.retry_at_us is not None:
            state.try_anew()  # a newer request takes the place of the one that failed
        self.ledger.touched.add(request.table)

    def join_running(self, state: TableState, wanted: PartitionSet, number: int) -> PartitionSet:
        """What of a request a running job does anyway: partitions that it makes from nothing, with the logic of now. Not
        in a base table: its files have no versions, and what the user knows of them the job may have read before."""
        running = state.running
        if running is None or state.redefined or running.job.kind != "derive" or not self.may_join(state, number):
            return EMPTY
        joined = EMPTY
        pieces: list[Piece] = []
        for piece in running.job.pieces:
            here = PartitionSet(((piece.start_us, piece.end_us),))
            met = EMPTY if piece.need.append else here & wanted
            joined |= met
            pieces += [Piece(start, end, piece.need) for start, end in here - met]
            for start, end in met:
                numbers = tuple(sorted({*piece.need.requests, number}))
                newest_us = max(
                    piece.need.newest_us, self.ledger.requests[number].at_us if number in self.ledger.requests else 0
                )
                also = replace(piece.need, requests=numbers, upto_us=newest_us)
                pieces.append(Piece(start, end, also))
        if joined:
            pieces.sort(key=lambda piece: piece.start_us)
            running.job = replace(running.job, pieces=tuple(pieces))
        return joined

    def may_join(self, state: TableState, number: int) -> bool:
        """Of a table that reads itself, what follows from other partitions that are asked for is made after those."""
        request, running = self.ledger.requests.get(number), state.running
        if request is None or running is None or state.table.name not in self.ledger.graph.chained:
            return True
        return not request.wanted - partitions_of(running.job.pieces)

    def cancel(self, number: int, at_us: int) -> None:
        request = self.ledger.requests.get(number)
        if request is None or request.finished_us is not None:
            return
        request.cancelled_us = at_us
        for name in sorted(request.open):
            state = self.ledger.tables.get(name)
            if state is not None:
                self._drop(state, request)
                if not state.needs and not state.files:
                    state.amount = 0.0
                self.settle_work(state, [request.number], at_us)
                self.ledger.touched.add(name)
        if request.finished_us is None:
            self.settle_all(at_us)

    def _drop(self, state: TableState, request: UserRequest) -> None:
        """What was only asked for need not be done. What has changed must be, but no longer for this request."""
        for start, end, need in list(state.needs.pieces()):
            if request.number not in need.requests:
                continue
            where = PartitionSet(((start, end),))
            state.needs.remove(where)
            others = tuple(number for number in need.requests if number != request.number)
            if need.changed or others:
                state.needs.add(where, replace(need, requests=others))
            if state.table.name == request.table:
                request.dropped |= where

    def still_wanted(self, need: Need) -> Need | None:
        """What is left of a need whose job did not finish, if requests behind it were cancelled meanwhile."""
        known = self.ledger.requests
        kept = tuple(n for n in need.requests if n not in known or known[n].cancelled_us is None)
        if kept == need.requests:
            return need
        return replace(need, requests=kept) if need.changed or kept else None

    def count_made(self, state: TableState, job: Job, at_us: int) -> None:
        """Account for a finished job."""
        grain = state.table.grain
        served: set[int] = set()
        for piece in job.pieces:
            for number in piece.need.requests:
                request = self.ledger.requests.get(number)
                if request is not None:
                    served.add(number)
                    made = request.made.get(state.table.name, 0)
                    request.made[state.table.name] = made + grain.count(piece.start_us, piece.end_us)
        for number in served:
            self.ledger.requests[number].updates += 1
        self.settle_work(state, served, at_us)

    def settle_work(self, state: TableState, numbers: Iterable[int], at_us: int) -> None:
        """Which of these requests a table has nothing more to do for; and which of them have come to their end by that."""
        works = {number for _, _, need in state.needs.pieces() for number in need.requests}
        if state.running is not None:
            works.update(number for piece in state.running.job.pieces for number in piece.need.requests)
        for number in sorted(set(numbers) - works):
            request = self.ledger.requests.get(number)
            if request is not None and request.finished_us is None:
                request.open.discard(state.table.name)
                if not request.open:
                    self._finish(request, at_us)

    def settle_all(self, at_us: int) -> None:
        """Which requests have come to their end."""
        for request in [request for request in self.ledger.requests.values() if request.finished_us is None]:
            request.open = {name for name in request.open if self._works_for(name, request.number)}
            if not request.open:
                self._finish(request, at_us)

    def _works_for(self, name: str, number: int) -> bool:
        state = self.ledger.tables.get(name)
        if state is None:
            return False
        if state.running is not None and any(number in piece.need.requests for piece in state.running.job.pieces):
            return True
        return any(number in need.requests for _, _, need in state.needs.pieces())

    def _finish(self, request: UserRequest, at_us: int) -> None:
        request.finished_us = at_us
        request.open = set()
        if request.held:
            return
        self.ended.append(request.number)
        while len(self.ended) > REMEMBERED:
            del self.ledger.requests[self.ended.popleft()]
