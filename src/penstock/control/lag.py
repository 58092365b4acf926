"""How far a table is behind what has come."""

from __future__ import annotations

from penstock.control.tablestate import TableState
from penstock.model.graph import Graph


def lag_us(graph: Graph, table: TableState) -> int:
    """How far a table is behind its trailing edge; 0 if it is fresh. What runs now counts until it has ended."""
    spec, running = table.table, table.running
    loading = () if running is None or running.job.kind == "upkeep" else running.job.files
    if spec.is_base and (table.files or loading):
        period = graph.periods_us[spec.name]
        newest = next(reversed(table.files.values())) if table.files else loading[-1]
        since = 0 if table.last_arrival_us is None else (newest.arrived_us - table.last_arrival_us) // period
        # A file holds a period of data, but after an outage one may hold all that was missed.
        return max(len(table.files) + len(loading), since) * period
    behind = 0
    if not spec.is_base and table.seen_us is not None and graph.has_time[spec.name]:
        behind = max(0, table.seen_us - (table.edge_us if table.edge_us is not None else table.seen_us))
    pending = bool(table.needs) or (running is not None and running.job.kind != "upkeep")
    # Work that does not move the edge, such as a backfill, is work all the same.
    return max(1, behind) if pending else 0
