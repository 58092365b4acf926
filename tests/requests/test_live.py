"""The controller that users run: graphs with diamonds, several levels and self-reference, files and backfills, failures, any
order of ends. `PENSTOCK_REQUESTS=20000` runs more."""

from __future__ import annotations

import os
import traceback
from collections import Counter

import pytest

from tests.requests.live_world import LiveDriver

CASES = int(os.environ.get("PENSTOCK_REQUESTS", "600"))
CHUNK = 200


def run(seeds: range) -> Counter[str]:
    found: Counter[str] = Counter()
    failed: list[tuple[int, str]] = []
    for seed in seeds:
        try:
            driver = LiveDriver(seed)
            driver.run(driver.rng.choice((1, 2, 2, 3, 4, 6)))
            found += driver.found
        except Exception:
            failed.append((seed, traceback.format_exc(limit=-4)))
    assert not failed, f"{len(failed)} of {len(seeds)}, seeds {[seed for seed, _ in failed][:12]}\n{failed[0][1]}"
    return found


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 20_000, 2_000))
def test_twenty_thousand_cases(first: int) -> None:
    run(range(first, first + 2_000))


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_each_partition_is_made_once_for_what_had_come(first: int) -> None:
    found = run(range(first, first + CHUNK))
    assert found["makes"] > CHUNK
    # Nearly nobody has to give up waiting.
    assert found["gave up waiting"] < 0.01 * found["makes"]
