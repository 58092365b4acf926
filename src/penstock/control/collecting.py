"""A queue before a table: the first reason to update it opens a window in which further ones are collected, so that one
update brings them all (Xu, Gao, Davidson 2023, Sec. 4.1). For a base table reasons are files and what is asked for, for a
view late changes; new rows at its edge never wait, nor does what a query waits for.

How long a window is open is said (`queue_us`), or follows from the targets below (0); in both cases no target below, nor
the deadline of a request, is put at risk by it.
"""

from __future__ import annotations

from penstock.control.sharing import below, latest_start_us, share_us
from penstock.control.state import State
from penstock.control.tablestate import TableState
from penstock.model.time import END_US
from penstock.requests.needs import Piece


def closes_us(state: State, table: TableState) -> int | None:
    """When the window closes that is open now; None if there is none."""
    length = table.table.queue_us
    if length is None or not table.exists or table.table.name in state.awaited:
        return None
    pieces = [Piece(*piece) for piece in table.needs.pieces() if piece[2].late]
    if table.table.is_base:
        times = [piece.need.at_us for piece in pieces]
        times += [file.arrived_us for file in table.files.values()][:1]
        opened = min(times, default=None)
    else:
        opened = table.queued_us
    if opened is None:
        return None
    chain = below(state, table.table.name)
    share = share_us(state, chain) if chain is not None else None
    closes = opened + length if length else opened + share if share is not None and table.table.is_base else END_US
    if table.table.is_base and share is not None:
        closes = min(closes, opened + share)
    closes = min([closes, *(latest_start_us(state, piece, chain) for piece in pieces)])
    return closes if opened < closes < END_US else None
