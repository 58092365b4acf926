"""What is declared now, and which settings are others than when the project was last run."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from sqlalchemy import Connection

from penstock.control.controller import Controller
from penstock.control.events import WarehouseDeclared
from penstock.control.snapshot import FORMAT, load
from penstock.control.state import State
from penstock.declare.effects import changes, settings_of
from penstock.declare.keyed import KEYED
from penstock.declare.spark_settings import cores_of
from penstock.declare.warehouse import Definitions
from penstock.errors import PenstockError
from penstock.queries.situation import Updates
from penstock.store.store import Store

_FACT = "settings"
_log = logging.getLogger(__name__)


def declared(
    warehouse: Definitions,
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
    _keep_archived_rows(warehouse, store, conn, before)
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
        cores_of(declarations.config.spark),
    )


def _keep_archived_rows(warehouse: Definitions, store: Store, conn: Connection, before: Mapping[str, str]) -> None:
    """With keys a feed has its rows in another table than without, which is made from its files: so they must be there."""
    for name, feed in warehouse.feeds.items():
        was, now = before.get(f"feeds.{name}.mode", "append"), feed.config.mode
        if f"feeds.{name}" not in before or (was in KEYED) == (now in KEYED):
            continue
        held = store.held(conn, f"{name}_changes" if was in KEYED else name)
        uris = [row.uri for row in store.delivered(conn, name) if row.uri in held]
        gone = [uri for uri in uris if not (warehouse.declarations.folder / uri).exists()]
        if gone:
            also = f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
            raise PenstockError(
                f"feed `{name}`: mode was {was} and is {now} now, so its rows go into another table, which is made from its files; but "
                f"{gone[0]} is no longer there{also}, and its rows would be lost: put it back, take it out with `penstock withdraw`, or "
                f'write mode = "{was}" again'
            )


# The state of a project as the store has it: what `status`, `explain` and a restarting process begin with.


def restored_controller(store: Store) -> Controller:
    """The last saved state with its policy, which sees everything that the log has since: so it goes on as if there had been no
    other process."""
    with store.read() as conn:
        saved = store.saved_state(conn)
        good = saved is not None and saved[1].get("format") == FORMAT
        controller = Controller(load(saved[1]) if saved is not None and good else None)
        for number, event in store.events(conn, controller.state.applied):
            controller.apply(event, number)
    former = controller.state.declaration.former_policy
    if former:
        _log.warning(
            "the project was last run with policy = %r, which is no longer known; in its place: %r",
            former,
            controller.state.policy,
        )
    return controller


def restored_state(store: Store, known: State | None = None) -> State:
    """The last saved state, or the one that is known already, with everything folded in that the log has since."""
    with store.read() as conn:
        state = known
        if state is None:
            saved = store.saved_state(conn)
            state = load(saved[1]) if saved is not None and saved[1].get("format") == FORMAT else State()
        return state.fold(store.events(conn, state.applied))
