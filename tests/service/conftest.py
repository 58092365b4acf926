"""One served warehouse for the tests of the API."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.engine.runtime import Pace, Runtime
from penstock.service.limits import Limits
from penstock.service.serve import served
from tests.engine.shop import FILES, put, sales

T = datetime(2024, 3, 1, 10, 30, tzinfo=UTC)


@dataclass
class Served:
    url: str
    folder: Path
    warehouse: Warehouse
    runtime: Runtime


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text).lstrip("\n"))
    put(folder, "sales", "one", sales(T, 50) + sales(T, 50, shop="paris"))
    put(folder, "shops", "all", ["berlin,Berlin", "paris,Paris"])
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        with served(warehouse, pace=Pace(0.05, 0.05), limits=Limits(body_bytes=100_000)) as (server, runtime):
            server.start()
            yield Served(server.url, folder, warehouse, runtime)
