"""What every table should hold, computed by DuckDB from the record of delivered rows. Nothing of the product is used.

A table is the recompute of its present declaration over the loaded rows up to its edge. The edge is the one that the product
claims; whether it may claim that is another question (`play.py`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import sqltypes

from tests.projects import calendar
from tests.projects.files import ARROW, _arrow
from tests.projects.project import Project, order
from tests.projects.views import duck_text

Rows = list[tuple[Any, ...]]

STORED = {**ARROW, "timestamp": pa.int64(), "decimal(20,2)": pa.decimal128(20, 2)}


@dataclass(frozen=True)
class Loaded:
    feed: str
    number: int
    rows: Sequence[Sequence[Any]]
    data: bytes
    mtime: float = 0.0
    # What its columns were, at which line each row begins, and the time before which its rows were late.
    columns: Sequence[str] = ()
    lines: Sequence[int] = ()
    late: int | None = None


class Files:
    """The record of what was loaded: for each base table every file by name, with its last content and when that came."""

    def __init__(self) -> None:
        self.loaded: dict[str, dict[str, Loaded]] = {}
        # The newest time that a table ever had.
        self.newest: dict[str, int] = {}

    def came(self, table: str, file: str, came: Loaded) -> None:
        known = self.loaded.setdefault(table, {})
        if file in known and known[file].feed != came.feed:
            known.clear()
        if file not in known:
            known[file] = came
        elif known[file].data != came.data:
            # Another content came when the first did.
            known[file] = replace(came, late=known[file].late)

    def in_order(self, table: str, feed: str, declared: Mapping[str, Any]) -> list[tuple[str, Loaded]]:
        """The files, each with its rows; of those that state the same, the later ones count."""
        found = [(name, one) for name, one in self.loaded.get(table, {}).items() if one.feed == feed]
        word, _, what = declared["settings"].get("order", "arrival").partition(" ")

        def key(name: str, one: Loaded) -> Any:
            if word == "modified":
                return one.mtime
            if word == "name":
                match = re.search(what, name)
                return int(match[1]) if match else -1
            if word == "column":
                at = one.columns.index(what)
                return max((row[at] for row in one.rows if row[at] is not None), default=-math.inf)
            return 0

        return sorted(found, key=lambda each: (key(*each), each[1].number))


class Unsure(Exception):
    """The docs do not say what such a table holds."""


class Oracle:
    def __init__(self) -> None:
        self.con = duckdb.connect(config={"threads": 1})
        self.zone = "UTC"
        one: Any = self.con.create_function
        number = sqltypes.BIGINT
        for grain in ("minute", "hour", "day", "week", *calendar.MONTHS):
            one(f"trunc_{grain}", self._trunc(grain), [number], number)
        one("trunc_utc", lambda us, minutes: us - us % (minutes * calendar.MINUTE), [number, number], number)
        one("local_hour", lambda us: calendar.local(us, self.zone).hour, [number], number)
        one("local_date", lambda us: calendar.local(us, self.zone).date(), [number], sqltypes.DATE)
        one("inst_date", lambda day: calendar.midnight(day, self.zone), [sqltypes.DATE], number)
        one("inst_ntz", lambda naive: calendar.wall(naive, self.zone), [sqltypes.TIMESTAMP], number)

    def _trunc(self, unit: str) -> Any:
        """As Spark's date_trunc in a session of the zone: by what the clock on the wall shows."""

        def found(us: int) -> int:
            there = calendar.local(us, self.zone)
            if unit in ("minute", "hour"):
                width = calendar.MINUTE if unit == "minute" else calendar.HOUR
                offset = there.utcoffset()
                assert offset is not None
                shown = us + int(offset.total_seconds()) * 1_000_000
                return us - shown % width
            return calendar.midnight(calendar._first(there.date(), unit), self.zone)

        return found

    # Tables

    def contents(
        self, project: Project, files: Files, edges: Mapping[str, int | None], unmade: Collection[str] = ()
    ) -> dict[str, tuple[list[str], Rows]]:
        """{table: (columns, rows)} of all tables. Those that were never made hold nothing as long as they have to wait."""
        self.zone = project["zone"]
        found = {}
        for name in order(project):
            if name in project["tables"]:
                table = project["tables"][name]
                columns = table["columns"]
                if table.get("feed"):
                    self._base(name, project, table["feed"], table, files)
                elif name in unmade and self.waits(name, project, edges, unmade):
                    self._make(name, table, None, [])
                else:
                    self._derive(name, project, edges)
            else:
                feed = project["feeds"][name]
                columns = feed["columns"]
                self._base(name, project, name, None, files)
            found[name] = ([column for column, _ in columns], self._rows(name, columns))
        return found

    def _rows(self, name: str, columns: Sequence[Sequence[str]]) -> Rows:
        listed = ", ".join(_quoted(column) for column, _ in columns)
        return [tuple(plain(v) for v in row) for row in self.con.execute(f"SELECT {listed} FROM {_o(name)}").fetchall()]

    def _store(self, name: str, columns: Sequence[Sequence[str]], rows: Iterable[Sequence[Any]]) -> None:
        rows = list(rows)
        arrays = [
            pa.array([self._stored(row[at], kind) for row in rows], STORED[kind])
            for at, (_, kind) in enumerate(columns)
        ]
        made = pa.table(arrays, names=[column for column, _ in columns])
        self.con.register("incoming", made)
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM incoming")
        self.con.unregister("incoming")

    def _stored(self, value: Any, kind: str) -> Any:
        if kind == "timestamp" and isinstance(value, str):  # without offset: as clocks of the zone show it
            return calendar.wall(datetime.fromisoformat(value), self.zone)
        return value if kind == "timestamp" or value is None else _arrow(value, kind)

    def _base(self, name: str, project: Project, feed_name: str, table: Mapping[str, Any] | None, files: Files) -> None:
        feed = project["feeds"][feed_name]
        grain = table["grain"] if table else feed["settings"].get("partition", "none")
        time = table["time"] if table else feed["time"]
        target = _o(name)
        made = [one for _, one in files.in_order(name, feed_name, feed)]
        if table is None:
            numbered = [(*row, number) for number, one in enumerate(made) for row in self._values(feed, one)]
            self._raw(feed | {"columns": [*feed["columns"], ("file_number", "bigint")]}, numbered)
            self._transformed(_o(f"{name}_ever"), feed_name, None)
        if feed["mode"] != "snapshot":
            numbered = [(*row, number) for number, one in enumerate(made) for row in self._values(feed, one)]
            self._raw(feed | {"columns": [*feed["columns"], ("file_number", "bigint")]}, numbered)
            self._transformed(target, feed_name, table)
            return
        if grain == "none":
            self._raw(feed, self._values(feed, made[-1]) if made else [])
            self._transformed(target, feed_name, table)
            return
        # Each partition is what the newest file says that has rows in it.
        self._raw(feed, [])
        self._transformed(target, feed_name, table)
        stated: set[int] = set()
        for one in reversed(made):
            self._raw(feed, self._values(feed, one))
            self._transformed("one_file", feed_name, table)
            kind = dict(table["columns"] if table else feed["columns"])[time]
            at = self._instant(time, kind)
            starts = {
                calendar.floor(us, grain, self.zone)
                for (us,) in self.con.execute(f"SELECT DISTINCT {at} FROM one_file").fetchall()
            }
            for start in starts - stated:
                end = calendar.shift(start, 1, grain, self.zone)
                self.con.execute(f"INSERT INTO {target} SELECT * FROM one_file WHERE {at} >= {start} AND {at} < {end}")
            stated |= starts

    def _values(self, feed: Mapping[str, Any], one: Loaded) -> list[list[Any]]:
        """The rows of a file in the columns of now, but for those that came late where these are set aside."""
        places = [one.columns.index(name) if name in one.columns else None for name, _ in feed["columns"]]
        late = one.late if feed["settings"].get("late") == "set aside" else None
        rows = ([None if place is None else row[place] for place in places] for row in one.rows)
        return [row for row in rows if late is None or not self._before(feed, row, late)]

    def _before(self, feed: Mapping[str, Any], row: Sequence[Any], late: int) -> bool:
        at = [name for name, _ in feed["columns"]].index(feed["time"])
        kind, value = feed["columns"][at][1], row[at]
        if value is None:
            return False
        if kind == "date":
            return calendar.midnight(date.fromisoformat(value), self.zone) < late
        zone = self.zone if kind == "timestamp_ntz" else feed["settings"].get("zone", self.zone)
        us = value if isinstance(value, int) else calendar.wall(datetime.fromisoformat(value), zone)
        return us < late

    def refused(self, project: Project, files: Files) -> dict[str, Counter[tuple[str, int, str]]]:
        """Of each base table the rows that should be in its quarantine: their file, their line, and what is wrong."""
        self.zone = project["zone"]
        found = {}
        for name in order(project):
            table = project["tables"].get(name)
            feed_name = name if table is None else table.get("feed")
            if not feed_name:
                continue
            feed, of = project["feeds"][feed_name], Counter[tuple[str, int, str]]()
            known = files.in_order(name, feed_name, feed)
            grain = table["grain"] if table else feed["settings"].get("partition", "none")
            if feed["mode"] == "snapshot" and grain == "none":
                known = known[-1:]
            for file, one in known:
                rows = self._values(feed | {"settings": feed["settings"] | {"late": "load"}}, one)
                late = one.late if feed["settings"].get("late") == "set aside" else None
                broken = self._broken(feed, rows)
                at = [column for column, _ in feed["columns"]].index(feed["time"]) if feed["time"] else None
                for number, (row, line) in enumerate(zip(rows, one.lines, strict=True)):
                    if at is not None and row[at] is None:
                        of[file, line, "time"] += 1
                    elif number in broken:
                        of[file, line, "rule"] += 1
                    elif late is not None and self._before(feed, row, late):
                        of[file, line, "late"] += 1
            found[name] = of
        return found

    def _broken(self, feed: Mapping[str, Any], rows: Sequence[Sequence[Any]]) -> set[int]:
        if not rules_of(feed):
            return set()
        numbered = [(*row, number) for number, row in enumerate(rows)]
        self._store("judged", [*feed["columns"], ("row_number_", "bigint")], numbered)
        tests = " OR ".join(f"NOT coalesce({duck_text(rule)}, false)" for rule in rules_of(feed))
        return {number for (number,) in self.con.execute(f"SELECT row_number_ FROM judged WHERE {tests}").fetchall()}

    def _raw(self, feed: Mapping[str, Any], rows: Sequence[Sequence[Any]]) -> None:
        """The good rows of files."""
        zone, self.zone = self.zone, feed["settings"].get("zone", self.zone)
        self._store("raw", feed["columns"], rows)
        self.zone = zone
        if feed["time"]:
            self.con.execute(f"DELETE FROM raw WHERE {_quoted(feed['time'])} IS NULL")
        for rule in rules_of(feed):
            self.con.execute(f"DELETE FROM raw WHERE NOT coalesce({duck_text(rule)}, false)")

    def _transformed(self, target: str, feed: str, table: Mapping[str, Any] | None) -> None:
        text = "SELECT * FROM raw"
        if table:
            text = f"WITH {_quoted(feed)} AS (SELECT * FROM raw) SELECT * FROM ({duck_text(table['text'])})"
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE {target} AS {text}")

    def _instant(self, time: str, kind: str) -> str:
        time = _quoted(time)
        return time if kind == "timestamp" else f"inst_{'date' if kind == 'date' else 'ntz'}({time})"

    def _derive(self, name: str, project: Project, edges: Mapping[str, int | None]) -> None:
        """A roll-up that went on since is read as it was at the table's edge, where that lies in one of its partitions."""
        ahead = self._went_on(name, project, edges)
        for source in ahead:
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE {_o(f'{source}_now')} AS SELECT * FROM {_o(source)}")
            self._derive(source, project, {**edges, source: edges[name]})
        self._derive_now(name, project, edges)
        for source in ahead:
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE {_o(source)} AS SELECT * FROM {_o(f'{source}_now')}")

    def _went_on(self, name: str, project: Project, edges: Mapping[str, int | None]) -> list[str]:
        found, edge = [], edges.get(name)
        for source in project["tables"][name]["sources"]:
            above, own = project["tables"].get(source), edges.get(source)
            if source == name or above is None or above.get("feed") or above["grain"] == "none":
                continue
            if edge is not None and own is not None and own > edge > calendar.floor(edge, above["grain"], self.zone):
                found.append(source)
        return found

    def _derive_now(self, name: str, project: Project, edges: Mapping[str, int | None]) -> None:
        table = project["tables"][name]
        grain, edge = table["grain"], edges.get(name)
        text = duck_text(table["text"]).replace("ITSELF", name)
        reads = {source: self._source(source, project) for source in table["sources"] if source != name}
        if edge is None and self.flows(name, project):
            self._make(name, table, None, [])
            return
        whole = grain == "none" or not table["time"]
        spans: dict[str, Any] = {
            source: None
            if whole or self._reads_all(table["sources"][source], reads[source][2])
            else (table["sources"][source], reads[source][2], grain)
            for source in reads
        }
        at = self._instant(table["time"], dict(map(tuple, table["columns"]))[table["time"]]) if table["time"] else None
        if "{start}" in text and all(span is None for span in spans.values()):
            raise Unsure("which partitions there are, if each reads everything")
        # Rows of a source that has no edge may lie anywhere.
        anywhere = table["template"] == "union" and any(time is None for time, _, _ in reads.values())
        if table["how"] == "whole" or anywhere or all(span is None for span in spans.values()):
            self._make(name, table, self._bound(table, reads, spans, edge, None, text), [])
            if not whole and edge is not None and table["settings"].get("update") == "closed":
                last = calendar.floor(edge, grain, self.zone)
                self.con.execute(f"DELETE FROM {_o(name)} WHERE {at} >= {last}")
            return
        self._make(name, table, None, [])
        itself = name in table["sources"]
        starts = set(self._partitions(reads, spans, grain, edge, itself))
        if "{start}" not in text and not itself and None in spans.values():
            # A source that is read whole can give rows of any time.
            all_of_it = self._bound(table, reads, dict.fromkeys(reads), edge, None, text)
            times = self.con.execute(f"SELECT DISTINCT {at} FROM ({all_of_it})").fetchall()
            # Also of the times that its own rows have: a partition that reads less of the other source may keep more of them.
            for source, (_, its, _) in reads.items():
                if spans[source] is None and its is not None:
                    times += self.con.execute(
                        f"SELECT DISTINCT {its} FROM {_o(source)} WHERE {its} < {edge}"
                    ).fetchall()
            starts |= {calendar.floor(us, grain, self.zone) for (us,) in times if us is not None}
        for start in sorted(starts):
            end = calendar.shift(start, 1, grain, self.zone)
            if edge is not None and (start >= edge or (table["settings"].get("update") == "closed" and end > edge)):
                continue
            sql = self._bound(table, reads, spans, edge, start, text)
            if itself:
                before = calendar.shift(start, -1, grain, self.zone)
                own = f"SELECT * FROM {_o(name)} WHERE {at} >= {before} AND {at} < {start}"
                sql = f"WITH {_quoted(name)} AS ({own}) SELECT * FROM ({sql})"
            sql = sql.replace("{start}", str(start)).replace("{end}", str(end))
            listed = ", ".join(_quoted(column) for column, _ in table["columns"])
            self.con.execute(
                f"INSERT INTO {_o(name)} SELECT {listed} FROM ({sql}) WHERE {at} >= {start} AND {at} < {end}"
            )

    def _make(self, name: str, table: Mapping[str, Any], sql: str | None, rows: Rows) -> None:
        if sql is not None:
            listed = ", ".join(_quoted(column) for column, _ in table["columns"])
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE {_o(name)} AS SELECT {listed} FROM ({sql})")
        else:
            self._store(_o(name), table["columns"], rows)

    def _source(self, source: str, project: Project) -> tuple[str | None, str | None, str]:
        """Its time column, as an expression of an instant, and its grain."""
        table = project["tables"].get(source)
        if table is not None:
            time, columns, grain = table["time"], table["columns"], table["grain"]
        else:
            feed = project["feeds"][source]
            time, columns, grain = feed["time"], feed["columns"], feed["settings"].get("partition", "none")
        if time is None or not self.flows(source, project):
            return None, None, "none"
        return time, self._instant(time, dict(map(tuple, columns))[time]), grain

    def flows(self, name: str, project: Project) -> bool:
        """Whether a table has an edge: its feed has, or something that it reads. It need not have a time of its own."""
        table = project["tables"].get(name)
        if table is not None and not table.get("feed"):
            return any(self.flows(one, project) for one in table["sources"] if one != name and waits_for(table, one))
        feed = project["feeds"][table["feed"] if table else name]
        grain = table["grain"] if table else feed["settings"].get("partition", "none")
        return feed["time"] is not None and not (feed["mode"] == "snapshot" and grain == "none")

    def waits(self, name: str, project: Project, edges: Mapping[str, int | None], unmade: Collection[str] = ()) -> bool:
        """Whether a table that was never made has to wait: for a source that has nothing yet, or because nothing lies before
        the time up to which it could be made."""
        table, edge = project["tables"][name], edges.get(name)
        if any(source in unmade for source in table["sources"] if source != name):
            return True
        if not self.flows(name, project):
            return False
        if edge is None:
            return True
        everywhere = table["grain"] == "none" or table["template"] == "union"
        if everywhere and not all(self.flows(one, project) for one in table["sources"] if one != name):
            return False  # it can have rows of a source without edge
        first = self._begin(name, project)
        return first is None or first >= edge

    def _begin(self, name: str, project: Project) -> int | None:
        """The earliest time of which a table can have rows, seen from its sources."""
        table, found = project["tables"][name], []
        for source, relation in table["sources"].items():
            if source == name or not self.flows(source, project):
                continue
            _, at, source_grain = self._source(source, project)
            first = self.con.execute(f"SELECT min({at}) FROM {_o(source)}").fetchall()[0][0] if at else None
            above = project["tables"].get(source)
            if first is None and above is not None and not above.get("feed"):
                first = self._begin(source, project)
            if first is None:
                continue
            if table["grain"] != "none" and source_grain != "none" and relation != "everything":
                some = readers(first, relation, source_grain, table["grain"], self.zone)
                if not some:
                    continue
                first = min(some)
            found.append(first)
        return min(found, default=None)

    def _reads_all(self, relation: str | None, source: str) -> bool:
        return source == "none" or relation == "everything"

    def _bound(
        self,
        table: Mapping[str, Any],
        reads: Mapping[str, Any],
        spans: Mapping[str, Any],
        edge: int | None,
        start: int | None,
        text: str,
    ) -> str:
        """The view's SQL with each source cut to what is read of it."""
        parts = []
        for source, (_, at, _) in reads.items():
            conditions = []
            if at is not None and edge is not None and waits_for(table, source):
                conditions.append(f"{at} < {edge}")
            span = spans[source]
            if span is not None and start is not None:
                read = stretches(start, *span, self.zone)
                conditions.append("(" + " OR ".join(f"{at} >= {low} AND {at} < {high}" for low, high in read) + ")")
            where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
            parts.append(f"{_quoted(source)} AS (SELECT * FROM {_o(source)}{where})")
            if f'"{source}_ever"' in text:
                parts.append(f"{_quoted(f'{source}_ever')} AS (SELECT * FROM {_o(f'{source}_ever')}{where})")
        return f"WITH {', '.join(parts)} SELECT * FROM ({text})"

    def _partitions(
        self, reads: Mapping[str, Any], spans: Mapping[str, Any], grain: str, edge: int | None, itself: bool
    ) -> list[int]:
        """The partitions that read any row."""
        found: set[int] = set()
        for source, (_, at, source_grain) in reads.items():
            if at is None or spans[source] is None:
                continue
            cut = f" WHERE {at} < {edge}" if edge is not None else ""
            times = self.con.execute(f"SELECT DISTINCT {at} FROM {_o(source)}{cut}").fetchall()
            for first in {calendar.floor(us, source_grain, self.zone) for (us,) in times}:
                found |= readers(first, spans[source][0], source_grain, grain, self.zone)
        if itself and found and edge is not None:
            n = min(found)
            while n < edge:
                found.add(n)
                n = calendar.shift(n, 1, grain, self.zone)
        return sorted(found)


def rules_of(feed: Mapping[str, Any]) -> list[str]:
    """Also what rows of keys must say: which key they are of, and when it was so. A delete need say nothing else."""
    rules, implied = feed["settings"].get("rules", []), feed.get("implied", [])
    if feed["mode"] == "changes":
        rules = [f"(op IS NOT NULL AND op = 'd') OR ({rule})" for rule in rules]
    return [*rules, *implied]


def optional(table: Mapping[str, Any], source: str) -> bool:
    """Whether a table goes on without a source that has not come as far."""
    said = table["settings"].get("absent", "wait")
    return bool((said if isinstance(said, str) else said.get(source, "wait")) == "empty")


def waits_for(table: Mapping[str, Any], source: str) -> bool:
    """Whether the time of a source holds a table back."""
    said = table["settings"].get("waits", True)
    return bool(said if isinstance(said, bool) else said.get(source, True))


# One stretch of what a relation says: from the start of a calendar unit so many after the one in which the partition begins, to the
# end of one so many after the one in which it ends. No unit: the partition itself.
Piece = tuple[str | None, int, str | None, int]


def pieces(relation: str | None) -> list[Piece]:
    if relation is None or relation in ("same", "containing") or relation.endswith("()"):
        return [(None, 0, None, 0)]
    if relation == "previous":
        return [(None, -1, None, -1)]
    if relation.startswith("last "):
        return [(None, 1 - int(relation[5:]), None, 0)]
    found: list[Piece] = []
    for piece in relation.split(","):
        ends = []
        for end in piece.split(".."):
            words = end.split()
            unit = None if words[0] == "PARTITION" else words[0].lower()
            ends.append((unit, int(words[2]) * (-1 if words[1] == "-" else 1) if len(words) == 3 else 0))
        found.append((*ends[0], *ends[-1]))
    return found


def stretches(start: int, relation: str | None, source: str, grain: str, zone: str) -> list[tuple[int, int]]:
    """What a partition reads of a source, in whole partitions of that."""
    end = calendar.shift(start, 1, grain, zone)
    found = []
    for low_unit, low, high_unit, high in pieces(relation):
        first = calendar.shift(calendar.floor(start, low_unit or grain, zone), low, low_unit or grain, zone)
        last = calendar.shift(calendar.ceil(end, high_unit or grain, zone), high, high_unit or grain, zone)
        found.append((calendar.floor(first, source, zone), calendar.ceil(last, source, zone)))
    return found


def readers(us: int, relation: str | None, source: str, grain: str, zone: str) -> set[int]:
    """The partitions that read the source's partition with this instant. Nobody reads what comes after."""
    us = calendar.floor(us, source, zone)
    n, found = calendar.floor(us, grain, zone), set()
    while True:
        read = stretches(n, relation, source, grain, zone)
        if any(low <= us < high for low, high in read):
            found.add(n)
        elif all(low > us for low, _ in read):
            return found
        n = calendar.shift(n, 1, grain, zone)


def carried(edge: int, relation: str | None, source: str, grain: str, zone: str) -> int:
    """Up to when a table may be complete whose source is up to an edge: past it, where only earlier partitions are read."""
    n = calendar.floor(edge, grain, zone)
    if "none" in (source, grain) or relation == "everything":
        return edge
    while all(high <= edge for _, high in stretches(n, relation, source, grain, zone)):
        n = calendar.shift(n, 1, grain, zone)
    return max(edge, n)


def _o(name: str) -> str:
    return _quoted(f"o_{name}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def plain(value: Any) -> Any:
    """A value so that both sides can be compared."""
    if isinstance(value, bool | str | int) or value is None:
        return value
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, float | Decimal):
        number = float(value)
        if math.isfinite(number) and number == int(number):
            return int(value)
        return round(number, 6)
    if isinstance(value, datetime):
        return calendar.micros(value if value.tzinfo else value.replace(tzinfo=calendar.UTC))
    if isinstance(value, date):
        return value.isoformat()
    return value
