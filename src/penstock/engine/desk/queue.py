"""Queries that are ready to run, and which goes next: profiles in turn, as their shares say; of one profile the query with the
earliest deadline. What nobody gains by (an answer that can only be stale, where that is worth nothing) goes last. Queries that ask the same go together, so costs follow the number of different questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.engine.desk.ticket import Asked
from penstock.model.time import SECOND_US


class QueryQueue:
    """Not safe for threads: the front holds its lock around it."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._shares = shares
        # Those that ask the same, earliest deadline first.
        self._groups: dict[tuple[object, ...], list[Asked]] = {}
        # Seconds that each profile has used, over its share. Who was away does not come back with a credit.
        self._used: dict[str, float] = {}
        self._active: dict[str, int] = {}

    def __iter__(self) -> Iterator[Asked]:
        return (asked for group in self._groups.values() for asked in group)

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def groups(self) -> Iterator[list[Asked]]:
        return iter(self._groups.values())

    def put(self, asked: Asked) -> None:
        name = asked.profile
        if not self._active.get(name):
            active = [self._used.get(other, 0.0) for other, count in self._active.items() if count]
            self._used[name] = max(self._used.get(name, 0.0), min(active, default=0.0))
        self._active[name] = self._active.get(name, 0) + 1
        group = self._groups.setdefault(asked.same, [])
        group.append(asked)
        if len(group) > 1 and group[-2].deadline_us > asked.deadline_us:
            group.sort(key=lambda one: (one.deadline_us, one.number))

    def drop(self, asked: Asked) -> None:
        group = self._groups.get(asked.same, [])
        if asked in group:
            group.remove(asked)
            self._active[asked.profile] -= 1
            if not group:
                del self._groups[asked.same]

    def used(self, profile: str, seconds: float) -> None:
        self._used[profile] = self._used.get(profile, 0.0) + seconds / self._shares.get(profile, 1.0)

    def take(self, now_us: int) -> list[Asked]:
        """The next query and all that ask the same; empty if none could still end in time."""
        best: tuple[bool, float, int, int] | None = None
        chosen: list[Asked] = []
        for group in self._groups.values():
            # The last may have time where the first has none; then the group runs for the last.
            if not _can_end(group[-1], now_us):
                continue
            used = min(self._used.get(name, 0.0) for name in {asked.profile for asked in group})
            key = (_gains(group) <= 0, used, group[0].deadline_us, group[0].number)
            if best is None or key < best:
                best, chosen = key, group
        chosen = list(chosen)
        for asked in chosen:
            self.drop(asked)
        return chosen

    def ahead_s(self, deadline_us: int) -> float:
        """The work of those that would go before one with this deadline."""
        return sum(
            group[0].run.mean_s
            for group in self._groups.values()
            if group[0].deadline_us <= deadline_us and _gains(group) > 0
        )

    def work_s(self) -> float:
        return sum(group[0].run.mean_s for group in self._groups.values())


def _gains(group: Sequence[Asked]) -> float:
    return sum(asked.gain for asked in group)


def _can_end(asked: Asked, now_us: int) -> bool:
    """Whether it is not hopeless: starting what cannot end in time takes time from what can."""
    return asked.run.chance((asked.deadline_us - now_us) / SECOND_US) > 0.1
