"""Backups, restores and moves: as of one moment, on both stores, and never half done; verify finds what is wrong and mends what it can."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.commands.feeds import withdraw
from penstock.engine.declarations import restored_state
from penstock.engine.storage import LocalStorage
from penstock.engine.upkeep import restore as restoring
from penstock.engine.upkeep.backup import Backup, BackupError, backup, read_backup
from penstock.engine.upkeep.identity import Identity
from penstock.engine.upkeep.restore import RestoreError, copy_project, move, restore
from penstock.engine.upkeep.retention import FilesMissing
from penstock.engine.upkeep.verify import Verified, Verifier
from penstock.store.lock import AlreadyRunning
from penstock.store.store import Store
from penstock.tables import Catalogue
from tests.engine.crashing import DELIVERIES, Crash, Site, _declared, check, make_site
from tests.engine.test_identity import another, everything, older_database, refused, settings, start
from tests.tables.conftest import postgres  # noqa: F401

_count = 0


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A project that has run."""
    made = make_site(tmp_path, monkeypatch)
    if request.param == "postgres":
        settings(made, "[run]", f'[store]\nurl = "{database(request)}"\n[run]')
    made.work(DELIVERIES[:2])
    return made


# Where the store makes no difference.
on_sqlite = pytest.mark.parametrize("site", ["sqlite"], indirect=True)


def database(request: pytest.FixtureRequest) -> str:
    global _count
    _count += 1
    return f"postgresql://penstock@{request.getfixturevalue('postgres')(f'safety{_count}')}"


@contextmanager
def opened(site: Site) -> Iterator[tuple[Store, Catalogue]]:
    declarations = site.warehouse.declarations
    store = Store(declarations.store_url)
    try:
        yield store, Catalogue(declarations.data_path)
    finally:
        store.close()


def back_up(site: Site, folder: Path, **options: Any) -> Backup:
    with opened(site) as (store, catalogue):
        return backup(site.warehouse.declarations, store, catalogue, folder, site.clock.now_us, **options)


def put_back(site: Site, folder: Path, force: bool = False) -> None:
    _declared.cache_clear()
    restore(site.warehouse.declarations, folder, site.clock.now_us, force=force)


def verified(site: Site, repair: bool = False) -> Verified:
    with opened(site) as (store, catalogue):
        verifier = Verifier(site.warehouse, store, catalogue, site.clock.now_us)
        found = verifier.run(restored_state(store))
        return verifier.repair(restored_state(store), found) if repair else found


def test_a_backup_is_restored_over_what_came_after_it(site: Site, tmp_path: Path) -> None:
    made = back_up(site, tmp_path / "kept")
    assert made.files and read_backup(tmp_path / "kept") == made
    linked = next((tmp_path / "kept" / "data").rglob("*.parquet"))
    assert linked.stat().st_nlink == 2, "on the same disk it takes no space"
    site.work(DELIVERIES[2:])
    check(site)
    with pytest.raises(RestoreError, match="--force"):
        put_back(site, tmp_path / "kept")
    before = everything(site.folder / "warehouse")
    put_back(site, tmp_path / "kept", force=True)
    assert verified(site).ok
    assert before.items() <= everything(site.folder / "warehouse").items(), "nothing is deleted"
    site.work([])
    found = verified(site)
    assert found.ok and found.unknown, "what the lost catalogue had published is left alone"
    for path in found.unknown_such_as:
        (site.folder / "warehouse" / path).unlink()
    shutil.rmtree(tmp_path / "kept")


def test_a_lost_state_comes_back_from_a_backup(site: Site, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    back_up(site, tmp_path / "kept")
    if site.warehouse.declarations.config.store.url is not None:
        settings(site, site.warehouse.declarations.store_url, database(request))
    shutil.rmtree(site.folder / ".penstock", ignore_errors=True)
    refused(site, "penstock restore")
    put_back(site, tmp_path / "kept")
    site.work(DELIVERIES[2:])
    check(site)


def test_a_backup_makes_a_project_of_its_own_beside_the_first(site: Site, tmp_path: Path) -> None:
    """Into SQLite, whatever the first one uses."""
    back_up(site, tmp_path / "kept", copy=True)
    second = another(site, tmp_path / "second")
    assert copy_project(tmp_path / "kept", second.folder)
    if site.warehouse.declarations.config.store.url is not None:
        settings(second, f'url = "{site.warehouse.declarations.store_url}"\n', "")
    shutil.copytree(site.folder / "landing", second.folder / "landing", copy_function=shutil.copy2)
    put_back(second, tmp_path / "kept")
    for each in (site, second):
        each.work(DELIVERIES[2:])
        check(each)
    # One does not take the place of the other.
    with pytest.raises(BackupError, match="another warehouse"):
        back_up(second, tmp_path / "kept")


def test_backups_while_the_project_runs(site: Site, tmp_path: Path) -> None:
    """At many moments of a run, into the same folder; each is whole."""
    taken: list[int] = []

    def watch(number: int, name: str) -> None:
        if name in ("computed", "published", "committed") and number % 5 == 0 and len(taken) < 4:
            site.point.watch = lambda *_: None
            taken.append(back_up(site, tmp_path / "kept").snapshot)
            site.point.watch = watch

    with site.point.watched(watch):
        site.work(DELIVERIES[2:])
    assert len(taken) == 4
    check(site)
    assert len(list((tmp_path / "kept").glob("store-*.db"))) == 1
    put_back(site, tmp_path / "kept", force=True)
    assert verified(site).ok
    site.work([])
    assert verified(site).ok


@on_sqlite
def test_a_backup_that_is_killed_leaves_the_older_one(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = back_up(site, tmp_path / "kept")
    site.work(DELIVERIES[2:])
    for point in (1, 3, 7):
        with killed(monkeypatch, point):
            back_up(site, tmp_path / "kept")
        assert read_backup(tmp_path / "kept") == first
    made = back_up(site, tmp_path / "kept")
    assert made.snapshot > first.snapshot
    listed = {path.relative_to(tmp_path / "kept" / "data") for path in (tmp_path / "kept" / "data").rglob("*.parquet")}
    with opened(site) as (store, catalogue), store.read() as conn:
        wanted = {Path(file.path.removeprefix(catalogue.data_path)) for file in catalogue.stored_files(conn)}
    assert listed == wanted, "what only the older one needed is gone"


@contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, point: int) -> Iterator[None]:
    """At the so-many-th file that gets its name."""
    left = [point]
    replace = Path.replace

    def counted(self: Path, target: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Crash
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", counted)
        with pytest.raises(Crash):
            yield


@on_sqlite
def test_a_restore_that_is_killed_is_done_again(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back_up(site, tmp_path / "kept")
    site.work(DELIVERIES[2:])
    with monkeypatch.context() as patch:
        patch.setattr(restoring, "replace_rows", _crash)
        with pytest.raises(Crash):
            put_back(site, tmp_path / "kept", force=True)
    # Before the switch it is the project that it was.
    site.work([])
    assert verified(site).ok
    with monkeypatch.context() as patch:
        patch.setattr(restoring.Identity, "check", _crash)
        with pytest.raises(Crash):
            put_back(site, tmp_path / "kept", force=True)
    site.work([])
    assert verified(site).ok


def _crash(*_: Any, **__: Any) -> None:
    raise Crash


@on_sqlite
def test_a_move_that_is_killed_anywhere(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project goes on from either folder, and the same command goes on."""
    mine = site.folder / "warehouse" / "mine.txt"
    mine.write_text("mine")
    new = tmp_path / "elsewhere" / "data"
    for point in (0, 1, 4):
        with killed(monkeypatch, point):
            moved(site, new)
        start(site)
        assert verified(site).ok
    for name in ("write_settings", "_finish_moving"):
        with monkeypatch.context() as patch, pytest.raises(Crash):
            patch.setattr(restoring, name, _crash)
            moved(site, new)
        start(site)
        assert verified(site).ok
    _declared.cache_clear()
    assert site.warehouse.declarations.data_path == str(new)
    moved(site, new)  # takes away what is left in the old folder
    assert mine.exists() and not list((site.folder / "warehouse").rglob("*.parquet"))
    site.work(DELIVERIES[2:])
    check(site)
    with pytest.raises(RestoreError, match="already"):
        moved(site, new)
    moved(site, Path("inside"))
    assert 'path = "inside"' in (site.folder / "penstock.toml").read_text()
    start(site)
    check(site)


def moved(site: Site, new: Path) -> None:
    _declared.cache_clear()
    move(site.warehouse.declarations, new, site.clock.now_us)


@on_sqlite
def test_places_that_are_not_free(site: Site, tmp_path: Path) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "mine.txt").write_text("mine")
    for place in (used, site.folder / "warehouse" / "inside", used / "mine.txt"):
        with pytest.raises((BackupError, RestoreError)) as found:
            back_up(site, place)
        assert len(str(found.value).splitlines()) == 2
        with pytest.raises(RestoreError) as found:
            moved(site, place)
        assert len(str(found.value).splitlines()) == 2
    with pytest.raises(RestoreError, match="holds no backup"):
        put_back(site, used)
    assert [path.name for path in used.iterdir()] == ["mine.txt"]
    back_up(site, tmp_path / "kept")
    with site.running(), pytest.raises(AlreadyRunning):
        put_back(site, tmp_path / "kept", force=True)


@on_sqlite
def test_verify_finds_what_is_wrong_and_mends_what_can_be(site: Site) -> None:
    assert verified(site).ok
    main = site.folder / "warehouse" / "main"
    daily, hourly, stats = (sorted((main / name).rglob("*.parquet")) for name in ("daily", "hourly", "stats"))
    daily[0].unlink()
    hourly[-1].write_bytes(b"PAR1" + bytes(hourly[-1].stat().st_size - 8) + b"PAR1")
    stats[-1].write_bytes(stats[-1].read_bytes()[:-7])
    found = verified(site)
    assert {(p.table, p.kind) for p in found.problems} == {
        ("daily", "missing"), ("hourly", "unreadable"), ("stats", "size"),
    }  # fmt: skip
    with pytest.raises(FilesMissing):
        start(site)
    mended = verified(site, repair=True)
    assert not mended.lost and len(mended.repairs) == 3
    for path in (hourly[-1], stats[-1]):
        path.unlink()
    site.work(DELIVERIES[2:])
    assert verified(site).ok
    check(site)


def test_an_older_database_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was deleted since is noticed and made again; what was written since is left alone."""
    site = make_site(tmp_path, monkeypatch)
    site.work(DELIVERIES[:1])
    older_database(site)
    before = everything(site.folder / "warehouse")
    with opened(site) as (store, catalogue):
        Identity("crashing", store, catalogue).check(accept=True)
    with pytest.raises(FilesMissing):
        start(site)
    found = verified(site, repair=True)
    assert found.repairs and not found.lost
    site.work([])
    site.work(DELIVERIES[2:])
    assert verified(site).ok
    left = everything(site.folder / "warehouse")
    with opened(site) as (store, catalogue), store.read() as conn:
        unknown = [Path(path) for path in catalogue.unknown_files(conn)]
    assert unknown and {str(path.relative_to(catalogue.data_path)) for path in unknown} <= before.keys() & left.keys()
    for path in unknown:
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
        path.unlink()
        for folder in path.parents:
            LocalStorage(catalogue.data_path).remove_if_empty(folder)
    check(site)


@on_sqlite
def test_each_partition_is_mended_by_itself(site: Site) -> None:
    """One delivered file is gone as well: the partitions that it has no rows of are made again, and without it the others."""
    for path in (site.folder / "warehouse" / "main" / "alerts").rglob("*.parquet"):
        path.unlink()
    (site.folder / "landing" / "alerts" / "a1.json").unlink()
    found = verified(site, repair=True)
    assert len(found.repairs) == 1 and found.repairs[0].startswith("alerts: the partitions of 1 files")
    assert len(found.lost) == 1 and "of 2 partitions (the first: 2024-03-01 22:00" in found.lost[0]
    assert "penstock withdraw landing/alerts/a1.json" in found.lost[0]
    with pytest.raises(FilesMissing):
        start(site)
    with opened(site) as (store, _):
        withdraw(site.warehouse, store, restored_state(store), ["landing/alerts/a1.json"], "", site.clock.now_us())
    found = verified(site, repair=True)
    assert found.repairs and not found.lost
    site.work([])
    left = verified(site, repair=True)
    assert not any(problem.live for problem in left.problems) and "given up" in left.repairs[0]
    found = verified(site)
    assert found.ok and {table.table: table.rows for table in found.tables}["alerts"] == 2


@on_sqlite
def test_what_cannot_be_made_again_is_said(site: Site) -> None:
    for path in (site.folder / "warehouse" / "main" / "alerts").rglob("*.parquet"):
        path.unlink()
    shutil.rmtree(site.folder / "landing" / "alerts")
    found = verified(site, repair=True)
    assert found.repairs == () and len(found.lost) == 2
    assert "landing/alerts/a" in found.lost[0] and "backup" in found.lost[0]
    with pytest.raises(FilesMissing):
        start(site)
