"""What is declared now, and which settings are others than when the project was last run."""

from __future__ import annotations

import json

from sqlalchemy import Connection

from penstock.control.events import WarehouseDeclared
from penstock.declare.effects import changes, settings_of
from penstock.declare.warehouse import Warehouse
from penstock.queries.situation import Updates
from penstock.store.store import Store

_FACT = "settings"


def declared(
    warehouse: Warehouse,
    store: Store,
    conn: Connection,
    now_us: int,
    updates: Updates = "always",
    *,
    remember: bool = False,
) -> WarehouseDeclared:
    """The event; with `remember` its settings are those that the next is compared with."""
    declarations, settings = warehouse.declarations, settings_of(warehouse)
    before = json.loads(store.fact(conn, _FACT) or "{}")
    if remember:
        store.set_fact(conn, _FACT, json.dumps(settings))
    return WarehouseDeclared(
        now_us,
        tuple(warehouse.graph.feeds.values()),
        tuple(warehouse.graph.tables.values()),
        declarations.tracks,
        declarations.config.run.policy,
        updates,
        changes(before, settings),
    )
