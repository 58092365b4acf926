"""Do the premises of what is promised hold? The first that does not is an event, before or when a bound is exceeded.

The bounds of `scheduling/recovery` hold as long as no update takes longer than its cost, all that is reserved fits on the tracks,
files come as declared, and nothing keeps a released update from starting. What broke for all tables (a track was held for too long)
is over at the next moment at which a track is free and no released update waits: everything that is released from then on is
in time again. After that a table is promised something again once those that it is made from are, and it is fresh, or an
update ends that took all there was.

Nothing is remembered here that the log does not say, but for what began since the process did: until then nothing is promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.control.controller import Controller
from penstock.control.events import (
    Event,
    FaultMet,
    FeedCameBack,
    FeedPaused,
    FeedResumed,
    FeedWentOut,
    FileArrived,
    GuaranteeRenewed,
    GuaranteeVoided,
    PremiseExtent,
    RunStarted,
    UpdateFailed,
    UpdateFinished,
    UpdateStarted,
    UpdateStopped,
    WarehouseDeclared,
)
from penstock.control.promises import EXTENTS
from penstock.control.readiness import blocked
from penstock.control.views.recovery import doubts, how_known, recoveries
from penstock.model.time import END_US, format_duration, format_instant
from penstock.requests.job import Job
from penstock.requests.tablestate import lag_us
from penstock.scheduling.recovery.bounds import Model, RecoveryBound
from penstock.scheduling.recovery.policy import Adaptive, RecoveryMemory
from penstock.scheduling.recovery.tasks import ROUNDING

UNEXPLAINED = "all that is watched is as assumed"
# A file counts as late when it is so much of a period late.
_LATE = 0.25


class Limit(NamedTuple):
    """How long a running update may take, and whether it took all that there was when it started."""

    table: str
    started_us: int
    us: int
    everything: bool


@dataclass(slots=True)
class _Pace:
    """When the next file of a table may come at the earliest, if files come no faster than declared; when the last one came, and how
    long after the one before."""

    next_us: int
    last_us: int
    gap_us: int = 0


class Recovers(NamedTuple):
    """What is promised of a recovery: by when it is over, and how stale the table is from then on at most."""

    since_us: int
    latest_us: int
    most_us: int


class PremiseWatch:
    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self._limits: dict[str, Limit] = {}
        self._pace: dict[str, _Pace] = {}
        # What broke and was not told yet: by table, None for all of them.
        self._broken: dict[tuple[str | None, PremiseExtent], str] = {}
        # Whether something that concerns all tables is not over; and since when it is.
        self._unclean = False
        self._clean_us = 0
        # Of tables that are promised something, since when; what they are made from must be so before.
        self._since_us: dict[str, int] = {}
        self._took_all: dict[str, int] = {}
        # When something of a table last broke, or what had was over: what an update took that began before says nothing.
        self._broke_us: dict[str, int] = {}
        # Recoveries that are promised.
        self.recovers: dict[str, Recovers] = {}
        self._model: tuple[object, Model] | None = None
        self._bounds: tuple[Model, dict[str, RecoveryBound]] | None = None
        self._stale_at_us = 0
        self._late_at_us = 0

    # What is promised

    @property
    def model(self) -> Model | None:
        """What the policy has reserved, if it is one that promises something."""
        policy, memory = self.controller.policy, self.controller.memory
        if not isinstance(policy, Adaptive) or not isinstance(memory, RecoveryMemory):
            return None
        key = (policy, memory.version, memory.tracks)
        if self._model is None or self._model[0] != key:
            self._model = key, policy.model(memory.tracks, self.controller.outlook, fit=False)
        return self._model[1]

    def promised(self) -> dict[str, RecoveryBound]:
        """The bounds that hold now, of tables of which nothing is void."""
        void = self.controller.state.void
        return {name: bound for name, bound in self.bounds().items() if name not in void}

    def bounds(self) -> dict[str, RecoveryBound]:
        """What would be promised if all is as assumed."""
        model = self.model
        if model is None or not model.tasks:
            return {}
        if self._bounds is None or self._bounds[0] is not model:
            self._bounds = model, self._known_bounds(model)
        return self._bounds[1]

    def _known_bounds(self, model: Model) -> dict[str, RecoveryBound]:
        state = self.controller.state
        if any(how_known(state.graph, state.cost_of(name), name) == "not known" for name in model.known):
            self._bounds = None  # it may be known soon
            return {}
        doubtful = doubts(state.graph, state.feeds).keys()
        return {
            name: bound
            for name, bound in model.bounds().items()
            if not doubtful & (model.above.get(name, frozenset()) | {name})
        }

    # What happens

    def saw(self, event: Event) -> None:
        """Something happened, which the controller knows already."""
        model = self.model
        if model is None:
            return
        over = isinstance(event, GuaranteeVoided) and event.extent != "outage"
        if over or isinstance(event, FeedWentOut | FeedPaused | RunStarted | WarehouseDeclared):
            self.recovers.clear()
        if isinstance(event, RunStarted | WarehouseDeclared):
            if isinstance(event, RunStarted):
                self._limits.clear()  # else what ran goes on
            self._pace.clear()
            self._break(None, "the process has just begun" if isinstance(event, RunStarted) else "it was declared anew")
        elif isinstance(event, UpdateStarted):
            self._started(event, model)
        elif isinstance(event, UpdateFinished | UpdateFailed | UpdateStopped | FaultMet):
            self._ended(event)
            if isinstance(event, FaultMet):
                self._break(None, f"{event.part} was not available: {event.reason}")
        elif isinstance(event, FileArrived):
            self._arrived(event, model)
        elif isinstance(event, FeedCameBack | FeedResumed):
            for name in self.controller.state.graph.fed_by.get(event.feed, ()):
                self._broke_us.update(dict.fromkeys(self._below(name), event.at_us))
            bounds, known = self.bounds(), self.controller.state.graph.updated_as
            for one in recoveries(self.controller.state, event.at_us):
                if one.latest_end_us is not None and known[one.table] in bounds:
                    most = bounds[known[one.table]].recovered_us
                    self.recovers[one.table] = Recovers(event.at_us, one.latest_end_us, most)
        elif isinstance(event, FeedWentOut | FeedPaused):
            for name in self.controller.state.graph.fed_by.get(event.feed, ()):
                how = "is out" if isinstance(event, FeedWentOut) else "is paused"
                self._break(name, f"feed `{event.feed}` {how}", "outage")

    def _break(self, table: str | None, because: str, extent: PremiseExtent = "table") -> None:
        if table is None:
            self._unclean, extent = True, "all"
        self._broken.setdefault((table, extent), because)

    def _started(self, event: UpdateStarted, model: Model) -> None:
        job, state = event.job, self.controller.state
        if job.kind == "order":
            return  # it holds no track
        name = state.graph.updated_as.get(job.table, job.table)
        task = model.known.get(name)
        limit = model.outside_us
        if job.kind != "upkeep" and task is not None:
            limit = max(limit, model.longest_of(task)) if self._modes[name].background else task.cost_us
        self._limits[job.id] = Limit(name, event.at_us, limit, job.kind != "upkeep" and self._is_everything(job))
        if job.kind == "derive" and name in state.kept and self._goes_nowhere(job):
            self._break(
                name, f"what `{name}` reads next is about to change, so that an update of it made something else"
            )

    @property
    def _modes(self) -> RecoveryMemory:
        memory = self.controller.memory
        assert isinstance(memory, RecoveryMemory)
        return memory

    def _goes_nowhere(self, job: Job) -> bool:
        """Whether an update of a table that is behind makes it no fresher."""
        state = self.controller.state
        tables = {each.table: state.tables[each.table] for each in job.each if each.table in state.tables}
        return any(
            table.edge_us is not None
            and lag_us(state.graph, table) > 1
            and (each.complete_us is None or each.complete_us <= table.edge_us)
            for each in job.each
            if (table := tables.get(each.table)) is not None
        )

    def _is_everything(self, job: Job) -> bool:
        state = self.controller.state
        for each in job.each:
            table = state.tables.get(each.table)
            if table is None or table.files:
                return False
            if not table.table.is_base and (each.complete_us is None or each.complete_us != table.seen_us):
                return False
        return True

    def _ended(self, event: UpdateFinished | UpdateFailed | UpdateStopped | FaultMet) -> None:
        limit = self._limits.pop(event.job, None)
        if limit is None:
            return
        if event.at_us - limit.started_us > limit.us:
            self._too_long(limit)
        if isinstance(event, UpdateFinished):
            if limit.everything:
                self._took_all[limit.table] = limit.started_us
        elif limit.table in self.controller.state.kept:
            self._break(limit.table, f"an update of `{limit.table}` did not come to its end")

    def _too_long(self, limit: Limit) -> None:
        self._break(
            None, f"an update of `{limit.table}` takes longer than the {format_duration(limit.us)} that were assumed"
        )

    def _arrived(self, event: FileArrived, model: Model) -> None:
        """The n-th file comes no sooner than n periods after the first, and what may be early."""
        for name in self.controller.state.graph.fed_by.get(event.feed, ()):
            delivery = model.deliveries.get(name)
            if delivery is None:
                continue
            pace = self._pace.setdefault(name, _Pace(event.at_us, event.at_us))
            if event.at_us > pace.last_us:
                pace.gap_us, pace.last_us = event.at_us - pace.last_us, event.at_us
            if pace.gap_us > (1 + _LATE) * delivery.period_us + delivery.jitter_us:
                self._break(name, self._said_late(event.feed, pace.gap_us), "outage")
            early = pace.next_us - event.at_us
            if early > delivery.jitter_us + _LATE * delivery.period_us:
                period = format_duration(delivery.period_us)
                self._break(name, f"files of feed `{event.feed}` come more often than every {period}")
                pace.next_us = event.at_us
            pace.next_us += delivery.period_us

    def _said_late(self, feed: str, gap_us: int) -> str:
        return f"a file of feed `{feed}` came {format_duration(gap_us)} after the one before"

    # What is told

    @property
    def due_us(self) -> int | None:
        """When something may break by itself."""
        times = [limit.started_us + limit.us + 1 for limit in self._limits.values()]
        bounds, state = self.promised(), self.controller.state
        for name, bound in bounds.items():
            edge = state.tables[name].edge_us
            if edge is not None:
                times.append(edge + bound.staleness_us + 1)
        for name, promised in self.recovers.items():
            times.append(max(promised.latest_us, (state.tables[name].edge_us or 0) + promised.most_us) + 1)
        if self.model is not None and not any(each.extent == "all" for each in state.void.values()):
            self._late_at_us = min(self._ends_us().values(), default=END_US)
            times.append(self._late_at_us + 1)
        return min(times, default=None)

    def _ends_us(self) -> dict[str, int]:
        """By when released updates end at the latest, by their deadlines. What is held up is told of otherwise."""
        found: dict[str, int] = {}
        modes, able, ready = self._modes, self.controller.able_us, self.controller.ready_now()
        for name, bound in self.bounds().items():
            progress = modes[name]
            if not (progress.runs or progress.waits) or progress.last is None:
                continue
            if progress.runs or (name in ready and not ready[name].upkeep):
                release, deadline = progress.last
                found[name] = deadline + max(0, able.get(name, 0) - release) + bound.tardiness_us
        return found

    def happened(self, now_us: int) -> list[Event]:
        """Guarantees that are void from now on, and those that hold again. Their events must be folded before it is asked again."""
        model = self.model
        if model is None or not model.tasks:
            return []
        found = [*self._voided(now_us, model), *self._renewed(now_us, model)]
        self._broken.clear()
        return found

    def _voided(self, now_us: int, model: Model) -> Iterator[Event]:
        self._look(now_us, model)
        state = self.controller.state
        bounds = self.bounds()
        told: dict[str, PremiseExtent] = {}
        for (table, extent), because in sorted(self._broken.items(), key=lambda each: -EXTENTS.index(each[0][1])):
            names = bounds if table is None else self._below(table)
            self._broke_us.update(dict.fromkeys(names, now_us))
            hit = {
                name
                for name in names
                if name in bounds and name not in told
                if name not in state.void or not state.void[name].counts_beside(extent)
            }
            if hit:
                for name in hit:
                    told[name] = extent
                    self._since_us.pop(name, None)
                    self._took_all.pop(name, None)
                yield GuaranteeVoided(now_us, tuple(sorted(hit)), because, extent)

    def _below(self, table: str) -> Iterable[str]:
        graph = self.controller.state.graph
        names = {table, *(name for name in graph.order if table in graph.ancestors[name])}
        return {graph.updated_as[name] for name in names}

    def _look(self, now_us: int, model: Model) -> None:
        """What breaks by itself as time goes by."""
        modes, state = self._modes, self.controller.state
        for limit in self._limits.values():
            if now_us - limit.started_us > limit.us:
                self._too_long(limit)
        if not model.fits:
            self._break(None, f"all tables together need {model.utilisation:.2f} of {model.tracks} tracks")
        elif modes.load > modes.tracks + ROUNDING:
            self._break(None, f"tables that recover need {modes.load:.2f} of {modes.tracks} tracks")
        asked = modes.fork()
        asked.advance(now_us)
        for choice in list(asked.released()):
            if not self._can_start(choice.table):
                why = blocked(state, state.tables[choice.table]) or "what it reads is about to change"
                self._break(choice.table, f"an update of `{choice.table}` cannot start: {why}")
        if now_us > self._late_at_us:
            ends = self._ends_us()
            for name in (each for each, us in ends.items() if now_us > us):
                self._break(None, f"an update of `{name}` is later than it can be though {UNEXPLAINED}")
        for name, promised in self.recovers.items():
            edge = state.tables[name].edge_us
            if now_us > promised.latest_us and edge is not None and now_us - edge > promised.most_us:
                self._break(name, f"`{name}` has not recovered by the time that was proven though {UNEXPLAINED}")
        if now_us > self._stale_at_us:
            self._stale_at_us = self._stale(now_us)

    def _can_start(self, table: str) -> bool:
        ready = self.controller.ready_now()
        return table in ready and not ready[table].upkeep

    def _stale(self, now_us: int) -> int:
        """Tables that are staler than was promised though nothing else broke; and when to look again."""
        state, soonest = self.controller.state, now_us + 60_000_000
        for name, bound in self.promised().items():
            for each in state.graph.grouped_with(name):
                edge = state.tables[each].edge_us
                if edge is not None and now_us - edge > bound.staleness_us:
                    self._break(name, *self._why_stale(name, now_us))
                elif edge is not None:
                    soonest = min(soonest, edge + bound.staleness_us)
        return soonest

    def _why_stale(self, name: str, now_us: int) -> tuple[str, PremiseExtent]:
        state, model = self.controller.state, self.model
        assert model is not None
        for base in sorted(model.above.get(name, frozenset()) | {name}):
            delivery = model.deliveries.get(base)
            last = self._last_file_us(base)
            pace, feed = self._pace.get(base), state.graph.tables[base].feed or ""
            if delivery is not None and pace is not None and pace.gap_us > delivery.period_us + delivery.jitter_us:
                return self._said_late(feed, pace.gap_us), "outage"
            if delivery is not None and last is not None and now_us - last > delivery.period_us + delivery.jitter_us:
                return f"no file of feed `{feed}` came since {format_instant(last)}", "outage"
        return f"`{name}` is staler than it can be though {UNEXPLAINED}: its feed may have held data back", "table"

    def _last_file_us(self, base: str) -> int | None:
        """When the feed of a table delivered last. Old files that come with other content tell nothing of that."""
        known = self.controller.state.feeds.get(self.controller.state.graph.tables[base].feed or "")
        return known.heard.last_us if known is not None else None

    def _renewed(self, now_us: int, model: Model) -> Iterator[Event]:
        state = self.controller.state
        if self._broken or not state.void:
            return
        if state.faults.open:
            return
        if self._unclean:
            # Whether a track is free, and no released update waits for one, or for the one before it of the same table.
            asked = self._modes.fork()
            asked.advance(now_us)
            known = {state.graph.updated_as.get(each.job.table, "") for each in state.on_tracks.values()}
            waits = any(asked[name].runs and asked[name].next_us <= now_us for name in known & model.known.keys())
            waits = waits or next(asked.released(self._can_start), None) is not None
            if len(state.on_tracks) >= state.tracks or waits:
                return
            self._unclean, self._clean_us = False, now_us
        bounds = self.bounds()
        again = []
        for name in model.known:
            if name not in state.void or name not in bounds or not self._is_well(name, model, now_us):
                continue
            above = [self._since_us.get(source, 0) for source in model.sources.get(name, ())]
            if any(source in state.void and source not in again for source in model.sources.get(name, ())):
                continue
            begin = max([self._clean_us, self._broke_us.get(name, 0), *above])
            if self._is_fresh(name) or self._took_all.get(name, -1) >= begin:
                self._since_us[name] = now_us
                again.append(name)
        if again:
            yield GuaranteeRenewed(now_us, tuple(again))

    def _is_fresh(self, name: str) -> bool:
        state = self.controller.state
        return all(
            state.tables[each].edge_us is not None and lag_us(state.graph, state.tables[each]) <= 1
            for each in state.graph.grouped_with(name)
        )

    def _is_well(self, name: str, model: Model, now_us: int) -> bool:
        """Whether what concerns the table alone is as assumed."""
        state = self.controller.state
        bound = self.bounds()[name]
        for each in state.graph.grouped_with(name):
            table = state.tables[each]
            stale = table.edge_us is None or now_us - table.edge_us > bound.staleness_us
            if stale or table.failed or table.retry_at_us is not None or state.paused(table) is not None:
                return False
        known = state.feeds.get(state.graph.tables[name].feed or "")
        if known is not None and known.out_since_us is not None:
            return False
        delivery, last = model.deliveries.get(name), self._last_file_us(name)
        if delivery is None:
            return True
        return last is not None and now_us - last <= (1 + _LATE) * delivery.period_us + delivery.jitter_us
