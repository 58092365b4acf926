"""The state of a project as the store has it: what `status`, `explain` and a restarting process begin with."""

from __future__ import annotations

from penstock.control.snapshot import FORMAT, load
from penstock.control.state import State
from penstock.store.store import Store


def restored_state(store: Store, known: State | None = None) -> State:
    """The last saved state, or the one that is known already, with everything folded in that the log has since."""
    with store.read() as conn:
        state = known
        if state is None:
            saved = store.saved_state(conn)
            state = load(saved[1]) if saved is not None and saved[1].get("format") == FORMAT else State()
        return state.fold(store.events(conn, state.applied))
