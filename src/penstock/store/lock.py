"""One process at a time runs a project. The lock belongs to the operating system (a locked file) or to the database
server (an advisory lock), so that a killed process never leaves it behind.

A process that is frozen, or whose connection is lost without a word, keeps the server's lock. So who has it renews a lease, and a process that stands by
takes over when that has run out, by the clock of the server. What the first one still does is fenced off."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from penstock.errors import PenstockError
from penstock.store.store import WRITE_KEY, Store, StoreError

_ADVISORY_KEY = 7306
_PATIENCE_S = 3.0
_BLINK_S = 0.2
# A lease that was not renewed for so long has run out.
LEASE_S = 8.0
RENEW_EVERY_S = 2.0
_STANDBY_LOOKS_EVERY_S = 0.5
_LEASE = "lease"
_NOW = "extract(epoch FROM clock_timestamp())"
_HELD_BY = (
    "SELECT pid FROM pg_locks JOIN pg_database d ON d.oid = database "
    f"WHERE locktype = 'advisory' AND granted AND objid = {_ADVISORY_KEY} AND datname = current_database()"
)
# Who began to write so long ago and has not ended is frozen, too: it would keep everybody else from writing.
_END_WRITERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND xact_start < clock_timestamp() - make_interval(secs => {after_s}) AND pid IN (SELECT pid FROM pg_locks WHERE granted AND ("
    f"(locktype = 'advisory' AND objid = {WRITE_KEY}) OR (mode = 'RowExclusiveLock' AND relation = 'penstock_fact'::regclass)))"
)


class AlreadyRunning(PenstockError):
    pass


class RunLock:
    def __init__(self, store: Store, path: Path) -> None:
        self._store = store
        self._path = path
        self._file: IO[str] | None = None
        self._connection: Connection | None = None
        self._owner = ""
        self._over = threading.Event()

    def acquire(self, owner: str, standby: bool = False, on_wait: Callable[[str], None] = lambda _who: None) -> None:
        """Take it, or say who has it; `standby`: wait until that one is gone, or its lease has run out."""
        holder = {
            "owner": owner,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        }
        if self._store.is_sqlite:
            if standby:
                raise PenstockError(
                    "--standby needs a store on PostgreSQL, which another machine can reach: [store] url in penstock.toml"
                )
            self._lock_file(holder)
        elif standby:
            self._stand_by(on_wait)
        else:
            self._lock_server()
        with self._store.write() as conn:
            self._store.set_fact(conn, "owner", owner)
            self._store.set_fact(conn, "holder", json.dumps(holder))
        self._owner = owner
        if not self._store.is_sqlite:
            self._renew()
            self._over.clear()
            threading.Thread(target=self._keep_renewing, name="penstock-lease", daemon=True).start()

    @property
    def held(self) -> bool:
        """Whether some process has it now."""
        if not self._store.is_sqlite:
            with self._store.read() as conn:
                return conn.exec_driver_sql(_HELD_BY).first() is not None
        if not self._path.exists():
            return False
        with self._path.open("a+") as file:
            return not _taken(file, fcntl.LOCK_SH)

    def _lock_file(self, holder: dict[str, object]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = self._path.open("a+")
        # Who only asks whether it is held holds it for a moment.
        until = monotonic() + _BLINK_S
        while not (taken := _taken(self._file, fcntl.LOCK_EX)) and monotonic() < until:
            sleep(0.01)
        if not taken:
            self._file.close()
            self._file = None
            raise AlreadyRunning(self._who())

    def _lock_server(self, patience_s: float = _PATIENCE_S) -> None:
        connection = self._store.engine.connect()
        # The server may take a moment to notice that the last holder was killed.
        until = monotonic() + patience_s
        while not (taken := self._tried(connection)) and monotonic() < until:
            sleep(0.1)
        if not taken:
            connection.close()
            raise AlreadyRunning(self._who())
        self._connection = connection

    def _stand_by(self, on_wait: Callable[[str], None]) -> None:
        """A store that is away meanwhile is waited for as well."""
        told = False
        while True:
            try:
                with suppress(AlreadyRunning):
                    self._lock_server(patience_s=0.0)
                    self._end_writers()
                    return
                if not told:
                    on_wait(self._who())
                    told = True
                self._end_frozen()
            except (DBAPIError, StoreError) as error:
                if not isinstance(error.__cause__ or error, DBAPIError):
                    raise
            sleep(_STANDBY_LOOKS_EVERY_S)

    def _end_frozen(self) -> None:
        """If the lease has run out: end the connection that has the lock."""
        with self._store.read() as conn:
            renewed = self._store.fact(conn, _LEASE)
            if renewed is None:
                return  # of a version that knows no lease
            age_s = float(conn.exec_driver_sql(f"SELECT {_NOW}").scalar_one()) - float(renewed)
            if age_s > LEASE_S:
                conn.exec_driver_sql(f"SELECT pg_terminate_backend(pid) FROM ({_HELD_BY}) AS holder")

    def _end_writers(self) -> None:
        """Who had the project may have been frozen in the middle of a transaction."""
        with self._store.read() as conn:
            conn.exec_driver_sql(_END_WRITERS.format(after_s=LEASE_S / 2))

    def _renew(self) -> None:
        """With the server's clock, and only as long as nobody else has the project."""
        with self._store.engine.begin() as conn:
            if self._store.fact(conn, "owner") == self._owner:
                self._store.set_fact(conn, _LEASE, str(conn.exec_driver_sql(f"SELECT {_NOW}").scalar_one()))

    def _keep_renewing(self) -> None:
        while not self._over.wait(RENEW_EVERY_S):
            with suppress(SQLAlchemyError):  # the loop meets it as well, and waits
                self._renew()

    def _tried(self, connection: Connection) -> bool:
        taken = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_ADVISORY_KEY})").scalar_one()
        connection.commit()
        return bool(taken)

    def _who(self) -> str:
        with self._store.read() as conn:
            found = self._store.fact(conn, "holder")
        if not found:
            return "this project is run by another process already"
        holder = json.loads(found)
        return (
            f"this project is run already by process {holder['pid']} on {holder['host']}, since {holder['since']}; "
            f"stop that one first (kill {holder['pid']}), or look at it with `penstock status --watch`"
        )

    def regain(self) -> None:
        """After the store was away: a server that lost the connection gave the lock back."""
        if self._connection is None:
            return
        try:
            self._connection.exec_driver_sql("SELECT 1")
            self._connection.commit()
        except DBAPIError:
            with suppress(DBAPIError):
                self._connection.close()
            self._connection = None
            self._lock_server()

    def release(self) -> None:
        self._over.set()
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._connection is not None:
            # Closing it only gives it back to the pool, where its session would keep the lock.
            with suppress(DBAPIError):  # a lost connection has lost the lock as well
                self._connection.exec_driver_sql(f"SELECT pg_advisory_unlock({_ADVISORY_KEY})")
                self._connection.commit()
            self._connection.close()
            self._connection = None


def _taken(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
