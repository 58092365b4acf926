"""One process at a time runs a project. The lock belongs to the operating system (a locked file) or to the database
server (an advisory lock), so that a killed process never leaves it behind."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from penstock.errors import PenstockError
from penstock.store.store import Store

_ADVISORY_KEY = 7306
_PATIENCE_S = 3.0
_BLINK_S = 0.2


class AlreadyRunning(PenstockError):
    pass


class RunLock:
    def __init__(self, store: Store, path: Path) -> None:
        self._store = store
        self._path = path
        self._file: IO[str] | None = None
        self._connection: Connection | None = None

    def acquire(self, owner: str) -> None:
        holder = {
            "owner": owner,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        }
        if self._store.is_sqlite:
            self._lock_file(holder)
        else:
            self._lock_server()
        with self._store.write() as conn:
            self._store.set_fact(conn, "owner", owner)
            self._store.set_fact(conn, "holder", json.dumps(holder))

    @property
    def held(self) -> bool:
        """Whether some process has it now."""
        if not self._store.is_sqlite:
            with self._store.read() as conn:
                sql = "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database "
                sql += f"WHERE locktype = 'advisory' AND objid = {_ADVISORY_KEY} AND datname = current_database()"
                return bool(conn.exec_driver_sql(sql).scalar_one())
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

    def _lock_server(self) -> None:
        connection = self._store.engine.connect()
        # The server may take a moment to notice that the last holder was killed.
        until = monotonic() + _PATIENCE_S
        while not (taken := self._tried(connection)) and monotonic() < until:
            sleep(0.1)
        if not taken:
            connection.close()
            raise AlreadyRunning(self._who())
        self._connection = connection

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
