"""Limits of the door itself: how large a body, how many requests at once."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.service.problems import problem


@dataclass(frozen=True, slots=True)
class Limits:
    body_bytes: int = 256 << 10
    requests: int = 4_000


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
