"""The loop that keeps tables fresh and the API, in one process that shares one Spark session."""

from __future__ import annotations

import ipaddress
import logging
import resource
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn

from penstock.app import Warehouse
from penstock.engine.runtime import Pace, Runtime
from penstock.errors import PenstockError
from penstock.service.api import Api
from penstock.service.connections import Connections, Sparse
from penstock.service.limits import Limits
from penstock.service.local_queries import answering
from penstock.store import tokens


class ServeProblem(PenstockError):
    pass


class NoToken(ServeProblem):
    """Nobody could be let in."""


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
    listener = listener_at(host, port)
    with warehouse.running(pace, for_queries=True) as runtime:
        broken: list[BaseException] = []
        loop = threading.Thread(target=lambda: _run(runtime, broken, lambda: server.end()), name="penstock-loop")
        front = warehouse.open_front(runtime.wake)
        # Large answers of an earlier process, which nobody can ask for any more.
        shutil.rmtree(front.results_folder, ignore_errors=True)
        given = limits or Limits()
        given = replace(given, connections=min(given.connections, _most_connections()))
        serve = warehouse.declared.declarations.config.serve
        names = names_of(host, serve.hosts)
        api = Api(
            warehouse, front, given, names, serve.tokens, loop.is_alive, lambda: runtime.spark_ended, runtime.spark_told
        )
        server = server_of(api, listener)
        try:
            ready = front.prepare(front.settings.lanes)
            _ = warehouse.spark
            loop.start()
            ready()
            with answering(warehouse, lambda: front):
                yield server, runtime
            if broken:
                raise broken[0]
        finally:
            server.end()
            api.console.close()
            front.close()
            runtime.stop()
            if loop.ident is not None:
                loop.join()
            listener.close()


@contextmanager
def watched(warehouse: Warehouse, host: str = "127.0.0.1", port: int = 0) -> Iterator[Server]:
    """The pages and the API over what is stored, also while another process runs the project. Spark starts with the first query only."""
    check_door(warehouse, host)
    listener = listener_at(host, port)
    front = warehouse.open_front()
    serve = warehouse.declared.declarations.config.serve
    api = Api(warehouse, front, Limits(), names_of(host, serve.hosts), serve.tokens, lambda: warehouse.has_runner)
    server = server_of(api, listener)
    try:
        yield server
    finally:
        server.end()
        api.console.close()
        front.close()
        listener.close()


def server_of(api: Api, listener: socket.socket) -> Server:
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(Sparse())
    config = uvicorn.Config(
        api.app(),
        http=Connections(api.limits).protocol,  # type: ignore[arg-type]  # what is called for each connection
        ws="none",
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    return Server(config, listener)


# Files and sockets that everything else needs.
_FOR_OTHERS = 500


def _most_connections() -> int:
    """As many as this process may have open, with room for everything else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return max(16, soft - _FOR_OTHERS) if soft != resource.RLIM_INFINITY else 65_536


def names_of(host: str, more: tuple[str, ...]) -> frozenset[str] | None:
    """By which names the server may be called. Beyond this machine everybody needs a token, and any name does unless some are written down."""
    if not is_loopback(host) and not more:
        return None
    own = f"[{host}]" if ":" in host else host
    return frozenset({own.lower(), "localhost", "127.0.0.1", "[::1]", *(name.lower() for name in more)})


def _run(runtime: Runtime, broken: list[BaseException], end: Callable[[], None]) -> None:
    """The loop. What it cannot wait out ends the server, too."""
    try:
        runtime.run()
    except BaseException as error:
        broken.append(error)
        end()


def check_door(warehouse: Warehouse, host: str) -> None:
    """Beyond this machine nobody comes in without a token."""
    demanded = warehouse.declared.declarations.config.serve.tokens
    if is_loopback(host) and not demanded:
        return
    with warehouse.store.read() as conn:
        if not tokens.are_used(conn):
            why = (
                "[serve] tokens = true, and there is no token yet, so nobody could ask"
                if is_loopback(host)
                else f"{host} can be reached from other machines, and there is no token yet, so anybody could ask"
            )
            raise NoToken(f"{why}; type `penstock token add PROFILE` first")


def listener_at(host: str, port: int) -> socket.socket:
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
