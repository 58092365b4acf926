"""What is wrong with a project: each problem says where, what was found and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.errors import PenstockError

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, order=True)
class Location:
    file: str = "?"
    line: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """An error keeps the project from running; a warning is about something legal that can hardly be meant."""

    where: Location
    message: str
    severity: Severity = "error"

    def __str__(self) -> str:
        mark = "" if self.severity == "error" else f"{self.severity}: "
        return f"{self.where}: {mark}{self.message}"


class ProjectError(PenstockError):
    """The project cannot be used as it stands."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def near_or_all(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant, or else what there is."""
    names = sorted(known)
    return did_you_mean(name, names) or (f"; declared: {', '.join(names[:12])}" if names else "")
