"""Draws a case from a seed."""

from __future__ import annotations

import random
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tests.projects import calendar
from tests.projects.project import Case, Project, declare
from tests.projects.views import TEMPLATES, Drawing, Source, View, bare, spark_text, token, trunc

# Zones, each with moments near which something happens to its clocks.
ZONES: dict[str, list[str]] = {
    "UTC": ["2024-03-01T00:00", "2024-12-31T22:00", "2024-02-29T12:00"],
    "Europe/Berlin": ["2024-03-31T01:00", "2024-10-27T01:00", "2024-06-30T22:00"],
    "America/New_York": ["2024-03-10T07:00", "2024-11-03T06:00", "2024-07-01T04:00"],
    "Asia/Kolkata": ["2024-03-01T18:30", "2024-06-30T18:30"],
    # Until 2011 clocks were set there at a minute past midnight.
    "America/St_Johns": ["2010-11-07T01:30", "2010-03-14T02:00", "2009-10-31T12:00", "2024-11-03T04:30"],
    "Pacific/Auckland": ["2024-04-06T14:00", "2024-09-28T14:00", "2024-06-30T12:00"],
    "America/Sao_Paulo": ["2018-11-04T03:00", "2018-02-18T02:00"],
}
# How far the rows of a case lie apart: (minutes, grains that make sense there).
SCALES: dict[str, tuple[int, list[str]]] = {
    "minutes": (240, ["none", "minute", "5m", "15m", "30m", "hour", "day"]),
    "hours": (30 * 60, ["none", "30m", "hour", "day", "week", "month"]),
    "days": (9 * 1440, ["none", "day", "week", "month"]),
    "months": (75 * 1440, ["none", "day", "week", "month", "quarter", "year"]),
}
FINER = {"minute": -1, "5m": 0, "15m": 1, "30m": 2, "hour": 3, "day": 4, "week": 5, "month": 6, "quarter": 7, "year": 8}
SHORT = ("minute", "5m", "15m", "30m", "hour")
# Longer partitions that a table may well read from: not so long that it has hundreds of its own in one.
AROUND = {
    "minute": ("5m", "15m", "30m"),
    "5m": ("15m", "30m", "hour"),
    "15m": ("30m", "hour", "day"),
    "30m": ("hour", "day"),
    "hour": ("day",),
    "day": ("week", "month"),
    "month": ("quarter", "year"),
    "quarter": ("year",),
}
# Views whose rows keep the time of the row that they are made from.
ROW_TIMES = (
    *(
        "rowwise",
        "windowed",
        "framed",
        "looked_up",
        "union",
        "subquery",
        "correlated",
        "lateral",
        "shifted",
        "anti_join",
    ),
    *("last_seen", "elements", "local_hours"),
)
KEYS = ["a", "b", "c", "d", None]
# What columns of feeds and tables themselves are called, now and then.
ODD_COLUMNS = {
    "k": ["my key", "select", "Ünï", "a.b", "k'", "Key", "user", "x-y"],
    "v": ["the value", "Value", "order", "v%", "count", "1st"],
    "ts": ["at", "when", "time stamp", "Date", "timestamp", "_ts"],
}
ODD_TABLES = ["order", "select", "user", "left", "group", "date", "values", "table", "t_1", "end", "timestamp", "x"]
POLICIES = ["fifo", "max-benefit", "edf", "hold / patient / inherit=chain / chop=3..10", "adaptive", "random"]
ODD_NAMES = ["*", "{a,b}", "[ab]", "?", " blank", "%20", "#", "+", "ü", "=", "&", "a'b", "(1)", ":c", "\\s", "$x", "~"]
ODD = ["x,y", "it's", 'say "so"', "ünï", "a\\b", "", " a ", "two\nlines", "NULL", "null", "007", "日本", "'", "%", "A"]


# Who writes small results: Penstock itself, Spark, or the one after the other has found that they are too large.
WRITERS = {"own": {}, "spark": {"driver_bytes": 0}, "mixed": {"driver_bytes": 300}}


def draw(
    seed: int,
    *,
    steps: int | None = None,
    only: str | None = None,
    plain: bool = False,
    calm: bool = False,
    writer: str | None = None,
) -> Case:
    """`plain`: only what DuckDB in the place of Spark can do, too. `calm`: partitions are made from partitions of the same time."""
    run = WRITERS[writer or list(WRITERS)[seed % len(WRITERS)]]
    return _Case(random.Random(seed), seed, steps, only, plain, calm, run).made


class _Case:
    def __init__(
        self,
        rng: random.Random,
        seed: int,
        steps: int | None,
        only: str | None,
        plain: bool,
        calm: bool,
        run: dict[str, int],
    ) -> None:
        self.rng = rng
        self.plain = plain
        self.calm = calm
        zone = rng.choice([*ZONES, "UTC", "UTC"])
        self.scale = rng.choice(list(SCALES))
        self.width, self.grains = SCALES[self.scale]
        moments = [one for one in ZONES[zone] if not (plain and zone == "America/St_Johns" and one < "2011")]
        self.start = calendar.micros(datetime.fromisoformat(rng.choice(moments)).replace(tzinfo=UTC))
        self.now = 0
        self.number = 0
        self.project: Project = {"zone": zone, "feeds": {}, "tables": {}, "run": {"tracks": rng.choice([1, 2]), **run}}
        self.sources: dict[str, Source] = {}
        self.odd_tables = rng.random() < 0.15
        for at in range(rng.choice([1, 1, 2])):
            self._feed(self._name(f"ev{at}"))
        if rng.random() < 0.35:
            self._feed(self._name("ref"), reference=True)
        for feed in list(self.project["feeds"]):
            if self._may_have_keys(feed) and rng.random() < 0.15:
                self._keyed(feed)
            elif rng.random() < (0.1 if plain else 0.2):
                self._base_tables(feed)
        for at in range(rng.randrange(1, 5)):
            name = self._name(f"t{at}")
            table = self._table(name, only if at == 0 else None)
            if table is not None:
                self.project["tables"][name] = table
                self._known(name, table)
        if not plain and rng.random() < 0.15:
            self._flow()
        if not plain and rng.random() < 0.15:
            self._dimensions()
        self._group()
        self.archived = False
        # Feeds of which no file may go any more.
        self.needed: set[str] = set()
        # Feeds whose files do not all read alike any more.
        self.mixed: set[str] = set()
        self.removed: dict[str, dict[str, Any]] = {}
        self.removed_feeds: dict[str, dict[str, Any]] = {}
        self.delivered: dict[str, list[str]] = {feed: [] for feed in self.project["feeds"]}
        begin = {"seed": seed, "project": self._copy(), "steps": []}
        count = steps or rng.randrange(3, 6)
        begin["steps"] = [self._step(at, count) for at in range(count)]
        self.made: Case = begin

    def _copy(self) -> Project:
        import copy

        return copy.deepcopy(self.project)

    def _known(self, name: str, table: dict[str, Any]) -> None:
        self.sources[name] = Source(
            name,
            tuple((token(column), kind) for column, kind in table["columns"]),
            token(table["time"]) if table["time"] else None,
            table["grain"],
        )

    # Declarations

    def _name(self, usual: str) -> str:
        """What a table is called."""
        names = ("t_1", "x", "timestamp", "date") if self.plain else ODD_TABLES
        free = [one for one in names if one not in self.project["feeds"] and one not in self.project["tables"]]
        return self.rng.choice(free) if self.odd_tables and free and self.rng.random() < 0.6 else usual

    def _feed(self, name: str, *, reference: bool = False) -> None:
        rng = self.rng
        odd = rng.random() < 0.2
        called = {one: rng.choice([one, *names]) if odd else one for one, names in ODD_COLUMNS.items()}
        columns = [(called["k"], "string"), (called["v"], rng.choice(["bigint", "bigint", "int"]))]
        feed_format = rng.choice(["csv", "csv", "json", "parquet"])
        if not self.plain and feed_format == "parquet" and rng.random() < 0.3:
            feed_format = "orc"
        extras = [("x", "double"), ("f", "boolean"), ("epoch", "bigint"), ("seen_at", "timestamp")]
        extras += [] if self.plain else [("d", "decimal(10,2)")]
        extras += (
            []
            if self.plain or feed_format == "csv"
            else [("tags", "array<bigint>"), ("place", "struct<x:bigint,y:string>")]
        )
        for extra in extras:
            if rng.random() < 0.25:
                columns.append(extra)
        time = None
        settings: dict[str, Any] = {"settle": "0s"}
        style = "z"
        if not reference:
            kind = rng.choice(["timestamp"] * 5 + ([] if self.plain else ["date", "timestamp_ntz"]))
            if kind == "timestamp":
                style = rng.choice(
                    [
                        "z",
                        "z",
                        "offset",
                        *(["naive"] if feed_format not in ("parquet", "orc") and not self.plain else []),
                    ]
                )
            time = called["ts"]
            columns.insert(rng.randrange(len(columns) + 1), (time, kind))
            grains = [grain for grain in self.grains if not (kind == "date" and grain in SHORT)]
            grain = rng.choice(grains)
            if grain != "none" or rng.random() < 0.2:
                settings["partition"] = grain
            if rng.random() < 0.4:
                settings["lateness"] = rng.choice(["30m", "2h", "1m"])
            if rng.random() < 0.12:
                settings["punctuation"] = f"landing/{name}/*.mark"
            if rng.random() < 0.12:
                settings |= {"late": "set aside", "lateness": settings.get("lateness", "30m")}
        if rng.random() < (0.15 if self.plain else 0.25):
            v = token(called["v"])
            settings["rules"] = [rng.choice([f"{v} IS NULL OR {v} < 95", f"{v} IS NULL OR {v} <> 91"])]
        mode = "snapshot" if reference or rng.random() < 0.15 else "append"
        if mode == "snapshot":
            settings.pop("late", None)
        if feed_format == "csv" and rng.random() < 0.15:
            settings["options"] = rng.choice([{"sep": ";"}, {"nullValue": "NULL"}])
        self.project["feeds"][name] = {
            "format": feed_format,
            "mode": mode,
            "declared": self.plain
            or feed_format == "json"
            or "timestamp_ntz" in dict(columns).values()
            or (feed_format == "csv" and "date" in dict(columns).values())
            or rng.random() < 0.75,
            "columns": columns,
            "time": time,
            "called": called,
            "style": style,
            "settings": settings,
            "pattern": rng.choice([None, None, "f*", "*"]) if "punctuation" not in settings else None,
        }
        if (style == "naive" or (time and dict(columns)[time] != "timestamp")) and rng.random() < 0.4:
            settings["zone"] = rng.choice(list(ZONES))
        if mode == "snapshot" and rng.random() < 0.4:
            settings["order"] = rng.choice(["modified", r"name f([0-9]+)", f"column {called['v']}", "column epoch"])
            if settings["order"] == "column epoch" and "epoch" not in dict(columns):
                settings["order"] = "arrival"
        grain = settings.get("partition", "none")
        timed = time if not (mode == "snapshot" and grain == "none") else None
        self.sources[name] = Source(
            name, tuple((token(column), kind) for column, kind in columns), token(timed) if timed else None, grain
        )

    def _may_have_keys(self, name: str) -> bool:
        feed = self.project["feeds"][name]
        plain = all("<" not in kind for _, kind in feed["columns"])
        return bool(feed["declared"] and feed["mode"] == "append" and feed["time"] and plain and token(name) == name)

    def _keyed(self, name: str) -> None:
        """The feed says what became of keys: one table has its rows as they come, another those of now."""
        rng, feed = self.rng, self.project["feeds"][name]
        k, v, time = (feed["called"][one] for one in ("k", "v", "ts"))
        grain = feed["settings"].get("partition", "none")
        keys = [k] if grain == "none" and rng.random() < 0.7 else [k, time]
        mode = rng.choice(["upsert", "changes"])
        shown = [list(column) for column in feed["columns"]]
        if mode == "changes":
            feed["columns"] = [*feed["columns"], ("op", "string")]
        settings = {
            key: value for key, value in feed["settings"].items() if key not in ("lateness", "punctuation", "late")
        }
        feed["settings"] = settings | {"key": keys, "order": f"column {v}"}
        feed["mode"] = mode
        feed["implied"] = [f"{token(one)} IS NOT NULL" for one in dict.fromkeys((*keys, v))]
        feed["implied"] += ["op IS NOT NULL AND op IN ('c', 'u', 'd')"] if mode == "changes" else []
        rest = [one for one, _ in feed["columns"] if one not in (*keys, v, "op")]
        deleted = ["CASE WHEN op = 'd' THEN 1 ELSE 0 END"] if mode == "changes" else []
        by = ", ".join(f"{one} DESC NULLS LAST" for one in (token(v), *deleted, *map(token, rest)))
        log = f"{name}_changes"
        ranked = f"SELECT *, row_number() OVER (PARTITION BY {', '.join(map(token, keys))} ORDER BY {by}) AS last_one FROM {log}"
        alive = " AND op <> 'd'" if mode == "changes" else ""
        text = f"SELECT {', '.join(token(one) for one, _ in shown)} FROM ({ranked}) WHERE last_one = 1{alive}"
        common = {"kind": "keyed", "time": feed["time"], "grain": grain, "how": "partition", "settings": {}}
        self.project["tables"][log] = common | {
            "template": "base",
            "feed": name,
            "text": f"SELECT * FROM {token(name)}",
            "columns": [list(column) for column in feed["columns"]],
            "sources": {},
        }
        self.project["tables"][name] = common | {
            "template": "keyed",
            "text": text,
            "columns": shown,
            "sources": {log: "same" if grain != "none" else None},
            "settings": {} if grain != "none" else {"waits": False},
        }
        timed = feed["time"] if grain != "none" else None
        self.sources[name] = Source(
            name, tuple((token(c), t) for c, t in shown), token(timed) if timed else None, grain
        )

    def _base_tables(self, feed: str) -> None:
        """One or two tables that take the rows of a feed, each in its own way."""
        rng = self.rng
        declared = self.project["feeds"][feed]
        columns = dict(declared["columns"])
        time = declared["time"]
        del self.sources[feed]
        for at in range(rng.choice([1, 1, 2])):
            name = f"b{at}_{feed}"
            k, v = (token(declared["called"][one]) for one in "kv")
            number = rng.choice([f"{v} + 1", f"coalesce({v}, 0)", v])
            kept = [f"{k} AS k", *([token(time)] if time else []), f"{number} AS v"]
            rng.shuffle(kept)
            where = rng.choice(["", f" WHERE {k} <> 'c'", f" WHERE {v} IS NOT NULL", f" WHERE {v} % 2 = 0"])
            grain = rng.choice(self.grains) if time else "none"
            if time and columns[time] == "date" and grain in SHORT:
                grain = "day"
            types = {"k": "string", "v": columns[declared["called"]["v"]], time: columns.get(time or "")}
            listed = [[bare(item.split(" AS ")[-1]), types[bare(item.split(" AS ")[-1])]] for item in kept]
            table = {
                "kind": "sql",
                "template": "base",
                "feed": feed,
                "text": f"SELECT {', '.join(kept)} FROM {token(feed)}{where}",
                "columns": listed,
                "time": time,
                "grain": grain,
                "sources": {},
                "how": "partition",
                "settings": {},
            }
            self.project["tables"][name] = table
            timed = time if not (declared["mode"] == "snapshot" and grain == "none") else None
            self.sources[name] = Source(
                name, tuple((token(c), t) for c, t in listed), token(timed) if timed else None, grain
            )

    def _flow(self) -> None:
        """A flow that makes two tables."""
        rng = self.rng
        timed = [
            one
            for one in self.sources.values()
            if one.timed and one.of("string") and one.of("bigint", "int") and "⟦" not in f"{one.sql}{one.columns}"
        ]
        grains = [grain for grain in self.grains if not grain[0].isdigit()]
        if not timed:
            return
        source, grain = rng.choice(timed), rng.choice(grains)
        if source.grain not in ("none", grain) and (grain != "none" and not self._fits(source.grain, grain)):
            return
        drawing = Drawing(rng)
        key, number = drawing.key(source), drawing.number(source)
        unit = grain if grain != "none" else "day"
        bucket = trunc(unit, source)
        over = rng.randrange(0, 30)
        first, second = f"{rng.choice('gh')}_rows", "g_sums"
        settings = ", ".join([f'partition="{grain}"', 'time="slot"'] if grain != "none" else ['time="slot"'])
        code = (
            "import penstock as ps\n\n\n"
            f"@ps.flow({settings}, attempts=1)\ndef g_flow({source.name}):\n"
            f'    good = {source.name}.not_null("{number}").filter("{number} > {over}")\n'
            f'    good = good.derive(slot="{spark_text(bucket)}")\n'
            f'    rows = good.select("slot", k="{key}", v="{number}").into("{first}")\n'
            f'    rows.aggregate(["k", "slot"], total="sum(v)", n="count(*)").into("{second}")\n'
        )
        rows = f"SELECT {bucket} AS slot, {key} AS k, {number} AS v FROM {source.name} WHERE {number} > {over}"
        kinds: list[tuple[str, str, list[list[str]]]] = [
            (first, rows, [["slot", "timestamp"], ["k", "string"], ["v", source.type_of(number)]]),
            (
                second,
                f"SELECT k, slot, sum(v) AS total, count(*) AS n FROM ({rows}) GROUP BY 1, 2",
                [["k", "string"], ["slot", "timestamp"], ["total", "bigint"], ["n", "bigint"]],
            ),
        ]
        for name, text, columns in kinds:
            self.project["tables"][name] = {
                "kind": "flow",
                "template": "flow",
                "flow": code if name == first else None,
                "made_with": [first, second],
                "text": text,
                "columns": columns,
                "time": "slot",
                "grain": grain,
                "sources": {source.name: None},
                "how": "partition",
                "settings": {},
            }

    def _dimensions(self) -> None:
        """The newest row of each key, and every version of it, from all that a feed ever delivered."""
        if self.rng.random() < 0.4:
            self._people()
        feeds = [
            name
            for name, feed in self.project["feeds"].items()
            if name in self.sources
            and (feed["mode"] == "append" or name == "people")
            and dict(feed["columns"]).get("ts") == "timestamp"
            and feed["called"]["k"] == "k"
            and feed["called"]["v"] == "v"
            and token(name) == name
        ]
        if not feeds:
            return
        source = "people" if "people" in feeds else self.rng.choice(feeds)
        rows = f'"{source}_ever"'
        code = (
            "import penstock as ps\n\n\n"
            f"@ps.flow(attempts=1)\ndef history({source}):\n"
            f'    good = {source}.not_null("k")\n'
            '    good.select("k", "v", "ts").scd1("dim_now", key="k", at="ts")\n'
            '    good.select("k", "v", "ts", mark="unix_micros(ts)").scd2("dim_ever", key="k", at="ts")\n'
        )
        latest = "row_number() OVER (PARTITION BY {} ORDER BY {}file_number DESC, v DESC NULLS LAST)"
        now = (
            f"SELECT k, v, ts FROM (SELECT *, {latest.format('k', 'ts DESC, ')} AS place FROM {rows} WHERE k IS NOT NULL) "
            "WHERE place = 1"
        )
        ever = (
            "SELECT k, v, ts AS mark, ts AS valid_from, lead(ts) OVER (PARTITION BY k ORDER BY ts) AS valid_to, "
            "lead(ts) OVER (PARTITION BY k ORDER BY ts) IS NULL AS is_current FROM "
            f"(SELECT *, {latest.format('k, ts', '')} AS place FROM {rows} WHERE k IS NOT NULL) WHERE place = 1"
        )
        columns = {
            "dim_now": [["k", "string"], ["v", "bigint"], ["ts", "timestamp"]],
            "dim_ever": [
                ["k", "string"],
                ["v", "bigint"],
                ["mark", "bigint"],
                ["valid_from", "timestamp"],
                ["valid_to", "timestamp"],
                ["is_current", "boolean"],
            ],
        }
        for name, text in {"dim_now": now, "dim_ever": ever}.items():
            self.project["tables"][name] = {
                "kind": "flow",
                "template": "dimension",
                "flow": code if name == "dim_now" else None,
                "made_with": list(columns),
                "text": text,
                "columns": columns[name],
                "time": None,
                "grain": "none",
                "sources": {source: None},
                "how": "partition",
                "settings": {},
            }

    def _people(self) -> None:
        """A feed of snapshots of everything."""
        name = "people"
        columns = [("k", "string"), ("v", "bigint"), ("ts", "timestamp")]
        self.project["feeds"][name] = {
            "format": self.rng.choice(["csv", "json", "parquet"]),
            "mode": "snapshot",
            "declared": True,
            "columns": columns,
            "time": self.rng.choice(["ts", None]),
            "called": {one: one for one in ("k", "v", "ts")},
            "style": "z",
            "settings": {"settle": "0s"},
            "pattern": None,
        }
        self.sources[name] = Source(name, tuple(columns), None, "none")

    def _group(self) -> None:
        """Two tables that do not depend on each other become one job."""
        alone = [
            name
            for name, table in self.project["tables"].items()
            if not table.get("feed")
            and table["kind"] not in ("flow", "keyed")
            and not any(source in self.project["tables"] for source in table["sources"])
        ]
        if len(alone) >= 2 and self.rng.random() < 0.15:
            for name in self.rng.sample(alone, 2):
                self.project["tables"][name]["settings"]["group"] = "together"

    def _table(self, name: str, only: str | None) -> dict[str, Any] | None:
        rng = self.rng
        for _ in range(12):
            chosen = only or rng.choice(list(TEMPLATES))
            sources = list(self.sources.values())
            rng.shuffle(sources)
            # What was declared last is likelier to be read: chains.
            if rng.random() < 0.5:
                sources.sort(key=lambda one: one.name not in self.project["tables"])
            grain = rng.choice(self.grains)
            drawing = Drawing(rng, plain=self.plain, begins=self.project["zone"] == "America/St_Johns")
            sources = [one for one in sources if one.of("string") and one.of("bigint", "int")]
            view = TEMPLATES[chosen](drawing, sources, grain)
            if view is None:
                continue
            view.template = chosen
            begins = "⟦:partition_start¦" in view.text
            if begins and any(one.grain == "none" for one in sources if one.name in view.sources and one.timed):
                continue  # nothing says which partitions there are
            if self._related(view, name) and self._fitting(view):
                return self._declared(view, name)
        return None

    def _fitting(self, view: View) -> bool:
        if view.time is None:
            return True
        kind = dict(view.columns)[view.time]
        return not (kind == "date" and view.grain in SHORT)

    def _related(self, view: View, name: str) -> bool:
        """Say which partitions are read, where that is needed or interesting."""
        rng = self.rng
        if view.grain == "none":
            return True
        if self.calm:
            grains = [
                self.sources[source].grain
                for source in view.sources
                if source != "ITSELF" and self.sources[source].timed
            ]
            return (
                view.template not in ("shifted", "last_seen")
                and view.grain not in SHORT[:-1]
                and all(grain != "none" and self._fits(grain, view.grain) for grain in grains)
            )
        for source in view.sources:
            if source == "ITSELF":
                continue
            grain = self.sources[source].grain
            if grain == "none":
                continue
            word = "PARTITION" if view.grain in SHORT[:-1] else view.grain.upper()
            windows = ["last 2", f"{word} - 1 .. {word}", "PARTITION - 2 .. PARTITION", f"{word} - 2, {word}"]
            if view.grain in ("day", "week", "month"):
                windows += ["DAY - 2 .. DAY", f"{word} - 3 .. {word} - 2, DAY - 1 .. DAY"]
            begins = "⟦:partition_start¦" in view.text
            whole = [] if begins else ["everything"]
            if self._fits(grain, view.grain):
                options: list[str | None] = [None] * 4
                if view.template == "of_partition":
                    options += ["previous", *windows, f"{word} - 1", f"{word} - 2, {word} - 1"]
                    options += ["DAY - 1", "HOUR - 2"] if view.grain == "hour" else []
                    options += ["DAY - 1"] if view.grain in SHORT[:-1] and self.scale == "hours" else []
                elif view.template in ("windowed", "self_join", "subquery"):
                    options += windows
                if view.template == "shifted":
                    pass
                elif grain == view.grain:
                    options.append("same")
                elif grain in ("hour", "day", "week", "month", "quarter"):
                    options.append(f"{word}.{grain}s()" if FINER[view.grain] >= FINER["day"] else None)
                options += whole
            elif self._fits(view.grain, grain):
                if grain not in AROUND.get(view.grain, ()) and not whole:
                    return False
                options = ["containing", *whole] if grain in AROUND.get(view.grain, ()) else list(whole)
            else:
                if not whole:
                    return False
                options = list(whole)
            chosen = rng.choice(options)
            if chosen is None and (view.template == "last_seen" or view.grain in SHORT[:-1]):
                chosen = "PARTITION"  # here it must be said
            view.sources[source] = chosen
        return True

    def _fits(self, fine: str, coarse: str) -> bool:
        """Whether partitions of one make up those of the other."""
        if fine == coarse:
            return True
        return FINER[fine] < FINER[coarse] and fine != "week"

    def _declared(self, view: View, name: str) -> dict[str, Any]:
        rng = self.rng
        settings = dict(view.settings)
        settings["attempts"] = 1
        if view.grain != "none" and rng.random() < 0.12:
            settings["update"] = "closed"
        if view.grain != "none" and rng.random() < 0.15:
            settings["chop"] = rng.choice([1, 2])
        if rng.random() < 0.1:
            settings["priority"] = 3
        inner = [source for source in view.sources if source != "ITSELF"]
        if rng.random() < 0.1 and view.grain == "none" and not view.time:
            settings["waits"] = rng.choice([False, {rng.choice(inner): False}])
        timed = [source for source in inner if self.sources[source].timed]
        if rng.random() < 0.15 and len(timed) > 1 and "waits" not in settings:
            settings["absent"] = {rng.choice(timed): "empty"}
        sources = {name if source == "ITSELF" else source: relation for source, relation in view.sources.items()}
        code = settings.pop("__python", None)
        return {
            "kind": view.kind,
            "python": code,
            "template": view.template,
            "text": view.text.replace("ITSELF", token(name)),
            "columns": [[bare(column), kind] for column, kind in view.columns],
            "time": bare(view.time) if view.time else None,
            "grain": view.grain,
            "sources": sources,
            "how": view.how,
            "settings": settings,
        }

    # What happens

    def _rows(self, feed: dict[str, Any], count: int, *, late: bool = False) -> list[list[Any]]:
        rng = self.rng
        zone = self.project["zone"]
        rows = []
        for _ in range(count):
            at = self.start + self.now * calendar.MINUTE
            spread = max(1, self.width // 6)
            if late:
                at -= rng.randrange(0, max(1, self.now + 1)) * calendar.MINUTE
            at += rng.randrange(spread) * calendar.MINUTE + rng.choice([0, 0, 17, 59]) * 1_000_000
            row = []
            for name, kind in feed["columns"]:
                row.append(self._value(name, kind, at, feed, zone))
            rows.append(row)
        return rows

    def _value(self, name: str, kind: str, at: int, feed: dict[str, Any], zone: str) -> Any:
        rng = self.rng
        if name == feed["time"]:
            there = calendar.local(at, zone).replace(tzinfo=None)
            if kind == "date":
                return there.date().isoformat()
            if kind == "timestamp_ntz":
                return there.isoformat(sep=" ")
            return there.isoformat(sep=" ") if feed["style"] == "naive" else at
        if name == "op" and feed["mode"] == "changes":
            return rng.choice(["c", "u", "u", "u", "d", "d"])
        if kind == "string":
            return rng.choice(KEYS) if rng.random() < 0.93 else rng.choice(ODD)
        if name == feed["called"].get("ts") and kind == "timestamp":
            return at  # it was the time once, and views still go by it
        if rng.random() < 0.08:
            return None
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "double":
            return rng.randrange(-40, 400) / 4
        if kind == "decimal(10,2)":
            return f"{rng.randrange(-500, 5000) / 100:.2f}"
        if kind.startswith("array"):
            return [rng.randrange(5) for _ in range(rng.randrange(4))]
        if kind.startswith("struct"):
            return {"x": rng.choice([None, rng.randrange(9)]), "y": rng.choice(["p", "q"])}
        if name == "seen_at":
            return at + rng.randrange(-90, 90) * calendar.MINUTE
        if name == "epoch":
            return at // 1_000_000 + rng.choice([0, 0, -3600, 7200])
        return rng.randrange(0, 90) if rng.random() < 0.9 else rng.choice([-1, -17, 7, 3, 3])

    def _file(self, feed: str) -> str:
        self.number += 1
        suffix = self.project["feeds"][feed]["format"]
        odd = self.rng.choice(ODD_NAMES) if not self.plain and self.rng.random() < 0.15 else ""
        return f"f{self.number:03d}{odd}.{suffix}"

    def _step(self, at: int, count: int) -> list[dict[str, Any]]:
        rng = self.rng
        actions: list[dict[str, Any]] = []
        if at and rng.random() < 0.3:
            # Before anything comes that is written by it.
            action = self._feed_made_other()
            if action is not None:
                declare(self.project, action)
                actions.append(action)
        for feed in self.project["feeds"]:
            if at == 0 or rng.random() < 0.7:
                for _ in range(rng.choice([1, 1, 2])):
                    actions.append(self._new_file(feed))
        for feed, declared in self.project["feeds"].items():
            if "punctuation" in declared["settings"] and rng.random() < 0.8:
                self.number += 1
                ahead = rng.choice([0, 0, self.width // 6, self.width // 3]) - rng.choice([0, 0, 60])
                upto = self.start + (self.now + ahead) * calendar.MINUTE
                actions.append({"do": "mark", "feed": feed, "file": f"m{self.number:03d}.mark", "at": upto})
        if at:
            for _ in range(rng.choice([0, 1, 1, 2])):
                action = self._happening()
                if action is not None:
                    actions.append(action)
        if not self.plain and at == count - 1 and rng.random() < 0.4:
            actions.append({"do": "ask"})
        self.now += self.width // count
        return actions

    def _new_file(self, feed: str, *, late: bool = False) -> dict[str, Any]:
        declared = self.project["feeds"][feed]
        file = self._file(feed)
        rows = self._rows(declared, self.rng.randrange(1, 12), late=late)
        if not declared["declared"] and not self.delivered[feed]:
            # What columns are inferred from says what they are.
            sure = {
                "array<bigint>": [1],
                "struct<x:bigint,y:string>": {"x": 1, "y": "p"},
                "string": "a",
                "bigint": 7,
                "int": 7,
                "double": 0.25,
                "decimal(10,2)": "1.25",
                "boolean": True,
                "timestamp": self.start,
            }
            rows[0] = [
                sure.get(kind, value) if name != declared["time"] else value
                for value, (name, kind) in zip(rows[0], declared["columns"], strict=True)
            ]
        self.delivered[feed].append(file)
        action = {"do": "deliver", "feed": feed, "file": file, "rows": rows, "bad": self._bad(declared)}
        if self.rng.random() < 0.2:
            action["aged"] = self.rng.randrange(1, 1000)
        if not self.plain and self.rng.random() < 0.03:
            action["future"] = True
        return action

    def _bad(self, feed: dict[str, Any]) -> list[list[Any]]:
        """Rows that break a rule."""
        rng = self.rng
        rules = feed["settings"].get("rules")
        if not rules or rng.random() < 0.5:
            return []
        row = self._rows(feed, 1)[0]
        row[[name for name, _ in feed["columns"]].index(feed["called"]["v"])] = 99 if "95" in rules[0] else 91
        return [row]

    def _happening(self) -> dict[str, Any] | None:
        rng = self.rng
        kinds = ["late"] * 3 + ["rewrite"] * 3 + ["again", "backfill", "backfill", "delete", "empty", "vanish"]
        kinds += ["withdraw", "withdraw", "give back"]
        kinds += ["kill"] * 2 if self.plain else []
        kinds += ["change"] * 5
        kind = rng.choice(kinds)
        if kind == "kill":
            return {"do": "kill", "at": int(10 ** rng.uniform(0.5, 2.9))}
        if kind == "change":
            return self._change()
        feed = rng.choice(list(self.project["feeds"]))
        declared = self.project["feeds"][feed]
        files = self.delivered[feed]
        if kind == "late":
            return self._new_file(feed, late=True)
        if kind == "backfill":
            names = [*self.project["tables"], *self.project["feeds"]]
            names = [one for one in names if self._feed_of(one) not in self.mixed]
            return {"do": "backfill", "table": rng.choice(names), "span": self._span()}
        if not files:
            return None
        file = rng.choice(files)
        if kind == "again":
            return {"do": "again", "feed": feed, "file": file}
        if kind in ("withdraw", "give back"):
            if feed in self.mixed:
                return None
            # What an older snapshot says counts again when a newer one is withdrawn: so none of them may be gone.
            if declared["mode"] == "snapshot":
                if self.archived:
                    return None
                self.needed.add(feed)
            if "late" in declared["settings"]:
                return None  # when did it come?
            return {"do": kind, "feed": feed, "file": file}
        if kind in ("delete", "vanish") and feed in self.needed:
            return None
        if kind == "delete":
            self.archived = True
            return {"do": "delete", "feed": feed, "file": file}
        if kind == "vanish":
            self.archived = True
            return {"do": "delete", "feed": feed, "file": files[-1]}
        rows = self._rows(declared, rng.randrange(1, 12), late=rng.random() < 0.7)
        return {"do": "deliver", "feed": feed, "file": file, "rows": [] if kind == "empty" else rows, "bad": []}

    def _change(self) -> dict[str, Any] | None:
        """A declaration that is another one from now on."""
        rng = self.rng
        tables = [
            name
            for name, table in self.project["tables"].items()
            if not table.get("feed") and table["kind"] not in ("flow", "keyed")
        ]
        leaves = [
            name
            for name in tables
            if not any(name in one["sources"] for other, one in self.project["tables"].items() if other != name)
        ]
        kind = rng.choice(
            [
                *(
                    "feed",
                    "feed",
                    "table",
                    "table",
                    "redraw",
                    "redraw",
                    "remove",
                    "return",
                    "grain",
                    "grain",
                    "zone",
                    "run",
                    "relations",
                    "relations",
                    "propagate",
                    "absent",
                    "flow",
                )
            ]
        )
        action: dict[str, Any] | None = None
        if kind == "feed":
            action = self._feed_change()
        elif kind == "table" and tables:
            key, value = rng.choice(
                [
                    ("chop", 1),
                    ("chop", None),
                    ("priority", 5),
                    ("code_version", rng.randrange(100)),
                    ("history_weight", 1.0),
                    ("update", "closed"),
                    ("update", None),
                    ("patience", "1s"),
                    ("late_cost", 1.0),
                    ("overrun", rng.choice(["preempt", "skip"])),
                    ("group", None),
                    ("freshness", "1h"),
                    ("keep_days", 1),
                    ("reason", "audit"),
                ]
            )
            action = {"do": "table setting", "name": rng.choice(tables), "key": key, "value": value}
        elif kind == "run":
            key, value = rng.choice(
                [
                    ("policy", rng.choice(POLICIES)),
                    ("tracks", 3),
                    ("patience", "1s"),
                    ("late_cost", 2.0),
                    ("driver_bytes", 300),
                ]
            )
            action = {"do": "run setting", "key": key, "value": value}
        elif kind == "redraw" and leaves:
            name = rng.choice(leaves)
            known = {one: source for one, source in self.sources.items() if one != name}
            self.sources, kept = known, self.sources
            table = self._table(name, None)
            self.sources = kept
            if (
                table is not None
                and (self._keeps_columns(name, table) or rng.random() < 0.05)
                and not any(self._reads(one, name) for one in table["sources"] if one != name)
            ):
                action = {"do": "table", "name": name, "table": table}
                self._known(name, table)
        elif kind == "remove" and tables:
            name = rng.choice(tables)
            self.removed[name] = self.project["tables"][name]
            action = {"do": "table", "name": name, "table": None}
        elif kind == "return" and self.removed:
            name = rng.choice(list(self.removed))
            action = {"do": "table", "name": name, "table": self.removed.pop(name)}
        elif kind == "grain" and leaves:
            action = self._grain_change(rng.choice(leaves))
        elif kind == "relations" and tables:
            action = self._relation_change(rng.choice(tables))
        elif kind == "propagate" and tables:
            # Followed again sooner or later.
            held = [name for name in tables if "propagate" in self.project["tables"][name]["settings"]]
            name = rng.choice(held or tables)
            value = None if held else rng.choice(["none", ["new"], ["audit"], ["late", "corrected"]])
            action = {"do": "table setting", "name": name, "key": "propagate", "value": value}
        elif kind == "absent" and tables:
            name = rng.choice(tables)
            sources = [one for one in self.project["tables"][name]["sources"] if one != name]
            value = rng.choice([None, {rng.choice(sources): "empty"}]) if len(sources) > 1 else None
            action = {"do": "table setting", "name": name, "key": "absent", "value": value}
        elif kind == "flow" and any(one["kind"] == "flow" for one in self.project["tables"].values()):
            action = self._flow_change()
        elif kind == "zone" and not (self.archived and self._naive()) and not (self.mixed and self._naive()):
            action = {"do": "zone", "value": rng.choice([zone for zone in ZONES if zone != self.project["zone"]])}
        if action is not None:
            declare(self.project, action)
        return action

    def _naive(self) -> bool:
        """Whether what text means depends on the zone in which it is read."""
        return any(feed["style"] == "naive" for feed in self.project["feeds"].values())

    def _keeps_columns(self, name: str, table: dict[str, Any]) -> bool:
        """Columns are never dropped in place, nor do they change their type."""
        return all(list(column) in table["columns"] for column in self.project["tables"][name]["columns"])

    def _reads(self, name: str, what: str) -> bool:
        table = self.project["tables"].get(name)
        return name == what or (
            table is not None and any(self._reads(source, what) for source in table["sources"] if source != name)
        )

    def _feed_change(self) -> dict[str, Any] | None:
        rng = self.rng
        name = rng.choice(list(self.project["feeds"]))
        feed = self.project["feeds"][name]
        options: list[tuple[str, Any]] = [("priority", 4), ("period", "5m"), ("keep_versions", 3), ("max_ahead", "2d")]
        options += [("queue", "1s"), ("settle", "0s"), ("reasons", {"f*1*": "audit"})]
        options += [("look_every", rng.choice(["5m", None])), ("follow_links", rng.choice([True, None]))]
        fixed = self.archived or name in self.mixed
        if feed["mode"] in ("upsert", "changes"):
            v, key = token(feed["called"]["v"]), rng.choice(["rules", "rules", "queue", "priority"])
            values = {"queue": "1s", "priority": 4, "rules": rng.choice([None, [f"{v} IS NULL OR {v} < 95"]])}
            return (
                None
                if fixed and key == "rules"
                else {"do": "feed setting", "name": name, "key": key, "value": values[key]}
            )
        if feed["mode"] == "snapshot" and not fixed and name not in self.needed:
            options += [
                ("order", one) for one in ("arrival", "modified", "name f([0-9]+)", f"column {feed['called']['v']}")
            ]
        if feed["mode"] == "append" and feed["time"] and not fixed and "late" in feed["settings"]:
            options += [("late", None)] * 2
        elif feed["mode"] == "append" and "lateness" in feed["settings"] and not fixed:
            options += [("late", "set aside")]
        if feed["style"] == "naive" and not fixed:
            options += [("zone", one) for one in rng.sample(list(ZONES), 2)]
        if feed["time"]:
            options += [("lateness", None), ("lateness", "30m"), ("lateness", "2h"), ("punctuation", None)]
            grains = [g for g in self.grains if not (dict(feed["columns"])[feed["time"]] == "date" and g in SHORT)]
            options += [("partition", rng.choice(grains))] * 3
        if not fixed:
            k, v = (token(feed["called"][one]) for one in "kv")
            rule = rng.choice([f"{v} IS NULL OR {v} < 95", f"{k} IS NULL OR {k} <> 'd'", f"{v} IS NULL OR {v} >= 5"])
            options += [("rules", [rule]), ("rules", None)]
        if not fixed and name not in self.needed and "late" not in feed["settings"] and rng.random() < 0.1:
            mode = "append" if feed["mode"] == "snapshot" else "snapshot"
            self.needed.add(name)  # what another file took the place of is in its file only
            return {"do": "feed fields", "name": name, "fields": {"mode": mode}}
        key, value = rng.choice(options)
        return {"do": "feed setting", "name": name, "key": key, "value": value}

    def _feed_of(self, name: str) -> str | None:
        table = self.project["tables"].get(name)
        return name if table is None else table.get("feed")

    def _feed_made_other(self) -> dict[str, Any] | None:
        """Another format, other columns, names or options of files; another time; a feed that is new, gone or back."""
        rng = self.rng
        kind = rng.choice(
            ["format", "columns", "columns", "columns", "path", "options", "time", "new", "gone", "back", "back"]
        )
        feeds = self.project["feeds"]
        if kind == "new" and len(feeds) < 3:
            self._feed(name := f"ev{7 + len(feeds)}")
            self.delivered[name] = []
            made = feeds.pop(name)
            return {"do": "feed", "name": name, "feed_": made}
        if kind == "gone" and len(feeds) > 1:
            name = rng.choice(list(feeds))
            self.removed_feeds[name] = feeds[name]
            return {"do": "feed", "name": name, "feed_": None}
        if kind == "back" and self.removed_feeds:
            name = rng.choice(list(self.removed_feeds))
            return {"do": "feed", "name": name, "feed_": self.removed_feeds.pop(name)}
        name = rng.choice(list(feeds))
        feed = feeds[name]
        if not feed["declared"] or feed["mode"] != "append" or name in self.needed:
            return None
        columns = [list(column) for column in feed["columns"]]
        names = [column for column, _ in columns]
        if kind == "columns":
            # What a file said that is gone is not known of a column that was away.
            action = rng.choice(["add", "add", "drop", "widen", "turn"]) if not self.archived else "add"
            extra = ("more" if self.archived else "note", rng.choice(["string", "bigint", "double"]))
            droppable = [
                one
                for one in ("x", "f", "d", "epoch", "tags", "place", "note", "seen_at")
                if one in names and one != feed["time"]
            ]
            if action == "add" and extra[0] not in names:
                columns.insert(rng.randrange(len(columns) + 1), list(extra))
            elif action == "drop" and droppable and name not in self.mixed:
                del columns[names.index(rng.choice(droppable))]
            elif action == "widen" and not self.plain:
                columns = [[one, "bigint" if type_ == "int" else type_] for one, type_ in columns]
            elif action == "turn":
                columns.reverse()
            return {"do": "feed fields", "name": name, "fields": {"columns": columns}}
        if kind == "time" and "seen_at" in names and feed["time"] and not (self.archived or name in self.mixed):
            if "late" in feed["settings"] or "punctuation" in feed["settings"]:
                return None
            return {"do": "feed fields", "name": name, "fields": {"time": "seen_at"}}
        nested = any("<" in kind_ for _, kind_ in columns)
        text = all(
            kind_ in ("string", "bigint", "int", "double", "boolean", "timestamp", "date") for _, kind_ in columns
        )
        if kind == "format" and not nested and text and feed["style"] != "naive":
            other = rng.choice([one for one in ("csv", "json", "parquet") if one != feed["format"]])
            feed_pattern = rng.choice([f"*.{other}", "f*"])
            self.mixed.add(name)
            if feed_pattern != "f*" and feed["pattern"] not in ("f*", "*"):
                self.delivered[name] = []  # nobody looks at those any more
            settings = {key: value for key, value in feed["settings"].items() if key != "options"}
            return {
                "do": "feed fields",
                "name": name,
                "fields": {"format": other, "pattern": feed_pattern, "settings": settings},
            }
        if kind == "path":
            return {
                "do": "feed fields",
                "name": name,
                "fields": {"pattern": rng.choice(["f*", "*", "f0*[02468]*", None])},
            }
        if kind == "options" and feed["format"] == "csv":
            self.mixed.add(name)
            value = rng.choice([None, {"sep": ";"}, {"nullValue": "NULL"}, {"sep": "|"}])
            return {"do": "feed setting", "name": name, "key": "options", "value": value}
        return None

    def _relation_change(self, name: str) -> dict[str, Any] | None:
        """The same query over other partitions."""
        table = self.project["tables"][name]
        sources = {one: None for one in table["sources"] if one != name}
        if table["grain"] == "none" or name in table["sources"] or not all(one in self.sources for one in sources):
            return None
        view = View(table["text"], [], None, table["grain"], sources, template=table["template"])
        if not self._related(view, name):
            return None
        return {"do": "relations", "name": name, "relations": view.sources}

    def _flow_change(self) -> dict[str, Any] | None:
        """Another number in a flow."""
        flow = {name: one for name, one in self.project["tables"].items() if one["template"] == "flow"}
        if not flow:
            return None
        (code,) = [one["flow"] for one in flow.values() if one["flow"]]
        found = re.search(r" > (\d+)\"\)", code)
        assert found is not None
        old, new = f" > {found[1]}", f" > {self.rng.randrange(40)}"
        made = {
            name: one | {"text": one["text"].replace(old, new), "flow": one["flow"] and one["flow"].replace(old, new)}
            for name, one in flow.items()
        }
        return {"do": "tables", "tables": made}

    def _grain_change(self, name: str) -> dict[str, Any] | None:
        """Other partitions of the same rows."""
        table = self.project["tables"][name]
        if table["template"] not in ROW_TIMES or table["time"] is None:
            return None
        grain = self.rng.choice([one for one in self.grains if one != table["grain"]])
        relations: dict[str, str | None] = {}
        for source in table["sources"]:
            fine = self.sources[source].grain if source in self.sources else "none"
            if grain != "none" and fine != "none" and not self._fits(fine, grain):
                relations[source] = "containing" if fine in AROUND.get(grain, ()) else "everything"
        return {"do": "grain", "name": name, "value": grain, "relations": relations}

    def _span(self) -> str | None:
        rng = self.rng
        if rng.random() < 0.4:
            return "all"
        first = calendar.local(self.start + rng.randrange(max(1, self.now)) * calendar.MINUTE, self.project["zone"])
        day: date = first.date()
        if rng.random() < 0.5:
            return day.isoformat()
        return f"{day.isoformat()}..{(day + timedelta(days=2)).isoformat()}"
