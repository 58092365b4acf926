"""What is wrong with a project: each problem says where, what was found and what was expected."""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
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


# On which line of a TOML text each key stands. Python's own reader gives values without places.
#
# The text has been read by `tomllib` before, so it is valid and need not be checked again, only walked through.
#
# >>> key_lines('name = "x"\n[feeds.stats]\nrules = [\n  "a > 0",\n]')[("feeds", "stats", "rules", "0")]
# 4

Keys = tuple[str, ...]
# The first line inside a text, which may be below its key: """ is usually followed by a new line.
CONTENT = "="

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}\n#]*")
_TEXT = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL)
_BLANK = re.compile(r"[ \t]*")
_BLANKS = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")


def key_lines(text: str) -> dict[Keys, int]:
    walker = _Walker(text)
    with suppress(IndexError):  # not TOML after all: what was found so far is still right
        walker.document()
    return walker.lines


def line_of(lines: Mapping[Keys, int], keys: Iterable[str]) -> int:
    """The line of a key, or of the nearest key around it."""
    path = tuple(keys)
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Walker:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Keys, int] = {}
        self.breaks = [match.start() for match in re.finditer("\n", text)]
        self.tables: dict[Keys, int] = {}

    def document(self) -> None:
        prefix: Keys = ()
        while self.skip(_BLANKS) and self.at < len(self.text):
            if self.text[self.at] == "[":
                prefix = self.header()
            else:
                self.pair(prefix)

    def skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return match[0] or " "

    def note(self, keys: Keys, offset: int | None = None) -> None:
        line = bisect_left(self.breaks, self.at if offset is None else offset) + 1
        for length in range(1, len(keys) + 1):
            self.lines.setdefault(keys[:length], line)

    def header(self) -> Keys:
        many = self.text.startswith("[[", self.at)
        self.at += 2 if many else 1
        keys = self.key()
        self.at += 2 if many else 1
        if many:
            number = self.tables.get(keys, 0)
            self.tables[keys] = number + 1
            keys = (*keys, str(number))
            self.note(keys)
        return keys

    def key(self, prefix: Keys = ()) -> Keys:
        """A dotted key; noted where it stands."""
        begin, parts = self.at, list(prefix)
        while True:
            self.skip(_BLANK)
            if self.text[self.at] in "\"'":
                match = _TEXT.match(self.text, self.at)
                part = match[0][1:-1] if match else ""
                self.at = match.end() if match else len(self.text)
            else:
                part = self.skip(_BARE) if _BARE.match(self.text, self.at) else self.text[self.at :]
                if not part or not _BARE.fullmatch(part):
                    raise IndexError
            parts.append(part)
            self.skip(_BLANK)
            if self.text[self.at] != ".":
                self.note(tuple(parts), begin)
                return tuple(parts)
            self.at += 1

    def pair(self, prefix: Keys) -> None:
        keys = self.key(prefix)
        if self.text[self.at] != "=":
            raise IndexError
        self.at += 1
        self.skip(_BLANK)
        self.value(keys)

    def value(self, keys: Keys) -> None:
        first = self.text[self.at]
        if first == "[":
            self.items(keys, "]")
        elif first == "{":
            self.items(keys, "}")
        elif first in "\"'":
            match = _TEXT.match(self.text, self.at)
            if match is None:
                raise IndexError
            inside = self.at + 3 + (match[0][3:4] == "\n") if match[0][:3] in ('"""', "'''") else self.at
            self.note((*keys, CONTENT), inside)
            self.at = match.end()
        else:
            self.skip(_SCALAR)

    def items(self, keys: Keys, end: str) -> None:
        self.at += 1
        number = 0
        while self.skip(_BLANKS) and self.text[self.at] != end:
            if self.text[self.at] == ",":
                self.at += 1
            elif end == "}":
                self.pair(keys)
            else:
                self.note((*keys, str(number)))
                self.value((*keys, str(number)))
                number += 1
        self.at += 1
