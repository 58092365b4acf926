"""`penstock simulate` on the project's own log, `penstock tune` and `penstock timeline`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from os import cpu_count
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import (
    JsonOption,
    ProjectOption,
    err,
    errors_told,
    open_warehouse,
    out,
    parse_numbers,
    parse_seeds,
    print_json,
    tell_zone,
    watched,
    working,
)
from penstock.cli.render import brief_duration, plain_number
from penstock.declare.settings import write_settings
from penstock.errors import PenstockError
from penstock.model.grain import zone_of
from penstock.model.graph import Graph
from penstock.model.time import SECOND_US, format_duration, format_instant, parse_duration
from penstock.queries.outcome import Tally
from penstock.queries.policies import DEFAULT, POLICIES, find_query_policy
from penstock.sim.figure import Line, Panel, check_picture, write_chart
from penstock.sim.outcome import Row, average, grouped
from penstock.sim.timeline import timeline as timeline_of
from penstock.sim.timeline import write_timeline
from penstock.sim.whatif.advice import CANDIDATES, Advice, advise, compare, recorded, too_short
from penstock.sim.whatif.queries import as_it_was, past_desks, replayed
from penstock.sim.whatif.recording import Recording
from penstock.sim.whatif.replay import Changes, Replay, parse_changes


def register(app: typer.Typer) -> None:
    app.command()(whatif)
    app.command()(tune)
    app.command()(timeline)


def whatif(
    queries: Annotated[
        list[str],
        typer.Option("--queries", help="What is other about them: policy=unit (several with commas, or all), lanes=3."),
    ],
    project: ProjectOption = Path(),
    json: JsonOption = False,
) -> None:
    """The queries of the log again, under other policies or with other lanes: how they would have ended."""
    with errors_told(), open_warehouse(project) as warehouse:
        names, lanes = _changes_of_queries(queries)
        with warehouse.store.read() as conn:
            desks = past_desks(event for _, event in warehouse.store.events(conn))
        if not desks:
            raise PenstockError("there are no queries in the log; `penstock query` or `penstock serve` takes some")
        declared = warehouse.declared
        settings = declared.declarations.config.queries.unit
        tallies = {"as it was": sum(map(as_it_was, desks), Tally())}
        refreshed = any(find_query_policy(desk.setup.policy).refreshes for desk in desks)
        for name in dict.fromkeys([*(desk.setup.policy for desk in desks), *names]):
            tallies[name] = sum(
                (replayed(desk, find_query_policy(name, settings), name, declared.graph, lanes) for desk in desks),
                Tally(),
            )
    if json:
        rows = [{"policy": name, "usm": tally.usm, **asdict(tally)} for name, tally in tallies.items()]
        print_json([{**row, "at_most": _is_bound(row["policy"], refreshed)} for row in rows])
        return
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("policy", "satisfaction", "S", "R", "F_m", "F_s", "success", "rejected", "missed", "stale"):
        shown.add_column(column, justify="left" if column == "policy" else "right")
    for name, tally in tallies.items():
        parts = (tally.gained, tally.cost_rejected, tally.cost_missed, tally.cost_stale)
        counts = (tally.success, tally.rejected, tally.missed, tally.stale)
        worth = (f"{one / max(1, tally.queries):.3f}" for one in parts)
        most = "at most " if _is_bound(name, refreshed) else ""
        shown.add_row(name, f"{most}{tally.usm:.3f}", *worth, *(f"{one:,}" for one in counts))
    out.print(shown)
    text = "Runs take as long as they took; each query needs the updates that it needed then. The first two rows show how well that holds."
    out.print(Text(text, style="dim"))
    if any(_is_bound(name, refreshed) for name in tallies):
        text = "At most: it refreshes nothing for queries, and would have left stale what was refreshed then."
        out.print(Text(text, style="dim"))


def _is_bound(name: str, refreshed: bool) -> bool:
    return refreshed and name in POLICIES and not find_query_policy(name).refreshes


def _changes_of_queries(given: Sequence[str]) -> tuple[list[str], int | None]:
    names: list[str] = []
    lanes: int | None = None
    for one in given:
        key, _, value = one.partition("=")
        if key == "policy":
            names += POLICIES if value == "all" else value.split(",")
        elif key == "lanes" and value.isdecimal() and 1 <= int(value) <= 1000:
            lanes = int(value)
        else:
            raise PenstockError(f"--queries {one}: expected policy=NAME or lanes=NUMBER")
    for name in names:
        try:
            find_query_policy(name)
        except ValueError as error:
            raise PenstockError(f"--queries: {error}") from None
    return [DEFAULT if name == "default" else name for name in names], lanes


def simulate_log(
    project: Path,
    policies: Sequence[str],
    tracks: str | None,
    seeds: str,
    volume: float,
    outages: Sequence[str],
    additions: Sequence[str],
    jobs: int | None,
    plot: Path | None,
    gantt: Path | None,
    json: bool,
) -> None:
    """The recorded log under other policies, tracks, and mishaps."""
    recording = read_recording(project)
    declared = recording.declared
    names = list(policies) or list(dict.fromkeys([declared.policy, *CANDIDATES]))
    counts = [declared.tracks] if tracks is None else parse_numbers(tracks, "--tracks")
    changes = parse_changes(declared, volume, outages, additions)
    for outage in changes.outages:
        if outage.start_us >= recording.end_us - recording.start_us:
            length = format_duration(recording.end_us - recording.start_us)
            raise PenstockError(f"--outage {outage}: it begins after the end of the log, which is {length} long")
    count, results = compare(recording, names, counts, parse_seeds(seeds), changes, project, jobs)
    rows = [row for some in watched(results, count) for row in some]
    advice = advise(rows, declared.policy, keep=too_short(recording))
    if json:
        print_json({"recorded": recorded(recording), "runs": rows, "advice": advice})
    else:
        _say_world(recording, changes)
        out.print(_runs_table(recording, rows, advice))
        out.print()
        out.print(_tables_table(recording, rows, advice))
        _say_advice(recording, advice, names, counts)
    if plot is not None:
        _plot(plot, recording, rows)
    if gantt is not None:
        run = Replay(recording, advice.policy, advice.tracks, changes, keep_log=True).run()
        write_timeline(gantt, f"{advice.policy}, {advice.tracks} tracks", timeline_of(run.log, recording.start_us))
        err.print(f"written to {gantt}")


def tune(
    project: ProjectOption = Path(),
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="A policy to try; a choice of all kinds by default.")
    ] = None,
    tracks: Annotated[str | None, typer.Option(help="Numbers of tracks to try: 1..4, or 2,4,8.")] = None,
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 5, 1..5, 3,7.")] = "3",
    write: Annotated[bool, typer.Option("--write", help="Set what was found in penstock.toml.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Processes; all cores by default.", min=1)] = None,
    json: JsonOption = False,
) -> None:
    """Which policy and how many tracks to choose, from the project's own log."""
    with errors_told():
        recording = read_recording(project)
        declared = recording.declared
        names = list(policy or []) or list(dict.fromkeys([declared.policy, *CANDIDATES]))
        counts = parse_numbers(tracks or f"1..{max(4, cpu_count() or 1, declared.tracks)}", "--tracks")
        numbers = parse_seeds(seeds)
        count, results = compare(recording, names, counts, numbers, Changes(), project, jobs)
        rows = [row for some in watched(results, count) for row in some]
        advice = advise(rows, declared.policy, keep=too_short(recording))
        if json:
            print_json({"recorded": recorded(recording), "runs": rows, "advice": advice, "written": write})
        else:
            _say_world(recording, Changes())
            out.print(_grid(rows, counts, advice))
            _say_advice(recording, advice, names, counts, tell_command=not write)
        if write:
            path = write_settings(project, "run", {"tracks": advice.tracks, "policy": advice.policy})
            err.print(f"written to {path}; it holds from the next `penstock run` on")


def timeline(
    project: ProjectOption = Path(),
    since: Annotated[str, typer.Option(help="How far back, such as 10m or 2h.")] = "1h",
    plot: Annotated[Path | None, typer.Option(help="Draw tracks and staleness as SVG, PNG or PDF.")] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="Only these tables.")] = None,
    json: JsonOption = False,
) -> None:
    """What ran when on which track, and why; with --plot as a chart with the staleness of the tables."""
    with errors_told():
        if plot is not None:
            check_picture(plot)
        with open_warehouse(project) as warehouse, warehouse.store.read() as conn:
            zone = zone_of(warehouse.declared.declarations.config.zone)
            try:
                back_us = parse_duration(since)
            except ValueError as error:
                raise PenstockError(f"--since {since}: {error}") from None
            events = [event for _, event in warehouse.store.events(conn)]
        found = timeline_of(events, (max(e.at_us for e in events) - back_us) if events else None)
        wanted = set(table or [])
        if unknown := wanted - set(found.priorities):
            raise PenstockError(f"there is no table `{sorted(unknown)[0]}` in this project")
        if wanted:
            found = replace(found, bars=tuple(bar for bar in found.bars if bar.table in wanted))
        if json:
            print_json(found.bars)
        else:
            shown = Table(box=None, header_style="bold", pad_edge=False)
            lines = []
            for bar in found.bars:
                took = "runs" if bar.end_us is None else format_duration(bar.end_us - bar.start_us)
                how = Text("failed", style="red") if bar.failed else Text(bar.how)
                start = format_instant(bar.start_us // SECOND_US * SECOND_US, zone)
                lines.append((start, str(bar.track), bar.table, took, how, Text(bar.why, style="dim")))
            for number, column in enumerate(("start", "track", "table", "took", "how")):
                widest = max((len(line[number]) for line in lines), default=0)
                shown.add_column(column, no_wrap=True, min_width=max(widest, len(column)))
            # In full where there is room for it, or where it is asked for.
            brief = out.width < 140 and not wanted
            shown.add_column("because it", no_wrap=brief, overflow="ellipsis" if brief else "fold")
            for line in lines:
                shown.add_row(*line)
            out.print(shown if found.bars else "nothing ran in that time")
            if found.bars:
                tell_zone(zone)
        if plot is not None:
            write_timeline(plot, "updates", found, tuple(table or ()))
            err.print(f"written to {plot}")


def read_recording(project: Path) -> Recording:
    """The log of a project, with what is declared now: tables that are new are part of what is tried."""
    with open_warehouse(project) as warehouse, working("Reading the log"):
        return warehouse.recording()


def _say_world(recording: Recording, changes: Changes) -> None:
    crowd = recording.crowding
    known = "as measured" if crowd.measured else "assumed"
    text = (
        f"{format_duration(int(recording.seconds) * SECOND_US)} of the log: {len(recording.arrivals):,} arrivals, "
        f"{recording.updates:,} updates. An update beside another takes {1 + crowd.growth:.2f} times as long ({known})."
    )
    out.print(Text(text, style="dim"))
    planned = Graph(recording.declared.feeds, recording.declared.tables).updated_as
    new = [name for name, known_as in planned.items() if known_as not in recording.costs]
    if new:
        out.print(Text(f"no update on record, cost guessed from others: {', '.join(sorted(new))}", style="yellow"))
    if recording.is_short:
        out.print(Text("so few updates tell little of policies; ask again when it has run for longer", style="yellow"))
    guessed = sorted(name for name, cost in recording.costs.items() if cost.seen < 0.5)
    if changes.volume != 1 and guessed:
        text = "what more data cost shows too little in updates of so similar sizes, and is guessed: "
        out.print(Text(text + ", ".join(guessed), style="yellow"))
    parts = [f"{changes.volume:g} times the volume"] if changes.volume != 1 else []
    parts += [f"{o.feed or 'all feeds'} out for {format_duration(o.end_us - o.start_us)}" for o in changes.outages]
    parts += [f"{len(changes.like)} more tables"] if changes.like else []
    if parts:
        out.print(f"with {', '.join(parts)}")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value * 100:.0f} %"


def _runs_table(recording: Recording, rows: list[Row], advice: Advice) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    shown.add_column("policy", overflow="fold")
    for column in ("tracks", "weighted staleness", "relative lateness", "targets met", "in use", "updates"):
        shown.add_column(column, justify="right", min_width=max(map(len, column.split())))
    was = recorded(recording)
    shown.add_row(
        Text(f"as it was: {was['policy']}", style="dim"),
        str(was["tracks"]),
        f"{plain_number(was['weighted_staleness_s'])} s",
        "",
        _share(was["targets_met"]),
        f"{was['utilisation']:.2f}",
        str(was["updates"]),
    )
    for (policy, tracks), some in grouped(rows, "policy", "tracks"):
        stale, error = average(some, "weighted_staleness_s")
        chosen = (policy, tracks) == (advice.policy, advice.tracks)
        shown.add_row(
            Text(policy, style="bold green" if chosen else ""),
            str(tracks),
            f"{plain_number(stale)} ± {plain_number(error, 2)} s",
            f"{average(some, 'relative_lateness')[0]:.3f}",
            _share(None if some[0]["targets_met"] is None else average(some, "targets_met")[0]),
            f"{average(some, 'utilisation')[0]:.2f}",
            f"{average(some, 'updates')[0]:.0f}",
        )
    return shown


def _tables_table(recording: Recording, rows: list[Row], advice: Advice) -> Table:
    """Every table against its target: as it was, and with what is advised."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    shown.add_column("table")
    for column in ("target", "as it was", "in target", "advised", "in target", "peak"):
        shown.add_column(column, justify="right")
    best = [row for row in rows if (row["policy"], row["tracks"]) == (advice.policy, advice.tracks)]
    was = {table.table: table for table in recording.freshness}
    for name in best[0]["staleness_s"]:
        now = [{"s": row["staleness_s"][name], "p": row["peak_s"][name], "m": row["met"][name]} for row in best]
        target = best[0]["target_s"][name]
        share = None if now[0]["m"] is None else average(now, "m")[0]
        then = was.get(name)
        shown.add_row(
            name,
            "" if target is None else format_duration(round(target * SECOND_US)),
            "" if then is None else brief_duration(then.mean_s),
            _share(then.met if then else None),
            brief_duration(average(now, "s")[0]),
            Text(_share(share), style="" if share is None or share > 0.99 else "yellow"),
            brief_duration(average(now, "p")[0]),
        )
    return shown


def _grid(rows: list[Row], counts: Sequence[int], advice: Advice) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    shown.add_column("weighted staleness, and targets met, with tracks:")
    for count in counts:
        shown.add_column(str(count), justify="right")
    for (policy,), some in grouped(rows, "policy"):
        cells = []
        for (count,), at in sorted(grouped(some, "tracks")):
            often = "" if at[0]["targets_met"] is None else f", {_share(average(at, 'targets_met')[0])}"
            style = "bold green" if (policy, count) == (advice.policy, advice.tracks) else ""
            cells.append(Text(f"{plain_number(average(at, 'weighted_staleness_s')[0])} s{often}", style=style))
        shown.add_row(Text(policy), *cells)
    return shown


def _say_advice(
    recording: Recording, advice: Advice, names: Sequence[str], counts: Sequence[int], tell_command: bool = True
) -> None:
    tried_present = recording.declared.policy in names and recording.declared.tracks in counts
    same = (advice.policy, advice.tracks) == (recording.declared.policy, recording.declared.tracks)
    verb = "Keep" if same else "Choose"
    if not tried_present:
        verb = "Of these, choose" if len(names) * len(counts) > 1 else "Tried only"
    out.print(f"\n[bold]{verb}[/] ", end="")
    out.print(Text(f'policy = "{advice.policy}", tracks = {advice.tracks}', style="bold green"))
    if advice.why:
        out.print(Text(advice.why, style="dim"))
    if not tried_present:
        now = _run(recording.declared.policy, recording.declared.tracks)
        out.print(Text(f"what you have, {now}, was not among them", style="dim"))
    if tell_command and not same:
        out.print(Text("`penstock tune --write` sets what it finds best in penstock.toml", style="dim"))


def _plot(path: Path, recording: Recording, rows: list[Row]) -> None:
    names = list(rows[0]["staleness_s"])
    # Tables that are new or added were not there.
    was = {table.table: table.mean_s for table in recording.freshness}
    then = tuple((float(number), was[name], 0.0) for number, name in enumerate(names) if name in was)
    lines = [Line(f"as it was: {_run(recording.declared.policy, recording.declared.tracks)}", then, "D")]
    for (policy, tracks), some in grouped(rows, "policy", "tracks"):
        points = []
        for number, name in enumerate(names):
            mean, error = average([{"s": row["staleness_s"].get(name, 0.0)} for row in some], "s")
            points.append((float(number), mean, error))
        lines.append(Line(_run(policy, tracks), tuple(points)))
    targets = [(float(n), t, 0.0) for n, name in enumerate(names) if (t := rows[0]["target_s"][name]) is not None]
    if targets:
        lines.append(Line("target", tuple(targets), across=True))
    panel = Panel("", tuple(lines))
    write_chart(path, "what if", "table", "mean staleness", [panel], log=True, durations=True, labels=names)
    err.print(f"written to {path}")


def _run(policy: str, tracks: int) -> str:
    return f"{policy}, {tracks} track{'s' if tracks > 1 else ''}"
