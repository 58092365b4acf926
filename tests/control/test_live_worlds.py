"""Random warehouses with everything on: what is promised while its premises hold is never exceeded, and what breaks them is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.sim.runtime import Simulation
from tests.control.live_worlds import Live, Seen, lived, world


def check(seed: int) -> Seen:
    seen = lived(seed)
    assert not seen.wrong, f"world {seed}: {seen.wrong[:5]}"
    return seen


def test_what_is_promised_holds() -> None:
    found = [check(seed) for seed in range(24)]
    # It says something only if tables do recover, promises are made, and premises do break.
    assert sum("recovery" in seen.used for seen in found) > 6
    assert sum("staleness" in seen.used for seen in found) > 18
    assert any("did not come to its end" in because for seen in found for because in seen.voided)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(10, 110))
def test_what_is_promised_holds_in_many_more(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        check(seed)


def test_updates_that_take_longer_than_declared_are_told_before_a_bound_is_exceeded() -> None:
    told = 0
    for seed in range(6):
        found = world(seed)
        short = replace(found, declared_s={name: 0.5 * cost for name, cost in found.declared_s.items()})
        live = Live(short, seed)
        live.run()
        assert not live.seen.wrong, f"world {seed}: {live.seen.wrong[:5]}"
        told += any(" takes longer " in because for because in live.seen.voided)
    assert told == 6


def test_the_checks_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With updates three times as long as declared, and nobody who tells, bounds are exceeded."""
    usual = Simulation._seconds
    monkeypatch.setattr(Simulation, "_seconds", lambda self, amounts: 3 * usual(self, amounts))
    monkeypatch.setattr("penstock.control.premises.PremiseWatch._too_long", lambda *_: None)
    found = [lived(seed) for seed in range(8)]
    assert sum(bool(seen.wrong) for seen in found) >= 4
