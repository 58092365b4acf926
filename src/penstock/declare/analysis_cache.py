"""What was understood of the texts of a project, kept for the next command: the same text need not be understood twice.

It is kept by content, in one file: in the state folder, or in the user's cache until the project has one. It may be deleted at any time, and one that cannot be read, or was written
by another version of the program, is as if it were not there.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from time import time
from typing import Any, TypeVar

T = TypeVar("T")


_UNUSED_S = 30 * 86_400


def cache_folder() -> Path | None:
    """`PENSTOCK_CACHE`, or `penstock` in the user's cache; none if that is empty."""
    said = os.environ.get("PENSTOCK_CACHE")
    if said is not None:
        return Path(said).absolute() if said else None
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    except RuntimeError:  # nobody's home
        return None


def remove_unused(files: Iterable[Path]) -> None:
    """Those of the user's cache that nobody used for a long time."""
    for file in files:
        with suppress(OSError):
            if file.stat().st_mtime < time() - _UNUSED_S:
                file.unlink()


def remembered_of(project: Path) -> Remembered:
    """What is known of a project."""
    state, cache = project / ".penstock", cache_folder()
    if state.is_dir() or cache is None:
        return Remembered(state / "understood")
    with suppress(OSError):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_unused(cache.glob("understood-*"))
    own = cache / f"understood-{hashlib.sha256(bytes(project)).hexdigest()[:16]}"
    with suppress(OSError):
        os.utime(own)
    return Remembered(own)


class Remembered:
    """Of one project. A place whose folder is not there keeps nothing."""

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
