"""What every experiment has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from penstock.errors import PenstockError
from penstock.sim.outcome import Row


class ExperimentError(PenstockError):
    """An experiment that cannot be run as asked."""


@dataclass(frozen=True)
class Finding:
    """A claim, whether it holds in the rows (None: they have nothing to judge it by), and by how much."""

    claim: str
    holds: bool | None
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
        """The parameters, some of them set as `key=value`; a list is written with commas, or semicolons."""
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
    if not isinstance(default, tuple):
        return _value(key, text, type(default))
    # What is there twice is one point all the same: counted twice, it would look surer than it is.
    found = tuple(dict.fromkeys(_value(key, part, type(default[0])) for part in listed(text, _known(key))))
    if not found:
        raise ExperimentError(f"{key}={text}: expected at least one value, such as {key}={default[0]}")
    return found


def _value(key: str, text: str, kind: type) -> Any:
    if kind is str:
        return text
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number) or (kind is int and number % 1):
        raise ExperimentError(f"{key}={text}: expected a {'whole ' * (kind is int)}number")
    return kind(number)


def _known(key: str) -> list[str]:
    """Values of a parameter in any experiment."""
    lists = [e.parameters[key] for e in EXPERIMENTS.values() if isinstance(e.parameters.get(key), tuple)]
    return [value for values in lists for value in values if isinstance(value, str)]


def listed(text: str, known: Sequence[str] = ()) -> list[str]:
    """The parts of a list, written with commas or semicolons. Those within brackets, and in names that are known, divide
    nothing.

    >>> listed("fifo, proportional(all, k=1) / edf; lazy, no look back", ["lazy, no look back"])
    ['fifo', 'proportional(all, k=1) / edf', 'lazy, no look back']
    """
    whole = [re.escape(name) + r"(?=\s*(?:[,;]|$))" for name in known if "," in name]
    parts = re.findall("|".join([*whole, r"(?!\s)(?:\([^()]*\)|[^,;])+"]), text)
    return [part.strip() for part in parts]


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
