"""What `penstock init` writes: a small project that works as it is, to be changed into one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from penstock.errors import PenstockError

# Templates that tools must not take for code or configuration of Penstock itself carry this ending.
_PACKED = ".txt"
_RENAMED = {"gitignore": ".gitignore"}


def write_starter(folder: Path, name: str) -> list[Path]:
    """The files that were made. A folder that has something in it is left alone."""
    if folder.exists() and not folder.is_dir():
        raise PenstockError(f"{folder} is a file; name a folder that is new or empty")
    if folder.exists() and any(folder.iterdir()):
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:3])
        raise PenstockError(f"{folder} is not empty (it has {found}); name a folder that is new or empty")
    return copy_project(files(__package__) / "template", folder, {"PROJECT_NAME": project_name(name)})


def project_name(name: str) -> str:
    """A folder's name as penstock.toml allows it: letters, digits, _ and -, a letter first."""
    cleaned = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")
    return cleaned if cleaned[:1].isalpha() else f"p-{cleaned}" if cleaned else "warehouse"


def copy_project(source: Traversable, folder: Path, words: Mapping[str, str] | None = None) -> list[Path]:
    """Copy a packed project; `words` are replaced in its texts."""
    written = []
    for path, content in _texts(source, Path()):
        for word, value in (words or {}).items():
            content = content.replace(word, value)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
        written.append(target)
    return written


def _texts(source: Traversable, place: Path) -> Iterator[tuple[Path, str]]:
    for entry in sorted(source.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _texts(entry, place / entry.name)
        else:
            name = entry.name.removesuffix(_PACKED)
            yield place / _RENAMED.get(name, name), entry.read_text(encoding="utf-8")
