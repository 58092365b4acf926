"""What users write in Python: feeds, base tables with a transform, and tables computed by a function.

    import penstock as ps

    ps.feed("alerts", path="landing/alerts/*.json", format="json", time="at", period="5s")

    @ps.table(partition="hour", time="hour", sources={"stats": "HOUR", "alerts": "HOUR"})
    def alert_context(stats, alerts):
        return alerts.join(stats, "router")

Each call returns a plain declaration and, where the module is being read as part of a project, leaves it in a list of
that module (`DECLARED`). Nothing is registered anywhere else, so a module can be imported anywhere. What is wrong with
the settings is kept in the declaration, so that `penstock check` can tell all of it.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, TypeVar, overload

from penstock.declare.config import FeedConfig, TableConfig
from penstock.declare.problems import Location, Problem
from penstock.declare.validate import Flaw, validate
from penstock.flows.description import Flow

# The global variable of a project's module in which its declarations gather, in order.
DECLARED = "__penstock_declared__"
Function = Callable[..., Any]


class Declared:
    """What feeds and tables share: where they were written, line by line, and what is wrong with their settings."""

    __slots__ = ()
    where: Location
    lines: Mapping[str, int]
    flaws: tuple[Flaw, ...]

    def at(self, key: str) -> Location:
        """Where a setting stands, or what is around it; `sources.stats` is below `sources`."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return Location(self.where.file, self.lines[key]) if key else self.where

    @property
    def problems(self) -> list[Problem]:
        return [Problem(self.at(".".join(flaw.keys)), flaw.message) for flaw in self.flaws]


@dataclass(frozen=True)
class FeedDeclaration(Declared):
    name: str
    config: FeedConfig
    where: Location
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    flaws: tuple[Flaw, ...] = ()
    # Settings that were left out because they are wrong: nothing is known of them.
    broken: frozenset[str] = frozenset()

    @property
    def zone(self) -> str:
        """In which its times without offset are."""
        return self.config.zone or "UTC"

    def in_zone(self, zone: str) -> FeedDeclaration:
        """The declaration with the project's zone, unless it says another."""
        return self if self.config.zone else replace(self, config=self.config.model_copy(update={"zone": zone}))


@dataclass(frozen=True)
class TableDeclaration(Declared):
    name: str
    config: TableConfig
    where: Location
    sql: str | None = None
    sql_line: int = 1
    function: Function | None = None
    description: str = ""
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    flaws: tuple[Flaw, ...] = ()
    broken: frozenset[str] = frozenset()
    # The flow that makes it, perhaps with other tables.
    flow: Flow | None = None
    # Of a feed of snapshots: it keeps the rows of every one.
    every: bool = False

    @property
    def is_plain(self) -> bool:
        """The base table that a feed has by itself: its rows as they come."""
        return self.has_no_code and not self.is_external

    @property
    def has_no_code(self) -> bool:
        return self.sql is None and self.function is None and self.flow is None

    @property
    def is_external(self) -> bool:
        """Whether others make it."""
        return self.config.kind == "external"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, so that it can be tested by hand."""
        assert self.function is not None
        return self.function(*args, **kwargs)


def feed(name: str, **settings: Any) -> FeedDeclaration:
    """A feed of files; the settings are those of `[feeds.NAME]` in penstock.toml."""
    author = author_of_call()
    checked = validate(FeedConfig, settings)
    return author.keep(FeedDeclaration(name, checked.value, author.where, {}, checked.flaws, checked.broken))


@overload
def table(function: Function, /) -> TableDeclaration: ...
@overload
def table(**settings: Any) -> Callable[[Function], TableDeclaration]: ...
def table(
    function: Function | None = None, /, **settings: Any
) -> TableDeclaration | Callable[[Function], TableDeclaration]:
    """A table computed by the decorated function from the DataFrames of its sources, named by its parameters."""
    author = author_of_call()
    return _declared(function, settings, author) if function else lambda found: _declared(found, settings, author)


def external(name: str, **settings: Any) -> TableDeclaration:
    """A table that an outside job makes; the settings are those of `tables/NAME.toml` with kind = "external"."""
    author = author_of_call()
    checked = validate(TableConfig, {"kind": "external", **settings})
    return author.keep(TableDeclaration(name, checked.value, author.where, flaws=checked.flaws, broken=checked.broken))


def base_table(*, feed: str, **settings: Any) -> Callable[[Function], TableDeclaration]:
    """A base table whose rows are what the decorated function makes of the feed's rows, file by file."""
    author = author_of_call()
    return lambda found: _declared(found, {"feed": feed, **settings}, author)


def _declared(function: Function, settings: dict[str, Any], author: Author) -> TableDeclaration:
    if not inspect.isfunction(function):
        raise TypeError(f"@table is written above a function, not above {type(function).__name__}")
    checked = validate(TableConfig, settings)
    declaration = TableDeclaration(
        checked.value.name or function.__name__,
        checked.value,
        author.where,
        function=function,
        description=inspect.getdoc(function) or "",
        flaws=checked.flaws,
        broken=checked.broken,
    )
    return author.keep(declaration)


D = TypeVar("D", FeedDeclaration, TableDeclaration)


@dataclass(frozen=True)
class Author:
    """A line of a module, and the list of declarations of the project that the module belongs to, if it does."""

    where: Location
    gathered: list[FeedDeclaration | TableDeclaration] | None

    def keep(self, declaration: D) -> D:
        if self.gathered is not None:
            self.gathered.append(declaration)
        return declaration


def author_of_call() -> Author:
    """The place in a module from which this was called, perhaps through functions of other modules that help."""
    caller = sys._getframe(2)
    frame: FrameType | None = caller
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    frame = frame or caller
    return Author(Location(frame.f_code.co_filename, frame.f_lineno), frame.f_globals.get(DECLARED))


def keyword_lines(tree: ast.AST, line: int) -> dict[str, int]:
    """The lines of the settings of the call that stands at a line of a module."""
    found: dict[str, int] = {}
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    for call in sorted(calls, key=lambda node: node.lineno):
        for keyword in call.keywords:
            if keyword.arg is not None:
                found[keyword.arg] = keyword.lineno
                found[f"{keyword.arg}.="] = keyword.value.lineno
                _item_lines(keyword.arg, keyword.value, found)
    return found


def _item_lines(name: str, value: ast.expr, found: dict[str, int]) -> None:
    if isinstance(value, ast.Dict):
        for key in value.keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found[f"{name}.{key.value}"] = key.lineno
    elif isinstance(value, ast.List | ast.Tuple):
        found.update({f"{name}.{number}": item.lineno for number, item in enumerate(value.elts)})


def function_fingerprint(function: Function, code_version: str | int | None) -> str:
    """Stable under comments and formatting, different for anything that the interpreter would see differently.
    What the function calls is not looked into: its author raises `code_version` when that changes."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                node.decorator_list = []
        text = ast.dump(tree)
    except (OSError, SyntaxError):
        text = function.__qualname__
    return hashlib.sha256(f"{text}|{code_version}".encode()).hexdigest()[:16]
