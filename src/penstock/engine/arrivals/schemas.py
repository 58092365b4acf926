"""The columns of feeds: declared, or inferred from the first files and fixed from then on."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from penstock.declare.warehouse import Definitions
from penstock.engine.spark.links import Links
from penstock.errors import PenstockError
from penstock.model.schema import Schema, ddl, parse_ddl
from penstock.requests.job import FeedFile
from penstock.store import schema as tables
from penstock.store.store import Store, feed_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# From how many files columns are inferred.
_FIRST = 20


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
    """Inferred columns go on record in the transaction of the first load that used them, and stay. To change them, declare
    `columns`."""

    def __init__(self, warehouse: Definitions, store: Store) -> None:
        self._warehouse = warehouse
        self._store = store
        self._known: dict[str, Schema] = {
            name: warehouse.feed_schemas[name]
            for name, feed in warehouse.feeds.items()
            if feed.config.columns is not None and name in warehouse.feed_schemas
        }
        # Inferred, but not on record: with the files from which.
        self._guessed: dict[str, tuple[list[FeedFile], Schema]] = {}
        self._lock = threading.Lock()

    def known(self, feed: str) -> Schema | None:
        if feed not in self._known:
            with self._store.read() as conn:
                self._known |= inferred_schemas(self._store, conn, [feed])
        return self._known.get(feed)

    def fixed(self, session: SparkSession) -> Callable[[str], Schema | None]:
        """Look-up for loads, which infers where nothing is known yet."""

        def find(feed: str) -> Schema | None:
            with self._lock:
                return self.known(feed) or self._infer(session, feed)

        return find

    def record(self, conn: Connection, feed: str) -> None:
        """The feed's first rows are being published: from now on its columns are these."""
        if feed in self._known or feed not in self._guessed:
            return
        guessed = ddl(self._guessed[feed][1])
        found = self._store.fact(conn, fact_name(feed))
        if found is None:
            self._store.set_fact(conn, fact_name(feed), guessed)
        elif found != guessed:
            raise PenstockError(f"the columns of feed `{feed}` were fixed by another process meanwhile")

    def _infer(self, session: SparkSession, feed: str) -> Schema:
        declaration = self._warehouse.feeds[feed]
        folder = self._warehouse.declarations.folder
        own = tables.file.c
        with self._store.read() as conn:
            rows = conn.execute(
                tables.file.select()
                .where(own.feed == feed, own.status.in_(["pending", "loaded"]), own.size_bytes > 0)
                .order_by(own.arrived_us, own.mtime_ns, own.uri)
            )
            there = (feed_file(row) for row in rows)
            files = list(islice((file for file in there if (folder / file.uri).exists()), _FIRST))
        if not files:
            raise PenstockError(
                f"the columns of feed `{feed}` are not known yet, and none of its files is there any more"
            )
        if feed in self._guessed and self._guessed[feed][0] == files:
            return self._guessed[feed][1]
        from penstock.engine.updates.load import (
            infer_schema,  # with Spark; commands that only look at columns need none
        )

        links = Links(self._warehouse.declarations.state_folder / "reading" / uuid.uuid4().hex)
        try:
            schema = infer_schema(session, declaration, folder, files, links)
        finally:
            links.clear()
        self._guessed[feed] = (files, schema)
        return schema
