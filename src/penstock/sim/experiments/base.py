"""What every experiment has."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from penstock.errors import PenstockError

Row = dict[str, Any]


class ExperimentError(PenstockError):
    """An experiment that cannot be run as asked."""


@dataclass(frozen=True)
class Finding:
    """A claim, whether it holds in the rows, and by how much."""

    claim: str
    holds: bool
    found: str


@dataclass(frozen=True)
class Picture:
    """How to draw the rows: a line per value of `series`, a panel per value of `panel`."""

    x: str
    y: str
    series: str
    panel: str | None = None
    log: bool = False


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    parameters: Mapping[str, Any]
    # The independent pieces of work for these parameters and seeds; each gives some of the rows. Both are picklable.
    tasks: Callable[[Mapping[str, Any], Sequence[int]], list[Any]]
    work: Callable[[Any], list[Row]]
    judge: Callable[[list[Row]], list[Finding]]
    picture: Picture

    def with_settings(self, settings: Sequence[str]) -> dict[str, Any]:
        """The parameters, some of them set as `key=value`; a list is written with commas (policies with semicolons)."""
        parameters = dict(self.parameters)
        for setting in settings:
            key, sign, text = setting.partition("=")
            key = key.strip()
            if not sign or key not in parameters:
                near = difflib.get_close_matches(key, parameters, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ExperimentError(
                    f"{self.name} has no parameter {key!r}; it has {', '.join(parameters)}{hint}"
                    if sign
                    else f"{setting!r}: write key=value"
                )
            parameters[key] = _parsed(key, text.strip(), parameters[key])
        return parameters


def _parsed(key: str, text: str, default: Any) -> Any:
    try:
        if isinstance(default, tuple):
            kind = type(default[0]) if default else str
            parts = text.split(";") if kind is str else text.split(",")
            return tuple(kind(part.strip()) for part in parts if part.strip())
        return type(default)(text)
    except ValueError:
        kind = type(default[0]) if isinstance(default, tuple) else type(default)
        raise ExperimentError(f"{key}={text}: expected {kind.__name__}") from None


EXPERIMENTS: dict[str, Experiment] = {}


def add(experiment: Experiment) -> Experiment:
    EXPERIMENTS[experiment.name] = experiment
    return experiment


def find_experiment(name: str, known: Mapping[str, Experiment]) -> Experiment:
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ExperimentError(f"there is no experiment {name!r}{hint}; `penstock experiment --list` names all")


# Reading rows


def grouped(rows: Sequence[Row], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    """Rows with the same values of some keys, in the order of their first."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    yield from found.items()


def average(rows: Sequence[Row], key: str) -> tuple[float, float]:
    """The mean over seeds and its standard error."""
    values = [float(row[key]) for row in rows]
    return mean(values), stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def averages(rows: Sequence[Row], key: str, *by: str) -> dict[tuple[Any, ...], float]:
    return {group: average(found, key)[0] for group, found in grouped(rows, *by)}
