"""What is wrong with a request, as `application/problem+json` (RFC 9457): what was found, what was expected, what to do next."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response


class Refused(Exception):
    """A request that is not served."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}
        self.more = more


def problem(status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


async def refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return problem(error.status, error.detail, error.headers, **error.more)


async def http_error(_request: Request, error: Exception) -> Response:
    """What the framework itself refuses: unknown paths, wrong methods."""
    status = int(getattr(error, "status_code", 500))
    headers = dict(getattr(error, "headers", None) or {})
    what = {404: "there is nothing here; /openapi.json says what there is", 405: "this method is not known here"}
    return problem(status, what.get(status, str(getattr(error, "detail", error))), headers)


async def broken(_request: Request, _error: Exception) -> Response:
    return problem(500, "something went wrong inside; the log of the server says what")
