"""Scenario files. Every setting is checked, and what is wrong is told with its name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from penstock.model.time import SECOND_US, parse_duration
from penstock.model.timetable import parse_timetable
from penstock.sim.scenario import Backfill, Outage, Scenario, ScenarioError, SimTable, Slowdown


def _seconds(value: Any) -> Any:
    return parse_duration(value) / SECOND_US if isinstance(value, str) else value


def _timetable(value: str) -> str:
    if value:
        parse_timetable(value)
    return value


Seconds = Annotated[float, BeforeValidator(_seconds)]
Positive = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class _Table(_Strict):
    # So many alike, numbered; each derived one reads the source of its own number if that is numbered as well.
    count: Annotated[int, Field(ge=1)] = 1
    sources: tuple[str, ...] = ()
    period: Positive = 60.0
    phase: Seconds | None = None
    priority: Annotated[float, Field(ge=0)] = 1.0
    alpha: Annotated[float, BeforeValidator(_seconds), Field(ge=0)] = 1.0
    beta: Annotated[float, Field(ge=0)] = 0.1
    arrivals: Literal["periodic", "jittered", "bursty", "traced"] = "periodic"
    arrival_jitter: Annotated[float, Field(ge=0, le=1)] = 0.5
    burst: Annotated[int, Field(ge=1)] = 4
    trace: tuple[Seconds, ...] = ()
    late_share: Share = 0.0
    late: Seconds = 0.0
    # How long late work may wait for a newer change, and when old data are stated anew (it begins at 00:00 of a Thursday).
    patience: Seconds | None = None
    restated: Annotated[str, AfterValidator(_timetable)] = ""


class _Slowdown(_Strict):
    factor: Annotated[float, Field(ge=1)] = 3.0
    cycle: Positive = 2000.0
    share: Share = 0.5


class _Outage(_Strict):
    start: Seconds
    end: Seconds
    table: str | None = None


class _Backfill(_Strict):
    at: Seconds
    table: str
    start: Seconds
    end: Seconds


class _Scenario(_Strict):
    name: str = "scenario"
    tracks: Annotated[int, Field(ge=1)] = 4
    horizon: Positive = 100_000.0
    jitter: Share = 0.0
    failures: Share = 0.0
    costs: Literal["known", "learned"] = "known"
    partition: str = "day"
    policies: tuple[str, ...] = ()
    slowdown: _Slowdown | None = None
    outages: tuple[_Outage, ...] = ()
    backfills: tuple[_Backfill, ...] = ()
    tables: dict[str, _Table]


def read_scenario(path: Path) -> tuple[Scenario, tuple[str, ...]]:
    """A scenario, and the policies that its file wants compared."""
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ScenarioError(f"there is no file {path}") from None
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: {error}") from None
    return scenario_of(data, str(path))


def scenario_of(data: dict[str, Any], where: str = "scenario") -> tuple[Scenario, tuple[str, ...]]:
    try:
        read = _Scenario.model_validate(data)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors()]
        raise ScenarioError("\n".join(f"{where}: {line}" for line in lines)) from None
    tables: list[SimTable] = []
    for name, given in read.tables.items():
        tables += _tables(name, given, read.tables)
    slow = read.slowdown
    slowdown = None if slow is None else Slowdown(slow.factor, slow.cycle, slow.share)
    scenario = Scenario(
        tuple(tables),
        read.name,
        read.tracks,
        read.horizon,
        read.jitter,
        slowdown,
        tuple(Outage(o.start, o.end, o.table) for o in read.outages),
        tuple(Backfill(b.at, b.table, b.start, b.end) for b in read.backfills),
        read.failures,
        read.costs,
        read.partition,
    )
    scenario.check()
    return scenario, read.policies


def _tables(name: str, given: _Table, all_: dict[str, _Table]) -> list[SimTable]:
    made = []
    for number in range(given.count):
        sources = tuple(
            f"{source}-{number}" if source in all_ and all_[source].count == given.count > 1 else source
            for source in given.sources
        )
        made.append(
            SimTable(
                name if given.count == 1 else f"{name}-{number}",
                sources,
                given.period,
                given.phase,
                given.priority,
                given.alpha,
                given.beta,
                given.arrivals,
                given.arrival_jitter,
                given.burst,
                given.trace,
                given.late_share,
                given.late,
                given.patience,
                given.restated,
            )
        )
    return made
