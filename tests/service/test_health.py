"""Health tells the truth within a second: of what fails, and of what hangs."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import closing

import httpx

from tests.service.test_door import Door
from tests.service.test_door import door as door
from tests.waiting import LONG_S, until


def ready(door: Door) -> tuple[int, set[str]]:
    answer = httpx.get(f"{door.url}/readyz", timeout=LONG_S)
    return answer.status_code, {each["part"] for each in answer.json()["unavailable"]}


def becomes(door: Door, expected: tuple[int, set[str]]) -> None:
    until(lambda: ready(door) == expected, f"{expected}, and not {ready(door)}")


def test_all_is_there(door: Door) -> None:
    assert ready(door) == (200, set())
    told = httpx.get(f"{door.url}/metrics", timeout=LONG_S).text
    assert 'penstock_available{part="spark"} 1\n' in told and "penstock_loop_alive 1\n" in told
    assert 'penstock_unavailable_seconds{part="store"} 0\n' in told and "penstock_table_updates_total" in told


def test_the_disk_of_the_tables_is_away(door: Door) -> None:
    place = door.warehouse.catalogue.data_path.rstrip("/")
    shutil.move(place, f"{place}-away")
    becomes(door, (503, {"storage"}))
    shutil.move(f"{place}-away", place)
    becomes(door, (200, set()))


def test_a_store_that_hangs(door: Door) -> None:
    """As when its server is paused: who asks is told soon, and so are those who ask for metrics."""
    go_on = threading.Event()

    def hang(probe: Callable[[], str]) -> Callable[[], str]:
        return lambda: probe() if go_on.is_set() else str(go_on.wait(LONG_S) and "")

    part = door.api.healths._parts["store"]
    part.probe = hang(part.probe)
    try:
        assert ready(door) == (503, {"store"})  # and not after `LONG_S`, when the store answers
        answer = httpx.get(f"{door.url}/metrics", timeout=LONG_S)
        assert answer.status_code == 200 and 'penstock_available{part="store"} 0\n' in answer.text
        assert "penstock_table_updates_total" not in answer.text
        assert httpx.get(f"{door.url}/healthz", timeout=LONG_S).status_code == 200
        with closing(httpx.Client(base_url=door.url, timeout=LONG_S)) as client:
            first, later = (client.get("/readyz").json()["unavailable"][0]["since_us"] for _ in range(2))
        assert first == later
    finally:
        go_on.set()
    becomes(door, (200, set()))


def test_spark_and_the_loop(door: Door) -> None:
    door.api.spark, ended = (lambda: ""), [False]
    door.api.spark_ended = lambda: ended[0]
    door.api.healths._parts["spark"].probe = lambda: "it has ended" if ended[0] else ""
    assert httpx.get(f"{door.url}/healthz", timeout=LONG_S).json() == {"status": "ok"}
    ended[0] = True
    answer = httpx.get(f"{door.url}/healthz", timeout=LONG_S)
    assert answer.status_code == 503 and "Spark has ended" in answer.json()["status"]
    becomes(door, (503, {"spark"}))
    ended[0], door.api.is_alive = False, lambda: False
    assert httpx.get(f"{door.url}/healthz", timeout=LONG_S).status_code == 503
    becomes(door, (503, set()))
