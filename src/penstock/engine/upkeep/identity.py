"""A warehouse knows whose it is: the catalogue and the data folder carry the same identity, and are compared at every start.

The folder's part is `penstock.json`. It also says where the folder and its catalogue were, which process ran the project last, and the newest
snapshot that the catalogue surely had: so a copy, a folder of another project, and an older copy of the database are told apart.

The two parts cannot be written at once. The catalogue's part is written first, as not settled; then the folder's; then the first is settled. An
unsettled identity takes the folder as it finds it and writes its part again, so that a crash in between does no harm.
"""

from __future__ import annotations

import json
import os
import uuid
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from sqlite3 import Error as SqliteError
from sqlite3 import connect as sqlite_connect
from time import sleep

from sqlalchemy import Connection
from sqlalchemy.engine import make_url

from penstock.engine.updates.cleanup import leave_all
from penstock.errors import PenstockError
from penstock.store.store import Store
from penstock.tables import Catalogue

FILE_NAME = "penstock.json"
FORMAT = 1
_FACT = "identity"
_NOTE = "Made by Penstock: whose data this folder holds. Leave it here."


class NotOurs(PenstockError):
    """The catalogue and the data folder do not belong together, or not any more."""


@dataclass(frozen=True)
class Mark:
    """The folder's part."""

    identity: str
    project: str
    # Where this folder and its catalogue were when this was written.
    data: str
    catalogue: str
    # The catalogue had this snapshot, and no loss of power takes it away again.
    snapshot: int = 0
    # The process that ran the project last.
    run: str | None = None
    format: int = FORMAT


@dataclass(frozen=True)
class Claim:
    """The catalogue's part."""

    identity: str
    run: str | None = None
    settled: bool = False
    # What the folder may say instead while this is not settled.
    was: str | None = None
    # Put back from a backup: the folder may know newer snapshots.
    restored: bool = False


def read_mark(folder: str | Path) -> Mark | None:
    path = Path(folder) / FILE_NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] > FORMAT:
            raise NotOurs(
                f"{path} has format {found['format']}, this Penstock knows {FORMAT}.\nInstall the newer Penstock that wrote it."
            )
        return Mark(**{one.name: found[one.name] for one in fields(Mark)})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NotOurs(f"{path} cannot be read: {error.strerror}.\nIs the disk there, and may you read it?") from None
    except (ValueError, KeyError, TypeError) as error:
        raise NotOurs(
            f"{path} cannot be read: {error}.\nPut it back from a copy, or type `penstock verify --accept` to have it written anew."
        ) from None


def write_mark(folder: str | Path, mark: Mark) -> None:
    """Whole or not at all, and on disk when this returns. One process at a time: within a transaction of the store."""
    path = Path(folder) / FILE_NAME
    part = path.with_name(f".{FILE_NAME}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8") as stream:
            json.dump({**asdict(mark), "note": _NOTE}, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except OSError as error:
        raise NotOurs(
            f"{path} cannot be written: {error.strerror}.\nMake the folder writable, or set another [storage] path."
        ) from None


def read_claim(store: Store, conn: Connection) -> Claim | None:
    found = store.fact(conn, _FACT)
    return None if found is None else Claim(**json.loads(found))


def put_claim(store: Store, conn: Connection, claim: Claim) -> None:
    store.set_fact(conn, _FACT, json.dumps(asdict(claim)))


def place_of(url: str) -> str:
    """Where a store is, without who may enter."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return f"sqlite:///{Path(parsed.database or '').resolve()}"
    return f"postgresql://{parsed.host or 'localhost'}:{parsed.port or 5432}/{parsed.database}"


class Identity:
    """Compares the two parts of one project, and keeps them up."""

    def __init__(self, project: str, store: Store, catalogue: Catalogue) -> None:
        self.project, self.store, self.catalogue = project, store, catalogue
        self.folder = Path(catalogue.data_path)
        self.place = place_of(store.url)
        self._marked: tuple[int, str | None] | None = None

    # Opening

    def check(self, accept: bool = False) -> None:
        """Raise `NotOurs` unless catalogue and folder belong together. `accept`: also where one is older than the other or the folder's part is lost."""
        claim = self._agreed(accept)
        if accept:
            # What lies in folders of unfinished jobs may have been published as a newer database knew: it is left alone.
            leave_all(self.store)
        if not claim.settled:
            self._settle(claim)

    def taken_by(self, run: str) -> None:
        """A process runs the project from now on. Call `check` before."""
        with self.store.write() as conn:
            claim = read_claim(self.store, conn)
            assert claim is not None
            claim = replace(claim, run=run, settled=False)
            put_claim(self.store, conn, claim)
        self._settle(claim)

    def keep_up(self) -> None:
        """Let the folder know how far the catalogue is."""
        with self.store.read() as conn:
            claim = read_claim(self.store, conn)
            snapshot = self.catalogue.snapshot(conn)
        if claim is not None and claim.settled and self._marked != (snapshot, claim.run):
            self.store.flush()
            with self.store.write() as conn:
                if read_claim(self.store, conn) == claim:
                    with suppress(NotOurs):  # a full disk, say: it is tried again
                        self._write(claim, snapshot)

    def _settle(self, claim: Claim) -> None:
        with self.store.read() as conn:
            snapshot = self.catalogue.snapshot(conn)
        self.store.flush()
        with self.store.write() as conn:
            # Another process may have gone on meanwhile.
            if read_claim(self.store, conn) == claim:
                self._write(claim, snapshot)
                put_claim(self.store, conn, replace(claim, settled=True, was=None, restored=False))

    def _write(self, claim: Claim, snapshot: int) -> None:
        data = str(self.folder)
        write_mark(self.folder, Mark(claim.identity, self.project, data, self.place, snapshot, claim.run))
        self._marked = snapshot, claim.run

    def _agreed(self, accept: bool) -> Claim:
        """The catalogue's part, made if neither has one; not settled if the folder's must be written."""
        for patience in (0.0, 0.1, 0.3):
            # A process that starts just now may be between the two.
            sleep(patience)
            try:
                return self._compared(accept)
            except NotOurs as error:
                found = error
        raise found

    def _compared(self, accept: bool) -> Claim:
        try:
            mark = read_mark(self.folder)
        except NotOurs:
            if not accept:
                raise
            mark = None
        with self.store.read() as conn:
            claim = read_claim(self.store, conn)
            recorded = self.catalogue.recorded_path(conn)
            made = self._judged(conn, claim, mark, recorded, self.catalogue.has_files(conn), accept)
        if made != claim or recorded != self.catalogue.data_path:
            with self.store.write() as conn:
                if read_claim(self.store, conn) != claim:
                    raise NotOurs("another process opens this project for the first time just now.\nTry again.")
                put_claim(self.store, conn, made)
                self.catalogue.relocate(conn, recorded)
        return made

    def _judged(
        self, conn: Connection, claim: Claim | None, mark: Mark | None, recorded: str, has_files: bool, accept: bool
    ) -> Claim:
        if claim is None:
            if mark is not None and not (accept and has_files):
                raise self._another(mark, has_files)
            self._must_agree(conn, has_files, recorded)
            return Claim(mark.identity if mark is not None else str(uuid.uuid4()), restored=True)
        settled = claim.settled
        unsettled = replace(claim, settled=False, was=claim.identity)
        if mark is None:
            if settled and has_files and not accept:
                raise self._lost(recorded)
            self._must_agree(conn, has_files, recorded)
            return unsettled
        if mark.identity not in (claim.identity, None if settled else claim.was):
            if not accept:
                raise self._another(mark, has_files)
            self._must_agree(conn, has_files, recorded)
            return replace(unsettled, was=mark.identity, restored=True)
        if not _same_place(mark.data, self.folder):
            original = _mark_or_none(mark.data)
            if original is not None and original.identity == mark.identity:
                if mark.catalogue == self.place:
                    raise self._copied_folder(mark)
                # A copy of the whole project: another warehouse from now on.
                unsettled = replace(unsettled, identity=str(uuid.uuid4()))
            claim = unsettled
        elif mark.catalogue != self.place:
            if keeps(mark.catalogue, mark.identity):
                raise self._copied_catalogue(mark)
            claim = unsettled
        elif not _same_place(recorded, self.folder):
            elsewhere = _mark_or_none(recorded)
            if elsewhere is not None and elsewhere.identity == mark.identity:
                raise NotOurs(
                    f"the catalogue {self.place} keeps its files in {recorded}, the project says {self.folder}.\n"
                    "Two projects share a database: give each its own [store] url in penstock.toml."
                )
        newest = self.catalogue.snapshot(conn)
        if mark.snapshot > newest and not claim.restored and not accept:
            raise NotOurs(
                f"the data folder {self.folder} has had snapshot {mark.snapshot}, the catalogue only knows {newest}: an older copy of the database "
                f"was put back.\nPut the newer one back; or, if it is lost, type `penstock verify --accept` to go on from the older one."
            )
        if settled and mark.run != claim.run and not accept:
            raise NotOurs(
                f"the data folder {self.folder} was last written by {mark.run}, of which the catalogue {self.place} knows nothing: another copy of the "
                "database was used.\nGo on with that one; or, if it is lost, type `penstock verify --accept` to go on with this one."
            )
        return replace(unsettled, restored=True) if accept else claim

    # Refusing

    def _must_agree(self, conn: Connection, has_files: bool, recorded: str) -> None:
        """Without an identity in the folder: what the catalogue lists is there, or it lists nothing and nothing is there."""
        if not has_files:
            if (stray := next(self.catalogue.files_there(), None)) is not None:
                raise NotOurs(
                    f"the catalogue {self.place} is empty, but there are data files in {self.folder}, such as {stray}.\n"
                    "Put the lost database back (or type `penstock restore DIR`), or begin anew with another [storage] path."
                )
            return
        missing = self.catalogue.missing_files(conn)
        if missing.files and len(missing.files) == missing.checked:
            raise self._lost(recorded)

    def _another(self, mark: Mark, has_files: bool) -> NotOurs:
        if has_files:
            return NotOurs(
                f"the data folder {self.folder} belongs to project `{mark.project}`, whose catalogue is {mark.catalogue}, not to {self.place}.\n"
                "Give this project a [storage] path of its own in penstock.toml, or put the right folder or database back."
            )
        return NotOurs(
            f"the data folder {self.folder} belongs to project `{mark.project}`, and the catalogue {self.place} is empty (it was kept in {mark.catalogue}).\n"
            "Put the database back (or type `penstock restore DIR`); if this is another project, give it a [storage] path of its own."
        )

    def _lost(self, recorded: str) -> NotOurs:
        if not _same_place(recorded, self.folder):
            return NotOurs(
                f"the catalogue's files are in {recorded}, the project says {self.folder}, where they are not.\n"
                f"Set [storage] path back, then type `penstock move {self.folder}` to move them."
            )
        return NotOurs(
            f"the data folder {self.folder} has lost its {FILE_NAME}, or is not the right folder: the catalogue lists files in it.\n"
            "Put the folder back (is the disk there?); if it is all there, type `penstock verify --accept`."
        )

    def _copied_folder(self, mark: Mark) -> NotOurs:
        return NotOurs(
            f"the data folder {self.folder} is a copy of {mark.data}, and the catalogue {self.place} keeps that one.\n"
            f"Give the copy a database of its own ([store] url); or, if the files were moved here, rename {mark.data} and try again."
        )

    def _copied_catalogue(self, mark: Mark) -> NotOurs:
        return NotOurs(
            f"the data folder {self.folder} is kept by the catalogue {mark.catalogue}; {self.place} is a copy of that.\n"
            "Give the copy a data folder of its own: `penstock backup DIR` there, another [storage] path here, `penstock restore DIR` here."
        )


def _mark_or_none(folder: str) -> Mark | None:
    with suppress(NotOurs, OSError):
        return read_mark(folder)
    return None


def _same_place(one: str, other: Path) -> bool:
    if Path(one) == other:
        return True
    with suppress(OSError):
        return Path(one).samefile(other)
    return False


def keeps(place: str, identity: str) -> bool:
    """Whether there is a catalogue of that identity at that place. Of other machines' we cannot know."""
    path = place.removeprefix("sqlite:///")
    if path == place or not Path(path).is_file():
        return False
    with suppress(SqliteError, ValueError, KeyError), closing(sqlite_connect(f"file:{path}?mode=ro", uri=True)) as conn:
        row = conn.execute("SELECT value FROM penstock_fact WHERE name = ?", (_FACT,)).fetchone()
        return row is not None and json.loads(row[0])["identity"] == identity
    return False
