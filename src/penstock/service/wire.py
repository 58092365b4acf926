"""Queries and answers as they travel: the body of a request, checked at the door; answers as JSON or Arrow."""

from __future__ import annotations

import base64
import io
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from http import HTTPStatus
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from penstock.engine.desk.answer import Answer
from penstock.engine.desk.ticket import QueryTicket

# What is wrong with a request, as `application/problem+json` (RFC 9457): what was found, what was expected, what to do next.


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


ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
Duration = Annotated[
    str,
    Field(min_length=2, max_length=40, pattern=r"^([0-9]+(\.[0-9]+)?(us|ms|s|min|m|h|d|w) ?)+$", examples=["1m30s"]),
]
Worth = Annotated[float, Field(ge=0, le=1e9)]


def _whole(value: Any) -> Any:
    """To JSON 7.0 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Lag = Annotated[int, Field(ge=0, le=1_000_000_000), BeforeValidator(_whole)]
RowLimit = Annotated[int, Field(ge=1, le=1_000_000_000), BeforeValidator(_whole)]


class Weights(BaseModel):
    """What the outcomes are worth: a gain, and penalties as positive numbers. What is left out is as the profile says."""

    model_config = ConfigDict(extra="forbid")

    success: Annotated[float, Field(gt=0, le=1e9)] | None = None
    rejected: Worth | None = None
    missed: Worth | None = None
    stale: Worth | None = None


class AskedFor(BaseModel):
    """A query and its contract. What is left out is as the profile says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sql: Annotated[str, Field(min_length=1, max_length=50_000, description="One SELECT over tables of the project.")]
    within: Annotated[Duration | None, Field(description="A firm deadline, counted from arrival, such as 2s.")] = None
    fresh: Annotated[Duration | None, Field(description="No older than this when it is answered, such as 30s.")] = None
    lag: Annotated[Lag | None, Field(description="At most so many arrived updates missing.")] = None
    consistent: Annotated[bool | None, Field(description="All tables as of one state of their sources.")] = None
    stale: Annotated[Literal["mark", "withhold"] | None, Field(description="What to do with a stale answer.")] = None
    weights: Annotated[Weights | None, Field(description="What the outcomes are worth.")] = None
    profile: Annotated[str | None, Field(max_length=100, description="Only where no token says it.")] = None
    limit: Annotated[RowLimit | None, Field(description="At most so many rows.")] = None
    files: Annotated[bool, Field(description="An answer too large for a message becomes Parquet files.")] = True


class Reported(BaseModel):
    """What an outside job made. What is left out is as it was ordered."""

    model_config = ConfigDict(extra="forbid", strict=True)

    range: Annotated[
        str, Field(max_length=10_000, description="Such as 2024-03-01..2024-03-07; several with commas.")
    ] = ""
    order: Annotated[str | None, Field(max_length=100, description="The work order that this answers.")] = None
    version: Annotated[RowLimit | None, Field(description="Which version was made, as the order says.")] = None
    inputs: Annotated[dict[str, RowLimit], Field(description="The versions of the inputs that it was made from.")] = {}
    files: Annotated[
        list[Annotated[str, Field(max_length=2_000)]] | None,
        Field(max_length=10_000, description="Parquet files below the project's folder; [] if there are no rows."),
    ] = None
    complete_to: Annotated[str | None, Field(max_length=100, description="Of a table that reads none of ours.")] = None
    by: Annotated[str, Field(max_length=200, description="Who made it.")] = ""


def asked_json(asked: QueryTicket, *, with_rows: bool = True) -> dict[str, Any]:
    """Where a query stands; with its answer when it has one."""
    here = f"/v1/queries/{asked.id}"
    told: dict[str, Any] = {
        "id": asked.id,
        "status": asked.status,
        "profile": asked.profile,
        "arrived_us": asked.arrived_us,
        "deadline_us": asked.deadline_us,
        "ended_us": asked.ended_us,
        "links": {"self": here, "events": f"{here}/events"},
        "steps": [{"at_us": step.at_us, "status": step.status, "what": step.what} for step in list(asked.steps)],
    }
    if asked.error is not None:
        told["error"] = asked.error
    if asked.answer is not None:
        told["answer"] = answer_json(asked.answer, here, with_rows)
    return told


def answer_json(answer: Answer, here: str, with_rows: bool) -> dict[str, Any]:
    told = answer.plain()
    if answer.dropped:
        told["dropped"] = "its rows are not kept any more; ask again"
    if answer.found is not None and answer.is_answered:
        told["columns"] = [
            {"name": name, "type": kind} for name, kind in zip(_names(answer), answer.types, strict=True)
        ]
        told["truncated"] = answer.truncated
        told["row_count"] = answer.found.count
        if answer.found.files:
            told["files"] = [f"{here}/files/{number}" for number in range(len(answer.found.files))]
        elif with_rows:
            told["rows"] = [[plain(value) for value in row] for row in answer.rows]
    return told


def _names(answer: Answer) -> tuple[str, ...]:
    return answer.columns


def arrow_bytes(answer: Answer) -> bytes:
    assert answer.found is not None
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, answer.found.table.schema) as writer:
        writer.write_table(answer.found.table)
    return buffer.getvalue()


def plain(value: Any) -> Any:
    """A value as JSON can say it: instants with their offset, decimals and what has no JSON form as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case timedelta():
            return value.total_seconds()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
    return str(value)
