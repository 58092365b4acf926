"""Projects written by hand: each was wrong once, or is what a change of one setting did to rows. Compared as drawn ones are, after
every step, and with the rows that are expected in the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import PenstockError
from tests.projects.calendar import DAY, HOUR, MINUTE, midnight, wall
from tests.projects.engines import Engine, OnDuck, OnSpark
from tests.projects.play import play, published
from tests.projects.project import write_project
from tests.projects.shrink import told
from tests.projects.views import Source, View, trunc
from tests.projects.views import python as in_python

Rows = list[tuple[Any, ...]]
COLUMNS = [["k", "string"], ["v", "bigint"], ["ts", "timestamp"]]
# Monday, 4 March 2024.
T = 1_709_510_400_000_000
EV = Source("ev", (("k", "string"), ("v", "bigint"), ("ts", "timestamp")), "ts", "none")
LAG = "SELECT k, ts, v, lag(v) OVER (PARTITION BY k ORDER BY ts) AS w FROM ev"
LAG_COLUMNS = [["k", "string"], ["ts", "timestamp"], ["v", "bigint"], ["w", "bigint"]]


def feed(**settings: Any) -> dict[str, Any]:
    return {
        "format": "csv",
        "mode": "append",
        "declared": True,
        "columns": COLUMNS,
        "time": "ts",
        "called": {"k": "k", "v": "v", "ts": "ts"},
        "style": "z",
        "settings": {"settle": "0s"} | settings,
    }


def table(
    text: str, columns: Sequence[Any], time: str | None, grain: str, relations: Any, **more: Any
) -> dict[str, Any]:
    found = {"kind": "sql", "python": None, "template": "written", "text": text, "columns": columns, "time": time}
    found |= {"grain": grain, "sources": relations, "how": "partition", "settings": {"attempts": 1}}
    return found | more


def rolled_up(grain: str, feed: str = "ev") -> dict[str, Any]:
    bucket = trunc(grain, EV)
    text = f"SELECT k, {bucket} AS slot, sum(v) AS total, count(*) AS n FROM {feed} GROUP BY k, {bucket}"
    columns = [["k", "string"], ["slot", "timestamp"], ["total", "bigint"], ["n", "bigint"]]
    return table(text, columns, "slot", grain, {feed: None})


def deliver(number: int, *rows: Sequence[Any], feed: str = "ev") -> dict[str, Any]:
    return {"do": "deliver", "feed": feed, "file": f"f{number}.csv", "rows": [list(row) for row in rows]}


def setting(key: str, value: Any) -> dict[str, Any]:
    return {"do": "feed setting", "name": "ev", "key": key, "value": value}


def lived(folder: Path, engine: Engine, feeds: Any, tables: Any, steps: Any, zone: str = "UTC") -> dict[str, Rows]:
    """The rows of each table at the end."""
    case = {
        "seed": 0,
        "project": {"zone": zone, "run": {"tracks": 1}, "feeds": feeds, "tables": tables},
        "steps": steps,
    }
    played = play(case, engine, folder)
    assert not played.findings and not played.refused, f"{played.findings}{played.refused}\n{told(case)}"
    return published(folder, {name: [column for column, _ in one["columns"]] for name, one in (feeds | tables).items()})


DAYS = [("a", 1, T + 2 * HOUR), ("a", 2, T + DAY + 2 * HOUR), ("b", 3, T + 2 * DAY + HOUR), ("a", 4, T + 2 * DAY)]


@pytest.fixture
def duck(monkeypatch: pytest.MonkeyPatch) -> OnDuck:
    return OnDuck(monkeypatch)


def test_a_window_over_two_days_gives_each_row_once(tmp_path: Path, duck: OnDuck) -> None:
    made = table(LAG, LAG_COLUMNS, "ts", "day", {"ev": "DAY - 1 .. DAY"})
    steps = [[deliver(1, *DAYS)], [deliver(2, ("b", 9, T + DAY))]]
    found = lived(tmp_path / "p", duck, {"ev": feed(partition="day")}, {"t": made}, steps)
    # What is not in the day or the one before is not seen.
    assert sorted(row[2:] for row in found["t"]) == [(1, None), (2, 1), (3, 9), (4, 2), (9, None)]


def test_a_window_over_a_feed_without_partitions_gives_each_row_once(tmp_path: Path, duck: OnDuck) -> None:
    made = table(LAG, LAG_COLUMNS, "ts", "day", {"ev": None})
    steps = [[deliver(1, *DAYS)], [deliver(2, ("b", 9, T + DAY))]]
    found = lived(tmp_path / "p", duck, {"ev": feed()}, {"t": made}, steps)
    assert sorted(row[2] for row in found["t"]) == [1, 2, 3, 4, 9]


@pytest.mark.parametrize(
    ("partition", "grain", "relation"),
    [
        ("day", "hour", "containing"),
        ("week", "month", "MONTH.weeks()"),
        ("none", "day", "everything"),
        ("none", "day", None),
    ],
)
def test_a_job_of_several_partitions_gives_each_row_once(
    tmp_path: Path, duck: OnDuck, partition: str, grain: str, relation: str | None
) -> None:
    tables = {
        "t": table("SELECT k, ts, v FROM ev", LAG_COLUMNS[:3], "ts", grain, {"ev": relation}),
        "sums": rolled_up(grain) | {"sources": {"ev": relation}},
    }
    steps = [[deliver(1, *DAYS)], [deliver(2, ("c", 5, T - DAY), ("c", 6, T + 3 * DAY))]]
    found = lived(tmp_path / "p", duck, {"ev": feed(partition=partition)}, tables, steps)
    assert sorted(row[2] for row in found["t"]) == [1, 2, 3, 4, 5, 6]
    assert sum(row[3] for row in found["sums"]) == 6


@pytest.mark.parametrize(("before", "after"), [("none", "day"), ("week", "hour"), ("day", "hour")])
def test_a_base_table_with_other_partitions_has_each_row_once(
    tmp_path: Path, duck: OnDuck, before: str, after: str
) -> None:
    tables = {
        "t": table(
            "SELECT k, ts, v FROM ev", LAG_COLUMNS[:3], "ts", "week", {"ev": "everything" if before == "none" else None}
        )
    }
    steps = [[deliver(1, *DAYS)], [setting("partition", after)], [deliver(2, ("c", 5, T + 3 * DAY))]]
    found = lived(tmp_path / "p", duck, {"ev": feed(partition=before)}, tables, steps)
    assert sorted(row[1] for row in found["ev"]) == sorted(row[2] for row in found["t"]) == [1, 2, 3, 4, 5]


def test_a_project_of_another_zone_has_each_row_once(tmp_path: Path, duck: OnDuck) -> None:
    late = wall_of(2024, 3, 5, 0, 30)
    rows = [("a", 1, late), ("a", 2, late + DAY), ("b", 3, late + 2 * DAY)]
    steps = [[deliver(1, *rows)], [{"do": "zone", "value": "UTC"}], [deliver(2, ("c", 4, late + 3 * DAY))]]
    tables = {"days": rolled_up("day")}
    found = lived(tmp_path / "p", duck, {"ev": feed(partition="day")}, tables, steps, zone="Europe/Berlin")
    assert sorted(row[1] for row in found["ev"]) == [1, 2, 3, 4]
    # Half past midnight in Berlin is the day before in UTC.
    assert sorted((row[1], row[2]) for row in found["days"]) == [(T + n * DAY, n + 1) for n in range(4)]


@pytest.mark.parametrize("zones", [("Asia/Kathmandu", "Europe/London"), ("Europe/London", "Asia/Tokyo")])
@pytest.mark.parametrize("gone", [False, True])
def test_days_of_a_feed_with_a_zone_of_its_own_begin_in_the_projects(
    tmp_path: Path, duck: OnDuck, zones: tuple[str, str], gone: bool
) -> None:
    days = feed(partition="week", zone="America/Sao_Paulo") | {"columns": [*COLUMNS[:2], ["ts", "date"]]}
    text = "SELECT ⟦:partition_start¦cast({start} as bigint)⟧ AS slot, count(*) AS n FROM ev"
    weeks = table(text, [["slot", "timestamp"], ["n", "bigint"]], "slot", "week", {"ev": None})
    archived = [{"do": "delete", "feed": "ev", "file": "f1.csv"}] if gone else []
    steps = [
        [deliver(1, ("a", 1, "2024-02-01"), ("a", 2, "2024-03-01"))],
        [*archived, {"do": "zone", "value": zones[1]}],
    ]
    found = lived(tmp_path / "p", duck, {"ev": days}, {"weeks": weeks}, steps, zone=zones[0])
    # The newest day has begun, also where it begins at another time now.
    assert [row[1] for row in found["weeks"]] == [1, 1]
    with sqlite3.connect(tmp_path / "p" / ".penstock" / "penstock.db") as store:
        ((edge,),) = store.execute(
            "SELECT complete_us FROM penstock_version WHERE table_name = 'ev' ORDER BY snapshot DESC LIMIT 1"
        )
    assert edge == midnight(date(2024, 3, 1), zones[1]) + 1


def wall_of(year: int, month: int, day: int, hour: int, minute: int) -> int:
    return wall(datetime(year, month, day, hour, minute), "Europe/Berlin")


def test_rows_that_had_waited_come_with_less_lateness(tmp_path: Path, duck: OnDuck) -> None:
    rows = [("a", 1, T), ("a", 2, T + 40 * MINUTE), ("b", 3, T + 50 * MINUTE), ("a", 4, T + 65 * MINUTE)]
    tables = {
        "hours": rolled_up("hour"),
        "t": table("SELECT k, ts, v FROM ev", LAG_COLUMNS[:3], "ts", "day", {"ev": None}),
    }
    steps = [[deliver(1, *rows)], [setting("lateness", None)], [deliver(2, ("c", 5, T + 2 * HOUR))]]
    found = lived(tmp_path / "p", duck, {"ev": feed(partition="hour", lateness="30m")}, tables, steps[:1])
    assert sum(row[3] for row in found["hours"]) == 1  # up to half past, and a row at 40 waits
    found = lived(tmp_path / "q", duck, {"ev": feed(partition="hour", lateness="30m")}, tables, steps)
    assert sorted(row[2] for row in found["t"]) == [1, 2, 3, 4, 5]
    assert sum(row[3] for row in found["hours"]) == 5


def test_rows_that_had_waited_come_without_markers(tmp_path: Path, duck: OnDuck) -> None:
    rows = [("a", 1, T), ("a", 2, T + 40 * MINUTE), ("b", 3, T + 50 * MINUTE)]
    mark = {"do": "mark", "feed": "ev", "file": "m1.mark", "at": T + 30 * MINUTE}
    steps = [[deliver(1, *rows), mark], [setting("punctuation", None)]]
    marked = feed(partition="hour", punctuation="landing/ev/*.mark")
    found = lived(tmp_path / "p", duck, {"ev": marked}, {"hours": rolled_up("hour")}, steps[:1])
    assert sum(row[3] for row in found["hours"]) == 1
    found = lived(tmp_path / "q", duck, {"ev": marked}, {"hours": rolled_up("hour")}, steps)
    assert sum(row[3] for row in found["hours"]) == 3


def test_a_correction_below_a_roll_up_that_is_ahead(tmp_path: Path, duck: OnDuck) -> None:
    """The months are ahead of a slower feed; what is corrected in an old month is seen at once in what reads both."""
    month = trunc("month", EV)
    text = f"SELECT m.k, m.slot, m.total AS one, s.total AS two FROM months m LEFT JOIN (SELECT k, {month} AS slot, sum(v) AS total FROM slow GROUP BY 1, 2) s ON m.k = s.k AND m.slot = s.slot"
    columns = [["k", "string"], ["slot", "timestamp"], ["one", "bigint"], ["two", "bigint"]]
    tables = {
        "months": rolled_up("month"),
        "both": table(text, columns, "slot", "month", {"months": None, "slow": "MONTH.days()"}),
    }
    feeds = {"ev": feed(partition="day"), "slow": feed(partition="day")}
    april = T + 35 * DAY
    steps = [
        [deliver(1, ("a", 1, T), ("a", 2, april)), deliver(2, ("a", 10, T), ("a", 20, april + DAY), feed="slow")],
        [deliver(3, ("a", 4, april + 60 * DAY))],
        [deliver(1, ("a", 100, T), ("a", 2, april))],
    ]
    found = lived(tmp_path / "p", duck, feeds, tables, steps)
    march = min(row[1] for row in found["both"])
    assert [(row[2], row[3]) for row in found["both"] if row[1] == march] == [(100, 10)]


BAD = ("z", 99, T + HOUR)


@pytest.mark.parametrize("partition", ["none", "day"])
def test_refused_rows_of_snapshots_are_there_once(tmp_path: Path, duck: OnDuck, partition: str) -> None:
    """Two that come at once, one after them, other partitions, a rewritten one; what the newest lacks is that of the others."""
    ruled = feed(partition=partition, rules=["v IS NULL OR v < 95"]) | {"mode": "snapshot"}
    steps = [
        [deliver(1, ("a", 1, T), BAD), deliver(2, ("a", 2, T + DAY), BAD)],
        [{"do": "zone", "value": "Europe/Berlin"}],
        [deliver(3, ("a", 3, T + 2 * DAY), BAD, BAD)],
        [setting("rules", ["v IS NULL OR v <> 99"]), deliver(2, ("a", 4, T + DAY), BAD)],
        [{"do": "withdraw", "feed": "ev", "file": "f3.csv"}],
    ]
    lived(tmp_path / "p", duck, {"ev": ruled}, {}, steps)


@pytest.mark.parametrize("partition", ["none", "day"])
def test_snapshots_that_are_kept_from_now_on_must_all_be_there(tmp_path: Path, duck: OnDuck, partition: str) -> None:
    """Rows of a file whose place another took are stored nowhere: without the file the table would lack them."""
    kept = {"do": "feed fields", "name": "ev", "fields": {"mode": "append"}}
    steps = [
        [deliver(1, ("a", 1, T), ("a", 2, T + DAY))],
        [deliver(2, ("a", 3, T + DAY))],
        [kept, {"do": "delete", "feed": "ev", "file": "f1.csv"}],
    ]
    feeds = {"ev": feed(partition=partition) | {"mode": "snapshot"}}
    case = {"seed": 0, "project": {"zone": "UTC", "run": {"tracks": 1}, "feeds": feeds, "tables": {}}, "steps": steps}
    (found,) = play(case, duck, tmp_path / "p").findings
    assert (found.kind, found.step) == ("failed", 2) and "f1.csv is no longer there; put it back" in found.text
    # The rows of the last are all there: it may go.
    steps[2][1] = {"do": "delete", "feed": "ev", "file": "f2.csv"}
    lived(tmp_path / "q", duck, feeds, {}, steps)


@pytest.mark.parametrize("time", ["ts", None])
def test_a_new_column_where_a_file_is_gone(tmp_path: Path, duck: OnDuck, time: str | None) -> None:
    wider = {"do": "feed fields", "name": "ev", "fields": {"columns": [*COLUMNS, ["more", "string"]]}}
    gone = {"do": "delete", "feed": "ev", "file": "f1.csv"}
    steps = [[deliver(1, ("a", 1, T))], [gone, wider, deliver(2, ("b", 2, T + DAY, "x"))]]
    settings = {"rules": ["v IS NULL OR v < 95"]} if time is None else {"partition": "day"}
    found = lived(tmp_path / "p", duck, {"ev": feed(**settings) | {"time": time}}, {}, steps)
    assert sorted(found["ev"]) == [("a", 1, T), ("b", 2, T + DAY)]


@pytest.mark.parametrize(("before", "after"), [("append", "upsert"), ("upsert", "append")])
def test_with_keys_or_without_rows_of_files_that_are_gone_are_not_lost(
    tmp_path: Path, duck: OnDuck, before: str, after: str
) -> None:
    """They would be rows of another table, which nobody could make."""
    folder, keyed = tmp_path / "p", 'mode = "upsert"\nkey = "k"\norder = "column v"\n'
    project = {"zone": "UTC", "run": {}, "feeds": {"ev": feed()}, "tables": {}}
    write_project(project, folder)
    plain = (folder / "penstock.toml").read_text()
    texts = {"append": plain, "upsert": plain + keyed}

    def run(mode: str) -> list[tuple[Any, ...]]:
        (folder / "penstock.toml").write_text(texts[mode])
        duck.run(folder, (), (), None)
        return sorted(published(folder, {"ev": ["k", "v"]})["ev"])

    for number in (1, 2):
        (folder / f"landing/ev/f{number}.csv").write_text(f"k,v,ts\nk{number},{number},2024-03-04T00:00:00Z\n")
    assert run(before) == [("k1", 1), ("k2", 2)]
    (folder / "landing/ev/f1.csv").rename(tmp_path / "archived")
    with pytest.raises(PenstockError, match=r"f1.csv is no longer there, and its rows would be lost"):
        run(after)
    assert run(before) == [("k1", 1), ("k2", 2)]
    (tmp_path / "archived").rename(folder / "landing/ev/f1.csv")
    assert run(after) == run(before) == [("k1", 1), ("k2", 2)]


def test_a_table_goes_on_without_one_that_was_never_made(tmp_path: Path, duck: OnDuck) -> None:
    """Nothing of `slow` is complete, so `mid` is not there: its columns are those that its query gives."""
    mid = table(
        "SELECT k, ⟦:partition_start¦cast({start} as bigint)⟧ AS ts, max(v) AS w FROM slow GROUP BY k",
        [["k", "string"], ["ts", "timestamp"], ["w", "bigint"]],
        "ts",
        "day",
        {"slow": None},
    )
    text = "SELECT e.k, e.ts, e.v, m.w FROM ev e LEFT JOIN mid m ON e.k = m.k AND e.ts = m.ts"
    both = table(text, LAG_COLUMNS, "ts", "day", {"ev": None, "mid": None})
    both["settings"] = {"attempts": 1, "absent": {"mid": "empty"}}
    feeds = {"ev": feed(partition="day"), "slow": feed(partition="day", punctuation="landing/slow/*.mark")}
    mark = {"do": "mark", "feed": "slow", "file": "m1.mark", "at": T + DAY}
    steps = [[deliver(1, ("a", 1, T)), deliver(2, ("a", 5, T), feed="slow")], [mark]]
    found = lived(tmp_path / "p", duck, feeds, {"mid": mid, "both": both}, steps[:1])
    assert found["both"] == [("a", T, 1, None)]
    found = lived(tmp_path / "q", duck, feeds, {"mid": mid, "both": both}, steps)
    assert found["both"] == [("a", T, 1, 5)]


def test_status_says_which_rows_wait(tmp_path: Path, duck: OnDuck) -> None:
    text = "SELECT e.k, e.v, s.v AS w FROM ev e JOIN slow s ON e.k = s.k"
    joined = table(text, [["k", "string"], ["v", "bigint"], ["w", "bigint"]], None, "none", {"ev": None, "slow": None})
    steps = [
        [deliver(1, ("a", 1, T)), deliver(3, ("a", 9, T + HOUR), feed="slow")],
        [deliver(2, ("a", 2, T + 3 * HOUR))],
    ]
    lived(
        tmp_path / "p",
        duck,
        {"ev": feed(partition="day"), "slow": feed()},
        {"t": joined},
        steps,
        zone="America/New_York",
    )

    def said(*command: str) -> str:
        done = CliRunner().invoke(app, [*command, "--project", str(tmp_path / "p")], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    shown = said("status")
    assert "t: 1 row of ev waits for slow, complete up to 2024-03-03 20:00" in shown
    # Whatever prints times says in which zone they are.
    assert "2024-03-03 00:00 to 2024-03-04 00:00 America/New_York" in said("backfill", "ev", "2024-03-03")
    asked = ("status", "explain t", "requests", "plan ev 2024-03-03", "versions t", "timeline")
    for command in asked:
        assert "times in America/New_York" in said(*command.split()), command


@pytest.mark.spark
@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_new_column_of_files_that_have_it_not(tmp_path: Path, spark: SparkSession, form: str) -> None:
    wider = {"do": "feed fields", "name": "ev", "fields": {"columns": [*COLUMNS, ["more", "string"]]}}
    steps = [[deliver(1, ("a", 1, T))], [wider, deliver(2, ("b", 2, T + DAY, "x"))]]
    feeds = {"ev": feed(partition="day") | {"format": form, "pattern": "*"}}
    found = lived(tmp_path / "p", OnSpark(spark), feeds, {}, steps)
    assert sorted(found["ev"]) == [("a", 1, T), ("b", 2, T + DAY)]


@pytest.mark.spark
def test_python_functions_and_flows_give_each_row_once(tmp_path: Path, spark: SparkSession) -> None:
    """A function over a feed without partitions; a flow whose time is cut by the clocks of the zone, and then without a column."""
    code = "return ev.selectExpr('k', 'ts', 'v')"
    view = in_python(View("SELECT k, ts, v FROM ev", [], "ts", "day", {"ev": None}), code)
    tables = {"t": table(view.text, LAG_COLUMNS[:3], "ts", "day", {"ev": None}, kind="python", python=code)}
    bucket = trunc("day", EV)
    flow = (
        "import penstock as ps\n\n\n"
        '@ps.flow(partition="day", time="slot", attempts=1)\ndef g_flow(ev):\n'
        "    good = ev.derive(slot=\"date_trunc('day', ts)\")\n"
        '    good.aggregate(["k", "slot"], {}).into("g_sums")\n'
    )
    sums = rolled_up("day") | {"kind": "flow", "template": "flow", "made_with": ["g_sums"]}
    sums |= {"flow": flow.replace("{}", 'total="sum(v)", n="count(*)"')}
    less = rolled_up("day") | {"kind": "flow", "template": "flow", "made_with": ["g_sums"]}
    less |= {"flow": flow.replace("{}", 'total="sum(v)"'), "columns": sums["columns"][:3]}
    less |= {"text": f"SELECT k, {bucket} AS slot, sum(v) AS total FROM ev GROUP BY k, {bucket}"}
    late = wall_of(2024, 3, 5, 0, 30)
    rows = [("a", 1, late), ("a", 2, late + DAY), ("b", 3, late + 2 * DAY)]
    steps = [
        [deliver(1, *rows)],
        [{"do": "tables", "tables": {"g_sums": less}}],
        [deliver(2, ("c", 4, late + 3 * DAY))],
    ]
    case = {
        "seed": 0,
        "project": {"zone": "Europe/Berlin", "run": {}, "feeds": {"ev": feed()}, "tables": tables | {"g_sums": sums}},
        "steps": steps,
    }
    played = play(case, OnSpark(spark), tmp_path / "p")
    assert not played.findings and not played.refused, f"{played.findings}{played.refused}\n{told(case)}"
    found = published(tmp_path / "p", {"t": ["v"], "g_sums": ["slot", "total"]})
    assert sorted(found["t"]) == [(1,), (2,), (3,), (4,)]
    assert sorted(found["g_sums"]) == [(late - 30 * MINUTE + n * DAY, n + 1) for n in range(4)]
