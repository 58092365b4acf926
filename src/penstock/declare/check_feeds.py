"""What can be wrong with feeds: patterns, options, columns, the time column, rules."""

from __future__ import annotations

import codecs
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePosixPath

from penstock.declare.analysis_cache import Remembered
from penstock.declare.api import FeedDeclaration, TableDeclaration
from penstock.declare.config import BINARY, OF_TABLE
from penstock.declare.problems import CONTENT, Location, Problem, did_you_mean
from penstock.declare.sql.view import NamedColumn, NamedColumns, SqlProblem, analyse
from penstock.model.grain import Fixed, Grain, parse_grain
from penstock.model.schema import Schema, WrongColumns, parse_ddl
from penstock.model.time import DAY_US

TIME_TYPES = ("timestamp", "timestamp_ntz", "date")
# Names by which writers mark what is not ready yet; such files are never taken.
_UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", ".inprogress")
_WILD = re.compile(r"[*?\[]")
# What Penstock itself says to Spark.
_OURS = {"mode", "columnnameofcorruptrecord", "inferschema", "enforceschema", "path", "linesep"}
# With these, rows would be left out or put elsewhere without a word.
_HIDING = {
    "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "ignorecorruptfiles", "ignoremissingfiles", "basepath",
    "singlevariantcolumn", "rescueddatacolumn", "__globpaths__",
}  # fmt: skip
# Of formats that only we read: the option that is theirs, and those that text has. XML says its encoding itself.
_FOR_ONE = {"xml": "rowtag", "fixed": "widths"}
_ANY_TEXT = {"dateformat", "timestampformat", "timestampntzformat"}
_IDLE = {
    "multiline",
    "nanvalue",
    "positiveinf",
    "negativeinf",
    "locale",
    "prefersdate",
    "samplingratio",
    "columnpruning",
}


def feed_problems(feed: FeedDeclaration, folder: Path, kept_out: Iterable[Path]) -> Iterator[Problem]:
    """What can be said about a feed alone, its columns aside."""
    config = feed.config
    if "path" not in feed.broken:
        yield from _pattern(feed, "path", config.path, folder, kept_out)
    if config.punctuation is not None:
        yield from _pattern(feed, "punctuation", config.punctuation, folder, kept_out)
        if _normal(config.punctuation) == _normal(config.path):
            message = (
                f"feed `{feed.name}`: `punctuation` is the same pattern as `path`, so that every file would be a marker"
            )
            yield Problem(feed.at("punctuation"), f"{message}; give marker files names of their own, such as *.done")
    yield from _options(feed)
    if config.order != "arrival" and config.mode == "append":
        message = f"feed `{feed.name}`: `order` has no effect, as files of an append feed do not replace each other"
        yield Problem(feed.at("order"), f'{message}; say mode = "snapshot" if they do', "warning")
    if "time" in feed.broken:
        return
    if config.late != "load" and config.mode in ("append", "snapshot"):
        yield from _late(feed)
    if config.time is None:
        for key in ("partition", "lateness", "punctuation"):
            if getattr(config, key) not in (None, 0, "none"):
                message = f"feed `{feed.name}` has `{key}` but no `time`: name the column that holds the event time"
                yield Problem(feed.at(key), message)
    elif config.mode == "snapshot" and config.partition == "none":
        for key in ("lateness", "punctuation"):
            if getattr(config, key) not in (None, 0):
                message = f"feed `{feed.name}`: `{key}` has no effect, as each snapshot replaces the whole table"
                yield Problem(feed.at(key), message, "warning")


def _late(feed: FeedDeclaration) -> Iterator[Problem]:
    """Late is what is older than the feed said that rows may be."""
    config, what = feed.config, f'feed `{feed.name}` has `late = "{feed.config.late}"`'
    if config.mode == "snapshot":
        yield Problem(
            feed.at("late"), f"{what}, but each file of a snapshot feed states whole partitions: none is late"
        )
    elif config.time is None:
        yield Problem(feed.at("late"), f"{what} but no `time`: name the column that holds the event time")
    elif not config.lateness and config.punctuation is None:
        message = f'{what} but says nowhere which rows are late; write how late they may be, as in lateness = "10m"'
        yield Problem(feed.at("late"), message)


def _normal(pattern: str) -> str:
    return os.path.normpath(pattern)


def _pattern(
    feed: FeedDeclaration, key: str, pattern: str, folder: Path, kept_out: Iterable[Path]
) -> Iterator[Problem]:
    where = feed.at(key)
    what = f"feed `{feed.name}`: `{key}` is {pattern!r}"
    name = PurePosixPath(pattern).name
    if not pattern.strip():
        yield Problem(where, f"{what}; expected a pattern such as landing/{feed.name}/*.{feed.config.format}")
    elif scheme := re.match(r"(\w+)://", pattern):
        yield Problem(where, f"{what}; {scheme[1]}:// cannot be watched, expected files of this machine")
    elif pattern.startswith("~") or "$" in pattern:
        yield Problem(where, f"{what}; ~ and variables are not expanded, write the path itself")
    elif pattern.endswith("/") or (not _WILD.search(pattern) and (folder / pattern).is_dir()):
        yield Problem(where, f"{what}, a folder; name its files: {pattern.rstrip('/')}/*.{feed.config.format}")
    elif re.search(r"\{[^}]*,[^}]*\}", pattern):
        yield Problem(where, f"{what}; {{a,b}} is not a pattern here, expected *, ?, [abc] and **")
    elif re.search(r"\[[^\]]*$", pattern):
        yield Problem(where, f"{what}; [ is not closed, expected for example [0-9]")
    elif any("**" in part and part != "**" for part in pattern.split("/")):
        better = re.sub(r"\*\*+(?=[^/])", "**/*", pattern)
        yield Problem(where, f"{what}; ** stands for folders and must stand alone, as in {better}")
    elif name in ("", ".", ".."):
        yield Problem(where, f"{what}; it names no files")
    elif name.startswith((".", "_")) or name.lower().endswith(_UNFINISHED):
        marks = "names that begin with . or _ or end in " + ", ".join(_UNFINISHED)
        yield Problem(where, f"{what}; such files are taken for unfinished and never loaded ({marks})")
    else:
        yield from _place(feed, key, pattern, folder, kept_out)


def _place(feed: FeedDeclaration, key: str, pattern: str, folder: Path, kept_out: Iterable[Path]) -> Iterator[Problem]:
    where = feed.at(key)
    what = f"feed `{feed.name}`: `{key}` is {pattern!r}"
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    root = Path(os.path.normpath(folder / fixed)) if not fixed.startswith("/") else Path(os.path.normpath(fixed))
    inside = next((each for each in kept_out if root.is_relative_to(each)), None)
    if inside is not None:
        shown = os.path.relpath(inside, folder)
        yield Problem(where, f"{what}, which lies in Penstock's own folder {shown}; deliver files elsewhere")
    elif not root.is_dir():
        message = f"{what}, but the folder {os.path.relpath(root, folder) if not fixed.startswith('/') else root} does not exist yet"
        yield Problem(where, message, "warning")
    if key != "path":
        return
    if not _WILD.search(pattern) and feed.config.mode != "snapshot":
        message = f'{what}, one file only; if each delivery replaces it, write mode = "snapshot", else a pattern'
        yield Problem(where, message, "warning")
    suffix = re.search(r"\.(csv|json|parquet|orc|xml)(\.gz)?$", pattern.lower())
    if suffix and "format" not in feed.broken and suffix[1] != feed.config.format:
        message = f"{what}, but its `format` is {feed.config.format!r}"
        yield Problem(where, message, "warning")


def same_files(feeds: Iterable[FeedDeclaration]) -> Iterator[Problem]:
    """Two feeds must not take the same files."""
    seen: dict[str, FeedDeclaration] = {}
    for feed in feeds:
        if "path" in feed.broken:
            continue
        pattern = _normal(feed.config.path)
        if (equal := seen.get(pattern)) is not None:
            message = f"feed `{feed.name}` has the same `path` as feed `{equal.name}` ({equal.at('path')}): {pattern!r}"
            hint = f'one feed can fill several tables: give them feed = "{equal.name}"'
            yield Problem(feed.at("path"), f"{message}; {hint}")
        else:
            seen[pattern] = feed
    for inner, outer in _pairs_within(list(seen)):
        yield _overlap(seen[inner], seen[outer])


def _pairs_within(patterns: list[str]) -> Iterator[tuple[str, str]]:
    """Patterns within others. Only those are compared that begin as the other does: there may be thousands."""
    named = sorted((_one_of(pattern), pattern) for pattern in patterns)
    for outer in patterns:
        begin = re.split(r"[*?[]", outer, maxsplit=1)[0]
        for name, inner in islice(named, bisect_left(named, (begin,)), None):
            if not name.startswith(begin):
                break
            # Of two that are within each other, the later one is within the earlier one.
            if inner == outer or not _within(inner, outer):
                continue
            if not _within(outer, inner) or patterns.index(inner) > patterns.index(outer):
                yield inner, outer


def _one_of(pattern: str) -> str:
    """A file that it names, where it is no `[…]`."""
    return pattern.replace("*", "x").replace("?", "x")


def _overlap(inner: FeedDeclaration, outer: FeedDeclaration) -> Problem:
    message = f"every file of feed `{inner.name}` is also one of feed `{outer.name}` ({outer.at('path')}), and is loaded twice"
    return Problem(inner.at("path"), message, "warning")


def _within(inner: str, outer: str) -> bool:
    """Whether one pattern only names files that the other names too, as far as that is plain to see."""
    parts, wider = inner.split("/"), outer.split("/")
    if len(parts) != len(wider) or "**" in parts or "**" in wider or "[" in inner:
        return False
    return all(fnmatchcase(_one_of(part), wide) and ("*" not in part or "*" in wide)
               for part, wide in zip(parts, wider, strict=True))  # fmt: skip


def _options(feed: FeedDeclaration) -> Iterator[Problem]:
    config = feed.config
    if config.format in _FOR_ONE and "format" not in feed.broken:
        yield from _columns_said(feed)
    for key, value in config.options.items():
        where, word = feed.at(f"options.{key}"), key.lower()
        what = f"feed `{feed.name}`: option `{key}`"
        if word in _OURS:
            yield Problem(where, f"{what} is set by Penstock; leave it out")
        elif word == "timezone":
            yield Problem(where, f'{what} is said by the feed: zone = "{value}"')
        elif word in _HIDING:
            yield Problem(where, f"{what} would leave out rows without a word; leave it out")
        elif config.format in BINARY:
            name = {"parquet": "Parquet", "orc": "ORC"}[config.format]
            yield Problem(where, f"{what} has no meaning for {name} files", "warning")
        elif word == _FOR_ONE.get(config.format):
            continue
        elif word in _FOR_ONE.values() or (
            config.format in _FOR_ONE
            and word not in {*_ANY_TEXT, *(("encoding", "charset") * (config.format == "fixed"))}
        ):
            yield Problem(where, f'{what} has no meaning with format = "{config.format}"', "warning")
        elif word in ("encoding", "charset"):
            try:
                codecs.lookup(str(value))
            except LookupError:
                yield Problem(
                    where, f'{what} is {value!r}, which is not an encoding; write for example "utf-8" or "latin-1"'
                )
        elif (
            word in ("sep", "delimiter", "quote", "escape", "comment")
            and config.format == "csv"
            and len(str(value)) != 1
        ):
            yield Problem(where, f"{what} is {value!r}; expected one character")
        elif word == "header" and str(value).lower() not in ("true", "false"):
            yield Problem(where, f"{what} is {value!r}; expected true or false")
        elif word == "multiline" and config.format == "json" and str(value).lower() == "true":
            yield Problem(where, f"{what}: JSON files are read one object per line; deliver them so")
        elif word in _IDLE:
            yield Problem(where, f"{what} has no effect; see the settings of feeds in docs/declare.md", "warning")


def _columns_said(feed: FeedDeclaration) -> Iterator[Problem]:
    """Nothing in these files says what its columns are."""
    config, what = feed.config, f'feed `{feed.name}` has format = "{feed.config.format}"'
    if config.columns is None and "columns" not in feed.broken:
        yield Problem(feed.at("format"), f'{what} but no `columns`; write them: columns = "id bigint, …"')
    if config.format != "fixed":
        return
    try:
        widths = config.widths
    except ValueError:
        hint = 'say how many characters each column has: options = { widths = "8,20,12" }'
        yield Problem(feed.at("options"), f"{what} but no widths; {hint}")
        return
    columns = columns_of(feed, what)[0]
    if columns is not None and len(columns) != len(widths):
        yield Problem(feed.at("options"), f"{what} with {len(columns)} columns, but {len(widths)} widths")


# Columns


def columns_of(declaration: FeedDeclaration | TableDeclaration, what: str) -> tuple[Schema | None, list[Problem]]:
    """The declared columns, and what is wrong with them, each at its line."""
    text = declaration.config.columns
    if text is None:
        return None, []
    try:
        columns = parse_ddl(text)
        if isinstance(declaration, FeedDeclaration) and declaration.config.format in ("csv", "fixed"):
            where = declaration.at("columns")
            nested = [column for column in columns if "<" in column.type]
            kind = "CSV file" if declaration.config.format == "csv" else "text of fixed width"
            expected = f"a value of a {kind} is text; declare it as string"
            return columns, [Problem(where, f"{what}: column `{c.name}` is {c.type}, but {expected}") for c in nested]
        return columns, []
    except WrongColumns as error:
        first = declaration.at(f"columns.{CONTENT}")
        return None, [
            Problem(Location(first.file, first.line + text.count("\n", 0, offset)), f"{what}: {message}")
            for offset, message in error.flaws
        ]


def time_problems(
    where: Location, what: str, time: str, columns: Iterable[NamedColumn], partition: str
) -> Iterator[Problem]:
    """The time column must exist, hold times, and be as fine as the partitions."""
    known = {column.name.lower(): column for column in columns}
    found = known.get(time.lower())
    if found is None:
        names = ", ".join(column.name for column in known.values())
        hint = did_you_mean(time, known) or f"; there are: {names}"
        yield Problem(where, f"{what}: the time column `{time}` does not exist{hint}")
    elif found.type is None:
        return
    elif found.type not in TIME_TYPES:
        expected = f"expected one of {', '.join(TIME_TYPES)}"
        yield Problem(where, f"{what}: the time column `{time}` has type {found.type}, {expected}")
    elif found.type == "date" and _finer_than_a_day(parse_grain(partition)):
        message = f"{what}: the time column `{time}` is a date, so all rows of a day fall into its first {partition}"
        yield Problem(where, f"{message}; partition by day, or use a timestamp", "warning")


def _finer_than_a_day(grain: Grain) -> bool:
    return isinstance(grain, Fixed) and grain.width_us < DAY_US


def rule_problems(feed: FeedDeclaration, schema: NamedColumns | None, remembered: Remembered) -> Iterator[Problem]:
    """Each rule must be a condition on the columns of a row."""
    for number, rule in enumerate(feed.config.rules):
        for found in remembered.get(_wrong_with, rule, feed.name, schema):
            yield Problem(feed.at(f"rules.{number}"), f"feed `{feed.name}`, rule {rule!r}{found}")


def _wrong_with(rule: str, feed: str, schema: NamedColumns | None) -> list[str]:
    from sqlglot import exp

    from penstock.declare.sql.model import Block

    if not rule.strip():
        return [': expected a condition such as "bytes >= 0"']
    sql = f"SELECT ({rule}) AS rule FROM `{feed}`"
    try:
        view = analyse(sql, {feed: schema} if schema else {}, time=None, file="")
    except SqlProblem as error:
        said = "a SELECT in Spark's SQL", 'a condition such as "bytes >= 0"'
        return [f": {each.found}; {each.expected.replace(*said)}" for each in error.problems]
    type_ = view.columns[0].type if view.columns else None
    if isinstance(view.query, Block):
        if many := view.query.aggregates() or list(view.parsed.tree.find_all(exp.Window)):
            name = many[0].sql(dialect="spark").partition("(")[0].lower()
            return [f": a rule looks at one row at a time, so it cannot use {name}(…)"]
        if view.query.subqueries:
            return [": a rule looks at one row at a time, so it cannot read tables"]
    if type_ not in ("boolean", None):
        return [f" gives a {type_}; expected a condition, which is true for good rows"]
    return []


def idle_settings(feed: FeedDeclaration, takers: list[str]) -> Iterator[Problem]:
    """Settings of the base table that a feed would have, if no other table took its rows."""
    for key in OF_TABLE:
        if key in feed.config.model_fields_set:
            message = f"feed `{feed.name}`: `{key}` has no effect, as its rows go to table `{takers[0]}`; set it there"
            yield Problem(feed.at(key), message, "warning")
