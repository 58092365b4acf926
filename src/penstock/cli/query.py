"""`penstock query`: read consistently, and say how fresh and how soon."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import tzinfo
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from penstock.cli.common import (
    JsonOption,
    ProjectOption,
    err,
    errors_told,
    open_warehouse,
    out,
    print_json,
    tell_zone,
    working,
)
from penstock.cli.render import result_table
from penstock.errors import PenstockError
from penstock.model.grain import zone_of
from penstock.model.time import SECOND_US, format_duration, format_instant
from penstock.queries.outcome import DeadlineMissed, Rejected, Stale

if TYPE_CHECKING:
    from penstock.app import Warehouse
    from penstock.engine.desk.answer import Answer
    from penstock.engine.desk.versions import QueryResult

NEXT = 'penstock query "select …"'
# There is no answer, as the contract could not be kept.
NOT_ANSWERED = 4


# What makes no sense for the past.
_OF_NOW = ("within", "fresh", "lag", "stale", "weights")


class OnStale(StrEnum):
    mark = "mark"
    withhold = "withhold"


def register(app: typer.Typer) -> None:
    app.command()(query)
    app.command()(queries)


def query(
    sql: Annotated[str, typer.Argument(help="One SELECT over tables of the project.")],
    project: ProjectOption = Path(),
    limit: Annotated[int, typer.Option(help="Show at most so many rows.", min=1)] = 100,
    within: Annotated[str | None, typer.Option(help="A firm deadline, such as 2s.")] = None,
    fresh: Annotated[str | None, typer.Option(help="No older than this, such as 30s.")] = None,
    lag: Annotated[int | None, typer.Option(help="At most so many arrived updates missing.", min=0)] = None,
    consistent: Annotated[
        bool | None, typer.Option("--consistent/--any", help="All tables as of one state, or each at its newest.")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="The profile whose contract and share hold.")] = None,
    stale: Annotated[OnStale | None, typer.Option(help="What to do with an answer that is not fresh enough.")] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="What outcomes are worth, such as rejected=0.5,missed=2: a gain for success, else penalties."
        ),
    ] = None,
    replica: Annotated[str | None, typer.Option(help="Read at this replica, from what is there.")] = None,
    at: Annotated[str | None, typer.Option(help="As of a version or a time: 17, 2026-03-02T10:00.")] = None,
    json: JsonOption = False,
) -> None:
    """Read consistently: all tables at versions that reflect the same state of their sources."""
    with errors_told(), open_warehouse(project) as warehouse:
        said: dict[str, Any] = {
            "within": within,
            "fresh": fresh,
            "lag": lag,
            "consistent": consistent,
            "stale": stale.value if stale is not None else None,
            "weights": _weights(weights),
        }
        # What can be said without Spark is said at once.
        try:
            warehouse.contract(profile, **said)
        except PenstockError as error:
            raise typer.BadParameter(str(error)) from None
        if at is not None and (replica is not None or any(said[name] is not None for name in _OF_NOW)):
            raise typer.BadParameter("--at reads the past: it goes with --limit, --any and --json only")
        if replica is None:
            warehouse.understand(sql)
        answer = _asked_beside(warehouse, sql, limit, profile, said) if replica is None and at is None else None
        if answer is None:
            with working("Starting Spark"):
                if replica is None and at is None:
                    warehouse.front.prepare(1)()
                else:
                    _ = warehouse.spark
        zone = zone_of(warehouse.declared.declarations.config.zone)
        if replica is not None or at is not None:
            with working("Running"):
                if at is not None:
                    copied = warehouse.query_at(sql, at, limit=limit, consistent=consistent is not False)
                else:
                    copied = warehouse.query_replica(str(replica), sql, limit=limit)
            if json:
                print_json(copied)
            else:
                _tell_rows(copied, limit, warehouse.clock.now_us(), zone)
            return
        if answer is None:
            with working("Running"):
                answer = warehouse.query(sql, limit=limit, profile=profile, **said)
        if json:
            rows = {
                "columns": answer.columns,
                "types": answer.types,
                "rows": answer.rows,
                "truncated": answer.truncated,
            }
            print_json({**rows, **answer.plain()})
        else:
            _tell(answer, limit, warehouse.clock.now_us(), zone)
        if not answer.is_answered:
            raise typer.Exit(NOT_ANSWERED)


def queries(project: ProjectOption = Path(), json: JsonOption = False) -> None:
    """How queries fared so far: satisfaction, what the policy goes by, and whether predicted chances came true."""
    from penstock.engine.desk.keeper import query_report

    with errors_told(), open_warehouse(project) as warehouse:
        report = query_report(warehouse.store)
        if report is None:
            raise PenstockError(f"nobody asked anything yet; type `{NEXT}`")
        told = report.plain()
        if json:
            print_json(told)
            return
        out.print(f"{told['queries']:,} queries, policy {report.policy}, satisfaction {told['usm']:.3f} a query")
        out.print("  " + ", ".join(f"{name} {told[name]:.3f}" for name in ("S", "R", "F_m", "F_s")))
        out.print("  " + ", ".join(f"{part:.0%} {name}" for name, part in told["endings"].items()))
        for name, value in report.figures.items():
            out.print(f"  {name} {value:.3g}")
        for band in told["reliability"]:
            many = f"{band['queries']:,} queries"
            out.print(f"  {many} had a chance of {band['predicted']:.0%} to succeed: {band['came']:.0%} did")


def _asked_beside(
    warehouse: Warehouse, sql: str, limit: int, profile: str | None, said: dict[str, Any]
) -> Answer | None:
    """The answer of the process that runs the project, if there is one; it has a Spark already."""
    from penstock.service.local_queries import ask_beside

    with ExitStack() as shown:
        begun = partial(shown.enter_context, working("Running in the process that keeps the tables fresh"))
        return ask_beside(warehouse, sql, limit, profile, said, begun)


def _weights(text: str | None) -> dict[str, float] | None:
    from penstock.declare.contracts import parse_weights

    try:
        return None if text is None else parse_weights(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _tell_rows(answer: Answer | QueryResult, limit: int, now_us: int, zone: tzinfo, lag: int | None = None) -> None:
    if answer.columns:
        out.print(result_table(answer.columns, answer.rows))
        if answer.truncated:
            out.print(f"[dim]only the first {limit} rows; more with --limit[/]")
    if answer.complete_us:
        age = format_duration(max(0, now_us - answer.complete_us))
        upto = format_instant(answer.complete_us // SECOND_US * SECOND_US, zone)
        missing = f"; {lag} arrived update{'s are' if lag != 1 else ' is'} not in it" if lag else ""
        what = "complete up to" if answer.final else "as of"
        out.print(f"[dim]{what} {upto} {zone}, {age} ago{missing}[/]")
    elif "timestamp" in answer.types:
        tell_zone(zone)
    if not answer.consistent:
        out.print("[yellow]the tables are not of one state: each is at its newest version[/]")


def _tell(answer: Answer, limit: int, now_us: int, zone: tzinfo) -> None:
    _tell_rows(answer, limit, now_us, zone, answer.lag)
    for rows in answer.waiting:
        out.print(Text(f"{rows.table}: {rows.said(zone)}", style="yellow"))
    match answer.outcome:
        case Stale(withheld=withheld):
            what = "withheld, as the contract says" if withheld else "not as fresh as asked for"
            err.print(Text(f"stale: {what}", style="yellow"))
        case DeadlineMissed(after_us=after):
            err.print(Text(f"deadline missed: cancelled after {format_duration(after)}", style="red"))
        case Rejected() as rejected:
            err.print(Text(f"rejected: {rejected.why}", style="red"))
            for hint in _would_do(rejected):
                err.print(f"  {hint}")


def _would_do(rejected: Rejected) -> list[str]:
    """What would have been accepted."""
    found = []
    if rejected.acceptable_within_us is not None:
        found.append(
            f"it would be accepted with --within {format_duration(rejected.acceptable_within_us).replace(' ', '')}"
        )
    need = rejected.acceptable_freshness
    if need is not None:
        age = f" --fresh {format_duration(need.age_us).replace(' ', '')}" if need.age_us is not None else ""
        lag = f" --lag {need.lag}" if need.lag is not None else ""
        found.append(f"it would be accepted with{age}{lag}")
    return found
