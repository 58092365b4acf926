"""Every setting, changed while there is data: what follows is what the table of effects says, before and after."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pyspark.sql import SparkSession

from penstock.app import Warehouse
from penstock.control.events import Effect, WarehouseDeclared
from penstock.declare.config import OF_TABLE, FeedConfig, ProjectConfig, TableConfig
from penstock.declare.effects import EFFECTS, WORDS, changes, told
from penstock.engine.upkeep.identity import NotOurs
from penstock.errors import PenstockError

DOCS = Path(__file__).parents[2] / "docs" / "changes.md"


def _fields(model: type[BaseModel], place: str = "") -> Iterator[str]:
    """All settings that there are, as the table names them."""
    for name, field in model.model_fields.items():
        inner = [field.annotation, *get_args(field.annotation)]
        nested = next((each for each in inner if isinstance(each, type) and issubclass(each, BaseModel)), None)
        if nested is FeedConfig:
            yield from (f"feeds.{each}" for each in FeedConfig.model_fields if each not in OF_TABLE)
        elif nested is not None:
            yield from _fields(nested, f"{place}{name}.")
        else:
            yield f"{place}{name}"
    if model is ProjectConfig:
        yield from (f"tables.{each}" for each in TableConfig.model_fields)


NO_SETTINGS = {f"tables.{each}" for each in ("sql", "function", "flow", "rows", "external", "added", "removed")} | {
    "feeds.added",
    "feeds.removed",
}


def test_every_setting_has_an_effect() -> None:
    assert set(_fields(ProjectConfig)) == set(EFFECTS) - NO_SETTINGS


def test_the_docs_show_the_table() -> None:
    told_there = re.findall(r"^\| `([a-z_.]+)` \| ([^|]+) \| ([^|]*) \|$", DOCS.read_text(), re.MULTILINE)
    expected = [(name, WORDS[entry.effect], entry.says) for name, entry in EFFECTS.items() if name not in NO_SETTINGS]
    assert [tuple(part.strip() for part in row) for row in told_there] == expected


TOML = """
name = "known"
[feeds.ev]
path = "landing/ev/*.csv"
format = "csv"
columns = "k string, ts timestamp, sent timestamp, v bigint"
time = "ts"
lateness = "30m"
partition = "hour"
[feeds.raw]
path = "landing/raw/*.csv"
format = "csv"
columns = "k string, ts timestamp, sent timestamp, v bigint"
time = "ts"
[feeds.other]
path = "landing/other/*.csv"
format = "csv"
columns = "k string, ts timestamp, sent timestamp, v bigint"
[feeds.dim]
path = "landing/dim/*.csv"
format = "csv"
columns = "k string, place string, at bigint"
mode = "snapshot"
[feeds.cur]
path = "landing/cur/*.csv"
format = "csv"
columns = "id bigint, number bigint, op string, deed string, sent timestamp"
mode = "changes"
key = "id"
order = "column sent"
"""
HOURLY = """-- partition = "hour"
-- time = "hour"
SELECT k, date_trunc('hour', ts) AS hour, date_trunc('hour', ts) AS also, count(*) AS n FROM ev GROUP BY 1, 2
"""
UPPER = """-- feed = "raw"
-- partition = "day"
SELECT upper(k) AS k, ts, sent, v FROM raw
"""
PYTHON = """
import penstock as ps

@ps.table(partition="day", time="day", columns="day timestamp, n bigint")
def daily(ev):
    return ev.selectExpr("date_trunc('day', ts) as day").groupBy("day").count().withColumnRenamed("count", "n")

@ps.flow(name="sent")
def sent_flow(ev):
    ev.filter("v > 0").into("sent")
"""

Changes = dict[str, Callable[[dict[str, str]], Any]]

SCORES = """kind = "external"
data = "elsewhere"
"""


def _toml(old: str, new: str) -> Callable[[dict[str, str]], Any]:
    return lambda files: files.update({"penstock.toml": _swap(files["penstock.toml"], old, new)})


def _sql(old: str, new: str, file: str = "tables/hourly.sql") -> Callable[[dict[str, str]], Any]:
    return lambda files: files.update({file: _swap(files[file], old, new)})


def _python(old: str, new: str) -> Callable[[dict[str, str]], Any]:
    return _sql(old, new, "tables/code.py")


def _swap(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def _feed(setting: str) -> Callable[[dict[str, str]], Any]:
    return _toml("[feeds.ev]\n", f"[feeds.ev]\n{setting}\n")


def _table(setting: str) -> Callable[[dict[str, str]], Any]:
    return lambda files: files.update({"tables/hourly.sql": f"-- {setting}\n{files['tables/hourly.sql']}"})


def _scores(setting: str) -> Callable[[dict[str, str]], Any]:
    def change(files: dict[str, str]) -> None:
        kept = [line for line in SCORES.splitlines() if line.split(" ")[0] != setting.split(" ")[0]]
        files["tables/scores.toml"] = "\n".join([*kept, setting]) + "\n"

    return change


def _section(name: str, setting: str) -> Callable[[dict[str, str]], Any]:
    return lambda files: files.update({"penstock.toml": f"{files['penstock.toml']}\n[{name}]\n{setting}\n"})


# For each setting a change of it, and the tables that must be made again, or must not.
ONE_OF_EACH: dict[str, tuple[Callable[[dict[str, str]], Any], set[str]]] = {
    "name": (_toml('"known"', '"called"'), set()),
    "zone": (_toml('name = "known"', 'name = "known"\nzone = "Asia/Tokyo"'), {"cur", "cur_changes", "dim", "ev", "hourly", "upper", "daily", "sent", "scores"}),
    "tables": (lambda files: files.update({"penstock.toml": f'tables = "tables"\n{files["penstock.toml"]}'}), set()),
    "storage.path": (_section("storage", 'path = "elsewhere"'), set()),
    "storage.keep_versions": (_section("storage", "keep_versions = 3"), set()),
    "storage.keep_days": (_section("storage", "keep_days = 3"), set()),
    "store.url": (_section("store", 'url = "sqlite:///another.db"'), set()),
    "run.tracks": (_section("run", "tracks = 3"), set()),
    "run.grace": (_section("run", 'grace = "1m"'), set()),
    "run.late_cost": (_section("run", "late_cost = 2.0"), set()),
    "run.patience": (_section("run", 'patience = "1m"'), set()),
    "run.policy": (_section("run", 'policy = "fifo"'), set()),
    "run.driver_bytes": (_section("run", "driver_bytes = 0"), set()),
    "queries.policy": (_section("queries", 'policy = "immediate"'), set()),
    "queries.lanes": (_section("queries", "lanes = 3"), set()),
    "queries.functions": (_section("queries", 'functions = ["reflect"]'), set()),
    "queries.inline_rows": (_section("queries", "inline_rows = 3"), set()),
    "queries.most_rows": (_section("queries", "most_rows = 3"), set()),
    "queries.longest": (_section("queries", 'longest = "3s"'), set()),
    "queries.most_waiting": (_section("queries", "most_waiting = 3"), set()),
    "queries.memory": (_section("queries", 'memory = "2g"'), set()),
    "queries.inline_bytes": (_section("queries", "inline_bytes = 3"), set()),
    "queries.kept_bytes": (_section("queries", "kept_bytes = 3"), set()),
    "queries.disk_bytes": (_section("queries", "disk_bytes = 3"), set()),
    "queries.files_kept": (_section("queries", 'files_kept = "3s"'), set()),
    "queries.unit_grace": (_section("queries", 'unit_grace = "1m"'), set()),
    "queries.unit_victims": (_section("queries", 'unit_victims = 0.3'), set()),
    "queries.unit_c_du": (_section("queries", 'unit_c_du = 0.3'), set()),
    "queries.unit_c_uu": (_section("queries", 'unit_c_uu = 0.3'), set()),
    "queries.unit_c_forget": (_section("queries", 'unit_c_forget = 0.3'), set()),
    "queries.unit_stretch": (_section("queries", 'unit_stretch = 3.0'), set()),
    "flows.objective": (_section("flows", 'objective = "memory"'), set()),
    "flows.memory": (_section("flows", 'memory = "1GB"'), set()),
    "flows.slots": (_section("flows", "slots = 3"), set()),
    "flows.order": (_section("flows", 'order = "mixed"'), set()),
    "serve.tokens": (_section("serve", "tokens = true"), set()),
    "serve.hosts": (_section("serve", 'hosts = ["shop.example"]'), set()),
    "log.to": (_section("log", 'to = "output"'), set()),
    "log.format": (_section("log", 'format = "json"'), set()),
    "log.level": (_section("log", 'level = "warning"'), set()),
    "log.size": (_section("log", 'size = "30MB"'), set()),
    "log.keep": (_section("log", "keep = 3"), set()),
    "profiles.within": (_section("profiles.bi", 'within = "3s"'), set()),
    "profiles.fresh": (_section("profiles.bi", 'fresh = "3s"'), set()),
    "profiles.lag": (_section("profiles.bi", "lag = 3"), set()),
    "profiles.consistent": (_section("profiles.bi", "consistent = false"), set()),
    "profiles.stale": (_section("profiles.bi", 'stale = "withhold"'), set()),
    "profiles.share": (_section("profiles.bi", "share = 2.0"), set()),
    "profiles.role": (_section("profiles.bi", 'role = "operator"'), set()),
    "profiles.success": (_section("profiles.bi", "success = 2.0"), set()),
    "profiles.rejected": (_section("profiles.bi", "rejected = 1.0"), set()),
    "profiles.missed": (_section("profiles.bi", "missed = 1.0"), set()),
    "profiles.outdated": (_section("profiles.bi", "outdated = 1.0"), set()),
    "spark": (_section("spark", '"sql.shuffle.partitions" = 3'), set()),
    "replicas.path": (_section("replicas.far", 'path = "far"'), set()),
    "replicas.tables": (_section("replicas.far", 'path = "far"\ntables = ["ev"]'), set()),
    "replicas.keep_versions": (_section("replicas.far", 'path = "far"\nkeep_versions = 3'), set()),
    "feeds.path": (_toml('path = "landing/ev/*.csv"', 'path = "landing/ev/n*.csv"'), set()),
    "feeds.format": (_toml('format = "csv"', 'format = "json"'), set()),
    "feeds.columns": (_toml("v bigint", "v double"), {"ev", "hourly", "daily", "sent"}),
    "feeds.time": (_toml('time = "ts"\n[feeds.other]', 'time = "sent"\n[feeds.other]'), {"upper"}),
    "feeds.zone": (_feed('zone = "Asia/Tokyo"'), {"ev", "hourly", "daily", "sent"}),
    "feeds.period": (_feed('period = "5m"'), set()),
    "feeds.lateness": (_toml('"30m"', '"0s"'), {"hourly", "daily", "sent"}),
    "feeds.late": (_feed('late = "set aside"'), {"ev", "hourly", "daily", "sent"}),
    "feeds.jitter": (_feed('jitter = "5m"'), set()),
    "feeds.punctuation": (_feed('punctuation = "landing/ev/*.mark"'), {"hourly", "daily", "sent"}),
    "feeds.mode": (_feed('mode = "snapshot"'), {"ev", "hourly", "daily", "sent"}),
    "feeds.order": (_toml('mode = "snapshot"', 'mode = "snapshot"\norder = "column at"'), {"dim"}),
    "feeds.key": (_toml('key = "id"', 'key = "id, number"'), {"cur", "cur_changes"}),
    "feeds.change": (_toml('key = "id"', 'key = "id"\nchange = "deed"'), {"cur", "cur_changes"}),
    "feeds.history": (_toml('key = "id"', 'key = "id"\nhistory = true'), {"cur_history"}),
    "feeds.reasons": (_feed('reasons = { "n*.csv" = "audit" }'), set()),
    "feeds.options": (_feed('options = { sep = ";" }'), set()),
    "feeds.rules": (_feed('rules = ["v > 1"]'), {"ev", "hourly", "daily", "sent"}),
    "feeds.settle": (_feed('settle = "5s"'), set()),
    "feeds.look_every": (_feed('look_every = "5m"'), set()),
    "feeds.follow_links": (_feed("follow_links = true"), set()),
    "feeds.max_ahead": (_feed('max_ahead = "5s"'), {"ev", "hourly", "daily", "sent"}),
    "tables.name": (_table('name = "hours"'), {"hours"}),
    "tables.feed": (lambda files: files.update({"tables/upper.sql": '-- time = "ts"\n' + UPPER.replace("raw", "other")}), {"upper"}),
    "tables.partition": (_sql('partition = "hour"', 'partition = "day"'), {"hourly"}),
    "tables.time": (_sql('time = "hour"', 'time = "also"'), {"hourly"}),
    "tables.sources": (_table('sources = { ev = "HOUR - 1 .. HOUR" }'), {"hourly"}),
    "tables.priority": (_table("priority = 2.0"), set()),
    "tables.period": (_table('period = "1h"'), set()),
    "tables.freshness": (_table('freshness = "3h"'), set()),
    "tables.update": (_table('update = "closed"'), {"hourly"}),
    "tables.history_weight": (_table("history_weight = 0.2"), set()),
    "tables.attempts": (_table("attempts = 2"), set()),
    "tables.propagate": (_table('propagate = "none"'), set()),
    "tables.overrun": (_table('overrun = "skip"'), set()),
    "tables.reason": (_table('reason = "audit"'), set()),
    "tables.absent": (_table('absent = "fail"'), set()),
    "tables.waits": (_table("waits = false"), {"hourly"}),
    "tables.columns": (_python("n bigint", "n int"), {"daily"}),
    "tables.code_version": (_table("code_version = 2"), {"hourly"}),
    "tables.keep_versions": (_table("keep_versions = 2"), set()),
    "tables.keep_days": (_table("keep_days = 2"), set()),
    "tables.chop": (_table("chop = 2"), set()),
    "tables.guarantee": (_table("guarantee = true"), set()),
    "tables.cost": (_table('cost = "3s"'), set()),
    "tables.recovery": (_table('recovery = "3s"'), set()),
    "tables.group": (_table('group = "all"'), set()),
    "tables.patience": (_table('patience = "3s"'), set()),
    "tables.late_cost": (_table("late_cost = 2.0"), set()),
    "tables.restated": (_table('restated = "Mon 02:00"'), set()),
    "tables.queue": (_table('queue = "1s"'), set()),
    "tables.owner": (_table('owner = "desk"'), set()),
    "tables.tags": (_table('tags = ["money"]'), set()),
    "tables.kind": (lambda files: (files.pop("tables/scores.toml"), files.update({"tables/scores.sql": "-- columns = 'k string, n bigint'\nSELECT k, n FROM hourly"})), {"scores"}),
    "tables.reads": (_scores('reads = ["hourly"]'), {"scores"}),
    "tables.data": (_scores('data = "files"\ncolumns = "k string, n bigint"'), {"scores"}),
    "tables.command": (_scores('command = "true"'), set()),
    "tables.webhook": (_scores('webhook = "http://127.0.0.1:1/"'), set()),
    "tables.order_within": (_scores('order_within = "3h"'), set()),
    "tables.external": (lambda files: (files.pop("tables/upper.sql"), files.update({"tables/upper.toml": 'kind = "external"\ncolumns = "K string, ts timestamp"\ntime = "ts"\n'})), {"upper"}),
    "tables.sql": (_sql("count(*)", "sum(v)"), {"hourly"}),
    "tables.function": (_python('count", "n"', 'count", "N"'), {"daily"}),
    "tables.rows": (_sql("upper(k)", "lower(k)", "tables/upper.sql"), {"upper"}),
    "tables.flow": (_python("v > 0", "v > 1"), {"sent"}),
    "tables.added": (lambda files: files.update({"tables/more.sql": "SELECT k FROM ev"}), {"more"}),
    "tables.removed": (lambda files: files.pop("tables/hourly.sql"), set()),
    "feeds.added": (_section("feeds.more", 'path = "landing/more/*.csv"\nformat = "csv"\ncolumns = "k string"'), set()),
    "feeds.removed": (lambda files: files.update({"penstock.toml": files["penstock.toml"].partition("[feeds.dim]")[0]}), set()),
}  # fmt: skip


@pytest.mark.spark
def test_every_setting_changed(tmp_path: Path, spark: SparkSession) -> None:
    assert ONE_OF_EACH.keys() == EFFECTS.keys()
    files = {
        "penstock.toml": TOML,
        "tables/hourly.sql": HOURLY,
        "tables/upper.sql": UPPER,
        "tables/code.py": PYTHON,
        "tables/scores.toml": SCORES,
        "landing/ev/one.csv": "k,ts,sent,v\na,2024-03-01 00:10:00,2024-03-01 00:20:00,1\n"
        "b,2024-03-01 01:10:00,2024-03-01 01:50:00,2\nb,2024-03-01 01:30:00,2024-03-01 01:50:00,2\n",
        "landing/dim/one.csv": "k,place,at\na,here,1\n",
        "landing/cur/one.csv": "id,number,op,deed,sent\n1,1,u,u,2024-03-01 00:00:00\n1,1,d,d,2024-03-01 00:01:00\n2,2,u,u,2024-03-01 00:02:00\n",
    }
    files["landing/raw/one.csv"] = files["landing/ev/one.csv"]
    _written(tmp_path, {}, files)
    with Warehouse(tmp_path, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        warehouse.publish("scores")
        assert not warehouse.plan().work
    wrong: list[str] = []
    for setting, (change, expected) in ONE_OF_EACH.items():
        changed = dict(files)
        change(changed)
        _written(tmp_path, files, changed)
        wrong += [f"{setting}: {each}" for each in _differs(tmp_path, setting, expected)]
        _written(tmp_path, changed, files)
    assert not wrong, "\n".join(wrong)
    # A run writes down what was another.
    _written(tmp_path, files, files | {"tables/hourly.sql": "-- priority = 2.0\n" + HOURLY})
    with Warehouse(tmp_path, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        with warehouse.store.read() as conn:
            last = [event for _, event in warehouse.store.events(conn) if isinstance(event, WarehouseDeclared)][-1]
        assert [told(each) for each in last.changed] == [
            "tables.hourly.priority: not set → 2.0: no row changes (from now on it decides when updates run)"
        ]
        assert not warehouse.plan().changed


def _differs(folder: Path, setting: str, expected: set[str]) -> Iterator[str]:
    effect: Effect = EFFECTS[setting].effect
    if effect == "refused":
        with pytest.raises((NotOurs, PenstockError)):
            Warehouse(folder).close()
        return
    try:
        with Warehouse(folder) as warehouse:
            plan = warehouse.plan()
    except PenstockError as error:
        yield str(error)
        return
    made = {work.table for work in plan.work}
    if made != expected:
        yield f"{sorted(made)} would be made, expected {sorted(expected)}"
    if (setting != "tables" and effect not in {each.effect for each in plan.changed}) or (
        effect in ("nothing", "comes") and any(each.effect in ("again", "anew") for each in plan.changed)
    ):
        yield f"plan tells {[told(each) for each in plan.changed]}"


def _written(folder: Path, before: dict[str, str], files: dict[str, str]) -> None:
    for name in before.keys() - files.keys():
        (folder / name).unlink()
    for name, text in files.items():
        if before.get(name) != text:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)


def test_what_is_secret_is_not_told() -> None:
    before = {"spark.hadoop.fs.s3a.secret.key": "#1234", "feeds.ev": "feed", "feeds.ev.path": "a"}
    now = {"spark.hadoop.fs.s3a.secret.key": "#4321", "feeds.ev": "feed", "feeds.ev.path": "b", "feeds.two": "feed", "feeds.two.path": "c"}  # fmt: skip
    assert [(each.setting, each.before, each.now) for each in changes(before, now)] == [
        ("feeds.ev.path", "a", "b"),
        ("feeds.two", "", "feed"),
        ("spark.hadoop.fs.s3a.secret.key", "…", "…"),
    ]
    assert changes({}, now) == ()


@pytest.mark.spark
def test_files_of_another_format_keep_their_rows(tmp_path: Path, spark: SparkSession) -> None:
    """The producer changes the delimiter, then the format. A new rule then concerns all rows, though old files can no longer be read."""
    toml = 'name = "formats"\n[feeds.ev]\npath = "landing/*"\nformat = "csv"\ncolumns = "k string, v bigint"\nsettle = "0s"\n'
    files = {"penstock.toml": toml, "landing/one.csv": "k,v\na,1\nb,2\n"}
    _written(tmp_path, {}, files)
    assert _rows(tmp_path, spark) == [("a", 1), ("b", 2)]
    more = files | {"penstock.toml": f'{toml}options = {{ sep = ";" }}\n', "landing/two.csv": "k;v\nc;3\n"}
    _written(tmp_path, files, more)
    assert _rows(tmp_path, spark) == [("a", 1), ("b", 2), ("c", 3)]
    last = more | {"penstock.toml": toml.replace("csv", "json"), "landing/three.json": '{"k": "d", "v": 4}\n'}
    _written(tmp_path, more, last)
    assert _rows(tmp_path, spark) == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    ruled = last | {"penstock.toml": f'{last["penstock.toml"]}rules = ["v > 1"]\n'}
    _written(tmp_path, last, ruled)
    assert _rows(tmp_path, spark) == [("b", 2), ("c", 3), ("d", 4)]
    assert _rows(tmp_path, spark, "SELECT row, reason FROM ev_quarantine") == [
        ('{"k":"a","v":1}', "breaks the rule: v > 1"),
    ]
    unruled = last | {"penstock.toml": f'{last["penstock.toml"]}rules = ["v > 2"]\n'}
    _written(tmp_path, ruled, unruled)
    assert _rows(tmp_path, spark) == [("c", 3), ("d", 4)]


def _rows(folder: Path, spark: SparkSession, sql: str = "SELECT * FROM ev") -> list[tuple[Any, ...]]:
    with Warehouse(folder, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        return sorted(tuple(row) for row in warehouse.query(sql).rows)


@pytest.mark.spark
def test_a_table_without_anything_to_be_made_from_keeps_nothing(tmp_path: Path, spark: SparkSession) -> None:
    """A view is pointed at a feed that has not delivered yet, and one comes back with other SQL: rows of before are not theirs."""
    toml = 'name = "emptied"\n' + "".join(
        f'[feeds.{name}]\npath = "landing/{name}/*.csv"\nformat = "csv"\ncolumns = "k string, ts timestamp"\ntime = "ts"\nsettle = "0s"\n'
        for name in ("one", "two")
    )
    count = '-- partition = "day"\n-- time = "day"\nSELECT k, date_trunc(\'day\', ts) AS day, count(*) AS n FROM {source} GROUP BY 1, 2'
    plain = "SELECT k, n FROM counted"
    files = {
        "penstock.toml": toml,
        "tables/counted.sql": count.format(source="one"),
        "tables/plain.sql": plain,
        "landing/one/a.csv": "k,ts\na,2024-03-01 10:00:00\nb,2024-03-02 10:00:00\n",
    }
    _written(tmp_path, {}, files)
    assert _rows(tmp_path, spark, "SELECT k, n FROM counted") == [("a", 1), ("b", 1)]
    moved = files | {"tables/counted.sql": count.format(source="two")}
    _written(tmp_path, files, moved)
    with Warehouse(tmp_path, spark=spark) as warehouse:
        warehouse.run(until_idle=True)
        answer = warehouse.query("SELECT c.k, p.n FROM counted AS c JOIN plain AS p USING (k)")
        assert answer.reading is not None
        assert (answer.rows, answer.reading.consistent, answer.reading.claimed_us) == ([], True, None)
        # Nor is there anything for others who read the catalogue.
        assert [warehouse.table(name).count() for name in ("counted", "plain")] == [0, 0]
        assert not [work.table for work in warehouse.plan().work]
        status = {row.table: row.complete_us for row in warehouse.status()}
        assert status["counted"] is None
    # It comes back with other columns.
    without = {name: text for name, text in moved.items() if name != "tables/plain.sql"}
    _written(tmp_path, moved, without)
    _rows(tmp_path, spark, "SELECT k FROM one")
    again = moved | {
        "tables/plain.sql": "SELECT n, k AS name FROM counted",
        "landing/two/b.csv": "k,ts\nc,2024-03-05 10:00:00\n",
    }
    _written(tmp_path, without, again)
    assert _rows(tmp_path, spark, "SELECT * FROM plain") == [(1, "c")]
