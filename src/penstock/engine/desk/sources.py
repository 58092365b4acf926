"""The files behind the tables of a query, at the versions of a reading."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.control.query_inputs import Touched
from penstock.declare.warehouse import Definitions
from penstock.engine.desk.question import PinnedTable
from penstock.engine.desk.reads import Reading
from penstock.engine.spark.queries import quarantines
from penstock.model.partitions import EVERYTHING
from penstock.store.store import Store
from penstock.tables import Catalogue


class Sources:
    def __init__(self, warehouse: Definitions, store: Store, catalogue: Catalogue) -> None:
        self._quarantines = quarantines(warehouse)
        self._store = store
        self._catalogue = catalogue

    def views(self, tables: Sequence[str], reading: Reading, touched: Touched) -> tuple[PinnedTable, ...]:
        at = {version.table: version.read_at for version in reading.versions}
        return tuple(self._view(name, at.get(name, reading.head), touched) for name in tables)

    def _view(self, table: str, snapshot: int, touched: Touched) -> PinnedTable:
        within = touched.get(table, EVERYTHING)
        with self._store.read() as conn:
            schema = self._catalogue.schema(conn, table, snapshot)
            some = None if within == EVERYTHING else within.intervals
            files = self._catalogue.files(conn, table, snapshot, some) if schema else []
        if schema is None and table in self._quarantines:
            return PinnedTable(table, self._quarantines[table], (), 0)
        assert schema is not None
        paths = tuple(self._catalogue.locate(table, file) for file in files)
        return PinnedTable(table, schema, paths, sum(file.size_bytes for file in files))
