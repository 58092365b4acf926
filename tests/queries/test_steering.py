"""The policies of the simulator at the front door of a live warehouse, on a virtual clock."""

from __future__ import annotations

from random import Random

import pytest

from penstock.model.graph import Graph
from penstock.model.tables import Feed, Table
from penstock.model.time import END_US, SECOND_US
from penstock.queries.choice import Option, Way
from penstock.queries.contract import Contract, OutcomeWeights, WhenStale
from penstock.queries.estimate import Estimate
from penstock.queries.live import GRACE_S, NAMES, Steering, find_live_policy
from penstock.queries.outcome import Cause, Ending, Rejected

S = SECOND_US
NAIVE = OutcomeWeights()


def graph() -> Graph:
    feeds = (Feed("f", period_us=10 * S), Feed("g", period_us=10 * S))
    return Graph(feeds, (Table("hot", feed="f"), Table("cold", feed="g")))


class Door:
    """Queries of `hot` only, one lane; time passes as it is told."""

    def __init__(self, policy: str, seed: int = 1) -> None:
        self.live = find_live_policy(policy)
        self.now = 1_700_000_000 * S
        self.steering = Steering(self.live.policy, graph(), {"hot": 1.0, "cold": 1.0}, NAIVE, 1, self.now)
        self.random = Random(seed)
        self.number = 0
        self.updates = {"hot": 0, "cold": 0}

    def ask(self, within_s: float = 5.0, run_s: float = 1.0, refresh_s: float = 0.0) -> Cause | None:
        self.number += 1
        deadline = self.now + int(within_s * S)
        return self.steering.admit(self.number, ["hot"], self.now, deadline, run_s, refresh_s, NAIVE)

    def end(self, ending: Ending | None, number: int | None = None) -> None:
        self.steering.ended(number or self.number, self.now, ending, NAIVE)

    def pass_s(self, seconds: float) -> None:
        until = self.now + int(seconds * S)
        while (due := self.steering.due_us()) is not None and due <= until:
            self.now = max(self.now, due)
            self.steering.wake(self.updates, self.random.random(), self.now)
        self.now = until


@pytest.mark.parametrize("name", ["immediate", "on-demand"])
def test_some_turn_nobody_away(name: str) -> None:
    door = Door(name)
    assert {door.ask(0.1, 100.0, 100.0) for _ in range(20)} == {None} and door.steering.due_us() is None


@pytest.mark.parametrize("name", ["qmf", "unit", "admission+on-demand", "unit+on-demand"])
def test_deadline_check_counts_the_work_before(name: str) -> None:
    """Deadline 5, a second each: five fit on one lane, the sixth does not. When the first has run for a second, there is room again."""
    door = Door(name)
    assert [door.ask() for _ in range(6)] == [None] * 5 + [Cause.DEADLINE]
    door.steering.started(1, door.now)
    door.pass_s(1)
    door.end(Ending.SUCCESS, 1)
    assert door.ask() is None
    # Withdrawn queries make room too.
    door.end(None)
    assert door.ask() is None
    assert door.ask(0.5) is Cause.IMPOSSIBLE


@pytest.mark.parametrize("name", ["admission+on-demand", "unit+on-demand"])
def test_a_refresh_is_part_of_the_work(name: str) -> None:
    door = Door(name)
    assert door.ask(within_s=5, run_s=1, refresh_s=4.5) is Cause.IMPOSSIBLE
    assert door.ask(within_s=5, run_s=1, refresh_s=3.0) is None
    # The next of the same table shares the refresh.
    assert door.ask(within_s=5.5, run_s=1, refresh_s=3.0) is None


def test_unit_stretches_what_is_updated_and_not_read() -> None:
    """Missed deadlines degrade updates: those of the table with the most tickets. When answers are stale, all come back."""
    door = Door("unit")
    for _ in range(40):
        for _ in range(10):
            assert door.ask(within_s=60, run_s=0.1) is None
            door.end(Ending.MISSED)
            door.pass_s(1)
            door.updates["hot"] += 1
            door.updates["cold"] += 1
    periods = door.steering.periods_us()
    assert periods["cold"] > 10 * S and periods.get("hot", 10 * S) <= periods["cold"]
    for _ in range(400):
        door.ask(within_s=60, run_s=0.1)
        door.end(Ending.STALE)
        door.pass_s(GRACE_S / 4)
    assert door.steering.periods_us() == {}


def test_qmf_defers_what_is_read_least() -> None:
    """Misses while all is fresh: fewer updates, of the table with the fewest reads per update."""
    door = Door("qmf")
    for number in range(400):
        if door.ask(within_s=60, run_s=0.1) is None:
            door.end(Ending.MISSED if number % 3 == 0 else Ending.SUCCESS)
        door.pass_s(1)
        door.updates["cold"] += 1
        door.updates["hot"] += number % 2
    assert door.steering.periods_us().get("cold") == END_US


@pytest.mark.parametrize("name", NAMES)
def test_ways_of_each_policy(name: str) -> None:
    """Stale data and a refresh that fits: policies without refreshes read what is there, the others wait."""
    live = find_live_policy(name)
    now = 1_000 * S
    options = [
        Option(Way.NOW, Estimate(0.5), now, lag=1),
        Option(Way.REFRESH, Estimate(0.5), now, lag=0, wait=Estimate(2.0)),
    ]
    chosen = live.choose(Contract(10 * S), options, now, now)
    assert chosen.way is (Way.NOW if name in ("immediate", "qmf", "unit") else Way.REFRESH)
    if name != "default":
        refused = live.choose(Contract(10 * S), options, now, now, refused=Cause.OVERLOAD)
        assert refused.way is Way.REJECT and isinstance(refused.rejected, Rejected)
        assert refused.rejected.cause is Cause.OVERLOAD and refused.rejected.acceptable_within_us is not None


class Lane(Door):
    """One lane that serves what is admitted in the order of deadlines, a second each; each query must be answered within five."""

    def __init__(self, policy: str, seed: int = 1) -> None:
        super().__init__(policy, seed)
        self.queue: list[tuple[int, int]] = []
        self.endings: list[Ending] = []

    def second(self, asked: int, stale: float = 0.0) -> None:
        """So many queries come, one is served; it is stale with this chance."""
        for _ in range(asked):
            if self.ask() is None:
                self.queue.append((self.now + 5 * S, self.number))
            else:
                self.endings.append(Ending.REJECTED)
        self.queue.sort()
        while self.queue and self.queue[0][0] < self.now + S:
            self.done(self.queue.pop(0)[1], Ending.MISSED)
        if self.queue:
            number = self.queue.pop(0)[1]
            self.steering.started(number, self.now)
            self.pass_s(1)
            self.done(number, Ending.STALE if self.random.random() < stale else Ending.SUCCESS)
        else:
            self.pass_s(1)
        for name in self.updates:
            self.updates[name] += self.number % 10 == 0

    def done(self, number: int, ending: Ending) -> None:
        self.end(ending, number)
        self.endings.append(ending)

    @property
    def flex(self) -> float:
        balance = self.steering._memory.balance
        return float(balance.flex)


@pytest.mark.parametrize("name", ["unit", "qmf", "unit+on-demand"])
@pytest.mark.parametrize("pattern", ["flood", "blinking", "stale"])
def test_no_lock_up_after_an_adversary(name: str, pattern: str) -> None:
    """Ten minutes of a load that is made to mislead the controller: far too much, too much every other grace period, or answers that are
    always stale. Afterwards, with half a query a second, nearly all succeed again."""
    lane = Lane(name)
    for second in range(600):
        crowded = second % 60 < 30
        asked = {"flood": 6, "blinking": 8 if crowded else 0, "stale": second % 2}[pattern]
        lane.second(asked, stale=1.0 if pattern == "stale" else 0.0)
    for second in range(300):  # until it has seen that all is well
        lane.second(second % 2)
    before = len(lane.endings)
    for second in range(300):
        lane.second(second % 2)
    after = lane.endings[before:]
    assert after.count(Ending.SUCCESS) >= 0.95 * len(after), (len(after), after.count(Ending.REJECTED))


@pytest.mark.parametrize("asked", [1, 2, 4])
def test_under_a_steady_load_it_does_not_swing(asked: int) -> None:
    """With a load that does not change, C_flex settles: in the last half it moves within a few steps, and the lane serves what it can."""
    lane = Lane("unit")
    flexes: list[float] = []
    for _ in range(3000):
        lane.second(asked)
        flexes.append(lane.flex)
    late = flexes[1500:]
    assert max(late) <= 1.5 * min(late), (min(late), max(late))
    # One a second is what the lane can do.
    served = lane.endings[len(lane.endings) // 2 :]
    assert served.count(Ending.SUCCESS) >= 0.9 * len(served) / asked


def test_nobody_waits_without_hope() -> None:
    """A refresh of 8 to 12 s hardly ends before a deadline of 7: the query is answered at once, with a mark. Whoever must not see stale data waits
    for what chance there is; with a deadline of 15, everybody waits."""
    live = find_live_policy("default")
    now = 1_000 * S
    options = [
        Option(Way.NOW, Estimate(0.5, 0.1), now, lag=1),
        Option(Way.REFRESH, Estimate(0.5, 0.1), now, lag=0, wait=Estimate(10.0, 2.0)),
    ]
    assert live.choose(Contract(7 * S), options, now, now).way is Way.NOW
    assert live.choose(Contract(15 * S), options, now, now).way is Way.REFRESH
    withheld = Contract(7 * S, when_stale=WhenStale.WITHHOLD)
    assert live.choose(withheld, options, now, now).way is Way.REFRESH
