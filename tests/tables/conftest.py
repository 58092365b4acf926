"""A catalogue on SQLite and on PostgreSQL, Parquet files by pyarrow, and DuckDB as the reader from outside."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb_extensions import import_extension
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from penstock.model.schema import Column, Schema
from penstock.tables import Catalogue, DataFile, Note, TableChange
from penstock.tables.footer import read_footer
from tests.waiting import until

_BINARIES = [Path("/usr/lib/postgresql") / version / "bin" for version in ("17", "16", "15", "14")]
DAY_US = 86_400_000_000
T0_US = 1_700_000_000_000_000


def sqlite_engine(path: Path) -> Engine:
    # DuckDB brings an SQLite of its own, and two of them in one process do not see each other's locks: the
    # second to close the file throws the other's log away. So no connection of ours stays open between
    # transactions here.
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


@dataclass
class Lake:
    """A catalogue, the data folder and the ways to reach them."""

    engine: Engine
    catalogue: Catalogue
    address: str
    extension: str
    root: Path
    written: int = 0
    clock_us: int = T0_US
    open: list[duckdb.DuckDBPyConnection] = field(default_factory=list)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        with self.engine.begin() as conn:
            yield conn

    def write(self, table: str, rows: pa.Table, partition_us: int = 0, **options: Any) -> DataFile:
        folder = Path(self.catalogue.folder(table))
        folder.mkdir(parents=True, exist_ok=True)
        self.written += 1
        path = folder / f"part-{self.written:05}.parquet"
        pq.write_table(rows, path, **options)
        return read_footer(str(path), partition_us, str(folder))

    def publish(self, *changes: TableChange, note: Note = Note()) -> int:
        self.clock_us += 1_000_000
        with self.begin() as conn:
            return self.catalogue.publish(conn, changes, note, self.clock_us)

    def append(self, table: str, schema: Schema, rows: pa.Table, partition_us: int = 0) -> int:
        return self.publish(TableChange(table, schema, (), [self.write(table, rows, partition_us)]))

    def files(self, table: str, snapshot: int | None = None, **options: Any) -> list[DataFile]:
        with self.begin() as conn:
            at = self.catalogue.snapshot(conn) if snapshot is None else snapshot
            return self.catalogue.files(conn, table, at, **options)

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        con = duckdb.connect(config={"threads": 1})
        for name in ("ducklake", self.extension):
            import_extension(name, con=con)
        con.execute("SET TimeZone = 'UTC'")
        con.execute(f"ATTACH 'ducklake:{self.address}' AS lake")
        con.execute("USE lake")
        self.open.append(con)
        return con

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """In a fresh DuckDB, which knows nothing but the catalogue."""
        con = self.duckdb()
        try:
            return con.execute(sql).fetchall()
        finally:
            con.close()
            self.open.remove(con)

    def scalar(self, sql: str) -> Any:
        with self.begin() as conn:
            return conn.execute(text(sql)).scalar()

    def close(self) -> None:
        for con in self.open:
            con.close()
        self.engine.dispose()


def _answers(engine: Engine) -> bool:
    try:
        engine.connect().close()
    except OperationalError:
        return False
    return True


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[str], str]]:
    """A private server on a free loopback port; gives the address of a new, empty database."""
    binaries = next((folder for folder in _BINARIES if (folder / "initdb").exists()), None)
    if binaries is None:
        pytest.skip("no PostgreSQL server binaries under /usr/lib/postgresql: PostgreSQL is not tested here")
    # Not below the folder of this run of tests: another run that starts closes that to all other users.
    home = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    prefix: list[str] = []
    if os.geteuid() == 0:  # The server refuses to run as root.
        if shutil.which("setpriv") is None or subprocess.run(["id", "postgres"], capture_output=True).returncode:
            pytest.skip("running as root without setpriv or a user postgres: PostgreSQL is not tested here")
        prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        shutil.chown(home, "postgres")
    data = home / "data"
    subprocess.run(
        [*prefix, binaries / "initdb", "-D", data, "-A", "trust", "-U", "penstock", "-E", "UTF8", "--no-locale", "-N"],
        check=True, capture_output=True, cwd="/",
    )  # fmt: skip
    for _ in range(5):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = subprocess.Popen(
            [*prefix, binaries / "postgres", "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1",
             "-c", "unix_socket_directories=", "-c", "fsync=off"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        admin = create_engine(f"postgresql+psycopg://penstock@127.0.0.1:{port}/postgres", isolation_level="AUTOCOMMIT")
        until(lambda server=server, admin=admin: server.poll() is not None or _answers(admin), "PostgreSQL")  # type: ignore[misc]
        if server.poll() is None:
            break
        # Somebody else took the port meanwhile: another one.
    else:
        pytest.fail("PostgreSQL does not start")

    def database(name: str) -> str:
        with admin.connect() as conn:
            conn.execute(text(f'CREATE DATABASE "{name}"'))
        return f"127.0.0.1:{port}/{name}"

    yield database
    admin.dispose()
    server.terminate()
    server.wait()
    shutil.rmtree(home, ignore_errors=True)


_count = 0


@pytest.fixture(params=["sqlite", "postgres"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    yield from make_lake(request.param, request, tmp_path)


@pytest.fixture
def sqlite_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    yield from make_lake("sqlite", request, tmp_path)


def make_lake(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    global _count
    catalogue = Catalogue(str(tmp_path / "data"))
    if kind == "sqlite":
        path = tmp_path / "penstock.db"
        lake = Lake(sqlite_engine(path), catalogue, f"sqlite:{path}", "sqlite_scanner", tmp_path)
    else:
        _count += 1
        place = request.getfixturevalue("postgres")(f"lake{_count}")
        host, _, name = place.partition("/")
        address, _, port = host.partition(":")
        lake = Lake(
            create_engine(f"postgresql+psycopg://penstock@{place}"),
            catalogue,
            f"postgres:host={address} port={port} user=penstock dbname={name}",
            "postgres_scanner",
            tmp_path,
        )
    with lake.begin() as conn:
        catalogue.create(conn, T0_US)
    yield lake
    lake.close()


def columns(**types: str) -> Schema:
    return tuple(Column(name, kind) for name, kind in types.items())


def rows(**data: Sequence[Any] | pa.Array) -> pa.Table:
    values: Mapping[str, Any] = data
    return pa.table({name: value if isinstance(value, pa.Array) else pa.array(value) for name, value in values.items()})
