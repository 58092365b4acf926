"""Metrics in the text format of Prometheus: how queries end, how satisfied their askers are, how long they wait, how stale tables
are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from penstock.control.views.health import HEALTHS
from penstock.control.views.savings import Savings
from penstock.control.views.status import Overview
from penstock.engine.desk.feedback import BUCKETS_S
from penstock.engine.desk.front import Front
from penstock.model.time import SECOND_US
from penstock.service.health import Unavailable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]
Add = Callable[[str, str, str, Iterable[Sample]], None]


def availability(parts: Iterable[str], away: Iterable[Unavailable], alive: bool, now_us: int) -> str:
    """What of the world is not available, also when nothing else is known."""
    since = {each.part: (now_us - each.since_us) / SECOND_US for each in away}
    lines = [
        "# HELP penstock_unavailable_seconds For how long a part of the world has not been available; 0 if it is.",
        "# TYPE penstock_unavailable_seconds gauge",
        *(f'penstock_unavailable_seconds{{part="{part}"}} {since.get(part, 0):.10g}' for part in parts),
        "# HELP penstock_available Whether a part of the world is available.",
        "# TYPE penstock_available gauge",
        *(f'penstock_available{{part="{part}"}} {int(part not in since)}' for part in parts),
        "# HELP penstock_loop_alive Whether the loop that keeps the tables fresh runs.",
        "# TYPE penstock_loop_alive gauge",
        f"penstock_loop_alive {int(alive)}",
    ]
    return "\n".join(lines) + "\n"


def metrics(front: Front, seen: Overview, saved: Sequence[Savings], now_us: int) -> str:
    lines: list[str] = []

    def add(name: str, kind: str, help_: str, samples: Iterable[Sample]) -> None:
        lines.extend((f"# HELP penstock_{name} {help_}", f"# TYPE penstock_{name} {kind}"))
        lines.extend(f"penstock_{name}{_labels(labels)} {value:.10g}" for labels, value in samples)

    tallies = front.tallies
    profiles = dict(tallies.satisfaction)
    endings = ("success", "rejected", "missed", "stale")
    add(
        "queries_total",
        "counter",
        "Queries by how they ended.",
        [
            ({"profile": name, "outcome": end}, getattr(tally, end))
            for name, tally in profiles.items()
            for end in endings
        ],
    )
    add("queries_failed_total", "counter", "Queries that Spark could not compute.", [({}, tallies.failed)])
    add("queries_withdrawn_total", "counter", "Queries cancelled by who asked.", [({}, tallies.withdrawn)])
    add("queries_open", "gauge", "Queries under way.", [({"status": k}, v) for k, v in front.status().items()])
    add("query_satisfaction", "gauge", "User satisfaction metric.", [({}, tallies.satisfaction.overall.usm)])
    add(
        "query_satisfaction_profile",
        "gauge",
        "User satisfaction metric of each profile.",
        [({"profile": name}, tally.usm) for name, tally in profiles.items()],
    )
    overall = tallies.satisfaction.overall
    parts = {"S": overall.gained, "R": overall.cost_rejected, "F_m": overall.cost_missed, "F_s": overall.cost_stale}
    add(
        "query_satisfaction_part",
        "gauge",
        "What makes up the user satisfaction metric, per query: gains S less penalties R, F_m, F_s.",
        [({"part": name}, value / max(1, overall.queries)) for name, value in parts.items()],
    )
    add(
        "query_policy",
        "gauge",
        "What the policy of queries tells of itself: price_per_s, or c_flex.",
        [({"figure": name}, value) for name, value in front.figures.items()],
    )
    bands = tallies.reliability.rows()
    add(
        "query_chance",
        "gauge",
        "Of queries that were given about a chance of success: the chance, and the part that succeeded.",
        [
            ({"band": f"{predicted:.1f}", "which": which}, value)
            for _, predicted, came in bands
            for which, value in (("predicted", predicted), ("came", came))
        ],
    )
    _latencies(front, lines)
    rows = seen.tables
    stale = [({"table": row.table}, row.staleness_us / SECOND_US) for row in rows if row.staleness_us is not None]
    add("table_staleness_seconds", "gauge", "Now minus the time up to which a table is complete.", stale)
    met = [({"table": row.table}, float(row.met)) for row in rows if row.met is not None]
    add("table_within_target", "gauge", "Whether a table meets its freshness target.", met)
    add("table_updates_total", "counter", "Updates of a table.", [({"table": row.table}, row.updates) for row in rows])
    fates = ("merged", "duplicates", "joined", "held")
    reasons = [({"table": row.table, "fate": fate}, getattr(row, fate)) for row in saved if row.table for fate in fates]
    reasons += [({"table": row.table, "fate": "all"}, row.reasons) for row in saved if row.table]
    add("table_reasons_total", "counter", "Reasons to update a table, by what became of them.", reasons)
    spared = [({"table": row.table}, row.spared) for row in rows]
    add(
        "table_partitions_spared_total", "counter", "Partitions not made again, as what they read was the same.", spared
    )
    waiting = [({"table": row.table}, row.pending_files + row.pending_partitions) for row in rows]
    add("table_pending", "gauge", "Files and partitions that wait for an update.", waiting)
    _feeds(add, seen, now_us)
    return "\n".join(lines) + "\n"


def _feeds(add: Add, seen: Overview, now_us: int) -> None:
    """Feeds that fall silent, and what follows from it."""
    health = [
        ({"feed": feed.feed, "health": name}, float(feed.health == name)) for feed in seen.feeds for name in HEALTHS
    ]
    add("feed_health", "gauge", "1 for how a feed is: healthy, late, out, paused, learning or not watched.", health)
    last = [
        ({"feed": feed.feed}, (now_us - feed.last_us) / SECOND_US) for feed in seen.feeds if feed.last_us is not None
    ]
    add("feed_last_file_age_seconds", "gauge", "How long ago the last file of a feed came.", last)
    waiting = [({"feed": feed.feed}, feed.waiting_files) for feed in seen.feeds]
    add("feed_waiting_files", "gauge", "Files of a feed that are not loaded yet.", waiting)
    behind = [({"table": one.table}, one.lag_us / SECOND_US) for one in seen.recovery]
    add("table_recovery_lag_seconds", "gauge", "How far a table is behind that recovers from an outage.", behind)
    expected = [({"table": one.table}, one.expected_end_us) for one in seen.recovery]
    add("table_recovery_expected_seconds", "gauge", "When a table should have recovered.", _until(expected, now_us))
    latest = [({"table": one.table}, one.latest_end_us) for one in seen.recovery]
    add("table_recovery_latest_seconds", "gauge", "By when that is proven.", _until(latest, now_us))
    void = [({"table": name}, 1.0) for name in seen.void]
    add("table_guarantee_void", "gauge", "A table of which nothing is promised now; status says why.", void)
    broken = [({"table": one.table, "assumption": one.assumption}, 1.0) for one in seen.violated]
    add(
        "table_bound_violated",
        "gauge",
        "A table that is staler than was proven, and the assumption that failed.",
        broken,
    )


def _until(times: Iterable[tuple[Mapping[str, str], int | None]], now_us: int) -> list[Sample]:
    """In how many seconds, of those times that are known."""
    return [(labels, (at_us - now_us) / SECOND_US) for labels, at_us in times if at_us is not None]


def _latencies(front: Front, lines: list[str]) -> None:
    name = "penstock_query_seconds"
    lines.extend((f"# HELP {name} From arrival to ending.", f"# TYPE {name} histogram"))
    for outcome, histogram in list(front.tallies.latencies.items()):
        sums = list(accumulate(histogram.counts))
        for bound, count in zip([*map(str, BUCKETS_S), "+Inf"], sums, strict=True):
            lines.append(f"{name}_bucket{_labels({'outcome': outcome, 'le': bound})} {count}")
        lines.append(f"{name}_sum{_labels({'outcome': outcome})} {histogram.total_s:.10g}")
        lines.append(f"{name}_count{_labels({'outcome': outcome})} {sums[-1]}")


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = {k: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for k, v in labels.items()}
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"
