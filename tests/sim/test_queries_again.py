"""The queries of a log under other policies: the world that recorded them, and what is known of them from the record alone."""

from __future__ import annotations

import pytest

from penstock.control.events import DeskOpened, QueriesHandled
from penstock.queries.contract import OutcomeWeights
from penstock.queries.outcome import Ending, Tally
from penstock.queries.policies import POLICIES, find_query_policy
from penstock.sim.whatif.queries import PastDesk, as_it_was, past_desks, replayed
from tests.queries.desk_world import BEGIN, GRAPH, World

CAREFUL = OutcomeWeights(1, 0.2, 0.8, 0.4)


def crowd(policy: str, lanes: int = 1, files: bool = True) -> tuple[World, PastDesk]:
    """Two minutes in which more is asked than one lane can do."""
    world = World(policy, lanes=lanes, tracks=2, update_s=1.5)
    for number in range(60):
        if files and number % 15 == 0:
            world.file("hot" if number % 30 else "cold")
        table = ("hot", "hourly", "both")[number % 3]
        world.ask(table, within_s=4.0 + number % 7, run_s=1.0 + number % 4, weights=CAREFUL)
        world.pass_s(2.0)
    world.pass_s(30.0)
    events = [DeskOpened(BEGIN, world.setup), QueriesHandled(world.now_us, tuple(world.entries))]
    (past,) = past_desks(events)
    return world, past


def again(past: PastDesk, policy: str, lanes: int | None = None) -> Tally:
    return replayed(past, find_query_policy(policy), policy, GRAPH, lanes)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_policy_ends_them_alike(policy: str) -> None:
    world, past = crowd(policy)
    was = as_it_was(past)
    assert was.queries == 60 and was.success == list(world.ended.values()).count(Ending.SUCCESS)
    assert abs(again(past, policy).usm - was.usm) <= 0.15
    _, calm = crowd(policy, lanes=3, files=False)
    assert again(calm, policy).success == as_it_was(calm).success


def test_another_policy_as_if_it_had_been_asked() -> None:
    """The record of one policy says of another what that one would have done."""
    _, past = crowd("immediate", files=False)
    for policy in ("max-satisfaction", "admission+on-demand", "qmf"):
        other, _ = crowd(policy, files=False)
        really = sum((Tally.of(ending, CAREFUL) for ending in other.ended.values()), Tally())
        assert abs(again(past, policy).usm - really.usm) <= 0.1, policy
    assert again(past, "max-satisfaction").usm > again(past, "immediate").usm + 0.05
    assert again(past, "immediate", lanes=6).success == 60
    # Where the other refreshes less, it is told as a bound: what it would have left stale is not in the record.
    _, past = crowd("max-satisfaction")
    other, _ = crowd("immediate")
    assert again(past, "immediate").usm >= sum((Tally.of(e, CAREFUL) for e in other.ended.values()), Tally()).usm


def test_updates_are_asked_for_and_waited_for() -> None:
    world = World("on-demand", lanes=2, tracks=1, update_s=2.0)
    world.file("hot")
    world.ask("hourly", within_s=30.0)
    world.ask("hot", within_s=3.5)
    world.pass_s(40.0)
    (past,) = past_desks([DeskOpened(BEGIN, world.setup), QueriesHandled(world.now_us, tuple(world.entries))])
    assert [list(one.stale_us or ()) for one in past.queries] == [["hot", "hourly"], ["hot"]]
    assert again(past, "on-demand") == as_it_was(past) and again(past, "on-demand").success == 2
    assert again(past, "immediate").stale == 2
    assert past_desks([]) == []
