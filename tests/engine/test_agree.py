"""Which versions of several tables are one state of their sources."""

from __future__ import annotations

from penstock.engine.desk.versions import Candidate, agree


def version(snapshot: int, edge_us: int, **reflects: int) -> Candidate:
    return Candidate(snapshot, edge_us, 0, reflects)


def chosen(abreast: bool = True, **candidates: list[Candidate]) -> list[int] | None:
    found = agree(candidates, [list(candidates)] if abreast else ())
    return None if found is None else [one.snapshot for one in found.values()]


def test_the_newest_that_reflect_the_same() -> None:
    assert chosen(a=[version(4, 20, base=3), version(2, 10, base=1)], b=[version(5, 20, base=3)]) == [4, 5]
    assert chosen(a=[version(4, 20, base=3), version(2, 10, base=1)], b=[version(3, 10, base=1)]) == [2, 3]
    assert chosen(a=[version(4, 20, base=3)], b=[version(3, 10, base=1)]) is None


def test_none_goes_further_than_those_it_goes_abreast_with() -> None:
    """The daily view was made when the base had published twice but the hourly view had taken up the first only. What it
    holds up to its edge is right by both publications; the hourly view that follows goes further."""
    hourly = [version(6, 20, base=5), version(2, 10, base=1)]
    daily = [version(7, 10, base=5), version(3, 10, base=1)]
    assert chosen(hourly=hourly, daily=daily) == [2, 3]
    assert chosen(False, hourly=hourly, daily=daily) == [6, 7]
    assert chosen(hourly=hourly, daily=[version(8, 20, base=5), *daily]) == [6, 8]
