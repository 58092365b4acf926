"""Requests over HTTP, on a project that is made by the stand-in of Spark: plan, ask, look, cancel; and who may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from penstock.app import Warehouse
from penstock.queries.contract import Profile
from penstock.service.api import Api
from penstock.service.limits import Limits
from penstock.store import tokens
from tests.engine.crashing import Site, make_site

PROFILES = {"default": Profile(), "ops": Profile("ops", role="operator"), "board": Profile("board")}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = make_site(tmp_path, monkeypatch)
    site.work()
    return site


@pytest.fixture
def client(site: Site) -> Iterator[TestClient]:
    with Warehouse(site.folder) as warehouse:
        front = SimpleNamespace(profiles=PROFILES)
        with TestClient(Api(warehouse, front, Limits()).app()) as client:  # type: ignore[arg-type]
            yield client


def test_plan_ask_look_and_cancel(client: TestClient, site: Site) -> None:
    assert client.post("/v1/plans", json={}).json()["work"] == []
    wishes = [{"table": "stats", "span": "2024-03-01T22"}, {"table": "hourly", "span": "2024-03-01"}]
    planned = client.post("/v1/plans", json={"wishes": wishes}).json()
    assert planned["requests"] == 2 and {work["table"] for work in planned["work"]} >= {"stats", "hourly", "daily"}
    assert client.get("/v1/requests").json() == {"requests": [], "pending": {"total_s": 0.0, "shortest_s": 0.0}}
    asked = client.post("/v1/requests", json={"table": "hourly", "span": "2024-03-01", "reason": "audit"})
    assert asked.status_code == 201 and asked.json()["stage"] == "queued" and not asked.json()["running"]
    here = asked.headers["location"]
    looked = client.get(here).json()
    assert (looked["table"], looked["reason"], looked["made"]) == ("hourly", "audit", 0) and looked["left"] > 0
    listed = client.get("/v1/requests").json()
    assert [one["request"] for one in listed["requests"]] == [looked["request"]] and listed["pending"]["total_s"] > 0
    late = client.post("/v1/requests", json={"table": "stats", "span": "2024-03-01T22", "deadline": "2h"}).json()
    assert late["deadline_us"] > 0
    gone = client.delete(f"/v1/requests/{late['request']}").json()
    assert gone["stage"] == "cancelled" and gone["dropped"] == 1
    again = client.delete(f"/v1/requests/{late['request']}")
    assert again.status_code == 409 and again.json()["detail"].endswith("is cancelled: there is nothing left to cancel")
    site.work([])
    assert client.get(here).json()["stage"] == "done"


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        ({"table": "huorly", "span": "all"}, 422, "huorly"),
        ({"table": "hourly"}, 422, "partitioned by hour: say which partitions"),
        ({"table": "hourly", "span": "2025"}, 422, "has nothing in 2025"),
        ({"table": "hourly", "span": "all", "deadline": "soon"}, 422, "'soon' is not a deadline"),
        ({"tabel": "hourly"}, 422, "the body is not a request"),
    ],
)
def test_what_is_wrong_is_told(client: TestClient, body: dict[str, str], status: int, expected: str) -> None:
    found = client.post("/v1/requests", json=body)
    assert found.status_code == status and expected in found.json()["detail"]
    assert found.headers["content-type"] == "application/problem+json"


def test_there_is_no_such_request(client: TestClient) -> None:
    assert client.get("/v1/requests/999999").status_code == 404
    assert client.delete("/v1/requests/no").status_code == 404


def test_with_tokens_only_some_may_ask(client: TestClient, site: Site) -> None:
    with Warehouse(site.folder) as warehouse, warehouse.store.write() as conn:
        _, board = tokens.add(conn, "board", "", 1)
        _, ops = tokens.add(conn, "ops", "", 1)
    body = {"table": "hourly", "span": "all"}
    assert client.post("/v1/requests", json=body).status_code == 401
    watching = {"Authorization": f"Bearer {board}"}
    refused = client.post("/v1/requests", json=body, headers=watching)
    assert refused.status_code == 403 and 'role = "operator"' in refused.json()["detail"]
    assert client.post("/v1/plans", json={"wishes": [body]}, headers=watching).status_code == 200
    working = {"Authorization": f"Bearer {ops}"}
    asked = client.post("/v1/requests", json=body, headers=working)
    assert asked.status_code == 201
    here = asked.headers["location"]
    assert client.get(here, headers=watching).status_code == 200
    assert client.delete(here, headers=watching).status_code == 403
    assert client.delete(here, headers=working).status_code == 200
