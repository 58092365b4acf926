"""How much an update reads: what came since the last one; and, of partitions that are made from nothing, all that they are made from.
What it takes is learned against that, and what is long by that is cut."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.control.state import State
from penstock.model.grain import WHOLE
from penstock.model.partitions import EVERYTHING
from penstock.requests.job import FeedFile
from penstock.requests.needs import Piece, partitions_of
from penstock.requests.tablestate import TableState


def pending_bytes(state: State, table: TableState) -> float:
    """All that is pending of a table."""
    pieces = [Piece(*piece) for piece in table.needs.pieces()]
    if table.table.is_base:
        return of_load(table, tuple(table.files.values()), pieces)
    return of_view(state, table, pieces, table.amount)


def of_view(state: State, table: TableState, pieces: Sequence[Piece], news: float) -> float:
    """An update of a view: with `news` bytes that its sources added."""
    again = [piece for piece in pieces if not piece.need.append]
    if not again:
        return news
    reads = _sources(state, table, again)
    # What is new is part of what is read, where all is made from nothing.
    return (reads or news) if len(again) == len(pieces) else news + reads


def of_load(table: TableState, files: Sequence[FeedFile], pieces: Sequence[Piece]) -> float:
    """A load of files; with partitions that it makes again from all files, the corrected ones among them."""
    new = sum(file.size_bytes for file in files)
    if not pieces and table.anew != "rows":
        return new
    corrected = sum(file.size_bytes for file in files if file.uri in table.again)
    where = EVERYTHING if table.anew == "rows" else partitions_of(list(pieces))
    return new - corrected + max(corrected, table.volume.within(table.has_us, where) * table.volume.inflation)


def _sources(state: State, table: TableState, pieces: Sequence[Piece]) -> float:
    made = partitions_of(list(pieces))
    total = 0.0
    for edge in state.graph.into[table.table.name]:
        source = state.tables[edge.source]
        if edge.source == edge.table or not source.exists:
            continue
        timed = state.graph.has_time[edge.source] and edge.map.source is not WHOLE
        total += source.volume.within(source.has_us, edge.map.required(made) if timed else EVERYTHING)
    return total
