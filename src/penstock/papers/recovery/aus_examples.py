"""Examples 1 to 10 of the adaptive scheduler (Leontyev, Johnson, Anderson 2010, Sec. II and III), to the time unit.

Corrected where the text slips: in Examples 4 to 7 jobs of T1 go first; the staleness that matters in Example 7 is that of
V2; in Example 9 the release follows from rule (ii); the files of Example 1 that come after the fourth are on time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.model.time import SECOND_US
from penstock.papers.experiment import Experiment, Finding, Picture, add
from penstock.papers.recovery.adaptive import File, Ran, run
from penstock.scheduling.recovery.modes import Modes
from penstock.scheduling.recovery.reweighting import Released
from penstock.scheduling.recovery.tasks import RecoveryTask
from penstock.sim.outcome import Row

# A time unit of the paper is a second here.
UNIT = SECOND_US


def files(broken: bool, count: int = 10) -> list[File]:
    """Example 1: a file every 3 units from 1 on; if the feed breaks, what should come from 4 on comes at 10."""
    stamps = [1 + 3 * number for number in range(count)]
    return [File((max(stamp, 10) if broken and stamp > 1 else stamp) * UNIT, stamp * UNIT) for stamp in stamps]


class FirstTableFirst(Modes):
    """Jobs of T1 before those of T2, whatever their deadlines."""

    def rank(self, table: str, job: Released) -> float:
        return 0.0


def fixed_period(period: float, horizon: int = 17) -> Ran:
    """Examples 4 to 7: T1 has this period all the time, T2 has 3; one track."""
    periods = {"V1": round(period * UNIT), "V2": 3 * UNIT}
    tasks = [RecoveryTask(table, UNIT, each, each, threshold_us=1 << 60) for table, each in periods.items()]
    modes = FirstTableFirst(tasks, 1, background=False)
    return run(modes, {"V1": files(True), "V2": files(False)}, {}, lambda *_: UNIT, horizon * UNIT)


def two_broken_feeds(horizon: int = 29) -> Ran:
    """Examples 8 to 10: both feeds break; recovery periods 1.5, thresholds 8; one track."""
    tasks = [RecoveryTask(table, UNIT, 3 * UNIT, 3 * UNIT // 2, 8 * UNIT) for table in ("V1", "V2")]
    modes = Modes(tasks, 1, arbitration="increase", background=False)
    return run(modes, {"V1": files(True), "V2": files(True)}, {}, lambda *_: UNIT, horizon * UNIT)


def derived() -> Ran:
    """Example 2: sources fresh up to 8 and 9 at time 12, the table up to 5; its job takes two units."""
    tasks = [RecoveryTask(table, 2 * UNIT, 20 * UNIT, 20 * UNIT, 1 << 60) for table in ("V2", "V3", "V4")]
    feeds = {
        "V2": [File(2 * UNIT, 5 * UNIT), File(11 * UNIT, 8 * UNIT)],
        "V3": [File(2 * UNIT, 5 * UNIT), File(11 * UNIT, 9 * UNIT)],
    }
    took = {"V2": UNIT, "V3": UNIT, "V4": 2 * UNIT}
    modes = Modes(tasks, 3, background=True)
    return run(modes, feeds, {"V4": ("V2", "V3")}, lambda table, *_: took[table], 20 * UNIT)


# (table, job, release, deadline, start, end); the arithmetic is in the tests.
Expected = tuple[str, int, float, float, float, float]
FIGURE_5A: tuple[Expected, ...] = (
    ("V1", 1, 1, 2, 1, 2),
    ("V2", 1, 1, 4, 2, 3),
    ("V2", 2, 4, 7, 4, 5),
    ("V2", 3, 7, 10, 7, 8),
    ("V1", 2, 10, 11, 10, 11),
    ("V1", 3, 11, 12, 11, 12),
    ("V1", 4, 12, 13, 12, 13),
    ("V1", 5, 13, 14, 13, 14),
    ("V2", 4, 10, 13, 14, 15),
    ("V2", 5, 13, 16, 15, 16),
)
FIGURE_5B: tuple[Expected, ...] = (
    ("V1", 1, 1, 2.5, 1, 2),
    ("V2", 1, 1, 4, 2, 3),
    ("V2", 2, 4, 7, 4, 5),
    ("V2", 3, 7, 10, 7, 8),
    ("V1", 2, 10, 11.5, 10, 11),
    ("V2", 4, 10, 13, 11, 12),
    ("V1", 3, 11.5, 13, 12, 13),
    ("V1", 4, 13, 14.5, 13, 14),
    ("V2", 5, 13, 16, 14, 15),
    ("V1", 5, 14.5, 16, 15, 16),
)
FIGURE_7: tuple[Expected, ...] = (
    ("V1", 1, 1, 4, 1, 2),
    ("V2", 1, 1, 4, 2, 3),
    ("V1", 2, 10, 11.5, 10, 11),
    ("V2", 2, 10, 13, 11, 12),
    ("V1", 3, 11.5, 13, 12, 13),
    ("V1", 4, 13, 14.5, 13, 14),
    ("V2", 3, 13, 16, 14, 15),
    ("V1", 5, 14.5, 16, 15, 16),
    ("V1", 6, 16, 17.5, 16, 17),
    ("V2", 4, 16, 19, 17, 18),
    ("V2", 5, 18.5, 20, 18.5, 19.5),
    ("V1", 7, 19, 22, 19.5, 20.5),
    ("V2", 6, 20, 21.5, 20.5, 21.5),
    ("V2", 7, 21.5, 23, 21.5, 22.5),
    ("V1", 8, 22, 25, 22.5, 23.5),
    ("V2", 8, 23, 24.5, 23.5, 24.5),
    ("V1", 9, 25, 28, 25, 26),
    ("V2", 9, 25, 28, 26, 27),
)
SCHEDULES: dict[str, tuple[Callable[..., Ran], tuple[float, ...], tuple[Expected, ...]]] = {
    "4-7, period 1": (fixed_period, (1.0,), FIGURE_5A),
    "4-7, period 1.5": (fixed_period, (1.5,), FIGURE_5B),
    "8-10": (two_broken_feeds, (), FIGURE_7),
}


def _tasks(parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Any]:
    return [name for name in SCHEDULES if name in parameters["examples"]]


def work(name: Any) -> list[Row]:
    make, arguments, expected = SCHEDULES[name]
    jobs = {(job.table, job.number): job for job in make(*arguments).jobs}
    rows = []
    for table, number, *times in expected:
        job = jobs[table, number]
        found = [float("nan") if t is None else t / UNIT for t in (job.release_us, job.deadline_us)]
        found += [job.start_us / UNIT, job.end_us / UNIT]
        rows.append(
            {
                "experiment": "aus-examples",
                "example": name,
                "table": table,
                "job": number,
                **dict(zip(("release", "deadline", "start", "completion"), found, strict=True)),
                "expected": list(times),
                "exact": found == list(times),
                "recovery mode": job.recovering,
            }
        )
    return rows


def _judge(rows: list[Row]) -> list[Finding]:
    findings = []
    for name in dict.fromkeys(row["example"] for row in rows):
        some = [row for row in rows if row["example"] == name]
        exact = sum(row["exact"] for row in some)
        findings.append(
            Finding(
                f"examples {name}: every release, deadline, start and completion as in the paper",
                exact == len(some),
                f"{exact} of {len(some)} jobs",
            )
        )
    if any(row["example"] == "8-10" for row in rows):
        changes = {(change.table, change.rule): change.at_us / UNIT for change in two_broken_feeds().changes}
        findings.append(
            Finding(
                "T1 enters recovery at 10 by (ii), is back to normal at 17.5, where T2 enters by (vii), back at 24.5",
                (changes["V1", "ii"], changes["V1", "RN"], changes["V2", "vi or vii"], changes["V2", "RN"])
                == (10, 17.5, 17.5, 24.5),
                ", ".join(f"{table} {rule} at {at:g}" for (table, rule), at in changes.items()),
            )
        )
    return findings


add(
    Experiment(
        "aus-examples",
        "Adaptive scheduling after outages: the worked examples, job by job",
        {"examples": tuple(SCHEDULES)},
        _tasks,
        work,
        _judge,
        Picture("job", "completion", "table", "example"),
    )
)
