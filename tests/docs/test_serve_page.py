"""The page about queries: its commands give what it shows, its client works, its settings exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.cli.starter import write_starter
from penstock.declare.config import ProfileConfig, ProjectConfig
from penstock.engine.runtime import Pace
from penstock.model.time import MINUTE_US, format_instant
from penstock.queries.policies import POLICIES
from penstock.service.openapi import description
from penstock.service.serve import served
from tests.docs.test_docs import ROOT, blocks, cells, commands

PAGE = ROOT / "docs/serve.md"


def test_settings_and_paths_are_told() -> None:
    text = PAGE.read_text()
    (toml,) = blocks(PAGE, "toml")
    ProjectConfig.model_validate({"name": "x", **tomllib.loads(toml)})
    assert all(f"`{name}`" in text for name in ProfileConfig.model_fields)
    assert all(f"| `{name}` |" in text for name in POLICIES)
    for path in description()["paths"]:
        assert path.removeprefix("/v1").split("{")[0].rstrip("/") in text


@pytest.mark.spark
def test_the_page(tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "shop"
    write_starter(folder, "shop")
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        shown = list(commands(PAGE))
        assert len(shown) == 2
        for words, output in shown:
            assert words[:2] == ["penstock", "query"]
            options = {name.removeprefix("--"): value for name, value in zip(words[3::2], words[4::2], strict=True)}
            lag = int(options.pop("lag")) if "lag" in options else None
            answer = warehouse.query(words[2], lag=lag, **options)  # type: ignore[arg-type]
            assert answer.is_answered == bool(output)
            if output:
                assert answer.complete_us is not None
                upto = format_instant(answer.complete_us // MINUTE_US * MINUTE_US)
                lines = ["  ".join(map(str, row)) for row in (answer.columns, *answer.rows)]
                assert cells("\n".join([*lines, f"complete up to {upto} UTC, 257d 9h ago"])) == cells(output)
        with served(warehouse, pace=Pace(0.05, 0.05)) as (server, _):
            server.start()
            (client,) = blocks(PAGE, "python")
            exec(compile(client, str(PAGE), "exec"), {"url": server.url})
    assert re.search(r"^success \[\['berlin', 4\], \['paris', 4\]\]$", capsys.readouterr().out, re.MULTILINE)
