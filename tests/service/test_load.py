"""The API from its own description, and under a crowd."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.service.conftest import Served
from tests.waiting import LONG_S, until

pytestmark = pytest.mark.spark

GOOD = ("select 1 as one", "select shop, n from daily", "select max(hour) as h from hourly where hour > '2024-01-01'")


def test_a_generated_client_finds_nothing(shop: Served) -> None:
    """Whatever is sent, valid or not, is answered as the description says. That a text is SQL no schema can say: so one round sends
    any text, and may be refused for it; the other sends queries that must be taken."""
    schema = schemathesis.openapi.from_url(f"{shop.url}/openapi.json")
    for result in schema.get_all_operations():
        operation = result.ok()
        checked(
            operation, lambda case: case.call_and_validate(timeout=LONG_S, excluded_checks=[positive_data_acceptance])
        )
        if operation.method == "post":
            checked(operation, with_good_sql)


def with_good_sql(case: Any) -> None:
    if isinstance(case.body, dict) and isinstance(case.body.get("sql"), str):
        case.body["sql"] = GOOD[len(case.body["sql"]) % len(GOOD)]
        case.body.pop("profile", None)
        for name in ("within", "fresh"):
            if isinstance(case.body.get(name), str):
                case.body[name] = "1m"
        case.call_and_validate(
            timeout=LONG_S, excluded_checks=[positive_data_acceptance] if case.meta.generation.mode.is_negative else []
        )


def checked(operation: Any, call: Any) -> None:
    quiet = list(HealthCheck)

    @settings(max_examples=15, phases=(Phase.explicit, Phase.generate), suppress_health_check=quiet, database=None)
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        call(case)

    run()


def test_a_thousand_clients_lose_and_double_nothing(shop: Served) -> None:
    """Each asks one of twenty questions, with a number of its own that must come back."""
    clients = 1000

    async def one(client: httpx.AsyncClient, number: int) -> tuple[int, str, list[list[int]]]:
        sql = f"select {number % 20} as which, sum(amount) as s from hourly"
        headers = {"Idempotency-Key": f"crowd-{number}", "Prefer": "wait=60"}
        here = (await client.post("/v1/queries", json={"sql": sql}, headers=headers)).json()
        while here["status"] not in ("done", "failed", "withdrawn"):
            here = (await client.get(here["links"]["self"], headers={"Prefer": "wait=30"})).json()
        return number, here["id"], here["answer"]["rows"]

    async def crowd() -> list[tuple[int, str, list[list[int]]]]:
        limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
        async with httpx.AsyncClient(base_url=shop.url, timeout=LONG_S, limits=limits) as client:
            return await asyncio.gather(*(one(client, number) for number in range(clients)))

    until(lambda: not any(_open(shop).values()), "what other tests left")
    before = _ended(shop)
    answers = asyncio.run(crowd())
    assert len({identity for _, identity, _ in answers}) == clients
    assert all(rows == [[number % 20, 1000]] for number, _, rows in answers)
    after = _ended(shop)
    assert sum(after.values()) - sum(before.values()) == clients
    assert after["success"] - before["success"] == clients


def _open(shop: Served) -> dict[str, int]:
    lines = [
        line for line in httpx.get(f"{shop.url}/metrics").text.splitlines() if line.startswith("penstock_queries_open")
    ]
    return {line.split()[0]: int(line.split()[1]) for line in lines}


def _ended(shop: Served) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in httpx.get(f"{shop.url}/metrics").text.splitlines():
        if line.startswith("penstock_queries_total{"):
            found[line.split('outcome="')[1].split('"')[0]] += int(line.split()[-1])
    return found
