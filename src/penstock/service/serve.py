"""The loop that keeps tables fresh and the API, in one process that shares one Spark session."""

from __future__ import annotations

import ipaddress
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from penstock.app import Warehouse
from penstock.engine.runtime import Pace, Runtime
from penstock.errors import PenstockError
from penstock.service.api import Api
from penstock.service.wire import Limits
from penstock.store import tokens


class ServeProblem(PenstockError):
    pass


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def served(
    warehouse: Warehouse,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    limits: Limits | None = None,
    pace: Pace | None = None,
) -> Iterator[tuple[Server, Runtime]]:
    """The server and the loop, both ready; they end with the block. Port 0 is any free one."""
    check_door(warehouse, host)
    listener = _listener(host, port)
    with warehouse.running(pace, for_queries=True) as runtime:
        broken: list[BaseException] = []
        loop = threading.Thread(target=lambda: _run(runtime, broken, lambda: server.end()), name="penstock-loop")
        front = warehouse.open_front(runtime.wake)
        # Large answers of an earlier process, which nobody can ask for any more.
        shutil.rmtree(front.results_folder, ignore_errors=True)
        api = Api(warehouse, front, limits or Limits(), loop.is_alive)
        server = Server(
            uvicorn.Config(
                api.app(), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2
            ),
            listener,
        )
        try:
            _ = warehouse.spark
            loop.start()
            yield server, runtime
            if broken:
                raise broken[0]
        finally:
            server.end()
            front.close()
            runtime.stop()
            if loop.ident is not None:
                loop.join()
            listener.close()


def _run(runtime: Runtime, broken: list[BaseException], end: Callable[[], None]) -> None:
    """The loop. What it cannot wait out ends the server, too."""
    try:
        runtime.run()
    except BaseException as error:
        broken.append(error)
        end()


def check_door(warehouse: Warehouse, host: str) -> None:
    """Beyond this machine nobody comes in without a token."""
    if is_loopback(host):
        return
    with warehouse.store.read() as conn:
        if not tokens.are_used(conn):
            raise ServeProblem(
                f"{host} can be reached from other machines, and there is no token yet, so anybody could ask; "
                "type `penstock token add PROFILE` first, or leave --host out"
            )


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(4096)
    except OSError as error:
        listener.close()
        raise ServeProblem(f"cannot listen at {host}:{port}: {error.strerror}; choose another with --port") from None
    return listener


class Server:
    """The HTTP server: in this thread (`run`), or in one of its own (`start`)."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._thread: threading.Thread | None = None
        host, port = listener.getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        ready()
        self._server.run([self._listener])

    def start(self) -> None:
        self._thread = threading.Thread(target=self.run, name="penstock-http", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        if self._thread is not None:
            self._thread.join(10)
