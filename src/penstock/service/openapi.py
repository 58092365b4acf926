"""The API described for machines (OpenAPI 3.1). Clients can be generated from it; tests do."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import BaseModel

from penstock.queries.outcome import Ending
from penstock.service.requests import BackfillBody, Wishes
from penstock.service.wire import ARROW, JSON, AskedFor, Reported

Plain = dict[str, Any]

_PROBLEM = "application/problem+json"
# A body is one of these.
_BODIES = (AskedFor, Wishes, BackfillBody, Reported)
_TEXT: Plain = {"type": "string"}
_INTEGER: Plain = {"type": "integer"}
_OBJECT: Plain = {"type": "object"}
_BYTES: Plain = {"type": "string", "format": "binary"}


@cache
def description() -> Plain:
    try:
        number = version("penstock")
    except PackageNotFoundError:
        number = "0"
    info = "Queries over tables that are kept fresh, with deadlines and freshness."
    bodies: Plain = {}
    for body in _BODIES:
        schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
        bodies |= {**schema.pop("$defs", {}), body.__name__: schema}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": number, "description": info},
        "paths": {**_queries(), **_warehouse(), **_requests(), **_process()},
        "components": {
            "schemas": {**bodies, "Query": _QUERY, "Problem": _PROBLEM_SCHEMA},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _queries() -> Plain:
    one = [_in_path("id", {"type": "string", "pattern": "^[0-9a-f]{32}$"})]
    wait = "`wait=5`: answer when the query has ended, or after so many seconds."
    prefer = _in_header("Prefer", wait, "^wait=[0-2]$")
    key = _in_header("Idempotency-Key", "Asking again with the same key gives the same query.", "^[A-Za-z0-9-]{1,200}$")
    query = {JSON: {"schema": {"$ref": "#/components/schemas/Query"}}}
    rows = {**query, ARROW: {"schema": _BYTES}}
    found = {"headers": {"Location": {"schema": _TEXT, "description": "Where the query is."}}}
    events = {"text/event-stream": {"schema": _TEXT}}
    parquet = {"application/vnd.apache.parquet": {"schema": _BYTES}}
    return {
        "/v1/queries": {
            "post": _operation(
                "ask",
                "Ask a query.",
                {
                    200: {"description": "It has ended already.", "content": rows, **found},
                    202: {"description": "It was taken.", "content": query, **found},
                },
                (400, 401, 403, 406, 408, 409, 410, 413, 415, 421, 422, 429, 503),
                body=AskedFor,
                parameters=[prefer, key],
            )
        },
        "/v1/queries/{id}": {
            "parameters": one,
            "get": _operation(
                "look",
                "How a query stands, and its answer.",
                {200: {"description": "The query.", "content": rows, **found}},
                (400, 401, 404, 406, 410, 503),
                parameters=[prefer],
            ),
            "delete": _operation(
                "withdraw",
                "Cancel a query; what runs for it is stopped.",
                {200: {"description": "The query.", "content": query}},
                (400, 401, 404, 503),
            ),
        },
        "/v1/queries/{id}/events": {
            "parameters": one,
            "get": _operation(
                "events",
                "What happens to a query, as it happens (server-sent events).",
                {200: {"description": "`step` for each step, `end` at the end.", "content": events}},
                (400, 401, 404, 503),
            ),
        },
        "/v1/queries/{id}/files/{number}": {
            "parameters": [*one, _in_path("number", {"type": "integer", "minimum": 0})],
            "get": _operation(
                "file",
                "A part of a large answer.",
                {200: {"description": "Parquet.", "content": parquet}},
                (400, 401, 404, 503),
            ),
        },
    }


def _warehouse() -> Plain:
    name, order = (_in_path(each, {"type": "string", "minLength": 1}) for each in ("name", "order"))
    failed = {"name": "failed", "in": "query", "description": "Why; then it is issued again later.", "schema": _TEXT}
    tables = "All tables: complete up to when, how stale, what they do; feeds, recoveries, bounds that do not hold."
    return {
        "/v1/tables": {"get": _operation("tables", tables, {200: _json("The tables.", _TABLES)}, (401, 503))},
        "/v1/tables/{name}": {
            "parameters": [name],
            "get": _operation(
                "table",
                "Why a table is as it is.",
                {200: _json("The table.", _with("table", "lines", "columns"))},
                (400, 401, 404, 503),
            ),
        },
        "/v1/tables/{name}/versions": {
            "parameters": [name],
            "post": _operation(
                "publish",
                "Report what an outside job made.",
                {201: _json("It is published.", _with("table", "version"))},
                (400, 401, 403, 404, 409, 413, 415, 422, 503),
                body=Reported,
            ),
        },
        "/v1/orders": {
            "get": _operation(
                "orders",
                "What outside jobs are to make.",
                {200: _json("The open work orders.", _with("orders"))},
                (401, 503),
            )
        },
        "/v1/orders/{order}": {
            "parameters": [order],
            "delete": _operation(
                "returnOrder",
                "Give a work order back: it is issued anew.",
                {200: _json("The order.", _with("order"))},
                (400, 401, 403, 404, 503),
                parameters=[failed],
            ),
        },
    }


def _requests() -> Plain:
    return {
        "/v1/plans": {
            "post": _operation(
                "plan",
                "What backfills would come to; without any, what will run.",
                {200: _json("The plan.", _with("summary", "work", "total_s"))},
                (400, 401, 413, 415, 422, 503),
                body=Wishes,
            )
        },
        "/v1/requests": {
            "get": _operation(
                "requests",
                "What was asked for, how far it is, and how long what is pending takes.",
                {200: _json("Newest first.", _with("requests", "pending"))},
                (401, 503),
            ),
            "post": _operation(
                "backfill",
                "Have partitions made again.",
                {201: _json("It was taken.", _REQUEST)},
                (400, 401, 403, 413, 415, 422, 503),
                body=BackfillBody,
            ),
        },
        "/v1/requests/{number}": {
            "parameters": [_in_path("number", {"type": "integer", "minimum": 1})],
            "get": _operation(
                "request", "How far a request is.", {200: _json("The request.", _REQUEST)}, (400, 401, 404, 503)
            ),
            "delete": _operation(
                "cancel",
                "Take a request back: what has not run yet is dropped, unless something else needs it.",
                {200: _json("The request.", _REQUEST)},
                (400, 401, 403, 404, 409, 422, 503),
            ),
        },
    }


def _process() -> Plain:
    text = {"description": "Text format.", "content": {"text/plain": {"schema": _TEXT}}}
    health, ready = (
        "Whether the process can work: its loop runs, Spark is there.",
        "Whether the store, the disk and Spark answer.",
    )
    can = {200: _json("It can.", _with("status")), 503: _json("It cannot.", _OBJECT)}
    do = {200: _json("They do.", _with("status", "unavailable")), 503: _json("Some do not; since when.", _OBJECT)}
    return {
        "/metrics": {"get": _operation("metrics", "For Prometheus.", {200: text}, (401, 503))},
        "/healthz": {"get": _operation("health", health, can)},
        "/readyz": {"get": _operation("ready", ready, do)},
    }


_SAID = {
    400: "The request cannot be read.",
    401: "A token is needed.",
    403: "The token is of another profile, or a page of another site asks.",
    404: "There is no such thing.",
    406: "It cannot be had in this form.",
    408: "The body did not come.",
    409: "There is nothing to read yet, or what is reported is out of date.",
    410: "Its rows are not kept any more.",
    413: "The body is too large.",
    415: "The body is of another type.",
    421: "The server is called by another name.",
    422: "The query or the report is wrong; the problem says where.",
    429: "Too many queries wait.",
    503: "Too many requests at once.",
}


def _operation(
    name: str,
    summary: str,
    answers: dict[int, Plain],
    problems: tuple[int, ...] = (),
    *,
    body: type[BaseModel] | None = None,
    parameters: list[Plain] | None = None,
) -> Plain:
    told = {str(code): answer for code, answer in answers.items()}
    if problems:
        # From where one may ask is looked at before all else; a body has its time.
        every = sorted({*problems, 403, 421, *((408,) if 413 in problems else ())})
        content = {_PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        told |= {str(code): {"description": _SAID[code], "content": content} for code in every}
    found: Plain = {"operationId": name, "summary": summary, "responses": told}
    if parameters is not None:
        found["parameters"] = parameters
    if body is not None:
        schema = {"$ref": f"#/components/schemas/{body.__name__}"}
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    return found


def _in_path(name: str, schema: Plain) -> Plain:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_header(name: str, description: str, pattern: str) -> Plain:
    return {"name": name, "in": "header", "description": description, "schema": {"type": "string", "pattern": pattern}}


def _json(description: str, schema: Plain) -> Plain:
    return {"description": description, "content": {JSON: {"schema": schema}}}


def _with(*names: str, **properties: Plain) -> Plain:
    """An object that has these."""
    return {"type": "object", "required": list(names), **({"properties": properties} if properties else {})}


def _list(items: Plain, description: str = "") -> Plain:
    return {"type": "array", "items": items, **({"description": description} if description else {})}


def _perhaps(kind: str, description: str = "") -> Plain:
    return {"type": [kind, "null"], **({"description": description} if description else {})}


_WAITING = _list(
    _with("table", "source", "rows", "exact", "waits_for", "upto_us"),
    "Rows that are there but not used yet, as another source has not come as far.",
)
_REQUEST = _with("request", "table", "stage", "made", "left", "waits")
_INSTANT = _perhaps("integer", "Microseconds since 1970, UTC.")
_PROBLEM_SCHEMA = _with(
    *("type", "title", "status", "detail"),
    type=_TEXT,
    title=_TEXT,
    status=_INTEGER,
    detail=_TEXT,
    problems=_list(_OBJECT),
)
_ANSWER = _with(
    *("outcome", "way", "because", "complete_us", "lag", "as_of_us", "consistent", "versions"),
    outcome={"enum": [ending.value for ending in Ending]},
    complete_us=_INSTANT,
    as_of_us=_INSTANT,
    lag=_perhaps("integer", "Updates that had arrived and are not in it."),
    lag_when_asked=_perhaps("integer", "Of these, those that had arrived when it was asked: what a contract is about."),
    consistent={"type": "boolean"},
    waiting=_WAITING,
    versions=_list(_with("table", "snapshot")),
    why={"type": "string", "description": "Why it was rejected."},
    acceptable_within_us=_perhaps("integer"),
    acceptable_freshness=_perhaps("object"),
    withheld={"type": "boolean"},
    columns=_list(_with("name", "type")),
    rows=_list({"type": "array"}),
    files=_list(_TEXT),
    truncated={"type": "boolean"},
    row_count=_INTEGER,
)
_QUERY = _with(
    *("id", "status", "profile", "arrived_us", "deadline_us", "links", "steps"),
    id=_TEXT,
    status={"enum": ["asked", "waiting", "queued", "running", "done", "failed", "withdrawn"]},
    profile=_TEXT,
    arrived_us=_INTEGER,
    deadline_us=_INTEGER,
    ended_us=_INSTANT,
    links={"type": "object", "additionalProperties": _TEXT},
    steps=_list(_OBJECT),
    error=_TEXT,
    answer=_ANSWER,
)
_TABLES = _with(
    *("at_us", "running", "tables", "feeds", "recovery", "violated", "quarantine", "waiting"),
    waiting=_WAITING,
    tables=_list(_with("table", "doing")),
    feeds=_list(_with("feed", "health", "said")),
    recovery=_list(_with("table", "lag_us")),
    violated=_list(_with("table", "assumption", "said")),
)
