"""A table beside a recompute of its declaration: what `penstock verify --deep` compares.

Every partition that needs nothing reflects all that is published. So it must be what the declaration gives over the sources as they are now, up to the
edge. The recompute is an ordinary job whose files go to a scratch folder and are never published.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.control.state import State
from penstock.declare.warehouse import Definitions
from penstock.engine.ports import Computed
from penstock.engine.spark.session import session_in
from penstock.engine.spark.work import SparkWork
from penstock.engine.updates.executor import explain_error
from penstock.engine.updates.rows import quoted, read_files
from penstock.engine.upkeep.verify import Compared, ProgressReport, held
from penstock.errors import PenstockError
from penstock.model.grain import WHOLE
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.model.schema import Schema
from penstock.requests.job import Job
from penstock.requests.needs import Piece, restated
from penstock.requests.tablestate import TableState
from penstock.store.store import Store, feed_file
from penstock.tables import Catalogue, DataFile

_PARTITIONS_AT_ONCE = 100
_FILES_AT_ONCE = 500


class Scratch(Catalogue):
    """The catalogue as it is, except that what is written goes elsewhere."""

    def __init__(self, data_path: str, scratch: Path) -> None:
        super().__init__(data_path)
        self._scratch = scratch

    def folder(self, table: str) -> str:
        return f"{self._scratch}/main/{Path(super().folder(table)).name}/"


class Recompute:
    def __init__(
        self,
        session: SparkSession,
        warehouse: Definitions,
        store: Store,
        catalogue: Catalogue,
        schema_of_feed: Callable[[str], Schema | None],
        now_us: Callable[[], int],
    ) -> None:
        self.session, self.warehouse, self.store, self.catalogue = session, warehouse, store, catalogue
        self.now_us = now_us
        self._folder = warehouse.declarations.state_folder / f"verify-{uuid4().hex[:8]}"
        scratch = Scratch(catalogue.data_path, self._folder.resolve())
        self._work = SparkWork(session_in(session, warehouse.zone), warehouse, store, scratch, schema_of_feed)

    def run(self, state: State, progress: ProgressReport) -> Iterator[Compared]:
        """Every table of the project, sources first."""
        tables = [name for name in self.warehouse.graph.order if name in state.tables]
        try:
            with held(self.store, self.catalogue, self.now_us) as renew:
                for number, name in enumerate(tables):
                    progress(f"Computing {name} again", number, len(tables))
                    table = state.tables[name]
                    if table.table.leader is None:
                        yield from self._table(state, table)
                    renew()
        finally:
            # Made here and nowhere else.
            shutil.rmtree(self._folder, ignore_errors=True)

    def _table(self, state: State, table: TableState) -> Iterator[Compared]:
        names = self.warehouse.graph.made_with(table.table.name)
        try:
            if not table.exists:
                yield from (Compared(name, None, "it has nothing yet") for name in names)
            elif table.table.external:
                yield from (Compared(name, None, "others make it") for name in names)
            elif table.table.is_base:
                yield from self._base(state, table, names)
            else:
                yield from self._derived(state, table, names)
        except (PenstockError, PySparkException, Py4JJavaError, OSError) as error:
            said = explain_error(error).splitlines()[0]
            yield from (Compared(name, None, f"it cannot be computed: {said}", failed=True) for name in names)

    # Derived tables

    def _derived(self, state: State, table: TableState, names: Sequence[str]) -> Iterator[Compared]:
        spec = table.table
        flows = state.graph.has_time[spec.name]
        whole = spec.grain is WHOLE or not flows
        lacks = table.lacks
        if table.running is not None:
            lacks |= PartitionSet.of(*((piece.start_us, piece.end_us) for piece in table.running.job.pieces))
        settled = state.extent(table) - lacks
        if whole and lacks:
            settled = EMPTY
        if not settled:
            yield from (
                Compared(name, None, "it is not up to date; `penstock run --until-idle` first") for name in names
            )
            return
        totals = {name: [0, 0] for name in names}
        starts = [] if whole else list(settled.starts(spec.grain))
        parts = [
            PartitionSet.of(
                *((start, spec.grain.shift(start, 1)) for start in starts[first : first + _PARTITIONS_AT_ONCE])
            )
            for first in range(0, len(starts), _PARTITIONS_AT_ONCE)
        ]
        for part in parts or [EVERYTHING]:
            pieces = tuple(Piece(start, end, restated(self.now_us())) for start, end in part)
            job = Job(
                f"verify-{uuid4().hex[:8]}", spec.name, "derive", state.snapshot, pieces=pieces,
                edge_us=table.seen_us if flows else None,
            )  # fmt: skip
            computed = self._work.run(job, job.id)
            for name in names:
                extra, lacking = self._difference(state, name, computed, None if whole else part)
                totals[name][0] += extra
                totals[name][1] += lacking
        for name, (extra, lacking) in totals.items():
            yield Compared(name, not extra and not lacking, extra=extra, lacking=lacking, partitions=len(starts) or 1)

    # Base tables

    def _base(self, state: State, table: TableState, names: Sequence[str]) -> Iterator[Compared]:
        """Against the delivered files, where all of them are still there as they were loaded."""
        spec = table.table
        feed = state.graph.feeds[spec.feed or ""]
        if table.needs or table.running is not None or table.files:
            yield from (
                Compared(name, None, "it is not up to date; `penstock run --until-idle` first") for name in names
            )
            return
        with self.store.read() as conn:
            rows = self.store.loaded_files(conn, spec.name)
        files = [feed_file(row) for row in rows]
        folder = self.warehouse.declarations.folder
        gone = [file.uri for file in files if not (folder / file.uri).exists()]
        if gone or feed.mode == "snapshot":
            why = (
                f"{len(gone)} of its {len(files)} delivered files are gone"
                if gone
                else "a snapshot replaces what was before"
            )
            yield from (Compared(name, None, why) for name in names)
            return
        computed = [
            self._work.run(Job(identity, spec.name, "load", state.snapshot, files=tuple(some), anew="files"), identity)
            for start in range(0, len(files), _FILES_AT_ONCE)
            if (some := files[start : start + _FILES_AT_ONCE]) and (identity := f"verify-{uuid4().hex[:8]}")
        ]
        merged = Computed(tuple(made for one in computed for made in one.made), "load")
        for name in names:
            extra, lacking = self._difference(state, name, merged, None)
            yield Compared(name, not extra and not lacking, extra=extra, lacking=lacking, partitions=1)

    # Comparing

    def _difference(self, state: State, name: str, computed: Computed, part: PartitionSet | None) -> tuple[int, int]:
        """How many rows the table has too many, and how many it lacks."""
        with self.store.read() as conn:
            schema = self.catalogue.schema(conn, name, state.snapshot) or ()
            stored = self.catalogue.files(conn, name, state.snapshot, None if part is None else part.intervals)
        made = [file for one in computed.made if one.table == name for file in one.files]
        scratch = self._work.catalogue
        there = self._frame([self.catalogue.locate(name, file) for file in stored], stored, schema)
        expected = self._frame([scratch.locate(name, file) for file in made], made, schema)
        one, other = (
            frame.selectExpr(*(_comparable(column.name, column.type) for column in schema))
            for frame in (there, expected)
        )
        extra, lacking = one.exceptAll(other), other.exceptAll(one)
        return extra.count(), lacking.count()

    def _frame(self, paths: Sequence[str], files: Sequence[DataFile], schema: Schema) -> DataFrame:
        return read_files(self._work.session, paths, schema, sum(file.size_bytes for file in files))


def _comparable(name: str, kind: str) -> str:
    """Floating numbers as far as the order of their adding up does not matter; what has no order, as text."""
    own = quoted(name)
    if kind in ("double", "float"):
        return f"format_string('%.{9 if kind == 'double' else 4}e', {own}) as {own}"
    if any(word in kind for word in ("map<", "double", "float", "variant")):
        return f"to_json(struct({own})) as {own}"
    return own
