"""Limits of the door itself: how large a body, how many requests at once, who may ask from where."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.service.wire import problem


@dataclass(frozen=True, slots=True)
class Limits:
    body_bytes: int = 256 << 10
    requests: int = 4_000
    # A body has to be there by then.
    body_s: float = 10.0
    connections: int = 4_000
    connections_of_client: int = 2_000
    # A connection without a request ends, and one on which nothing is read.
    quiet_s: float = 20.0
    unread_s: float = 30.0


class OneTooMany:
    """Beyond so many requests at once the next ones are turned away at once, which costs little."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._inside >= self._limits.requests:
            refusal = problem(503, f"{self._inside:,} requests are being served; ask again later", {"Retry-After": "1"})
            await refusal(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1


class OwnName:
    """A page from elsewhere, open in the browser of somebody at this machine, must not speak with the server: it calls it by a name that is not its
    own, or says where it comes from. Programs that are not browsers say neither."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app = app
        # None: any.
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (wrong := self._wrong(Headers(scope=scope), _opens_page(scope))) is not None:
            await wrong(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _wrong(self, headers: Headers, opens_page: bool) -> Response | None:
        host = headers.get("host", "")
        if self._hosts is not None and name_of(host) not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            return problem(421, f"this server is not {host[:100]!r}; it is called {known} (more names: [serve] hosts)")
        origin = headers.get("origin")
        foreign = origin is not None and origin.partition("://")[2] != host
        if foreign or (headers.get("sec-fetch-site") in ("cross-site", "same-site") and not opens_page):
            return problem(403, "pages of other sites may not ask here")
        return None


def _opens_page(scope: Scope) -> bool:
    """Whether somebody follows a link to the console, which itself holds nothing of the warehouse."""
    mode = Headers(scope=scope).get("sec-fetch-mode")
    return scope["method"] == "GET" and scope["path"] == "/" and mode == "navigate"


def name_of(host: str) -> str:
    """Without the port.

    >>> [name_of(one) for one in ("localhost:8321", "[::1]:80", "Example.org", "127.0.0.1")]
    ['localhost', '[::1]', 'example.org', '127.0.0.1']
    """
    name, _, port = host.rpartition(":")
    return (name if name and port.isdecimal() else host).lower()
