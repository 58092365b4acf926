"""Stores that an older Penstock wrote, made as the present one wants them."""

from __future__ import annotations

import json

from sqlalchemy import Connection, inspect, text


def upgrade(conn: Connection, found: int) -> None:
    if found < 2:
        _loaded_by_table(conn)
    if found < 3:
        _numbered_files(conn)


def _numbered_files(conn: Connection) -> None:
    """Format 2 did not number the contents of files. Rows of then do not know theirs: what holds them has the number 0."""
    known = {column["name"] for column in inspect(conn).get_columns("penstock_file")}
    if "id" in known:
        return
    for table, column in (
        ("penstock_file", "id BIGINT NOT NULL DEFAULT 0"),
        ("penstock_file", "order_key TEXT NOT NULL DEFAULT ''"),
        ("penstock_loaded", "spans TEXT"),
        ("penstock_loaded", "file_id BIGINT NOT NULL DEFAULT 0"),
        ("penstock_loaded", "reading TEXT NOT NULL DEFAULT ''"),
    ):
        conn.execute(text(f"ALTER TABLE {table} ADD COLUMN {column}"))
    files = conn.execute(text("SELECT feed, uri FROM penstock_file ORDER BY arrived_us, feed, uri")).all()
    for number, (feed, uri) in enumerate(files, 1):
        where = {"id": number, "feed": feed, "uri": uri}
        conn.execute(text("UPDATE penstock_file SET id = :id WHERE feed = :feed AND uri = :uri"), where)
    conn.execute(
        text("INSERT INTO penstock_fact (name, value) VALUES ('next file', :next)"), {"next": str(len(files) + 1)}
    )


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
