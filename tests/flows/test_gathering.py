"""Aggregates of the same rows in one pass: which ones, and what the plan makes of it."""

from __future__ import annotations

from typing import Any

from penstock.declare.flow import Rows, flow
from penstock.declare.flow_check import SparkSql
from penstock.flows.activities import Aggregate, Gather, GroupPart
from penstock.flows.activities.group import SET
from penstock.flows.description import TypedFlow, typed
from penstock.flows.gathering import gathered
from penstock.flows.staging import plan_staging
from penstock.model.schema import parse_ddl

T = parse_ddl("a string, b int, c date, v bigint, rest string")


def shaped(made: Any) -> TypedFlow:
    found, wrong = typed(made.flow, {"t": T}, SparkSql())
    assert not wrong
    return found


@flow
def three(t: Rows) -> None:
    good = t.filter("v > 0", name="good")
    good.aggregate("a", n="count(*)", s="sum(v)").into("by_a")
    good.aggregate(["B", "c"], n="count(*)", s="sum(v)").into("by_bc")
    good.aggregate(["c", "b"], n="count(*)", s="sum(v)").into("by_cb")
    good.aggregate("c", n="count(*)").into("other")


def test_aggregates_with_the_same_measures_share_a_pass() -> None:
    flow_ = gathered(shaped(three)).flow
    gather = flow_.by_name["good: groups"]
    assert gather.does == Gather((("a",), ("B", "c")), (("n", "count(*)"), ("s", "sum(v)"))) and gather.inputs == (
        "good",
    )
    parts = {step.name: step.does for step in flow_.steps if isinstance(step.does, GroupPart)}
    # A bit for each of a, b, c that is not a key of it, a highest. Two with the same keys are parts of the same groups.
    assert [part.number for part in parts.values()] == [0b011, 0b100, 0b100]
    assert all(flow_.by_name[name].inputs == ("good: groups",) for name in parts)
    assert [step.name for step in flow_.steps if isinstance(step.does, Aggregate)] == [flow_.by_name["other"].inputs[0]]
    names = [step.name for step in flow_.steps]
    assert all(names.index(name) < names.index(step.name) for step in flow_.steps for name in step.inputs)


def test_columns_stay_as_declared_and_only_groups_are_staged() -> None:
    plain, together = shaped(three), gathered(shaped(three))
    for name in plain.flow.by_name:
        assert together.columns(name) == plain.columns(name)
    assert [column.name for column in together.columns("good: groups") or ()] == ["a", "b", "c", "n", "s", SET]
    again, wrong = typed(together.flow, {"t": T}, SparkSql())
    assert not wrong and again.shapes == together.shapes
    plan = plan_staging(together.graph({"t": 1e6}), None)
    assert "good: groups" in {staged.node for step in plan.steps for staged in step.stages}


@flow
def two(t: Rows) -> None:
    t.aggregate("a", n="count(*)").into("by_a")
    t.aggregate("b", n="count(*)").into("by_b")


@flow
def unlike(t: Rows) -> None:
    t.aggregate("a", n="count(distinct v)").into("by_a")
    t.aggregate("b", n="count(distinct v)").into("by_b")
    t.aggregate("c", n="count(distinct v)").into("by_c")
    t.aggregate((), n="count(*)").into("all_of_it")


def test_what_cannot_share_or_has_too_little_of_it_stays() -> None:
    for made in (two, unlike):
        assert gathered(shaped(made)).flow == shaped(made).flow


def test_groups_that_are_hardly_fewer_than_rows_are_not_gathered_again() -> None:
    found = shaped(three)
    assert gathered(found, {"good: groups": 1.2}).flow == found.flow
    members = [step.name for step in found.flow.steps if isinstance(step.does, Aggregate)]
    assert gathered(found, dict.fromkeys(members, 0.5)).flow == found.flow
    assert gathered(found, dict.fromkeys(members, 0.3)).flow != found.flow
    # What was measured of a flow that had gathered counts more.
    assert gathered(found, {**dict.fromkeys(members, 0.9), "good: groups": 0.4}).flow != found.flow
