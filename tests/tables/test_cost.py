"""The cost of a publication does not depend on history: the same statements, and none of them reads a whole
table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import event

from penstock.tables import Note, TableChange

from .conftest import DAY_US, T0_US, Lake, columns, rows

S = columns(id="bigint", name="string")


def test_no_statement_scans(sqlite_lake: Lake) -> None:
    lake = sqlite_lake
    file = lake.write("t", rows(id=[1], name=["x"]))
    seen: list[tuple[str, Any]] = []

    def note(_c: Any, _cur: Any, statement: str, parameters: Any, _ctx: Any, many: bool) -> None:
        seen.append((statement, parameters[0] if many else parameters))

    event.listen(lake.engine, "before_cursor_execute", note)
    counts = []
    for number in range(40):
        with lake.begin() as conn:
            seen.clear()
            day = (number // 10 * DAY_US, (number // 10 + 1) * DAY_US)
            changes = [
                TableChange("t", S, (), [replace(file, path=f"a{number}", partition_us=day[0])]),
                TableChange("u", S, [day], [replace(file, path=f"b{number}", partition_us=day[0])]),
            ]
            lake.catalogue.publish(conn, changes, Note(), T0_US)
            at = lake.catalogue.snapshot(conn)
            lake.catalogue.files(conn, "t", at, [day])
            lake.catalogue.files(conn, "t", at, added_after=at - 1)
            if number > 30:
                lake.catalogue.expire(conn, "u", 3, None, T0_US)
            counts.append(len(seen))
    assert counts[-1] == counts[-2] < 50
    event.remove(lake.engine, "before_cursor_execute", note)
    with lake.begin() as conn:
        for statement, parameters in list(seen):
            if statement.startswith(("SELECT", "UPDATE", "DELETE")):
                plan = [row[3] for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
                # The newest snapshot is the first entry of its index, read backwards.
                scans = [step for step in plan if step.startswith("SCAN") and "ducklake_snapshot USING" not in step]
                assert not scans, (statement, plan)
