"""The graph of tables: who reads whom, in which order, and what follows from that for each table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from functools import cached_property

from penstock.model.freshness import uncut
from penstock.model.grain import WHOLE
from penstock.model.relations import SAME, PartitionMap
from penstock.model.tables import AUTO, DEFAULT_PERIOD_US, Edge, Feed, Table

# More tables than these are not made to start together.
MOST_TOGETHER = 512


class CycleError(ValueError):
    def __init__(self, path: list[str]) -> None:
        super().__init__("tables depend on each other in a circle: " + " -> ".join(path))
        self.path = path


class Graph:
    """Immutable after construction. A table may read its own earlier partitions; any other cycle is an error."""

    def __init__(
        self, feeds: Iterable[Feed], tables: Iterable[Table], learned_us: Mapping[str, int] | None = None
    ) -> None:
        self.feeds = {feed.name: feed for feed in feeds}
        # Of feeds whose period nobody said, the one that was learned.
        self.learned_us = {
            name: us for name, us in (learned_us or {}).items() if name in self.feeds and self.feeds[name].guessed
        }
        self.tables = {table.name: table for table in tables}
        self.out: dict[str, list[Edge]] = {name: [] for name in self.tables}
        self.into: dict[str, list[Edge]] = {name: [] for name in self.tables}
        self.fed_by: dict[str, list[str]] = {name: [] for name in self.feeds}
        for table in self.tables.values():
            if table.feed is not None:
                self.fed_by[table.feed].append(table.name)
            for source in table.sources:
                edge = Edge(
                    source.table,
                    table.name,
                    PartitionMap(source.relation, self.tables[source.table].grain, table.grain),
                    source.waits,
                )
                self.out[source.table].append(edge)
                self.into[table.name].append(edge)
        self.followers: dict[str, tuple[str, ...]] = {}
        for table in self.tables.values():
            if table.leader is not None:
                self.followers[table.leader] = (*self.followers.get(table.leader, ()), table.name)
        self.order = self._topological()

    def _topological(self) -> tuple[str, ...]:
        waiting = {
            name: sum(edge.source != name for edge in self.into[name]) + (table.leader is not None)
            for name, table in self.tables.items()
        }
        ready = sorted(name for name, count in waiting.items() if not count)
        order: list[str] = []
        while ready:
            name = ready.pop()
            order.append(name)
            below = (edge.table for edge in self.out[name] if edge.table != name)
            # One job makes them all: who reads a follower comes after the leader, too.
            for each in (*below, *self.followers.get(name, ())):
                waiting[each] -= 1
                if not waiting[each]:
                    ready.append(each)
        if len(order) < len(self.tables):
            raise CycleError(self._cycle({name for name, count in waiting.items() if count}))
        return tuple(order)

    def _cycle(self, among: set[str]) -> list[str]:
        path = [min(among)]
        while True:
            before = min(e.source for e in self.into[path[-1]] if e.source in among and e.source != path[-1])
            if before in path:
                return [before, *reversed(path[path.index(before) :])]
            path.append(before)

    def made_with(self, name: str) -> tuple[str, ...]:
        """The tables that a job of this one makes: itself, and those that follow it."""
        return (name, *self.followers.get(name, ()))

    @cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The tables of each group, by name: none of them is made from another, so that any order will do."""
        found: dict[str, list[str]] = {}
        for name in sorted(self.tables):
            group = self.tables[name].group
            if group is not None:
                found.setdefault(group, []).append(name)
        return {group: tuple(names) for group, names in found.items()}

    def grouped_with(self, name: str) -> tuple[str, ...]:
        """The tables of a table's group, itself among them; just itself if it is in none."""
        table = self.tables.get(name)
        return (name,) if table is None or table.group is None else self.groups[table.group]

    @cached_property
    def updated_as(self) -> dict[str, str]:
        """By whose name the updates of each table are planned: those of a group are one job, and so is what follows a
        leader."""
        return {name: self.grouped_with(table.leader or name)[0] for name, table in self.tables.items()}

    @cached_property
    def planned_as(self) -> dict[str, str]:
        """The same, of those tables that are updated on our tracks: what others make is not planned by us."""
        return {name: known for name, known in self.updated_as.items() if not self.tables[name].external}

    @cached_property
    def updated_with(self) -> dict[str, tuple[str, ...]]:
        """The other way round: the tables whose updates are planned, each with the others that it stands for."""
        found: dict[str, list[str]] = {name: [] for name in self.order if self.planned_as.get(name) == name}
        for name in self.planned_as:
            if self.updated_as[name] != name:
                found[self.updated_as[name]].append(name)
        return {name: tuple(others) for name, others in found.items()}

    @cached_property
    def updated_every_us(self) -> dict[str, int]:
        """The period of each update that is planned: the shortest of the tables that it makes."""
        return {
            name: min(self.periods_us[each] for each in (name, *others)) for name, others in self.updated_with.items()
        }

    @cached_property
    def rank(self) -> dict[str, int]:
        """Of each table its place in the order: each comes after all that it is made from."""
        return {name: place for place, name in enumerate(self.order)}

    @cached_property
    def ancestors(self) -> dict[str, frozenset[str]]:
        """Of each table, all tables that it is made from, directly or not; not itself."""
        found: dict[str, frozenset[str]] = {}
        for name in self.order:
            above = {edge.source for edge in self.into[name]} - {name}
            found[name] = frozenset(above.union(*(found[source] for source in above)))
        return found

    @cached_property
    def origins(self) -> dict[str, frozenset[str]]:
        """Of each table, the tables that it is made from and that have no sources themselves; of such a one, itself."""
        return {
            name: frozenset({name})
            if self.tables[name].is_origin
            else frozenset(above for above in self.ancestors[name] if self.tables[above].is_origin)
            for name in self.order
        }

    @cached_property
    def restated(self) -> dict[str, frozenset[str]]:
        """Of tables that are made from some that are restated at known times, which those are."""
        found: dict[str, frozenset[str]] = {}
        known = {name for name, table in self.tables.items() if table.restated}
        for name in self.order if known else ():
            above = {edge.source for edge in self.into[name]} - {name}
            all_ = (known & above).union(*(found.get(source, frozenset()) for source in above))
            if all_:
                found[name] = frozenset(all_)
        return found

    @cached_property
    def tightest(self) -> dict[str, int]:
        """Of each table the tightest freshness target of it and all that are made from it, where there is one."""
        found: dict[str, int] = {}
        for name in reversed(self.order):
            below = [found[edge.table] for edge in self.out[name] if edge.table in found]
            own = self.tables[name].target_us
            if below or own is not None:
                found[name] = min(below if own is None else [*below, own])
        return found

    @cached_property
    def together(self) -> dict[str, tuple[str, ...]]:
        """Of tables whose reasons to update are collected as long as targets allow, those that are collected with it: none of them
        is made from the other, and both have the tightest target of any table below them in common."""
        collects = [
            name
            for name in self.order
            if name in self.tightest
            and (
                self.tables[name].queue_us == AUTO
                or (self.tables[name].is_base and self.tables[name].patience_us and not self.tables[name].queue_us)
            )
        ]
        by_target: dict[str, list[str]] = {}
        for name in collects:
            for each, table in self.tables.items() if len(collects) > 1 else ():
                if table.target_us == self.tightest[name] and (each == name or name in self.ancestors[each]):
                    by_target.setdefault(each, []).append(name)
        found: dict[str, set[str]] = {}
        for names in by_target.values():
            for name in names if len(names) <= MOST_TOGETHER else ():
                others = {other for other in names if name not in self.ancestors[other]} - {name}
                found.setdefault(name, set()).update(others - self.ancestors[name])
        return {name: tuple(sorted(others)) for name, others in found.items() if others}

    @cached_property
    def collected(self) -> frozenset[str]:
        """Tables all changes of whose sources are collected further up, for the sake of the same tightest target."""
        found: set[str] = set()
        for name in self.order:
            sources = {edge.source for edge in self.into[name]} - {name}
            if sources and all(
                (source in found or self.tables[source].queue_us == AUTO)
                and self.tightest.get(source) == self.tightest.get(name)
                for source in sources
            ):
                found.add(name)
        return frozenset(found)

    @cached_property
    def has_time(self) -> dict[str, bool]:
        """Whether the rows of a table have event times. One that does has an edge, which holds back its readers; one that does not
        (a snapshot without partitions, a feed without event times, views over only such) is simply as it is now."""
        found: dict[str, bool] = {}
        for name in self.order:
            table = self.tables[name]
            if table.feed is not None:
                feed = self.feeds[table.feed]
                found[name] = feed.timed and not (feed.mode == "snapshot" and table.grain is WHOLE)
            elif table.is_origin:
                found[name] = bool(table.time) or table.grain is not WHOLE
            else:
                found[name] = any(found[edge.source] and edge.waits for edge in self.into[name] if edge.source != name)
        return found

    def holds(self, edge: Edge) -> bool:
        """Whether the time of a source holds a reader back, and its later rows are cut off: not if the source has none, or
        the reader does not want to wait for it."""
        return edge.waits and self.has_time[edge.source]

    @cached_property
    def fluid(self) -> dict[str, bool]:
        """Whether old partitions of a table change as time goes on: a life-time roll-up is one partition, the share of
        an hour in its day changes all day. Such a table cannot be cut at a time, so it is read as it is."""
        return {
            name: self.has_time[name]
            and not (table.is_origin or table.exact_time)
            and not all(e.map.confined for e in self.into[name] if e.source != name and self.holds(e))
            for name, table in self.tables.items()
        }

    @cached_property
    def final(self) -> dict[str, bool]:
        """Whether a table may say "complete up to": all its rows with an earlier time are in. One whose rows of any time may
        come from source rows of any other time can only say up to when what it is made from is complete."""
        found: dict[str, bool] = {}
        for name in self.order:
            table = self.tables[name]
            into = [edge for edge in self.into[name] if edge.source != name and self.holds(edge)]
            own = table.grain is WHOLE or table.exact_time or table.aligned
            found[name] = self.has_time[name] and all(found[e.source] and (own or e.map.confined) for e in into)
        return found

    @cached_property
    def uncut(self) -> frozenset[tuple[str, str]]:
        """The pairs (source, reader) where the source is a roll-up that cannot be cut for the reader."""
        found = []
        for name in self.order:
            rolled_up = [e for e in self.into[name] if e.source != name and e.waits and self.is_rolled_up(e.source)]
            grains = [edge.map.source for edge in rolled_up]
            found += [
                (e.source, name)
                for e in rolled_up
                if (e.source, name) in self.optional or uncut(e.map.source, e.map.table, grains)
            ]
        return frozenset(found)

    @cached_property
    def stepped(self) -> frozenset[str]:
        """The tables that go on from boundary to boundary of a roll-up, while another of their sources is behind it."""
        return frozenset(
            name
            for name in self.order
            if sum(edge.source != name and self.holds(edge) for edge in self.into[name]) > 1
            and any(
                edge.waits and self.is_rolled_up(edge.source) and (edge.source, name) not in self.uncut
                for edge in self.into[name]
                if edge.source != name
            )
        )

    @cached_property
    def optional(self) -> frozenset[tuple[str, str]]:
        """The pairs (source, reader) where the reader goes on without the source; it waits for one of them at least."""
        found: set[tuple[str, str]] = set()
        for name, table in self.tables.items():
            if table.optional:
                mine = {edge.source: edge for edge in self.into[name] if edge.source != name}
                waited = {
                    one for one in mine.keys() - {*table.optional} if self.holds(mine[one]) == self.has_time[name]
                }
                found.update((source, name) for source in table.optional if source in mine and waited)
        return frozenset(found)

    def is_rolled_up(self, name: str) -> bool:
        """Whether a table has rows of whole partitions, not of single moments."""
        table = self.tables[name]
        return self.has_time[name] and not table.is_origin and not table.exact_time

    @cached_property
    def folds(self) -> dict[str, frozenset[str]]:
        """Of each table the sources whose appended rows may be added to what it has: it says so, they have times, a partition
        that it begins has no older rows, and what is looked up does not grow as time goes on."""
        found: dict[str, frozenset[str]] = {}
        for name, table in self.tables.items():
            into = self.into[name]
            new = [edge for edge in into if edge.source not in table.looked_up and edge.source != name]
            possible = table.foldable and all(
                self.holds(edge) and (table.grain is WHOLE or (edge.map.relation == SAME and edge.map.confined))
                if edge in new
                else not self.holds(edge)
                for edge in into
            )
            found[name] = frozenset(edge.source for edge in new) if possible else frozenset()
        return found

    @cached_property
    def chained(self) -> frozenset[str]:
        """Tables that read their own earlier partitions."""
        return frozenset(name for name in self.tables if any(edge.source == name for edge in self.into[name]))

    def with_learned(self, feed: str, period_us: int) -> Graph:
        """The same graph, where it is known now how often a feed delivers."""
        other = copy(self)
        other.learned_us = {**self.learned_us, feed: period_us}
        for name in ("periods_us", "updated_every_us"):  # all that follows from periods
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def periods_us(self) -> dict[str, int]:
        """Of each table its own period or that of its feed (as it was learned if nobody said it), else the largest of its ancestors: of those that hold it back, if any
        does. What is read as it is does not say how often there is something new."""
        periods: dict[str, int] = {}
        for name in self.order:
            table = self.tables[name]
            if table.period_us is not None:
                periods[name] = table.period_us
            elif table.feed is not None:
                periods[name] = self.learned_us.get(table.feed, self.feeds[table.feed].period_us)
            else:
                above = [edge for edge in self.into[name] if edge.source != name]
                above = [edge for edge in above if self.holds(edge)] or above
                periods[name] = max((periods[edge.source] for edge in above), default=DEFAULT_PERIOD_US)
        return periods

    @cached_property
    def inherited(self) -> dict[str, float]:
        """Of each table the largest priority among itself and everything made from it (Golab et al., Sec. 3.3)."""
        found: dict[str, float] = {}
        for name in reversed(self.order):
            below = [found[edge.table] for edge in self.out[name] if edge.table != name]
            found[name] = max(self.tables[name].priority, *below, 0.0)
        return found
