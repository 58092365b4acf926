"""The grammar of policy names, and what is said about names that are wrong."""

from __future__ import annotations

import pytest

from penstock.model.graph import Graph
from penstock.model.tables import Feed, Source, Table
from penstock.scheduling.inheritance import inherited
from penstock.scheduling.placement.base import Global
from penstock.scheduling.placement.edf_partitioned import EdfPartitioned
from penstock.scheduling.placement.proportional import Proportional
from penstock.scheduling.policies import DEFAULT, PolicyNameError, find_policy, name_of_now
from penstock.scheduling.policies.index import EdfP, MaxBenefit


def test_all_parts() -> None:
    policy = find_policy("proportional(all, aggressive, k=2, P) / edf-p / inherit=max-plus(3) / chop=3")
    assert isinstance(policy.placement, Proportional) and isinstance(policy.order, EdfP)
    assert (policy.placement.all_tracks, policy.placement.aggressive) == (True, True)
    assert (policy.placement.k, policy.placement.by) == (2.0, "P")
    assert (policy.inherit, policy.inherit_k, policy.chop) == ("max-plus", 3.0, 3.0)


def test_what_is_left_out() -> None:
    policy = find_policy("edf-partitioned")
    assert isinstance(policy.placement, EdfPartitioned) and isinstance(policy.order, MaxBenefit)
    assert (policy.inherit, policy.chop) == ("max", None)
    assert isinstance(find_policy("max-benefit").placement, Global)


def test_the_order_of_parts_does_not_matter() -> None:
    one, other = find_policy("chop=2/fifo/proportional(all)"), find_policy("proportional(all) / fifo / chop=2")
    assert one.chop == other.chop and type(one.order) is type(other.order)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maxbenefit", "'maxbenefit' is not a policy; expected one of"),
        ("maxbenefit", "did you mean 'max-benefit'?"),
        ("proportional(al)", "'proportional' does not know 'al'"),
        ("proportional(q=1)", "'proportional' has no setting 'q'; it has: k"),
        ("proportional(k=many)", "'many' is not a number"),
        ("edf / fifo", "names two orders"),
        ("global / proportional", "names two placements"),
        ("edf / chop=0", "expected at least 1"),
        ("edf / inherit=all", "expected one of none, sum, max, max-plus"),
        ("edf / inherit=max(2)", "only max-plus takes a number"),
        ("edf / chop=2 / chop=3", "twice"),
        ("edf / chop=3..2", "expected at least 3"),
        ("edf / chop=..2", "'' is not a number"),
        ("edf //", "empty part"),
        ("edf(", "is not a part of a policy"),
        ("", "empty part"),
    ],
)
def test_wrong_names(text: str, message: str) -> None:
    with pytest.raises(PolicyNameError) as error:
        find_policy(text)
    assert message in str(error.value)


def graph() -> Graph:
    """b -> v -> top (priorities 0.001, 1, 100), and v -> side (10)."""
    return Graph(
        [Feed("b")],
        [
            Table("b", feed="b", priority=0.001),
            Table("v", sources=(Source("b"),), priority=1.0),
            Table("top", sources=(Source("v"),), priority=100.0),
            Table("side", sources=(Source("v"),), priority=10.0),
        ],
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("none", {"b": 0.001, "v": 1, "top": 100, "side": 10}),
        ("sum", {"b": 111.001, "v": 111, "top": 100, "side": 10}),
        ("max", {"b": 100, "v": 100, "top": 100, "side": 10}),
        ("max-plus", {"b": 225, "v": 150, "top": 100, "side": 10}),  # 1.5 * 100, 1.5 * 150
        # v and top: 101 / 2, more than with side: 111 / 3; but on two levels all three are 111 / 2. With b on three: 111.001 / 3.
        ("chain", {"b": 111.001 / 3, "v": 55.5, "top": 100, "side": 10}),
    ],
)
def test_inherited_priorities(rule: str, expected: dict[str, float]) -> None:
    assert inherited(graph(), rule, 1.5) == pytest.approx(expected)


def test_names_that_earlier_versions_wrote() -> None:
    assert name_of_now("edf / chop=3") == "edf / chop=3"
    assert name_of_now("reserve / balanced / inherit=chain / chop=10") == "reserve / patient / inherit=chain / chop=10"
    assert name_of_now("adaptive / max-benefit") == "reserve / max-benefit"
    assert name_of_now("adaptive") == "adaptive"
    assert name_of_now("of a project that has it no longer (x)") == DEFAULT
