"""Putting a backup back, and moving the data folder.

Both first bring the files to their place, beside what is there; then one transaction, or one rename, switches; then what is no longer needed goes. So
a process that is killed leaves either the old state or the new one, and the same command goes on from there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from sqlalchemy import delete

from penstock.declare.config import FILE_NAME
from penstock.declare.project import Declarations
from penstock.declare.settings import write_settings
from penstock.engine.storage import LocalStorage
from penstock.engine.updates.cleanup import leave_all
from penstock.engine.upkeep.backup import Backup, BackupError, copy_database, put_file, read_backup, replace_rows
from penstock.engine.upkeep.identity import FILE_NAME as MARK_NAME
from penstock.engine.upkeep.identity import (
    Claim,
    Identity,
    Mark,
    keeps,
    place_of,
    put_claim,
    read_claim,
    read_mark,
    write_mark,
)
from penstock.engine.upkeep.retention import note_missed
from penstock.engine.upkeep.verify import ProgressReport, silent
from penstock.errors import PenstockError
from penstock.store import schema as state_tables
from penstock.store.lock import RunLock
from penstock.store.store import Store
from penstock.tables import Catalogue, ddl
from penstock.tables.presence import Stored

_MOVED = "moved from"


class RestoreError(PenstockError):
    pass


@dataclass(frozen=True)
class Restored:
    backup: Backup
    data: str
    # What the project had before, if it had something.
    before: str | None = None


def copy_project(folder: Path, project: Path) -> bool:
    """The declarations of a backup, into a folder that has none."""
    if (project / FILE_NAME).exists() or not (folder / "project" / FILE_NAME).exists():
        return False
    if project.exists() and any(project.iterdir()):
        raise RestoreError(
            f"{project} has no {FILE_NAME} and is not empty.\nName a new folder, or the project's, with --project."
        )
    shutil.copytree(folder / "project", project, dirs_exist_ok=True)
    return True


def restore(
    declarations: Declarations,
    folder: Path,
    now_us: Callable[[], int],
    *,
    force: bool = False,
    copy: bool = False,
    progress: ProgressReport = silent,
) -> Restored:
    found = read_backup(folder)
    if found is None:
        raise RestoreError(f"{folder} holds no backup that was finished.\n`penstock backup DIR` makes one.")
    store, catalogue = Store(declarations.store_url), Catalogue(declarations.data_path)
    lock = RunLock(store, declarations.state_folder / "run.lock")
    scratch = declarations.state_folder / "restoring.db"
    try:
        store.create()
        with store.write() as conn:
            catalogue.create(conn, now_us())
        _may_replace(store, catalogue, found, force)
        lock.acquire(f"restore-{uuid4().hex[:12]}")
        scratch.parent.mkdir(parents=True, exist_ok=True)
        _forget(scratch)
        shutil.copyfile(folder / found.store, scratch)
        with closing(Store(f"sqlite:///{scratch}")) as copied:
            files = _prepare(copied, catalogue, found, now_us)
            _bring(files, folder, catalogue, copy, progress)
            before = _set_aside(store, declarations, force)
            progress("Restoring the catalogue", 0, 1)
            with copied.read() as conn:
                replace_rows(conn, store)
        Identity(declarations.config.name, store, catalogue).check()
        _forget(scratch)
        return Restored(found, catalogue.data_path, before)
    finally:
        lock.release()
        store.close()


def _may_replace(store: Store, catalogue: Catalogue, found: Backup, force: bool) -> None:
    mark = read_mark(catalogue.data_path)
    with store.read() as conn:
        claim = read_claim(store, conn)
        used = catalogue.has_files(conn) or store.last_number(conn) > 0
    if mark is not None and mark.identity not in (found.identity, claim.identity if claim else None):
        raise RestoreError(
            f"the data folder {catalogue.data_path} belongs to project `{mark.project}`, the backup is of `{found.project}`.\n"
            "Give this project a [storage] path of its own in penstock.toml."
        )
    if mark is not None and mark.catalogue != place_of(store.url) and keeps(mark.catalogue, mark.identity):
        raise RestoreError(
            f"the data folder {catalogue.data_path} is in use by the catalogue {mark.catalogue}.\n"
            "Give this project a [storage] path of its own in penstock.toml."
        )
    if used and not force:
        raise RestoreError(
            f"this project has data already.\nType the same with --force to put the backup of `{found.project}` in its place."
        )


def _prepare(copied: Store, catalogue: Catalogue, found: Backup, now_us: Callable[[], int]) -> list[Stored]:
    """The backup's database as it is to be here; gives the files that it lists in the data folder."""
    copied.create()
    mark = read_mark(catalogue.data_path)
    original = read_mark(found.data) if Path(found.data).is_dir() else None
    elsewhere = original is not None and original.identity == found.identity and not _same(found.data, catalogue)
    with copied.write() as conn:
        catalogue.create(conn, now_us())
        catalogue.relocate(conn, catalogue.recorded_path(conn))
        conn.execute(delete(ddl.pin))
        conn.execute(delete(state_tables.fact).where(state_tables.fact.c.name.in_(["owner", "holder", _MOVED])))
        # While the original lives, this is another warehouse.
        identity = str(uuid4()) if elsewhere else found.identity
        was = mark.identity if mark is not None else None
        put_claim(copied, conn, Claim(identity, None, False, was, restored=True))
        note_missed(copied, conn, ())
        files = [file for file in catalogue.stored_files(conn) if file.path.startswith(catalogue.data_path)]
    # What lies in folders of jobs that ran at the time may have been published since: it is left alone.
    leave_all(copied)
    return files


def _same(place: str, catalogue: Catalogue) -> bool:
    return Path(place).resolve() == Path(catalogue.data_path).resolve()


def _bring(files: list[Stored], folder: Path, catalogue: Catalogue, copy: bool, progress: ProgressReport) -> None:
    paths = [(file, file.path.removeprefix(catalogue.data_path)) for file in files]
    lost = [
        path
        for file, path in paths
        if not _is_whole(folder / "data" / path, file) and not _is_whole(Path(file.path), file)
    ]
    if lost:
        raise BackupError(
            f"the backup {folder} is not whole: {len(lost)} data files are missing in it, such as data/{lost[0]}.\nName another backup."
        )
    for number, (file, path) in enumerate(paths):
        if number % 100 == 0:
            progress("Restoring data files", number, len(paths))
        if not _is_whole(Path(file.path), file):
            put_file(folder / "data" / path, Path(file.path), file.size_bytes, copy)


def _is_whole(path: Path, file: Stored) -> bool:
    try:
        return path.stat().st_size == file.size_bytes
    except OSError:
        return False


def _set_aside(store: Store, declarations: Declarations, force: bool) -> str | None:
    """The database as it was before, for who wants it back."""
    with store.read() as conn:
        if not force or store.last_number(conn) == 0:
            return None
    kept = declarations.state_folder / "before-restore.db"
    copy_database(store, kept)
    return str(kept)


def _forget(database: Path) -> None:
    for left in database.parent.glob(f"{database.name}*"):
        left.unlink(missing_ok=True)


# Moving


@dataclass(frozen=True)
class MovedFiles:
    before: str
    now: str
    files: int
    # Files in the old folder that are not the project's, and stay there.
    left: int


def move(
    declarations: Declarations, target: Path, now_us: Callable[[], int], *, progress: ProgressReport = silent
) -> MovedFiles:
    """Bring the data files to another folder and have the project use that."""
    new = (declarations.folder / target).resolve()
    store, catalogue = Store(declarations.store_url), Catalogue(declarations.data_path)
    lock = RunLock(store, declarations.state_folder / "run.lock")
    try:
        store.create()
        with store.write() as conn:
            catalogue.create(conn, now_us())
        identity = Identity(declarations.config.name, store, catalogue)
        identity.check()
        lock.acquire(f"move-{uuid4().hex[:12]}")
        if new == identity.folder:
            return _finish_moving(store, catalogue, progress)
        _may_move(store, identity, new)
        with store.read() as conn:
            claim = read_claim(store, conn)
            assert claim is not None
            snapshot = catalogue.snapshot(conn)
            files = [file for file in catalogue.stored_files(conn) if file.path.startswith(catalogue.data_path)]
        mark = Mark(claim.identity, declarations.config.name, str(new), place_of(store.url), snapshot, claim.run)
        write_mark(new, mark)
        for number, file in enumerate(files):
            if number % 100 == 0:
                progress("Moving data files", number, len(files))
            put_file(Path(file.path), new / file.path.removeprefix(catalogue.data_path), file.size_bytes)
        with store.write() as conn:
            # Not settled: either folder will do until one is opened again.
            put_claim(store, conn, replace(claim, settled=False, was=claim.identity))
            store.set_fact(conn, _MOVED, str(identity.folder))
        store.flush()
        (identity.folder / MARK_NAME).unlink(missing_ok=True)
        shown = os.path.relpath(new, declarations.folder) if new.is_relative_to(declarations.folder) else str(new)
        write_settings(declarations.folder, "storage", {"path": shown})
        moved = Catalogue(str(new))
        Identity(declarations.config.name, store, moved).check()
        return _finish_moving(store, moved, progress)
    finally:
        lock.release()
        store.close()


def _may_move(store: Store, identity: Identity, new: Path) -> None:
    if new.is_relative_to(identity.folder) or identity.folder.is_relative_to(new):
        raise RestoreError(f"{new} and the data folder {identity.folder} lie in each other.\nName another folder.")
    if new.exists() and not new.is_dir():
        raise RestoreError(f"{new} is a file.\nName a new or empty folder.")
    with store.read() as conn:
        claim = read_claim(store, conn)
    mark = read_mark(new)
    if claim is not None and mark is not None and mark.identity == claim.identity:
        return  # a move that was interrupted
    if new.exists() and any(entry.name != f".{MARK_NAME}.part" for entry in new.iterdir()):
        raise RestoreError(f"{new} is not empty.\nName a new or empty folder.")


def _finish_moving(store: Store, catalogue: Catalogue, progress: ProgressReport) -> MovedFiles:
    """Take away what the project has in the folder where it was."""
    with store.read() as conn:
        before = store.fact(conn, _MOVED)
        listed = list(catalogue.stored_files(conn))
    if before is None:
        raise RestoreError(f"the data are in {catalogue.data_path} already.\nName another folder to move them to.")
    old = Path(before)
    if _same(before, catalogue):
        with store.write() as conn:
            conn.execute(delete(state_tables.fact).where(state_tables.fact.c.name == _MOVED))
        raise RestoreError(f"the data are in {catalogue.data_path} already.\nName another folder to move them to.")
    inside = [
        file.path.removeprefix(catalogue.data_path) for file in listed if file.path.startswith(catalogue.data_path)
    ]
    progress("Tidying the old folder", 0, 1)
    twice = [str(old / path) for path in inside if (Path(catalogue.data_path) / path).exists()]
    storage = LocalStorage(old)
    storage.delete([path for path in twice if storage.written_by_a_job(path)])
    for place, _, _ in os.walk(old, topdown=False):
        if Path(place) in (old, old / "main") or Path(place).parent == old / "main":
            try:
                Path(place).rmdir()
            except OSError:
                continue
    left = sum(len(names) for _, _, names in os.walk(old))
    with store.write() as conn:
        conn.execute(delete(state_tables.fact).where(state_tables.fact.c.name == _MOVED))
    return MovedFiles(before, catalogue.data_path, len(inside), left)
