"""Formats beside CSV, JSON and Parquet: the same rows, however they are delivered; bad ones are refused in the same way."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from penstock.app import Warehouse, check
from penstock.declare.config import FeedConfig
from penstock.engine.arrivals.as_json import check_xml, elements
from penstock.engine.arrivals.inspect import look_at
from penstock.engine.arrivals.records import Malformed
from penstock.model.schema import parse_ddl
from tests.conftest import Write

COLUMNS = "id bigint, name string, day date, at timestamp, price decimal(8,2)"
FEED = """
    [feeds.{name}]
    path = "landing/{name}/*"
    format = "{name}"
    columns = "{columns}"
    settle = "0s"
    rules = ["id > 0"]
    {more}
"""
MORE = {"orc": "", "xml": 'options = { rowTag = "row" }', "fixed": 'options = { widths = "6,8,12,21,10" }'}
TOML = 'name = "formats"\n' + "\n".join(FEED.format(name=n, columns=COLUMNS, more=more) for n, more in MORE.items())
Row = tuple[int, str | None, date, datetime, Decimal]


def rows(chance: Random, count: int) -> list[Row]:
    return [
        (
            n + 1,
            chance.choice(["Ann", "Zoë", "a & b", "<c>", None]),
            date(2024, 1, 1 + n % 28),
            datetime(2024, 2, 3, n % 24, 5, tzinfo=UTC),
            Decimal(chance.randrange(10**6)) / 100,
        )
        for n in range(count)
    ]


def write_orc(path: Path, found: list[Row]) -> None:
    names = [column.name for column in parse_ddl(COLUMNS)]
    # Times without offset, as Hive writes them.
    plain = [(*row[:3], row[3].replace(tzinfo=None), row[4]) for row in found]
    types = [pa.int32(), pa.string(), pa.date32(), pa.timestamp("ns"), pa.decimal128(8, 2)]
    table = pa.table({n: pa.array(list(v), t) for n, v, t in zip(names, zip(*plain, strict=True), types, strict=True)})
    orc.write_table(table, path, stripe_size=1 << 16)


def write_xml(path: Path, found: list[Row]) -> None:
    def escaped(value: Any) -> str:
        return str(value).replace("&", "&amp;").replace("<", "&lt;")

    lines = ['<?xml version="1.0" encoding="utf-8"?>', '<x:all xmlns:x="urn:x">', "<head><id>0</id></head>"]
    for id_, name, day, at, price in found:
        told = f"<name>{escaped(name)}</name>" if name else "<name/>"
        lines.append(f'<row id="{id_}">{told}<day>{day}</day>\n  <at>{at.isoformat()}</at><price>{price}</price></row>')
    path.write_text("\n".join([*lines, "</x:all>"]))


def write_fixed(path: Path, found: list[Row]) -> None:
    lines = (
        f"{id_:6}{name or '':8}{day!s:12}{at:%Y-%m-%dT%H:%M:%SZ} {price:>10}" for id_, name, day, at, price in found
    )
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.spark
def test_rows_are_the_same_in_every_format(tmp_path: Path, spark: SparkSession, project: Write) -> None:
    project({"penstock.toml": TOML})
    chance = Random(3)
    whole = rows(chance, 300)
    for name, write in (("orc", write_orc), ("xml", write_xml), ("fixed", write_fixed)):
        (tmp_path / "landing" / name).mkdir(parents=True)
        for number, some in enumerate((whole[:120], whole[120:])):
            write(tmp_path / f"landing/{name}/{number}.{name}", some)
        bad = [(-1, "bad", date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), Decimal("1.00"))]
        write(tmp_path / f"landing/{name}/bad.{name}", bad)
    fixed, xml = tmp_path / "landing/fixed/bad.fixed", tmp_path / "landing/xml/bad.xml"
    fixed.write_text(fixed.read_text() + "     2Bea     x\n     3" + "y" * 80 + "\n")
    xml.write_text(
        "<all>\n<row><id>1</id><id>2</id></row>\n<row id='4'><name><b/></name></row>\n<row id='x'/>\n"
        + xml.read_text().partition("</head>\n")[2].replace("</x:all>", "</all>")
    )
    (tmp_path / "landing/xml/broken.xml").write_text("<all><row id='1'/>")
    (tmp_path / "landing/orc/broken.orc").write_bytes(b"ORC and nothing else")
    expected = sorted((id_, name, day, at, price) for id_, name, day, at, price in whole)
    with Warehouse(tmp_path, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        for name in MORE:
            found = warehouse.query(f"select id, name, day, unix_seconds(at), price from {name} order by id").rows
            told = [(*row[:3], int(row[3].timestamp()), row[4]) for row in expected]
            assert [tuple(row) for row in found] == told, name
        refused = {
            name: [
                tuple(row) for row in warehouse.query(f"select line, reason from {name}_quarantine order by line").rows
            ]
            for name in MORE
        }
        assert [line for line, _ in refused["fixed"]] == [1, 2, 3] and "expected at most 57" in refused["fixed"][2][1]
        assert [line for line, _ in refused["xml"]] == [2, 3, 4, 5]
        assert "<id> stands 2 times" in refused["xml"][0][1] and "has elements inside" in refused["xml"][1][1]
        assert refused["orc"] == [(1, "breaks the rule: id > 0")]
        files = {uri: file.reason for uri, file in warehouse.state().quarantine.items()}
        assert "not whole XML" in files["landing/xml/broken.xml"]
        assert "not a whole ORC file" in files["landing/orc/broken.orc"]


def test_elements_that_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text("<o><h><r a='1'/></h>\n<x:r xmlns:x='u'><r>in</r></x:r></o>")
    named = FeedConfig(path="*", format="xml", options={"rowTag": "r"})
    plain = FeedConfig(path="*", format="xml")
    assert [(line, row.tag, len(row)) for line, row in elements(path, named)] == [(1, "r", 0), (2, "r", 1)]
    assert [(line, row.tag) for line, row in elements(path, plain)] == [(1, "h"), (2, "r")]
    check_xml(path, named, parse_ddl("a int"))
    with pytest.raises(Malformed, match="expected b"):
        check_xml(path, named, parse_ddl("b int"))
    path.write_text('<!DOCTYPE o [<!ENTITY a "aaaa">]><o><r>&a;</r></o>')
    with pytest.raises(Malformed, match="entities"):
        look_at(path, named, None)


BAD = {
    'format = "avro"': "spark-avro",
    'format = "fixed"\noptions = { widths = "3,x" }': "widths",
    'format = "fixed"\noptions = { widths = "3" }': "2 columns, but 1 widths",
    'format = "xml"\noptions = { sep = ";" }': "no meaning",
    'format = "csv"\noptions = { widths = "3" }': "no meaning",
}


@pytest.mark.parametrize("said", BAD)
def test_what_is_wrong_with_a_format_is_said(project: Write, said: str) -> None:
    folder = project(
        {"penstock.toml": f'name = "f"\n[feeds.x]\npath = "landing/*"\ncolumns = "a int, b int"\n{said}\n'}
    )
    assert any(BAD[said] in problem.message for problem in check(folder)), [str(p) for p in check(folder)]
