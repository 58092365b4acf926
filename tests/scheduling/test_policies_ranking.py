"""The ranking against a plain sort, while values begin and cease to change."""

from __future__ import annotations

from random import Random

import pytest

from penstock.scheduling.ranking import Ranking


@pytest.mark.parametrize("seed", range(30))
def test_ranked_as_a_sort_would(seed: int) -> None:
    chance = Random(seed)
    ranking, lines = Ranking(), {}
    now = 0.0
    for _ in range(600):
        key = f"k{chance.randrange(chance.choice((5, 40, 200)))}"
        if chance.random() < 0.6:
            b = chance.choice((0.0, 0.0, 0.5, 2.0)) if seed % 3 else 0.0
            lines[key] = (float(chance.randrange(20)), b, (chance.randrange(4), key))
            ranking.put(key, *lines[key], key)
        else:
            lines.pop(key, None)
            ranking.discard(key)
        now += chance.choice((0, 0.25, 3))
        expected = sorted(((-(a + b * now), tie, k) for k, (a, b, tie) in lines.items()))
        assert list(ranking.ranked(now)) == [(-value, k) for value, _, k in expected]
        assert len(ranking) == len(lines)
