"""Deleting data files, and what lies beside them on a local disk: Hadoop's checksum files, folders that got empty.

The order matters, as a crash may come between any two steps: a data file that is left over is found again by asking the
catalogue, and an empty folder by looking; so the checksum file goes first and the folders last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def delete_files(paths: Iterable[str], root: Path) -> None:
    for path in map(Path, paths):
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if not remove_if_empty(folder, root):
                break


def tidy(root: Path) -> None:
    """Remove what a process that was killed left in job folders besides data files. Only while no job runs."""
    for place, _, files in os.walk(root, topdown=False):
        folder = Path(place)
        for name in files:
            if name.startswith(".") and name.endswith(".crc") and not (folder / name[1:-4]).exists():
                (folder / name).unlink(missing_ok=True)
        remove_if_empty(folder, root)


def remove_if_empty(folder: Path, root: Path) -> bool:
    """Whether a folder was empty and is gone. Folders of tables stay: a job may be about to write into one."""
    if not folder.is_relative_to(root) or len(folder.relative_to(root).parts) <= 2:
        return False
    with suppress(OSError):
        folder.rmdir()
        return True
    return False
