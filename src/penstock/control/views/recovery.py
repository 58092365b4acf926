"""What is proven of the warehouse as it is: by the policy that is set, with its arguments, and the costs that it goes by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from penstock.control.feeds import FeedState, Recovering
from penstock.control.outlook import LearnedCosts
from penstock.control.state import State
from penstock.model.cost import ENOUGH, CostModel
from penstock.model.graph import Graph
from penstock.model.steps import cannot_keep_up
from penstock.model.time import END_US, SECOND_US, format_duration
from penstock.requests.tablestate import TableState, lag_us
from penstock.scheduling.policies import find_policy
from penstock.scheduling.recovery.bounds import Model
from penstock.scheduling.recovery.guarantees import (
    BoundsReport,
    Certainty,
    Ground,
    Observed,
    Violation,
    judge,
    violations,
)
from penstock.scheduling.recovery.policy import Adaptive
from penstock.scheduling.recovery.reservations import Change, changed, declared_cost_us

# An update that takes so many times its longest time hangs: its track is lost.
_LOST_AFTER = 5
# What is shown of a warehouse whose policy keeps nothing free for anyone.
_INSTEAD = "adaptive"


class Learned(NamedTuple):
    """What is known of costs: as much of the state as an outlook needs."""

    graph: Graph
    costs: Mapping[str, CostModel]

    def cost_of(self, name: str) -> CostModel:
        return self.costs.get(self.graph.updated_as[name]) or CostModel()


@dataclass(frozen=True)
class Assumed:
    """What the bounds of a warehouse are computed from."""

    policy: Adaptive
    outlook: LearnedCosts
    model: Model
    ground: Ground
    # By table, or group by the name of its first: declared, learned, or not known.
    known: Mapping[str, str]
    tracks: int
    graph: Graph
    feeds: Mapping[str, FeedState]

    def remake(self, change: Change) -> Model:
        model = self.policy.model(self.tracks, self.outlook, fit=False, change=change)
        if change.period_us is None:
            return model
        # With another period its partitions may be too long for it.
        never = dict.fromkeys(doubts(changed(self.graph, change), self.feeds), END_US)
        return replace(model, held_us={**model.held_us, **never})


def adaptive(policy: str) -> Adaptive | None:
    """The policy that is set, if it is one of which something is proven."""
    found = find_policy(policy)
    return found if isinstance(found, Adaptive) else None


def assumed(
    graph: Graph,
    learned: Mapping[str, CostModel],
    tracks: int,
    policy: str = _INSTEAD,
    *,
    feeds: Mapping[str, FeedState] | None = None,
    cores: int | None = None,
) -> Assumed:
    """`cores` are those of the machine, if its tracks share them; `feeds` what was learned of these."""
    own = adaptive(policy)
    found = (own or Adaptive()).for_graph(graph)
    outlook = LearnedCosts(Learned(graph, learned))
    known = {name: how_known(graph, learned.get(name), name) for name in graph.updated_with}
    model = found.model(tracks, outlook, fit=False)
    doubt, remedies = "", tuple[str, ...]()
    if own is None:
        doubt = f'policy = "{policy}" keeps no track free for anyone; the figures are those of policy = "{_INSTEAD}"'
        remedies = (f'policy = "{_INSTEAD}"',)
    ground = Ground(
        *_certainty(graph, learned, known, found, tracks, cores),
        frozenset(name for name, how in known.items() if how == "not known"),
        doubts(graph, feeds or {}),
        doubt,
        remedies,
    )
    return Assumed(found, outlook, model, ground, known, tracks, graph, feeds or {})


def assumed_of(state: State) -> Assumed:
    """The same of the warehouse that runs, as it was declared there."""
    learned = {name: table.cost for name, table in state.tables.items()}
    return assumed(state.graph, learned, state.tracks, state.policy, feeds=state.feeds, cores=state.cores)


def how_known(graph: Graph, cost: CostModel | None, name: str) -> str:
    """Where the cost of an update is from."""
    if declared_cost_us(graph, name) is not None:
        return "declared"
    return "learned" if cost is not None and cost.weight > 0 else "not known"


def _certainty(
    graph: Graph,
    learned: Mapping[str, CostModel],
    known: Mapping[str, str],
    policy: Adaptive,
    tracks: int,
    cores: int | None,
) -> tuple[Certainty, tuple[str, ...]]:
    """How sure the bounds are, and what they rest on."""
    certainty: Certainty = "proven"
    feeds = ", ".join(
        f"{name} every {format_duration(feed.period_us)}"
        + (f" (up to {format_duration(feed.jitter_us)} early or late)" if feed.jitter_us else "")
        for name, feed in graph.feeds.items()
        if graph.fed_by[name] and not feed.guessed
    )
    said = [f"files come as declared ({feeds})"] if feeds else []
    from_updates = {name: len(learned[name].ratios) for name, how in known.items() if how == "learned"}
    if from_updates:
        fewest = min(from_updates, key=lambda name: from_updates[name])
        many, least = len(from_updates), from_updates[fewest]
        if least >= ENOUGH:
            certainty = "expected"
            said.append(
                f"costs of {many} tables are learned: of each at most one update in {_one_in(least)} takes longer than said "
                f"(95 % sure; {least} updates of `{fewest}` were seen, of others at least as many)"
            )
        else:
            certainty = "assumed"
            said.append(
                f"costs of {many} tables are learned, and {least} updates of `{fewest}` say too little: "
                f'{ENOUGH} are needed, or declare them, for example cost = "20s"'
            )
    if any(how == "declared" for how in known.values()):
        said.append("no update takes longer than its declared cost, also while all tracks work")
    if policy.provision == "average":
        certainty = "assumed"
        said.append("updates take what they take on average, so the bounds hold on average only")
    if cores is not None and tracks > cores:
        certainty = "assumed"
        said.append(
            f"{tracks} updates at once on {cores} core{'s' * (cores > 1)} take no longer than they do now; "
            "nobody has seen that"
        )
    said.append(f"all {tracks} tracks work" if tracks > 1 else "the track works")
    return certainty, tuple(said)


def _one_in(updates: int) -> int:
    """If none of so many was longer, at most one in so many is, with 95 % confidence."""
    return int(1 / (1 - 0.05 ** (1 / updates)))


def doubts(graph: Graph, feeds: Mapping[str, FeedState]) -> dict[str, str]:
    """Tables of which nothing can be proven, whatever they cost."""
    found = {}
    for name in graph.updated_with:
        for each in graph.grouped_with(name):
            table = graph.tables[each]
            if not graph.has_time[each]:
                found[name] = f"`{each}` has no event times, so nobody can say how far behind it is"
            elif table.feed is not None and graph.feeds[table.feed].guessed:
                heard = feeds.get(table.feed)
                rhythm = heard.heard.rhythm() if heard is not None else None
                often = f', for example period = "{format_duration(rhythm.period_us)}"' if rhythm is not None else ""
                found[name] = f"nobody declared how often files of feed `{table.feed}` come: write its period{often}"
            elif table.external:
                found[name] = f"`{each}` is made outside, and nobody knows how long that takes"
            elif why := cannot_keep_up(graph, each):
                found[name] = why
    return found


def guarantees(
    graph: Graph,
    learned: Mapping[str, CostModel],
    tracks: int,
    policy: str = _INSTEAD,
    *,
    outage_us: int | None = None,
    feeds: Mapping[str, FeedState] | None = None,
    cores: int | None = None,
) -> tuple[BoundsReport, Model]:
    found = assumed(graph, learned, tracks, policy, feeds=feeds, cores=cores)
    targets = {name: table.target_us for name, table in graph.tables.items() if table.target_us is not None}
    report = judge(
        found.model,
        targets,
        found.known,
        found.ground,
        provision=found.policy.provision,
        outage_us=outage_us,
        followers=graph.updated_with,
        remake=found.remake,
        most_tracks=cores,
    )
    return report, found.model


def broken(state: State, found: Assumed, now_us: int) -> list[Violation]:
    """Bounds of the adaptive policy that do not hold while it runs, with the assumption that failed. What someone paused is
    expected to be behind."""
    if state.owner is None or found.ground.doubt or found.ground.unknown:
        return []
    model = found.model
    seen = {name: _seen(state, name, now_us) for name in state.graph.updated_with}
    paused = {name for name, table in state.tables.items() if state.paused(table) is not None}
    return [
        each
        for each in violations(model, seen, state.tracks, hanging(state, model, now_us))
        if not any(paused & (state.graph.ancestors[one] | {one}) for one in state.graph.grouped_with(each.table))
    ]


def violated(state: State, now_us: int) -> list[Violation]:
    """The same for what is known now."""
    if state.owner is None or adaptive(state.policy) is None:
        return []
    return broken(state, assumed_of(state), now_us)


def hanging(state: State, model: Model, now_us: int) -> dict[int, str]:
    """Tracks that do not come back from an update: each with what it is at."""
    costs = {task.table: max(task.cost_us, model.merged_us.get(task.table, 0)) for task in model.tasks}
    found = {}
    for track, running in state.on_tracks.items():
        table = state.graph.updated_as.get(running.job.table, running.job.table)
        assumed = costs.get(table, max(costs.values(), default=0))
        lasts = now_us - running.started_us
        if lasts > _LOST_AFTER * assumed:
            found[track] = (
                f"track {track} has been at `{running.job.table}` for {format_duration(lasts)}, "
                f"at most {format_duration(assumed)} was assumed"
            )
    return found


def _seen(state: State, name: str, now_us: int) -> Observed:
    """Of a table, or of the worst of a group."""
    found = [_seen_of(state.tables[each], now_us) for each in state.graph.grouped_with(name)]
    return Observed(
        *(max(part) for part in zip(*((s.staleness_us, s.took_us, s.silent_us) for s in found), strict=True))
    )


def _seen_of(table: TableState, now_us: int) -> Observed:
    took = 0
    if table.last is not None and table.last_finished_us is not None and table.last.job.kind != "upkeep":
        took = table.last_finished_us - table.last.started_us
    arrivals = [file.arrived_us for file in table.files.values()]
    if table.last_arrival_us is not None:
        arrivals.append(table.last_arrival_us)
    silent = now_us - max(arrivals) if arrivals else 0
    return Observed(0 if table.edge_us is None else now_us - table.edge_us, took, silent)


@dataclass(frozen=True, slots=True)
class Recovery:
    table: str
    feed: str
    cause: str
    # How long nothing came, or was loaded, and when that was over.
    outage_us: int
    since_us: int
    lag_us: int
    pending_files: int
    # None: costs are not known yet, or it will not catch up by itself.
    expected_end_us: int | None
    # None: nothing is proven.
    latest_end_us: int | None


def recoveries(state: State, now_us: int | None = None) -> list[Recovery]:
    """Tables that catch up, in the order in which changes travel. Not those that wait for a feed that someone paused."""
    if not state.recovering:
        return []
    now = max(state.now_us, now_us or 0)
    paused = {name for name, table in state.tables.items() if state.paused(table) is not None}
    shown = [
        name
        for name in state.graph.order
        if name in state.recovering and not paused & (state.graph.ancestors[name] | {name})
    ]
    if not shown:
        return []
    lags = _lags(state, shown)
    ends = _expected_ends(state, lags, now)
    latest = _latest_ends(state, shown)
    return [
        _recovery(state, name, state.recovering[name], lags[name], ends.get(name), latest.get(name)) for name in shown
    ]


def _recovery(
    state: State, name: str, cause: Recovering, lag: int, expected_us: int | None, latest_us: int | None
) -> Recovery:
    files = len(state.tables[name].files)
    return Recovery(name, cause.feed, cause.cause, cause.outage_us, cause.since_us, lag, files, expected_us, latest_us)


def _lags(state: State, names: list[str]) -> dict[str, int]:
    """A table is also behind by what its sources have not loaded yet."""
    found: dict[str, int] = {}
    for name in names:
        above = [found[edge.source] for edge in state.graph.into[name] if edge.source in found]
        found[name] = max([lag_us(state.graph, state.tables[name]), *above])
    return found


def _expected_ends(state: State, lags: dict[str, int], now_us: int) -> dict[str, int]:
    """Each table after those that it reads, and none before the tracks have done all that is left. What one job makes is
    counted once, and done together."""
    graph, known = state.graph, state.graph.updated_as
    costs, unknown = _usual_costs(state)
    behind: dict[str, list[str]] = {}
    for name in lags:
        behind.setdefault(known[name], []).append(name)
    if unknown & behind.keys():
        return {}
    shares = {name: costs[name][0] / period for name, period in graph.updated_every_us.items()}
    spare = state.tracks - sum(shares.values())
    if spare <= 0:
        return {}
    one_by_one = adaptive(state.policy) is not None
    ends: dict[str, int] = {}
    total = 0.0
    for name, together in behind.items():
        periods = max(max(1, lags[each] // graph.periods_us[each]) for each in together)
        cost, start_up = costs[name]
        # Other policies take all that has come with one update.
        work = periods * cost if one_by_one else start_up + periods * max(0, cost - start_up)
        total += work
        above = (known[edge.source] for each in together for edge in graph.into[each])
        before = max((ends[source] for source in above if source in ends), default=now_us)
        ends[name] = before + ceil(work / max(1e-6, 1 - min(shares[name], 0.999)))
        ends[name] = max(ends[name], now_us + ceil(total / spare))
    return {name: ends[known[name]] for name in lags}


def _usual_costs(state: State) -> tuple[dict[str, tuple[int, int]], set[str]]:
    """What an update with the data of one period usually takes, and how much of that is start-up; and of whom nobody knows."""
    costs, unknown = {}, set[str]()
    for name in state.graph.updated_with:
        cost, declared = state.cost_of(name), declared_cost_us(state.graph, name)
        if declared is not None:
            costs[name] = declared, 0
        elif cost.weight > 0:
            costs[name] = max(1, ceil(cost.usual_s * SECOND_US)), int(cost.alpha_s * SECOND_US)
        else:
            costs[name] = 1, 0
            unknown.add(name)
    return costs, unknown


def _latest_ends(state: State, names: list[str]) -> dict[str, int]:
    """By when recovery is proven to be over; only for tables of which that is proven."""
    if adaptive(state.policy) is None:
        return {}
    found = assumed_of(state)
    if found.ground.unknown or found.policy.plain or found.ground.certainty != "proven":
        return {}
    # Something else than an outage: until that is over nobody knows.
    if any(name in state.void and state.void[name].counts_beside("table") for name in state.graph.updated_with):
        return {}
    graph, recovering = state.graph, state.recovering
    last = max(recovering[name].since_us for name in names)
    reached: dict[str, int] = {}
    for name in names:
        known = graph.updated_as[name]
        reached[known] = max(last - recovering[name].healthy_us, reached.get(known, 0))
    times = 1 if len({recovering[name].since_us for name in names}) == 1 else 2
    proven = found.model.recovery(reached, times=times)
    ends = {name: proven.latest_us(graph.updated_as[name]) for name in names}
    return {name: last + end for name, end in ends.items() if end is not None}
