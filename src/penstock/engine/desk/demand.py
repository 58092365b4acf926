"""What queries want refreshed goes into the log: which partitions, and until when."""

from __future__ import annotations

from collections.abc import Callable

from penstock.control.events import RefreshRequested
from penstock.control.query_inputs import made_by
from penstock.engine.desk.known import KnownState
from penstock.engine.desk.ticket import Asked
from penstock.model.time import SECOND_US
from penstock.queries.chain import RefreshStep
from penstock.queries.choice import Choice, Option
from penstock.store.store import Store


class Refreshing:
    def __init__(self, store: Store, known: KnownState, wake: Callable[[], None]) -> None:
        self._store = store
        self._known = known
        # Tells the process that keeps the tables fresh that the log has something for it.
        self._wake = wake

    def request(self, asked: Asked, steps: tuple[RefreshStep, ...], until_us: int, now_us: int) -> None:
        """Unless somebody needs them as soon already."""
        with self._known.lock:
            state = self._known.now()
            awaited = state.awaited
            if not any(
                step.table not in awaited
                or not step.partitions <= awaited.partitions(step.table)
                or (awaited.until(step.table, step.partitions) or until_us + 1) > until_us
                for step in steps
            ):
                return
            wanted = tuple((made_by(state, step.table).table.name, step.partitions.intervals) for step in steps)
            with self._store.write() as conn:
                self._store.append(conn, [RefreshRequested(now_us, asked.id, wanted, until_us)])
            self._known.now(0.0)
        self._wake()

    def hurry(
        self, asked: Asked, choice: Choice, options: list[Option], steps: tuple[RefreshStep, ...], now_us: int
    ) -> None:
        """Too late for this query; but what is asked for and stale comes before what nobody asks for, and after what is waited for."""
        if not steps or (choice.prospect is not None and choice.prospect.success >= 0.5):
            return
        refresh_us = int(options[-1].wait.mean_s * SECOND_US)
        self.request(asked, steps, max(asked.deadline_us, now_us + 2 * refresh_us), now_us)
