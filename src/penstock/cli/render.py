"""Tables for people. Colours say what needs attention; the words say it too."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

from rich.table import Table
from rich.text import Text

from penstock.control.views.status import TableStatus
from penstock.model.time import SECOND_US, format_duration, format_instant

_DOING = {
    "idle": "dim",
    "pending": "yellow",
    "running": "cyan",
    "ordered": "cyan",
    "retrying": "magenta",
    "failed": "bold red",
    "empty": "dim",
}


_COLUMNS = {
    "table": "left",
    "complete up to": "left",
    "staleness": "right",
    "target": "right",
    "now": "left",
    "pending": "left",
    "runs": "right",
    "merged": "right",
    "rows": "right",
    "refused": "left",
}


# What goes first where the screen is too narrow for everything.
_SPARE = ("merged", "rows", "runs", "target", "pending")
_GAP = 2


def brief_duration(seconds: float) -> str:
    """Seconds while they are few, for comparing; else the two largest units.

    >>> brief_duration(37.1234), brief_duration(5400)
    ('37.12 s', '1h 30m')
    """
    return f"{seconds:.4g} s" if abs(seconds) < 1000 else format_duration(round(seconds * SECOND_US))


def plain_number(value: float, digits: int = 4) -> str:
    """Without powers of ten, however large.

    >>> plain_number(37.1234), plain_number(223_123_456.7), plain_number(0.0123, 2)
    ('37.12', '223,123,457', '0.012')
    """
    return f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:,.0f}"


def status_table(rows: Sequence[TableStatus], zone: tzinfo = UTC, width: int | None = None) -> Table:
    """One line a table. Columns that would say nothing are left out, and those that matter least where `width` is short:
    half a time helps nobody."""
    cells = [_cells(row, zone) for row in rows]
    widths = {name: max([len(name), *(len(line[name]) for line in cells)]) for name in _COLUMNS}
    shown = [
        name
        for name in _COLUMNS
        if name in ("table", "now") or any(str(line[name]) not in ("", "-", "0") for line in cells)
    ]
    for name in _SPARE:
        if width is not None and sum(widths[column] + _GAP for column in shown) - _GAP > width and name in shown:
            shown.remove(name)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in shown:
        table.add_column(name, justify=_COLUMNS[name], no_wrap=True)  # type: ignore[arg-type]
    for line in cells:
        table.add_row(*(line[name] for name in shown))
    return table


def _cells(row: TableStatus, zone: tzinfo) -> dict[str, Text]:
    return {
        "table": Text(row.table, style="bold" if row.kind == "base" else ""),
        "complete up to": Text(
            _edge(row.complete_us, zone) if row.as_of_us is None else f"as of {_edge(row.as_of_us, zone)}"
        ),
        "staleness": _staleness(row),
        "target": Text(format_duration(row.target_us) if row.target_us is not None else "-"),
        "now": Text(row.doing, style=_DOING[row.doing]),
        "pending": Text(_pending(row)),
        "runs": Text(str(row.updates)),
        "merged": Text(str(row.merged)),
        "rows": Text(f"{row.rows:,}"),
        "refused": _refused(row),
    }


def _edge(complete_us: int | None, zone: tzinfo) -> str:
    """An edge lies just behind the last record; people want the second."""
    return format_instant(complete_us if complete_us is None else complete_us // SECOND_US * SECOND_US, zone)


def _staleness(row: TableStatus) -> Text:
    if row.staleness_us is None:
        return Text("-", style="dim")
    style = "" if row.met is None else "green" if row.met else "bold red"
    mark = "" if row.met is None else " ok" if row.met else " late"
    return Text(format_duration(row.staleness_us) + mark, style=style)


def _pending(row: TableStatus) -> str:
    parts = []
    if row.pending_files:
        parts.append(f"{row.pending_files} file{'s' * (row.pending_files > 1)}")
    if row.pending_partitions:
        parts.append(f"{row.pending_partitions:,} partition{'s' * (row.pending_partitions > 1)}")
    return ", ".join(parts)


def _refused(row: TableStatus) -> Text:
    parts = []
    if row.quarantined_files:
        parts.append(f"{row.quarantined_files} file{'s' * (row.quarantined_files > 1)}")
    if row.quarantined_rows:
        late = f" ({row.late_rows:,} late)" if row.late_rows else ""
        parts.append(f"{row.quarantined_rows:,} row{'s' * (row.quarantined_rows > 1)}{late}")
    return Text(", ".join(parts), style="yellow")


def result_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(shown_value(value) for value in row))
    return table


def shown_value(value: Any) -> str:
    """Times as clocks show them; with the offset where clocks show it twice."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        twice = value.utcoffset() != value.replace(fold=1 - value.fold).utcoffset()
        return str(value if twice else value.replace(tzinfo=None))
    return "" if value is None else str(value)


def format_size(size_bytes: int) -> str:
    shown, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if shown < 1024:
            break
        shown, unit = shown / 1024, larger
    return f"{shown:,.0f} B" if unit == "B" else f"{shown:,.1f} {unit}"
