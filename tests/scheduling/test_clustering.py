"""Clusters that are kept up are those that would be made anew; ready jobs by group follow them."""

from __future__ import annotations

from random import Random

import pytest

from penstock.scheduling.jobs import ReadyJob, ReadyJobs
from penstock.scheduling.placement.base import Recurring
from penstock.scheduling.placement.proportional import Clusters, clusters, stretch


@pytest.mark.parametrize("by", ["E", "P"])
@pytest.mark.parametrize("k", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(12))
def test_as_if_made_anew(seed: int, k: float, by: str) -> None:
    rng = Random(seed)
    count = rng.choice([1, 3, 10, 40])
    tracks = rng.choice([1, 4, 100, 10_000])
    periods = [rng.choice([1, 2, 10, 10, 100, 1000]) for _ in range(count)]

    def job(number: int) -> Recurring:
        return Recurring(f"t{number}", float(periods[number]), 2.0 ** (rng.randrange(-20, 40) / 4))

    jobs = {f"t{number}": job(number) for number in range(count)}
    found = Clusters(jobs.values(), k, by, tracks)
    same = 0
    for _ in range(150):
        changed = [job(number) for number in rng.sample(range(count), min(count, rng.choice([1, 1, 1, 2, 3])))]
        jobs |= {one.table: one for one in changed}
        before = found.cluster
        found.change(changed)
        anew = Clusters(jobs.values(), k, by, tracks)
        assert found.cluster == anew.cluster and found.loads == anew.loads and found.shortest_s == anew.shortest_s
        alone = [one._replace(period_s=max(one.period_s, one.cost_s)) for one in jobs.values()]
        whole = sum(one.utilisation for one in alone)
        longer = [one._replace(period_s=one.period_s * stretch(whole / tracks)) for one in alone]
        loads = [sum(one.utilisation for one in group) for group in clusters(longer, k, by)]
        assert found.loads == pytest.approx([load / sum(loads) * min(whole, tracks) for load in loads], abs=1e-9)
        assert (found.cluster is before) == (found.cluster == before)
        same += found.cluster is before
    assert same or count > 1


def test_most_changes_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tables whose updates are far shorter than their periods none leaves the cluster: nothing is made again."""
    rng = Random(1)
    found = Clusters([Recurring(f"t{n}", 1000.0, rng.uniform(1, 100)) for n in range(100)], 1.0, "E", 20)
    monkeypatch.setattr(found, "_make", lambda: pytest.fail("all was made again"))
    for _ in range(500):
        found.change([Recurring(f"t{rng.randrange(100)}", 1000.0, rng.uniform(0.5, 200))])


def test_also_in_an_overload(monkeypatch: pytest.MonkeyPatch) -> None:
    """One cost changes the load by a thousandth: periods are stretched as before nearly always."""
    rng = Random(1)
    found = Clusters([Recurring(f"t{n}", 1000.0, rng.uniform(1, 2000)) for n in range(1000)], 1.0, "E", 20)
    made = 0
    make = found._make

    def counted() -> None:
        nonlocal made
        made += 1
        make()

    monkeypatch.setattr(found, "_make", counted)
    for _ in range(500):
        found.change([Recurring(f"t{rng.randrange(1000)}", 1000.0, rng.uniform(1, 2000))])
    assert made < 25


@pytest.mark.parametrize("seed", range(10))
def test_ready_jobs_follow_their_groups(seed: int) -> None:
    """Whatever changes, groups or jobs, and whether it is asked by group or not: the order is that of all values."""
    rng = Random(seed)
    ready = ReadyJobs(lambda job: (job.gain_us - job.late * 3.0, float(job.late)), lines=_lines if seed % 2 else None)
    groups = {f"t{n}": rng.randrange(4) for n in range(rng.choice([5, 60, 200]))}
    now, busy = 0, None
    for _ in range(120):
        now += rng.randrange(3_000_000)
        for name in rng.sample(sorted(groups), 3):
            if rng.random() < 0.7:
                gain, late = rng.randrange(50), rng.choice([0, 0, 1, 2])
                ready.put(ReadyJob(name, 1, 1, rng.randrange(5), 100, gain, late, 0, 0.1, 1.0, 1.0))
            else:
                ready.discard(name)
        if rng.random() < 0.3:
            groups = {name: rng.randrange(4) if rng.random() < 0.1 else group for name, group in groups.items()}
        if rng.random() < 0.2:
            busy = rng.choice([None, now, now // 2])
        anew = ReadyJobs(ready._index, None, ready._lines)
        for job in ready.values():
            anew.put(job)
        whole = list(anew.ranked(now, busy))
        if rng.random() < 0.2:
            assert list(ready.ranked(now, busy)) == whole
        if rng.random() < 0.2:
            assert ready.best(now, busy) == (whole[0] if whole else None)
        allowed = rng.randrange(4)
        found = list(ready.among(now, groups, lambda group, allowed=allowed: group >= allowed, busy))
        assert found == [entry for entry in whole if groups[entry[1].table] >= allowed]


def _lines(job: ReadyJob, busy_since_us: int | None) -> list[tuple[int, float, float]]:
    """Three lines, of which two depend on since when the tracks are busy."""
    if not job.gain_us or busy_since_us is None:
        return [(0, job.gain_us - job.late * 3.0, float(job.late))]
    bends_us = job.gain_us * 4_000_000
    since_s = busy_since_us / 1e6
    return [(0, 1.0, 0.0), (bends_us, job.gain_us % 7 - since_s, 0.5), (bends_us + 9_000_000, since_s, -0.25)]
