"""The merge rule as it is printed (Xu, Gao, Davidson 2023, Sec. 3.3 to 3.5), for tables of one partition.

A foil: on random graphs it loses changes and waits for ever, and the checker must see that it does.

* A request is R[input >= version] x origin -> version; the request of an origin demands nothing of its inputs.
* A new request that demands no more than one which waits, runs or ran is dropped.
* Else it is merged with the one that waits: the larger demands; the larger version, plus a delta if something ran before;
  as origin the uppermost common descendant of both.
* A publication demands its version of all inputs that the origin covers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.requests.world import Checker, Wrong, random_shape


@dataclass
class Printed:
    inputs: dict[str, int]
    origin: str
    version: int

    def __le__(self, other: Printed) -> bool:
        return all(version <= other.inputs.get(name, 0) for name, version in self.inputs.items())


@dataclass
class PrintedDriver:
    seed: int
    waiting: dict[str, Printed] = field(default_factory=dict)
    running: dict[str, tuple[Printed, int, int]] = field(default_factory=dict)
    done: dict[str, list[Printed]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    stamp: int = 0
    publication: int = 0

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.shape = random_shape(self.rng, whole=True)
        self.graph = self.shape.graph
        self.checker = Checker(self.shape)
        self.changed: dict[str, int] = {}

    def run(self, changes: int) -> None:
        left = changes
        while left or self.waiting or self.running:
            what = self.rng.random()
            ready = [name for name, request in self.waiting.items() if self.ready(name, request)]
            if left and what < 0.25:
                left -= 1
                self.change()
            elif self.running and what < 0.6:
                self.end()
            elif ready:
                self.start(self.rng.choice(ready))
            elif self.running:
                self.end()
            elif left:
                left -= 1
                self.change()
            else:
                raise Wrong("deadlock: nothing runs and nothing can")
        self.checker.at_rest()

    def change(self) -> None:
        name = self.rng.choice(list(self.graph.tables))
        self.changed[name] = self.changed.get(name, 0) | 1 << self.checker.changed(name, [0])
        self.stamp += 1
        self.ask(name, Printed({}, name, self.stamp))

    def ask(self, name: str, request: Printed) -> None:
        waiting = self.waiting.get(name)
        existing = [*self.done.get(name, ()), *([waiting] if waiting else ())]
        if name in self.running:
            existing.append(self.running[name][0])
        if any(request <= other for other in existing):
            return
        others = existing[-1:] if waiting is None else [waiting]
        for other in others:
            ran = 1 if len(existing) > (waiting is not None) else 0
            inputs = {
                key: max(request.inputs.get(key, 0), other.inputs.get(key, 0))
                for key in request.inputs.keys() | other.inputs.keys()
            }
            origin = self.uppermost(request.origin, other.origin, name)
            request = Printed(inputs, origin, max(request.version, other.version) + ran)
        self.waiting[name] = request

    def uppermost(self, one: str, other: str, job: str) -> str:
        common = self.cone(one) & self.cone(other)
        return min(common, key=self.graph.rank.__getitem__, default=job)

    def cone(self, origin: str) -> set[str]:
        return {name for name, _ in self.shape.reached(origin, [0])}

    def ready(self, name: str, request: Printed) -> bool:
        return name not in self.running and all(
            self.versions.get(source, 0) >= version for source, version in request.inputs.items()
        )

    def start(self, name: str) -> None:
        self.checker.started(name, [0])
        self.running[name] = (self.waiting.pop(name), self.publication, self.changed.get(name, 0))

    def end(self) -> None:
        name = self.rng.choice(list(self.running))
        request, pin, own = self.running.pop(name)
        self.done.setdefault(name, []).append(request)
        self.publication += 1
        self.versions[name] = max(request.version, self.versions.get(name, 0))
        self.checker.published(name, {0: own}, pin, self.publication, excused=lambda *_: True, new=False)
        covered = self.cone(request.origin)
        for edge in self.graph.out[name]:
            inputs = {e.source: request.version for e in self.graph.into[edge.table] if e.source in covered}
            self.ask(edge.table, Printed(inputs, request.origin, request.version))
