"""Draws a case from a seed."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tests.projects import calendar
from tests.projects.project import Case, Project
from tests.projects.views import TEMPLATES, Drawing, Source, View

# Zones, each with moments near which something happens to its clocks.
ZONES: dict[str, list[str]] = {
    "UTC": ["2024-03-01T00:00", "2024-12-31T22:00", "2024-02-29T12:00"],
    "Europe/Berlin": ["2024-03-31T01:00", "2024-10-27T01:00", "2024-06-30T22:00"],
    "America/New_York": ["2024-03-10T07:00", "2024-11-03T06:00", "2024-07-01T04:00"],
    "Asia/Kolkata": ["2024-03-01T18:30", "2024-06-30T18:30"],
    "America/St_Johns": ["2024-03-10T05:30", "2024-11-03T04:30", "2024-05-31T02:30"],
    "Pacific/Auckland": ["2024-04-06T14:00", "2024-09-28T14:00", "2024-06-30T12:00"],
    "America/Sao_Paulo": ["2018-11-04T03:00", "2018-02-18T02:00"],
}
# How far the rows of a case lie apart: (minutes, grains that make sense there).
SCALES: dict[str, tuple[int, list[str]]] = {
    "minutes": (240, ["none", "15m", "hour", "day"]),
    "hours": (30 * 60, ["none", "hour", "day", "week", "month"]),
    "days": (9 * 1440, ["none", "day", "week", "month"]),
    "months": (75 * 1440, ["none", "day", "week", "month"]),
}
FINER = {"15m": 0, "hour": 1, "day": 2, "week": 3, "month": 4}
KEYS = ["a", "b", "c", "d", None]
ODD = ["x,y", "it's", 'say "so"', "ünï", "a\\b"]


def draw(seed: int, *, steps: int | None = None, only: str | None = None, plain: bool = False) -> Case:
    """`plain`: only what DuckDB in the place of Spark can do, too."""
    return _Case(random.Random(seed), seed, steps, only, plain).made


class _Case:
    def __init__(self, rng: random.Random, seed: int, steps: int | None, only: str | None, plain: bool) -> None:
        self.rng = rng
        self.plain = plain
        zone = "UTC" if plain else rng.choice([*ZONES, "UTC", "UTC"])
        self.scale = rng.choice(list(SCALES))
        self.width, self.grains = SCALES[self.scale]
        self.start = calendar.micros(datetime.fromisoformat(rng.choice(ZONES[zone])).replace(tzinfo=UTC))
        self.utc_hours = calendar.whole_hours(zone, self.start)
        if not self.utc_hours:
            # Hours are those of UTC: they do not make up the days of this zone.
            self.grains = [grain for grain in self.grains if grain != "hour" or self.scale == "minutes"]
        self.now = 0
        self.number = 0
        self.project: Project = {"zone": zone, "feeds": {}, "tables": {}, "run": {"tracks": rng.choice([1, 2])}}
        self.sources: dict[str, Source] = {}
        for at in range(rng.choice([1, 1, 2])):
            self._feed(f"ev{at}")
        if rng.random() < 0.35:
            self._feed("ref", reference=True)
        for at in range(rng.randrange(1, 5)):
            table = self._table(f"t{at}", only if at == 0 else None)
            if table is not None:
                self.project["tables"][f"t{at}"] = table
                self._known(f"t{at}", table)
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
            name, tuple((column, kind) for column, kind in table["columns"]), table["time"], table["grain"]
        )

    # Declarations

    def _feed(self, name: str, *, reference: bool = False) -> None:
        rng = self.rng
        columns = [("k", "string"), ("v", rng.choice(["bigint", "bigint", "int"]))]
        for extra in [] if self.plain else [("d", "decimal(10,2)"), ("x", "double"), ("f", "boolean")]:
            if rng.random() < 0.3:
                columns.append(extra)
        feed_format = rng.choice(["csv", "csv", "json"] + ([] if self.plain else ["parquet"]))
        time = None
        settings: dict[str, Any] = {"settle": "0s"}
        style = "z"
        if not reference:
            kind = rng.choice(["timestamp"] * 5 + ([] if self.plain else ["date", "timestamp_ntz"]))
            if kind == "timestamp":
                style = "z" if self.plain else rng.choice(["z", "z", "offset", "naive"])
            columns.insert(rng.randrange(len(columns) + 1), ("ts", kind))
            time = "ts"
            grains = [grain for grain in self.grains if grain != "month"]
            if kind == "date":
                grains = [grain for grain in grains if grain in ("none", "day", "week")]
            grain = rng.choice(grains)
            if grain != "none" or rng.random() < 0.2:
                settings["partition"] = grain
            if rng.random() < 0.4:
                settings["lateness"] = rng.choice(["30m", "2h", "1m"])
        if not self.plain and rng.random() < 0.25:
            settings["rules"] = [rng.choice(["v IS NULL OR v < 95", "v IS NULL OR v <> 91"])]
        mode = "snapshot" if reference or rng.random() < 0.15 else "append"
        self.project["feeds"][name] = {
            "format": feed_format,
            "mode": mode,
            "declared": True,
            "columns": columns,
            "time": time,
            "style": style,
            "settings": settings,
        }
        grain = settings.get("partition", "none")
        timed = time if not (mode == "snapshot" and grain == "none") else None
        self.sources[name] = Source(name, tuple(columns), timed, grain)

    def _table(self, name: str, only: str | None) -> dict[str, Any] | None:
        rng = self.rng
        for _ in range(12):
            chosen = only or rng.choice(list(TEMPLATES))
            sources = list(self.sources.values())
            rng.shuffle(sources)
            # What was declared last is likelier to be read: chains.
            if rng.random() < 0.5:
                sources.sort(key=lambda one: not one.name.startswith("t"))
            grain = rng.choice(self.grains)
            drawing = Drawing(rng, utc_hours=self.utc_hours, plain=self.plain)
            sources = [one for one in sources if one.of("string") and one.of("bigint", "int")]
            view = TEMPLATES[chosen](drawing, sources, grain)
            if view is None:
                continue
            view.template = chosen
            if self._related(view, name) and self._fitting(view):
                return self._declared(view, name)
        return None

    def _fitting(self, view: View) -> bool:
        if view.time is None:
            return True
        kind = dict(view.columns)[view.time]
        return not (kind == "date" and view.grain in ("15m", "hour"))

    def _related(self, view: View, name: str) -> bool:
        """Say which partitions are read, where that is needed or interesting."""
        rng = self.rng
        if view.grain == "none":
            return True
        for source in view.sources:
            if source == "ITSELF":
                continue
            grain = self.sources[source].grain
            if grain == "none":
                continue
            word = {"15m": "PARTITION"}.get(view.grain, view.grain.upper())
            windows = ["last 2", f"{word} - 1 .. {word}", "PARTITION - 2 .. PARTITION"]
            whole = ["everything"] if view.template not in ("of_partition", "lifetime") else []
            if self._fits(grain, view.grain):
                options: list[str | None] = [None] * 4
                if view.template == "of_partition":
                    options += ["previous", *windows, f"{word} - 1"]
                elif view.template in ("windowed", "self_join", "subquery"):
                    options += windows
                if grain == view.grain:
                    options.append("same")
                elif grain in ("hour", "day", "week"):
                    options.append(f"{word}.{grain}s()" if view.grain in ("day", "week", "month") else None)
                options += whole
            elif self._fits(view.grain, grain):
                options = ["containing", *whole]
            else:
                if not whole:
                    return False
                options = list(whole)
            view.sources[source] = rng.choice(options)
        return True

    def _fits(self, fine: str, coarse: str) -> bool:
        """Whether partitions of one make up those of the other."""
        if fine == coarse:
            return True
        if fine == "hour" and not self.utc_hours:
            return False
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
        sources = {name if source == "ITSELF" else source: relation for source, relation in view.sources.items()}
        return {
            "kind": view.kind,
            "template": view.template,
            "text": view.text.replace("ITSELF", name),
            "columns": [list(column) for column in view.columns],
            "time": view.time,
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
        if name == "ts":
            there = calendar.local(at, zone).replace(tzinfo=None)
            if kind == "date":
                return there.date().isoformat()
            if kind == "timestamp_ntz":
                return there.isoformat(sep=" ")
            return calendar.wall(there, zone) if feed["style"] == "naive" else at
        if kind == "string":
            return rng.choice(KEYS) if rng.random() < 0.93 else rng.choice(ODD)
        if rng.random() < 0.08:
            return None
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "double":
            return rng.randrange(-40, 400) / 4
        if kind == "decimal(10,2)":
            return f"{rng.randrange(-500, 5000) / 100:.2f}"
        return rng.randrange(0, 90)

    def _file(self, feed: str) -> str:
        self.number += 1
        suffix = self.project["feeds"][feed]["format"]
        return f"f{self.number:03d}.{suffix}"

    def _step(self, at: int, count: int) -> list[dict[str, Any]]:
        rng = self.rng
        actions: list[dict[str, Any]] = []
        for feed in self.project["feeds"]:
            if at == 0 or rng.random() < 0.7:
                for _ in range(rng.choice([1, 1, 2])):
                    actions.append(self._new_file(feed))
        if at:
            for _ in range(rng.choice([0, 1, 1, 2])):
                action = self._happening()
                if action is not None:
                    actions.append(action)
        self.now += self.width // count
        return actions

    def _new_file(self, feed: str, *, late: bool = False) -> dict[str, Any]:
        declared = self.project["feeds"][feed]
        file = self._file(feed)
        rows = self._rows(declared, self.rng.randrange(1, 12), late=late)
        self.delivered[feed].append(file)
        return {"do": "deliver", "feed": feed, "file": file, "rows": rows, "bad": self._bad(declared)}

    def _bad(self, feed: dict[str, Any]) -> list[list[Any]]:
        """Rows that break a rule."""
        rng = self.rng
        rules = feed["settings"].get("rules")
        if not rules or rng.random() < 0.5:
            return []
        row = self._rows(feed, 1)[0]
        row[[name for name, _ in feed["columns"]].index("v")] = 99 if "95" in rules[0] else 91
        return [row]

    def _happening(self) -> dict[str, Any] | None:
        rng = self.rng
        feed = rng.choice(list(self.project["feeds"]))
        declared = self.project["feeds"][feed]
        files = self.delivered[feed]
        kind = rng.choice(
            ["late", "late", "rewrite", "rewrite", "again", "backfill", *(["kill"] if self.plain else [])]
        )
        if kind == "kill":
            return {"do": "kill", "at": int(10 ** rng.uniform(0.5, 2.9))}
        if kind == "late":
            return self._new_file(feed, late=True)
        if kind == "backfill":
            names = [*self.project["tables"], *self.project["feeds"]]
            return {"do": "backfill", "table": rng.choice(names), "span": self._span()}
        if not files:
            return None
        file = rng.choice(files)
        if kind == "again":
            return {"do": "again", "feed": feed, "file": file}
        rows = self._rows(declared, rng.randrange(1, 12), late=rng.random() < 0.7)
        return {"do": "deliver", "feed": feed, "file": file, "rows": rows, "bad": []}

    def _span(self) -> str | None:
        rng = self.rng
        if rng.random() < 0.4:
            return "all"
        first = calendar.local(self.start + rng.randrange(max(1, self.now)) * calendar.MINUTE, self.project["zone"])
        day: date = first.date()
        if rng.random() < 0.5:
            return day.isoformat()
        return f"{day.isoformat()}..{(day + timedelta(days=2)).isoformat()}"
