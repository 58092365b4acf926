"""In which steps a table goes on, as far as that follows from declarations: what its updates can be cut to, and how much later than its
sources it can be though nothing waits."""

from __future__ import annotations

from penstock.model.grain import WHOLE, Calendar, Fixed, Grain
from penstock.model.graph import Graph
from penstock.model.relations import Everything, PartitionMap, Window, Windows
from penstock.model.tables import ALL, NEW, Table, lengths_us
from penstock.model.time import DAY_US, END_US, format_duration

# A day by the calendar, without the hour that it may have more or less: over a year that evens out.
_SHORTEST = {"day": 1, "week": 7, "month": 28, "quarter": 90, "year": 365}


def cuttable(graph: Graph, name: str) -> bool:
    """Whether an update of a table may take up a part of what is pending for one of its partitions: up to some time. Not where
    nobody said how much comes in a period."""
    table = graph.tables[name]
    alone = table.group is None and table.leader is None and name not in graph.followers
    flows = graph.has_time[name] and not (table.anywhere or graph.fluid[name]) and name not in graph.chained
    feeds = (graph.tables[origin].feed for origin in graph.origins[name])
    guessed = table.period_us is None and any(
        graph.feeds[feed].guessed and feed not in graph.learned_us for feed in feeds if feed is not None
    )
    return not table.is_base and alone and flows and table.when == "continuous" and not guessed


def length_us(table: Table) -> int:
    """The length of a partition as it is usually; none is longer than one that is all there is."""
    if table.grain is WHOLE:
        return END_US
    start = table.grain.floor(0)
    return table.grain.shift(start, 1) - start


def cannot_keep_up(graph: Graph, name: str) -> str:
    """Why the updates of a table may take less than a period of data, or never less than much more, whatever they cost; empty if
    they take what they should."""
    table, period = graph.tables[name], graph.periods_us[name]
    if table.is_base:
        return ""
    if table.propagate != ALL and NEW not in table.propagate:
        return f"`{name}` does not take up new rows by itself (`propagate`)"
    if name in graph.chained:
        return f"`{name}` reads its own earlier partitions: one that is made again is in the way of what is new"
    often, per = format_duration(period), table.partition
    if cuttable(graph, name):
        if table.chop is not None and table.grain is not WHOLE and table.chop * _shortest_us(table.grain) < period:
            return (
                f"an update of `{name}` makes {table.chop} partitions at most (`chop`), less than its period of {often}"
            )
        return ""
    if table.grain is WHOLE or _shortest_us(table.grain) > period:
        return f"an update of `{name}` makes a whole {per} at least, which is more than its period of {often}: write a period of one {per}"
    many = max(1, period // length_us(table))
    if min(many, table.chop or many) * _shortest_us(table.grain) < period:
        wanted = format_duration(many * _shortest_us(table.grain))
        return f"an update of `{name}` makes whole partitions by {per}, which its period of {often} is no multiple of: write a period of {wanted}"
    return ""


def _shortest_us(grain: Grain) -> int:
    if isinstance(grain, Calendar):
        return _SHORTEST[grain.name] * DAY_US
    return grain.width_us if isinstance(grain, Fixed) else END_US


def _longest_us(grain: Grain) -> int:
    return 0 if grain is WHOLE else lengths_us(grain)[1]


def held_us(graph: Graph, name: str) -> int:
    """How much later than its sources a table can be even if nothing waits: where it only makes whole partitions, where it reads
    what comes after them, and where its sources can only be cut at the ends of theirs."""
    table = graph.tables[name]
    if table.is_base:
        return 0
    into = [edge for edge in graph.into[name] if edge.source != name and graph.holds(edge)]
    ahead = max((_ahead_us(edge.map) for edge in into), default=0)
    own = _longest_us(table.grain)
    if table.when == "closed":
        return ahead + own
    if name in graph.stepped:
        rolled_up = [_longest_us(edge.map.source) for edge in into if graph.is_rolled_up(edge.source)]
        ahead += own or max(rolled_up, default=0)
    if not cuttable(graph, name):
        return ahead + own  # the first of several steps may end with a partition
    if table.chop is not None and table.chop * own < graph.periods_us[name] + own:
        return ahead + graph.periods_us[name]
    return ahead


def _ahead_us(way: PartitionMap) -> int:
    relation = way.relation
    if isinstance(relation, Windows):
        return max(_ahead_us(PartitionMap(part, way.source, way.table)) for part in relation.parts)
    if isinstance(relation, Everything) or relation.high <= 1 or way.source is WHOLE or way.table is WHOLE:
        return 0
    assert isinstance(relation, Window)
    return relation.high * _longest_us(relation.unit or way.table) + _longest_us(way.table)
