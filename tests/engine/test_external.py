"""Tables that others make: work orders, reports, files that stay where they are. The engine's own code, with DuckDB in the place of Spark."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.app import Warehouse
from penstock.control.orders import OutOfDate
from penstock.engine.external.dispatch import as_plain, span_text
from penstock.engine.external.registered_files import NotAccepted
from penstock.engine.upkeep.recompute import Recompute
from penstock.engine.upkeep.verify import Compared
from penstock.errors import PenstockError
from penstock.model.grain import zone_of
from penstock.model.partitions import EVERYTHING
from penstock.model.span import parse_span
from penstock.model.time import DAY_US, HOUR_US, parse_instant
from tests.engine import duckspark
from tests.engine.crashing import Points, Site, _duckdb, stats, without_spark, write_project

PROJECT = {
    "penstock.toml": """
        name = "outside"
        [run]
        tracks = 2
        [feeds.stats]
        path = "landing/stats/*.csv"
        format = "csv"
        columns = "router string, ts timestamp, bytes bigint"
        time = "ts"
        partition = "hour"
        settle = "0s"
    """,
    "tables/daily.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT router, date_trunc('day', ts) AS day, sum(bytes) AS bytes FROM stats GROUP BY 1, 2
    """,
    # What somebody else's program makes of it.
    "tables/scores.toml": """
        # How odd each router was on each day.
        kind = "external"
        reads = ["daily"]
        partition = "day"
        time = "day"
        columns = "router string, day timestamp, score double"
        order_within = "2h"
    """,
    "tables/alarms.sql": """
        -- partition = "day"
        -- time = "day"
        SELECT router, day, score FROM scores WHERE score > 0.5
    """,
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    write_project(tmp_path / "project", PROJECT)
    without_spark(monkeypatch)
    return Site(tmp_path / "project", Points())


def run(site: Site, *files: tuple[str, str]) -> None:
    """A process takes these files up and does all that it can."""
    site.deliver(dict(files))
    with site.running() as process:
        process.run(until_idle=True)


def day(number: int, *readings: tuple[str, int]) -> tuple[str, str]:
    """A file with the readings of a day, and the first of the next, which ends it."""
    rows = [(router, f"{number:02}T10:05", count) for router, count in readings]
    return f"stats/{number:02}-{len(rows)}.csv", stats(*rows, ("end", f"{number + 1:02}T00:00", 0))


@contextmanager
def opened(site: Site) -> Iterator[Warehouse]:
    with Warehouse(site.folder, clock=site.clock) as warehouse:  # type: ignore[arg-type]
        yield warehouse


def parquet(path: Path, *rows: tuple[str, str, float], time: str = "TIMESTAMPTZ") -> Path:
    """What the other program writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = ", ".join(f"('{router}', '{at} 00:00:00+00'::{time}, {score}::DOUBLE)" for router, at, score in rows)
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.execute(f"COPY (SELECT * FROM (VALUES {values}) t(router, day, score)) TO '{path}' (FORMAT parquet)")
    return path


def rows(site: Site, table: str, at: int | None = None) -> list[tuple[object, ...]]:
    """As DuckDB reads the catalogue."""
    con = _duckdb()
    try:
        con.execute(f"ATTACH 'ducklake:{site.lake}' AS lake (READ_ONLY)")
        version = f" AT (VERSION => {at})" if at is not None else ""
        return sorted(con.execute(f"SELECT router, day::DATE::VARCHAR, score FROM lake.{table}{version}").fetchall())
    finally:
        con.execute("DETACH lake")


def test_an_order_is_issued_reported_and_read(site: Site) -> None:
    run(site, day(1, ("a", 10), ("b", 20)))
    with opened(site) as warehouse:
        (order,) = warehouse.orders()
        assert order.table == "scores" and order.until_us - order.issued_us == 2 * HOUR_US
        plain = as_plain(order, zone_of("UTC"))
        assert plain["range"] == "2024-03-01..2024-03-02" and plain["partitions"][0][0] == "2024-03-01T00:00:00Z"
        assert plain["version"] == plain["inputs"]["daily"]
        file = parquet(site.folder / "theirs/one.parquet", ("a", "2024-03-01", 0.9), ("b", "2024-03-01", 0.1))
        done = warehouse.publish("scores", version=order.version, files=[file])
        assert (done.rows, done.order, done.mixed) == (2, order.order, False)
        assert not warehouse.orders()
        status = {row.table: row for row in warehouse.status()}
        assert status["scores"].kind == "external"
        assert status["scores"].complete_us == status["daily"].complete_us
        explained = warehouse.explain("scores")
        assert "by others, when they get a work order" in explained.how
    assert rows(site, "scores") == [("a", "2024-03-01", 0.9), ("b", "2024-03-01", 0.1)]
    run(site)
    assert rows(site, "alarms") == [("a", "2024-03-01", 0.9)]
    # The file is where it was, and nothing is left to do.
    with opened(site) as warehouse:
        assert not warehouse.orders() and file.exists()
        assert warehouse.verify().ok
        state = warehouse.state()
        session: Any = duckspark.Session()
        again = Recompute(session, warehouse.declared, warehouse.store, warehouse.catalogue, lambda _name: None, int)
        assert list(again._table(state, state.tables["scores"])) == [Compared("scores", None, "others make it")]


def test_changes_while_an_order_is_open_are_ordered_next(site: Site) -> None:
    run(site, day(1, ("a", 10)))
    with opened(site) as warehouse:
        (first,) = warehouse.orders()
    run(site, ("stats/late.csv", stats(("b", "01T11:00", 5))))
    with opened(site) as warehouse:
        assert [order.order for order in warehouse.orders()] == [
            first.order
        ]  # not withdrawn: what it asks for is of one state
        one = parquet(site.folder / "theirs/one.parquet", ("a", "2024-03-01", 0.9))
        done = warehouse.publish("scores", "2024-03-01..2024-03-02", inputs=dict(first.inputs), files=[one])
        assert not done.mixed
    run(site)
    with opened(site) as warehouse:
        (second,) = warehouse.orders()
        assert second.version > first.version
        two = parquet(site.folder / "theirs/two.parquet", ("a", "2024-03-01", 0.8), ("b", "2024-03-01", 0.7))
        with pytest.raises(
            OutOfDate, match=rf"version {first.version} of `scores` is out of date: {second.order} asks for"
        ):
            warehouse.publish("scores", version=first.version, files=[two])
        with pytest.raises(OutOfDate, match=r"it was made from version \d+ of `daily`, ordered is \d+"):
            warehouse.publish("scores", inputs=dict(first.inputs), files=[two])
        with pytest.raises(
            OutOfDate, match=rf"{first.order} was reported already at .*, as version {done.version}; open is"
        ):
            warehouse.publish("scores", order=first.order, files=[two])
        with pytest.raises(OutOfDate, match="does not say what it was made from"):
            warehouse.publish("scores", files=[two])
        with pytest.raises(OutOfDate, match="does not read `stats`"):
            warehouse.publish("scores", inputs={"stats": 1}, files=[two])
        warehouse.publish("scores", order=second.order, files=[two])
        with pytest.raises(OutOfDate, match=f"{second.order} was reported already"):
            warehouse.publish("scores", order=second.order, files=[two])
        with pytest.raises(OutOfDate, match=r"it contains all that its inputs hold.*penstock backfill scores"):
            warehouse.publish("scores", version=second.version, files=[two])
    assert rows(site, "scores", done.version) == [("a", "2024-03-01", 0.9)]
    assert rows(site, "scores") == [("a", "2024-03-01", 0.8), ("b", "2024-03-01", 0.7)]


def test_newer_inputs_than_ordered_make_no_consistent_version(site: Site) -> None:
    run(site, day(1, ("a", 10)))
    with opened(site) as warehouse:
        (first,) = warehouse.orders()
    run(site, ("stats/late.csv", stats(("b", "01T11:00", 5))))
    with opened(site) as warehouse:
        newest = warehouse.state().tables["daily"].snapshot
        one = parquet(site.folder / "theirs/one.parquet", ("a", "2024-03-01", 0.9))
        with pytest.raises(OutOfDate, match=f"has no version {newest + 9} yet"):
            warehouse.publish("scores", inputs={"daily": newest + 9}, files=[one])
        assert warehouse.publish("scores", inputs={"daily": newest}, files=[one]).mixed
        assert not warehouse.state().tables["scores"].consistent
    run(site)
    with opened(site) as warehouse:
        (second,) = warehouse.orders()
        assert second.version == newest and second.order != first.order


def test_what_does_not_fit_is_refused(site: Site) -> None:
    run(site, day(1, ("a", 10)))
    folder = site.folder / "theirs"
    with opened(site) as warehouse:
        (order,) = warehouse.orders()

        def refused(*files: Path | str, match: str, span: str | tuple[str, ...] = ()) -> None:
            with pytest.raises(PenstockError, match=match):
                warehouse.publish("scores", span, order=order.order, files=files)

        outside = parquet(
            folder / "out.parquet", ("a", "2024-03-01", 1), ("a", "2024-03-05", 1), ("b", "2024-03-06", 1)
        )
        refused(
            outside,
            match=r"2 of its 3 rows lie outside of what is reported, for example in the partition of 2024-03-05",
        )
        refused(
            parquet(folder / "two.parquet", ("a", "2024-03-01", 1), ("a", "2024-03-02", 1)),
            match="rows of 2 partitions, .*one file or more for each day",
        )
        refused(
            parquet(folder / "ntz.parquet", ("a", "2024-03-01", 1), time="TIMESTAMP"),
            match="column `day` is timestamp_ntz, declared is timestamp",
        )
        with duckdb.connect() as con:
            con.execute(f"COPY (SELECT 'a' AS router, 0.5::FLOAT AS score) TO '{folder}/less.parquet' (FORMAT parquet)")
        refused(folder / "less.parquet", match="column `day` is missing; column `score` is float, declared is double")
        (folder / "no.parquet").write_text("not Parquet")
        refused(folder / "no.parquet", match="cannot be read as Parquet")
        refused(folder / "none.parquet", match="there is no file")
        good = parquet(folder / "good.parquet", ("a", "2024-03-01", 1))
        refused(good, span="2024-03-01", match="2024-03-02 00:00 to 2024-03-03 00:00 is missing")
        refused(good, span="2024-03-01..2024-03-03", match="2024-03-03 00:00 to 2024-03-04 00:00 was not ordered")
        refused(
            parquet(site.folder / "warehouse/main/x.parquet", ("a", "2024-03-01", 1)),
            match="in the data folder of this project",
        )
        with pytest.raises(PenstockError, match="no files are named"):
            warehouse.publish("scores", order=order.order)
        with pytest.raises(
            PenstockError, match="`daily` is made here, so nothing is published for it; made by others: scores"
        ):
            warehouse.publish("daily", files=[good])
        assert [one.order for one in warehouse.orders()] == [order.order]
        warehouse.publish("scores", order=order.order, files=[])
    assert rows(site, "scores") == []


def test_a_file_that_was_handed_over_must_not_change(site: Site) -> None:
    run(site, day(1, ("a", 10)))
    file = site.folder / "theirs/one.parquet"
    with opened(site) as warehouse:
        warehouse.publish("scores", order=warehouse.orders()[0].order, files=[parquet(file, ("a", "2024-03-01", 1))])
    run(site, ("stats/late.csv", stats(("b", "01T11:00", 5))))
    with opened(site) as warehouse:
        (order,) = warehouse.orders()
        parquet(file, ("a", "2024-03-01", 1), ("b", "2024-03-01", 0.25))
        with pytest.raises(NotAccepted, match="was handed over before with other content"):
            warehouse.publish("scores", order=order.order, files=[file])


def test_time_passes_and_orders_come_back(site: Site) -> None:
    run(site, day(1, ("a", 10)))
    with opened(site) as warehouse:
        (order,) = warehouse.orders()
    site.clock.pass_by(2 * HOUR_US)
    run(site)
    with opened(site) as warehouse:
        (again,) = warehouse.orders()
        assert (again.version, again.attempt) == (order.version, 2)
        assert warehouse.explain("scores").error == f"nobody reported {order.order} within 2h"
        file = parquet(site.folder / "theirs/one.parquet", ("a", "2024-03-01", 0.9))
        with pytest.raises(OutOfDate, match=rf"{order.order} is closed since .*nobody reported.*open is {again.order}"):
            warehouse.publish("scores", order=order.order, files=[file])
        # It is given back, at once or because it failed.
        warehouse.return_order(again.order)
    run(site)
    with opened(site) as warehouse:
        (third,) = warehouse.orders()
        warehouse.return_order(third.order, failed="the notebook has no memory")
        assert not warehouse.orders()
        assert "the notebook has no memory" in (warehouse.explain("scores").error or "")
        with pytest.raises(PenstockError, match="no open work order"):
            warehouse.return_order(third.order)


def test_retention_and_verify_leave_their_files_alone(site: Site) -> None:
    toml = site.folder / "tables/scores.toml"
    toml.write_text(toml.read_text() + "keep_versions = 1\n")
    made = []
    for number in (1, 2, 3):
        run(
            site,
            ("stats/s.csv", stats(("a", "01T10:05", number)))
            if number == 1
            else (f"stats/{number}.csv", stats(("a", "01T11:00", number))),
            day(1 + number, ("z", 1)),
        )
        with opened(site) as warehouse:
            (order,) = warehouse.orders()
            made.append(parquet(site.folder / f"theirs/{number}.parquet", ("a", "2024-03-01", number / 10)))
            warehouse.publish("scores", order=order.order, files=[made[-1]])
        with site.running() as process:
            process._expired_at = float("-inf")
            process._maintain()
    assert all(file.exists() for file in made)
    with opened(site) as warehouse:
        assert warehouse.verify().ok
        with warehouse.store.read() as conn:
            assert not [path for path in warehouse.catalogue.scheduled(conn) if "theirs" in path]
        made[0].unlink()
        made[1].unlink()  # of versions that are no longer kept
        assert warehouse.verify().ok
        made[2].unlink()
        (problem,) = warehouse.verify().problems
        assert problem.table == "scores"
    run(site)  # it says so, and everything else goes on


ELSEWHERE = PROJECT | {
    "tables/scores.toml": """
        kind = "external"
        reads = ["daily"]
        data = "elsewhere"
        partition = "day"
    """,
    "tables/alarms.toml": """
        kind = "external"
        reads = ["scores", "daily"]
        data = "elsewhere"
        partition = "day"
    """,
}


def test_of_rows_elsewhere_only_versions_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A diamond of which we hold no row: a change reaches its end once, and not before its middle."""
    files = {name: text for name, text in ELSEWHERE.items() if name != "tables/alarms.sql"}
    write_project(tmp_path / "project", files)
    without_spark(monkeypatch)
    site = Site(tmp_path / "project", Points())
    run(site, day(1, ("a", 10)))
    for late in range(3):
        with opened(site) as warehouse:
            (order,) = warehouse.orders()
            assert order.table == "scores"  # alarms waits for it
            warehouse.publish("scores", version=order.version)
        run(site)
        with opened(site) as warehouse:
            (order,) = warehouse.orders()
            assert order.table == "alarms"
            warehouse.publish("alarms", version=order.version)
            assert warehouse.state().tables["alarms"].consistent
        run(site, (f"stats/late{late}.csv", stats(("b", "01T11:00", late))))


def test_a_table_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads none of ours: they publish when they like, and we follow."""
    own = """
        kind = "external"
        partition = "day"
        time = "day"
        columns = "router string, day timestamp, score double"
    """
    files = {name: text for name, text in PROJECT.items() if name in ("penstock.toml", "tables/alarms.sql")}
    write_project(tmp_path / "project", files | {"tables/scores.toml": own})
    without_spark(monkeypatch)
    site = Site(tmp_path / "project", Points())
    run(site)
    with opened(site) as warehouse:
        assert not warehouse.orders()
        first = [parquet(site.folder / f"theirs/{n}.parquet", ("a", f"2024-03-0{n}", n / 4)) for n in (1, 3)]
        done = warehouse.publish("scores", "2024-03-01..2024-03-03", files=first, version=7, by="a notebook")
        assert done.complete_us == parse_instant("2024-03-04")
        with pytest.raises(
            PenstockError, match="version 7 of `scores` is out of date: version 7 was published already"
        ):
            warehouse.publish("scores", "2024-03-01", files=first[:1], version=7)
        with pytest.raises(PenstockError, match="reads no table of ours"):
            warehouse.publish("scores", "2024-03-01", files=first[:1], inputs={"daily": 3})
    run(site)
    assert rows(site, "alarms") == [("a", "2024-03-03", 0.75)]
    with opened(site) as warehouse:
        again = parquet(site.folder / "theirs/again.parquet", ("a", "2024-03-01", 0.9))
        warehouse.publish("scores", "2024-03-01", files=[again], version=8)
        (version, *_) = warehouse.versions("scores")
        assert "was published as version 8" in version.why
    run(site)
    assert rows(site, "alarms") == [("a", "2024-03-01", 0.9), ("a", "2024-03-03", 0.75)]
    with opened(site) as warehouse:
        assert warehouse.state().tables["alarms"].consistent


def test_a_folder_of_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = PROJECT["tables/scores.toml"] + '        data = "folder theirs"\n'
    write_project(tmp_path / "project", PROJECT | {"tables/scores.toml": scores})
    without_spark(monkeypatch)
    site = Site(tmp_path / "project", Points())
    run(site, day(1, ("a", 10)))
    with opened(site) as warehouse:
        (order,) = warehouse.orders()
        for place, day_ in (("x/one", 1), ("x/two", 2), ("x/five", 5), (".tmp/three", 1)):
            parquet(site.folder / f"theirs/{place}.parquet", ("a", f"2024-03-0{day_}", 0.75))
        done = warehouse.publish("scores", version=order.version)  # the fifth is not ordered yet
        assert done.files == 2
        with pytest.raises(
            PenstockError, match='the rows of `scores` are in data = "folder theirs", so no files are handed over'
        ):
            warehouse.publish("scores", version=order.version, files=[site.folder / "x"])
    assert rows(site, "scores") == [("a", "2024-03-01", 0.75), ("a", "2024-03-02", 0.75)]


def test_nothing_is_half_published(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the registration of the files and the event: both are undone."""
    run(site, day(1, ("a", 10)))
    file = parquet(site.folder / "theirs/one.parquet", ("a", "2024-03-01", 0.9))
    with opened(site) as warehouse:
        (order,) = warehouse.orders()

        class Killed(BaseException):
            pass

        def killed(*_: object) -> int:
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(type(warehouse.store), "append", killed)
            with pytest.raises(Killed):
                warehouse.publish("scores", order=order.order, files=[file])
        assert [one.order for one in warehouse.orders()] == [order.order]
        with sqlite3.connect(site.folder / ".penstock/penstock.db") as conn:
            assert not conn.execute("SELECT path FROM ducklake_data_file WHERE path LIKE '%theirs%'").fetchall()
        warehouse.publish("scores", order=order.order, files=[file])
    assert rows(site, "scores") == [("a", "2024-03-01", 0.9)]


def test_a_backfill_orders_it_again_and_a_new_code_version_all(site: Site) -> None:
    run(site, day(1, ("a", 10)), day(2, ("a", 10)))
    with opened(site) as warehouse:
        warehouse.publish("scores", order=warehouse.orders()[0].order, files=[])
        warehouse.backfill("scores", "2024-03-02")
    run(site)
    with opened(site) as warehouse:
        (order,) = warehouse.orders()
        assert as_plain(order, zone_of("UTC"))["range"] == "2024-03-02"
        warehouse.publish("scores", order=order.order, files=[])
    run(site)
    with opened(site) as warehouse:
        assert [one.stage for one in warehouse.requests()] == ["done"]
    toml = site.folder / "tables/scores.toml"
    toml.write_text(toml.read_text() + "code_version = 2\n")
    site.folder.joinpath("penstock.toml").write_text(site.folder.joinpath("penstock.toml").read_text() + "\n")
    with opened(site) as warehouse:
        assert {work.table for work in warehouse.plan().work} == {"scores", "alarms"}
    run(site)
    with opened(site) as warehouse:
        (order,) = warehouse.orders()
        assert as_plain(order, zone_of("UTC"))["range"] == "2024-03-01..2024-03-03"


def test_a_table_that_is_taken_out_closes_its_order(site: Site) -> None:
    run(site, day(1, ("a", 10)))
    with opened(site) as warehouse:
        assert len(warehouse.orders()) == 1
    for name in ("scores.toml", "alarms.sql"):
        (site.folder / "tables" / name).unlink()
    site.folder.joinpath("penstock.toml").write_text(site.folder.joinpath("penstock.toml").read_text() + "\n")
    run(site)
    with opened(site) as warehouse:
        assert not warehouse.orders()


def test_a_command_makes_it(site: Site) -> None:
    """The command reports by the command line of another process, and a failing one is tried again later."""
    toml = site.folder / "tables/scores.toml"
    job = site.folder / "job.py"
    job.write_text(
        "import json, os, sys\njson.dump([json.load(sys.stdin), dict(os.environ)], open('told.json', 'w'))\nsys.exit('no luck')\n"
    )
    toml.write_text(toml.read_text() + 'command = "python3 job.py"\n')
    run(site, day(1, ("a", 10)))
    order, environment = json.loads((site.folder / "told.json").read_text())
    assert (
        environment["PENSTOCK_ORDER"] == order["order"]
        and environment["PENSTOCK_RANGE"] == order["range"] == "2024-03-01..2024-03-02"
    )
    with opened(site) as warehouse:
        assert not warehouse.orders()
        assert "`python3 job.py` ended with 1: no luck" in (warehouse.explain("scores").error or "")


@pytest.mark.parametrize(
    "text", ["all", "2024-03-01", "2024-03-01..2024-03-07", "2024-02", "2024-03-01T10", "2024-03-01T10:05"]
)
def test_ranges_are_written_as_they_are_read(text: str) -> None:
    interval = parse_span(text)
    assert parse_span(span_text(interval, zone_of("UTC"))) == interval
    assert (
        span_text((parse_instant("2024-03-01"), parse_instant("2024-03-01") + DAY_US), zone_of("UTC")) == "2024-03-01"
    )
    assert span_text(EVERYTHING.intervals[0], zone_of("UTC")) == "all"
