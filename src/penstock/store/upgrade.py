"""Stores that an older Penstock wrote, made as the present one wants them."""

from __future__ import annotations

import json

from sqlalchemy import Connection, text


def upgrade(conn: Connection, found: int) -> None:
    if found < 2:
        _loaded_by_table(conn)


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
