"""Whether a warehouse is what its catalogue says: every file there, of its size, with its rows and statistics; and what to do about what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from time import monotonic
from uuid import uuid4

from sqlalchemy import Connection

from penstock.control.events import BackfillRequested
from penstock.control.state import State
from penstock.declare.warehouse import Definitions
from penstock.engine.updates.cleanup import job_folder
from penstock.engine.upkeep.retention import missed, note_missed
from penstock.errors import PenstockError
from penstock.model.grain import WHOLE, zone_of
from penstock.model.partitions import EVERYTHING, PartitionSet
from penstock.model.time import HOUR_US, format_instant
from penstock.store.store import Store
from penstock.tables import Catalogue, presence
from penstock.tables.presence import Stored

REASON = "repair"
_AT_ONCE = 200
_RENEW_S = 600.0

# Told what is being done, how much of it is done, and how much there is.
ProgressReport = Callable[[str, int, int], None]


def silent(_what: str, _done: int, _all: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class FileProblem:
    table: str
    # Relative to the data folder where it lies in it.
    path: str
    # missing, size, unreadable, rows, statistics
    kind: str
    problem: str
    # Whether the newest snapshot needs it, or only older ones.
    live: bool
    id: int
    partition_us: int | None


@dataclass(frozen=True)
class TableVerified:
    table: str
    # Of all kept versions.
    files: int
    # Of the newest.
    rows: int
    size_bytes: int
    problems: tuple[FileProblem, ...] = ()


@dataclass(frozen=True)
class Compared:
    """A table beside what its declaration gives over its sources."""

    table: str
    # None if it could not be compared, and then why.
    equal: bool | None
    why: str = ""
    # It should have been possible: that is something wrong.
    failed: bool = False
    # How many rows are there that should not be, and the other way round.
    extra: int = 0
    lacking: int = 0
    partitions: int = 0


@dataclass(frozen=True)
class Verified:
    tables: tuple[TableVerified, ...]
    # Data files in the folder that the catalogue does not list: left as they are.
    unknown: int = 0
    unknown_bytes: int = 0
    unknown_such_as: tuple[str, ...] = ()
    compared: tuple[Compared, ...] = ()
    # What is made again, and what cannot be.
    repairs: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    @property
    def problems(self) -> list[FileProblem]:
        return [problem for table in self.tables for problem in table.problems]

    @property
    def ok(self) -> bool:
        return not self.problems and not any(one.equal is False or one.failed for one in self.compared)

    @property
    def not_compared(self) -> list[Compared]:
        return [one for one in self.compared if one.equal is None]


@contextmanager
def held(store: Store, catalogue: Catalogue, now_us: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """While this lasts nothing is forgotten, also by a process that runs; call what it gives now and then, to renew it."""
    holder = f"hold-{uuid4().hex[:8]}"
    renewed = monotonic()

    def lease() -> None:
        with store.write() as conn:
            catalogue.hold(conn, holder, now_us() + HOUR_US)

    def renew() -> None:
        nonlocal renewed
        if monotonic() - renewed > _RENEW_S:
            renewed = monotonic()
            lease()

    lease()
    try:
        yield renew
    finally:
        with store.write() as conn:
            catalogue.unpin(conn, holder)


@dataclass
class Verifier:
    warehouse: Definitions
    store: Store
    catalogue: Catalogue
    now_us: Callable[[], int]
    progress: ProgressReport = silent
    _names: dict[str, dict[int, str]] = field(default_factory=dict)

    def run(self, state: State) -> Verified:
        with held(self.store, self.catalogue, self.now_us) as renew:
            with self.store.read() as conn:
                files = list(self.catalogue.stored_files(conn))
            tables = []
            done = 0
            with ThreadPoolExecutor(8) as pool:
                for name, group in groupby(files, lambda file: file.table):
                    own = list(group)
                    problems: list[FileProblem] = []
                    for start in range(0, len(own), _AT_ONCE):
                        self.progress("Looking at files", done, len(files))
                        some = own[start : start + _AT_ONCE]
                        stats = self._statistics(name, some)
                        looked = pool.map(self._look, some, [stats.get(file.id, {}) for file in some])
                        problems += [problem for problem in looked if problem is not None]
                        done += len(some)
                        renew()
                    live = [file for file in own if file.end is None]
                    rows, size = sum(file.records for file in live), sum(file.size_bytes for file in live)
                    tables.append(TableVerified(name, len(own), rows, size, tuple(problems)))
            unknown = self._unknown(state)
            such = tuple(self._shown(path) for path in unknown[:10])
            return Verified(tuple(tables), len(unknown), sum(_size(path) for path in unknown), such)

    def _unknown(self, state: State) -> list[str]:
        busy = {job_folder(running.job.id, state.owner or "") for running in state.busy.values()}
        with self.store.read() as conn:
            found = list(self.catalogue.unknown_files(conn))
        return [path for path in found if not any(f"/{folder}" in path for folder in busy)]

    def _shown(self, path: str) -> str:
        return path.removeprefix(self.catalogue.data_path)

    def _statistics(self, table: str, files: Sequence[Stored]) -> dict[int, dict[str, tuple[object, ...]]]:
        """What the catalogue says of the files that we wrote. DuckDB writes bounds in its own ways."""
        ours = [file.id for file in files if file.partition_us is not None]
        with self.store.read() as conn:
            if table not in self._names:
                self._names[table] = presence.column_names(conn, table)
            found = presence.statistics(conn, ours)
        names = self._names[table]
        return {
            file: {names[column]: told for column, told in by_column.items() if column in names}
            for file, by_column in found.items()
        }

    def _look(self, file: Stored, stats: dict[str, tuple[object, ...]]) -> FileProblem | None:
        def problem(kind: str, said: str) -> FileProblem:
            live = file.end is None
            return FileProblem(file.table, self._shown(file.path), kind, said, live, file.id, file.partition_us)

        if "://" in file.path:
            return None
        try:
            size = Path(file.path).stat().st_size
        except OSError:
            return problem("missing", "is not there")
        if size != file.size_bytes:
            return problem("size", f"has {size:,} bytes instead of {file.size_bytes:,}")
        from pyarrow import ArrowException

        from penstock.tables.footer import read_footer

        try:
            found = read_footer(file.path, 0, str(Path(file.path).parent))
        except (ArrowException, OSError, PenstockError) as error:
            return problem("unreadable", f"cannot be read: {str(error).splitlines()[0]}")
        if found.records != file.records:
            return problem("rows", f"has {found.records:,} rows instead of {file.records:,}")
        for name, told in stats.items():
            own = found.stats.get(name)
            if own is not None and "nan" not in told and (own.nulls, own.min, own.max) != told:
                return problem("statistics", f"has other values in `{name}` than the catalogue says")
        return None

    # Mending

    def repair(self, state: State, found: Verified) -> Verified:
        """Have made again what lost its files, as far as that is possible; old versions that lost files are given up."""
        repairs: list[str] = []
        lost: list[str] = []
        bad = [problem for problem in found.problems if problem.live]
        known: set[int] = set()
        events: list[BackfillRequested] = []
        with self.store.read() as conn:
            before = self.catalogue.still_live(conn, missed(self.store, conn))
            for table, group in groupby(bad, lambda problem: problem.table):
                problems = list(group)
                why = self._why_not(state, table)
                if why is not None:
                    lost.append(f"{table}: {len(problems)} files cannot be made again: {why}")
                    continue
                # Each partition by itself: what one of them lacks is nothing to the others.
                gone = self._delivered_gone(conn, state, table, problems)
                lost += self._told(table, gone, problems)
                problems = [problem for problem in problems if problem.partition_us not in gone]
                if not problems:
                    continue
                known |= {problem.id for problem in problems}
                events.append(BackfillRequested(self.now_us(), table, self._ranges(table, problems), REASON))
                repairs.append(
                    f"{table}: the partitions of {len(problems)} files are made again with the next `penstock run`"
                )
        with self.store.write() as conn:
            self.store.append(conn, events)
            note_missed(self.store, conn, before | known)
            # Who has to look for a backup anyway may find these there, too.
            old = [problem for problem in found.problems if not problem.live] if not lost else []
            for table, group in groupby(old, lambda problem: problem.table):
                ids = [problem.id for problem in group]
                upto = max((end for end in self._ends(conn, ids)), default=0)
                self.catalogue.give_up(conn, table, upto, self.now_us())
                repairs.append(
                    f"{table}: versions before snapshot {upto} are given up, as {len(ids)} of their files are lost"
                )
        return Verified(**{**vars(found), "repairs": tuple(repairs), "lost": tuple(lost)})

    def _ends(self, conn: Connection, ids: Iterable[int]) -> Iterator[int]:
        wanted = set(ids)
        yield from (f.end for f in self.catalogue.stored_files(conn) if f.id in wanted and f.end is not None)

    def _ranges(self, table: str, problems: Sequence[FileProblem]) -> tuple[tuple[int, int], ...]:
        grain = self.warehouse.definitions[table].table.grain
        starts = {problem.partition_us for problem in problems}
        if grain is WHOLE or None in starts:
            return EVERYTHING.intervals
        return PartitionSet.of(*((start, grain.shift(start, 1)) for start in starts if start is not None)).intervals

    def _why_not(self, state: State, table: str) -> str | None:
        """What stands against making anything of a table again."""
        if table not in self.warehouse.definitions or table not in state.tables:
            return "no table of that name is declared; put them back from a backup"
        if not state.tables[table].exists:
            return "the table has not been made yet"
        return None

    def _delivered_gone(
        self, conn: Connection, state: State, table: str, problems: Sequence[FileProblem]
    ) -> dict[int | None, str]:
        """The partitions of a base table that need a delivered file which is gone, too, each with such a file. Which rows were
        in a lost file nobody can tell, so every file that has rows of its partition is needed; but not what is withdrawn."""
        found: dict[int | None, str] = {}
        if self.warehouse.definitions[table].table.feed is None:
            return found
        folder, withdrawn = self.warehouse.declarations.folder, state.tables[table].withdrawn
        for start, group in groupby(sorted(problems, key=_partition), key=_partition):
            for low, high in self._ranges(table, list(group)):
                rows = self.store.loaded_within(conn, table, low, high)
                uris = (row.uri for row in rows if row.uri not in withdrawn)
                lacking = next((uri for uri in uris if not (folder / uri).exists()), None)
                if lacking is not None:
                    found[start] = lacking
        return found

    def _told(self, table: str, gone: Mapping[int | None, str], problems: Sequence[FileProblem]) -> Iterator[str]:
        zone = zone_of(self.warehouse.zone)
        for uri in dict.fromkeys(gone.values()):
            starts = [start for start, lacking in gone.items() if lacking == uri]
            files = sum(problem.partition_us in starts for problem in problems)
            first = min((start for start in starts if start is not None), default=None)
            where = "" if first is None else f" of {len(starts)} partitions (the first: {format_instant(first, zone)})"
            yield (
                f"{table}: {files} files{where} cannot be made again: the delivered file {uri} is gone, too; put it or the data "
                f"files back from a backup, or do without it: `penstock withdraw {uri}`, then `penstock verify --repair` again"
            )


def _partition(problem: FileProblem) -> int:
    return -1 if problem.partition_us is None else problem.partition_us


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
