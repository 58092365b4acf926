"""Ways to run a project until it is idle: with Spark as users do, or with DuckDB in Spark's place, which takes a hundredth of
the time and knows only what both languages share."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from penstock.app import Warehouse
from penstock.control.status import TableStatus, status
from penstock.declare.project import read_project
from penstock.declare.warehouse import load_warehouse
from penstock.engine.reading import restored_state
from penstock.engine.requesting import Requesting
from penstock.engine.runtime import Pace
from penstock.errors import PenstockError
from penstock.store.store import Store
from penstock.tables import Catalogue
from tests.engine import duckspark
from tests.engine.crashing import Crash, InlineRuntime, Points, Ticking, WatchedStore, without_spark

Backfills = Sequence[tuple[str, str | None]]


class RefusedBackfill(Exception):
    pass


class Engine(Protocol):
    # Whether only plain things may be declared.
    plain: bool

    def run(self, folder: Path, backfills: Backfills, kill_at: int | None) -> list[TableStatus]: ...


class OnSpark:
    plain = False

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def run(self, folder: Path, backfills: Backfills, kill_at: int | None) -> list[TableStatus]:
        with Warehouse(folder, spark=self.spark) as warehouse:
            for table, span in backfills:
                try:
                    warehouse.backfill(table, span)
                except PenstockError as error:
                    raise RefusedBackfill(f"{table} {span}: {error}") from error
            warehouse.run(until_idle=True)
            return warehouse.status()


class OnDuck:
    """One thing after the other, in one thread; it can be killed between any two."""

    plain = True

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without_spark(monkeypatch)
        self.clock = Ticking()

    def run(self, folder: Path, backfills: Backfills, kill_at: int | None) -> list[TableStatus]:
        if kill_at is not None:
            self._killed(folder, backfills, kill_at)
            backfills = ()
        return self._run(folder, backfills, Points())

    def _killed(self, folder: Path, backfills: Backfills, kill_at: int) -> None:
        """The disk as it is at that point is all that is left."""
        image = folder.with_name(f"{folder.name}-killed")
        point = Points()

        def watch(number: int, _name: str) -> None:
            if number == kill_at:
                shutil.copytree(folder, image)
                raise Crash

        with point.watched(watch):
            try:
                self._run(folder, backfills, point)
            except Crash:
                shutil.rmtree(folder)
                image.rename(folder)

    def _run(self, folder: Path, backfills: Backfills, point: Points) -> list[TableStatus]:
        declared = load_warehouse(read_project(folder))
        store = WatchedStore(declared.declarations.store_url, point)
        runtime = None
        try:
            store.create()
            catalogue = Catalogue(declared.declarations.data_path)
            with store.write() as conn:
                catalogue.create(conn, self.clock.now_us())
            self._ask(declared, store, catalogue, backfills)
            session = duckspark.Session(point)
            runtime = InlineRuntime(declared, store, catalogue, lambda: session, self.clock, Pace(0.0, 0.0))  # type: ignore[arg-type,return-value]
            runtime.point = point
            runtime.start()
            runtime.run(until_idle=True)
            runtime.close()
            return status(restored_state(store), self.clock.now_us())
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
