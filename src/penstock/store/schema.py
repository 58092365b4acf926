"""The SQL tables of Penstock's own state. They live in the same database as the table catalogue, so that one
transaction can publish data, append the event and record what follows."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, TypeAdapter
from sqlalchemy import BigInteger, Column, Connection, Index, Integer, MetaData, Table, Text, inspect, text

from penstock.control.events import Event, OfFeed, OfTable, UpdateStarted

FORMAT = 5

metadata = MetaData()

# SQLite only gives out row numbers for the exact type INTEGER.
_Number = BigInteger().with_variant(Integer, "sqlite")

event = Table(
    "penstock_event",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("at_us", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text),  # the table or feed concerned
    Column("body", Text, nullable=False),
    Index("penstock_event_subject", "subject", "kind", "number"),
)

# Every file ever seen, by name: loading is idempotent because a name and checksum that stand here are known.
file = Table(
    "penstock_file",
    metadata,
    Column("feed", Text, primary_key=True),
    Column("uri", Text, primary_key=True),
    Column("checksum", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("mtime_ns", BigInteger, nullable=False),
    # pending, loaded (by a table at least), quarantined, withdrawn, unread (gone or locked when wanted)
    Column("status", Text, nullable=False),
    Column("arrived_us", BigInteger, nullable=False),
    Column("reason", Text),
    # The number of this content, and what orders it among files that state the same partitions.
    Column("id", BigInteger, nullable=False, server_default="0"),
    Column("order_key", Text, nullable=False, server_default=""),
)

# Which content of a file each table holds, and of which event times: a feed may fill several tables, each at its own pace.
loaded = Table(
    "penstock_loaded",
    metadata,
    Column("table_name", Text, primary_key=True),
    Column("uri", Text, primary_key=True),
    Column("feed", Text, nullable=False),
    # Which content: one that comes again after another is a new arrival.
    Column("checksum", Text, nullable=False),
    Column("arrived_us", BigInteger, nullable=False),
    # The first and last event time of its rows; null if it brought none. And the stretches of time that have some, as JSON.
    Column("min_us", BigInteger),
    Column("max_us", BigInteger),
    Column("spans", Text),
    # The number of the content; 0 for one that was loaded before rows knew their file.
    Column("file_id", BigInteger, nullable=False, server_default="0"),
    # Its format then, and a fingerprint of the options; empty if nobody knows.
    Column("reading", Text, nullable=False, server_default=""),
    # What the table was complete up to when it came, and how many of its rows were set aside as late.
    Column("late_us", BigInteger),
    Column("late_rows", BigInteger, nullable=False, server_default="0"),
    Index("penstock_loaded_range", "table_name", "min_us", "max_us"),
    Index("penstock_loaded_file", "feed", "uri"),
)

# What each publication of a table contains, for consistent reads.
version = Table(
    "penstock_version",
    metadata,
    Column("table_name", Text, primary_key=True),
    Column("snapshot", BigInteger, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("complete_us", BigInteger),
    Column("reflects", Text),  # JSON; null when between two states of its sources
    Column("job", Text, nullable=False),
)

state = Table(
    "penstock_state",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)

# Small facts that are set once or replaced as a whole: format, owner of the running process, fixed schemas of feeds.
fact = Table(
    "penstock_fact",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

# Who may ask queries over the network, as whom. The token itself is not here, only a hash of it.
token = Table(
    "penstock_token",
    metadata,
    Column("id", Text, primary_key=True),
    Column("profile", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger),
)


# Stores that an older Penstock wrote, made as the present one wants them.


def upgrade(conn: Connection, found: int) -> None:
    if found < 2:
        _loaded_by_table(conn)
    if found < 3:
        _numbered_files(conn)
    if found < 4:
        _digests(conn)
    if found < 5:
        _late_rows(conn)


def _late_rows(conn: Connection) -> None:
    """Format 4 did not know which rows came late."""
    _add(conn, "penstock_loaded", "late_us BIGINT", "late_rows BIGINT NOT NULL DEFAULT 0")


def _numbered_files(conn: Connection) -> None:
    """Format 2 did not number the contents of files. Rows of then do not know theirs: what holds them has the number 0."""
    numbered = _add(conn, "penstock_file", "id BIGINT NOT NULL DEFAULT 0", "order_key TEXT NOT NULL DEFAULT ''")
    _add(
        conn,
        "penstock_loaded",
        "spans TEXT",
        "file_id BIGINT NOT NULL DEFAULT 0",
        "reading TEXT NOT NULL DEFAULT ''",
    )
    if not numbered:
        return
    files = conn.execute(text("SELECT feed, uri FROM penstock_file ORDER BY arrived_us, feed, uri")).all()
    for number, (feed, uri) in enumerate(files, 1):
        where = {"id": number, "feed": feed, "uri": uri}
        conn.execute(text("UPDATE penstock_file SET id = :id WHERE feed = :feed AND uri = :uri"), where)
    conn.execute(
        text("INSERT INTO penstock_fact (name, value) VALUES ('next file', :next)"), {"next": str(len(files) + 1)}
    )


def _digests(conn: Connection) -> None:
    """Format 3 did not keep what tells whether rows are the same. Of files of then it is not known."""
    if inspect(conn).has_table("penstock_data_file"):
        _add(conn, "penstock_data_file", "digest VARCHAR")


def _add(conn: Connection, table: str, *columns: str) -> bool:
    """Add the columns that a table lacks: one that is new as a whole has them. Gives whether it lacked any."""
    known = {column["name"] for column in inspect(conn).get_columns(table)}
    missing = [column for column in columns if column.split()[0] not in known]
    for column in missing:
        conn.execute(text(f"ALTER TABLE {table} ADD COLUMN {column}"))
    return bool(missing)


def _loaded_by_table(conn: Connection) -> None:
    """Format 1 knew of each feed, not of each table, what is loaded. Content that was rewritten is known by its times only."""
    newest = "SELECT body FROM penstock_event WHERE kind = 'warehouse-declared' ORDER BY number DESC LIMIT 1"
    body = conn.execute(text(newest)).scalar_one_or_none()
    if body is None:
        return
    for table in json.loads(body)["tables"]:
        if table["feed"] is not None:
            conn.execute(
                text(
                    "INSERT INTO penstock_loaded (table_name, uri, feed, checksum, arrived_us, min_us, max_us) "
                    "SELECT :table, uri, feed, CASE status WHEN 'loaded' THEN checksum ELSE '' END, arrived_us, min_us, max_us "
                    "FROM penstock_file WHERE feed = :feed AND (status = 'loaded' OR min_us IS NOT NULL)"
                ),
                {"table": table["name"], "feed": table["feed"]},
            )


# Events as JSON. The types of the core are the schema; nothing is written twice.

_adapter: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def encode(event: Event) -> str:
    return _adapter.dump_json(event).decode()


def decode(body: str) -> Event:
    return _adapter.validate_json(body)


def subject(event: Event) -> str | None:
    """The table or feed an event is about, for look-ups."""
    if isinstance(event, UpdateStarted):
        return event.job.table
    if isinstance(event, OfTable):
        return event.table or None
    return event.feed if isinstance(event, OfFeed) else None
