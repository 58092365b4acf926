"""The newest snapshot, who made it, and what to do when that was not us.

DuckDB may write to the same catalogue. `penstock_head` remembers the last snapshot and file number of ours,
so that a look at one row tells whether anybody else wrote since, and everything they added has a higher
number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, func, insert, literal, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError

from penstock.errors import PenstockError
from penstock.tables import ddl
from penstock.tables.types import Conflict

_LOCK_KEY = 0x70656E73746F636B  # "penstock"
_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
_RETRYABLE_STATES = ("40001", "40P01", "55P03")


@dataclass(frozen=True, slots=True)
class Head:
    snapshot: int
    schema_version: int
    next_catalog_id: int
    next_file_id: int
    own_snapshot: int
    own_next_file_id: int


_HEAD = (
    select(
        ddl.snapshot.c.snapshot_id,
        ddl.snapshot.c.schema_version,
        ddl.snapshot.c.next_catalog_id,
        ddl.snapshot.c.next_file_id,
        select(ddl.own_head.c.snapshot_id).where(ddl.own_head.c.id == 1).scalar_subquery(),
        select(ddl.own_head.c.next_file_id).where(ddl.own_head.c.id == 1).scalar_subquery(),
    )
    .order_by(ddl.snapshot.c.snapshot_id.desc())
    .limit(1)
)


def read_head(conn: Connection) -> Head:
    row = conn.execute(_HEAD).first()
    if row is None:
        raise PenstockError("the catalogue has no snapshot: call Catalogue.create first")
    return Head(*row)


def lock(conn: Connection) -> None:
    """Writers of ours wait for each other instead of colliding. SQLite does that by BEGIN IMMEDIATE, the
    caller's part.

    DuckDB does not know this lock; against it there is the primary key of `ducklake_snapshot`.
    """
    if conn.dialect.name == "postgresql":
        conn.execute(_LOCK, {"key": _LOCK_KEY})


@contextmanager
def conflicts() -> Iterator[None]:
    """Turns the database's ways to say "someone was faster" into `Conflict`."""
    try:
        yield
    except IntegrityError as error:
        if "ducklake_snapshot" not in str(error.orig):
            raise
        raise Conflict("another writer published first. Roll back and publish again.") from error
    except OperationalError as error:
        state = getattr(error.orig, "sqlstate", None)
        if state not in _RETRYABLE_STATES and "locked" not in str(error.orig):
            raise
        raise Conflict(
            "the catalogue is locked by another writer. Roll back and try again (on SQLite begin with BEGIN IMMEDIATE)."
        ) from error


def adopt(conn: Connection, head: Head) -> None:
    """Take note of what others did since our last snapshot. Costs one comparison when they did nothing.

    Which partition their files belong to is not known (NULL): such a file is part of every partition for
    readers, and ends only with the whole table.
    """
    if head.snapshot == head.own_snapshot:
        return
    theirs = ddl.data_file
    noted = select(ddl.own_file.c.data_file_id).where(ddl.own_file.c.data_file_id == theirs.c.data_file_id)
    conn.execute(
        insert(ddl.own_file).from_select(
            ["data_file_id", "table_id", "content_snapshot", "end_snapshot", "physical"],
            select(
                theirs.c.data_file_id,
                theirs.c.table_id,
                func.coalesce(theirs.c.partial_max, theirs.c.begin_snapshot),
                theirs.c.end_snapshot,
                literal(""),
            ).where(theirs.c.data_file_id >= head.own_next_file_id, ~noted.exists()),
        )
    )
    ended = select(theirs.c.end_snapshot).where(theirs.c.data_file_id == ddl.own_file.c.data_file_id)
    conn.execute(
        update(ddl.own_file)
        .where(
            ddl.own_file.c.data_file_id.in_(
                select(theirs.c.data_file_id).where(theirs.c.end_snapshot > head.own_snapshot)
            )
        )
        .values(end_snapshot=ended.scalar_subquery())
    )
    conn.execute(
        update(ddl.own_head)
        .where(ddl.own_head.c.id == 1)
        .values(snapshot_id=head.snapshot, next_file_id=head.next_file_id)
    )
