"""What other programs committed to the catalogue, such as another DuckDB: which tables, and which files came and went."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, or_, select, update

from penstock.tables import ddl
from penstock.tables.reading import described
from penstock.tables.types import DataFile

OURS = "penstock"
# As DuckLake writes it: `inserted_into_table:12,deleted_from_table:12`.
_NUMBERED = re.compile(r"[a-z_]+:(\d+)")


@dataclass(frozen=True)
class OthersCommit:
    """What others did to one table since some snapshot."""

    table: str
    # Their last one, and when it was.
    snapshot: int
    at_us: int
    # Nothing but new files.
    append: bool
    # The files that came, went, or lost rows; each with the bounds of one column.
    files: tuple[DataFile, ...]


def commits(conn: Connection, after: int, column: dict[str, str]) -> list[OthersCommit]:
    """By table; `column` says for which column of each the bounds are wanted. A file that was merged or rewritten is told, too: who reads
    at an older snapshot may find that it is no longer there."""
    said, snapshot = ddl.snapshot_changes.c, ddl.snapshot.c
    rows = conn.execute(
        select(said.snapshot_id, said.changes_made, snapshot.snapshot_time)
        .join(ddl.snapshot, snapshot.snapshot_id == said.snapshot_id)
        .where(said.snapshot_id > after, or_(said.author.is_(None), said.author != OURS))
        .order_by(said.snapshot_id)
    )
    changed: dict[int, list[tuple[int, int]]] = {}
    for number, changes, at_us in rows:
        for table in {int(found) for found in _NUMBERED.findall(changes or "")}:
            changed.setdefault(table, []).append((number, at_us))
    names = dict(
        conn.execute(
            select(ddl.table.c.table_id, ddl.table.c.table_name).where(
                ddl.table.c.table_id.in_(list(changed)), ddl.table.c.schema_id == 0, ddl.table.c.end_snapshot.is_(None)
            )
        ).all()
    )
    return [
        _commit(conn, table, names[table], seen, column.get(names[table]))
        for table, seen in changed.items()
        if table in names
    ]


def _commit(
    conn: Connection, table: int, name: str, seen: Sequence[tuple[int, int]], column: str | None
) -> OthersCommit:
    file, gone = ddl.data_file.c, ddl.delete_file.c
    numbers = [number for number, _ in seen]
    deleted = select(gone.data_file_id).where(gone.table_id == table, gone.begin_snapshot.in_(numbers))
    concerned = or_(file.begin_snapshot.in_(numbers), file.end_snapshot.in_(numbers), file.data_file_id.in_(deleted))
    rows = conn.execute(select(ddl.data_file).where(file.table_id == table, concerned)).all()
    files = [
        DataFile(
            row.path,
            0,
            row.record_count,
            row.file_size_bytes,
            row.footer_size or 0,
            id=row.data_file_id,
            begin=row.begin_snapshot,
        )
        for row in rows
    ]
    if column is not None:
        files = described(conn, table, files, column)
    append = (
        all(row.begin_snapshot in numbers and row.end_snapshot is None for row in rows)
        and not conn.execute(deleted.limit(1)).first()
    )
    return OthersCommit(name, numbers[-1], seen[-1][1], append, tuple(files))


def place(conn: Connection, partitions: dict[int, int]) -> None:
    """In which partition files of others lie."""
    own = ddl.own_file.c
    for file, start in partitions.items():
        conn.execute(
            update(ddl.own_file).where(own.data_file_id == file, own.partition_us.is_(None)).values(partition_us=start)
        )
