"""What shall be other than it was: an outage, more data, more tables."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.control.events import WarehouseDeclared
from penstock.errors import PenstockError
from penstock.model.tables import Source, Table
from penstock.model.time import format_duration, parse_duration


class ChangeError(PenstockError):
    """A change that cannot be made."""


@dataclass(frozen=True, slots=True)
class FeedOutage:
    """What should have come between two times after the beginning comes at the end; of one feed or of all."""

    start_us: int
    end_us: int
    feed: str | None = None

    def __str__(self) -> str:
        span = f"{format_duration(self.start_us)}..{format_duration(self.end_us)}".replace(" ", "")
        return f"{self.feed}@{span}" if self.feed else span


@dataclass(frozen=True, slots=True)
class SlowPeriod:
    """Updates that start between two times after the beginning take so many times as long."""

    start_us: int
    end_us: int
    factor: float


@dataclass(frozen=True, slots=True)
class Changes:
    volume: float = 1.0
    outages: tuple[FeedOutage, ...] = ()
    slowdowns: tuple[SlowPeriod, ...] = ()
    # Tables added that are like one that there is, by their names.
    like: tuple[tuple[str, str], ...] = ()

    def delayed_us(self, feed: str, at_us: int) -> int:
        """When something comes that would have come at a time, both since the beginning."""
        for outage in sorted(self.outages, key=lambda outage: outage.start_us):  # one may lead into the next
            if outage.feed in (None, feed) and outage.start_us <= at_us < outage.end_us:
                at_us = outage.end_us
        return at_us

    def slowness(self, at_us: int) -> float:
        """How many times as long an update takes that starts so long after the beginning."""
        return max((slow.factor for slow in self.slowdowns if slow.start_us <= at_us < slow.end_us), default=1.0)

    def applied_to(self, declared: WarehouseDeclared) -> WarehouseDeclared:
        tables = {table.name: table for table in declared.tables}
        added = tuple(_copy(tables[model], name) for name, model in self.like)
        return replace(declared, tables=declared.tables + added)


def _copy(table: Table, name: str) -> Table:
    # One that reads its own past must read its own, not that of the other.
    sources = tuple(Source(name if s.table == table.name else s.table, s.window) for s in table.sources)
    return replace(table, name=name, sources=sources)


def parse_changes(
    declared: WarehouseDeclared, volume: float, outages: Sequence[str], additions: Sequence[str]
) -> Changes:
    """As users write them: outages as `10m..25m` or `feed@10m..25m`, tables as `name` or `name*3`."""
    feeds = [feed.name for feed in declared.feeds]
    tables = [table.name for table in declared.tables]
    return Changes(volume, tuple(_outage(text, feeds) for text in outages), like=tuple(_additions(additions, tables)))


def _outage(text: str, feeds: Sequence[str]) -> FeedOutage:
    feed, sign, span = text.rpartition("@")
    start, dots, end = span.partition("..")
    expected = "expected START..END since the beginning, such as 10m..25m or feed@10m..25m"
    if not dots:
        raise ChangeError(f"--outage {text}: {expected}")
    if sign:
        _known(feed, feeds, "feed")
    try:
        found = FeedOutage(parse_duration(start or "0s"), parse_duration(end), feed if sign else None)
    except ValueError as error:
        raise ChangeError(f"--outage {text}: {error}; {expected}") from None
    if found.end_us <= found.start_us:
        raise ChangeError(f"--outage {text}: it must end after it starts")
    return found


def _additions(texts: Sequence[str], tables: Sequence[str]) -> Iterable[tuple[str, str]]:
    for text in texts:
        name, sign, count = text.partition("*")
        name = name.strip()
        _known(name, tables, "table")
        if sign and not (count.strip().isdigit() and 1 <= int(count) <= 10_000):
            raise ChangeError(f"--add {text}: expected how many after the star, such as {name}*3")
        for number in range(1, int(count) + 1 if sign else 2):
            yield f"{name}+{number}", name


def _known(name: str, names: Sequence[str], what: str) -> None:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        raise ChangeError(f"there is no {what} `{name}` in the recorded project{hint}")
