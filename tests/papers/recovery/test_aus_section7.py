"""Section VII of the adaptive scheduler on a few seeds that nothing was tuned on."""

from __future__ import annotations

from penstock.papers.recovery.aus import OURS, PARAMETERS, PLAIN, Point, work


def test_late_tables_recover_soon_while_healthy_ones_stay_fresh_and_no_bound_is_exceeded() -> None:
    for phases in ("random", "synchronous"):
        for seed in (1001, 1002, 1003):
            rows = {(r["policy"], r["provision"]): r for r in work(Point(PARAMETERS, 5_000.0, phases, seed))}
            ours, plain = rows[OURS, "worst"], rows[PLAIN, "worst"]
            assert ours["recovered_s"] < 15_500 < 24_000 < plain["recovered_s"]
            assert ours["healthy_lag"] <= 1
            for row in (ours, plain):
                assert row["load"] <= 2 + 1e-6
                assert max(row["staleness_ratio"], row["response_ratio"], row["recovery_ratio"]) <= 1


def test_a_short_outage_leaves_no_lag() -> None:
    """Too short for the threshold: the plain algorithm stays as far behind for ever, ours does not."""
    rows = {(r["policy"], r["provision"]): r for r in work(Point(PARAMETERS, 1_000.0, "random", 1001))}
    horizon = PARAMETERS["horizon_s"]
    assert rows[PLAIN, "worst"]["recovered_s"] == horizon
    assert rows[OURS, "worst"]["recovered_s"] < 8_000
