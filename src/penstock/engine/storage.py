"""Data files in a folder of this machine. Nothing goes that this project did not write: a file lies in the folder of a job, and either the catalogue
listed it and has forgotten it, or the log says that this project began that job and no transaction published it.

The order matters, as a crash may come between any two steps: the checksum file of Hadoop goes before its data file, folders that got empty go last,
and only then is it noted that all is done.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

_JOB = re.compile(r"job-\d+-[0-9a-f]{8}(-.*)?")
# What Spark and its committer write.
_WRITTEN = re.compile(r".*\.parquet|\..*\.crc|_.*|\._.*")


class LocalStorage:
    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def make_durable(self, paths: Collection[str]) -> None:
        here = [path for path in paths if "://" not in path]
        for path in (*here, *{str(Path(path).parent) for path in here}):
            to_disk(path)

    def delete(self, paths: Iterable[str]) -> None:
        for path in map(Path, paths):
            (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            for folder in path.parents:
                if not self.remove_if_empty(folder):
                    break

    def remove_if_empty(self, folder: Path) -> bool:
        """Whether a folder was empty and is gone, by now or before. Folders of tables stay: a job may be about to write into one."""
        if not folder.is_relative_to(self.root) or len(folder.relative_to(self.root).parts) <= 2:
            return False
        try:
            folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def is_inside(self, path: str) -> bool:
        return Path(path).is_relative_to(self.root)

    def written_by_a_job(self, path: str) -> bool:
        place = Path(os.path.normpath(path))
        if not place.is_relative_to(self.root):
            return False
        parts = place.relative_to(self.root).parts
        return len(parts) >= 4 and parts[0] == "main" and _JOB.fullmatch(parts[2]) is not None

    def job_folders(self, table: str, job: str) -> list[Path]:
        """The folder of a job, and those that it made beside it: -1, -restated."""
        with suppress(OSError), os.scandir(table) as entries:
            found = [entry for entry in entries if entry.name == job or entry.name.startswith(f"{job}-")]
            return sorted(Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False))
        return []

    def clear(self, folder: Path, keep: Collection[str] = ()) -> None:
        remove_written(folder, keep)


def remove_written(folder: Path, keep: Collection[str] = ()) -> None:
    """What Spark wrote into a job's folder but for some files, and the folder if nothing else is in it."""
    for place, _, files in os.walk(folder, topdown=False):
        kept = {name for name in files if f"{place}/{name}" in keep}
        kept |= {f".{name}.crc" for name in kept}
        for name in sorted(files):
            if name not in kept and (_WRITTEN.fullmatch(name) or "_temporary" in place):
                Path(place, name).unlink(missing_ok=True)
        with suppress(OSError):
            Path(place).rmdir()


def to_disk(path: str | Path) -> None:
    """A file, or the names in a folder: what must survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
