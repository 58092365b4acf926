"""Old versions go: each table keeps so many, or so many days, and whatever a reader has pinned."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.declare.warehouse import Warehouse
from penstock.model.time import DAY_US, HOUR_US
from penstock.store.store import Store
from penstock.tables import Catalogue

_HOLDER = "running jobs"


def expire(warehouse: Warehouse, store: Store, catalogue: Catalogue, now_us: int, pins: Sequence[int]) -> list[str]:
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
