"""The queries that were asked: found by their id, or by the key with which they were asked, as long as they are open and for a while after."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from penstock.engine.desk.ticket import Asked


class Register:
    """Not safe for threads: the front holds its lock around what changes it."""

    def __init__(self, most_ended: int) -> None:
        self._most = most_ended
        self._queries: OrderedDict[str, Asked] = OrderedDict()
        self._by_key: dict[tuple[str, str], Asked] = {}
        self._keys: dict[str, tuple[str, str]] = {}
        self.open = 0
        self._numbers = 0

    def __iter__(self) -> Iterator[Asked]:
        return iter(list(self._queries.values()))

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def find(self, identity: str) -> Asked | None:
        return self._queries.get(identity)

    def known(self, profile: str, key: str | None) -> Asked | None:
        return None if key is None else self._by_key.get((profile, key))

    def add(self, asked: Asked, key: str | None) -> None:
        self.open += 1
        self._queries[asked.id] = asked
        if key is not None:
            self._by_key[asked.profile, key] = asked
            self._keys[asked.id] = asked.profile, key

    def ended(self) -> None:
        """One more has ended; the oldest that ended are forgotten, with the files of their answers."""
        self.open -= 1
        while len(self._queries) > self._most:
            oldest = next(iter(self._queries.values()))
            if not oldest.has_ended:
                break
            del self._queries[oldest.id]
            if oldest.id in self._keys:
                self._by_key.pop(self._keys.pop(oldest.id), None)
            if oldest.answer is not None and oldest.answer.found is not None:
                for file in oldest.answer.found.files:
                    file.unlink(missing_ok=True)
