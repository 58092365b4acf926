"""A queue before a table: the first reason to update it opens a window in which further ones are collected, so that one
update brings them all (Xu, Gao, Davidson 2023, Sec. 4.1). For a base table reasons are files and what is asked for, for a
view late changes; new rows at its edge never wait, nor does what a query waits for.

The window is as long as the table says (`queue`), but puts no target below and no deadline of a request at risk.
"""

from __future__ import annotations

from penstock.control.sharing import below, latest_start_us, share_us
from penstock.control.state import State
from penstock.control.tablestate import TableState
from penstock.requests.needs import Piece


def closes_us(state: State, table: TableState) -> int | None:
    """When the window closes that is open now; None if there is none."""
    length = table.table.queue_us
    if not length or not table.exists or table.table.name in state.awaited:
        return None
    late = [Piece(*piece) for piece in table.needs.pieces() if piece[2].late]
    arrived = next((file.arrived_us for file in table.files.values()), None)
    times = [piece.need.known_us for piece in late] + ([arrived] if arrived is not None else [])
    if not times:
        return None
    opened = min(times)
    chain = below(state, table.table.name)
    limits = [opened + length, *(latest_start_us(state, piece, chain) for piece in late)]
    if arrived is not None and chain is not None and (share := share_us(state, chain)) is not None:
        limits.append(arrived + share)
    return min(limits)
