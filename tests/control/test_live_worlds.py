"""Random warehouses with everything on: what is promised while its premises hold is never exceeded, and what breaks them is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.audit import Audit, audited
from penstock.sim.runtime import Simulation
from tests.control.live_worlds import Live, lived, world


def check(seed: int, *, everything: bool = False) -> Audit:
    audit = lived(seed, everything=everything)
    assert not audit.broken, f"world {seed}: {audit.broken[:5]}"
    return audit


def kinds(audit: Audit) -> set[str]:
    return {what for _, what in audit.margins}


def test_what_is_promised_holds() -> None:
    found = [check(seed) for seed in [*range(24), 4064, 30091, 35406, 200031]]
    # It says something only if tables do recover, promises are made, and premises do break.
    assert sum("recovery" in kinds(seen) for seen in found) > 6
    assert sum("staleness" in kinds(seen) for seen in found) > 18
    assert any("did not come to its end" in event.because for seen in found for event in seen.voided)


def test_what_is_promised_holds_with_everything_on() -> None:
    found = [check(seed, everything=True) for seed in [*range(16), 510015, 510057, 510436]]
    assert sum("staleness" in kinds(seen) for seen in found) > 10


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(10, 110))
@pytest.mark.parametrize("everything", [False, True])
def test_what_is_promised_holds_in_many_more(hundred: int, everything: bool) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        check(seed, everything=everything)


def test_updates_that_take_longer_than_declared_are_told_before_a_bound_is_exceeded() -> None:
    told = 0
    for seed in range(6):
        found = world(seed)
        short = replace(found, declared_s={name: 0.5 * cost for name, cost in found.declared_s.items()})
        live = Live(short, seed)
        live.run()
        assert not live.audit.broken, f"world {seed}: {live.audit.broken[:5]}"
        told += any(" takes longer " in event.because for event in live.audit.voided)
    assert told >= 5  # in one of them nothing is ever promised


def test_the_checks_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With updates three times as long as declared, and nobody who tells, bounds are exceeded."""
    usual = Simulation._seconds
    monkeypatch.setattr(Simulation, "_seconds", lambda self, amounts: 3 * usual(self, amounts))
    monkeypatch.setattr("penstock.control.premises.PremiseWatch._too_long", lambda *_: None)
    found = [lived(seed) for seed in range(8)]
    assert sum(bool(seen.broken) for seen in found) >= 4


def test_a_log_says_the_same_afterwards() -> None:
    live = Live(world(3), 3)
    live.run()
    assert live.log is not None
    live.controller.state.declaration.policy = "adaptive"
    log = [
        replace(event, policy="adaptive", updates="demand") if event.kind == "warehouse-declared" else event
        for event in live.log
    ]
    again = audited(enumerate(log, 1))
    assert not again.broken and again.margins
    for key, margin in live.audit.margins.items():
        assert again.margins[key].used == pytest.approx(margin.used, abs=0.2)
