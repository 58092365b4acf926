"""Queries that are ready to run, and which goes next: profiles in turn, as their shares say; of one profile the query with the
earliest deadline. Queries that ask the same go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.engine.asked import Asked
from penstock.model.time import SECOND_US


class QueryQueue:
    """Not safe for threads: the front holds its lock around it."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._shares = shares
        self._profiles: dict[str, list[Asked]] = {}
        # Seconds that each profile has used, over its share. Who was away does not come back with a credit.
        self._used: dict[str, float] = {}

    def __iter__(self) -> Iterator[Asked]:
        return (asked for queue in self._profiles.values() for asked in queue)

    def __len__(self) -> int:
        return sum(map(len, self._profiles.values()))

    def put(self, asked: Asked) -> None:
        name = asked.profile
        if not self._profiles.get(name):
            active = [self._used.get(other, 0.0) for other, queue in self._profiles.items() if queue]
            self._used[name] = max(self._used.get(name, 0.0), min(active, default=0.0))
        self._profiles.setdefault(name, []).append(asked)

    def drop(self, asked: Asked) -> None:
        queue = self._profiles.get(asked.profile, [])
        if asked in queue:
            queue.remove(asked)

    def used(self, profile: str, seconds: float) -> None:
        self._used[profile] = self._used.get(profile, 0.0) + seconds / self._shares.get(profile, 1.0)

    def take(self, now_us: int) -> list[Asked]:
        """The next query and all that ask the same; empty if none could still end in time."""
        for name in sorted(
            (n for n, queue in self._profiles.items() if queue), key=lambda n: (self._used.get(n, 0.0), n)
        ):
            able = [asked for asked in self._profiles[name] if _can_end(asked, now_us)]
            if able:
                first = min(able, key=lambda asked: (asked.deadline_us, asked.number))
                together = [asked for asked in self if asked.same == first.same]
                for asked in together:
                    self.drop(asked)
                return together
        return []

    def ahead_s(self, deadline_us: int) -> float:
        """The work of those that would go before one with this deadline."""
        seen: dict[object, float] = {}
        for asked in self:
            if asked.deadline_us <= deadline_us:
                seen[asked.same] = asked.run.mean_s
        return sum(seen.values())


def _can_end(asked: Asked, now_us: int) -> bool:
    """Whether it is not hopeless: starting what cannot end in time takes time from what can."""
    return asked.run.chance((asked.deadline_us - now_us) / SECOND_US) > 0.1
