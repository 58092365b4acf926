"""The stand-in of Spark answers as Spark does."""

from __future__ import annotations

from tests.engine.duckspark import Session


def _one(sql: str) -> object:
    return Session().sql(f"SELECT {sql} AS found").rows.to_pylist()[0]["found"]


def test_maps_and_structs_of_any_length() -> None:
    assert _one("element_at(map(1L, 'a, (b', 2L, 'it''s'), 2)") == "it's"
    assert _one("element_at(map(1L, 'a'), 7)") is None
    frame = Session().sql("SELECT 'q' AS k, cast(null AS bigint) AS v, 3 AS `a b`")
    assert frame.selectExpr("to_json(struct(`k`, `v`, `a b`)) as row").rows.to_pylist() == [
        {"row": '{"k":"q","a b":3}'}
    ]


def test_quoted_text_is_left_alone() -> None:
    assert _one("'map(1, 2)' || \"lower\"('X')") == "map(1, 2)x"
    assert _one("coalesce(cast('2024-03-01' AS date), DATE '2000-01-01')").isoformat() == "2024-03-01"  # type: ignore[attr-defined]
