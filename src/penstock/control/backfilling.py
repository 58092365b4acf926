"""Requests of users: partitions to be made again, merged with whatever else wants them, and followed to their end.

A request adds needs, nothing more; so it merges with every other reason to make the same partitions:

* with queued work, because needs of one partition are one need;
* with a running job of a view that makes the partition anew anyway, which then is for this request, too;
* with all that comes to the same partitions further down: a table waits for what had come when it was first told of a
  change (see `settling`), whether that was asked for, is a file, or both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.control.events import BackfillRequested, Job, RequestCancelled
from penstock.control.propagation import Propagation
from penstock.control.request import REMEMBERED, Request
from penstock.control.tablestate import TableState
from penstock.model.grain import WHOLE
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.requests.needs import Need, Piece, asked, partitions_of


class Backfilling(Propagation):
    # What is asked for

    def wanted(self, state: TableState, ranges: PartitionSet) -> PartitionSet:
        """The partitions that a request for some stretch of time is about."""
        if not state.exists:
            return EMPTY
        if state.table.grain is WHOLE or not self.graph.has_time[state.table.name]:
            return EVERYTHING
        return ranges.hull(state.table.grain) & self.extent(state)

    def _backfill_requested(self, event: BackfillRequested) -> None:
        state = self.tables.get(event.table)
        if state is not None and state.table.leader is not None:
            state = self.tables[state.table.leader]  # whose jobs make this table, too
        name = event.table if state is None else state.table.name
        wanted = self.wanted(state, PartitionSet.of(*event.ranges)) if state is not None else EMPTY
        request = Request(
            self.number,
            event.at_us,
            name,
            wanted,
            reason=event.reason,
            downstream=event.downstream,
            deadline_us=event.deadline_us,
        )
        self.requests[self.number] = request
        if state is None or not wanted:
            self._finish(request, event.at_us)
            return
        rest = wanted - self.join_running(state, wanted, self.number)
        self.reason(state, rest)
        if rest:
            self.require(state, rest, asked(event.at_us, self.number))
            state.amount += event.size_bytes
        request.open.add(name)
        if state.failed or state.retry_at_us is not None:
            # A newer request takes the place of the one that failed.
            state.failed, state.attempt, state.retry_at_us = False, 0, None
        self.touched.add(name)

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
                newest_us = max(piece.need.newest_us, self.requests[number].at_us if number in self.requests else 0)
                also = replace(piece.need, requests=numbers, upto_us=newest_us)
                pieces.append(Piece(start, end, also))
        if joined:
            pieces.sort(key=lambda piece: piece.start_us)
            running.job = replace(running.job, pieces=tuple(pieces))
        return joined

    def may_join(self, state: TableState, number: int) -> bool:
        """Of a table that reads itself, what follows from other partitions that are asked for is made after those."""
        request, running = self.requests.get(number), state.running
        if request is None or running is None or state.table.name not in self.graph.chained:
            return True
        return not request.wanted - partitions_of(running.job.pieces)

    # What is taken back

    def _request_cancelled(self, event: RequestCancelled) -> None:
        request = self.requests.get(event.request)
        if request is None or request.finished_us is not None:
            return
        request.cancelled_us = event.at_us
        for name in sorted(request.open):
            state = self.tables.get(name)
            if state is not None:
                self._drop(state, request)
                if not state.needs and not state.files:
                    state.amount = 0.0
                self._settle_work(state, [request.number], event.at_us)
                self.touched.add(name)
        if request.finished_us is None:
            self._settle_requests(event.at_us)

    def _drop(self, state: TableState, request: Request) -> None:
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
        known = self.requests
        kept = tuple(n for n in need.requests if n not in known or known[n].cancelled_us is None)
        if kept == need.requests:
            return need
        return replace(need, requests=kept) if need.changed or kept else None

    # How far they are

    def _made_for_requests(self, state: TableState, job: Job, at_us: int) -> None:
        """Account for a finished job."""
        grain = state.table.grain
        served: set[int] = set()
        for piece in job.pieces:
            for number in piece.need.requests:
                request = self.requests.get(number)
                if request is not None:
                    served.add(number)
                    made = request.made.get(state.table.name, 0)
                    request.made[state.table.name] = made + grain.count(piece.start_us, piece.end_us)
        for number in served:
            self.requests[number].updates += 1
        self._settle_work(state, served, at_us)

    def _settle_work(self, state: TableState, numbers: Iterable[int], at_us: int) -> None:
        """Which of these requests a table has nothing more to do for; and which of them have come to their end by that."""
        works = {number for _, _, need in state.needs.pieces() for number in need.requests}
        if state.running is not None:
            works.update(number for piece in state.running.job.pieces for number in piece.need.requests)
        for number in sorted(set(numbers) - works):
            request = self.requests.get(number)
            if request is not None and request.finished_us is None:
                request.open.discard(state.table.name)
                if not request.open:
                    self._finish(request, at_us)

    def _settle_requests(self, at_us: int) -> None:
        """Which requests have come to their end."""
        for request in [request for request in self.requests.values() if request.finished_us is None]:
            request.open = {name for name in request.open if self._works_for(name, request.number)}
            if not request.open:
                self._finish(request, at_us)

    def _works_for(self, name: str, number: int) -> bool:
        state = self.tables.get(name)
        if state is None:
            return False
        if state.running is not None and any(number in piece.need.requests for piece in state.running.job.pieces):
            return True
        return any(number in need.requests for _, _, need in state.needs.pieces())

    def _finish(self, request: Request, at_us: int) -> None:
        request.finished_us = at_us
        request.open = set()
        if request.held:
            return
        self.ended.append(request.number)
        while len(self.ended) > REMEMBERED:
            del self.requests[self.ended.popleft()]
