"""Deleting data files. Nothing goes that this project did not write: a file lies in the folder of a job, and either the catalogue listed it and has
forgotten it, or the log says that this project began that job and no transaction published it.

The order matters, as a crash may come between any two steps: the checksum file of Hadoop goes before its data file, folders that got empty go last,
and only then is it noted that all is done.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.store.store import Store
from penstock.tables import Catalogue

_JOB = re.compile(r"job-\d+-[0-9a-f]{8}(-.*)?")
# What Spark and its committer write.
_WRITTEN = re.compile(r".*\.parquet|\..*\.crc|_.*|\._.*")
_SWEPT = "swept"


def job_folder(job: str, owner: str) -> str:
    """Where a job writes its files, in the folder of each of its tables."""
    return f"{job}-{owner[-8:]}"


def written_by_a_job(path: str, root: Path) -> bool:
    """Whether a file lies where jobs of the project write: not what others put into the folder, or have elsewhere."""
    place = Path(os.path.normpath(path))
    if not place.is_relative_to(root):
        return False
    parts = place.relative_to(root).parts
    return len(parts) >= 4 and parts[0] == "main" and _JOB.fullmatch(parts[2]) is not None


def delete_files(paths: Iterable[str], root: Path) -> None:
    for path in map(Path, paths):
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if not remove_if_empty(folder, root):
                break


def remove_if_empty(folder: Path, root: Path) -> bool:
    """Whether a folder was empty and is gone, by now or before. Folders of tables stay: a job may be about to write into one."""
    if not folder.is_relative_to(root) or len(folder.relative_to(root).parts) <= 2:
        return False
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


# Jobs that died


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A job that the project began and of which no transaction published anything."""

    folder: str
    tables: tuple[str, ...]


def unpublished(store: Store) -> tuple[list[Unpublished], int]:
    """The jobs of earlier processes, as far back as they were not swept yet, and the number of the event that ends them."""
    begun: dict[str, Unpublished] = {}
    owner = ""
    with store.read() as conn:
        known = store.fact(conn, _SWEPT)
        upto = store.last_number(conn)
        for _, kind, body in store.bodies(conn, _KINDS, int(known.split()[0]) if known else 0):
            if kind == "run-started":
                owner = body["owner"]
            elif kind == "update-started":
                job = body["job"]
                names = [each["table"] for each in (job, *job.get("beside", ()))]
                tables = tuple(name for own in names for name in (own, f"{own}_quarantine"))
                begun[job["id"]] = Unpublished(job_folder(job["id"], owner), tables)
            else:
                begun.pop(body["job"], None)
    return list(begun.values()), upto


_KINDS = ("run-started", "update-started", "update-finished")


def swept(store: Store, upto: int) -> None:
    """Jobs up to that event need not be looked at again; those of one process before are, as it may have died slowly."""
    with store.write() as conn:
        known = store.fact(conn, _SWEPT)
        store.set_fact(conn, _SWEPT, f"{known.split()[1] if known else 0} {upto}")


def leave_all(store: Store) -> None:
    """Nothing of what ran until now is swept."""
    with store.write() as conn:
        last = store.last_number(conn)
        store.set_fact(conn, _SWEPT, f"{last} {last}")


def sweep(store: Store, catalogue: Catalogue, job: Unpublished, also: Iterable[str]) -> None:
    """Remove what a job wrote that nothing published, in the folders of its tables and of those that are made with them."""
    for table in dict.fromkeys((*job.tables, *also)):
        for folder in job_folders(Path(catalogue.folder(table)), job.folder):
            with store.read() as conn:
                # A later try of a flow may have published what a step of this one made.
                published = catalogue.listed_in(conn, table, folder.name)
            remove_written(folder, published)


def job_folders(place: Path, name: str) -> Iterator[Path]:
    """The folder of a job, and those that it made beside it: -1, -restated."""
    with suppress(OSError), os.scandir(place) as entries:
        found = [entry for entry in entries if entry.name == name or entry.name.startswith(f"{name}-")]
        yield from sorted(Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False))


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
