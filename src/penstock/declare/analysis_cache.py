"""What was understood of the texts of a project, kept for the next command: the same text need not be understood twice.

It is kept by content, in one file of the state folder. It may be deleted at any time, and one that cannot be read, or was written
by another version of the program, is as if it were not there.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class Remembered:
    """Of one project. A place whose folder is not there yet keeps nothing."""

    def __init__(self, place: Path | None = None) -> None:
        self._place = place
        self._known: dict[bytes, Any] = _read(place) if place is not None else {}
        self._used: dict[bytes, Any] = {}

    def get(self, make: Callable[..., T], *given: object, **more: object) -> T:
        """What `make` gives for this, which follows from nothing else; what it raises is not kept."""
        key = hashlib.sha256(repr((make.__qualname__, given, more)).encode(errors="surrogatepass")).digest()
        if key in self._used:
            found: T = self._used[key]
        elif key in self._known:
            found = self._known[key]
        else:
            found = make(*given, **more)
        self._used[key] = found
        return found

    def keep(self) -> None:
        """Keep what was asked for, and nothing else."""
        if self._place is None or self._known.keys() == self._used.keys() or not self._place.parent.is_dir():
            return
        own = self._place.with_name(f"{self._place.name}.{os.getpid()}")
        with suppress(OSError):
            try:
                own.write_bytes(pickle.dumps((_version(), self._used), pickle.HIGHEST_PROTOCOL))
                own.replace(self._place)
                self._known = dict(self._used)
            finally:
                own.unlink(missing_ok=True)


class _Reader(pickle.Unpickler):
    """Makes what this package declares, and nothing that does something."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "frozenset"):
            return frozenset
        if module.startswith(("penstock.declare.", "penstock.model.", "penstock.flows.")) and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is none of ours")


def _read(place: Path) -> dict[bytes, Any]:
    try:
        version, found = _Reader(io.BytesIO(place.read_bytes())).load()
    except FileNotFoundError:
        return {}
    except Exception:  # whatever is in it
        return {}
    return found if version == _version() and isinstance(found, dict) else {}


@cache
def _version() -> str:
    """Another one for every change of the program."""
    own = Path(__file__).parent
    files = [*sorted(own.rglob("*.py")), *sorted((own.parent / "model").glob("*.py"))]
    stamps = [(file.name, status.st_size, status.st_mtime_ns) for file in files for status in (file.stat(),)]
    return repr((sys.version_info[:3], version("sqlglot"), stamps))
