"""The process in which queries run: one Spark for one lane. It is told everything on its standard input and answers on its standard output, one message
at a time; it knows neither the store nor any password. What it runs can be ended by ending it.

A message is its length (4 bytes) and JSON. An answer with rows is followed by them, in Arrow's format; `bytes` says how long they are.
"""

from __future__ import annotations

import io
import json
import os
import queue
import signal
import struct
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.desk.question import PinnedTable, Question, Reader, ResultRows
from penstock.model.schema import Column

_LENGTH = struct.Struct(">I")


def send(pipe: BinaryIO, told: Mapping[str, Any], more: bytes = b"") -> None:
    written = json.dumps(told).encode()
    pipe.write(_LENGTH.pack(len(written)) + written + more)
    pipe.flush()


def received(pipe: BinaryIO) -> dict[str, Any] | None:
    """The next message; None at the end."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    written = pipe.read(_LENGTH.unpack(head)[0])
    try:
        found: dict[str, Any] = json.loads(written)
    except ValueError:  # it ended in the middle
        return None
    return found


def rows_told(rows: ResultRows) -> tuple[dict[str, Any], bytes]:
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, rows.table.schema) as writer:
        writer.write_table(rows.table)
    told = {
        "types": rows.types,
        "truncated": rows.truncated,
        "files": [str(file) for file in rows.files],
        "count": rows.count,
        "zone": rows.zone,
        "bytes": buffer.tell(),
    }
    return told, buffer.getvalue()


def rows_heard(told: Mapping[str, Any], sent: bytes) -> ResultRows:
    table = pa.ipc.open_stream(sent).read_all()
    files = tuple(Path(file) for file in told["files"])
    return ResultRows(table, tuple(told["types"]), told["truncated"], files, told["count"], told["zone"])


def main() -> None:
    hears, tells = sys.stdin.buffer, sys.stdout.buffer
    # What anyone prints goes to the log.
    sys.stdout = sys.stderr
    setup = received(hears)
    if setup is None:
        return
    os.nice(setup["nice"])
    asked: queue.SimpleQueue[Question] = queue.SimpleQueue()
    readers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_work, args=(setup, asked, readers, tells), daemon=True).start()
    reader = None
    while (told := received(hears)) is not None:
        if "cancel" in told:
            reader = reader or readers.get()
            reader.cancel(told["cancel"])
        else:
            asked.put(Question.of_plain(told))
    _end()  # whoever asked is gone


def _end() -> None:
    """Nothing here is worth an orderly end, and Spark might be busy for long."""
    os.killpg(0, signal.SIGKILL)


def _work(
    setup: Mapping[str, Any],
    asked: queue.SimpleQueue[Question],
    readers: queue.SimpleQueue[Any],
    tells: BinaryIO,
) -> None:
    try:
        _answer(setup, asked, readers, tells)
    finally:
        _end()


def _answer(
    setup: Mapping[str, Any],
    asked: queue.SimpleQueue[Question],
    readers: queue.SimpleQueue[Any],
    tells: BinaryIO,
) -> None:
    from pyspark import inheritable_thread_target  # noqa: F401  (Spark is loaded here, so that what hears is never kept waiting)

    from penstock.engine.spark.queries import SparkReader
    from penstock.engine.spark.session import start_spark
    from penstock.engine.updates.executor import explain_error

    try:
        session = start_spark("queries", Path(setup["scratch"]), setup["spark"], setup["zone"])
        reader = SparkReader(session, setup["zone"], setup["functions"])
        _warm(reader, Path(setup["scratch"]))
    except Exception as error:
        send(tells, {"error": explain_error(error)})
        return
    readers.put(reader)
    send(tells, {"ready": True})
    while True:
        question = asked.get()
        try:
            told, rows = rows_told(reader.answer(question))
        except Exception as error:
            if not reader.is_alive:
                return
            told, rows = {"error": explain_error(error)}, b""
        send(tells, told, rows)


def _warm(reader: Reader, folder: Path) -> None:
    """The first query of a process takes many times as long as the next ones: it is nobody's. Else one with a short deadline would be cancelled, the
    process be killed for not stopping, and the next one be as cold."""
    file = folder / "warm.parquet"
    pq.write_table(
        pa.table({"id": pa.array(range(100), pa.int64()), "at": pa.array([0] * 100, pa.timestamp("us", "UTC"))}), file
    )
    rows = (Column("id", "bigint"), Column("at", "timestamp"))
    view = PinnedTable("warm", rows, (str(file),), file.stat().st_size)
    sql = "select id % 7 as part, date_trunc('hour', at) as hour, count(*) as n from warm where id > 0 group by 1, 2 order by n limit 5"
    reader.answer(Question("warm", sql, (view,), 10, 10, 1 << 20))


if __name__ == "__main__":
    main()
