"""The API described for machines (OpenAPI 3.1). Clients can be generated from it; tests do."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import BaseModel

from penstock.queries.outcome import Ending
from penstock.service.requests import BackfillBody, Wishes
from penstock.service.wire import ARROW, JSON, AskedFor, Reported

_PROBLEM = "application/problem+json"


@cache
def description() -> dict[str, Any]:
    identity = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"}}
    prefer = {
        "name": "Prefer",
        "in": "header",
        "description": "`wait=5`: answer when the query has ended, or after so many seconds.",
        "schema": {"type": "string", "pattern": "^wait=[0-2]$"},
    }
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Asking again with the same key gives the same query.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9-]{1,200}$"},
    }
    query = {JSON: {"schema": {"$ref": "#/components/schemas/Query"}}}
    rows = {**query, ARROW: {"schema": {"type": "string", "format": "binary"}}}
    location = {"Location": {"schema": {"type": "string"}, "description": "Where the query is."}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": _version(),
            "description": "Queries over tables that are kept fresh, with deadlines and freshness.",
        },
        "paths": {
            "/v1/queries": {
                "post": {
                    "operationId": "ask",
                    "summary": "Ask a query.",
                    "parameters": [prefer, key],
                    "requestBody": {
                        "required": True,
                        "content": {JSON: {"schema": {"$ref": "#/components/schemas/AskedFor"}}},
                    },
                    "responses": {
                        "200": {"description": "It has ended already.", "headers": location, "content": rows},
                        "202": {"description": "It was taken.", "headers": location, "content": query},
                        **_problems(400, 401, 403, 406, 408, 409, 410, 413, 415, 421, 422, 429, 503),
                    },
                }
            },
            "/v1/queries/{id}": {
                "parameters": [identity],
                "get": {
                    "operationId": "look",
                    "summary": "How a query stands, and its answer.",
                    "parameters": [prefer],
                    "responses": {
                        "200": {"description": "The query.", "headers": location, "content": rows},
                        **_problems(400, 401, 404, 406, 410, 503),
                    },
                },
                "delete": {
                    "operationId": "withdraw",
                    "summary": "Cancel a query; what runs for it is stopped.",
                    "responses": {
                        "200": {"description": "The query.", "content": query},
                        **_problems(400, 401, 404, 503),
                    },
                },
            },
            "/v1/queries/{id}/events": {
                "parameters": [identity],
                "get": {
                    "operationId": "events",
                    "summary": "What happens to a query, as it happens (server-sent events).",
                    "responses": {
                        "200": {
                            "description": "`step` for each step, `end` at the end.",
                            "content": {"text/event-stream": {"schema": {"type": "string"}}},
                        },
                        **_problems(400, 401, 404, 503),
                    },
                },
            },
            "/v1/queries/{id}/files/{number}": {
                "parameters": [
                    identity,
                    {"name": "number", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}},
                ],
                "get": {
                    "operationId": "file",
                    "summary": "A part of a large answer.",
                    "responses": {
                        "200": {
                            "description": "Parquet.",
                            "content": {
                                "application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}}
                            },
                        },
                        **_problems(400, 401, 404, 503),
                    },
                },
            },
            "/v1/tables": {
                "get": {
                    "operationId": "tables",
                    "summary": "All tables: complete up to when, how stale, what they do; feeds, recoveries, bounds that do not hold.",
                    "responses": {"200": _json("The tables.", _TABLES), **_problems(401, 503)},
                }
            },
            "/v1/tables/{name}": {
                "parameters": [
                    {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
                ],
                "get": {
                    "operationId": "table",
                    "summary": "Why a table is as it is.",
                    "responses": {
                        "200": _json("The table.", {"type": "object", "required": ["table", "lines", "columns"]}),
                        **_problems(400, 401, 404, 503),
                    },
                },
            },
            "/v1/tables/{name}/versions": {
                "parameters": [
                    {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
                ],
                "post": {
                    "operationId": "publish",
                    "summary": "Report what an outside job made.",
                    "requestBody": {
                        "required": True,
                        "content": {JSON: {"schema": {"$ref": "#/components/schemas/Reported"}}},
                    },
                    "responses": {
                        "201": _json("It is published.", {"type": "object", "required": ["table", "version"]}),
                        **_problems(400, 401, 403, 404, 409, 413, 415, 422, 503),
                    },
                },
            },
            "/v1/orders": {
                "get": {
                    "operationId": "orders",
                    "summary": "What outside jobs are to make.",
                    "responses": {
                        "200": _json("The open work orders.", {"type": "object", "required": ["orders"]}),
                        **_problems(401, 503),
                    },
                }
            },
            "/v1/orders/{order}": {
                "parameters": [
                    {"name": "order", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
                ],
                "delete": {
                    "operationId": "returnOrder",
                    "summary": "Give a work order back: it is issued anew.",
                    "parameters": [
                        {
                            "name": "failed",
                            "in": "query",
                            "description": "Why; then it is issued again later.",
                            "schema": {"type": "string"},
                        }
                    ],
                    "responses": {
                        "200": _json("The order.", {"type": "object", "required": ["order"]}),
                        **_problems(400, 401, 403, 404, 503),
                    },
                },
            },
            "/v1/plans": {
                "post": {
                    "operationId": "plan",
                    "summary": "What backfills would come to; without any, what will run.",
                    "requestBody": _body("Wishes"),
                    "responses": {
                        "200": _json("The plan.", {"type": "object", "required": ["summary", "work", "total_s"]}),
                        **_problems(400, 401, 413, 415, 422, 503),
                    },
                }
            },
            "/v1/requests": {
                "get": {
                    "operationId": "requests",
                    "summary": "What was asked for, how far it is, and how long what is pending takes.",
                    "responses": {
                        "200": _json("Newest first.", {"type": "object", "required": ["requests", "pending"]}),
                        **_problems(401, 503),
                    },
                },
                "post": {
                    "operationId": "backfill",
                    "summary": "Have partitions made again.",
                    "requestBody": _body("BackfillBody"),
                    "responses": {
                        "201": _json("It was taken.", _REQUEST),
                        **_problems(400, 401, 403, 413, 415, 422, 503),
                    },
                },
            },
            "/v1/requests/{number}": {
                "parameters": [
                    {"name": "number", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 1}}
                ],
                "get": {
                    "operationId": "request",
                    "summary": "How far a request is.",
                    "responses": {"200": _json("The request.", _REQUEST), **_problems(400, 401, 404, 503)},
                },
                "delete": {
                    "operationId": "cancel",
                    "summary": "Take a request back: what has not run yet is dropped, unless something else needs it.",
                    "responses": {
                        "200": _json("The request.", _REQUEST),
                        **_problems(400, 401, 403, 404, 409, 422, 503),
                    },
                },
            },
            "/metrics": {
                "get": {
                    "operationId": "metrics",
                    "summary": "For Prometheus.",
                    "responses": {
                        "200": {
                            "description": "Text format.",
                            "content": {"text/plain": {"schema": {"type": "string"}}},
                        },
                        **_problems(401, 503),
                    },
                }
            },
            "/healthz": {
                "get": {
                    "operationId": "health",
                    "summary": "Whether the process can work: its loop runs, Spark is there.",
                    "responses": {
                        "200": _json("It can.", {"type": "object", "required": ["status"]}),
                        "503": _json("It cannot.", {"type": "object"}),
                    },
                }
            },
            "/readyz": {
                "get": {
                    "operationId": "ready",
                    "summary": "Whether the store, the disk and Spark answer.",
                    "responses": {
                        "200": _json("They do.", {"type": "object", "required": ["status", "unavailable"]}),
                        "503": _json("Some do not; since when.", {"type": "object"}),
                    },
                }
            },
        },
        "components": {
            "schemas": {
                **_schemas_of(AskedFor),
                **_schemas_of(Wishes),
                **_schemas_of(BackfillBody),
                **_schemas_of(Reported),
                "Query": _QUERY,
                "Problem": _PROBLEM_SCHEMA,
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:
        return "0"


def _schemas_of(body: type[BaseModel]) -> dict[str, Any]:
    """A body, and what it is made of."""
    schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs", {}), body.__name__: schema}


def _body(name: str) -> dict[str, Any]:
    return {"required": True, "content": {JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}}}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"schema": schema}}}


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


def _problems(*codes: int) -> dict[str, Any]:
    content = {_PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    # From where one may ask is looked at before all else; a body has its time.
    every = sorted({*codes, 403, 421, *((408,) if 413 in codes else ())})
    return {str(code): {"description": _SAID[code], "content": content} for code in every}


_WAITING = {
    "type": "array",
    "description": "Rows that are there but not used yet, as another source has not come as far.",
    "items": {"type": "object", "required": ["table", "source", "rows", "exact", "waits_for", "upto_us"]},
}
_REQUEST: dict[str, Any] = {"type": "object", "required": ["request", "table", "stage", "made", "left", "waits"]}
_INSTANT = {"type": ["integer", "null"], "description": "Microseconds since 1970, UTC."}
_PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "problems": {"type": "array", "items": {"type": "object"}},
    },
}
_QUERY: dict[str, Any] = {
    "type": "object",
    "required": ["id", "status", "profile", "arrived_us", "deadline_us", "links", "steps"],
    "properties": {
        "id": {"type": "string"},
        "status": {"enum": ["asked", "waiting", "queued", "running", "done", "failed", "withdrawn"]},
        "profile": {"type": "string"},
        "arrived_us": {"type": "integer"},
        "deadline_us": {"type": "integer"},
        "ended_us": _INSTANT,
        "links": {"type": "object", "additionalProperties": {"type": "string"}},
        "steps": {"type": "array", "items": {"type": "object"}},
        "error": {"type": "string"},
        "answer": {
            "type": "object",
            "required": ["outcome", "way", "because", "complete_us", "lag", "as_of_us", "consistent", "versions"],
            "properties": {
                "outcome": {"enum": [ending.value for ending in Ending]},
                "complete_us": _INSTANT,
                "as_of_us": _INSTANT,
                "lag": {"type": ["integer", "null"], "description": "Updates that had arrived and are not in it."},
                "lag_when_asked": {
                    "type": ["integer", "null"],
                    "description": "Of these, those that had arrived when it was asked: what a contract is about.",
                },
                "consistent": {"type": "boolean"},
                "waiting": _WAITING,
                "versions": {"type": "array", "items": {"type": "object", "required": ["table", "snapshot"]}},
                "why": {"type": "string", "description": "Why it was rejected."},
                "acceptable_within_us": {"type": ["integer", "null"]},
                "acceptable_freshness": {"type": ["object", "null"]},
                "withheld": {"type": "boolean"},
                "columns": {"type": "array", "items": {"type": "object", "required": ["name", "type"]}},
                "rows": {"type": "array", "items": {"type": "array"}},
                "files": {"type": "array", "items": {"type": "string"}},
                "truncated": {"type": "boolean"},
                "row_count": {"type": "integer"},
            },
        },
    },
}
_TABLES: dict[str, Any] = {
    "type": "object",
    "required": ["at_us", "running", "tables", "feeds", "recovery", "violated", "quarantine", "waiting"],
    "properties": {
        "waiting": _WAITING,
        "tables": {"type": "array", "items": {"type": "object", "required": ["table", "doing"]}},
        "feeds": {"type": "array", "items": {"type": "object", "required": ["feed", "health", "said"]}},
        "recovery": {"type": "array", "items": {"type": "object", "required": ["table", "lag_us"]}},
        "violated": {"type": "array", "items": {"type": "object", "required": ["table", "assumption", "said"]}},
    },
}
