"""Metrics of feeds, recoveries and bounds, from a state."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.control.views.status import overview
from penstock.model.time import MINUTE_US, SECOND_US
from penstock.service.metrics import Sample, _feeds
from tests.control.test_feeds import T0, behind, minute


def test_an_outage_and_the_recovery_from_it() -> None:
    state = behind("adaptive")
    found: dict[str, list[Sample]] = {}

    def add(name: str, kind: str, _help: str, samples: Iterable[Sample]) -> None:
        assert kind == "gauge"
        found[name] = list(samples)

    now_us = minute(61)
    seen = overview(state, now_us)
    _feeds(add, seen, now_us)
    assert [labels["health"] for labels, value in found["feed_health"] if value] == ["healthy"]
    assert len(found["feed_health"]) == 6
    assert found["feed_last_file_age_seconds"] == [({"feed": "router_stats"}, 60.0)]
    assert found["feed_waiting_files"] == [({"feed": "router_stats"}, 11)]
    assert found["table_recovery_lag_seconds"] == [({"table": name}, 55 * 60.0) for name in ("stats", "hourly")]
    (stats, _) = seen.recovery
    assert stats.latest_end_us is not None
    left = (stats.latest_end_us - now_us) / SECOND_US
    assert found["table_recovery_latest_seconds"][0] == ({"table": "stats"}, left)
    assert found["table_bound_violated"] == []
    state.tables["stats"].edge_us = T0
    _feeds(add, overview(state, minute(200)), minute(200))
    assert found["feed_last_file_age_seconds"][0][1] == 140 * MINUTE_US / SECOND_US
    assert found["table_bound_violated"] == [({"table": "stats", "assumption": "arrival rate"}, 1.0)]
