"""Two thousand random warehouses: what is proven holds in every run, with idle tracks in use and without."""

from __future__ import annotations

import pytest

from tests.scheduling.recovery.worlds import simulate, violations, world

# (tracks that idle are used, every job takes exactly so much of its cost, tables recover in turns)
WAYS = [
    (True, None, True),
    (True, 1.0, True),
    (False, 1.0, False),
    (True, 0.5, True),
    (False, None, False),
    (False, 1.0, True),
]


def check(seed: int) -> None:
    found = world(seed)
    assert found.model.fits, f"world {seed} does not fit on its tracks"
    background, share, turns = WAYS[seed % len(WAYS)]
    ran, _ = simulate(found, background=background, share=share, turns=turns)
    assert ran.jobs or not background
    assert not violations(found, ran, background=background, turns=turns), f"world {seed}"


@pytest.mark.parametrize("hundred", range(20))
def test_no_bound_is_ever_exceeded(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("thousand", range(10, 40))
def test_no_bound_is_ever_exceeded_in_many_more(thousand: int) -> None:
    for seed in range(1000 * thousand, 1000 * thousand + 1000):
        check(seed)


def test_most_worlds_see_tables_recover() -> None:
    """The check above is worth something only if modes do change."""
    changes = [len(simulate(found, background=False)[0].changes) for found in map(world, range(100))]
    assert sum(count > 0 for count in changes) > 40
    assert sum(changes) > 200


def test_most_worlds_see_updates_wait_for_the_background() -> None:
    """Nor would they say much of idle tracks if no released job ever waited for a job that began on one, and none of these
    were longer than the cost of its table."""
    waited = merged = 0
    for found in map(world, range(100)):
        ran, _ = simulate(found, background=True, share=1.0)
        costs = {task.table: task.cost_us for task in found.model.tasks}
        extra = [job for job in ran.jobs if job.background]
        merged += any(job.end_us - job.start_us > costs[job.table] for job in extra)
        waited += any(
            job.release_us is not None and job.release_us < job.start_us <= other.end_us
            for job in ran.jobs
            for other in extra
            if not job.background and other.start_us < (job.release_us or 0) < other.end_us
        )
    assert waited > 40 and merged > 20
