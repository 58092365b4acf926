"""Ways to run a project until it is idle: with Spark as users do, or with DuckDB in Spark's place, which takes a hundredth of
the time and knows only what both languages share."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import pytest

from penstock.app import Warehouse
from penstock.control.views.inputs import WaitingRows
from penstock.control.views.status import TableStatus, status
from penstock.declare.project import read_project
from penstock.declare.warehouse import load_warehouse
from penstock.engine.commands.feeds import give_back, withdraw
from penstock.engine.commands.requests import Requesting
from penstock.engine.declarations import restored_state
from penstock.engine.runtime import Pace
from penstock.engine.updates.times import waiting_rows
from penstock.engine.upkeep.verify import Verifier
from penstock.errors import PenstockError
from penstock.store.store import Store
from penstock.tables import Catalogue
from tests.engine import duckspark
from tests.engine.crashing import Crash, InlineRuntime, Points, Ticking, WatchedStore, without_spark

Backfills = Sequence[tuple[str, str | None]]
# ("withdraw" or "give back", the file)
Takings = Sequence[tuple[str, str]]


LONGEST_S = 300


class RefusedBackfill(Exception):
    pass


class NoRest(Exception):
    """It does not become idle."""


@dataclass(frozen=True)
class Ran:
    status: list[TableStatus]
    # The rows that are said to wait for other sources.
    waiting: Sequence[WaitingRows] = ()
    # What one query over all tables said: how many rows each has, up to when they are complete, whether they agree.
    answer: tuple[dict[str, int], int | None, bool] | None = None
    # What `penstock verify` finds wrong with the files.
    problems: Sequence[str] = ()


class Engine(Protocol):
    # Whether only plain things may be declared.
    plain: bool

    def run(
        self, folder: Path, backfills: Backfills, takings: Takings, kill_at: int | None, ask: bool = False
    ) -> Ran: ...


class OnSpark:
    plain = False

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def run(self, folder: Path, backfills: Backfills, takings: Takings, kill_at: int | None, ask: bool = False) -> Ran:
        with Warehouse(folder, spark=self.spark) as warehouse:
            for what, file in takings:
                (warehouse.withdraw if what == "withdraw" else warehouse.give_back)(file)
            for table, span in backfills:
                try:
                    warehouse.backfill(table, span)
                except PenstockError as error:
                    raise RefusedBackfill(f"{table} {span}: {error}") from error
            until = monotonic() + LONGEST_S

            def look(controller: Any) -> None:
                if monotonic() > until:
                    state = controller.state
                    doing = {
                        name: (t.error, list(t.files), list(t.needs.pieces()), t.running is not None)
                        for name, t in state.tables.items()
                    }
                    raise NoRest(f"still busy after {LONGEST_S} s: {doing}")

            warehouse.run(until_idle=True, on_round=look)
            status = warehouse.status()
            made = [row.table for row in status if row.updates and row.doing == "idle"]
            waiting = warehouse.waiting()
            problems = [str(problem) for problem in warehouse.verify().problems]
            if not ask or not made:
                return Ran(status, waiting, None, problems)
            counts = ", ".join(f"(SELECT count(*) FROM `{name}`) AS `{name}`" for name in made)
            answer = warehouse.query(f"SELECT {counts}")
            found = dict(zip(answer.columns, answer.rows[0], strict=True))
            return Ran(status, waiting, (found, answer.complete_us, answer.consistent), problems)


class OnDuck:
    """One thing after the other, in one thread; it can be killed between any two."""

    plain = True

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without_spark(monkeypatch)
        self.clock = Ticking()
        self.clock.pass_by(90_000_000 * 1_000_000)  # no row is from the future

    def run(self, folder: Path, backfills: Backfills, takings: Takings, kill_at: int | None, ask: bool = False) -> Ran:
        if kill_at is not None:
            self._killed(folder, backfills, takings, kill_at)
            backfills = ()
        return self._run(folder, backfills, takings, Points())

    def _killed(self, folder: Path, backfills: Backfills, takings: Takings, kill_at: int) -> None:
        """The disk as it is at that point is all that is left."""
        image = folder.with_name(f"{folder.name}-killed")
        point = Points()

        def watch(number: int, _name: str) -> None:
            if number == kill_at:
                shutil.copytree(folder, image)
                raise Crash

        with point.watched(watch):
            try:
                self._run(folder, backfills, takings, point)
            except Crash:
                shutil.rmtree(folder)
                image.rename(folder)

    def _run(self, folder: Path, backfills: Backfills, takings: Takings, point: Points) -> Ran:
        declared = load_warehouse(read_project(folder))
        store = WatchedStore(declared.declarations.store_url, point)
        runtime = None
        try:
            store.create()
            catalogue = Catalogue(declared.declarations.data_path)
            with store.write() as conn:
                catalogue.create(conn, self.clock.now_us())
            for what, file in takings:
                state, now_us = restored_state(store), self.clock.now_us()
                if what == "withdraw":
                    withdraw(declared, store, state, [file], "", now_us)
                else:
                    give_back(declared, store, state, [file], now_us)
            self._ask(declared, store, catalogue, backfills)
            session = duckspark.Session(point)
            runtime = InlineRuntime(declared, store, catalogue, lambda: session, self.clock, Pace(0.0, 0.0))  # type: ignore[arg-type,return-value]
            runtime.point = point
            runtime.start()
            runtime.run(until_idle=True)
            runtime.close()
            state = restored_state(store)
            with store.read() as conn:
                waiting = waiting_rows(catalogue, conn, declared.definitions, state, state.tables)
            verified = Verifier(declared, store, catalogue, self.clock.now_us).run(state)
            return Ran(
                status(state, self.clock.now_us()), waiting, None, [str(problem) for problem in verified.problems]
            )
        finally:
            if runtime is not None:
                runtime._lock.release()
            store.close()

    def _ask(self, declared: Any, store: Store, catalogue: Catalogue, backfills: Backfills) -> None:
        for table, span in backfills:
            state = restored_state(store)
            if table not in state.tables:
                continue
            try:
                Requesting(declared, store, catalogue).backfill(state, table, span, self.clock.now_us())
            except PenstockError as error:
                raise RefusedBackfill(f"{table} {span}: {error}") from error
