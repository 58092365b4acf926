"""Which names below a folder a pattern such as `landing/**/*.csv` stands for, one name at a time.

The meaning is that of Python's `glob`: `*`, `?` and `[…]` within a name, `**` for any number of folders; what begins with a dot
is only meant where the pattern says the dot. Asked name by name, a pattern serves a walk through folders as well as a single
event about one of them.
"""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterable
from pathlib import Path

# How many names of the pattern are behind us: more than one number where `**` may stand for a folder more or less.
Places = frozenset[int]
NOWHERE: Places = frozenset()


class Pattern:
    """A pattern below a folder, or one of its own if it is absolute. `base` is the part without wildcards, `begin` its place there."""

    def __init__(self, folder: Path, pattern: str) -> None:
        own = Path(pattern)
        parts = own.parts[1:] if own.is_absolute() else own.parts
        fixed = 0
        while fixed < len(parts) - 1 and not glob.has_magic(parts[fixed]):
            fixed += 1
        self.base = str(Path(own.anchor or folder, *parts[:fixed]))
        self._parts = parts[fixed:]
        self._tests = [
            re.compile(fnmatch.translate(part)).match if glob.has_magic(part) else None for part in parts[fixed:]
        ]
        self.any_depth = "**" in self._parts
        self.begin = self._with_none([0])

    def _with_none(self, places: Iterable[int]) -> Places:
        """`**` also stands for no folder at all."""
        found = set()
        for place in places:
            found.add(place)
            while place < len(self._parts) - 1 and self._parts[place] == "**":
                place += 1
                found.add(place)
        return frozenset(found)

    def _fits(self, place: int, name: str) -> bool:
        part, test = self._parts[place], self._tests[place]
        if test is None:
            return part == name
        return (name[0] != "." or part[0] == ".") and test(name) is not None

    def is_file(self, places: Places, name: str) -> bool:
        """Whether a file of this name in a folder at these places is meant."""
        last = len(self._parts) - 1
        return last in places and self._fits(last, name)

    def inside(self, places: Places, name: str) -> Places:
        """The places within a folder of this name; none if nothing in it is meant."""
        found = []
        for place in places:
            if self._parts[place] == "**":
                if name[0] != ".":
                    found.append(place)
            elif place < len(self._parts) - 1 and self._fits(place, name):
                found.append(place + 1)
        return self._with_none(found) if found else NOWHERE

    def names(self, places: Places) -> list[str] | None:
        """The only names that can be meant at these places; None if the folder must be listed."""
        if any(self._tests[place] is not None for place in places):
            return None
        return [self._parts[place] for place in places]

    def matches(self, path: str) -> bool:
        """Whether a file of this path is meant."""
        try:
            *folders, name = Path(path).relative_to(self.base).parts
        except ValueError:
            return False
        places = self.begin
        for folder in folders:
            places = self.inside(places, folder)
        return self.is_file(places, name)
