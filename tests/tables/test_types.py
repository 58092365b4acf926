from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.schema import Column
from penstock.tables.columns import rows_of, schema_of
from penstock.tables.types import Type, UnknownType, parse

FLAT = [
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(12,2)", "decimal(38,0)", "string",
    "binary", "date", "timestamp", "timestamp_ntz",
]  # fmt: skip
NAMES = st.text("abcxyz_", min_size=1, max_size=4)
TYPES = st.recursive(
    st.sampled_from(FLAT),
    lambda inner: st.one_of(
        inner.map("array<{}>".format),
        st.tuples(inner, inner).map("map<{0[0]},{0[1]}>".format),
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(
            lambda fields: f"struct<{','.join(f'{name}:{kind}' for name, kind in fields.items())}>"
        ),
    ),
    max_leaves=6,
)


@given(TYPES)
def test_text_and_tree_are_one(text: str) -> None:
    assert str(parse(text)) == text


@given(st.lists(st.tuples(TYPES, st.booleans()), min_size=1, max_size=4))
def test_columns_survive_the_catalogue(given_columns: list[tuple[str, bool]]) -> None:
    schema = tuple(Column(f"c{n}", kind, nullable) for n, (kind, nullable) in enumerate(given_columns))
    assert schema_of(rows_of(schema)) == schema


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("INTEGER", "int"),
        ("decimal", "decimal(10,0)"),
        ("decimal(5)", "decimal(5,0)"),
        ("varchar(20)", "string"),
        ("struct< a : long , `b c`: array< date > not null>", "struct<a:bigint,`b c`:array<date>>"),
    ],
)
def test_other_spellings(written: str, meant: str) -> None:
    assert str(parse(written)) == meant


@pytest.mark.parametrize(
    "wrong", ["interval", "array<int", "array<int,int>", "map<int>", "int int", "", "struct<>", "array"]
)
def test_what_is_no_type_is_refused(wrong: str) -> None:
    with pytest.raises(UnknownType):
        parse(wrong)


def test_decimal_digits() -> None:
    assert parse("decimal(12,2)").decimal == (12, 2)
    assert Type("int").decimal is None
