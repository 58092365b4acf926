"""Queries on Spark, each lane in a session of its own, so that what one query sees is not seen by another. What was begun can be cancelled: all its
Spark jobs have one group."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from penstock.declare.warehouse import Definitions
from penstock.engine.desk.question import Question, ResultRows
from penstock.engine.flows.work import REFUSED, quarantine_of
from penstock.engine.spark.links import plain
from penstock.engine.spark.plan_check import PlanCheck
from penstock.engine.spark.session import is_alive, session_in
from penstock.engine.updates.load import QUARANTINE
from penstock.engine.updates.rows import read_files, struct_of
from penstock.errors import PenstockError
from penstock.model.schema import Schema

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
_SAFE = {
    # A second line of defence behind the check of the text: no values of the machine, no files.
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    # With ORDER BY and a larger LIMIT, room for all rows would be made at once.
    "spark.sql.execution.topKSortFallbackThreshold": "100000",
}


class TooLarge(PenstockError):
    pass


class SparkReader:
    """Answers in this process."""

    def __init__(self, session: SparkSession, zone: str, functions: Collection[str] = ()) -> None:
        self.session = session_in(session, zone)
        for name, value in _SAFE.items():
            with suppress(Exception):  # a static setting in this version of Spark
                self.session.conf.set(name, value)
        self._check = PlanCheck(self.session, functions)
        self._zone = zone

    @property
    def is_alive(self) -> bool:
        return is_alive(self.session)

    def answer(self, question: Question) -> ResultRows:
        context = self.session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", POOL)
        context.setJobGroup(question.group, question.sql[:200], interruptOnCancel=True)
        try:
            frame = self._frame(question)
            rows = self._collect(frame, min(question.limit, question.inline_rows), question.inline_bytes)
            if rows is None or (rows.truncated and question.limit > rows.count):
                if question.folder is not None:
                    return self._write(frame, question.limit, Path(question.folder))
                if rows is None:
                    raise TooLarge("the answer is too large for a message; ask for fewer rows or columns, or for files")
            return rows
        finally:
            for view in question.views:
                self.session.catalog.dropTempView(view.name)

    def cancel(self, group: str) -> None:
        """End what runs in the group, and what it would still start."""
        context = self.session.sparkContext
        if context._jsc is not None:
            with suppress(Py4JError, OSError):  # it has ended already
                context._jsc.sc().cancelJobGroupAndFutureJobs(group)

    def close(self) -> None:
        """The session belongs to others as well."""

    def _frame(self, question: Question) -> DataFrame:
        """The query over its views, checked; nothing runs yet."""
        files: list[str] = []
        for view in question.views:
            files += map(plain, view.paths)
            if view.paths:
                rows = read_files(self.session, view.paths, view.schema, view.size_bytes)
            else:
                rows = self.session.createDataFrame([], struct_of(view.schema))
            rows.createOrReplaceTempView(view.name)
        frame = self.session.sql(question.sql)
        self._check.check(frame, files)
        return frame

    def _collect(self, frame: DataFrame, limit: int, most_bytes: int) -> ResultRows | None:
        """None if Spark would not even collect it."""
        try:
            table = frame.limit(limit + 1).toArrow()
        except Exception as error:
            if "maxResultSize" in str(error):
                return None
            raise
        rows = table.slice(0, limit)
        while rows.num_rows and rows.nbytes > most_bytes:
            rows = rows.slice(0, min(rows.num_rows - 1, rows.num_rows * most_bytes // rows.nbytes))
        return ResultRows(rows, _types(frame), table.num_rows > rows.num_rows, count=rows.num_rows, zone=self._zone)

    def _write(self, frame: DataFrame, limit: int, folder: Path) -> ResultRows:
        """As Parquet files, for more than one wants to send in a message."""
        frame.limit(limit).write.mode("overwrite").parquet(str(folder))
        files = tuple(sorted(folder.glob("*.parquet")))
        count = sum(pq.read_metadata(file).num_rows for file in files)
        empty = pa.table({field.name: pa.nulls(0) for field in frame.schema.fields}) if frame.columns else pa.table({})
        return ResultRows(empty, _types(frame), count >= limit, files, count)


def _types(frame: DataFrame) -> tuple[str, ...]:
    return tuple(field.dataType.simpleString() for field in frame.schema.fields)
