"""Workloads as in Qu, Labrinidis, Mossé 2006, Sec. 4.1: queries like the reads of a disk, and nine update traces.

The paper took its queries from a disk trace that is not public (110,035 reads in 3,848,104 s, mapped to 1,024 items). This generator has
what is known of such traces, each as a parameter:

    skew         items are read by Zipf's law: the n-th most wanted with weight n ** -skew
    bias         arrivals are bursty at all scales: each stretch of time is halved again and again, and one half gets the part
                 `bias` of the queries (the b-model; Wang, Madhyastha, Chan, Papadimitriou, Faloutsos 2002); 0.5 is even
    finest_s     halving ends here
    load         the part of the processor's time that all queries together would need
    tail         execution times are log-normal with this standard deviation of the logarithm, cut at ten times the mean
    scale        the part of the paper's trace: in time, in queries and in items, so that each item is read and renewed as often as in the whole
    reads        items that a query reads; all but the first are drawn from the same law

As in the paper, deadlines are drawn evenly from the mean execution time to ten times the largest, updates are periodic, and the volumes low, med and
high keep the processor busy for 15 %, 75 % and 150 % of the time with updates of 94 s on average. Update rates are the same for all items
(unif), or as skewed as those of the queries with a correlation of ranks of 0.8 (pos) or -0.8 (neg).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp
from random import Random
from statistics import NormalDist

DURATION_S = 3_848_104.0
QUERIES = 110_035
VOLUMES = {"low": (6_144, 0.15), "med": (30_000, 0.75), "high": (61_440, 1.5)}
DISTRIBUTIONS = ("unif", "pos", "neg")
TRACES = tuple(f"{volume}-{distribution}" for volume in VOLUMES for distribution in DISTRIBUTIONS)
CORRELATION = 0.8


# With fewer items there would be nothing to choose from.
_FEWEST = 16


@dataclass(frozen=True, slots=True)
class Load:
    """The parameters of a workload."""

    items: int = 1024
    scale: float = 0.1
    skew: float = 1.0
    bias: float = 0.7
    finest_s: float = 1000.0
    load: float = 0.6
    tail: float = 1.0
    reads: int = 1

    @property
    def count(self) -> int:
        """Items of the part."""
        return max(_FEWEST, round(self.items * self.scale))


Asked = tuple[float, int, float, float] | tuple[float, int, float, float, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Workload:
    duration_s: float
    # Arrival, item, execution time, time until the deadline, what it reads besides; in order of arrival.
    queries: Sequence[Asked]
    # By item: execution time of an update, period, first arrival.
    cost_s: list[float]
    period_s: list[float]
    first_s: list[float]


def workload(trace: str, seed: int, load: Load = Load()) -> Workload:
    """The same seed gives the same queries with every update trace."""
    volume, _, distribution = trace.partition("-")
    duration = DURATION_S * load.scale
    count, busy = VOLUMES[volume]
    wanted = _popularity(load, seed)
    rates = _rates(wanted, distribution, Random(f"{seed}/rates"))
    chance = Random(f"{seed}/updates")
    mean = busy * DURATION_S / count
    cost = [mean * chance.uniform(0.2, 1.8) for _ in range(load.count)]
    # The volume is a part of the processor's time, so what is drawn is brought to it.
    off = sum(rate * one for rate, one in zip(rates, cost, strict=True)) / (sum(rates) * mean)
    cost = [one / off for one in cost]
    per_s = count / DURATION_S / sum(rates)
    period = [1 / (rate * per_s) for rate in rates]
    first = [one * chance.random() for one in period]
    return Workload(duration, _queries(load, wanted, duration, seed), cost, period, first)


def _popularity(load: Load, seed: int) -> list[float]:
    weights = [1 / (rank + 1) ** load.skew for rank in range(load.count)]
    Random(f"{seed}/popularity").shuffle(weights)
    total = sum(weights)
    return [weight / total for weight in weights]


def _rates(wanted: list[float], distribution: str, chance: Random) -> list[float]:
    """Update rates: all the same, or as skewed as the queries and dealt out so that the ranks correlate as asked for."""
    count = len(wanted)
    if distribution == "unif":
        return [1.0] * count
    sign = 1 if distribution == "pos" else -1
    ranks = {item: rank for rank, item in enumerate(sorted(range(count), key=wanted.__getitem__))}
    place = NormalDist()
    rest = (1 - CORRELATION**2) ** 0.5
    score = [
        sign * CORRELATION * place.inv_cdf((ranks[item] + 0.5) / count) + rest * chance.gauss(0, 1)
        for item in range(count)
    ]
    rates = [0.0] * count
    for item, rate in zip(sorted(range(count), key=score.__getitem__), sorted(wanted), strict=True):
        rates[item] = rate
    return rates


def _queries(load: Load, wanted: list[float], duration: float, seed: int) -> list[Asked]:
    count = max(1, round(QUERIES * load.scale))
    chance = Random(f"{seed}/queries")
    times = sorted(_burst(count, 0.0, duration, load, Random(f"{seed}/times")))
    spread = [min(10.0, exp(chance.gauss(0, load.tail) - load.tail**2 / 2)) for _ in range(count)]
    mean = load.load * duration / count
    factor = mean * count / sum(spread)
    longest = 10 * mean
    sums = list(accumulate(wanted))

    def drawn(chance: Random) -> int:
        return bisect(sums, chance.random() * sums[-1], 0, len(sums) - 1)

    plain = [
        (at, drawn(chance), one * factor, chance.uniform(mean, 10 * longest))
        for at, one in zip(times, spread, strict=True)
    ]
    if load.reads <= 1:
        return list(plain)
    besides = Random(f"{seed}/besides")
    return [
        (*one, tuple(dict.fromkeys(i for i in (drawn(besides) for _ in range(load.reads - 1)) if i != one[1])))
        for one in plain
    ]


def _burst(count: int, start: float, end: float, load: Load, chance: Random) -> list[float]:
    stretches = [(count, start, end)]
    times: list[float] = []
    while stretches:
        number, low, high = stretches.pop()
        if number <= 1 or high - low <= load.finest_s:
            times += [low + (high - low) * chance.random() for _ in range(number)]
            continue
        middle = (low + high) / 2
        part = load.bias if chance.random() < 0.5 else 1 - load.bias
        exact = number * part
        first = int(exact) + (chance.random() < exact - int(exact))
        stretches += [(first, low, middle), (number - first, middle, high)]
    return times
