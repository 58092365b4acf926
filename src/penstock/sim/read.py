"""Scenario files. Every setting is checked, and what is wrong is told with its name."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from penstock.declare.validate import validate
from penstock.model.grain import parse_grain
from penstock.model.time import SECOND_US, parse_duration
from penstock.model.timetable import parse_timetable
from penstock.sim.scenario import Outage, Redelivery, Scenario, ScenarioError, SimTable, Slowdown


def _seconds(value: Any) -> Any:
    return parse_duration(value) / SECOND_US if isinstance(value, str) else value


def _timetable(value: str) -> str:
    if value:
        parse_timetable(value)
    return value


def _partition(value: str) -> str:
    parse_grain(value)
    return value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
Positive = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, allow_inf_nan=False)


class _Table(_Strict):
    # So many alike, numbered; each derived one reads the source of its own number if that is numbered as well.
    count: Annotated[int, Field(ge=1)] = 1
    sources: tuple[str, ...] = ()
    period: Positive = 60.0
    phase: Seconds | None = None
    priority: Annotated[float, Field(ge=0)] = 1.0
    alpha: Seconds = 1.0
    beta: Annotated[float, Field(ge=0)] = 0.1
    arrivals: Literal["periodic", "jittered", "bursty", "traced"] = "periodic"
    arrival_jitter: Share = 0.5
    burst: Annotated[int, Field(ge=1)] = 4
    trace: tuple[Seconds, ...] = ()
    late_share: Share = 0.0
    late: Seconds = 0.0
    # How long late work may wait for a newer change, and when old data are stated anew (it begins at 00:00 of a Thursday).
    patience: Seconds | None = None
    restated: Annotated[str, AfterValidator(_timetable)] = ""
    # Tables of one group are updated by one job.
    group: Annotated[str, Field(min_length=1)] | None = None


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
    partition: Annotated[str, AfterValidator(_partition)] = "day"
    # The part of an update that is the reading of its sources: a group does that once.
    scan: Share = 0.5
    policies: tuple[str, ...] = ()
    slowdown: _Slowdown | None = None
    outages: tuple[_Outage, ...] = ()
    backfills: tuple[_Backfill, ...] = ()
    tables: dict[str, _Table] = {}


# What only batches have, and what only some of them have: elsewhere it would be silently without effect.
_OF_BATCHES = ("period", "phase", "arrivals", "arrival_jitter", "burst", "trace", "late_share", "late")
_OF_ARRIVALS: dict[str, tuple[str, ...]] = {
    "phase": ("periodic", "jittered", "bursty"),
    "arrival_jitter": ("jittered",),
    "burst": ("bursty",),
    "trace": ("traced",),
}


def read_scenario(path: Path) -> tuple[Scenario, tuple[str, ...]]:
    """A scenario, and the policies that its file wants compared."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ScenarioError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise ScenarioError(f"{path} is a folder; name the scenario in it, such as {path / 'scenario.toml'}") from None
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: {error}") from None
    return scenario_of(data, str(path))


def scenario_of(data: dict[str, Any], where: str = "scenario") -> tuple[Scenario, tuple[str, ...]]:
    checked = validate(_Scenario, data)
    read = checked.value
    wrong = [flaw.message for flaw in checked.flaws] or [
        line for name, table in read.tables.items() for line in _wrong_batches(name, table)
    ]
    if wrong:
        raise ScenarioError("\n".join(f"{where}: {line}" for line in wrong))
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
        tuple(Redelivery(b.at, b.table, b.start, b.end) for b in read.backfills),
        read.failures,
        read.costs,
        read.partition,
        read.scan,
    )
    try:
        _ = scenario.graph  # which checks all, and finds circles
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    return scenario, read.policies


def _wrong_batches(name: str, given: _Table) -> Iterator[str]:
    """What would have no effect, or give a table data from the future: at the start it holds those up to a period before
    its first batch."""
    said = given.model_fields_set
    if given.sources:
        for key in _OF_BATCHES:
            if key in said:
                yield (
                    f"`tables.{name}.{key}`: {name} is made from other tables and has no batches of its own; "
                    f"say it of {' or '.join(given.sources)}, or leave out `sources`"
                )
        return
    for key, kinds in _OF_ARRIVALS.items():
        if key in said and given.arrivals not in kinds:
            yield (
                f"`tables.{name}.{key}` is nothing that {given.arrivals} arrivals have; "
                f'leave it out, or write arrivals = "{kinds[0]}"'
            )
    if given.phase is not None and given.phase >= given.period:
        yield (
            f"`tables.{name}.phase` is {given.phase:g} s; the first batch comes in the first period, "
            f"so expected less than {given.period:g} s"
        )
    if "late" in said and "late_share" not in said:
        yield f"`tables.{name}.late` needs `late_share`: which part of the batches has older rows, such as 0.2"
    if given.late_share and not given.late:
        yield f'`tables.{name}.late_share` needs `late`: how much older the rows are, such as "1h"'


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
                tuple(sorted(given.trace)),
                given.late_share,
                given.late,
                given.patience,
                given.restated,
                given.group,
            )
        )
    return made
