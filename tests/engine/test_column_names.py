"""A column of a feed may have any name, also one that a quarantine has for its own columns."""

from __future__ import annotations

import csv
import json
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from tests.conftest import Write
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

NAMES = ["line", "Row", "reason", "file", "job", "loaded_at", "_r", "_metadata", "value", "x0", "a.b", "a`b"]
COLUMNS = ", ".join(f"`{name.replace('`', '``')}` bigint" for name in NAMES)
FEED = """
    [feeds.{name}]
    path = "landing/{name}/*"
    format = "{format}"
    columns = "{columns}, note string{more}"
    rules = ["line < 100", "reason <> 7"]
    settle = "0s"
    {options}
"""
FEEDS = {
    "plain": ("csv", ""),
    "broken": ("csv", ""),
    "foreign": ("csv", 'options = { encoding = "utf-16" }'),
    "lines": ("json", ""),
    "narrow": ("json", 'options = { encoding = "latin-1" }'),
    "packed": ("parquet", ""),
}
GOOD, BROKEN, UNFIT = range(1, 13), [100, *range(2, 13)], [1, 2, "x", *range(4, 13)]


def _deliver(folder: Path) -> None:
    for name in FEEDS:
        (folder / "landing" / name).mkdir(parents=True)
    for name in ("plain", "broken", "foreign"):
        note = "two\nlines" if name == "broken" else "one"
        # Two files: which of them has bad rows is found first.
        for number, lines in enumerate(([GOOD], [GOOD, BROKEN, UNFIT])):
            path = folder / f"landing/{name}/{number}.csv"
            with path.open("w", newline="", encoding="utf-16" if name == "foreign" else "utf-8") as stream:
                csv.writer(stream).writerows([[*NAMES, "note"], *([*line, note] for line in lines)])
    for name in ("lines", "narrow"):
        text = "".join(f"{json.dumps(dict(zip(NAMES, line, strict=True)))}\n" for line in (GOOD, BROKEN, UNFIT))
        (folder / f"landing/{name}/1.json").write_text(text)
    columns = {name: pa.array([GOOD[n], BROKEN[n], GOOD[n]], pa.int64()) for n, name in enumerate(NAMES)}
    # What clocks showed, so that these rows are read through an expression.
    more = {"note": ["", "", ""], "at": pa.array([None] * 3, pa.timestamp("us"))}
    pq.write_table(pa.table(columns | more), folder / "landing/packed/1.parquet")


def test_no_name_of_a_column_is_taken_for_another(project: Write, spark: SparkSession) -> None:
    feeds = "".join(
        FEED.format(
            name=name,
            format=format_,
            columns=COLUMNS,
            options=options,
            more=", at timestamp" if format_ == "parquet" else "",
        )
        for name, (format_, options) in FEEDS.items()
    )
    folder = project({"penstock.toml": f'name = "names"\n{textwrap.dedent(feeds)}'})
    _deliver(folder)
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        assert not state.quarantine and not [row.error for row in warehouse.status() if row.error]
    con = attach(folder)
    every = ", ".join(f'"{name}"' for name in NAMES)
    for name, (format_, _) in FEEDS.items():
        assert rows(con, f"SELECT {every} FROM lake.{name}") == [tuple(GOOD)] * (1 if format_ == "json" else 2), name
        first = {"plain": 3, "foreign": 3, "broken": 4}.get(name, 2)
        (line, why, text), *unfit = rows(con, f"SELECT line, reason, row FROM lake.{name}_quarantine ORDER BY line")
        assert (line, why) == (first, "breaks the rule: line < 100"), name
        found = next(csv.reader([text])) if format_ == "csv" else json.loads(text).values()
        assert list(map(str, found))[: len(NAMES)] == list(map(str, BROKEN)), name
        told = [(first + (2 if name == "broken" else 1), "the value of reason does not fit its type bigint")]
        assert [(line, why) for line, why, _ in unfit] == (told if format_ != "parquet" else []), name
