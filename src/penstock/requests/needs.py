"""What must be recomputed: each partition's reasons, merged into one need.

Every publication gets a global snapshot number, and a job reads all its sources at one such number. A partition without
a need therefore reflects everything published so far, so a need only has to say from which change on it does not:

    since    the first snapshot that it does not reflect
    edge     the time up to which rows are reflected (rows behind it waited for the trailing edge)
    at       when that first change was committed to a base table (or asked for), for its staleness
    late     something older than the edge changed: a correction, late data, new logic
    append   only rows were added: the partition can be folded instead of recomputed
    last     the last event of the log that added to it: a job that was decided before that event leaves a rest
    requests the requests of users that are behind it, by number
    changed  something changed; if not, it was only asked for, and nothing is lost when nobody asks any more
    parked   it comes from a request that was to change one table only: it waits for another reason
    upto     when the newest change was committed that is in it
    came     when the oldest of them came: a file, before it was loaded
    told     when the table was first told: what had come by then is waited for
    reasons  the names of the changes that are in it: "late", "corrected", "withdrawn", "logic", and those that users gave

`|` merges two needs of one partition. It is associative, commutative and idempotent, so neither the order of changes nor
a change that is reported twice matters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.model.partitions import Interval, IntervalMap, PartitionSet
from penstock.model.time import BEGIN_US

# Reasons by number, or by name.
Named = TypeVar("Named", int, str)


@dataclass(frozen=True, slots=True)
class Need:
    since: int
    edge_us: int
    at_us: int
    late: bool = False
    append: bool = True
    last: int = 0
    requests: tuple[int, ...] = ()
    changed: bool = True
    parked: bool = False
    # These are as `at_us` if they are 0.
    upto_us: int = 0
    came_us: int = 0
    told_us: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def oldest_us(self) -> int:
        return self.came_us or self.at_us

    @property
    def known_us(self) -> int:
        return self.told_us or self.at_us

    @property
    def newest_us(self) -> int:
        return max(self.at_us, self.upto_us)

    def __or__(self, other: Need) -> Need:
        if self == other:
            return self
        return Need(
            min(self.since, other.since),
            min(self.edge_us, other.edge_us),
            min(self.at_us, other.at_us),
            self.late or other.late,
            self.append and other.append,
            max(self.last, other.last),
            united(self.requests, other.requests),
            self.changed or other.changed,
            self.parked and other.parked,
            max(self.newest_us, other.newest_us),
            min(self.oldest_us, other.oldest_us),
            min(self.known_us, other.known_us),
            united(self.reasons, other.reasons),
        )

    def __le__(self, other: Need) -> bool:
        """Whether whatever satisfies `other` satisfies this one too."""
        merged = self | other
        return replace(merged, upto_us=other.upto_us, came_us=other.came_us, told_us=other.told_us) == other

    def rest(self, pin: int, edge_us: int | None, at_us: int) -> Need:
        """What is left of a need that grew after a job was decided: the job brings the snapshot `pin` up to `edge_us`."""
        edge = BEGIN_US if edge_us is None else edge_us
        return Need(
            pin + 1,
            edge,
            at_us,
            self.late,
            self.append,
            self.last,
            self.requests,
            self.changed,
            self.parked,
            self.upto_us,
            reasons=self.reasons,
        )  # what it is a rest of came after the decision, so it has no older date than the start


def united(left: tuple[Named, ...], right: tuple[Named, ...]) -> tuple[Named, ...]:
    if left == right or not right:
        return left
    return tuple(sorted(set(left + right))) if left else right


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of partitions that share a need."""

    start_us: int
    end_us: int
    need: Need


def restated(at_us: int, last: int = 0, *reasons: str) -> Need:
    """The need of a partition that must be made again from nothing: new logic, a rewritten file."""
    return Need(0, BEGIN_US, at_us, late=True, append=False, last=last, reasons=tuple(sorted({*reasons} - {""})))


def asked(at_us: int, request: int) -> Need:
    """The need of a partition that a user wants to be made again, though nothing changed."""
    return Need(0, BEGIN_US, at_us, late=True, append=False, last=request, requests=(request,), changed=False)


def pending() -> IntervalMap[Need]:
    return IntervalMap(Need.__or__)


def partitions_of(pieces: tuple[Piece, ...] | list[Piece]) -> PartitionSet:
    return PartitionSet.of(*((piece.start_us, piece.end_us) for piece in pieces))


def changed_by(pieces: tuple[Piece, ...]) -> tuple[Interval, ...]:
    """Which event times a job over these pieces changes, for those who read its table: the whole partition where
    something old changed, else its rows after the old edge. Not only up to the new one: a view may move rows to later times,
    or have later ones of a source that it does not wait for, and not all readers cut these off."""
    ranges = [
        (piece.start_us if piece.need.late else max(piece.start_us, piece.need.edge_us), piece.end_us)
        for piece in pieces
    ]
    return PartitionSet.of(*ranges).intervals
