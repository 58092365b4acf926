"""Columns written as Spark DDL."""

from __future__ import annotations

import pytest

from penstock.model.schema import Column, WrongColumns, ddl, parse_ddl


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("a int", {"a": "int"}),
        ("a INTEGER, b Long, c bool, d varchar(10)", {"a": "int", "b": "bigint", "c": "boolean", "d": "string"}),
        ("a decimal, b decimal(5), c numeric(12, 2)", {"a": "decimal(10,0)", "b": "decimal(5,0)", "c": "decimal(12,2)"}),
        ("`a b` string,\n  c : timestamp_ltz", {"a b": "string", "c": "timestamp"}),
        # Names of fields keep their case: JSON tells it apart.
        ("a STRUCT<City: STRING, `x y` array<map<string, int>>>", {"a": "struct<City:string,`x y`:array<map<string,int>>>"}),
        ("a int COMMENT 'one, two', b string", {"a": "int", "b": "string"}),
    ],
)  # fmt: skip
def test_read(text: str, types: dict[str, str]) -> None:
    schema = parse_ddl(text)
    assert {column.name: column.type for column in schema} == types
    assert parse_ddl(ddl(schema)) == schema


def test_not_null() -> None:
    assert parse_ddl("a int NOT NULL, b int") == (Column("a", "int", False), Column("b", "int"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "there are no columns; write `name type, name type`, for example `router string, bytes bigint`"),
        ("a", "column `a` has no type; write for example `a string`"),
        ("a int64", "column `a`: 'int64' is not a type of Spark; write bigint"),
        ("a strin", "column `a`: 'strin' is not a type of Spark; write string"),
        ("a int b int", "column `a`: 'b' after its type int; expected a comma"),
        ("a int,", "nothing stands after the last comma"),
        ("a int, , b int", "found ','; expected the name of a column, in `backquotes` if it is not only letters, digits and _"),
        ("a-b int", "found 'a-b'; expected the name of a column, in `backquotes` if it is not only letters, digits and _"),
        ("a array", "column `a`: array of what? write for example array<string>"),
        ("a array<foo>", "column `a`: 'foo' is not a type of Spark; expected one of boolean, tinyint, smallint, int, bigint, float, double, string, binary, date, timestamp, timestamp_ntz, decimal(p,s), array<…>, map<…,…>, struct<name:type,…>"),
        ("a map<string>", "column `a`: map with 1 types; write for example map<string,bigint>"),
        ("a struct<b:int", "column `a`: found the end where '>' was expected"),
        ("a decimal(40,2)", "column `a`: decimal(40,2) has impossible digits; expected at most 38, and not more after the point than in all"),
        ("a decimal(x)", "column `a`: decimal needs digits, as in decimal(12,2)"),
        ("a int, A string", "column `A` stands twice"),
        ("_penstock_x int", "column `_penstock_x`: names that begin with _penstock_ are kept for state"),
    ],
)  # fmt: skip
def test_refused(text: str, expected: str) -> None:
    with pytest.raises(WrongColumns) as caught:
        parse_ddl(text)
    assert str(caught.value) == expected


def test_all_flaws_with_their_places() -> None:
    text = "a int,\nb datetime,\nc array<strng>,\nd map<int>"
    with pytest.raises(WrongColumns) as caught:
        parse_ddl(text)
    assert [text[at : at + 5] for at, _ in caught.value.flaws] == ["datet", "strng", "map<i"]
