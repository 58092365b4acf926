"""Queries from this machine to the process that runs the project: `penstock query` asks it, and need not start a Spark of its own.

They come through a socket in the project's folder, which nobody but the user of that process can open. So an answer travels as it is, as a pickle:
who could put another one there could change the project's own functions as well.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.app import Warehouse

if TYPE_CHECKING:
    from penstock.engine.desk.answer import Answer
    from penstock.engine.desk.front import Front
    from penstock.engine.desk.ticket import QueryTicket

NAME = "query.sock"
# Of the name of a socket; a longer one is reached by way of its folder.
_LONGEST_NAME = 100
# The process is there and listens, or it is of no use to who waits.
_READY, _READY_S = b"+", 5.0
_LOOK_S = 0.1
_LARGEST_QUESTION = 1 << 24


@contextmanager
def _address(folder: Path) -> Iterator[str]:
    path = folder / NAME
    if len(os.fsencode(path)) <= _LONGEST_NAME:
        yield str(path)
        return
    way = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{way}/{NAME}"
    finally:
        os.close(way)


# Who answers


@contextmanager
def answering(warehouse: Warehouse, front: Callable[[], Front]) -> Iterator[None]:
    """Answer those who ask in the project's folder, for as long as the block. Where the folder can have no socket, nobody asks."""
    folder = warehouse.declared.declarations.state_folder
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(folder) as address, suppress(OSError):
            (folder / NAME).unlink(missing_ok=True)
            listener.bind(address)
            (folder / NAME).chmod(0o600)
            listener.listen(64)
            threading.Thread(
                target=_listen, args=(listener, warehouse, front), name="penstock-beside", daemon=True
            ).start()
        yield
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        with suppress(OSError):
            (folder / NAME).unlink(missing_ok=True)


def _listen(listener: socket.socket, warehouse: Warehouse, front: Callable[[], Front]) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(peer, warehouse, front), name="penstock-asked", daemon=True).start()


def _answer(peer: socket.socket, warehouse: Warehouse, front: Callable[[], Front]) -> None:
    with suppress(OSError), peer:
        if not _is_mine(peer):
            return
        peer.sendall(_READY)
        with peer.makefile("rb") as stream:
            asked = json.loads(stream.readline(_LARGEST_QUESTION))
        peer.sendall(pickle.dumps(_found(peer, warehouse, front, asked)))


def _is_mine(peer: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(user == os.getuid())


def _found(
    peer: socket.socket, warehouse: Warehouse, front: Callable[[], Front], asked: Mapping[str, Any]
) -> tuple[str, Any]:
    """What became of a query. What is refused may be asked elsewhere, where the project is as it is written now."""
    from penstock.engine.desk.front import Busy
    from penstock.engine.desk.versions import QueryError

    try:
        contract = warehouse.contract(asked["profile"], **asked["said"])
        door = front()
        more = {} if asked["profile"] is None else {"profile": asked["profile"]}
        ticket = door.ask(asked["sql"], contract, limit=asked["limit"], **more)
    except (Busy, QueryError) as error:
        return "failed", str(error)
    except Exception as error:
        return "refused", str(error)
    while not ticket.wait(_LOOK_S):
        if _has_gone(peer):
            door.withdraw(ticket)
    return _ended(ticket)


def _ended(ticket: QueryTicket) -> tuple[str, Any]:
    if ticket.answer is not None:
        return "answered", ticket.answer
    return ("failed", ticket.error) if ticket.error is not None else ("refused", "the process ends")


def _has_gone(peer: socket.socket) -> bool:
    try:
        return not peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


# Who asks


def ask_beside(
    warehouse: Warehouse,
    sql: str,
    limit: int,
    profile: str | None,
    said: Mapping[str, Any],
    begun: Callable[[], object],
) -> Answer | None:
    """The answer of the process that runs the project; None if there is none, or it does not answer. `begun`: it does."""
    from penstock.engine.desk.versions import QueryError

    folder = warehouse.declared.declarations.state_folder
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(_READY_S)
        try:
            if (folder / NAME).stat().st_uid != os.getuid():
                return None
            with _address(folder) as address:
                line.connect(address)
            if line.recv(1) != _READY:
                return None
            line.settimeout(None)
            begun()
            asked = {"sql": sql, "limit": limit, "profile": profile, "said": dict(said)}
            line.sendall(json.dumps(asked).encode() + b"\n")
            with line.makefile("rb") as stream:
                kind, found = pickle.load(stream)
        except (OSError, EOFError, pickle.UnpicklingError):
            return None
    if kind == "failed":
        raise QueryError(found)
    return found if kind == "answered" else None
