"""A backup: the catalogue, the state and every data file of the kept versions, as of one moment, in a folder of its own.

    backup.json       what it is of, and which of the databases beside it counts; written last, by one rename
    store-….db        catalogue and state as SQLite, whatever the project uses
    data/             the data files, as links where the file system can, which costs no space
    project/          penstock.toml and the tables, to read or to begin with

A folder can be used again: what is there already is not copied again. Until the last step the older backup in it counts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Connection, delete, insert, select, text
from sqlalchemy.exc import DBAPIError

from penstock.declare.config import FILE_NAME
from penstock.declare.project import Declarations
from penstock.engine.storage import to_disk
from penstock.engine.upkeep.identity import read_claim
from penstock.engine.upkeep.verify import ProgressReport, held, silent
from penstock.errors import PenstockError
from penstock.store import schema as state_tables
from penstock.store.store import Store
from penstock.tables import Catalogue, ddl
from penstock.tables.presence import Stored

MANIFEST = "backup.json"
FORMAT = 1
# Says that a backup was begun here, and of what.
_BEGUN = ".backup.part"
_TABLES = (*state_tables.metadata.sorted_tables, *ddl.metadata.sorted_tables)
_DATABASE = re.compile(r"store-[0-9a-f]{8}\.db")
_BATCH = 1000


class BackupError(PenstockError):
    pass


@dataclass(frozen=True)
class Backup:
    """What a folder holds a backup of."""

    identity: str
    project: str
    at_us: int
    snapshot: int
    # The name of its database.
    store: str
    # Where the data folder was.
    data: str
    files: int
    size_bytes: int
    # Files that the catalogue lists outside of the data folder: not in the backup.
    outside: tuple[str, ...] = ()
    format: int = FORMAT


def read_backup(folder: Path) -> Backup | None:
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if found["format"] > FORMAT:
            raise BackupError(f"{folder} was made by a newer Penstock (format {found['format']}).\nInstall that one.")
        return Backup(**{**{one.name: found[one.name] for one in fields(Backup)}, "outside": tuple(found["outside"])})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise BackupError(f"{folder / MANIFEST} cannot be read: {error}.\nName another backup.") from None


def backup(
    declarations: Declarations,
    store: Store,
    catalogue: Catalogue,
    folder: Path,
    now_us: Callable[[], int],
    *,
    copy: bool = False,
    progress: ProgressReport = silent,
) -> Backup:
    """Also while the project runs. `copy`: no links, as for another disk that is the same file system."""
    folder = folder.resolve()
    with store.read() as conn:
        claim = read_claim(store, conn)
    assert claim is not None
    before = _place_for(folder, claim.identity, Path(catalogue.data_path), declarations.folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / _BEGUN).write_text(claim.identity)
    older = sorted(path for path in folder.iterdir() if _DATABASE.fullmatch(path.name))
    name = f"store-{uuid4().hex[:8]}.db"
    with held(store, catalogue, now_us) as renew:
        at_us = now_us()
        progress("Copying the catalogue", 0, 1)
        copy_database(store, folder / name)
        with _opened(folder / name) as taken, taken.write() as conn:
            conn.execute(delete(ddl.pin))
            snapshot = catalogue.snapshot(conn)
            listed = list(catalogue.stored_files(conn))
        inside = {file.path.removeprefix(catalogue.data_path): file for file in listed if _is_inside(file, catalogue)}
        for number, (path, file) in enumerate(inside.items()):
            if number % 100 == 0:
                progress("Copying data files", number, len(inside))
                renew()
            try:
                put_file(Path(file.path), folder / "data" / path, file.size_bytes, copy)
            except FileNotFoundError:
                raise BackupError(
                    f"the data file {file.path} is missing, so there is no whole backup.\n`penstock verify` lists what is missing."
                ) from None
    _copy_declarations(declarations, folder / "project")
    outside = tuple(file.path for file in listed if not _is_inside(file, catalogue))
    size = sum(file.size_bytes for file in inside.values())
    made = Backup(
        claim.identity, declarations.config.name, at_us, snapshot, name, catalogue.data_path, len(inside), size, outside
    )
    _sync_folders(folder / "data", inside)
    write_whole(folder / MANIFEST, json.dumps(asdict(made), indent=1))
    if before is not None or older:
        _prune(folder, older, set(inside), claim.identity)
    (folder / _BEGUN).unlink(missing_ok=True)
    return made


def _place_for(folder: Path, identity: str, data: Path, project: Path) -> Backup | None:
    """The backup that is there already; refuse a folder that is something else."""
    if folder.is_relative_to(data) or data.is_relative_to(folder) or project.is_relative_to(folder):
        raise BackupError(
            f"{folder} and the project's own folders lie in each other.\nName a folder outside of {data}."
        )
    if folder.exists() and not folder.is_dir():
        raise BackupError(f"{folder} is a file.\nName a folder for the backup.")
    before = read_backup(folder)
    begun = (folder / _BEGUN).read_text() if (folder / _BEGUN).exists() else None
    if before is not None and before.identity != identity:
        raise BackupError(f"{folder} holds a backup of another warehouse, `{before.project}`.\nName another folder.")
    if before is None and begun != identity and folder.exists() and any(folder.iterdir()):
        raise BackupError(f"{folder} is not empty and holds no backup of this project.\nName a new or empty folder.")
    return before


def _is_inside(file: Stored, catalogue: Catalogue) -> bool:
    return file.path.startswith(catalogue.data_path) and ".." not in Path(file.path).parts


def _prune(folder: Path, older: list[Path], wanted: set[str], identity: str) -> None:
    """Files that only earlier backups in the folder listed."""
    for database in older:
        with suppress(PenstockError, DBAPIError), _opened(database) as known, known.read() as conn:
            claim = read_claim(known, conn)
            if claim is None or claim.identity != identity:
                continue
            root = Catalogue("/").recorded_path(conn)
            for file in Catalogue(root).stored_files(conn):
                path = file.path.removeprefix(root)
                if path not in wanted and _is_inside(file, Catalogue(root)):
                    (folder / "data" / path).unlink(missing_ok=True)
        for ending in ("", "-wal", "-shm"):
            database.with_name(database.name + ending).unlink(missing_ok=True)


def _copy_declarations(declarations: Declarations, folder: Path) -> None:
    for name in (FILE_NAME, "policies.py", declarations.config.tables):
        source = declarations.folder / name
        if source.is_dir():
            shutil.copytree(source, folder / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)


# Files


def put_file(source: Path, target: Path, size_bytes: int, copy: bool = False) -> None:
    """A data file at another place: a link where that is possible, or a copy; whole or not at all. Data files are never changed."""
    with suppress(FileNotFoundError):
        if target.stat().st_size == size_bytes:
            source.stat()
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    linked = False
    if not copy:
        with suppress(OSError):
            os.link(source, part)
            linked = True
    if not linked:
        shutil.copyfile(source, part)
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
    if part.stat().st_size != size_bytes:
        found = part.stat().st_size
        part.unlink()
        raise BackupError(
            f"{source} has {found:,} bytes, the catalogue says {size_bytes:,}.\n`penstock verify` lists what is damaged."
        )
    part.replace(target)


def write_whole(path: Path, content: str) -> None:
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def _sync_folders(root: Path, paths: dict[str, Stored]) -> None:
    for folder in {(root / path).parent for path in paths}:
        to_disk(folder)


# Databases


@contextmanager
def _opened(path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{path}")
    try:
        yield store
    finally:
        store.close()


def copy_database(store: Store, path: Path) -> None:
    """All of a store as it is at one moment, as SQLite; others go on writing meanwhile."""
    path.unlink(missing_ok=True)
    if store.is_sqlite:
        with closing(sqlite3.connect(path)) as target, closing(store.engine.raw_connection()) as raw:
            raw.driver_connection.backup(target)  # type: ignore[union-attr]
        return
    with _opened(path) as target_store:
        target_store.create()
        with store.engine.connect().execution_options(isolation_level="REPEATABLE READ") as source, source.begin():
            replace_rows(source, target_store)


def replace_rows(source: Connection, target: Store) -> None:
    """Everything that a store has is replaced by what another has, in one transaction."""
    with target.write() as conn:
        ddl.create(conn)
        for index in ddl.indices:
            index.create(conn, checkfirst=True)
        for table in _TABLES:
            conn.execute(delete(table))
            for rows in source.execution_options(yield_per=_BATCH).execute(select(table)).partitions(_BATCH):
                conn.execute(insert(table), [dict(row._mapping) for row in rows])
        if not target.is_sqlite:
            newest = "(SELECT coalesce(max(number), 0) + 1 FROM penstock_event)"
            conn.execute(text(f"SELECT setval(pg_get_serial_sequence('penstock_event', 'number'), {newest}, false)"))
