"""Is a feed healthy, late, or out? A function of what is known and of now; a runtime tells the time and logs the answer.

With a period p and a jitter J, declared or learned, a feed is late when nothing has come for p + J and a quarter of a
period, and out when nothing has come for 3 p + J. Silence counts only while someone looks: what came while no process
ran is seen when the next one starts, and only then the wait begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, tzinfo
from heapq import heapify, heappop, heappush
from typing import Literal, get_args

from penstock.control.events import Event, FeedCameBack, FeedWentOut, OfFeed, RunStarted, WarehouseDeclared
from penstock.control.feeds import FeedState
from penstock.control.state import State
from penstock.model.rhythm import Rhythm
from penstock.model.tables import Feed
from penstock.model.time import MINUTE_US, SECOND_US, format_duration, format_instant, moment

Health = Literal["healthy", "late", "out", "paused", "learning", "not watched"]
HEALTHS: tuple[Health, ...] = get_args(Health)
# So many periods without a file.
OUT_AFTER = 3


@dataclass(frozen=True, slots=True)
class Expectation:
    """When a file is missed, and when the feed counts as out, if none comes."""

    period_us: int
    jitter_us: int
    due_us: int
    late_us: int
    out_us: int


@dataclass(frozen=True, slots=True)
class FeedHealth:
    feed: str
    health: Health
    # Late or out: when the first file was due that did not come. Paused: since when.
    since_us: int | None
    last_us: int | None
    next_us: int | None
    # As declared or learned, None if neither; and what is learned, to be compared with what is declared.
    period_us: int | None
    jitter_us: int | None
    phase_us: int | None
    stamp_us: int | None
    learned_period_us: int | None
    waiting_files: int
    tables: tuple[str, ...]
    reason: str
    said: str


def expectation(state: State, feed: Feed, known: FeedState, rhythm: Rhythm | None) -> Expectation | None:
    """None if nothing has come yet, or nobody knows how often something should."""
    last = known.heard.last_us
    if last is None or (feed.guessed and rhythm is None):
        return None
    period = rhythm.period_us if feed.guessed and rhythm is not None else feed.period_us
    jitter = feed.jitter_us if feed.jitter_us is not None else rhythm.jitter_us if rhythm is not None else 0
    silent_from = max(last, state.watched_us, known.expected_us or 0)
    late = silent_from + period + jitter + period // 4
    out = silent_from + OUT_AFTER * period + jitter
    if feed.guessed:
        # Files that were there before anyone looked come faster than they were made.
        out = max(out, silent_from + feed.period_us)
    # What did not come while nobody looked is missed, but not what did not come during a pause.
    due = max(last, known.expected_us or 0) + period
    return Expectation(period, jitter, due, min(late, out), out)


def _rhythm(feed: Feed, known: FeedState) -> Rhythm | None:
    return known.heard.rhythm(None if feed.guessed else feed.period_us)


def _is_back(known: FeedState) -> bool:
    last, since = known.heard.last_us, known.out_since_us
    return since is not None and last is not None and last > since


def feed_healths(state: State, now_us: int | None = None, zone: tzinfo = UTC) -> list[FeedHealth]:
    now = max(state.now_us, now_us or 0)
    return [feed_health(state, name, now, zone) for name in state.graph.feeds]


def feed_health(state: State, name: str, now_us: int, zone: tzinfo = UTC) -> FeedHealth:
    feed, known = state.graph.feeds[name], state.feeds[name]
    rhythm = _rhythm(feed, known)
    expected = expectation(state, feed, known, rhythm)
    health, since = _judged(state, known, expected, now_us)
    tables = tuple(state.graph.fed_by[name])
    waiting = max((len(state.tables[table].files) for table in tables), default=0)
    last = known.heard.last_us
    learned = known.heard.rhythm() if not feed.guessed else rhythm
    return FeedHealth(
        name,
        health,
        since,
        last,
        rhythm.next_us(max(last, now_us)) if rhythm is not None and last is not None else None,
        expected.period_us if expected is not None else None if feed.guessed else feed.period_us,
        expected.jitter_us if expected is not None else feed.jitter_us,
        rhythm.phase_us if rhythm is not None else None,
        known.heard.stamp_us,
        learned.period_us if learned is not None else None,
        waiting,
        tables,
        known.paused_why,
        _said(name, health, since, last, known.paused_why, waiting, now_us, zone),
    )


def _judged(state: State, known: FeedState, expected: Expectation | None, now_us: int) -> tuple[Health, int | None]:
    if known.paused_us is not None:
        return "paused", known.paused_us
    if known.out_since_us is not None and not _is_back(known):
        return "out", known.out_since_us
    if expected is None:
        return "learning", None
    if state.owner is None:
        return "not watched", None
    if now_us > expected.out_us:
        return "out", expected.due_us
    return ("late", expected.due_us) if now_us > expected.late_us else ("healthy", None)


def _said(
    name: str,
    health: Health,
    since_us: int | None,
    last_us: int | None,
    reason: str,
    waiting: int,
    now_us: int,
    zone: tzinfo,
) -> str:
    """As people say it: `router_stats: out for 14m, last file 09:12`."""
    last = f"last file {clock(last_us, now_us, zone)}" if last_us is not None else "no file yet"
    if since_us is None:
        return f"{name}: {health}, {last}"
    lasts = format_duration(max(0, now_us - since_us) // SECOND_US * SECOND_US)
    if health == "paused":
        files = f", {waiting} file{'s' * (waiting != 1)} waiting" if waiting else ""
        return f"{name}: paused for {lasts}{f' ({reason})' if reason else ''}{files}, {last}"
    return f"{name}: {health} {'for' if health == 'out' else 'by'} {lasts}, {last}"


def clock(at_us: int, now_us: int, zone: tzinfo) -> str:
    """The time of day, with seconds if it is not long ago, with the day if that is another."""
    then = moment(at_us, zone)
    today = then.date() == moment(now_us, zone).date()
    return (
        then.strftime("%H:%M:%S" if now_us - at_us < 5 * MINUTE_US else "%H:%M")
        if today
        else format_instant(at_us // SECOND_US * SECOND_US, zone)
    )


class FeedWatch:
    """Notices outages and their ends as time goes by. Asking costs as much as there is to tell, however many feeds there
    are; nothing is remembered that the state does not say, so that after a crash the same is noticed again, or is on
    record and is not."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._back: set[str] = set()
        self._look(state.graph.feeds)

    def saw(self, event: Event) -> None:
        """Something happened, which the state knows already."""
        if isinstance(event, RunStarted | WarehouseDeclared):
            self._due, self._heap = {}, []
            self._look(self._state.graph.feeds)
        elif isinstance(event, OfFeed):
            self._look((event.feed,))

    def _look(self, feeds: Iterable[str]) -> None:
        for name in feeds:
            feed, known = self._state.graph.feeds.get(name), self._state.feeds.get(name)
            self._due.pop(name, None)
            self._back.discard(name)
            if feed is None or known is None:
                continue
            if _is_back(known):
                self._back.add(name)
            elif known.out_since_us is None and known.paused_us is None:
                expected = expectation(self._state, feed, known, _rhythm(feed, known))
                if expected is not None:
                    self._due[name] = expected.out_us
                    heappush(self._heap, (expected.out_us, name))
        if len(self._heap) > 4 * len(self._due) + 64:
            self._heap = [(due, name) for name, due in self._due.items()]
            heapify(self._heap)

    def happened(self, now_us: int) -> list[Event]:
        """Feeds that went out or came back and of which the log does not know. Their events must be folded before it is
        asked again."""
        found: list[Event] = []
        for name in sorted(self._back):
            known = self._state.feeds[name]
            since, heard = known.out_since_us, known.heard
            if since is not None and heard.last_us is not None:
                # With the first of the files that come together.
                first = heard.beats[-1] if heard.beats and heard.beats[-1] > since else heard.last_us
                found.append(FeedCameBack(first, name, since))
        while self._heap and self._heap[0][0] < now_us:
            due, name = heappop(self._heap)
            if self._due.get(name) == due:
                del self._due[name]
                feed, known = self._state.graph.feeds[name], self._state.feeds[name]
                expected = expectation(self._state, feed, known, _rhythm(feed, known))
                assert expected is not None
                found.append(FeedWentOut(now_us, name, expected.due_us, known.heard.last_us))
        return found
