"""The API over a real connection: asking, looking, following, cancelling; and everything that is refused."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.store import tokens
from tests.declare.test_sql_read import BAD
from tests.service.conftest import Served
from tests.waiting import LONG_S, until

pytestmark = pytest.mark.spark


@pytest.fixture
def client(shop: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shop.url, timeout=LONG_S) as client:
        yield client


def ask(client: httpx.Client, sql: str, **contract: Any) -> dict[str, Any]:
    response = client.post("/v1/queries", json={"sql": sql, **contract}, headers={"Prefer": "wait=900"})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_ask_look_and_follow(client: httpx.Client) -> None:
    response = client.post(
        "/v1/queries", json={"sql": "select shop, sum(amount) as s from daily group by shop order by shop"}
    )
    assert response.status_code == 202 and response.headers["location"] == response.json()["links"]["self"]
    here = response.headers["location"]
    with client.stream("GET", f"{here}/events") as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        told = [line for line in events.iter_lines() if line.startswith(("event", "data"))]
    assert told[0] == "event: step" and told[-2] == "event: end"
    done = client.get(here).json()
    assert done["status"] == "done" and [step["status"] for step in done["steps"]][-1] == "done"
    answer = done["answer"]
    assert answer["rows"] == [["berlin", 500], ["paris", 500]] and answer["outcome"] == "success"
    assert answer["columns"] == [{"name": "shop", "type": "string"}, {"name": "s", "type": "bigint"}]
    assert answer["versions"][0]["table"] == "daily" and answer["complete_us"] and answer["lag"] == 0
    assert answer["consistent"] is True and answer["as_of_us"] >= done["arrived_us"]


def test_rows_as_arrow_and_as_files(client: httpx.Client, shop: Served) -> None:
    asked = ask(client, "select shop, ts, amount from sales order by ts, shop")
    arrow = client.get(asked["links"]["self"], headers={"Accept": "application/vnd.apache.arrow.stream"})
    assert arrow.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table.num_rows == 100 and json.loads(arrow.headers["penstock-answer"])["outcome"] == "success"
    # More than fits into a message.
    sql = "select a.shop, b.ts from sales a cross join sales b cross join (values (1), (2)) as v(x)"
    answer = ask(client, sql)["answer"]
    assert answer["row_count"] == 20_000 and "rows" not in answer and not answer["truncated"]
    parts = [pq.read_table(io.BytesIO(client.get(file).content)) for file in answer["files"]]
    assert sum(part.num_rows for part in parts) == 20_000
    assert client.get(f"{answer['files'][0]}9999").status_code == 404
    short = ask(client, sql, files=False)["answer"]
    assert short["truncated"] and len(short["rows"]) == 10_000
    assert len(ask(client, sql, limit=7)["answer"]["rows"]) == 7


def test_contracts_are_told_how_they_ended(client: httpx.Client) -> None:
    stale = ask(client, "select count(*) as n from hourly", fresh="1m")["answer"]
    assert stale["outcome"] == "stale" and stale["rows"] == [[2]] and stale["withheld"] is False
    withheld = ask(client, "select count(*) as n from hourly", fresh="1m", stale="withhold")["answer"]
    assert withheld["outcome"] in ("stale", "rejected") and "rows" not in withheld
    rejected = ask(client, "select count(*) as n from hourly where n > 77", within="1ms")["answer"]
    assert rejected["outcome"] == "rejected" and rejected["why"] and rejected["acceptable_within_us"] > 1000
    failed = ask(client, "select cast(shop as int) as n from hourly")
    assert failed["status"] == "failed" and "CAST_INVALID_INPUT" in failed["error"] and "answer" not in failed


def test_cancelling(client: httpx.Client, shop: Served) -> None:
    slow = (
        "select count(*) as n from sales a, sales b, sales c, sales d, sales e, sales f where a.amount + f.amount > 0"
    )
    asked = client.post("/v1/queries", json={"sql": slow}).json()
    until(lambda: client.get(asked["links"]["self"]).json()["status"] == "running", "the query to run")
    assert client.delete(asked["links"]["self"]).json()["status"] == "withdrawn"
    tracker = shop.warehouse.spark.sparkContext.statusTracker()
    until(lambda: not tracker.getActiveJobsIds(), "Spark to stop it")
    assert client.delete(asked["links"]["self"]).json()["status"] == "withdrawn"


def test_the_same_key_is_the_same_query(client: httpx.Client) -> None:
    body = {"sql": "select max(amount) as m from daily"}
    first, again = (client.post("/v1/queries", json=body, headers={"Idempotency-Key": "k1"}).json() for _ in range(2))
    assert first["id"] == again["id"]


def test_tables_metrics_and_health(client: httpx.Client) -> None:
    tables = {row["table"]: row for row in client.get("/v1/tables").json()["tables"]}
    assert set(tables) == {"sales", "shops", "hourly", "daily"} and tables["daily"]["complete_us"]
    assert any("reads hourly" in line for line in client.get("/v1/tables/daily").json()["lines"])
    assert client.get("/healthz").json() == {"status": "ok"}
    feeds = {feed["feed"]: feed for feed in client.get("/v1/tables").json()["feeds"]}
    # Healthy, or late by some seconds: the feed delivers nothing while this runs.
    said, _, last = feeds["sales"]["said"].partition(", last file ")
    assert last and re.fullmatch(f"sales: {feeds['sales']['health']}( by .+)?", said)
    text = client.get("/metrics").text
    assert re.search(r'penstock_feed_health\{feed="sales",health="(healthy|late)"\} 1\n', text)
    assert 'penstock_feed_last_file_age_seconds{feed="sales"}' in text
    for name in (
        "queries_total",
        "query_satisfaction",
        "query_satisfaction_part",
        "query_policy",
        "query_chance",
        "query_seconds_bucket",
        "table_staleness_seconds",
    ):
        assert f"\npenstock_{name}" in text
    counts = [line for line in text.splitlines() if line.startswith("penstock_query_seconds_bucket") and "+Inf" in line]
    totals = [line for line in text.splitlines() if line.startswith("penstock_queries_total")]
    assert sum(int(line.split()[-1]) for line in counts) == sum(int(line.split()[-1]) for line in totals)


REFUSED = [
    ("POST", "/v1/queries", {"content": "{"}, 400),
    ("POST", "/v1/queries", {"content": b"\xff\xfe"}, 400),
    ("POST", "/v1/queries", {"content": ""}, 400),
    ("POST", "/v1/queries", {"json": []}, 422),
    ("POST", "/v1/queries", {"json": {}}, 422),
    ("POST", "/v1/queries", {"json": {"sql": 1}}, 422),
    ("POST", "/v1/queries", {"json": {"sql": "select 1", "else": 1}}, 422),
    ("POST", "/v1/queries", {"json": {"sql": "select 1", "within": "soon"}}, 422),
    ("POST", "/v1/queries", {"json": {"sql": "select 1", "within": "0s"}}, 422),
    ("POST", "/v1/queries", {"json": {"sql": "select 1", "lag": -1}}, 422),
    ("POST", "/v1/queries", {"json": {"sql": "select 1", "profile": "nobody"}}, 422),
    ("POST", "/v1/queries", {"json": {"sql": "select 1"}, "headers": {"Idempotency-Key": "a b"}}, 400),
    ("POST", "/v1/queries", {"data": {"sql": "select 1"}}, 415),
    ("POST", "/v1/queries", {"json": {"sql": "x" * 100_001}}, 413),
    ("GET", "/v1/queries", {}, 405),
    ("PUT", "/v1/tables", {}, 405),
    ("GET", "/v1/queries/nothing", {}, 404),
    ("DELETE", "/v1/queries/nothing", {}, 404),
    ("GET", "/v1/queries/nothing/events", {}, 404),
    ("GET", "/v1/tables/nothing", {}, 404),
    ("GET", "/v1/queries/..%2f..%2fetc/files/0", {}, 404),
    ("GET", "/elsewhere", {}, 404),
]


@pytest.mark.parametrize(("method", "path", "more", "status"), REFUSED)
def test_bad_requests_are_told(client: httpx.Client, method: str, path: str, more: dict[str, Any], status: int) -> None:
    if "content" in more:
        more = {**more, "headers": {"Content-Type": "application/json"}}
    response = client.request(method, path, **more)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == status and len(response.json()["detail"]) > 10


def test_no_injection_reaches_spark(client: httpx.Client) -> None:
    for sql in BAD:
        response = client.post("/v1/queries", json={"sql": sql})
        assert response.status_code in (413, 422), sql
        assert response.headers["content-type"] == "application/problem+json"


def test_tokens_open_the_door_for_their_profile(client: httpx.Client, shop: Served) -> None:
    store = shop.warehouse.store
    with store.write() as conn:
        made, secret = tokens.add(conn, "board", "for the wall", 1)
        _, audit = tokens.add(conn, "audit", "", 2)
        assert secret not in str(conn.exec_driver_sql("SELECT * FROM penstock_token").fetchall())
    try:
        body = {"sql": "select 1 as one"}
        assert client.post("/v1/queries", json=body).status_code == 401
        for wrong in ("x", "Bearer", "Bearer x", f"Bearer {secret}x", f"Bearer pst_{made.id}_", f"Basic {secret}"):
            assert client.get("/v1/tables", headers={"Authorization": wrong}).status_code == 401
        mine = {"Authorization": f"Bearer {secret}"}
        asked = client.post("/v1/queries", json=body, headers=mine)
        assert asked.status_code == 202 and asked.json()["profile"] == "board"
        assert client.post("/v1/queries", json={**body, "profile": "audit"}, headers=mine).status_code == 403
        here = asked.headers["location"]
        assert client.get(here, headers=mine).status_code == 200
        assert client.get(here, headers={"Authorization": f"Bearer {audit}"}).status_code == 404
        assert client.get("/healthz").status_code == 200
        with store.write() as conn:
            assert tokens.revoke(conn, made.id, 3) and not tokens.revoke(conn, made.id, 4)
            assert [(one.profile, one.revoked_us) for one in tokens.listed(conn)] == [("board", 3), ("audit", None)]
        assert client.get(here, headers=mine).status_code == 401
    finally:
        with store.write() as conn:
            conn.exec_driver_sql("DELETE FROM penstock_token")
