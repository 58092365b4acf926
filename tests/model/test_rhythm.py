"""The rhythm of a feed, whatever else happens to it."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.rhythm import ENOUGH, REMEMBERED, Heard, Rhythm, learned
from penstock.model.time import HOUR_US, MINUTE_US, SECOND_US

T0 = 1_709_251_200_000_000


def heard(times: list[int]) -> Heard:
    found = Heard()
    for at in times:
        found.file(at)
    return found


def apart(one: int, other: int, period: int) -> int:
    """The distance of two phases."""
    return min((one - other) % period, (other - one) % period)


def test_exact() -> None:
    # Every 5 minutes, 40 s past: 09:00:40, 09:05:40, ...
    found = heard([T0 + 40 * SECOND_US + n * 5 * MINUTE_US for n in range(10)]).rhythm()
    assert found == Rhythm(5 * MINUTE_US, 0, 40 * SECOND_US)
    assert found.next_us(T0) == T0 + 40 * SECOND_US
    assert found.next_us(T0 + 40 * SECOND_US) == T0 + 5 * MINUTE_US + 40 * SECOND_US


def test_too_few_deliveries_say_nothing() -> None:
    times = [T0 + n * MINUTE_US for n in range(ENOUGH + 1)]
    assert heard(times[:-1]).rhythm() is None
    assert heard(times).rhythm() == Rhythm(MINUTE_US, 0, 0)


def test_sets_of_files_are_one_delivery() -> None:
    """Ten files every 5 minutes, half a second apart."""
    found = heard([T0 + n * 5 * MINUTE_US + k * SECOND_US // 2 for n in range(12) for k in range(10)])
    assert found.rhythm() == Rhythm(5 * MINUTE_US, 0, 0)


def test_what_an_outage_held_back_is_not_the_rhythm() -> None:
    """200 files at once after an outage, more than are remembered."""
    times = [T0 + n * MINUTE_US for n in range(30)]
    back = times[-1] + 200 * MINUTE_US
    times += [back + n * SECOND_US // 20 for n in range(200)] + [back + n * MINUTE_US for n in range(1, 6)]
    found = heard(times).rhythm()
    assert found is not None
    assert (found.period_us, found.phase_us) == (MINUTE_US, 0)


def test_a_new_rhythm_is_learned() -> None:
    for before, after in ((MINUTE_US, 10 * MINUTE_US), (HOUR_US, MINUTE_US)):
        times = [T0 + n * before for n in range(30)]
        times += [times[-1] + n * after for n in range(1, 31)]
        found = heard(times).rhythm()
        assert found is not None and found.period_us == after


def test_it_does_not_grow() -> None:
    found = heard([T0 + n * MINUTE_US for n in range(10_000)])
    assert len(found.beats) == REMEMBERED


@given(
    seed=st.integers(0, 10**6),
    period_s=st.integers(10, 7200),
    jitter=st.floats(0, 0.12),
    files=st.integers(1, 4),
    outage=st.integers(0, 60),
    strays=st.integers(0, 2),
)
def test_robust(seed: int, period_s: int, jitter: float, files: int, outage: int, strays: int) -> None:
    """Jitter around the phase, several files each time, an outage, files at odd times: the rhythm is found."""
    rng = Random(seed)
    period, phase = period_s * SECOND_US, rng.randrange(period_s * SECOND_US)
    start = T0 - T0 % period + phase
    cut = rng.randrange(8, 36)
    beats = [
        start + n * period + round(rng.uniform(-jitter, jitter) * period)
        for n in range(40)
        if not cut <= n < cut + outage
    ]
    # Small beside the period, so that a set of files is told from two deliveries.
    times = [beat + k * period // 200 for beat in beats for k in range(files)]
    if len(beats) < 20:
        return  # the outage took most of what would be remembered
    times += [rng.randrange(times[0], times[-1]) for _ in range(strays)]
    known = heard(sorted(times))
    found = known.rhythm()
    assert found is not None
    # Two deliveries four periods apart are off by at most twice the jitter; so is the median of such pairs.
    assert abs(found.period_us - period) <= (0.001 + jitter / 2) * period
    # A phase belongs to its period: what is compared is when the next delivery is due. Of nine deliveries that are carried
    # on to the last, the middle one is off by its own jitter, and four times, then five times by that of the period.
    assert apart(found.next_us(times[-1]), phase, period) <= (0.02 + 3.5 * jitter) * period or strays
    assert found.jitter_us <= (0.05 + 2.5 * jitter) * period or strays or outage
    again = known.rhythm(period)  # with a period that is declared
    assert again is not None and again.period_us == period
    assert apart(again.phase_us, phase, period) <= (0.02 + jitter) * period


@given(st.lists(st.integers(0, 10**12), max_size=60), st.sampled_from([None, SECOND_US, HOUR_US]))
def test_any_times_give_a_rhythm_or_none(times: list[int], period: int | None) -> None:
    found = heard(times).rhythm(period)
    assert found is None or (found.period_us > 0 and found.jitter_us >= 0 and 0 <= found.phase_us < found.period_us)
    assert learned(times[:3]) is None


def test_how_old_records_are() -> None:
    found = Heard()
    for age in (30, 31, 29, 30, -5, 30, 30, 30, 30, 30, 4_000):  # one file was late by far
        found.record(age * SECOND_US)
    assert found.stamp_us == 31 * SECOND_US
