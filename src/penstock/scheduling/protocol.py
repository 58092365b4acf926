"""What a policy is, and what else it may be able to do: all of it is on this page.

A policy decides, and that is enough. Whatever it has besides, of the powers below, is used; it says so by having the method or
the value, and needs no base class. Who drives a policy asks `powers` once, when the policy or the tables change, and goes by that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from penstock.model.graph import Graph
from penstock.scheduling.chopping import Chop, Cut
from penstock.scheduling.jobs import Decision, Fact, Index, Lines, Outlook, ReadyJobs, Situation, Tie


@runtime_checkable
class UpdatePolicy(Protocol):
    def decide(self, situation: Situation) -> Decision: ...


@runtime_checkable
class KnowsTables(Protocol):
    def for_graph(self, graph: Graph) -> UpdatePolicy:
        """The same policy, knowing the tables. Asked for whenever tables are declared."""


@runtime_checkable
class Ranks(Protocol):
    """`index(job)` gives (a, b), so that `situation.ready.ranked(now)` yields jobs by the largest a + b * now."""

    @property
    def index(self) -> Index | None: ...


@runtime_checkable
class Bends(Protocol):
    """`lines(job, busy_since_us)` instead of `index`, if it bends: (us, a, b), ... from when on it is which line."""

    @property
    def lines(self) -> Lines | None: ...


@runtime_checkable
class BreaksTies(Protocol):
    """`tie(job)` decides between equal indices, before how long a job waits."""

    @property
    def tie(self) -> Tie | None: ...


@runtime_checkable
class Weighs(Protocol):
    """The priority that the job of each table comes with as `inherited`. Without it, the largest of its own and of those of all
    tables that follow from it."""

    @property
    def weights(self) -> Mapping[str, float] | None: ...


@runtime_checkable
class Chops(Protocol):
    """The most periods of data that one job may take."""

    @property
    def chop(self) -> float | Chop | None: ...


@runtime_checkable
class Keeps(Protocol):
    """Tables whose updates nobody puts off: not for demand, patience or queues."""

    @property
    def kept(self) -> frozenset[str]: ...


@runtime_checkable
class Learns(Protocol):
    """Whether it looks at `situation.finished`. Without it, it is thought to."""

    @property
    def learns(self) -> bool: ...


@runtime_checkable
class Follows(Protocol):
    """A memory that is told every fact in the order of the log, whether or not something is decided then. Decisions only read it."""

    def begin(self, tracks: int, outlook: Outlook) -> Any:
        """A new memory."""

    def follow(self, memory: Any, fact: Fact, outlook: Outlook) -> None:
        """What happened, for the memory."""


@runtime_checkable
class Resumes(Follows, Protocol):
    def resume(self, memory: Any, before: Mapping[str, Any], runs: Collection[str], at_us: int | None) -> None:
        """A new memory goes on from what `dump` of a former one said, of this process or one before. `runs` are the tables that
        are updated now; `at_us` is None if nothing happened since."""


@runtime_checkable
class Saved(Protocol):
    """A memory that can be written down."""

    def dump(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Powers:
    """What one policy can do; None where it cannot."""

    index: Index | None
    lines: Lines | None
    tie: Tie | None
    weights: Mapping[str, float] | None
    chop: float | Chop | None
    kept: frozenset[str]
    learns: bool
    follows: Follows | None
    resumes: Resumes | None

    def no_jobs(self) -> ReadyJobs:
        """No ready jobs yet, to be ranked as the policy says."""
        return ReadyJobs(self.index, self.tie, self.lines)

    def weights_in(self, graph: Graph) -> Mapping[str, float]:
        return self.weights or graph.inherited

    def cuts(self, graph: Graph) -> Mapping[str, Cut]:
        """Of each table, how many periods of data one job may take; those that are missing may take all there is."""
        if self.chop is None:
            return {}
        if isinstance(self.chop, Chop):
            found = self.chop.cuts(graph, self.weights_in(graph))
            return {name: cut for name, cut in found.items() if not graph.tables[name].external}
        cut = Cut(self.chop, self.chop)
        return {name: cut for name in graph.order if not graph.tables[name].external}


def decides(policy: object) -> bool:
    return isinstance(policy, UpdatePolicy) and callable(policy.decide)


def powers(policy: object) -> Powers:
    return Powers(
        policy.index if isinstance(policy, Ranks) else None,
        policy.lines if isinstance(policy, Bends) else None,
        policy.tie if isinstance(policy, BreaksTies) else None,
        policy.weights if isinstance(policy, Weighs) else None,
        policy.chop if isinstance(policy, Chops) else None,
        policy.kept if isinstance(policy, Keeps) else frozenset(),
        policy.learns if isinstance(policy, Learns) else True,
        policy if isinstance(policy, Follows) else None,
        policy if isinstance(policy, Resumes) else None,
    )
