"""How much one update takes."""

from __future__ import annotations

from types import SimpleNamespace

from penstock.control.state import State
from penstock.scheduling.chopping import Chop, chops
from penstock.scheduling.policies import bound, find_policy
from penstock.sim.scenario import Scenario, SimTable

TABLES = (
    SimTable("fast", period_s=10, priority=100),
    SimTable("slow", period_s=1000, priority=1),
    SimTable("half", period_s=10, priority=50),
    SimTable("minor", period_s=10, priority=49),
    SimTable("source", period_s=10, priority=0.001),
    SimTable("view", ("source",), priority=100),
    SimTable("last", ("source",), priority=1),
)
GRAPH = Scenario(TABLES).graph


def test_what_others_go_before_is_cut_shorter() -> None:
    found = chops(bound(find_policy("fifo / inherit=none / chop=3..10"), GRAPH), GRAPH)
    assert found == {"fast": 10, "slow": 10, "half": 10, "minor": 3, "source": 10, "view": 10, "last": 3}


def test_one_number_is_for_all_and_none_for_nobody() -> None:
    assert set(chops(bound(find_policy("fifo / chop=4"), GRAPH), GRAPH).values()) == {4.0}
    assert chops(find_policy("fifo"), GRAPH) == {}
    assert chops(SimpleNamespace(), GRAPH) == {}


def test_a_policy_that_knows_no_weights() -> None:
    assert chops(SimpleNamespace(chop=Chop(2, 5)), GRAPH)["minor"] == 2
    assert chops(SimpleNamespace(chop=Chop(2, 5)), State().graph) == {}
