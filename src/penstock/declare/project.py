"""A project folder, read: what was declared where, before anything is checked against anything else.

What cannot be read is noted as a problem and left out; of tables in it at least the names are known, so that those who
read them are not blamed.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import re
import sys
import tomllib
import traceback
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

from penstock.declare.analysis_cache import Remembered, remembered_of
from penstock.declare.api import DECLARED, FeedDeclaration, TableDeclaration, keyword_lines
from penstock.declare.config import OF_TABLE, ConfigFile, ProjectConfig, TableConfig, load_config, toml_problem
from penstock.declare.keyed import is_keyed, keyed_tables, with_rules
from penstock.declare.problems import Location, Problem, key_lines
from penstock.declare.sql.file import SqlFile, read_sql_table
from penstock.declare.validate import validate


@dataclass(frozen=True)
class Declarations:
    folder: Path
    config: ProjectConfig
    feeds: tuple[FeedDeclaration, ...]
    tables: tuple[TableDeclaration, ...]
    # What could not be read or is wrong in itself.
    problems: tuple[Problem, ...] = ()
    # Feeds and tables that exist but of which nothing is known, because what declares them cannot be read.
    opaque: frozenset[str] = frozenset()
    file: ConfigFile | None = None
    remembered: Remembered = field(default_factory=Remembered, repr=False, compare=False)

    @property
    def data_path(self) -> str:
        return str((self.folder / self.config.storage.path).resolve())

    @property
    def state_folder(self) -> Path:
        """Where the lock, the default store and scratch files live."""
        return self.folder / ".penstock"

    @property
    def store_url(self) -> str:
        url = self.config.store.url
        if url is None:
            return f"sqlite:///{self.state_folder.resolve()}/penstock.db"
        url = os.path.expandvars(url)
        if url.startswith("sqlite:///") and not url.startswith("sqlite:////"):
            return f"sqlite:///{(self.folder / url.removeprefix('sqlite:///')).resolve()}"
        return url

    def replica_path(self, name: str) -> str:
        path = os.path.expandvars(self.config.replicas[name].path)
        return path if "://" in path else str((self.folder / path).resolve())

    @property
    def tracks(self) -> int:
        return self.config.run.tracks or max(2, os.cpu_count() or 2)


@dataclass
class _Reading:
    folder: Path
    feeds: list[FeedDeclaration] = field(default_factory=list)
    tables: list[TableDeclaration] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    opaque: set[str] = field(default_factory=set)
    remembered: Remembered = field(default_factory=Remembered)


def read_project(folder: Path) -> Declarations:
    """Everything that is declared in a folder. Raises `ProjectError` if there is no penstock.toml to begin with."""
    folder = folder.resolve()
    file = load_config(folder)
    remembered = remembered_of(folder)
    found = _Reading(folder, problems=list(file.problems), remembered=remembered)
    for name, config in file.config.feeds.items():
        broken, lines = file.of_feed(name)
        found.feeds.append(FeedDeclaration(name, config, file.at("feeds", name), lines, (), broken))
    found.opaque.update(flaw.keys[1] for flaw in file.flaws if flaw.keys[0] == "feeds" and len(flaw.keys) == 2)
    _read_folder(found, file)
    for declaration in (*found.feeds, *found.tables):
        found.problems.extend(declaration.problems)
    fed = {table.config.feed for table in found.tables}
    found.feeds = [with_rules(feed) for feed in found.feeds]
    for feed in found.feeds:
        if feed.name not in fed:
            plain = _plain_base_table(feed)
            found.tables.extend(keyed_tables(feed, plain) if is_keyed(feed) else [plain])
    return Declarations(
        folder,
        file.config,
        tuple(found.feeds),
        tuple(found.tables),
        tuple(found.problems),
        frozenset(found.opaque),
        file,
        remembered,
    )


def _read_folder(found: _Reading, file: ConfigFile) -> None:
    place = found.folder / file.config.tables
    if not place.is_dir():
        if "tables" in file.config.model_fields_set:
            message = f"`tables` names the folder {file.config.tables!r}, which does not exist"
            found.problems.append(Problem(file.at("tables"), message))
        return
    for path in sorted(place.rglob("*")):
        inner = path.relative_to(place)
        if any(part.startswith((".", "__")) for part in inner.parts) or not path.is_file():
            continue
        shown = os.path.relpath(path, found.folder)
        if path.suffix == ".sql":
            read = _read_sql(path, shown, found)
            found.problems.extend(read.problems)
            if read.table is not None:
                found.tables.append(read.table)
            else:
                found.opaque.add(read.name)
        elif path.suffix == ".toml":
            _read_toml(path, shown, found)
        elif path.suffix == ".py":
            _read_module(path, shown, found)
    _forget_modules(place)


def _read_sql(path: Path, shown: str, found: _Reading) -> SqlFile:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        return SqlFile(path.stem, None, [Problem(Location(shown, 1), f"not UTF-8 text: {error}")])
    return found.remembered.get(read_sql_table, text, path.stem, shown)


def _read_toml(path: Path, shown: str, found: _Reading) -> None:
    """A table without SQL: its settings say who makes it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        line, message = (
            toml_problem(error, text) if isinstance(error, tomllib.TOMLDecodeError) else (1, f"not UTF-8 text: {error}")
        )
        found.problems.append(Problem(Location(shown, line), message))
        found.opaque.add(path.stem)
        return
    description = " ".join(
        line.lstrip("# ").strip() for line in takewhile(lambda line: line.startswith("#"), text.splitlines())
    )
    checked = validate(TableConfig, data)
    lines = {".".join(keys): line for keys, line in key_lines(text).items()}
    table = TableDeclaration(
        checked.value.name or path.stem,
        checked.value,
        Location(shown, 1),
        description=description,
        lines=lines,
        flaws=checked.flaws,
        broken=checked.broken,
    )
    if not table.is_external and "kind" not in table.broken:
        message = (
            f'table `{table.name}` says nothing of who makes it; expected kind = "external", or a SELECT in a .sql file'
        )
        found.problems.append(Problem(table.where, message))
        found.opaque.add(table.name)
        return
    found.tables.append(table)


def _forget_modules(place: Path) -> None:
    """Take the project's modules off Python's list. Another project may have modules of the same names; and functions
    of modules that are not on the list are sent to Spark's workers whole, as those could not import them."""
    inside = f"{place}/"
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if origin and origin.startswith(inside):
            del sys.modules[name]


def _plain_base_table(feed: FeedDeclaration) -> TableDeclaration:
    """A feed that no table takes up has a base table of its own name, with the rows as they come."""
    config = feed.config
    same = {key: getattr(config, key) for key in ("time", *OF_TABLE)}
    settings = TableConfig().model_copy(update={"feed": feed.name, **same})
    return TableDeclaration(
        feed.name,
        settings,
        feed.where,
        description=f"The rows of feed {feed.name}.",
        lines=feed.lines,
        broken=feed.broken,
    )


def _read_module(path: Path, shown: str, found: _Reading) -> None:
    name = "penstock_project_" + hashlib.sha256(str(path).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Modules of the project may import each other, now and when their functions run.
    if sys.path[0] != str(path.parent):
        sys.path[:] = [str(path.parent), *(entry for entry in sys.path if entry != str(path.parent))]
    declared: list[FeedDeclaration | TableDeclaration] = []
    setattr(module, DECLARED, declared)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        found.problems.append(_import_problem(error, path, shown))
        found.opaque.update(_names_in(path))
    tree = _tree(path)
    for each in declared:
        found.opaque.discard(each.name)
        if each.where.file == str(path):
            lines = keyword_lines(tree, each.where.line) if tree is not None else {}
            each = replace(each, where=Location(shown, each.where.line), lines=lines)
        if isinstance(each, FeedDeclaration):
            found.feeds.append(each)
        else:
            found.tables.append(each)


def _import_problem(error: BaseException, path: Path, shown: str) -> Problem:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return Problem(Location(shown, error.lineno or 1), f"not valid Python: {error.msg}")
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    message = f"cannot be imported: {type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError):
        message += f"; install it where penstock runs, or put {str(error.name).split('.')[0]}.py beside this file"
    return Problem(Location(shown, lines[-1] if lines and lines[-1] else 1), message)


_DEFINED = re.compile(r"""^\s*def\s+(\w+)|\bfeed\(\s*["'](\w+)["']|\bname\s*=\s*["'](\w+)["']""", re.MULTILINE)


def _names_in(path: Path) -> set[str]:
    """What a module that cannot be imported may declare."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return {name for match in _DEFINED.finditer(text) for name in match.groups() if name}


def _tree(path: Path) -> ast.AST | None:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return None
