from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.schema import Column, Schema
from penstock.tables import Added, Relaxed, SchemaConflict, Widened, evolve
from penstock.tables.columns import alter, rows_of, schema_of
from penstock.tables.types import parse

from .conftest import columns

BASE = columns(id="bigint", name="string", n="int")
CHAINS = [
    ["tinyint", "smallint", "int", "bigint"],
    ["float", "double"],
    ["decimal(5,2)", "decimal(7,2)", "decimal(9,4)", "decimal(38,10)"],
    ["string"],
    ["date"],
]


@st.composite
def growths(draw: st.DrawFn) -> list[Schema]:
    """A schema and two later states of it."""
    width = draw(st.integers(1, 4))
    states: list[Schema] = []
    chosen = [draw(st.sampled_from(CHAINS)) for _ in range(width)]
    levels = [draw(st.lists(st.integers(0, 3), min_size=3, max_size=3).map(sorted)) for _ in range(width)]
    born = [0, *(draw(st.integers(0, 2)) for _ in range(width - 1))]
    for step in range(3):
        state = [
            Column(f"c{n}", chain[min(level[step], len(chain) - 1)])
            for n, (chain, level) in enumerate(zip(chosen, levels, strict=True))
            if born[n] <= step
        ]
        states.append(tuple(draw(st.permutations(state))))
    return states


@given(growths())
def test_growth_is_allowed_composes_and_arrives(states: list[Schema]) -> None:
    first, middle, last = states
    assert evolve(first, first) == []
    evolve(first, middle)
    evolve(middle, last)
    nodes = rows_of(first)
    arrived = schema_of(alter(nodes, evolve(first, last), len(nodes) + 1).nodes)
    assert set(arrived) == set(last)
    assert [c.name for c in arrived][: len(first)] == [c.name for c in first]
    assert evolve(arrived, last) == []


@given(growths())
def test_shrinking_back_is_refused(states: list[Schema]) -> None:
    first, _, last = states
    if evolve(first, last):
        with pytest.raises(SchemaConflict):
            evolve(last, first)


def test_nested_columns_grow_inside() -> None:
    old = columns(s="struct<a:int,l:array<float>>", m="map<string,int>")
    new = columns(s="struct<a:bigint,l:array<double>,b:string>", m="map<string,bigint>")
    assert evolve(old, new) == [
        Widened(("s", "a"), parse("int"), parse("bigint")),
        Widened(("s", "l", "element"), parse("float"), parse("double")),
        Added(("s", "b"), parse("string")),
        Widened(("m", "value"), parse("int"), parse("bigint")),
    ]
    nodes = rows_of(old)
    assert schema_of(alter(nodes, evolve(old, new), 100).nodes) == new


def test_nullability_only_relaxes() -> None:
    required, nullable = (Column("a", "int", False),), (Column("a", "int"),)
    assert evolve(required, nullable) == [Relaxed(("a",))]
    assert evolve(nullable, required) == []


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (columns(id="bigint", name="string"), "`cast(null as int) as n`"),
        (columns(id="int", name="string", n="int"), "`cast(id as bigint) as id`"),
        (columns(id="bigint", name="date", n="int"), "'name' was string and is now date"),
        (columns(id="bigint", Name="string", n="int"), "`Name as name`"),
        ((*BASE, Column("x", "int", nullable=False)), "Declare it nullable"),
        ((*BASE, Column("ID", "int")), "Rename one"),
        (columns(id="bigint", name="string", n="decimal(10,0)"), "not wider"),
    ],
)
def test_refusals_say_what_to_do(new: Schema, says: str) -> None:
    with pytest.raises(SchemaConflict, match="the_table") as caught:
        evolve(BASE, new, "the_table")
    assert says in str(caught.value)


def test_a_decimal_keeps_its_whole_digits() -> None:
    with pytest.raises(SchemaConflict):
        evolve(columns(d="decimal(10,2)"), columns(d="decimal(10,4)"))


def test_a_date_is_no_timestamp() -> None:
    with pytest.raises(SchemaConflict):
        evolve(columns(d="date"), columns(d="timestamp_ntz"))


def test_a_lost_field_is_refused() -> None:
    with pytest.raises(SchemaConflict, match="field 'b' of 's' is gone"):
        evolve(columns(s="struct<a:int,b:int>"), columns(s="struct<a:int>"))
