"""A table as a `.sql` file: the comment lines at its top are the description and, written as TOML, the settings.

-- Traffic of each router, hour by hour.
-- partition = "hour"
-- time = "hour"
-- freshness = "5m"
SELECT ...
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from typing import Any

from penstock.declare.api import TableDeclaration
from penstock.declare.config import TableConfig, toml_problem
from penstock.declare.problems import Location, Problem, key_lines
from penstock.declare.validate import validate

# `key = …` or `[sources]`; anything else is description.
_SETTING = re.compile(r"\s*(?:[A-Za-z_][\w.-]*\s*=(?!=)|\[\s*[\w.]+\s*\]\s*$)")
_ALMOST = re.compile(rf"\s*({'|'.join(TableConfig.model_fields)})\s*:\s*(\S+)\s*$")


@dataclass
class SqlFile:
    """What a file gives: its table, unless nothing can be said about it, and what is wrong."""

    name: str
    table: TableDeclaration | None = None
    problems: list[Problem] = field(default_factory=list)


def read_sql_table(text: str, name: str, shown: str) -> SqlFile:
    """The text of a file of this name."""
    found = SqlFile(name)
    lines = text.splitlines()
    body = next((n for n, line in enumerate(lines) if line.strip() and not line.strip().startswith("--")), len(lines))
    settings, written, description, readable = _header(lines[:body], shown, found.problems)
    checked = validate(TableConfig, settings)
    sql = "\n".join(lines[body:]).strip().rstrip(";").strip()
    if not sql:
        found.problems.append(Problem(Location(shown, max(1, len(lines))), "there is no SELECT below the header"))
        return found
    table = TableDeclaration(
        checked.value.name or name,
        checked.value,
        Location(shown, body + 1),
        sql,
        body + 1,
        None,
        description,
        {".".join(keys): line for keys, line in key_lines(written).items()},
        checked.flaws,
        checked.broken if readable else frozenset(TableConfig.model_fields),
    )
    found.name, found.table = table.name, table
    return found


def _header(lines: list[str], shown: str, problems: list[Problem]) -> tuple[dict[str, Any], str, str, bool]:
    """The settings, their text with the line numbers of the file, the description, and whether all could be read."""
    comments = [line.strip()[2:].strip() for line in lines]
    kept = [""] * len(comments)
    description: list[str] = []
    readable = True
    number = 0
    while number < len(comments):
        comment = comments[number]
        if not _SETTING.match(comment):
            if almost := _ALMOST.match(comment):
                hint = f'-- {almost[1]} = "{almost[2]}"'
                message = f"`{comment}` is read as description; a setting is written as `{hint}`"
                problems.append(Problem(Location(shown, number + 1), message, "warning"))
            description.append(comment)
            number += 1
            continue
        end = _end_of(comments, number)
        if end is None:
            readable = False
            problems.append(_unreadable(comment, Location(shown, number + 1)))
            number += 1
            if _opens(comment):  # what follows belongs to it
                number = next((n for n in range(number, len(comments)) if "}" in comments[n]), number - 1) + 1
            continue
        kept[number:end] = comments[number:end]
        number = end
    written = "\n".join(kept)
    try:
        return tomllib.loads(written), written, " ".join(description).strip(), readable
    except tomllib.TOMLDecodeError as error:  # a key that stands twice
        line, message = toml_problem(error, written)
        problems.append(Problem(Location(shown, line), message))
        return {}, written, " ".join(description).strip(), False


def _end_of(comments: list[str], start: int) -> int | None:
    """The line after a setting, which may go over several lines."""
    for end in range(start + 1, len(comments) + 1):
        try:
            tomllib.loads("\n".join(comments[start:end]))
        except tomllib.TOMLDecodeError:
            continue
        return end
    return None


def _opens(comment: str) -> bool:
    return comment.count("{") > comment.count("}")


def _unreadable(comment: str, where: Location) -> Problem:
    if _opens(comment):
        hint = 'a table in { } stands on one line; or write a line for each: `-- sources.stats = "previous"`'
        return Problem(where, f"`{comment}` is not closed; {hint}")
    try:
        tomllib.loads(comment)
    except tomllib.TOMLDecodeError as error:
        message = toml_problem(error, comment)[1]
    return Problem(where, f"`{comment}` looks like a setting, but is {message}")
