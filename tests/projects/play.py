"""Lives through a case with the product and compares every table with the oracle after every step."""

from __future__ import annotations

import copy
import fnmatch
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
from duckdb_extensions import import_extension

from penstock.app import check
from penstock.declare.problems import ProjectError
from penstock.errors import PenstockError
from tests.projects import files as writing
from tests.projects.calendar import floor, moment
from tests.projects.engines import Engine, NoRest, Ran, RefusedBackfill
from tests.projects.oracle import Files, Loaded, Oracle, Rows, Unsure, carried, optional, plain, waits_for
from tests.projects.project import Case, Project, bases, declare, order, pattern, present, write_project

FIRST_MTIME = 1_700_000_000.0


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be."""

    kind: str
    step: int
    table: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} at step {self.step}, {self.table}: {self.text}"


@dataclass
class Played:
    findings: list[Finding] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    steps: int = 0
    tables: int = 0
    rows: int = 0
    seconds: float = 0.0


class World:
    """One project folder, what lies in its landing folders, the record of what was loaded, and the present declarations."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.folder = folder
        self.project: Project = copy.deepcopy(case["project"])
        self.files = Files()
        # What lies there: {(feed, file): what it is}
        self.landing: dict[tuple[str, str], Loaded] = {}
        # Up to when each base table was complete after the last step.
        self.edges: dict[str, int | None] = {}
        # The promises of marker files.
        self.marks: dict[str, list[int]] = {}
        self.number = self.loaded_up_to = 0
        self.mtime = FIRST_MTIME
        self.backfills: list[tuple[str, str | None]] = []
        # What is taken back or given back at the next step, and the contents that were taken back.
        self.takings: list[tuple[str, str]] = []
        self.withdrawn: dict[tuple[str, str], bytes] = {}
        self.kill_at: int | None = None
        self.ask = False

    @property
    def present(self) -> Project:
        return present(self.project)

    def act(self, action: Mapping[str, Any]) -> None:
        what = action["do"]
        if "feed" in action and action["feed"] not in self.project["feeds"]:
            return
        if what == "deliver":
            self._deliver(action)
        elif what == "mark":
            writing.write(self._path(action), writing.time_text(action["at"], "z", "UTC").encode(), self._tick())
            self.marks.setdefault(action["feed"], []).append(action["at"])
        elif what == "again":
            path = self._path(action)
            if path.exists():
                writing.write(path, path.read_bytes(), self._tick())
                place = (action["feed"], action["file"])
                found = self.landing.get(place)
                if found is not None and found.number > self.loaded_up_to:
                    # Nobody has seen it yet: it comes now.
                    self.number += 1
                    self.landing[place] = replace(found, number=self.number, mtime=self.mtime)
        elif what == "delete":
            self._path(action).unlink(missing_ok=True)
            self.landing.pop((action["feed"], action["file"]), None)
        elif what == "backfill":
            self.backfills.append((action["table"], action["span"]))
        elif what in ("withdraw", "give back"):
            self._take_back(what, (action["feed"], action["file"]))
        elif what == "ask":
            self.ask = True
        elif what == "kill":
            self.kill_at = action["at"]
        else:
            declare(self.project, action)

    def _take_back(self, what: str, place: tuple[str, str]) -> None:
        """What is known of a file is what the last step saw of it."""
        feed, file = place
        path = f"landing/{feed}/{file}"
        known = [of for of in self.files.loaded.values() if file in of and of[file].feed == feed]
        if what == "withdraw" and known:
            self.withdrawn[place] = known[0][file].data
            for of in known:
                del of[file]
            self.takings.append((what, path))
        elif what == "give back" and place in self.withdrawn and place in self.landing:
            del self.withdrawn[place]
            self.number += 1
            self.landing[place] = replace(self.landing[place], number=self.number)
            self.takings.append((what, path))

    def _tick(self) -> float:
        self.mtime += 1.0
        return self.mtime

    def _path(self, action: Mapping[str, Any]) -> Path:
        return self.folder / "landing" / action["feed"] / action["file"]

    def _deliver(self, action: Mapping[str, Any]) -> None:
        feed = self.project["feeds"][action["feed"]]
        rows = [*action["rows"], *action.get("bad", [])]
        data, lines = writing.content(feed, self.project["zone"], rows)
        mtime = time.time() + 7200 if action.get("future") else self._tick() - action.get("aged", 0) * 10
        writing.write(self._path(action), data, mtime)
        place = (action["feed"], action["file"])
        if not data and not any(action["file"] in known for known in self.files.loaded.values()):
            # A file of nothing that comes first is refused: most often its writer failed.
            self._path(action).unlink()
            self.landing.pop(place, None)
            return
        if place not in self.landing or self.landing[place].data != data:
            self.number += 1
            columns = [name for name, _ in feed["columns"]]
            self.landing[place] = Loaded(
                action["feed"], self.number, writing.read(feed, rows), data, mtime, columns, lines
            )

    def load(self) -> None:
        """What a run takes up: every base table what lies there of its feed and is new to it."""
        project = self.present
        # Those that are found at once came in the order of their times.
        new = [(place, one) for place, one in self.landing.items() if one.number > self.loaded_up_to]
        for number, (place, one) in enumerate(sorted(new, key=lambda each: (each[1].mtime, each[0])), 1):
            self.landing[place] = replace(one, number=self.loaded_up_to + number)
        self.number = self.loaded_up_to = self.loaded_up_to + len(new)
        for name in order(project):
            table = project["tables"].get(name)
            feed = name if table is None else table.get("feed")
            if feed is None:
                continue
            for (of, file), one in sorted(self.landing.items(), key=lambda each: each[1].number):
                matches = of == feed and fnmatch.fnmatchcase(file, pattern(project["feeds"][feed]))
                if matches and self.withdrawn.get((of, file)) != one.data:
                    self.files.came(name, file, replace(one, late=self.edges.get(name)))


# The product, as users reach it


def play(
    case: Case,
    engine: Engine,
    folder: Path | None = None,
    *,
    stop_at_first: bool = True,
    log: Callable[[str], None] = lambda _: None,
) -> Played:
    began = time.monotonic()
    place = folder or Path(tempfile.mkdtemp(prefix="drawn-"))
    world = World(case, place)
    played = Played()
    oracle = shared_oracle()
    before: Project | None = None
    try:
        for number, actions in enumerate(case["steps"]):
            for action in actions:
                world.act(action)
            project = world.present
            write_project(project, place)
            played.steps += 1
            problems = [problem for problem in check(place) if problem.severity == "error"]
            if problems:
                played.refused.append(problems[0].message)
                if before is None:
                    break
                # The change is taken back, and life goes on.
                world.project = before
                project = world.present
                write_project(project, place)
            before = copy.deepcopy(world.project)
            world.load()
            try:
                found = _step(world, project, engine, number, oracle, played)
            except Unsure:
                break
            played.findings += found
            for finding in found:
                log(str(finding))
            if found and stop_at_first:
                break
    finally:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
    played.seconds = time.monotonic() - began
    return played


@lru_cache(maxsize=1)
def shared_oracle() -> Oracle:
    return Oracle()


def _step(world: World, project: Project, engine: Engine, number: int, oracle: Oracle, played: Played) -> list[Finding]:
    tables = order(project)
    asked = [(table, span) for table, span in world.backfills if table in tables]
    kill_at, world.kill_at = world.kill_at, None
    ask, world.ask = world.ask, False
    takings = [*world.takings]
    world.backfills.clear()
    world.takings.clear()
    if takings:
        kill_at = None  # who is killed would not know which content was meant
    try:
        try:
            ran = engine.run(world.folder, asked, takings, kill_at, ask)
        except RefusedBackfill as error:
            if not _sensible_refusal(str(error)):
                return [Finding("backfill refused", number, "-", str(error))]
            ran = engine.run(world.folder, (), takings, None, ask)
    except ProjectError as error:
        return [Finding("check ok, start refused", number, "-", str(error))]
    except PenstockError as error:
        return [Finding("run raised", number, "-", f"{type(error).__name__}: {error}")]
    except NoRest as error:
        return [Finding("no rest", number, "-", str(error))]
    except Exception as error:
        return [Finding("run crashed", number, "-", f"{type(error).__name__}: {str(error)[:500]}")]
    try:
        return _compared(world, project, engine, ran, number, oracle, played)
    except duckdb.Error as error:
        return [Finding("oracle failed", number, "-", str(error)[:500])]


def _sensible_refusal(text: str) -> bool:
    return any(
        words in text
        for words in (
            "nothing",
            "no partitions",
            "has no rows",
            "empty",
            "not partitioned",
            "before",
            "after",
            "no longer there",
        )
    )


def _compared(
    world: World, project: Project, engine: Engine, ran: Ran, number: int, oracle: Oracle, played: Played
) -> list[Finding]:
    found = [Finding("verify", number, "-", problem) for problem in ran.problems]
    status = {row.table: row for row in ran.status}
    edges = {name: row.complete_us if row.as_of_us is None else row.as_of_us for name, row in status.items()}
    # A marker may come before the first file: then there is nothing to read yet.
    edges |= {name: None for name, row in status.items() if name in bases(project) and not row.updates}
    kept = _kept_back(project)
    for name in order(project):
        row = status[name]
        if row.error:
            found.append(Finding("failed", number, name, row.error.splitlines()[0][:300]))
        elif row.doing not in ("idle", "empty"):
            found.append(Finding("not idle", number, name, row.doing))
        elif (row.inconsistent or row.held) and name not in kept:
            found.append(Finding("inconsistent when idle", number, name, f"{row.inconsistent} {row.held}"))
        if row.quarantined_files:
            found.append(Finding("file quarantined", number, name, f"{row.quarantined_files} files"))
    if found:
        return found
    # A table that was never made is as far as it could be made.
    unmade = {name for name, row in status.items() if row.doing == "empty"}
    for name in order(project):
        table = project["tables"].get(name)
        if table is not None and not table.get("feed") and edges[name] is None:
            edges[name] = _reached(project, name, edges)
    wanted = oracle.contents(project, world.files, edges, unmade)
    for name in sorted(unmade & {*project["tables"]}):
        table = project["tables"][name]
        sure = not table.get("feed") and name not in kept and "absent" not in table["settings"]
        if sure and not oracle.waits(name, project, edges, unmade):
            found.append(Finding("never made", number, name, "all its sources have something"))
    got = published(world.folder, {name: columns for name, (columns, _) in wanted.items()})
    for name, (_, want) in wanted.items():
        if name in kept:
            continue
        played.tables += 1
        played.rows += len(want)
        difference = _difference(want, got[name])
        if difference:
            edge = edges[name]
            upto = "no edge" if edge is None else f"complete up to {moment(edge).isoformat()}"
            found.append(Finding("wrong rows", number, name, f"{upto}; {difference}"))
    world.edges = {name: edges[name] for name in order(project) if name in bases(project) or _feed_of(project, name)}
    found += _refused(world, project, number, oracle, lines=not engine.plain)
    found += _waiting(project, ran, edges, {name: got[name] for name in got}, unmade | kept, number, oracle)
    if ran.answer is not None and not kept:
        counts, complete, consistent = ran.answer
        told = [edges[name] for name in counts if edges[name] is not None]
        least = min((edge for edge in told if edge is not None), default=None)
        if any(edges[one] is None and oracle.flows(one, project) for one in counts):
            least = 0  # nothing of it is complete
        elif least is None and complete is not None and complete <= time.time() * 1e6:
            least = complete  # tables without times are as of now
        wrong = {name: (count, len(wanted[name][1])) for name, count in counts.items() if count != len(wanted[name][1])}
        if wrong:
            found.append(Finding("query counts", number, "-", f"(answered, expected) {wrong}"))
        if not consistent:
            found.append(Finding("query inconsistent", number, "-", "all tables are idle, but are said not to agree"))
        if complete != least:
            found.append(
                Finding("query claim", number, "-", f"complete up to {complete}, but the tables are up to {least}")
            )
    found += [claim for claim in _claims(world, project, edges, number) if claim.table not in kept]
    return found


def _feed_of(project: Project, name: str) -> str | None:
    table = project["tables"].get(name)
    return name if table is None else table.get("feed")


def _kept_back(project: Project) -> set[str]:
    """Tables that do not follow all changes, with all that is made from them: only when they do again is known what they hold."""
    found: set[str] = set()
    for name in order(project):
        table = project["tables"].get(name)
        if table and (
            table["settings"].get("propagate", "all") != "all" or any(one in found for one in table["sources"])
        ):
            found.add(name)
    return found


def _refused(world: World, project: Project, number: int, oracle: Oracle, *, lines: bool) -> list[Finding]:
    """Whether the quarantine of each base table has the rows that are bad or late now, by file and line, and no others."""
    found = []
    wanted = oracle.refused(project, world.files)
    stored = published(world.folder, {f"{name}_quarantine": ["file", "line", "reason"] for name in wanted})
    for name, want in wanted.items():
        got: Counter[tuple[str, int, str]] = Counter()
        for file, line, reason in stored[f"{name}_quarantine"]:
            kind = "late" if reason.startswith("late:") else "rule" if "breaks the rule" in reason else "other"
            kind = "time" if reason.endswith(" is null") and "event time" in reason else kind
            got[file.rpartition("/")[2], line, kind] += 1
        if not lines:  # the stand-in takes each row for one
            want, got = _without_lines(want), _without_lines(got)
        if got != want:
            missing, extra = list((want - got).elements()), list((got - want).elements())
            found.append(Finding("quarantine", number, name, f"missing {missing[:4]}; extra {extra[:4]}"))
    return found


def _without_lines(rows: Counter[tuple[str, int, str]]) -> Counter[tuple[str, int, str]]:
    found: Counter[tuple[str, int, str]] = Counter()
    for (file, _, kind), count in rows.items():
        found[file, 0, kind] += count
    return found


def _waiting(
    project: Project,
    ran: Ran,
    edges: Mapping[str, int | None],
    got: Mapping[str, Rows],
    unsure: Collection[str],
    number: int,
    oracle: Oracle,
) -> list[Finding]:
    """What is said of rows that wait for other sources: those of a source between the table's edge and its own."""
    found = []
    told = {(one.table, one.source): one for one in ran.waiting}
    for name in order(project):
        table, edge = project["tables"].get(name), edges[name]
        if table is None or table.get("feed") or name in unsure or edge is None:
            continue
        limits = _above(project, name, edges)
        if len(limits) < 2 or edge != min(one if one is not None else edge for one in limits.values()):
            continue
        for source in limits:
            own = edges[source]
            if source in unsure or own is None or limits[source] != own:
                continue
            columns = (
                project["tables"][source]["columns"]
                if source in project["tables"]
                else project["feeds"][source]["columns"]
            )
            _, at, _ = oracle._source(source, project)
            if at is None or not columns:
                continue
            ((want,),) = oracle.con.execute(
                f'SELECT count(*) FROM "o_{source}" WHERE {at} >= {edge} AND {at} < {own}'
            ).fetchall()
            one = told.get((name, source))
            feed = project["feeds"].get(_feed_of(project, source) or "", {"settings": {}})
            vague = feed["settings"].keys() & {"lateness", "punctuation"}
            if own > edge and want and one is None and not vague:
                found.append(Finding("waiting rows", number, name, f"{want} rows of {source} wait, nothing is said"))
            if one is not None and one.exact and own > edge and one.rows != want:
                found.append(
                    Finding("waiting rows", number, name, f"{one.rows} rows of {source} are said to wait, it is {want}")
                )
            if one is not None and own <= edge:
                found.append(Finding("waiting rows", number, name, f"{source} is said to be ahead, but is not"))
    return found


def _claims(world: World, project: Project, edges: Mapping[str, int | None], number: int) -> list[Finding]:
    """What is said about completeness is never ahead of what the feeds said, nor behind without a reason."""
    found = []
    for name in order(project):
        edge = edges[name]
        table = project["tables"].get(name)
        feed_name = name if table is None else table.get("feed")
        if feed_name:
            limit = _feed_edge(world, project, name, feed_name)
            if limit is not None and edge is not None and edge > limit:
                found.append(
                    Finding(
                        "claim ahead", number, name, f"claims {moment(edge)}, the feed's rows allow {moment(limit)}"
                    )
                )
            continue
        assert table is not None
        limits = _above(project, name, edges)
        if not limits:
            continue
        known = [one for one in limits.values() if one is not None]
        if edge is not None and (len(known) < len(limits) or edge > min(known)):
            found.append(Finding("claim ahead", number, name, f"claims {moment(edge)}, sources {limits}"))
    return found


def _above(project: Project, name: str, edges: Mapping[str, int | None]) -> dict[str, int | None]:
    """How far each source with an edge lets a table be complete."""
    oracle = shared_oracle()
    table = project["tables"][name]
    grain, found = table["grain"], {}
    for source, relation in table["sources"].items():
        if source == name or not oracle.flows(source, project) or not waits_for(table, source):
            continue
        if optional(table, source):
            continue
        edge, source_grain = edges[source], oracle._source(source, project)[2]
        if edge is not None:
            edge = carried(edge, relation, source_grain, grain, project["zone"])
        found[source] = edge
    return found


def _reached(project: Project, name: str, edges: Mapping[str, int | None]) -> int | None:
    """Up to when a table could be made. A roll-up that is ahead is cut between its partitions only, and so may be the next."""
    table, zone = project["tables"][name], project["zone"]
    known = {source: edge for source, edge in _above(project, name, edges).items() if edge is not None}
    if not known or len(known) < len(_above(project, name, edges)):
        return None
    least = min(known.values())
    if table["settings"].get("update") == "closed" and table["grain"] != "none":
        least = floor(least, table["grain"], zone)
    while True:
        before = least
        for source, edge in known.items():
            rolled = project["tables"].get(source, {"grain": "none"})
            if not rolled.get("feed") and rolled["grain"] != "none" and edge > least:
                least = floor(least, rolled["grain"], zone)
        if least == before:
            return least


def _feed_edge(world: World, project: Project, name: str, feed_name: str) -> int | None:
    """How far a base table may say that it is complete: its feed's newest row, ever, less the lateness."""
    feed = project["feeds"][feed_name]
    if feed["time"] is None or feed["mode"] == "snapshot":
        return None
    if "punctuation" in feed["settings"]:
        return max(world.marks.get(feed_name, []), default=-(2**40))
    at = [column for column, _ in feed["columns"]].index(feed["time"])
    if feed["columns"][at][1] != "timestamp" or feed["style"] == "naive":
        return None
    times = [
        row[file.columns.index(feed["time"])]
        for file in world.files.loaded.get(name, {}).values()
        if feed["time"] in file.columns
        for row in file.rows
    ]
    times = [us for us in times if isinstance(us, int)]
    newest = max([*times, world.files.newest.get(name, -(2**62))])
    world.files.newest[name] = newest
    return newest + 1 - seconds(feed["settings"].get("lateness", "0s")) * 1_000_000


def seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[text[-1]]


def _difference(want: Rows, got: Rows) -> str:
    missing, extra = Counter(map(repr, want)), Counter(map(repr, got))
    missing, extra = missing - extra, extra - missing
    if not missing and not extra:
        return ""
    return (
        f"{len(got)} rows, expected {len(want)}; missing {sum(missing.values())}: {' '.join(list(missing)[:3])}; "
        f"extra {sum(extra.values())}: {' '.join(list(extra)[:3])}"
    )


@lru_cache(maxsize=1)
def _lake() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"threads": 1})
    for name in ("ducklake", "sqlite_scanner"):
        import_extension(name, con=con)
        con.load_extension(name)
    con.execute("SET TimeZone = 'UTC'")
    return con


def published(folder: Path, tables: Mapping[str, list[str]]) -> dict[str, Rows]:
    """What any DuckDB reads. On a copy of the catalogue: two SQLite libraries in one process do not see each other's locks."""
    con = _lake()
    with tempfile.TemporaryDirectory() as scratch:
        copied = Path(scratch) / "catalogue.db"
        with closing(sqlite3.connect(folder / ".penstock" / "penstock.db")) as original:
            original.execute("VACUUM INTO ?", (str(copied),))
        con.execute(f"ATTACH 'ducklake:sqlite:{copied}' AS lake (READ_ONLY)")
        try:
            names = {
                row[0]
                for row in con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'").fetchall()
            }
            found: dict[str, Rows] = {}
            for name, columns in tables.items():
                found[name] = []
                if name in names:
                    listed = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
                    rows = con.execute(f'SELECT {listed} FROM lake.main."{name}"').fetchall()
                    found[name] = [tuple(plain(value) for value in row) for row in rows]
            return found
        finally:
            con.execute("USE memory")
            con.execute("DETACH lake")
