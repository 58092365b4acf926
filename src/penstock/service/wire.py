"""Queries and answers as they travel: the body of a request, checked at the door; answers as JSON or Arrow."""

from __future__ import annotations

import base64
import io
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from penstock.engine.desk.answer import Answer
from penstock.engine.desk.ticket import Asked

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
Limit = Annotated[int, Field(ge=1, le=1_000_000_000), BeforeValidator(_whole)]


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
    limit: Annotated[Limit | None, Field(description="At most so many rows.")] = None
    files: Annotated[bool, Field(description="An answer too large for a message becomes Parquet files.")] = True


def asked_json(asked: Asked, *, with_rows: bool = True) -> dict[str, Any]:
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
