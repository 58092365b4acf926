"""The columns of feeds: declared, or inferred from the first files and fixed from then on."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

from pyspark.sql import SparkSession
from sqlalchemy import Connection

from penstock.control.events import FeedFile
from penstock.declare.warehouse import Warehouse
from penstock.engine.links import Links
from penstock.engine.load import infer_schema
from penstock.model.schema import Schema, ddl, parse_ddl
from penstock.store import schema as tables
from penstock.store.store import Store


def fact_name(feed: str) -> str:
    return f"schema of feed {feed}"


def inferred_schemas(store: Store, conn: Connection, feeds: list[str]) -> dict[str, Schema]:
    found = {}
    for feed in feeds:
        text = store.fact(conn, fact_name(feed))
        if text is not None:
            found[feed] = parse_ddl(text)
    return found


class FeedSchemas:
    def __init__(self, warehouse: Warehouse, store: Store) -> None:
        self._warehouse = warehouse
        self._store = store
        self._known: dict[str, Schema] = dict(warehouse.feed_schemas)
        self._lock = threading.Lock()

    def known(self, feed: str) -> Schema | None:
        return self._known.get(feed)

    def fixed(self, session: SparkSession) -> Callable[[str], Schema | None]:
        """Look-up for loads, which infers where nothing is known yet."""

        def find(feed: str) -> Schema | None:
            with self._lock:
                if feed not in self._known:
                    self._known[feed] = self._infer(session, feed)
                return self._known[feed]

        return find

    def _infer(self, session: SparkSession, feed: str) -> Schema:
        declaration = self._warehouse.feeds[feed]
        with self._store.read() as conn:
            rows = conn.execute(
                tables.file.select()
                .where(tables.file.c.feed == feed, tables.file.c.status == "pending")
                .order_by(tables.file.c.arrived_us)
                .limit(20)
            )
            files = [FeedFile(row.uri, row.checksum, row.size_bytes, row.arrived_us) for row in rows]
        folder = self._warehouse.declarations.folder
        links = Links(self._warehouse.declarations.state_folder / "reading" / uuid.uuid4().hex)
        try:
            place = links.place()
            paths = [place.link(folder / f.uri, n, f".{declaration.config.format}") for n, f in enumerate(files)]
            schema = infer_schema(session, declaration, paths)
        finally:
            links.clear()
        with self._store.write() as conn:
            self._store.set_fact(conn, fact_name(feed), ddl(schema))
        return schema
