"""Whose fault an error is: the world's (disk, database, Spark), or that of the view or file at hand. The one place that tells them apart.

What the world does wrong is waited out. It says nothing about a table, so none of its attempts is used up.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection

from penstock.control.faults import WorldPart
from penstock.errors import PenstockError


@dataclass(frozen=True, slots=True)
class WorldFault:
    part: WorldPart
    reason: str


class NotAvailable(PenstockError):
    """A part of the world that must be there is not."""

    def __init__(self, part: WorldPart, reason: str) -> None:
        super().__init__(reason)
        self.fault = WorldFault(part, reason)


# Errors of the system that say nothing about what was asked of it.
_OF_THE_SYSTEM = frozenset(
    getattr(errno, name)
    for name in [
        "ENOSPC",
        "EDQUOT",
        "EIO",
        "EROFS",
        "ESTALE",
        "ENOTCONN",
        "EMFILE",
        "ENFILE",
        "ENOMEM",
        "ETIMEDOUT",
        "EHOSTDOWN",
        "EHOSTUNREACH",
        "ENODEV",
        "ENXIO",
        "EAGAIN",
        "ENOLCK",
        "EREMOTEIO",
    ]
)
_WORDS = re.compile(
    "No space left on device|Disk quota exceeded|Stale file handle|Input/output error|Read-only file system|Too many open files"
    "|Transport endpoint is not connected|Cannot allocate memory"
)
# Of SQLite: busy, locked, no memory, read-only, input and output, full, cannot open, protocol.
_OF_SQLITE = frozenset((5, 6, 7, 8, 10, 13, 14, 15))
# Of PostgreSQL: connections, resources, an operator's doing, the system; read-only; a lock or statement that took too long.
_OF_POSTGRES = re.compile("08|53|57|58|25006|55P03|40001|40P01")


def fault_of(error: BaseException) -> WorldFault | None:
    """What of the world an error is about; None: it is about something else."""
    for each in _chain(error):
        if isinstance(each, NotAvailable):
            return each.fault
        if isinstance(each, NoConnection):
            return WorldFault("store", "no connection to the store became free")
        if isinstance(each, DBAPIError):
            return WorldFault("store", _first_line(each.orig or each)) if _is_of_the_world(each) else None
        if isinstance(each, OSError) and each.errno in _OF_THE_SYSTEM:
            where = f"{each.filename}: " if each.filename else ""
            return WorldFault("storage", f"{where}{each.strerror or _first_line(each)}")
        if type(each).__module__.startswith(("py4j", "pyspark")) and (found := _WORDS.search(str(each))):
            return WorldFault("storage", f"Spark says: {found.group()}")
    return None


def is_damaged(error: BaseException) -> bool:
    """Whether a database file is no database, or not whole."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in (11, 26)


def check_storage(data_path: str, mark: str) -> None:
    """Raise if the folder of the data files is away, as when its disk is not mounted: nothing must be written into what is there instead."""
    if "://" not in data_path and not (Path(data_path) / mark).exists():
        raise NotAvailable("storage", f"{data_path} is not there, or not what it was: it has no {mark}")


def _is_of_the_world(error: DBAPIError) -> bool:
    if error.connection_invalidated:
        return True
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _OF_SQLITE
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # it did not come to an answer of the server
        return isinstance(error, OperationalError | InterfaceError)
    return _OF_POSTGRES.match(state) is not None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what caused it."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
