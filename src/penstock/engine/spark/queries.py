"""Queries on Spark: one lane each, with a session of its own, so that what one query sees is not seen by another. What was begun
can be cancelled: all its Spark jobs have one group."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.control.query_inputs import Touched
from penstock.declare.sql.read import ReadQuery
from penstock.declare.warehouse import Definitions
from penstock.engine.desk.answer import ResultRows
from penstock.engine.desk.reads import Reading
from penstock.engine.flows.work import REFUSED, quarantine_of
from penstock.engine.spark.session import session_in
from penstock.engine.updates.load import QUARANTINE
from penstock.engine.updates.rows import read_files, struct_of
from penstock.model.partitions import EVERYTHING
from penstock.model.schema import Schema
from penstock.store.store import Store
from penstock.tables import Catalogue

# The tables in which refused rows are kept, and their columns: one for each table, one for each flow.


def quarantines(warehouse: Definitions) -> dict[str, Schema]:
    flows = {one.flow.flow.name for one in warehouse.definitions.values() if one.flow is not None}
    return {
        **{quarantine_of(flow): REFUSED for flow in flows},
        **{
            f"{name}_quarantine": QUARANTINE
            for name, one in warehouse.definitions.items()
            if one.table.is_base or name not in flows
        },
    }


POOL = "queries"
# A second line of defence behind the check of the text: no values of the machine, no files.
_SAFE = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}


class SparkReader:
    def __init__(self, session: SparkSession, warehouse: Definitions, store: Store, catalogue: Catalogue) -> None:
        self.session = session_in(session, warehouse.zone)
        for name, value in _SAFE.items():
            with suppress(Exception):  # a static setting in this version of Spark
                self.session.conf.set(name, value)
        self.warehouse = warehouse
        self.quarantines = quarantines(warehouse)
        self.store = store
        self.catalogue = catalogue

    def bind(self, group: str, what: str) -> None:
        """What this thread does from now on belongs to the group."""
        context = self.session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", POOL)
        context.setJobGroup(group, what, interruptOnCancel=True)

    def frame(self, read: ReadQuery, reading: Reading, touched: Touched) -> DataFrame:
        """The query over the versions of a reading; nothing runs yet."""
        at = {version.table: version.read_at for version in reading.versions}
        for name in read.tables:
            self._view(name, at.get(name, reading.head), touched)
        return self.session.sql(read.sql)

    def collect(self, frame: DataFrame, limit: int) -> ResultRows:
        table = frame.limit(limit + 1).toArrow()
        rows = table.slice(0, limit)
        return ResultRows(rows, _types(frame), table.num_rows > limit, count=rows.num_rows, zone=self.warehouse.zone)

    def write(self, frame: DataFrame, limit: int, folder: Path) -> ResultRows:
        """As Parquet files, for more rows than one wants to send in a message."""
        frame.limit(limit).write.mode("overwrite").parquet(str(folder))
        files = tuple(sorted(folder.glob("*.parquet")))
        import pyarrow.parquet as pq

        count = sum(pq.read_metadata(file).num_rows for file in files)
        empty = pa.table({field.name: pa.nulls(0) for field in frame.schema.fields}) if frame.columns else pa.table({})
        return ResultRows(empty, _types(frame), count >= limit, files, count)

    def forget(self, read: ReadQuery) -> None:
        for name in read.tables:
            self.session.catalog.dropTempView(name)

    def _view(self, table: str, snapshot: int, touched: Touched) -> None:
        within = touched.get(table, EVERYTHING)
        with self.store.read() as conn:
            schema = self.catalogue.schema(conn, table, snapshot)
            some = None if within == EVERYTHING else within.intervals
            files = self.catalogue.files(conn, table, snapshot, some) if schema else []
        if schema is None and table in self.quarantines:
            frame = self.session.createDataFrame([], struct_of(self.quarantines[table]))
        else:
            assert schema is not None
            paths = [self.catalogue.locate(table, file) for file in files]
            frame = read_files(self.session, paths, schema, sum(file.size_bytes for file in files))
        frame.createOrReplaceTempView(table)


def cancel(session: SparkSession, group: str) -> None:
    """End what runs in the group, and what it would still start."""
    jvm = session.sparkContext._jsc.sc()
    try:
        jvm.cancelJobGroupAndFutureJobs(group)
    except Exception:  # an older Spark
        session.sparkContext.cancelJobGroup(group)


def _types(frame: DataFrame) -> tuple[str, ...]:
    return tuple(field.dataType.simpleString() for field in frame.schema.fields)
