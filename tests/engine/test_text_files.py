"""CSV and JSON as the world writes them: read as Python's own csv module does, and a value is stored as it is or refused."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from tests.conftest import Write
from tests.oracle import attach, rows

pytestmark = pytest.mark.spark

PROJECT = {
    "penstock.toml": """
        name = "texts"
        [feeds.s]
        path = "landing/s/*.csv"
        format = "csv"
        columns = "a string, b string, c string"
        settle = "0s"
        [feeds.cp]
        path = "landing/cp/*.csv"
        format = "csv"
        columns = "a string, b string"
        options = { Sep = "\\t", encoding = "cp1252", quote = "'" }
        settle = "0s"
        [feeds.wide]
        path = "landing/wide/*.csv"
        format = "csv"
        columns = "a string, b int"
        options = { encoding = "utf-16", header = false }
        settle = "0s"
        [feeds.v]
        path = "landing/v/*.csv"
        format = "csv"
        columns = "n int, kind string, i int, b bigint, d decimal(6,2), f double, r float, t boolean, day date, ts timestamp, l timestamp_ntz"
        settle = "0s"
        [feeds.form]
        path = "landing/form/*.csv"
        format = "csv"
        columns = "day date, ts timestamp"
        options = { dateFormat = "dd.MM.yyyy", timestampFormat = "dd/MM/yyyy HH:mm" }
        settle = "0s"
        [feeds.j]
        path = "landing/j/*.json"
        format = "json"
        columns = "n int, s string, i int, d decimal(6,2), day date, ts timestamp, x struct<a:int,b:array<date>>, m map<string,double>"
        settle = "0s"
        [feeds.only]
        path = "landing/only/*.csv"
        format = "csv"
        columns = "a string, b int"
        settle = "0s"
        [feeds.odd]
        path = "landing/odd/*.json"
        format = "json"
        columns = "n int, f double, s string, d decimal(30,9)"
        settle = "0s"
        [feeds.odd1]
        path = "landing/odd1/*.json"
        format = "json"
        columns = "n int, f double, s string, d decimal(30,9)"
        options = { encoding = "latin-1" }
        settle = "0s"
        [feeds.none]
        path = "landing/none/*.json"
        format = "json"
        columns = "k string"
        settle = "0s"
    """,
    # A table that takes one column refuses the same rows as one that takes all.
    "tables/picked.sql": """
        -- feed = "only"
        SELECT a FROM only
    """,
}
QUOTED = {
    "rfc": 'a,b,c\r\n"say ""hi""","x,y",z\r\n"","  sp  ",\r\n\r\n"C:\\dir\\","\\",5" pipe\r\n',
    "lines": 'a,b,c\n"one\ntwo","three\r\nfour",x\ny,"last\n\nof it",z\n"""",b,"""c"""\n',
    "order": '\ufeffC,"A",b\n3,"1\n1",2\n',
    "head": '"a","b","c"\n1,2,3',
    "mixed": "a,b,c\r\n1,2,3\n4,5,6\r\n",
}
# Each value beside what it is, or None where it must be refused.
VALUES: dict[str, list[tuple[str, object]]] = {
    "i": [("1", 1), (" 2 ", 2), ("+3", 3), ("1.0", None), ("1.5", None), ("2147483648", None), ("1e2", None), ("x", None), ("0x1", None)],
    "b": [("9223372036854775807", 9223372036854775807), ("9223372036854775808", None), ("1_0", None)],
    "d": [("1.25", "1.25"), ("1.250", "1.25"), ("-.5", "-0.50"), ("7", "7.00"), ("1.255", None), ("12345.00", None), ("1e2", "100.00"), ("1e-3", None)],
    "f": [("0.1", 0.1), ("1e400", None), ("inf", float("inf")), ("1d", None), ("1e3", 1000.0)],
    "r": [("1e39", None), ("0.5", 0.5), ("2f", None)],
    "t": [("true", True), ("FALSE", False), ("yes", None), ("1", None)],
    "day": [("2024-02-29", "2024-02-29"), ("2024-02-30", None), ("2024-01-01 10:00:00", None), ("2024-01-01T00:00:00Z", None), ("2024", None), ("2024-01", None)],
    "ts": [("2024-01-01", "2024-01-01 00:00:00"), ("2024-01-01T10:00:00.123456Z", "2024-01-01 10:00:00.123456"),
           ("2024-01-01 10:00:00.1234560+01:00", "2024-01-01 09:00:00.123456"), ("2024-01-01 10:00:00.1234567", None), ("10:00", None),
           ("2024", None), ("1704103200", None), ("2024-13-01", None), ("2024-01-01 25:00:00", None)],
    "l": [("2024-01-01 10:00:00", "2024-01-01 10:00:00"), ("2024-01-01 10:00:00Z", None), ("2024-01-01 10:00:00 +02:00", None)],
}  # fmt: skip
JSON: list[tuple[str, str, bool]] = [
    ("i", "5", True), ("i", "5.0", False), ("i", '{"a": 1}', False), ("i", "3000000000", False), ("i", "true", False), ("i", '""', False),
    ("d", "1.25", True), ("d", "1.255", False), ("d", "0.12345678901234567890", False), ("d", "99999", False),
    ("day", '"2024-01-01"', True), ("day", '"2024-01-01T10:00:00"', False), ("ts", "1704103200000", False), ("ts", '"2024-01-01T10:00:00Z"', True),
    ("x", '{"a": 1, "b": ["2024-01-01", null]}', True), ("x", '{"a": 1.5}', False), ("x", '{"b": ["2024-01-01 10:00:00"]}', False),
    ("x", '[1]', False), ("x", '"text"', False), ("m", '{"a": 1, "b": 2.5}', True), ("m", '{"a": "many"}', False), ("s", '{"deep": [1.10]}', True),
]  # fmt: skip


# Lines that Spark's readers take otherwise than they are meant, and what is stored of them, if anything.
ODD: list[tuple[str, object]] = [
    ("{}", (None, None, None, None)),
    ('{"n": 2, "f": NaN, "s": 1.10}', (2, "nan", "1.10", None)),
    ('{"n": 3, "f": -Infinity, "d": 12345678901234567890.123456789}', (3, "-inf", None, "12345678901234567890.123456789")),
    ('{"n": "bad"}', None),
    (r'{"n": 5, "s": "\ud83d\ude00 \\ud800"}', (5, None, "\U0001f600 \\ud800", None)),
    (r'{"n": 6, "s": "\ud800"}', None),
    (r'{"n": 7, "s": "\ude00\ud83d"}', None),
    ('{"n": 8}{"n": 9}', None),
    ('[{"n": 10}, {"n": 11}]', None),
    ('{"n": 12', None),
]  # fmt: skip


def _check_odd(con: object) -> None:
    for name in ("odd", "odd1"):
        found = rows(con, f"SELECT n, CAST(f AS VARCHAR), s, CAST(d AS VARCHAR) FROM lake.{name}")  # type: ignore[arg-type]
        assert sorted(found, key=str) == sorted((kept for _, kept in ODD if kept), key=str), name
        refused = rows(con, f"SELECT line, row FROM lake.{name}_quarantine ORDER BY line")  # type: ignore[arg-type]
        assert sorted(refused) == [(line, text) for line, (text, kept) in enumerate(ODD, 1) if not kept], name


def _deliver(folder: Path) -> None:
    for name in ("s", "cp", "wide", "v", "form", "j", "only", "none", "odd", "odd1"):
        (folder / "landing" / name).mkdir(parents=True)
    for name, text in QUOTED.items():
        (folder / f"landing/s/{name}.csv").write_text(text, encoding="utf-8", newline="")
    (folder / "landing/s/cut.csv").write_text('a,b,c\n1,2,3\n4,5,"never closed\n6,7,8\n')
    (folder / "landing/s/nameless.csv").write_text("a,b,c,\n1,2,3,\n")
    (folder / "landing/cp/one.csv").write_bytes("a\tb\n'€ ''\tx'\tü\n".encode("cp1252"))
    (folder / "landing/wide/le.csv").write_bytes('"ü,\n1",7\r\nx,8\r\ny,z\r\n'.encode("utf-16"))
    (folder / "landing/wide/be.csv").write_bytes(b"\xfe\xff" + "be,9\n".encode("utf-16-be"))
    columns = ["n", "kind", *VALUES]
    with (folder / "landing/v/all.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(columns)
        cases = [(column, value) for column, found in VALUES.items() for value, _ in found]
        table.writerows(
            [[n, c, *(value if name == c else "" for name in VALUES)] for n, (c, value) in enumerate(cases)]
        )
    (folder / "landing/form/a.csv").write_text(
        "day,ts\n29.02.2024,01/03/2024 10:30\n2024-02-29,01/03/2024 10:30\n30.02.2024,\n"
    )
    lines = [f'{{"n": {n}, "{column}": {value}}}' for n, (column, value, _) in enumerate(JSON)]
    (folder / "landing/j/all.json").write_text("\ufeff\n" + "\r\n".join(lines) + "\n\n", encoding="utf-8", newline="")
    (folder / "landing/j/case.json").write_text('{"N": 1}\n')
    (folder / "landing/only/a.csv").write_text("a,b\nx,1\ny,many\nz,1,2\n")
    (folder / "landing/only/head.csv").write_text("b,a\n")
    for name in ("odd", "odd1"):
        (folder / f"landing/{name}/a.json").write_text("".join(f"{text}\n" for text, _ in ODD))
    (folder / "landing/none/a.json").write_text('{"k": "a"}\n')
    (folder / "landing/none/b.json").write_text('{"k": "b"}\n')


def test_text_is_read_exactly_or_refused(project: Write, spark: SparkSession) -> None:
    folder = project(PROJECT)
    _deliver(folder)
    with Warehouse(folder, spark=spark) as warehouse:
        state = warehouse.run(until_idle=True)
        assert {Path(uri).name: found.reason for uri, found in state.quarantine.items()} == {
            "cut.csv": "a quoted value in the record that begins in line 3 does not end",
            "nameless.csv": "wrong columns: a column without a name (found a, b, c, )",
            "case.json": "wrong columns: found N, expected n (in JSON the case counts)",
        }
        con = attach(folder)
        assert sorted(rows(con, "SELECT a, b, c FROM lake.s"), key=str) == sorted(_by_python(), key=str)
        assert rows(con, "SELECT a, b FROM lake.cp") == [("€ '\tx", "ü")]
        assert rows(con, "SELECT a, b FROM lake.wide") == [("be", 9), ("x", 8), ("ü,\n1", 7)]
        assert rows(con, "SELECT line, row FROM lake.wide_quarantine") == [(4, "y,z")]
        _check_values(con)
        _check_odd(con)
        assert rows(con, "SELECT CAST(day AS VARCHAR), CAST(ts AS VARCHAR) FROM lake.form") == [
            ("2024-02-29", "2024-03-01 10:30:00+00")
        ]
        good = {n for n, (_, _, fits) in enumerate(JSON) if fits}
        assert {n for (n,) in rows(con, "SELECT n FROM lake.j")} == good
        bad = rows(con, "SELECT line FROM lake.j_quarantine")
        assert {line for (line,) in bad} == {n + 2 for n in range(len(JSON))} - {n + 2 for n in good}
        assert rows(con, "SELECT s FROM lake.j WHERE s IS NOT NULL") == [('{"deep": [1.10]}',)]
        assert rows(con, "SELECT x.a, x.b::VARCHAR FROM lake.j WHERE x IS NOT NULL") == [(1, "[2024-01-01, NULL]")]
        assert rows(con, "SELECT a FROM lake.picked") == [("x",)]
        assert rows(con, "SELECT line FROM lake.picked_quarantine") == [(3,), (4,)]
        assert rows(con, "SELECT k FROM lake.none") == [("a",), ("b",)]
        # A file that says nothing any more has no rows any more.
        (folder / "landing/none/a.json").write_text("")
        (folder / "landing/none/b.json").write_text(" \n\n")
        warehouse.run(until_idle=True)
        assert rows(attach(folder), "SELECT k FROM lake.none") == []


def _by_python() -> list[tuple[str | None, ...]]:
    found = []
    for text in QUOTED.values():
        table = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
        names = [name.lower() for name in next(table)]
        found += [dict(zip(names, row, strict=True)) for row in table if row]
    return [tuple(row[name] or None for name in "abc") for row in found]


def _check_values(con: object) -> None:
    cases = [(column, value, meant) for column, found in VALUES.items() for value, meant in found]
    stored = {row[0]: row for row in rows(con, f"SELECT n, kind, {', '.join(VALUES)} FROM lake.v")}  # type: ignore[arg-type]
    refused = dict(rows(con, "SELECT line, reason FROM lake.v_quarantine"))  # type: ignore[arg-type]
    for n, (column, value, meant) in enumerate(cases):
        if meant is None:
            assert n not in stored and f"the value of {column} " in refused[n + 2], (column, value, stored.get(n))
        else:
            found = stored[n][2 + list(VALUES).index(column)]
            same = found == meant or str(found).removesuffix("+00:00") == str(meant)
            assert same and n + 2 not in refused, (column, value, found)
