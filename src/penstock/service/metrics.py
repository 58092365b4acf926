"""Metrics in the text format of Prometheus: how queries end, how satisfied their askers are, how long they wait, how stale tables
are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from penstock.control.status import TableStatus
from penstock.engine.front import Front
from penstock.engine.tallies import BUCKETS_S
from penstock.model.time import SECOND_US

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


def metrics(front: Front, tables: Iterable[TableStatus]) -> str:
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
    _latencies(front, lines)
    rows = list(tables)
    stale = [({"table": row.table}, row.staleness_us / SECOND_US) for row in rows if row.staleness_us is not None]
    add("table_staleness_seconds", "gauge", "Now minus the time up to which a table is complete.", stale)
    met = [({"table": row.table}, float(row.met)) for row in rows if row.met is not None]
    add("table_within_target", "gauge", "Whether a table meets its freshness target.", met)
    add("table_updates_total", "counter", "Updates of a table.", [({"table": row.table}, row.updates) for row in rows])
    waiting = [({"table": row.table}, row.pending_files + row.pending_partitions) for row in rows]
    add("table_pending", "gauge", "Files and partitions that wait for an update.", waiting)
    return "\n".join(lines) + "\n"


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
