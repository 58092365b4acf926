"""What the queries that wait would lose if one more goes among them: the satisfaction check of Qu, Labrinidis and Mossé 2006 (Sec. 3.3) for
several lanes, and for times that are not certain.

All run in the order of their deadlines, each on the lane that is free first. With the new one, those behind it end later, and each is in time with
a smaller chance. Queries that ask the same run once, so a question counts once, with what it is worth to all who ask it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

from penstock.queries.estimate import Estimate

# How uncertain it is when a lane is free, as a part of the time until then.
_SPREAD = 0.3


@dataclass(frozen=True, slots=True)
class Question:
    """What waits for a lane: when it must be done, counted from now, how long it runs, and what is lost if it is late."""

    deadline_s: float
    run: Estimate
    worth: float


def loss(waiting: Iterable[Question], new: Question, free_in_s: Sequence[float]) -> float:
    """The expected satisfaction that those behind the new one lose; what they would lose anyway does not count. Lanes are free in so many
    seconds."""
    behind: list[Question] = []
    lanes = list(free_in_s) or [0.0]
    heapify(lanes)
    for question in sorted(waiting, key=lambda one: one.deadline_s):
        if question.deadline_s <= new.deadline_s:
            heapreplace(lanes, lanes[0] + question.run.mean_s)
        else:
            behind.append(question)
    if not behind:
        return 0.0
    crowded = list(lanes)
    heapreplace(crowded, crowded[0] + new.run.mean_s)
    lost = 0.0
    for question in behind:
        lost += question.worth * (_chance(question, lanes[0]) - _chance(question, crowded[0]))
        heapreplace(lanes, lanes[0] + question.run.mean_s)
        heapreplace(crowded, crowded[0] + question.run.mean_s)
    return max(0.0, lost)


def _chance(question: Question, start_s: float) -> float:
    return Estimate(start_s, _SPREAD * start_s).then(question.run).chance(question.deadline_s)
