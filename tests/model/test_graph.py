from __future__ import annotations

import pytest

from penstock.model.graph import CycleError, Graph
from penstock.model.tables import DEFAULT_PERIOD_US, Feed, Source, Table
from penstock.model.time import MINUTE_US


def table(name: str, *sources: str, **more) -> Table:
    return Table(name, more.pop("partition", "hour"), sources=tuple(Source(s, (0, 1)) for s in sources), **more)


def base(name: str, feed: str = "f", **more) -> Table:
    return Table(name, more.pop("partition", "hour"), feed=feed, **more)


def test_order_ancestors_and_origins() -> None:
    graph = Graph([Feed("f")], [table("d", "b", "c"), table("b", "a"), table("c", "a"), base("a")])
    assert graph.order.index("a") < min(graph.order.index("b"), graph.order.index("c"))
    assert graph.order[-1] == "d"
    assert graph.ancestors["d"] == {"a", "b", "c"} and graph.ancestors["a"] == frozenset()
    assert graph.origins["d"] == {"a"} == graph.origins["a"]
    assert graph.fed_by == {"f": ["a"]}


def test_a_circle_is_named() -> None:
    with pytest.raises(CycleError, match=r"in a circle: [bc] -> [bc] -> [bc]") as error:
        Graph([Feed("f")], [base("a"), table("b", "a", "c"), table("c", "b"), table("d", "c")])
    assert set(error.value.path) == {"b", "c"}


def test_a_table_may_read_its_own_past() -> None:
    graph = Graph([Feed("f")], [base("a"), Table("b", "hour", sources=(Source("a", (0, 1)), Source("b", (-1, 0))))])
    assert graph.order == ("a", "b")
    assert graph.chained == {"b"} and graph.ancestors["b"] == {"a"}


def test_what_flows_with_time() -> None:
    feeds = [
        Feed("events"),
        Feed("customers", mode="snapshot"),
        Feed("codes", timed=False),
        Feed("days", mode="snapshot"),
    ]
    graph = Graph(
        feeds,
        [
            base("events", "events"),
            base("customers", "customers", partition="none"),
            base("codes", "codes", partition="none"),
            base("days", "days", partition="day"),
            Table("only_dimensions", sources=(Source("customers"), Source("codes"))),
            Table("joined", "hour", sources=(Source("events", (0, 1)), Source("customers"))),
        ],
    )
    assert graph.has_time == {
        "events": True, "customers": False, "codes": False, "days": True, "only_dimensions": False, "joined": True,
    }  # fmt: skip


def test_periods_and_priorities() -> None:
    graph = Graph(
        [Feed("f", period_us=MINUTE_US), Feed("g", period_us=5 * MINUTE_US)],
        [
            base("a", priority=0.1),
            base("b", "g", period_us=2 * MINUTE_US),
            table("c", "a", "b", priority=10.0),
            table("d", "a"),
            Table("lonely"),
        ],
    )
    assert graph.periods_us["a"] == MINUTE_US
    assert graph.periods_us["c"] == 2 * MINUTE_US  # the largest of its ancestors
    assert graph.periods_us["lonely"] == DEFAULT_PERIOD_US
    assert graph.inherited == {"a": 10.0, "b": 10.0, "c": 10.0, "d": 1.0, "lonely": 1.0}


def test_what_changes_after_the_fact_and_what_can_be_folded() -> None:
    graph = Graph(
        [Feed("f"), Feed("s", mode="snapshot")],
        [
            base("a", partition="day"),
            Table("hours", "hour", sources=(Source("a", (0, 1)),), foldable=True),
            Table("days", "day", sources=(Source("a", (0, 1)),), foldable=True),
            Table("ever", sources=(Source("a"),), foldable=True),
            Table("rows", sources=(Source("a"),), foldable=True, exact_time=True),
            Table("means", "day", sources=(Source("days", (-6, 1)),), foldable=True),
            Table("both", "day", sources=(Source("a", (0, 1)), Source("days", (0, 1))), foldable=True),
            Table("some", "day", sources=(Source("a", (0, 1)), Source("all")), foldable=True, looked_up=("all",)),
            Table("late", "day", sources=(Source("a", (0, 1)), Source("days")), foldable=True, looked_up=("days",)),
            base("all", feed="s", partition="none"),
        ],
    )
    # Hours read the whole day around them, the roll-up of all time reads everything: both change as time goes on.
    assert {name for name, fluid in graph.fluid.items() if fluid} == {"hours", "ever", "late"}
    folds = {name: set(folds) for name, folds in graph.folds.items() if folds}
    assert folds == {"days": {"a"}, "ever": {"a"}, "rows": {"a"}, "both": {"a", "days"}, "some": {"a"}}
