"""Random graphs for requests, and a checker that knows nothing of how they are merged.

The checker follows single partitions with bit masks: bit k of `all` says that change k has come to the partition by every
way that leads there, bit k of `any` that it has come by some way. It sees only what a driver reports: changes, starts,
publications.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from penstock.model.grain import parse_grain
from penstock.model.graph import Graph
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.relations import SAME, Relation, Window, Windows
from penstock.model.tables import Feed, Source, Table, source_of
from penstock.model.time import DAY_US

Key = tuple[str, int]
DAY = parse_grain("day")
WINDOWS: list[Relation] = [SAME, SAME, SAME, Window(-1, 0), Window(-2, 0), Window(-1, 1)]
WINDOWS.append(Windows((Window(-2, -1), SAME)))  # with a hole


class Wrong(AssertionError):
    """The checker caught something."""


@dataclass
class Shape:
    """A graph, and its partitions one by one."""

    graph: Graph
    days: int
    partitions: dict[str, list[int]] = field(default_factory=dict)
    inputs: dict[Key, list[Key]] = field(default_factory=dict)
    readers: dict[Key, list[Key]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.graph
        for name, table in graph.tables.items():
            self.partitions[name] = [0] if table.partition == "none" else list(range(self.days))
        for name in graph.order:
            for n in self.partitions[name]:
                read: list[Key] = []
                for edge in graph.into[name]:
                    relation = edge.map.relation
                    if graph.tables[edge.source].partition == "none" or graph.tables[name].partition == "none":
                        read += [(edge.source, m) for m in self.partitions[edge.source]]
                    else:
                        parts = relation.parts if isinstance(relation, Windows) else [relation]
                        around = [(p.low, p.high) if isinstance(p, Window) else (-self.days, self.days) for p in parts]
                        read += [
                            (edge.source, m)
                            for m in self.partitions[edge.source]
                            if any(n + low <= m < n + high for low, high in around)
                        ]
                self.inputs[name, n] = read
                for key in read:
                    self.readers.setdefault(key, []).append((name, n))

    def extent(self, name: str) -> PartitionSet:
        whole = self.graph.tables[name].partition == "none"
        return EVERYTHING if whole else PartitionSet(((0, self.days * DAY_US),))

    def set_of(self, name: str, numbers: list[int]) -> PartitionSet:
        if self.graph.tables[name].partition == "none":
            return EVERYTHING
        return PartitionSet.of(*((n * DAY_US, (n + 1) * DAY_US) for n in numbers))

    def numbers(self, name: str, partitions: PartitionSet) -> list[int]:
        if self.graph.tables[name].partition == "none":
            return [0]
        return [n for start, end in partitions for n in range(start // DAY_US, end // DAY_US)]

    def reached(self, name: str, numbers: list[int]) -> set[Key]:
        found = {(name, n) for n in numbers}
        new = list(found)
        while new:
            for key in self.readers.get(new.pop(), ()):
                if key not in found:
                    found.add(key)
                    new.append(key)
        return found


def random_shape(rng: Random, *, whole: bool = False) -> Shape:
    days = rng.choice([2, 3, 3, 4])
    partition = "none" if whole or rng.random() < 0.4 else "day"
    tables: list[Table] = []
    for n in range(rng.choice([3, 4, 4, 5, 6])):
        own = "none" if partition == "none" or rng.random() < 0.15 else "day"
        if n < 2 and rng.random() < 0.7:
            tables.append(Table(f"t{n}", own, feed="f"))
            continue
        if not tables:
            tables.append(Table(f"t{n}", own, feed="f"))
            continue
        sources = []
        for source in rng.sample(tables, min(len(tables), rng.choice([1, 2, 2, 3]))):
            everything = "none" in (own, source.partition)
            sources.append(source_of(source.name, None if everything else rng.choice(WINDOWS), DAY))
        if own == "day" and rng.random() < 0.2:
            sources.append(Source(f"t{n}", rng.choice([(-1, 0), (-2, 0), (-2, -1)])))
        tables.append(Table(f"t{n}", own, sources=tuple(sources)))
    rng.shuffle(tables)  # in which order they are declared must not matter
    return Shape(Graph([Feed("f")], tables), days)


@dataclass
class Made:
    publication: int
    all: int
    any: int
    read: tuple[int, ...]


class Checker:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.cover: dict[Key, int] = {}
        self.origin: dict[Key, int] = {}
        self.own: dict[Key, int] = {}
        self.versions: dict[Key, list[Made]] = {}
        self.writing: set[Key] = set()
        self.changes = 0
        self.updates = 0

    def changed(self, name: str, numbers: list[int]) -> int:
        """A new change; its number."""
        bit = 1 << self.changes
        self.changes += 1
        for key in self.shape.reached(name, numbers):
            self.cover[key] = self.cover.get(key, 0) | bit
        for n in numbers:
            self.origin[name, n] = self.origin.get((name, n), 0) | bit
        return self.changes - 1

    def started(self, name: str, numbers: list[int]) -> None:
        for n in numbers:
            if (name, n) in self.writing:
                raise Wrong(f"two writers of {name}[{n}]")
            self.writing.add((name, n))

    def gave_up(self, name: str, numbers: list[int]) -> None:
        self.writing.difference_update((name, n) for n in numbers)

    def published(
        self,
        name: str,
        own: dict[int, int],
        pin: int,
        publication: int,
        *,
        excused: Callable[[Key, int], bool] = lambda key, missing: False,
        new: bool = True,
    ) -> None:
        """Partitions of a table were made from everything as of `pin` and from these changes of their own. Some of what had come
        by one way only may be `excused`."""
        self.gave_up(name, list(own))
        made = {}
        for n, brought in own.items():
            key = (name, n)
            self.updates += 1
            mine = self.own[key] = self.own.get(key, 0) | (brought & self.origin.get(key, 0))
            submitted = (1 << self.changes) - 1
            everywhere, somewhere, read = mine | submitted & ~self.origin.get(key, 0), mine, []
            for source in self.shape.inputs[key]:
                version = self.version(source, pin)
                read.append(version.publication)
                everywhere &= version.all | ~self.cover.get(source, 0)
                somewhere |= version.any
            made[key] = Made(publication, everywhere, somewhere, tuple(read))
        for key, version in made.items():
            self._check(key, version, excused, new)
            self.versions.setdefault(key, []).append(version)

    def version(self, key: Key, pin: int) -> Made:
        for version in reversed(self.versions.get(key, ())):
            if version.publication <= pin:
                return version
        return Made(0, 0, 0, ())

    def _check(self, key: Key, version: Made, excused: Callable[[Key, int], bool], new: bool) -> None:
        before = self.version(key, 1 << 60)
        cover = self.cover.get(key, 0)
        if any(new < old for new, old in zip(version.read, before.read, strict=False)):
            raise Wrong(f"{key} was made from older inputs than its predecessor")
        if before.all & cover & ~version.all:
            raise Wrong(f"{key} lost a change that it had")
        by_one = version.any & cover & ~version.all
        if by_one and not excused(key, by_one):
            raise Wrong(f"{key} has a change by one way only: it will be made again for it")
        if new and not version.all & ~before.all & cover:
            raise Wrong(f"{key} was made again for nothing new")

    def at_rest(self) -> None:
        if self.writing:
            raise Wrong("something still runs")
        for key, cover in self.cover.items():
            version = self.version(key, 1 << 60)
            if cover & ~version.all:
                raise Wrong(f"{key} lacks a change at rest")
            # Vertical consistency: made from the versions that its inputs have now, as far as changes reached them.
            for source, read in zip(self.shape.inputs[key], version.read, strict=True):
                now = self.version(source, 1 << 60).publication
                if read != now:
                    raise Wrong(f"{key} was made from an old version of {source}")
        # Horizontal consistency follows: whoever reads the same source has read the same, its newest, version.
