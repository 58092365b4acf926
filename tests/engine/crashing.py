"""What the tests of crashes share: a small warehouse, a runtime that does one thing after the other, crash points between
any two of its steps, and what must hold after a restart.

A crash is taken by copying the project's folder as it lies on disk at that moment: exactly what `kill -9` leaves, with
half-written files and an open transaction in SQLite's log. Nothing of the running process can tidy up in the copy.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache, reduce
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import pytest
from duckdb_extensions import import_extension
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import make_url

from penstock.control import readiness
from penstock.control.events import UpdateFinished
from penstock.control.state import State
from penstock.declare.project import read_project
from penstock.declare.sql.parse import carrying_sql
from penstock.declare.warehouse import Definitions, load_warehouse
from penstock.engine import runtime
from penstock.engine.arrivals.watcher import Lookout
from penstock.engine.declarations import restored_state
from penstock.engine.desk.versions import consistent_versions
from penstock.engine.runtime import Pace, Runtime
from penstock.engine.spark import work as sparkwork
from penstock.engine.updates import baseload, derive, load, rows
from penstock.engine.updates.executor import Executor
from penstock.engine.updates.provenance import FILE
from penstock.model.partitions import IntervalMap
from penstock.requests.job import Job
from penstock.requests.ledger import Ledger
from penstock.store.store import Store
from penstock.tables import Catalogue
from tests.engine import duckspark

PROJECT = {
    "penstock.toml": """
        name = "crashing"
        [run]
        tracks = 2
        [feeds.stats]
        path = "landing/stats/*.csv"
        format = "csv"
        columns = "router string, ts timestamp, bytes bigint"
        time = "ts"
        partition = "hour"
        lateness = "30m"
        settle = "0s"
        keep_versions = 1
        [feeds.alerts]
        path = "landing/alerts/*.json"
        format = "json"
        columns = "router string, seen timestamp, severity int"
        time = "seen"
        partition = "hour"
        settle = "0s"
        [feeds.routers]
        path = "landing/routers/*.csv"
        format = "csv"
        columns = "router string, site string"
        mode = "snapshot"
        settle = "0s"
    """,
    # folded
    "tables/hourly.sql": """
        -- partition = "hour"
        -- time = "hour"
        -- keep_versions = 1
        SELECT router, date_trunc('hour', ts) AS hour, sum(bytes) AS bytes, count(*) AS n FROM stats
        GROUP BY router, date_trunc('hour', ts)
    """,
    # appended row by row
    "tables/severe.sql": """
        -- partition = "hour"
        -- time = "seen"
        SELECT router, seen, severity FROM alerts WHERE severity >= 2
    """,
    # the second level
    "tables/daily.sql": """
        -- partition = "day"
        -- time = "day"
        -- keep_versions = 1
        SELECT router, date_trunc('day', hour) AS day, sum(bytes) AS bytes FROM hourly
        GROUP BY router, date_trunc('day', hour)
    """,
    # a join of feeds of different speed, a roll-up and a snapshot
    "tables/context.sql": """
        -- partition = "hour"
        -- time = "seen"
        SELECT a.router, a.seen, a.severity, h.bytes, r.site FROM alerts a
        JOIN hourly h ON h.router = a.router AND h.hour = date_trunc('hour', a.seen)
        JOIN routers r ON r.router = a.router
    """,
    # its own previous day
    "tables/lifetime.sql": """
        -- partition = "day"
        -- time = "day"
        -- columns = "router string, day timestamp, bytes bigint"
        -- sources = { lifetime = "SELF - 1" }
        SELECT router, day, sum(bytes) AS bytes FROM (
          SELECT router, day, bytes FROM daily
          UNION ALL
          SELECT router, day + INTERVAL 1 DAY AS day, bytes FROM lifetime
        ) AS earlier GROUP BY router, day
    """,
}

# What each table must hold, from the raw rows before its own edge: {stats} and {alerts} are those, {edge} is the edge.
EXPECTED = {
    "hourly": "SELECT router, date_trunc('hour', ts), sum(bytes)::BIGINT, count(*) FROM {stats} GROUP BY ALL",
    "severe": "SELECT router, seen, severity FROM {alerts} WHERE severity >= 2",
    "daily": "SELECT router, date_trunc('day', ts), sum(bytes)::BIGINT FROM {stats} GROUP BY ALL",
    "context": """
        SELECT a.router, a.seen, a.severity, h.bytes, r.site FROM {alerts} a
        JOIN (SELECT router, date_trunc('hour', ts) AS hour, sum(bytes)::BIGINT AS bytes FROM {stats} GROUP BY ALL) h
          ON h.router = a.router AND h.hour = date_trunc('hour', a.seen)
        JOIN routers r ON r.router = a.router""",
    # every router from its first day to the last, with what it sent until then
    "lifetime": """
        WITH days AS (SELECT DISTINCT unnest(range(date_trunc('day', first), {edge}, INTERVAL 1 DAY)) AS day
                      FROM (SELECT min(ts) AS first FROM {stats}))
        SELECT s.router, d.day, sum(s.bytes)::BIGINT FROM days d JOIN {stats} s ON s.ts < d.day + INTERVAL 1 DAY
        GROUP BY ALL""",
}
RAW = {
    "stats": "SELECT * FROM read_csv('{0}/landing/stats/s*.csv', header = true, "
    "columns = {{'router': 'VARCHAR', 'ts': 'TIMESTAMPTZ', 'bytes': 'BIGINT'}})",
    "alerts": "SELECT * FROM read_json('{0}/landing/alerts/*.json', format = 'newline_delimited', "
    "columns = {{'router': 'VARCHAR', 'seen': 'TIMESTAMPTZ', 'severity': 'INTEGER'}})",
}
TIMES = {"stats": "ts", "alerts": "seen"}


def stats(*readings: tuple[str, str, int]) -> str:
    return "router,ts,bytes\n" + "".join(f"{router},2024-03-{at}:00Z,{count}\n" for router, at, count in readings)


def alerts(*found: tuple[str, str, int]) -> str:
    return "".join(
        json.dumps({"router": router, "seen": f"2024-03-{at}:00Z", "severity": severity}) + "\n"
        for router, at, severity in found
    )


Delivery = Mapping[str, str]

# Each is written into the landing folders and worked off before the next one comes.
DELIVERIES: tuple[Delivery, ...] = (
    {
        "routers/r1.csv": "router,site\na,north\nb,south\n",
        "stats/s1.csv": stats(("a", "01T22:05", 10), ("b", "01T22:25", 7), ("a", "01T22:50", 1)),
        "stats/s2.csv": stats(("a", "01T23:05", 4), ("b", "01T23:40", 2)),
        "alerts/a1.json": alerts(("a", "01T22:10", 1), ("b", "01T22:55", 3), ("a", "01T23:20", 2)),
    },
    {
        # the next day, rows older than anything promised, a file that comes again, and a broken one
        "stats/s3.csv": stats(("b", "02T00:10", 5), ("a", "02T00:50", 3)),
        "stats/s4-late.csv": stats(("c", "01T22:15", 100)),
        "stats/s1.csv": stats(("a", "01T22:05", 10), ("b", "01T22:25", 7), ("a", "01T22:50", 1)),
        "stats/broken.csv": "router,when\na,b\n",
        "alerts/a2.json": alerts(("b", "01T23:30", 2), ("a", "02T00:20", 4)),
    },
    {
        # a correction that moves rows to another hour, and a new snapshot
        "stats/s2.csv": stats(("a", "01T23:05", 4), ("b", "02T00:40", 20), ("b", "01T23:45", 2)),
        "stats/s5.csv": stats(("a", "02T01:30", 6), ("b", "03T00:05", 8), ("a", "03T01:00", 9)),
        "alerts/a3.json": alerts(("a", "02T01:00", 2), ("b", "03T00:02", 5)),
        "routers/r2.csv": "router,site\na,west\nb,south\nc,east\n",
    },
)


class Crash(BaseException):
    """Nothing catches it."""


class Points:
    """Counts the crash points that are passed, and tells who watches."""

    def __init__(self) -> None:
        self.count = 0
        self.watch: Callable[[int, str], None] = lambda _number, _name: None

    def __call__(self, name: str) -> None:
        self.count += 1
        self.watch(self.count, name)

    @contextmanager
    def watched(self, watch: Callable[[int, str], None]) -> Iterator[None]:
        self.count, before = 0, self.watch
        self.watch = watch
        try:
            yield
        finally:
            self.watch = before


class Ticking:
    """A clock that goes on by a second whenever it is looked at."""

    speed = 1.0

    def __init__(self) -> None:
        self._now_us = 1_709_600_000_000_000

    def now_us(self) -> int:
        self._now_us += 1_000_000
        return self._now_us

    def pass_by(self, duration_us: int) -> None:
        self._now_us += duration_us

    def wall_s(self, duration_us: int) -> float:
        return 0.0


class WatchedStore(Store):
    """A crash point around each transaction and each statement."""

    def __init__(self, url: str, point: Points) -> None:
        super().__init__(url)
        self._point = point
        event.listen(self.engine, "before_cursor_execute", lambda *_: point("statement"))
        event.listen(self.engine, "commit", lambda *_: point("before commit"))

    @contextmanager
    def write(self) -> Iterator[Connection]:
        self._point("before a transaction")
        with super().write() as conn:
            yield conn
        self._point("committed")


class _Inline:
    """A track that does its job at once, in the thread that gives it."""

    def __init__(self, executor: Executor, done: Callable[[BaseException | None], None]) -> None:
        self.take: Callable[[Job], None] = lambda job: (executor.run(job), done(None))[1]

    def end(self, _within_s: float) -> bool:
        return True


class InlineLookout(Lookout):
    """Looks when it is asked, in the thread that asks."""

    def start(self) -> None:
        pass

    def found(self) -> int:
        return self._arrivals.scan()

    def is_done(self, idle: bool) -> bool:
        return idle and not self._arrivals.unsettled and not self._arrivals.scan()


class InlineRuntime(Runtime):
    point: Points

    def _lookout(self) -> Lookout:
        return InlineLookout(self.arrivals, 0.0, self.wake)

    def _executor(self) -> Executor:
        made = super()._executor()
        made._step = self.point
        return made

    def _track(self, number: int) -> Any:
        while len(self._tracks) <= number:
            self._tracks.append(_Inline(self._executor(), self._finished))  # type: ignore[arg-type]
        return self._tracks[number]


@dataclass
class Site:
    """One project folder that crashes and comes back."""

    folder: Path
    point: Points
    clock: Ticking = field(default_factory=Ticking)
    written: int = 0

    @property
    def warehouse(self) -> Definitions:
        return _declared(self.folder, (self.folder / "penstock.toml").read_text())

    @property
    def lake(self) -> str:
        """The catalogue as DuckDB attaches it."""
        url = make_url(self.warehouse.declarations.store_url)
        if url.get_backend_name() == "sqlite":
            return f"sqlite:{url.database}"
        return f"postgres:host={url.host} port={url.port} user={url.username} dbname={url.database}"

    @contextmanager
    def running(self) -> Iterator[InlineRuntime]:
        """A process. What it holds is dropped at the end; a crash closes nothing but what the system closes."""
        declared = self.warehouse
        store = WatchedStore(declared.declarations.store_url, self.point)
        runtime = None
        try:
            store.create()
            catalogue = Catalogue(declared.declarations.data_path)
            with store.write() as conn:
                catalogue.create(conn, self.clock.now_us())
            session = duckspark.Session(self.point)
            runtime = InlineRuntime(declared, store, catalogue, lambda: session, self.clock, Pace(0.0, 0.0))  # type: ignore[arg-type,return-value]
            runtime.point = self.point
            runtime.start()
            yield runtime
            runtime.close()
        finally:
            if runtime is not None:
                runtime._lock.release()
            store.close()

    def deliver(self, files: Delivery) -> None:
        for name, content in files.items():
            path = self.folder / "landing" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            self.written += 1
            stamp = 1_709_500_000_000_000_000 + self.written * 1_000_000_000
            os.utime(path, ns=(stamp, stamp))

    def work(self, deliveries: Sequence[Delivery] = DELIVERIES, each: Callable[[int], None] = lambda _n: None) -> None:
        """One process from start to stop: what is there first, then each delivery."""
        with self.running() as process:
            process.run(until_idle=True)
            for number, files in enumerate(deliveries):
                self.deliver(files)
                each(number)
                process.run(until_idle=True)
                process._expired_at = float("-inf")
                process._maintain()

    def replace_by(self, image: Path) -> None:
        """Put the disk as it was at a crash in the place of the project."""
        shutil.rmtree(self.folder)
        shutil.copytree(image, self.folder)


@lru_cache(maxsize=16)
def _declared(folder: Path, _settings: str) -> Definitions:
    return load_warehouse(read_project(folder))


@dataclass
class Image:
    folder: Path
    # How many deliveries had been made.
    delivered: int
    # What the database has committed.
    database: Any
    # The points at which the disk was like this.
    points: list[str] = field(default_factory=list)


@dataclass
class Images:
    """The disk at every crash point; points between which nothing changed share an image."""

    folder: Path
    site: Site
    taken: list[Image] = field(default_factory=list)
    delivered: int = 0
    _last: Any = None

    def take(self, number: int, name: str) -> None:
        key = (self.delivered, *_signature(self.site.folder))
        if key != self._last:
            self._last = key
            place = self.folder / str(len(self.taken))
            shutil.copytree(self.site.folder, place)
            self.taken.append(Image(place, self.delivered, key[1]))
        self.taken[-1].points.append(f"{number} {name}")

    def by_database(self) -> list[list[Image]]:
        """The images in groups that differ only in files that nothing published."""
        return [list(group) for _, group in groupby(self.taken, lambda image: (image.delivered, image.database))]


def _signature(folder: Path) -> tuple[Any, Any]:
    """What is on disk, cheaply: what SQLite has committed, which the head of its index of the log tells, and the names and
    sizes of all files (no two data files share a name)."""
    database: Any = None
    index = folder / ".penstock" / "penstock.db-shm"
    if index.exists():
        with index.open("rb") as stream:
            database = stream.read(96)
    found: list[Any] = []
    waiting = [str(folder / ".penstock"), str(folder / "warehouse")]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir():
                        waiting.append(entry.path)
                        found.append((entry.path, 0))
                    else:
                        found.append((entry.path, entry.stat().st_size))
        except FileNotFoundError:
            continue
    return database, tuple(sorted(found))


def make_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The project on disk, DuckDB in the place of Spark, and thresholds at which everything happens early."""
    point = Points()
    folder = tmp_path / "project"
    write_project(folder, PROJECT)
    without_spark(monkeypatch)
    monkeypatch.setattr(sparkwork, "WORTH_MERGING", 2)
    monkeypatch.setattr(readiness, "SMALL_FILES", 3)
    monkeypatch.setattr(runtime, "SNAPSHOT_EVERY", 10)
    monkeypatch.setattr(os, "fsync", lambda _handle: point("fsync"))
    for name in ("unlink", "rmdir"):
        monkeypatch.setattr(Path, name, _pointed(point, name, getattr(Path, name)))
    # Of some tables this process writes the files itself, of others Spark does.
    ours = ("stats", "daily", "context", "lifetime")
    monkeypatch.setattr(rows.Writer, "_is_small", lambda _self, root, _input_bytes: Path(root).name in ours)
    monkeypatch.setattr(Path, "write_bytes", _in_halves(point, Path.write_bytes))
    return Site(folder, point)


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own code, with DuckDB in the place of Spark."""
    for name in ("struct_of", "ddl"):
        monkeypatch.setattr(rows, name, lambda schema: schema)
    monkeypatch.setattr(derive, "DataFrame", duckspark.Frame)
    monkeypatch.setattr(baseload, "base_rows", _base_rows)
    monkeypatch.setattr(baseload, "refused_of", lambda seen: seen)
    monkeypatch.setattr(load.FeedReader, "frame", _frame)
    monkeypatch.setattr(load.FeedReader, "refused", _refused)
    monkeypatch.setattr(load.FeedReader, "count_refused", lambda *asked: _refused(*asked, "").rows.num_rows)


def _pointed(point: Points, name: str, function: Callable[..., None]) -> Callable[..., None]:
    def wrapped(*args: Any, **kwargs: Any) -> None:
        point(f"before {name}")
        function(*args, **kwargs)
        point(f"after {name}")

    return wrapped


def _in_halves(point: Points, write: Callable[[Path, Any], int]) -> Callable[[Path, Any], int]:
    def wrapped(path: Path, content: Any) -> int:
        if path.suffix != ".parquet":
            return write(path, content)
        whole = bytes(content)
        with path.open("wb") as stream:
            stream.write(whole[: len(whole) // 2])
            stream.flush()
            point("half a file written")
            stream.write(whole[len(whole) // 2 :])
        point("file written")
        return len(whole)

    return wrapped


def _frame(reader: Any, session: Any, files: Any) -> Any:
    """The rows of delivered files."""
    config = reader.feed.config
    parts = [
        duckspark.delivered(session, config.format, str(reader.folder / file.uri), reader.schema, config.options)
        for file in files
    ]
    return reduce(duckspark.Frame.unionAll, parts)


def _judged(reader: Any, session: Any, file: Any, arrived_us: int) -> Any:
    """The rows of a file with their line, as if each were one line, and why they are refused."""
    late = f"{file.late_us}L" if reader.feed.config.late != "load" and file.late_us is not None else None
    why = reader.reason(f"{arrived_us}L", late)
    lines = "row_number() OVER () + 1" if reader.feed.config.format == "csv" else "row_number() OVER ()"
    rows = _frame(reader, session, [file]).selectExpr(
        "*", f"{lines} AS line", "CAST(NULL AS VARCHAR) AS _penstock_corrupt"
    )
    return rows.selectExpr("*", f"{why} AS _penstock_reason")


def _refused(reader: Any, session: Any, files: Any, arrived_us: int, job: str) -> Any:
    parts = [
        _judged(reader, session, file, arrived_us)
        .where("_penstock_reason IS NOT NULL")
        .selectExpr(f"'{file.uri}' AS file", "line", "_penstock_reason AS reason", "'' AS row")
        .selectExpr("*", f"'{job}' AS job", "now() AS loaded_at")
        for file in files
    ]
    return reduce(duckspark.Frame.unionAll, parts)


def _base_rows(session: Any, definition: Any, reader: Any, files: Any, arrived_us: int) -> tuple[Any, list[Any]]:
    names = ", ".join(f"`{column.name}`" for column in reader.schema)
    parts, seen = [], []
    for file in files:
        judged = _judged(reader, session, file, arrived_us)
        seen.append(judged.where("_penstock_reason IS NOT NULL").rows.num_rows)
        good = judged.where("_penstock_reason IS NULL").selectExpr(names, f"CAST({file.id} AS BIGINT) AS {FILE}")
        if definition.view is not None and not definition.declaration.is_plain:
            carrying = carrying_sql(definition.view.parsed, FILE)
            assert carrying is not None
            good.createOrReplaceTempView(reader.feed.name)
            good = session.sql(carrying)
        parts.append(good)
    return reduce(duckspark.Frame.unionAll, parts), seen


def write_project(folder: Path, files: Mapping[str, str]) -> None:
    from textwrap import dedent

    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(content).lstrip("\n"))


# What must hold


@lru_cache(maxsize=1)
def _duckdb() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"threads": 1})
    for name in ("ducklake", "sqlite_scanner", "postgres_scanner"):
        import_extension(name, con=con)
        con.load_extension(name)
    con.execute("SET TimeZone = 'UTC'")
    return con


def check(site: Site, expected: Mapping[str, str] = EXPECTED) -> dict[str, int | None]:
    """Everything that must hold when a process has stopped; gives the edges. Nobody may have the store open."""
    state = _check_state(site)
    edges = {name: table.edge_us for name, table in state.tables.items()}
    check_files(site)
    con = _duckdb()
    con.execute(f"ATTACH 'ducklake:{site.lake}' AS lake (READ_ONLY)")
    try:
        _check_rows(con, site.folder, edges, expected)
    finally:
        con.execute("USE memory")
        con.execute("DETACH lake")
    return edges


def _check_rows(
    con: duckdb.DuckDBPyConnection, folder: Path, edges: Mapping[str, int | None], expected: Mapping[str, str]
) -> None:
    newest = max((folder / "landing" / "routers").glob("*.csv"))
    con.execute(f"CREATE OR REPLACE TEMP TABLE routers AS SELECT * FROM read_csv('{newest}', header = true)")
    for feed, sql in RAW.items():
        con.execute(f"CREATE OR REPLACE TEMP TABLE raw_{feed} AS {sql.format(folder)}")
        _same(con, feed, f"SELECT * FROM raw_{feed}")
    _same(con, "routers", "SELECT * FROM routers")
    for table, sql in expected.items():
        edge = f"make_timestamptz({edges[table]})"
        cut = {feed: f"(SELECT * FROM raw_{feed} WHERE {TIMES[feed]} < {edge})" for feed in RAW}
        _same(con, table, sql.format(edge=edge, **cut))


def _same(con: duckdb.DuckDBPyConnection, table: str, expected: str) -> None:
    got = sorted(con.execute(f"SELECT * FROM lake.main.{table}").fetchall(), key=repr)
    want = sorted(con.execute(expected).fetchall(), key=repr)
    assert got == want, f"{table}: published\n{_lines(got)}\nexpected\n{_lines(want)}"


def _lines(found: Sequence[tuple[Any, ...]]) -> str:
    return "\n".join("  " + " ".join(map(str, row)) for row in found)


def _check_state(site: Site) -> State:
    """The state is the fold of the log, nothing is left to do, and log, versions and snapshots tell the same story."""
    store = Store(site.warehouse.declarations.store_url)
    try:
        with store.read() as conn:
            log = list(store.events(conn))
            saved = store.saved_state(conn)
            versions = list(conn.execute(text("SELECT table_name, snapshot, job FROM penstock_version")))
            snapshots = list(conn.execute(text("SELECT snapshot_id, commit_extra_info FROM ducklake_snapshot_changes")))
            statuses = dict(conn.execute(text("SELECT uri, status FROM penstock_file")).all())
            catalogue = Catalogue(site.warehouse.declarations.data_path)
            newest = catalogue.snapshot(conn)
            _check_readable(store, catalogue, conn, list(site.warehouse.definitions))
        state = State().fold(log)
        assert plain(restored_state(store)) == plain(state)
    finally:
        store.close()
    assert saved is not None and saved[0] == log[-1][0]
    assert not state.busy and state.owner is None
    for name, table in state.tables.items():
        assert not table.failed and table.error is None, f"{name}: {table.error}"
        assert not table.needs and not table.files and table.running is None, f"{name} has work left"
    finished = [e for _, e in log if isinstance(e, UpdateFinished) and e.how != "nothing to merge"]
    versions_told = [done for done in finished if not done.how.startswith("merged")]
    published = {(p.table, p.snapshot, done.job) for done in versions_told for p in done.publications}
    # Retention forgets old ones, never the newest.
    recorded = {tuple(row) for row in versions}
    assert recorded <= published and len(recorded) == len(versions)
    newest_of = {table: max(snapshot for name, snapshot, _ in published if name == table) for table, _, _ in published}
    assert {(table, snapshot) for table, snapshot, _ in recorded} >= set(newest_of.items())
    by_snapshot = {p.snapshot: done.job for done in finished for p in done.publications}
    assert newest == max(by_snapshot)
    for number, extra in snapshots:
        if number:
            assert json.loads(extra)["job"] == by_snapshot[number]
    assert set(statuses.values()) <= {"loaded", "quarantined"}
    assert {uri for uri, status in statuses.items() if status == "quarantined"} == set(state.quarantine)
    return state


def _check_readable(store: Store, catalogue: Catalogue, conn: Connection, tables: list[str]) -> None:
    """The newest version of each table can be read, whatever was merged and expired, and all tables together too."""
    asked = [[table] for table in tables if store.versions(conn, table)]
    for names in [*asked, [name for (name,) in asked]]:
        for version in consistent_versions(store, catalogue, conn, names).values():
            files = catalogue.files(conn, version.table, version.read_at)
            assert all(Path(catalogue.locate(version.table, file)).exists() for file in files), version


def plain(value: Any) -> Any:
    """A state as nested plain values, so that two of them can be compared, whoever made them."""
    if isinstance(value, State | Ledger):
        hidden = {"_handlers", "touched", "now_us", "graph"}
        return {key: plain(one) for key, one in vars(value).items() if key not in hidden}
    if isinstance(value, IntervalMap):
        return [plain(piece) for piece in value.pieces()]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, str | int | float | bool | None):
        return value
    if hasattr(value, "__iter__"):
        return [plain(one) for one in value]
    return {name: plain(getattr(value, name)) for name in getattr(value, "__slots__", None) or vars(value)}


def check_files(site: Site) -> None:
    """On disk lies what the catalogue knows, each with at most its checksum file, and nothing else."""
    store = Store(site.warehouse.declarations.store_url)
    catalogue = Catalogue(site.warehouse.declarations.data_path)
    try:
        with store.read() as conn:
            left = list(catalogue.unknown_files(conn))
            assert left == [], left
            assert catalogue.scheduled(conn) == []
    finally:
        store.close()
    root = Path(catalogue.data_path)
    for place, folders, files in os.walk(root):
        if not folders and not files:
            assert len(Path(place).relative_to(root).parts) <= 2, f"{place} is empty"
        for name in files:
            if Path(place) == root:
                assert name == "penstock.json", f"{place}/{name} is left over"
            elif name.endswith(".crc"):
                assert name[1:].removesuffix(".crc") in files, f"{place}/{name} is left over"
            else:
                assert name.endswith(".parquet"), f"{place}/{name} is left over"
