from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.cost import CostModel


def trained(alpha: float, beta: float, jobs: int = 60, noise: float = 0.0, seed: int = 1) -> CostModel:
    rng, model = random.Random(seed), CostModel()
    for _ in range(jobs):
        amount = rng.uniform(0, 1000)
        model.observe(amount, (alpha + beta * amount) * rng.uniform(1 - noise, 1 + noise))
    return model


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 0.01), (0.2, 0.1), (5.0, 0.0), (0.0, 0.02)])
def test_it_learns_a_line(alpha: float, beta: float) -> None:
    model = trained(alpha, beta)
    for amount in (0, 100, 1000):
        assert model.expected_s(amount) == pytest.approx(max(1e-3, alpha + beta * amount), rel=0.05, abs=0.05)


def test_noise_averages_out() -> None:
    model = trained(2.0, 0.01, jobs=200, noise=0.3)
    assert model.expected_s(500) == pytest.approx(7.0, rel=0.25)


def test_one_outlier_does_not_spoil_it() -> None:
    model = trained(2.0, 0.01, noise=0.05)
    before = model.expected_s(500)
    model.observe(500, 700.0)
    assert model.expected_s(500) < 1.5 * before


def test_a_lasting_change_is_followed() -> None:
    model = trained(2.0, 0.01, noise=0.05)
    rng = random.Random(2)
    for _ in range(60):
        amount = rng.uniform(0, 1000)
        model.observe(amount, 3 * (2.0 + 0.01 * amount))
    assert model.expected_s(500) == pytest.approx(21.0, rel=0.2)


def test_perfectly_regular_jobs_do_not_freeze_it() -> None:
    """Twenty jobs of exactly 2 s leave no spread; a change to 6 s must still be learned."""
    model = CostModel()
    for _ in range(20):
        model.observe(100.0, 2.0)
    assert model.expected_s(100.0) == pytest.approx(2.0)
    for _ in range(40):
        model.observe(100.0, 6.0)
    assert model.expected_s(100.0) == pytest.approx(6.0, rel=0.1)


def test_amounts_that_are_all_alike_say_nothing_of_other_amounts() -> None:
    """Half of the usual time is taken for data, so that a backfill is neither free nor without end."""
    model = CostModel()
    for _ in range(20):
        model.observe(100.0, 2.0)
    assert model.expected_s(100.0) == pytest.approx(2.0)
    assert model.expected_s(100_000.0) == pytest.approx(1001.0)
    assert model.seen < 0.01


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (1.0, 0.01), (0.0, 0.02)])
def test_noise_does_not_decide_what_is_start_up(alpha: float, beta: float, seed: int) -> None:
    """With amounts that differ by two percent, and times by thirty."""
    rng, model = random.Random(seed), CostModel()
    for _ in range(50):
        amount = 100 * rng.uniform(0.98, 1.02)
        model.observe(amount, (alpha + beta * amount) * rng.uniform(0.7, 1.3))
    assert 0.3 < model.alpha_s / model.expected_s(100.0) < 0.7


def test_one_job_with_much_more_data_shows_the_slope() -> None:
    model = CostModel()
    for _ in range(20):
        model.observe(100.0, 2.0)
    model.observe(1000.0, 2.9)
    model.observe(1000.0, 2.9)
    assert model.expected_s(1000.0) == pytest.approx(2.9, rel=0.1)
    assert model.seen > 0.5


@given(st.lists(st.tuples(st.floats(0, 1e12), st.floats(0, 1e5)), max_size=30), st.floats(0, 1e12))
def test_whatever_happens_it_is_a_positive_number(jobs: list[tuple[float, float]], amount: float) -> None:
    model = CostModel()
    for done, seconds in jobs:
        model.observe(done, seconds)
    expected = model.expected_s(amount)
    assert expected > 0 and math.isfinite(expected)
    assert model.expected_s(amount + 1) >= expected


def test_before_the_first_job_there_is_a_guess() -> None:
    assert CostModel().expected_s(1e9) == 0.5


def test_the_longest_is_a_quarter_more_or_three_deviations() -> None:
    """Told in steps of a fourth root of two, upwards."""
    steady = CostModel(weight=1.0, alpha_s=2.0, spread_s=0.1)
    assert 2.5 <= steady.longest_s <= 2.5 * 2**0.25  # 2 + 3 * 0.1 is less
    varying = CostModel(weight=1.0, alpha_s=2.0, spread_s=1.0)
    assert 5.0 <= varying.longest_s <= 5.0 * 2**0.25
    assert CostModel(weight=1.0, alpha_s=2.01, spread_s=0.1).longest_s == steady.longest_s
