"""Tables that others make, over HTTP and by webhook: an outside job that only speaks HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from penstock.service.api import Api
from penstock.service.limits import Limits
from penstock.store import tokens
from tests.engine.crashing import Points, Site, stats, without_spark, write_project
from tests.engine.test_external import PROJECT, day, opened, parquet, rows, run
from tests.waiting import until


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    write_project(tmp_path / "project", PROJECT)
    without_spark(monkeypatch)
    return Site(tmp_path / "project", Points())


def test_orders_and_reports_over_http(site: Site) -> None:
    run(site, day(1, ("a", 10)))
    parquet(site.folder / "theirs/one.parquet", ("a", "2024-03-01", 0.9))
    with opened(site) as warehouse:
        client = TestClient(Api(warehouse, warehouse.front, Limits()).app())
        (order,) = client.get("/v1/orders").json()["orders"]
        assert (order["table"], order["range"]) == ("scores", "2024-03-01..2024-03-02")
        assert client.delete(f"/v1/orders/{order['order']}x").status_code == 404
        here = "/v1/tables/scores/versions"
        for body, status, said in (
            ({"version": order["version"] - 1, "files": []}, 409, "is out of date"),
            ({"version": order["version"], "files": ["/etc/passwd"]}, 422, "outside of the project's folder"),
            ({"version": order["version"], "files": ["theirs/two.parquet"]}, 422, "there is no file"),
            ({"version": order["version"]}, 422, "no files are named"),
            ({"version": "new"}, 422, "not a report"),
        ):
            answer = client.post(here, json=body)
            assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
        assert client.post("/v1/tables/none/versions", json={}).status_code == 404
        done = client.post(
            here, json={"version": order["version"], "inputs": order["inputs"], "files": ["theirs/one.parquet"]}
        )
        assert done.status_code == 201 and done.json()["order"] == order["order"]
        assert client.get("/v1/orders").json() == {"orders": []}
        with warehouse.store.write() as conn:
            written = tokens.add(conn, "default", "a job", 1)[1]
        assert client.get("/v1/orders").status_code == 401
        assert client.post(here, json={}).status_code == 401
        bearer = {"Authorization": f"Bearer {written}"}
        assert client.get("/v1/orders", headers=bearer).status_code == 200
        # A token that may only look changes nothing.
        assert client.post(here, json={}, headers=bearer).status_code == 403
        assert client.delete("/v1/orders/job-000001", headers=bearer).status_code == 403
    assert rows(site, "scores") == [("a", "2024-03-01", 0.9)]


@pytest.fixture
def heard() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """An outside service on loopback that is out of order the first time."""
    calls: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            calls.append(body)
            self.send_response(503 if len(calls) == 1 else 202)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", calls
        server.shutdown()


def test_a_webhook_is_called_until_it_answers(site: Site, heard: tuple[str, list[dict[str, object]]]) -> None:
    url, calls = heard
    toml = site.folder / "tables/scores.toml"
    toml.write_text(toml.read_text() + f'webhook = "{url}"\n')
    site.deliver(dict([day(1, ("a", 10)), ("stats/x.csv", stats(("b", "01T10:00", 1)))]))
    with site.running() as process:
        process.run(until_idle=True)
        assert len(calls) == 1
        with opened(site) as warehouse:
            (order,) = warehouse.orders()
            assert "Service Unavailable" in warehouse.not_told(order)
        thread = threading.Thread(target=process.run)
        thread.start()  # another round of the same process tells what is open
        until(lambda: len(calls) > 1, "another call")
        process.stop()
        thread.join()
        assert [call["order"] for call in calls] == [order.order] * 2
    with opened(site) as warehouse:
        until(lambda: not warehouse.not_told(order), "what was wrong is over")
