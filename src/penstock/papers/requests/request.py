"""A request: bring these partitions of a dataset to contain these changes.

Changes are numbered when they are submitted, across the warehouse; the number is the change's *stamp*. "The dataset d at
version V" means: those partitions of d contain every change that reaches them and has a stamp up to V. So a request only
has to carry, for each direct input, the version that it must have before the job may run:

    carried   {input: version}; OWN stands for what the job does not read from the warehouse: its logic, external data
    oldest    the first change that the partitions lack: what reads them is not at that version, nor at a later one

What a request covers further up and down follows from the graph (`reach`), so its size is the number of inputs that a job
has, and it stays so however many requests are merged into it.

`|` merges and `<=` orders: A <= B if inputs that satisfy B satisfy A, so that A brings nothing new. They are a join
semilattice (associative, commutative, idempotent), hence neither the order of requests nor a repeated one matters.

>>> b, c = Demand(7, {"b": 7}), Demand(8, {"c": 8})
>>> (b | c).carried, (b | c).oldest
({'b': 7, 'c': 8}, 7)
>>> b <= b | c, b | c <= b, (b | c) | b == b | c
(True, False, True)

(Xu, Gao, Davidson 2023, Sec. 3.4 and 3.5, with these corrections. A job's own logic is an input, so that the request of
an origin demands something and cannot be dropped for any other. The output's version is not raised by a delta that would
then be demanded of inputs which never get it. No origin is kept, since no one descendant of two origins is the uppermost.
And a version says what is contained, which a number that only grows does not when changes overtake each other.)

How it relates to the needs of the live controller (`needs.py`): a need is a demand that was already passed on to a table,
whose inputs are all read at one snapshot. Its `since` is the `oldest` here. What a demand carries is found there by
walking back (`control/settling.py`), with the time of the change as its stamp. Both say what is *lacking*, so a
partition of which nothing is said contains everything, and neither grows with the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.partitions import PartitionSet

# The input that is not a dataset: the job's own logic, and what it reads from outside of the warehouse.
OWN = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """What some partitions lack, and what their inputs must have before it can be made good."""

    oldest: int
    carried: Mapping[str, int]
    # Try again with the inputs as they were at this publication; None for the newest.
    pin: int | None = None

    @property
    def newest(self) -> int:
        return max(self.carried.values())

    def __or__(self, other: Demand) -> Demand:
        if self == other:
            return self
        carried = {**self.carried}
        for name, version in other.carried.items():
            if version > carried.get(name, 0):
                carried[name] = version
        oldest = self.oldest if self.oldest < other.oldest else other.oldest
        # Whatever fails while a newer request waits is part of that one; only what is alone is tried again as it was.
        return Demand(oldest, carried, self.pin if self.pin == other.pin else None)

    def __le__(self, other: Demand) -> bool:
        """Whether whatever satisfies `other` satisfies this one too. Old inputs do not satisfy who wants the newest."""
        return (
            other.oldest <= self.oldest
            and (other.pin is None or other.pin == self.pin)
            and all(version <= other.carried.get(name, 0) for name, version in self.carried.items())
        )


@dataclass(frozen=True, slots=True)
class Request:
    """A demand on some partitions of a dataset."""

    dataset: str
    partitions: PartitionSet
    demand: Demand

    def __le__(self, other: Request) -> bool:
        return self.dataset == other.dataset and self.partitions <= other.partitions and self.demand <= other.demand

    def __or__(self, other: Request) -> Request:
        """The smallest request that both are part of. (Where only some partitions are in both, `Book` keeps them apart
        and merges just those.)"""
        if self.dataset != other.dataset:
            raise ValueError(f"a request for {self.dataset} cannot be merged with one for {other.dataset}")
        return Request(self.dataset, self.partitions | other.partitions, self.demand | other.demand)

    def __str__(self) -> str:
        """As the paper writes it.

        >>> print(Request("d", PartitionSet.of((0, 1)), Demand(7, {"b": 7, "c": 7})))
        d[b >= 7, c >= 7]
        """
        inputs = (f"{name or 'own'} >= {version}" for name, version in sorted(self.demand.carried.items()))
        return f"{self.dataset}[{', '.join(inputs)}]"
