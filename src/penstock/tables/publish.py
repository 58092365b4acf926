"""One publication: several tables change together, as one snapshot.

Everything is read first, then decided, then written in a few statements for all tables together. What is read
is what the last snapshot says: a snapshot made by someone else in the meantime has taken the number we are
about to take, and the insert fails. All look-ups are by key or index, so the cost does not depend on history.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from penstock.errors import PenstockError
from penstock.tables import ddl
from penstock.tables.columns import (
    alter,
    check_not_empty,
    column_values,
    leaves,
    mapping_values,
    replaced,
    rows_of,
    schema_of,
)
from penstock.tables.evolution import check_names, evolve
from penstock.tables.known import ColumnRange, Head, Known, load, widen
from penstock.tables.types import Conflict, DataFile, Interval, Note, SchemaConflict, TableChange

_LIVE = (
    select(ddl.own_file.c.data_file_id, ddl.data_file.c.record_count, ddl.data_file.c.file_size_bytes)
    .join(ddl.data_file, ddl.data_file.c.data_file_id == ddl.own_file.c.data_file_id)
    .where(
        ddl.own_file.c.table_id == bindparam("table"),
        ddl.own_file.c.end_snapshot.is_(None),
        ddl.data_file.c.end_snapshot.is_(None),
    )
)
_LIVE_WITHIN = _LIVE.where(
    ddl.own_file.c.partition_us >= bindparam("low"), ddl.own_file.c.partition_us < bindparam("high")
)
_LIVE_IDS = _LIVE.where(ddl.own_file.c.data_file_id.in_(bindparam("ids", expanding=True)))
_END_FILE = (
    update(ddl.data_file)
    .where(ddl.data_file.c.data_file_id == bindparam("b_id"))
    .values(end_snapshot=bindparam("b_end"))
)
_END_OWN = (
    update(ddl.own_file).where(ddl.own_file.c.data_file_id == bindparam("b_id")).values(end_snapshot=bindparam("b_end"))
)
_END_COLUMN = (
    update(ddl.column)
    .where(
        ddl.column.c.table_id == bindparam("b_table"),
        ddl.column.c.column_id == bindparam("b_id"),
        ddl.column.c.end_snapshot.is_(None),
    )
    .values(end_snapshot=bindparam("b_end"))
)
_SET_MAPPING = (
    update(ddl.own_table)
    .where(ddl.own_table.c.table_id == bindparam("b_table"))
    .values(mapping_id=bindparam("b_mapping"), mapped_at=bindparam("b_at"))
)
_SET_STATS = (
    update(ddl.table_stats)
    .where(ddl.table_stats.c.table_id == bindparam("b_table"))
    .values(
        record_count=bindparam("b_records"),
        next_row_id=bindparam("b_row"),
        file_size_bytes=bindparam("b_bytes"),
    )
)
_SET_COLUMN_STATS = (
    update(ddl.table_column_stats)
    .where(
        ddl.table_column_stats.c.table_id == bindparam("b_table"),
        ddl.table_column_stats.c.column_id == bindparam("b_column"),
    )
    .values(
        contains_null=bindparam("b_null"),
        contains_nan=bindparam("b_nan"),
        min_value=bindparam("b_min"),
        max_value=bindparam("b_max"),
    )
)


class Publication:
    """Collects the rows of one snapshot, then writes them."""

    def __init__(self, conn: Connection, head: Head, data_path: str) -> None:
        self.conn = conn
        self.data_path = data_path
        self.snapshot = head.snapshot + 1
        self.schema_version = head.schema_version
        self.next_catalog_id = head.next_catalog_id
        self.next_file_id = head.next_file_id
        self.said: dict[str, list[str]] = {kind: [] for kind in ("created", "inserted", "deleted", "altered")}
        self.rows: dict[Any, list[dict[str, Any]]] = {}
        self.updates: dict[Any, list[dict[str, Any]]] = {}

    def run(self, changes: Sequence[TableChange], note: Note, at_us: int, folders: Mapping[str, str]) -> int:
        names = [change.table for change in changes]
        if len(set(names)) != len(names):
            raise PenstockError(
                f"a publication names a table twice: {', '.join(sorted(names))}. Merge the two changes."
            )
        known = load(self.conn, names)
        before = self.schema_version
        for change in changes:
            check_names(change.schema, change.table)
            check_not_empty(change.schema, change.table)
            table = known.get(change.table)
            if table is None:
                table = self._create(change, folders[change.table])
            else:
                self._alter(change, table)
            self._map(table)
            gone = self._end(change, table)
            self._add(change, table, gone, folders[change.table])
        if self.schema_version > before:
            self.schema_version = before + 1
        self._write(note, at_us)
        return self.snapshot

    def _insert(self, table: Any, *rows: dict[str, Any]) -> None:
        self.rows.setdefault(table, []).extend(rows)

    def _update(self, statement: Any, *rows: dict[str, Any]) -> None:
        self.updates.setdefault(statement, []).extend(rows)

    def _new_schema(self, table_id: int) -> None:
        # One new version a snapshot, however many tables it alters.
        self.schema_version += 1
        self._insert(ddl.schema_versions, {"begin_snapshot": self.snapshot, "table_id": table_id})

    def _create(self, change: TableChange, folder: str) -> Known:
        table = Known(self.next_catalog_id, folder, changed_at=self.snapshot)
        self.next_catalog_id += 1
        table.nodes = rows_of(change.schema)
        quoted = change.table.replace('"', '""')
        self.said["created"].append(f'created_table:"main"."{quoted}"')
        self._insert(
            ddl.table,
            {
                "table_id": table.id,
                "table_uuid": str(uuid.uuid4()),
                "begin_snapshot": self.snapshot,
                "end_snapshot": None,
                "schema_id": 0,
                "table_name": change.table,
                "path": folder,
                "path_is_relative": True,
            },
        )
        self._insert(ddl.column, *column_values(table.id, self.snapshot, table.nodes))
        self._new_schema(table.id)
        return table

    def _alter(self, change: TableChange, table: Known) -> None:
        try:
            steps = evolve(schema_of(table.nodes), change.schema, change.table)
        except SchemaConflict:
            if change.replace is not None:
                raise
            # No file of before stays, so nothing is read with columns that it does not have.
            altered = replaced(table.nodes, change.schema, table.last_column + 1)
        else:
            if not steps:
                return
            altered = alter(table.nodes, steps, table.last_column + 1)
        self._update(
            _END_COLUMN,
            *({"b_table": table.id, "b_id": column, "b_end": self.snapshot} for column in altered.ended),
        )
        self._insert(ddl.column, *column_values(table.id, self.snapshot, altered.begun))
        for node in altered.begun:
            # The short text that DuckDB writes for a float is no bound of the same number as a double.
            if node.type == "float64" and node.id in altered.ended:
                known = table.column_stats.get(node.id)
                if known is not None:
                    self._bounds(table, node.id, ColumnRange(known.contains_null, known.contains_nan, None, None))
        table.nodes = sorted(altered.nodes, key=lambda node: node.order)
        table.changed_at = self.snapshot
        self.said["altered"].append(f"altered_table:{table.id}")
        self._new_schema(table.id)

    def _map(self, table: Known) -> None:
        if table.mapping is not None and table.mapped_at >= table.changed_at:
            return
        table.mapping, self.next_file_id = self.next_file_id, self.next_file_id + 1
        self._insert(ddl.column_mapping, {"mapping_id": table.mapping, "table_id": table.id, "type": "map_by_name"})
        self._insert(ddl.name_mapping, *mapping_values(table.mapping, table.nodes))
        if table.own:
            self._update(_SET_MAPPING, {"b_table": table.id, "b_mapping": table.mapping, "b_at": self.snapshot})
        else:
            self._insert(
                ddl.own_table,
                {"table_id": table.id, "mapping_id": table.mapping, "mapped_at": self.snapshot, "horizon": 0},
            )

    def _end(self, change: TableChange, table: Known) -> tuple[int, int]:
        """Records and bytes that are gone."""
        if table.stats is None:
            if change.drop_ids:
                raise self._stale(change, change.drop_ids)
            return 0, 0
        ended: dict[int, tuple[int, int]] = {}
        intervals: Sequence[Interval] = () if change.replace is None else change.replace
        for low, high in intervals:
            where = {"table": table.id, "low": low, "high": high}
            ended |= {row[0]: (row[1], row[2]) for row in self.conn.execute(_LIVE_WITHIN, where)}
        if change.replace is None:
            ended |= {row[0]: (row[1], row[2]) for row in self.conn.execute(_LIVE, {"table": table.id})}
        if change.drop_ids:
            found = self.conn.execute(_LIVE_IDS, {"table": table.id, "ids": list(change.drop_ids)})
            ended |= {row[0]: (row[1], row[2]) for row in found}
            if missing := sorted(set(change.drop_ids) - set(ended)):
                raise self._stale(change, missing)
        if ended:
            self.said["deleted"].append(f"deleted_from_table:{table.id}")
            rows = [{"b_id": file, "b_end": self.snapshot} for file in ended]
            self._update(_END_FILE, *rows)
            self._update(_END_OWN, *rows)
        return sum(records for records, _ in ended.values()), sum(size for _, size in ended.values())

    @staticmethod
    def _stale(change: TableChange, missing: Sequence[int]) -> Conflict:
        return Conflict(
            f"{change.table}: files {', '.join(map(str, missing))} are not live any more: "
            "their partition was replaced since they were listed. List the files again and redo the work."
        )

    def _add(self, change: TableChange, table: Known, gone: tuple[int, int], folder: str) -> None:
        records, next_row, size = table.stats or (0, 0, 0)
        first_ever = table.stats is None
        named = list(leaves(table.nodes)) if change.add else []
        bounds: dict[int, ColumnRange | None] = {
            node.id: table.column_stats.get(node.id)
            for _, node in named
            # A column added later has no row, as DuckDB has it: old files read null there, nothing is
            # bounded.
            if first_ever or node.id in table.column_stats
        }
        for file in change.add:
            self._file(table, file, next_row, folder)
            next_row += file.records
            for name, node in named:
                stats = file.stats.get(name)
                if stats is not None:
                    self._insert(
                        ddl.file_column_stats,
                        {
                            "data_file_id": self.next_file_id - 1,
                            "table_id": table.id,
                            "column_id": node.id,
                            "column_size_bytes": stats.size_bytes,
                            "value_count": stats.values,
                            "null_count": stats.nulls,
                            "min_value": stats.min,
                            "max_value": stats.max,
                            "contains_nan": stats.contains_nan,
                            "extra_stats": None,
                        },
                    )
                if node.id in bounds:
                    bounds[node.id] = widen(bounds[node.id], stats, node.type)
        if change.add:
            self.said["inserted"].append(f"inserted_into_table:{table.id}")
        for column, now in bounds.items():
            if now is not None and now != table.column_stats.get(column):
                self._bounds(table, column, now)
        records = max(0, records - gone[0]) + sum(file.records for file in change.add)
        size = max(0, size - gone[1]) + sum(file.size_bytes for file in change.add)
        if first_ever:
            if change.add:
                self._insert(
                    ddl.table_stats,
                    {
                        "table_id": table.id,
                        "record_count": records,
                        "next_row_id": next_row,
                        "file_size_bytes": size,
                    },
                )
        elif (records, next_row, size) != table.stats:
            self._update(_SET_STATS, {"b_table": table.id, "b_records": records, "b_row": next_row, "b_bytes": size})

    def _bounds(self, table: Known, column: int, now: ColumnRange) -> None:
        if column in table.column_stats:
            table.column_stats[column] = now
            self._update(
                _SET_COLUMN_STATS,
                {"b_table": table.id, "b_column": column, "b_null": now.contains_null, "b_nan": now.contains_nan,
                 "b_min": now.min, "b_max": now.max},
            )  # fmt: skip
        else:
            self._insert(
                ddl.table_column_stats,
                {"table_id": table.id, "column_id": column, "contains_null": now.contains_null,
                 "contains_nan": now.contains_nan, "min_value": now.min, "max_value": now.max, "extra_stats": None},
            )  # fmt: skip

    def _file(self, table: Known, file: DataFile, row: int, folder: str) -> None:
        # A table that DuckDB created may have another folder than ours; then the whole path is stored.
        ours = table.path == folder
        self._insert(
            ddl.data_file,
            {
                "data_file_id": self.next_file_id,
                "table_id": table.id,
                "begin_snapshot": self.snapshot,
                "end_snapshot": None,
                "file_order": None,
                "path": file.path if ours or _is_whole(file.path) else f"{self.data_path}main/{folder}{file.path}",
                "path_is_relative": ours and not _is_whole(file.path),
                "file_format": "parquet",
                "record_count": file.records,
                "file_size_bytes": file.size_bytes,
                "footer_size": file.footer_bytes,
                "row_id_start": row,
                "partition_id": None,
                "encryption_key": None,
                "mapping_id": table.mapping,
                "partial_max": None,
            },
        )
        self._insert(
            ddl.own_file,
            {
                "data_file_id": self.next_file_id,
                "table_id": table.id,
                "partition_us": file.partition_us,
                "content_snapshot": file.content or self.snapshot,
                "end_snapshot": None,
                "physical": file.physical,
                "digest": file.digest or None,
            },
        )
        self.next_file_id += 1

    def _write(self, note: Note, at_us: int) -> None:
        run = self.conn.execute
        # The snapshot first: should its number be taken, nothing else was written in vain.
        run(
            insert(ddl.snapshot),
            {
                "snapshot_id": self.snapshot,
                "snapshot_time": at_us,
                "schema_version": self.schema_version,
                "next_catalog_id": self.next_catalog_id,
                "next_file_id": self.next_file_id,
            },
        )
        run(
            insert(ddl.snapshot_changes),
            {
                "snapshot_id": self.snapshot,
                "changes_made": ",".join(said for kind in self.said.values() for said in kind),
                "author": note.author,
                "commit_message": note.message,
                "commit_extra_info": json.dumps(note.extra, separators=(",", ":")) if note.extra else None,
            },
        )
        for row in self.rows.get(ddl.schema_versions, ()):
            row["schema_version"] = self.schema_version
        for statement, rows in self.updates.items():
            if rows:
                run(statement, rows)
        for table, rows in self.rows.items():
            if rows:
                run(_INSERTS[table], rows)
        run(_SET_HEAD, {"b_snapshot": self.snapshot, "b_next": self.next_file_id})


def _is_whole(path: str) -> bool:
    return path.startswith("/") or "://" in path


_INSERTS = {table: insert(table) for table in ddl.metadata.sorted_tables}
_SET_HEAD = (
    update(ddl.own_head)
    .where(ddl.own_head.c.id == 1)
    .values(snapshot_id=bindparam("b_snapshot"), next_file_id=bindparam("b_next"))
)
