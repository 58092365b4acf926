"""Updates follow the demand, targets are kept, and nothing changes where nobody asks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.graph import Graph
from penstock.model.tables import Feed, Source, Table
from penstock.model.time import HOUR_US, MINUTE_US, SECOND_US
from penstock.queries.demand import HALF_LIFE_US, MOST, Demand, Modulation, Modulator

M = MINUTE_US
GRAPH = Graph(
    [Feed("in", period_us=M)],
    [
        Table("orders", "hour", feed="in"),
        Table("hourly", "hour", sources=(Source("orders", (0, 1)),), target_us=30 * M),
        Table("daily", "day", sources=(Source("hourly", (0, 1)),), target_us=60 * M),
        Table("cold", "day", sources=(Source("orders", (0, 1)),), target_us=120 * M),
        Table("free", "day", sources=(Source("orders", (0, 1)),)),
    ],
)


def test_a_rate_by_hand() -> None:
    """A read every 6 s for long: the faded count settles where n (1 - 2^(-6/600)) = 1, so the rate is 1/6 a second."""
    demand = Demand()
    for number in range(3000):
        demand.read(GRAPH, ["daily"], number * 6 * SECOND_US)
    now = 3000 * 6 * SECOND_US
    assert demand.rate_per_s("daily", now) == pytest.approx(1 / 6, rel=0.02)
    # Read through `daily`: once for each query.
    assert demand.rate_per_s("orders", now) == pytest.approx(1 / 6, rel=0.02)
    assert demand.rate_per_s("cold", now) == 0
    assert demand.rate_per_s("daily", now + HALF_LIFE_US) == pytest.approx(1 / 12, rel=0.02)
    assert demand.mean_per_s(5, now) == pytest.approx(3 / 6 / 5, rel=0.02)
    again = Demand.of_plain(json.loads(json.dumps(demand.plain())))
    assert again == demand


def test_the_square_root_law_by_hand() -> None:
    demand = Demand(counts={"hourly": (9.0, 0)}, total=(9.0, 0))
    rate = demand.rate_per_s("hourly", 0)
    # sqrt(2 * 1 * 2 s * 1800 s / rate): about 13 minutes, but the target allows ((30 m / 2 levels) - 4 s) / 2.
    assert (2 * 2 * 1800 / rate) ** 0.5 > 600
    found = Modulator(GRAPH).modulation(demand, "hourly", 2.0, 0)
    assert found.min_gap_us == int((15 * M - 4 * SECOND_US) * 0.5)
    # Read a hundred times as often: sqrt(7200 / (100 rate)) seconds.
    hot = Demand(counts={"hourly": (900.0, 0)}, total=(900.0, 0))
    gap = Modulator(GRAPH).modulation(hot, "hourly", 2.0, 0).min_gap_us
    assert gap == int((2 * 2 * 1800 / (100 * rate)) ** 0.5 * SECOND_US)


def test_hot_goes_first_and_cold_waits() -> None:
    demand = Demand()
    for number in range(200):
        demand.read(GRAPH, ["daily"], number * SECOND_US)
    now = 200 * SECOND_US
    modulator = Modulator(GRAPH)
    hot, cold, free = (modulator.modulation(demand, name, 2.0, now) for name in ("daily", "cold", "free"))
    assert hot.priority_factor > 1 > cold.priority_factor == free.priority_factor
    assert hot.min_gap_us < cold.min_gap_us == int((60 * M - 4 * SECOND_US) * 0.5)
    assert free.min_gap_us == 10 * M  # no target: ten periods
    assert "not read lately" in cold.why and "merged" in cold.why and "counts" in hot.why
    # An idle machine defers nothing.
    assert modulator.modulation(demand, "cold", 2.0, now, pressure=0.0).min_gap_us == 0


def test_without_queries_nothing_changes() -> None:
    demand = Demand()
    assert Modulator(GRAPH).modulation(demand, "cold", 2.0, 0) == Modulation()
    demand.read(GRAPH, ["daily"], 0)
    assert Modulator(GRAPH).modulation(demand, "cold", 2.0, 24 * HOUR_US) == Modulation()


def test_what_the_user_fixed_stays() -> None:
    demand = Demand()
    for number in range(200):
        demand.read(GRAPH, ["daily"], number * SECOND_US)
    found = Modulator(GRAPH, fixed=["cold"]).modulation(demand, "cold", 2.0, 200 * SECOND_US)
    assert (found.priority_factor, found.min_gap_us) == (1.0, 0) and "fixed" in found.why


@given(
    st.lists(st.tuples(st.sampled_from(sorted(GRAPH.tables)), st.integers(0, 3600)), max_size=60),
    st.floats(0.1, 60),
    st.floats(0, 10),
)
def test_targets_are_kept(reads: list[tuple[str, int]], cost_s: float, pressure: float) -> None:
    """The gaps along every chain, with the work, stay within the target at its end."""
    demand = Demand()
    for table, at in sorted(reads, key=lambda read: read[1]):
        demand.read(GRAPH, [table], at * SECOND_US)
    modulator = Modulator(GRAPH)
    found = {name: modulator.modulation(demand, name, cost_s, HOUR_US, pressure) for name in GRAPH.tables}
    for name, table in GRAPH.tables.items():
        assert 1 / MOST <= found[name].priority_factor <= MOST
        if table.target_us is not None:
            chain = [name, *GRAPH.ancestors[name]]
            gaps = sum(found[one].min_gap_us for one in chain)
            work = int(len(chain) * 2 * cost_s * SECOND_US)
            assert gaps == 0 or gaps + work <= table.target_us
