"""`penstock bounds`: what is proven of freshness before anything happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import tzinfo
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import JsonOption, ProjectOption, errors_told, open_warehouse, out, print_json, tell_zone
from penstock.control.audit import Audit, Margin, audited
from penstock.control.promises import Void
from penstock.control.views.health import clock
from penstock.model.grain import zone_of
from penstock.model.time import SECOND_US, format_duration, format_instant, parse_duration
from penstock.scheduling.recovery.guarantees import BoundsReport, Guarantee, Violation
from penstock.scheduling.recovery.proposal import Proposal

_COLOUR = {
    "proven": "green",
    "expected": "green",
    "assumed": "yellow",
    "not proven": "bold red",
    "no target": "dim",
    "best effort": "dim",
}


def register(app: typer.Typer) -> None:
    app.command()(bounds)


def bounds(
    project: ProjectOption = Path(),
    outage: Annotated[
        str | None, typer.Option(help="How long feeds are out, such as 2h: when is all recovered?")
    ] = None,
    tracks: Annotated[int | None, typer.Option(help="Other than the project says.", min=1)] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Whether the log kept what was promised, and by what margin.")
    ] = False,
    proposed: Annotated[
        bool, typer.Option("--propose", help="With --outage: recovery periods with which all have recovered sooner.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """How stale each table can become and how long recovery can take; which freshness targets that proves."""
    with errors_told():
        length_us = _duration(outage)
        if verify:
            _verify(project, json)
            return
        if proposed and length_us is None:
            raise typer.BadParameter("--propose: after how long an outage? for example --outage 2h")
        with open_warehouse(project) as warehouse:
            found = warehouse.bounds(length_us, tracks)
            report, violated, state = found.report, found.violated, found.state
            proposal = warehouse.recovery_proposal(found, length_us) if proposed and length_us is not None else None
        if proposed:
            _tell_proposal(proposal, outage or "", json)
            return
    if json:
        print_json(
            {
                **asdict(report),
                "policy": found.policy,
                "violated": [asdict(each) for each in violated],
                "void": {name: asdict(each) for name, each in state.void.items()},
            }
        )
    else:
        now_us, zone = warehouse.clock.now_us(), zone_of(warehouse.declared.declarations.config.zone)
        _print(report, [*void_lines(state.void, now_us, zone), *violation_lines(violated)])
        if state.void:
            tell_zone(zone)


def _verify(project: Path, json: bool) -> None:
    """Hold every update and every table of the log against what was promised of it then."""
    with open_warehouse(project) as warehouse:
        zone = zone_of(warehouse.declared.declarations.config.zone)
        with warehouse.store.read() as conn:
            audit = audited(warehouse.store.events(conn))
    if json:
        margins = [asdict(margin) for margin in audit.margins.values()]
        broken = [asdict(each) for each in audit.broken]
        print_json({"margins": margins, "voided": [asdict(each) for each in audit.voided], "broken": broken})
    else:
        _print_audit(audit, zone)
    if audit.broken:
        raise typer.Exit(1)


def _print_audit(audit: Audit, zone: tzinfo) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("table")
    for column in ("updates", "tardy", "response", "behind", "recovery"):
        table.add_column(column, justify="right", no_wrap=True)
    for name in sorted({margin.table for margin in audit.margins.values()}):
        found = {what: margin for (one, what), margin in audit.margins.items() if one == name}
        parts = (found.get(what) for what in ("tardiness", "response", "staleness", "recovery"))
        updates = str(found["response"].times) if "response" in found else "-"
        table.add_row(name, updates, *("-" if part is None else f"{part.used:.0%}" for part in parts))
    if audit.margins:
        out.print(table)
        out.print(Text("the largest part of each bound that was ever used, while it was promised", style="dim"))
    else:
        out.print("nothing was promised in this log: `penstock bounds` says why")
    for (because, names), count in Counter((event.because, event.tables) for event in audit.voided).items():
        times = f" ({count} times)" if count > 1 else ""
        out.print(Text(f"void{times}: {', '.join(names)}: {because}", style="yellow"))
    for each in audit.broken:
        when = format_instant(each.at_us // SECOND_US * SECOND_US, zone)
        if isinstance(each, Margin):
            said = f"{each.table}: {each.used:.0%} of what was promised of its {each.what}"
        else:
            said = each.because
        out.print(Text(f"{when}: {said}", style="bold red"))
    if audit.broken:
        tell_zone(zone)
    if audit.margins and not audit.broken:
        out.print("every promise was kept, or was told to be void before", style="green")


def _tell_proposal(found: Proposal | None, outage: str, json: bool) -> None:
    if json:
        print_json({"proposal": asdict(found) if found is not None else None})
        return
    if found is None:
        out.print("no end of a recovery is proven, so there is nothing to compare: `penstock bounds` says why")
        return
    if (found.would_miss, found.would_us) >= (found.missed, found.mean_us):
        out.print("no recovery periods were found with which all have recovered sooner than with those of now")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("table")
    for column in ("recovers in", "would in", "recovery", "write"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in found.tables:
        times = (format_duration(us) if us is not None else "-" for us in (each.recovers_us, each.would_us))
        new = f'recovery = "{_plain(each.proposed_us)}"' if each.proposed_us != each.recovery_us else ""
        table.add_row(each.table, *times, format_duration(each.recovery_us), new)
    out.print(table)
    said = f"after an outage of {outage} of all feeds, by priority: {format_duration(round(found.would_us))} on average, {format_duration(round(found.mean_us))} as it is"
    kept = f"; {found.missed - found.would_miss} more targets proven" if found.would_miss < found.missed else ""
    out.print(Text(said + kept, style="dim"))


def _plain(duration_us: int) -> str:
    return format_duration(duration_us).replace(" ", "")


def _duration(text: str | None) -> int | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"--outage {text}: {error}") from None


def _print(report: BoundsReport, lines: list[Text]) -> None:
    style = "green" if report.fits else "bold red"
    known = all(found.cost_us is not None for found in report.guarantees)
    used = f"{report.utilisation:.2f}" if known else "not known"
    out.print(
        Text.assemble(
            "load ", (used, style if known else "yellow"), f" of {report.tracks} tracks, {report.provision} case"
        )
    )
    out.print(_table(report, out.width >= 110))
    reasons: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for found in report.guarantees:
        if found.verdict == "not proven":
            reasons.setdefault((found.breaks, found.remedies), []).append(found.table)
    out.print(Text(f"{report.certainty}, if {'; '.join(report.assumes)}", style="dim"))
    for (breaks, remedies), tables in reasons.items():
        out.print(Text.assemble((", ".join(tables), "bold"), f": {breaks}"))
        for remedy in remedies:
            out.print(Text(f"  {remedy}"))
    if report.all_recovered_us is not None and report.outage_us is not None:
        text = f"all feeds out for {format_duration(report.outage_us)}: every table has recovered {format_duration(report.all_recovered_us)} after their return at the latest"
        out.print(Text(text))
    for line in lines:
        out.print(line)


def void_lines(void: Mapping[str, Void], now_us: int, zone: tzinfo) -> list[Text]:
    """Tables of which nothing is promised now, by the reason."""
    reasons: dict[tuple[int, str], list[str]] = {}
    for name, found in void.items():
        reasons.setdefault((found.since_us, found.because), []).append(name)
    return [
        Text(f"guarantee of {', '.join(names)} void since {clock(since_us, now_us, zone)}: {because}", style="yellow")
        for (since_us, because), names in reasons.items()
    ]


def violation_lines(violated: Sequence[Violation]) -> list[Text]:
    """Tables that are staler than was proven, by the assumption that failed."""
    reasons: dict[str, list[str]] = {}
    for found in violated:
        behind, proven = format_duration(found.staleness_us // SECOND_US * SECOND_US), format_duration(found.bound_us)
        text = f"{found.table} ({behind} behind, {proven} proven)"
        reasons.setdefault(f"{found.assumption}: {found.said}", []).append(text)
    return [
        Text(f"staler than was proven: {', '.join(tables)}: {reason}", style="red")
        for reason, tables in reasons.items()
    ]


def _table(report: BoundsReport, wide: bool) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("table")
    columns = ["period", "cost", "load", "tardy by", "response", "behind by", "target"]
    if not wide:
        del columns[3:5]
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    if report.outage_us is not None:
        table.add_column("recovers in", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for found in report.guarantees:
        table.add_row(*_row(found, report.outage_us is not None, wide))
    return table


def _row(found: Guarantee, outage: bool, wide: bool) -> list[Any]:
    bound = found.bound
    shown: list[int | None] = [None] * 3
    if bound is not None:
        shown = [bound.tardiness_us, bound.response_us, bound.staleness_us]
    if not wide:
        del shown[:2]
    cells: list[Any] = [
        found.table,
        format_duration(found.period_us),
        Text("not known", style="yellow") if found.cost_us is None else format_duration(found.cost_us),
        "-" if found.utilisation is None else f"{found.utilisation:.2f}",
        *("-" if value is None else format_duration(value) for value in shown),
        "-" if found.target_us is None else format_duration(found.target_us),
    ]
    if outage:
        cells.append("-" if found.recovery_us is None else format_duration(found.recovery_us))
    cells.append(Text(found.verdict, style=_COLOUR[found.verdict]))
    return cells
