"""How much one update takes."""

from __future__ import annotations

from types import SimpleNamespace

from penstock.control.state import State
from penstock.scheduling.chopping import Chop
from penstock.scheduling.policies import bound, find_policy
from penstock.scheduling.protocol import powers
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
    found = powers(bound(find_policy("fifo / inherit=none / chop=3..10"), GRAPH)).cuts(GRAPH)
    assert {name: cut.most for name, cut in found.items()} == {
        "fast": 10,
        "slow": 10,
        "half": 10,
        "minor": 3,
        "source": 10,
        "view": 10,
        "last": 3,
    }
    assert {cut.least for cut in found.values()} == {3}


def test_more_than_the_least_only_for_the_starts_that_it_saves() -> None:
    cut = powers(bound(find_policy("fifo / inherit=none / chop=3..10"), GRAPH)).cuts(GRAPH)
    # A start takes 1 s: data of up to 50 s are taken at once if others are made from the table, of up to 100 s if not.
    assert cut["source"].periods(1.0, 10.0) == 5 and cut["fast"].periods(1.0, 10.0) == 10
    assert cut["source"].periods(1.0, 100.0) == cut["fast"].periods(0.0, 10.0) == 3
    assert cut["minor"].periods(1.0, 1.0) == 3 and cut["source"].periods(1.0, 0.0) == 10


def test_one_number_is_for_all_and_none_for_nobody() -> None:
    assert {cut.periods(1, 9) for cut in powers(bound(find_policy("fifo / chop=4"), GRAPH)).cuts(GRAPH).values()} == {
        4.0
    }
    assert powers(find_policy("fifo")).cuts(GRAPH) == {}
    assert powers(SimpleNamespace()).cuts(GRAPH) == {}


def test_a_policy_that_knows_no_weights() -> None:
    assert powers(SimpleNamespace(chop=Chop(2, 5))).cuts(GRAPH)["minor"].most == 2
    assert powers(SimpleNamespace(chop=Chop(2, 5))).cuts(State().graph) == {}
