"""Commands about the past of tables: versions, diff."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import (
    JsonOption,
    ProjectOption,
    errors_told,
    open_warehouse,
    out,
    print_json,
    tell_zone,
    working,
)
from penstock.cli.render import shown_value
from penstock.model.grain import zone_of
from penstock.model.time import SECOND_US, format_instant

if TYPE_CHECKING:
    from penstock.engine.desk.history import PastVersion, TableDifference

# How many partitions and files of one version are named.
_FEW = 3


def register(app: typer.Typer) -> None:
    app.command()(versions)
    app.command()(diff)


def versions(
    table: Annotated[str, typer.Argument(help="The table.")],
    partition: Annotated[
        str | None, typer.Argument(help="Only versions that changed this: 2026-03-02, 2026-03, A..B.")
    ] = None,
    project: ProjectOption = Path(),
    limit: Annotated[int, typer.Option(help="Show at most so many.", min=1)] = 20,
    json: JsonOption = False,
) -> None:
    """What each version of a table contains: which inputs, which files, which partitions, and why it was made."""
    with errors_told(), open_warehouse(project) as warehouse:
        found = warehouse.versions(table, partition, limit=limit)
        if json:
            print_json(found)
            return
        zone = zone_of(warehouse.declared.zone)
        if not found:
            what = f" that changed {partition}" if partition else ""
            out.print(f"`{table}` has no version{what} yet; `penstock explain {table}` says what it waits for")
            return
        shown = Table(box=None, header_style="bold", pad_edge=False)
        shown.add_column("version", justify="right")
        for column in ("made", "complete up to", "from", "changed", "why"):
            shown.add_column(column)
        for one in found:
            edge = _instant(one.complete_us, zone) if one.complete_us is not None else ""
            number = Text(str(one.version), style="" if one.kept else "dim strike")
            shown.add_row(number, _instant(one.at_us, zone), edge, _made_from(one), _changed(one, zone), one.why)
        out.print(shown)
        if any(one.reflects is None for one in found):
            out.print("[dim]* between two states of its sources: no consistent read uses it[/]")
        if not all(one.kept for one in found):
            out.print("[dim]crossed out: its rows are no longer kept (keep_versions, keep_days)[/]")
        tell_zone(zone)


def diff(
    table: Annotated[str, typer.Argument(help="The table.")],
    before: Annotated[str, typer.Argument(help="A version, or a time: 17, 2026-03-02T10:00.")],
    after: Annotated[str, typer.Argument(help="Another one.")],
    project: ProjectOption = Path(),
    key: Annotated[str, typer.Option(help="Columns, with commas, that say which row is which.")] = "",
    limit: Annotated[int, typer.Option(help="Show at most so many rows.", min=0)] = 20,
    json: JsonOption = False,
) -> None:
    """How a table at one version differs from another: rows that came and went, and in which partitions."""
    keys = [name.strip() for name in key.split(",") if name.strip()]
    with errors_told(), open_warehouse(project) as warehouse:
        with working("Starting Spark"):
            _ = warehouse.spark
        with working("Comparing"):
            found = warehouse.diff(table, before, after, key=keys, limit=limit)
        if json:
            print_json(found)
            return
        zone = zone_of(warehouse.declared.zone)
        if found.same:
            out.print(f"`{table}` has the same rows at versions {found.before} and {found.after}")
            return
        _tell(found, zone, limit)


def _tell(found: TableDifference, zone: tzinfo, limit: int) -> None:
    changed = f"; {found.changed:,} keys have one other row instead of one" if found.changed is not None else ""
    counts = f"{found.added:,} rows more, {found.removed:,} rows less{changed}"
    out.print(f"{found.table} at version {found.after} against {found.before}: {counts}")
    for what, names in (("new columns", found.columns_added), ("columns gone", found.columns_removed)):
        if names:
            out.print(f"{what}: {', '.join(names)}")
    if found.partitions:
        shown = Table(box=None, header_style="bold", pad_edge=False)
        shown.add_column("partition")
        for column in ("more", "less"):
            shown.add_column(column, justify="right")
        for one in found.partitions:
            shown.add_row(format_instant(one.start_us, zone), f"{one.added:,}", f"{one.removed:,}")
        out.print(shown)
    if found.rows:
        rows = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("", *found.columns):
            rows.add_column(column)
        for count, row in found.rows:
            style = "green" if count > 0 else "red"
            rows.add_row(Text(f"{count:+d}", style=style), *(shown_value(value) for value in row))
        out.print(rows)
        if len(found.rows) == limit:
            out.print(f"[dim]only the first {limit} rows; more with --limit[/]")
    tell_zone(zone)


def _instant(at_us: int, zone: tzinfo) -> str:
    return format_instant(at_us // SECOND_US * SECOND_US, zone)


def _made_from(one: PastVersion) -> str:
    said = [f"{source} {number}" for source, number in one.inputs.items()]
    said += _first([Path(uri).name for uri in one.files], "files")
    said += [f"without {name}" for name in _first([Path(uri).name for uri in one.withdrawn], "files")]
    return ", ".join(said) + ("" if one.reflects is not None else " *")


def _changed(one: PastVersion, zone: tzinfo) -> str:
    return ", ".join(_first([f"{_instant(low, zone)}.." for low, _ in one.partitions], "stretches"))


def _first(names: list[str], what: str) -> list[str]:
    more = len(names) - _FEW
    return names if more <= 0 else [*names[:_FEW], f"{more} more {what}"]
