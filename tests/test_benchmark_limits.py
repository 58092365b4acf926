"""A benchmark fails beyond its limit, whatever its rows call what they measure."""

from __future__ import annotations

from benchmarks.__main__ import is_beyond


def test_times_and_ratios_have_a_most_and_speeds_a_least() -> None:
    assert is_beyond({"value": 6.0, "limit": 5.0}) and not is_beyond({"value": 5.0, "limit": 5.0})
    assert is_beyond({"ratio": 1.3, "limit": 1.2, "penstock_s": 1.0}) and not is_beyond({"ratio": 1.1, "limit": 1.2})
    assert is_beyond({"events_per_s": 90_000, "limit": 100_000}) and not is_beyond({"events_per_s": 1e6, "limit": 1e5})
    assert not is_beyond({"value": 6.0})
