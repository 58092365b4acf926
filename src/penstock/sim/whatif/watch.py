"""How fresh the tables were during a run, recorded or simulated: both are measured by the same eyes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.control.events import Event, FileArrived, PunctuationArrived, UpdateFinished
from penstock.control.state import State
from penstock.model.time import SECOND_US


@dataclass(frozen=True, slots=True)
class TableFreshness:
    table: str
    priority: float
    mean_s: float
    peak_s: float
    target_s: float | None
    # The part of the time in which the target was met.
    met: float | None


class _Kept:
    """How stale a table was, and how long it was within its target. Staleness grows with the clock and falls when the
    edge moves, so that each stretch between two moves is within the target up to one moment. A table that is complete
    beyond now (a day that was delivered as a whole) is not stale."""

    __slots__ = ("area", "edge_us", "met_us", "peak_us", "since_us", "target_us", "total_us")

    def __init__(self, since_us: int, edge_us: int, target_us: int | None) -> None:
        self.since_us, self.edge_us, self.target_us = since_us, edge_us, target_us
        self.met_us = self.total_us = self.peak_us = 0
        self.area = 0.0  # square seconds

    def moved(self, now_us: int, edge_us: int) -> None:
        if now_us > self.since_us:
            first, last = max(0, self.since_us - self.edge_us), max(0, now_us - self.edge_us)
            # The triangle up to now without the one up to the last move.
            self.area += (last * last - first * first) / 2 / SECOND_US**2
            self.total_us += now_us - self.since_us
            self.peak_us = max(self.peak_us, last)
            if self.target_us is not None:
                self.met_us += min(max(0, self.edge_us + self.target_us - self.since_us), now_us - self.since_us)
        self.since_us, self.edge_us = max(now_us, self.since_us), edge_us

    @property
    def mean_s(self) -> float:
        return self.area / (self.total_us / SECOND_US) if self.total_us else 0.0


class Watch:
    """Told after every event. Until a table is first made, it counts as complete up to the beginning of the run, or up
    to where it is then, if that is earlier. If `first` says where another run began with it, it begins there: so that runs can
    be compared, also where one of them never makes it."""

    def __init__(self, start_us: int | None = None, first: Mapping[str, int] | None = None) -> None:
        self._start_us = start_us
        self.first: dict[str, int] = dict(first or {})
        self._kept: dict[str, _Kept] = {}

    def saw(self, state: State, event: Event) -> None:
        if self._start_us is None and isinstance(event, FileArrived):
            self._start_us = event.at_us
        if isinstance(event, UpdateFinished):
            for publication in event.publications:
                self._look(state, publication.table, event.at_us)
        elif isinstance(event, PunctuationArrived):
            for name in state.graph.fed_by.get(event.feed, ()):
                self._look(state, name, event.at_us)

    def _look(self, state: State, name: str, now_us: int) -> None:
        table = state.tables.get(name)
        if table is None or table.edge_us is None or not state.graph.has_time[name]:
            return
        kept = self._kept.get(name)
        if kept is None:
            start = now_us if self._start_us is None else self._start_us
            first = self.first.setdefault(name, min(start, table.edge_us))
            kept = self._kept[name] = _Kept(start, first, table.table.target_us)
        if kept.edge_us != table.edge_us:
            kept.moved(now_us, table.edge_us)

    def freshness(self, state: State, now_us: int) -> tuple[TableFreshness, ...]:
        """Of every table that flows with time, at the end of a run."""
        found = []
        for name in state.graph.order:
            if not state.graph.has_time[name]:
                continue
            table = state.graph.tables[name]
            start = now_us if self._start_us is None else self._start_us
            kept = self._kept.get(name) or _Kept(start, self.first.get(name, start), table.target_us)
            kept.moved(now_us, kept.edge_us)
            target = table.target_us
            found.append(
                TableFreshness(
                    name,
                    table.priority,
                    kept.mean_s,
                    kept.peak_us / SECOND_US,
                    None if target is None else target / SECOND_US,
                    None if target is None or not kept.total_us else kept.met_us / kept.total_us,
                )
            )
        return tuple(found)
