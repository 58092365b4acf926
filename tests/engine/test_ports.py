"""The world behind its ports: a feed that is a list, a machine that loses what was not made durable, and work that only Arrow does. The engine does not
notice."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from penstock.app import Warehouse
from penstock.declare.api import FeedDeclaration
from penstock.engine.arrivals.intake import Arrivals
from penstock.engine.ports import Compute, Computed, FeedSource, Made, Seen
from penstock.engine.runtime import Pace
from penstock.engine.storage import LocalStorage
from penstock.model.schema import Column, Schema
from penstock.requests.job import Job
from penstock.tables.footer import read_footer
from tests.conftest import Write
from tests.engine.crashing import InlineRuntime, Points, Ticking

PROJECT = {
    "penstock.toml": """
        name = "ports"
        [feeds.c]
        path = "a list"
        format = "csv"
        columns = "k string, n bigint"
        settle = "0s"
    """
}


class Listed:
    """A feed whose files somebody lists. Nothing is looked for."""

    missed = has_news = False
    all_told = True

    def __init__(self) -> None:
        self.listed: dict[str, Seen] = {}
        self.fresh: dict[str, Seen] = {}

    def add(self, path: Path) -> None:
        seen = Seen(path.stat().st_size, path.stat().st_mtime_ns)
        self.listed[str(path)] = self.fresh[str(path)] = seen

    def matches(self, path: str) -> bool:
        return path in self.listed

    def look(self) -> None: ...

    def glance(self) -> None: ...

    def list_changed(self) -> None: ...

    def sweep(self) -> Iterator[None]:
        return iter(())

    def see_again(self, path: str) -> Seen | None:
        return self.fresh.get(path)

    def look_again(self, path: str) -> None:
        self.fresh[path] = self.listed[path]

    def forget(self, path: str) -> None:
        self.fresh.pop(path, None)


class Forgetful(LocalStorage):
    """A disk that has lost, when the power comes back, what was not made durable."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._durable: set[str] = set()

    def make_durable(self, paths: Collection[str]) -> None:
        self._durable |= set(paths)

    def lose_power(self) -> list[Path]:
        lost = [path for path in self.root.rglob("*.parquet") if str(path) not in self._durable]
        for path in lost:
            path.unlink()
        return lost


class ArrowWork(Compute):
    """Loads CSV, and leaves another file beside that it does not report."""

    def __init__(self, runtime: InlineRuntime) -> None:
        self._runtime = runtime

    def run(self, job: Job, folder: str) -> Computed:
        root = self._runtime.catalogue.folder(job.table)
        place = Path(root) / folder
        place.mkdir(parents=True)
        base = self._runtime.warehouse.declarations.folder
        made = []
        for number, file in enumerate(job.files):
            rows = pacsv.read_csv(base / file.uri)
            for name in (f"{number}.parquet", f"left-{number}.parquet"):
                pq.write_table(rows, place / name)
            made.append(read_footer(str(place / f"{number}.parquet"), 0, root))
        schema = Schema((Column("k", "string"), Column("n", "bigint")))
        return Computed((Made(job.table, schema, tuple(made)),), "loaded by Arrow")


class Elsewhere(InlineRuntime):
    def _compute(self) -> Compute:
        return ArrowWork(self)


def test_other_sources_disks_and_engines(project: Write) -> None:
    folder = project(PROJECT)
    feed, clock = Listed(), Ticking()
    (folder / "x").mkdir()
    for name, rows in (("1", "a,1\nb,2\n"), ("2", "c,3\n")):
        (folder / "x" / name).write_text(f"k,n\n{rows}")

    def source(_feed: FeedDeclaration, _pattern: str, watched: bool = True) -> FeedSource:
        return feed

    with Warehouse(folder, clock=clock) as warehouse:
        declared, store, catalogue = warehouse.declared, warehouse.store, warehouse.catalogue
        runtime = Elsewhere(declared, store, catalogue, lambda: warehouse.spark, clock, Pace(0.0, 0.0))
        runtime.point = Points()
        runtime.storage = disk = Forgetful(catalogue.data_path)
        runtime.arrivals = Arrivals(
            store, folder, list(declared.feeds.values()), declared.feed_schemas.get, clock.now_us, source
        )
        runtime.lookout = runtime._lookout()
        runtime.start()
        try:
            for name in ("1", "2"):
                feed.add(folder / "x" / name)
                runtime.run(until_idle=True)
        finally:
            runtime.close()
        # What nobody published is gone; what was published is there.
        assert [path.name for path in disk.lose_power()] == ["left-0.parquet", "left-0.parquet"]
        with store.read() as conn:
            files = catalogue.files(conn, "c", catalogue.snapshot(conn))
            paths = [catalogue.locate("c", file) for file in files]
        rows = [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
        assert sorted((row["k"], row["n"]) for row in rows) == [("a", 1), ("b", 2), ("c", 3)]
