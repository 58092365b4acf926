"""Old versions go: each table keeps so many, or so many days, and whatever a reader has pinned."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from penstock.declare.warehouse import Definitions
from penstock.errors import PenstockError
from penstock.model.time import DAY_US, HOUR_US
from penstock.store.store import Store
from penstock.tables import Catalogue

_HOLDER = "running jobs"


def expire(warehouse: Definitions, store: Store, catalogue: Catalogue, now_us: int, pins: Sequence[int]) -> list[str]:
    """Forget what retention allows; returns the files to delete."""
    paths: list[str] = []
    default = warehouse.declarations.config.storage
    with store.write() as conn:
        if catalogue.is_held(conn, now_us):
            return []  # a backup is being made
        for pin in pins:
            catalogue.pin(conn, pin, _HOLDER, now_us + HOUR_US)
        for name, definition in warehouse.definitions.items():
            config = definition.declaration.config
            keep, days = config.keep_versions, config.keep_days
            if keep is None and days is None:
                keep, days = default.keep_versions, default.keep_days
            older = now_us - int(days * DAY_US) if days is not None else None
            if keep is not None or older is not None:
                paths += catalogue.expire(conn, name, keep, older, now_us)
                store.forget_versions(conn, name, keep, older)
        paths += catalogue.expire_snapshots(conn, now_us)
        catalogue.unpin(conn, _HOLDER)
    return paths


# Whether the data files are there, asked before anything is read or run.

_FACT = "missing files"


class FilesMissing(PenstockError):
    """Files that the catalogue lists are not there."""


def check_presence(store: Store, catalogue: Catalogue) -> None:
    """Refuse if live files are missing, among all of them or, of many, some: `penstock verify` looks at all."""
    with store.read() as conn:
        found = catalogue.missing_files(conn, frozenset(missed(store, conn))).files
    if not found:
        return
    with store.read() as conn:
        # What was replaced meanwhile may be gone by right.
        live = catalogue.still_live(conn, [file.id for file in found])
    gone = [file for file in found if file.id in live]
    if gone:
        tables = sorted({file.table for file in gone})
        names = ", ".join(tables[:3]) + (f" and {len(tables) - 3} more tables" if len(tables) > 3 else "")
        raise FilesMissing(
            f"data files of {names} are missing ({len(gone)} were looked for in vain), such as {gone[0].path}.\n"
            "Put them back; `penstock verify` lists them all, `penstock verify --repair` has made again what can be."
        )


def missed(store: Store, conn: Connection) -> list[int]:
    """Files that are known to be missing, and whose partitions are to be made again."""
    found: list[int] = json.loads(store.fact(conn, _FACT) or "[]")
    return found


def note_missed(store: Store, conn: Connection, files: Collection[int]) -> None:
    store.set_fact(conn, _FACT, json.dumps(sorted(files)))
