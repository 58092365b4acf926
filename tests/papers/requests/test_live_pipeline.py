"""Table 13's pipeline on the controller that users run."""

from __future__ import annotations

from random import Random
from statistics import mean

import pytest

from penstock.papers.requests.live import LOADED, WAYS, run_live


@pytest.mark.parametrize("files", [True, False])
def test_fewer_updates_the_longer_it_may_wait(files: bool) -> None:
    found: dict[str, list[int]] = {way: [] for way in WAYS}
    latest = 0.0
    for seed in range(12):
        rng = Random(seed)
        at, changes = 0.0, []
        for _ in range(10):
            at += rng.uniform(1.0, 30.0)
            changes.append((at, rng.choice(LOADED)))
        for way in WAYS:
            ran = run_live(way, changes, Random(seed), files=files)
            found[way].append(ran.updates)
            latest = max(latest, ran.most_late_s)
        assert found["queue 3m"][-1] == len({name for _, name in changes}) + 4
    assert mean(found["default"]) < 18
    assert mean(found["patience 10m"]) < 14
    assert latest <= 600
