"""What every table should hold, computed by DuckDB from the record of delivered rows. Nothing of the product is used.

A table is the recompute of its present declaration over the loaded rows up to its edge. The edge is the one that the product
claims; whether it may claim that is another question (`play.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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


class Files:
    """The record of what was loaded: for each base table every file by name, with its last content and when that came."""

    def __init__(self) -> None:
        self.loaded: dict[str, dict[str, Loaded]] = {}
        # The newest time that a table ever had.
        self.newest: dict[str, int] = {}

    def came(
        self, table: str, feed: str, file: str, number: int, rows: Sequence[Sequence[Any]], data: bytes, mtime: float
    ) -> None:
        known = self.loaded.setdefault(table, {})
        if file in known and known[file].feed != feed:
            known.clear()
        if file not in known or known[file].data != data:
            known[file] = Loaded(feed, number, rows, data, mtime)

    def in_order(self, table: str, feed: str, declared: Mapping[str, Any]) -> list[Sequence[Sequence[Any]]]:
        """The rows of each file; of those that state the same, the later ones count."""
        found = [(name, one) for name, one in self.loaded.get(table, {}).items() if one.feed == feed]
        word, _, what = declared["settings"].get("order", "arrival").partition(" ")
        at = [name for name, _ in declared["columns"]].index(what) if word == "column" else 0

        def key(name: str, one: Loaded) -> Any:
            if word == "modified":
                return one.mtime
            if word == "name":
                match = re.search(what, name)
                return int(match[1]) if match else -1
            if word == "column":
                return max((row[at] for row in one.rows if row[at] is not None), default=-math.inf)
            return 0

        return [one.rows for _, one in sorted(found, key=lambda each: (key(*each), each[1].number))]


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
        made = files.in_order(name, feed_name, feed)
        if feed["mode"] == "append":
            numbered = [(*row, number) for number, rows in enumerate(made) for row in rows]
            self._raw(feed | {"columns": [*feed["columns"], ("file_number", "bigint")]}, numbered)
            self._transformed(target, feed_name, table)
            return
        if grain == "none":
            self._raw(feed, made[-1] if made else [])
            self._transformed(target, feed_name, table)
            return
        # Each partition is what the newest file says that has rows in it.
        self._raw(feed, [])
        self._transformed(target, feed_name, table)
        stated: set[int] = set()
        for rows in reversed(made):
            self._raw(feed, rows)
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

    def _raw(self, feed: Mapping[str, Any], rows: Sequence[Sequence[Any]]) -> None:
        """The good rows of files."""
        zone, self.zone = self.zone, feed["settings"].get("zone", self.zone)
        if feed["format"] == "csv":
            rows = [[None if value == "" else value for value in row] for row in rows]  # an empty value is null
        self._store("raw", feed["columns"], rows)
        self.zone = zone
        for rule in feed["settings"].get("rules", []):
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
        table = project["tables"][name]
        grain, edge = table["grain"], edges.get(name)
        text = duck_text(table["text"]).replace("ITSELF", name)
        reads = {source: self._source(source, project) for source in table["sources"] if source != name}
        if edge is None and self.flows(name, project):
            self._make(name, table, None, [])
            return
        whole = grain == "none" or not table["time"]
        spans: dict[str, Any] = {
            source: None if whole else self._span(table["sources"][source], reads[source][2], grain) for source in reads
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
            span = None if table["grain"] == "none" else self._span(relation, source_grain, table["grain"])
            if span is not None:
                start = calendar.floor(calendar.floor(first, source_grain, self.zone), table["grain"], self.zone)
                first = calendar.shift(start, 1 - span[1], table["grain"], self.zone)
            found.append(first)
        return min(found, default=None)

    def _span(self, relation: str | None, source: str, grain: str) -> tuple[int, int, str] | None:
        """(low, high, grain of the source): from the start of partition n + low to that of n + high; None: all."""
        if source == "none" or relation == "everything":
            return None
        low, high = window(relation)
        return low, high, source

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
                first, last = self._stretch(span, start, reads, source)
                conditions.append(f"{at} >= {first} AND {at} < {last}")
            where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
            parts.append(f"{_quoted(source)} AS (SELECT * FROM {_o(source)}{where})")
        return f"WITH {', '.join(parts)} SELECT * FROM ({text})"

    def _stretch(
        self, span: tuple[int, int, str], start: int, reads: Mapping[str, Any], source: str
    ) -> tuple[int, int]:
        low, high, source_grain = span
        first = calendar.shift(start, low, self._grain, self.zone)
        last = calendar.shift(start, high, self._grain, self.zone)
        return calendar.floor(first, source_grain, self.zone), calendar.ceil(last, source_grain, self.zone)

    def _partitions(
        self, reads: Mapping[str, Any], spans: Mapping[str, Any], grain: str, edge: int | None, itself: bool
    ) -> list[int]:
        """The partitions that read any row."""
        self._grain = grain
        found: set[int] = set()
        for source, (_, at, source_grain) in reads.items():
            if at is None or spans[source] is None:
                continue
            low, high, _ = spans[source]
            cut = f" WHERE {at} < {edge}" if edge is not None else ""
            for (us,) in self.con.execute(f"SELECT DISTINCT {at} FROM {_o(source)}{cut}").fetchall():
                first, last = calendar.floor(us, source_grain, self.zone), None
                last = calendar.shift(first, 1, source_grain, self.zone)
                n = calendar.shift(calendar.floor(first, grain, self.zone), -high + 1, grain, self.zone)
                stop = calendar.shift(calendar.ceil(last, grain, self.zone), -low, grain, self.zone)
                while n < stop:
                    found.add(n)
                    n = calendar.shift(n, 1, grain, self.zone)
        if itself and found and edge is not None:
            n = min(found)
            while n < edge:
                found.add(n)
                n = calendar.shift(n, 1, grain, self.zone)
        return sorted(found)


def waits_for(table: Mapping[str, Any], source: str) -> bool:
    """Whether the time of a source holds a table back."""
    said = table["settings"].get("waits", True)
    return bool(said if isinstance(said, bool) else said.get(source, True))


def window(relation: str | None) -> tuple[int, int]:
    """What a relation says, in partitions of the table that reads: from n + low to before n + high."""
    if relation is None or relation in ("same", "containing") or relation.endswith("()"):
        return 0, 1
    if relation == "previous":
        return -1, 0
    if relation.startswith("last "):
        return 1 - int(relation[5:]), 1
    ends = []
    for end in relation.split(".."):
        words = end.split()
        ends.append(int(words[2]) * (-1 if words[1] == "-" else 1) if len(words) == 3 else 0)
    return ends[0], ends[-1] + 1


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
