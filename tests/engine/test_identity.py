"""A warehouse knows whose it is: what must not run together is refused, and nothing is deleted that the project did not write."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.engine.upkeep.identity import NotOurs, read_mark
from penstock.engine.upkeep.retention import FilesMissing
from penstock.store.store import Store
from penstock.tables import Catalogue
from tests.engine.crashing import DELIVERIES, Points, Site, _declared, check, make_site
from tests.tables.conftest import postgres  # noqa: F401


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A project that has run."""
    made = make_site(tmp_path, monkeypatch)
    made.work(DELIVERIES[:1])
    return made


def another(site: Site, folder: Path) -> Site:
    return Site(folder, Points(), site.clock)


def everything(folder: Path) -> dict[str, int]:
    """All that lies in a data folder, but for what says whose it is."""
    return {
        os.path.relpath(Path(place, name), folder): Path(place, name).stat().st_size
        for place, _, names in os.walk(folder)
        for name in names
        if name != "penstock.json"
    }


def start(site: Site) -> None:
    _declared.cache_clear()
    with site.running():
        pass


def refused(site: Site, told: str, error: type[Exception] = NotOurs) -> None:
    """The start is refused, in two lines, and nothing is lost."""
    data = Path(site.warehouse.declarations.data_path)
    before = everything(data)
    with pytest.raises(error, match=told) as found:
        start(site)
    assert len(str(found.value).splitlines()) == 2
    assert everything(data) == before


def settings(site: Site, old: str, new: str) -> None:
    path = site.folder / "penstock.toml"
    path.write_text(path.read_text().replace(old, new))
    _declared.cache_clear()


def shared(site: Site, place: Path) -> None:
    """The data folder is at an absolute place."""
    settings(site, "[run]", f'[storage]\npath = "{place}"\n[run]')


def lose_state(site: Site) -> None:
    shutil.rmtree(site.folder / ".penstock")


def lose_both_identities(site: Site) -> None:
    """As a project was before there were identities, and then its state got lost."""
    lose_state(site)
    (site.folder / "warehouse" / "penstock.json").unlink()


def lose_the_folder(site: Site) -> None:
    (site.folder / "warehouse").rename(site.folder / "elsewhere")
    (site.folder / "warehouse").mkdir()


def lose_the_mark(site: Site) -> None:
    (site.folder / "warehouse" / "penstock.json").unlink()


def break_the_mark(site: Site) -> None:
    (site.folder / "warehouse" / "penstock.json").write_text('{"format": 1,')


def another_folder(site: Site) -> None:
    settings(site, "[run]", '[storage]\npath = "other"\n[run]')


def older_database(site: Site) -> None:
    kept = site.folder / "older.db"
    database = site.folder / ".penstock" / "penstock.db"
    with sqlite3.connect(database) as conn:
        conn.execute("VACUUM INTO ?", (str(kept),))
    site.work(DELIVERIES[1:2])
    for left in (site.folder / ".penstock").glob("penstock.db*"):
        left.unlink()
    kept.rename(database)


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (lose_state, "catalogue .* is empty"),
        (lose_both_identities, "is empty, but there are data files"),
        (lose_the_folder, "lost its penstock.json"),
        (lose_the_mark, "lost its penstock.json"),
        (break_the_mark, "cannot be read"),
        (another_folder, "penstock move"),
        (older_database, "an older copy of the database"),
    ],
)
def test_what_does_not_belong_together_is_refused(site: Site, happens: Callable[[Site], None], told: str) -> None:
    happens(site)
    refused(site, told)
    refused(site, told)


def test_a_second_project_with_the_same_data_folder(site: Site, tmp_path: Path) -> None:
    second = another(site, tmp_path / "second")
    shutil.copytree(site.folder, second.folder, ignore=shutil.ignore_patterns(".penstock", "warehouse"))
    settings(second, 'name = "crashing"', 'name = "second"')
    shared(second, site.folder / "warehouse")
    refused(second, "belongs to project `crashing`")
    start(site)
    check(site)


def test_a_copy_of_a_project_is_a_project_of_its_own(site: Site, tmp_path: Path) -> None:
    copy = another(site, tmp_path / "copy")
    shutil.copytree(site.folder, copy.folder)
    copy.work(DELIVERIES[1:2])
    site.work(DELIVERIES[1:2])
    for each in (site, copy):
        check(each)
    marks = [read_mark(each.folder / "warehouse") for each in (site, copy)]
    assert marks[0] is not None and marks[1] is not None
    assert marks[0].identity != marks[1].identity
    # Not even by hand are they put together.
    shared(copy, site.folder / "warehouse")
    refused(copy, "belongs to project")


def test_a_copy_that_shares_its_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(tmp_path, monkeypatch)
    shared(site, tmp_path / "data")
    site.work(DELIVERIES[:1])
    copy = another(site, tmp_path / "copy")
    shutil.copytree(site.folder, copy.folder)
    refused(copy, "is a copy of that")
    # A move leaves nothing behind.
    shutil.rmtree(copy.folder)
    site.folder.rename(copy.folder)
    copy.work(DELIVERIES[1:2])
    check(copy)


def test_a_project_that_is_moved_goes_on(site: Site, tmp_path: Path) -> None:
    moved = another(site, tmp_path / "elsewhere")
    site.folder.rename(moved.folder)
    moved.work(DELIVERIES[1:])
    check(moved)
    mark = read_mark(moved.folder / "warehouse")
    assert mark is not None and mark.data == str(moved.folder / "warehouse")


def test_a_project_from_before_identities_gets_one(site: Site, tmp_path: Path) -> None:
    lose_the_mark(site)
    with sqlite3.connect(site.folder / ".penstock" / "penstock.db") as conn:
        conn.execute("DELETE FROM penstock_fact WHERE name IN ('identity', 'swept')")
    moved = another(site, tmp_path / "elsewhere")
    site.folder.rename(moved.folder)
    moved.work(DELIVERIES[1:])
    check(moved)
    assert read_mark(moved.folder / "warehouse") is not None


def test_catalogued_files_that_are_missing(site: Site) -> None:
    gone = next((site.folder / "warehouse" / "main" / "daily").rglob("*.parquet"))
    gone.rename(site.folder / "kept")
    refused(site, f"data files of daily are missing .*{gone.name}", FilesMissing)
    (site.folder / "kept").rename(gone)
    start(site)


def test_nothing_of_others_is_deleted(site: Site) -> None:
    """Files of all kinds in all places, and a job that died: only what it wrote goes."""
    main = site.folder / "warehouse" / "main"
    job = next(path for path in (main / "stats").iterdir() if path.name.startswith("job-"))
    mine = [
        site.folder / "warehouse" / "mine.parquet",
        site.folder / "warehouse" / "notes" / "mine.txt",
        main / "mine.parquet",
        main / "stats" / "mine.parquet",
        main / "stats" / ".gone.parquet.crc",
        main / "my_table" / "part-0.parquet",
        main / "stats" / "job-000001-00000000" / "part-0.parquet",
        main / "stats" / "job-999999-0123abcd" / "part-0.parquet",
        job / "mine.parquet",
    ]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    (main / "an_empty_folder" / "inside" / "more").mkdir(parents=True)

    class Killed(BaseException):
        pass

    def watch(_number: int, name: str) -> None:
        if name == "durable":
            raise Killed

    site.deliver(DELIVERIES[1])
    with pytest.raises(Killed), site.point.watched(watch):
        site.work([])
    staged = set(everything(site.folder / "warehouse"))
    site.work(DELIVERIES[2:])
    assert [path for path in mine if not path.exists()] == []
    assert (main / "an_empty_folder" / "inside" / "more").exists()
    store = Store(site.warehouse.declarations.store_url)
    catalogue = Catalogue(site.warehouse.declarations.data_path)
    with store.read() as conn:
        unknown = {Path(path) for path in catalogue.unknown_files(conn)}
    store.close()
    assert unknown == {path for path in mine if path.suffix == ".parquet"}
    assert staged - set(everything(site.folder / "warehouse")), "what the job had written is swept"


def test_files_of_duckdb_are_left_to_duckdb(site: Site) -> None:
    """A file that somebody registered in the catalogue and that it then lets go."""
    mine = site.folder / "mine.parquet"
    mine.write_text("mine")
    inside = site.folder / "warehouse" / "main" / "stats" / "ducklake-1.parquet"
    inside.write_text("mine")
    with sqlite3.connect(site.folder / ".penstock" / "penstock.db") as conn:
        for path in (
            str(mine),
            "main/stats/ducklake-1.parquet",
            "main/stats/job-000001-00000000/../../../../mine.parquet",
        ):
            conn.execute(
                "INSERT INTO ducklake_files_scheduled_for_deletion VALUES (1, ?, ?, '2020-01-01 00:00:00+00')",
                (path, int(not path.startswith("/"))),
            )
    start(site)
    assert mine.exists() and inside.exists()


def test_an_empty_database_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    site = make_site(tmp_path, monkeypatch)
    database = request.getfixturevalue("postgres")
    first, second = (f"postgresql://penstock@{database(f'identity{n}')}" for n in (1, 2))
    settings(site, "[run]", f'[store]\nurl = "{first}"\n[run]')
    site.work(DELIVERIES[:1])
    settings(site, first, second)
    refused(site, "is empty")
    settings(site, second, first)
    # A copy of the folder has the same database: two folders, one catalogue.
    copy = another(site, tmp_path / "copy")
    shutil.copytree(site.folder, copy.folder)
    refused(copy, "is a copy of .*project/warehouse")
    site.work(DELIVERIES[1:])
    check(site)
