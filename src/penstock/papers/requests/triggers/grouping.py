"""Lazy with grouping: backfills that are scheduled near each other are announced together.

When the first of a group comes, the others are waited for as if they had come too, so that what is made from several of
them is made once (Xu, Gao, Davidson 2023, Sec. 4.3.1: "A at 1:00 and B at 2:00, every Monday"). Until one of them really
comes, its own partitions are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.model.partitions import PartitionSet
from penstock.papers.requests.book import Book
from penstock.papers.requests.triggers.lazy import Lazy
from penstock.requests.plan import Backfill


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A backfill and when it comes."""

    at_us: int
    backfill: Backfill


def near(schedule: Sequence[Scheduled], within_us: int) -> list[list[Scheduled]]:
    """Groups in which each comes at most so much later than the first."""
    groups: list[list[Scheduled]] = []
    for item in sorted(schedule, key=lambda item: item.at_us):
        if groups and item.at_us - groups[-1][0].at_us <= within_us:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


class Grouping(Lazy):
    """The first of a group announces all of it; `come` says that one is there. One that is called off is released, too:
    making its partitions again does no harm."""

    def announce(self, book: Book, group: Sequence[Scheduled]) -> int:
        for item in group:
            book.hold(item.backfill.table, item.backfill.partitions)
        return book.submit(*(item.backfill for item in group))

    def come(self, book: Book, table: str, partitions: PartitionSet) -> None:
        book.release(table, partitions)
