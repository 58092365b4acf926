"""SQL views in pairs: what the project says to Spark, and what it means in DuckDB.

Both are written side by side. Most text is the same; where it differs it stands as ⟦Spark¦DuckDB⟧. In the oracle's tables an
instant is a whole number of microseconds, so that nothing depends on what DuckDB thinks of time zones.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.projects.calendar import MINUTE, MONTHS

_BOTH = re.compile(r"⟦([^¦⟧]*)¦([^⟧]*)⟧")


def spark_text(text: str) -> str:
    return _BOTH.sub(r"\1", text)


def duck_text(text: str) -> str:
    return _BOTH.sub(r"\2", text)


_PLAIN = re.compile(r"[a-z]\w{0,2}|total|slot|begins|seen|later|moment_|one|two|fe?", re.ASCII)


def token(name: str) -> str:
    """A name as SQL has it."""
    if (_PLAIN.fullmatch(name) and name not in ("at", "end")) or re.fullmatch(r"(ev|ref|t|b)\d*(_\w+)?", name):
        return name
    return f'⟦`{name}`¦"{name}"⟧'


def bare(text: str) -> str:
    return _BOTH.sub(r"\1", text).strip("`")


@dataclass(frozen=True)
class Source:
    """What a view can read: a table with its columns, as SQL names them."""

    name: str
    columns: tuple[tuple[str, str], ...]
    time: str | None
    grain: str

    def of(self, *types: str) -> list[str]:
        return [name for name, kind in self.columns if kind in types and name != self.time]

    def type_of(self, column: str) -> str:
        return dict(self.columns)[column]

    @property
    def timed(self) -> bool:
        return self.time is not None

    @property
    def sql(self) -> str:
        return token(self.name)


@dataclass
class View:
    text: str
    columns: list[tuple[str, str]]
    time: str | None
    grain: str
    sources: dict[str, str | None]
    # "partition": each partition from what it reads. "whole": as if all were one, then each row to its partition.
    how: str = "partition"
    kind: str = "sql"
    template: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


WIDE = {
    "minute": "minute",
    "hour": "hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "quarter": "quarter",
    "year": "year",
}


def instant(source: Source, alias: str = "") -> str:
    """The time of a row as an instant, in both languages."""
    assert source.time is not None
    column = f"{alias}{source.time}"
    kind = source.type_of(source.time)
    if kind == "timestamp":
        return column
    duck = f"inst_{'date' if kind == 'date' else 'ntz'}({duck_text(column)})"
    return f"⟦cast({spark_text(column)} as timestamp)¦{duck}⟧"


def _duck(text: str) -> str:
    return duck_text(text)


def trunc(grain: str, source: Source, alias: str = "") -> str:
    """The start of the row's partition, as people write it."""
    column = f"{alias}{source.time}"
    duck = _duck(instant(source, alias))
    if grain in WIDE:
        return f"⟦date_trunc('{grain}', {spark_text(column)})¦trunc_{grain}({duck})⟧"
    minutes = int(grain[:-1])
    seconds = minutes * 60
    plain = spark_text(instant(source, alias))
    return f"⟦timestamp_seconds({seconds} * floor(unix_seconds({plain}) / {seconds}))¦trunc_utc({duck}, {minutes})⟧"


def plus(text: str, minutes: int) -> str:
    sign = "+" if minutes >= 0 else "-"
    n = abs(minutes)
    return f"⟦{spark_text(text)} {sign} INTERVAL {n} MINUTES¦{duck_text(text)} {sign} {n * MINUTE}⟧"


# (A bare number behind GROUP BY would be the place of a column.)
START, END = "⟦:partition_start¦cast({start} as bigint)⟧", "⟦:partition_end¦cast({end} as bigint)⟧"


class Drawing:
    """What the templates share: randomness and what fits."""

    def __init__(self, rng: random.Random, *, plain: bool = False, begins: bool = False) -> None:
        self.rng = rng
        # For a stand-in of Spark that only knows what both languages share.
        self.plain = plain
        # Whether days are told by `:partition_start`, as clocks were set back over midnight.
        self.begins = begins

    def key(self, source: Source) -> str:
        return self.rng.choice(source.of("string"))

    def number(self, source: Source) -> str:
        return self.rng.choice(source.of("bigint", "int"))

    def trunc(self, grain: str, source: Source, alias: str = "") -> str:
        if self.begins and grain in ("day", "week", *MONTHS):
            return START
        return trunc(grain, source, alias)

    def condition(self, source: Source, alias: str = "") -> str:
        number, key = f"{alias}{self.number(source)}", f"{alias}{self.key(source)}"
        return self.rng.choice(
            [
                f"{number} > {self.rng.randrange(-5, 30)}",
                f"{key} <> 'b'",
                f"{key} IN ('a', 'c')",
                f"{number} IS NOT NULL",
                f"({number} < 40 OR {key} = 'a')",
                f"{number} BETWEEN 2 AND 60",
                f"coalesce({number}, 0) % 2 = 0",
                f"NOT ({key} = 'a' AND {number} < 20)",
                f"{key} LIKE 'a%'",
                f"{number} <=> 3".replace("<=>", "IS NOT DISTINCT FROM"),
                f"length({key}) > 1",
                f"abs({number}) > 5",
                f"upper({key}) = 'A'",
                f"{number} = -1 OR nullif({number}, 7) IS NULL",
            ]
        )

    def where(self, source: Source, alias: str = "") -> str:
        return f" WHERE {self.condition(source, alias)}" if self.rng.random() < 0.4 else ""

    def aggregates(self, source: Source, alias: str = "", *, distinct: bool = True) -> list[tuple[str, str, str]]:
        """(expression, name, type) of some aggregates."""
        number, key = f"{alias}{self.number(source)}", f"{alias}{self.key(source)}"
        found = [
            (f"sum({number})", "total", "bigint"),
            ("count(*)", "n", "bigint"),
            (f"count({number})", "known", "bigint"),
            (f"min({number})", "least", "bigint"),
            (f"max({number})", "most", "bigint"),
            (f"avg({number})", "mean", "double"),
            (f"sum({number}) + count(*)", "plus_n", "bigint"),
            (f"max({key})", "last_key", "string"),
            (f"count(*) FILTER (WHERE {number} > 10)", "large", "bigint"),
            (f"sum(CASE WHEN {key} = 'a' THEN 1 ELSE 0 END)", "of_a", "bigint"),
            (f"sum({number}) / count(*)", "share", "double"),
        ]
        for decimal in source.of("decimal(10,2)"):
            found += [
                (f"sum({alias}{decimal})", "money", "decimal(20,2)"),
                (f"max({alias}{decimal})", "dearest", "decimal(10,2)"),
            ]
        for double in source.of("double"):
            found += [(f"sum({alias}{double})", "weight", "double"), (f"min({alias}{double})", "lightest", "double")]
        if distinct and self.rng.random() < 0.4:
            found += [(f"count(DISTINCT {number})", "kinds", "bigint"), (f"sum(DISTINCT {number})", "once", "bigint")]
        chosen = self.rng.sample(found, self.rng.randrange(2, 5))
        if not any(kind == "bigint" for _, _, kind in chosen):
            chosen.append(("count(*)", "n", "bigint"))
        # least/most of an int column are ints; nobody declares these, so only the width of a number differs
        return chosen


def listed(items: Sequence[tuple[str, str, str]]) -> str:
    return ", ".join(f"{text} AS {name}" for text, name, _ in items)


def named(items: Sequence[tuple[str, str, str]]) -> list[tuple[str, str]]:
    return [(name, kind) for _, name, kind in items]


Template = Callable[[Drawing, Sequence[Source], str], View | None]
TEMPLATES: dict[str, Template] = {}


def template(function: Template) -> Template:
    TEMPLATES[function.__name__] = function
    return function


def _timed(sources: Sequence[Source]) -> Source | None:
    return next((one for one in sources if one.timed), None)


@template
def rowwise(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None:
        return None
    key, number = d.key(s), d.number(s)
    extra = d.rng.choice(
        [f"{number} * 2 + 1", f"coalesce({number}, -1)", f"CASE WHEN {key} = 'a' THEN {number} ELSE 0 END"]
    )
    text = f"SELECT {key} AS k, {s.time}, {extra} AS v FROM {s.sql}{d.where(s)}"
    return View(
        text, [("k", "string"), (s.time or "", s.type_of(s.time or "")), ("v", "bigint")], s.time, grain, {s.name: None}
    )


@template
def grouped(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or grain == "none":
        return None
    key, aggregates = d.key(s), d.aggregates(s)
    bucket = d.trunc(grain, s)
    having = " HAVING count(*) > 1" if d.rng.random() < 0.2 else ""
    by = d.rng.choice(["1, 2", f"{key}, {bucket}"])
    text = f"SELECT {key} AS k, {bucket} AS slot, {listed(aggregates)} FROM {s.sql}{d.where(s)} GROUP BY {by}{having}"
    return View(text, [("k", "string"), ("slot", "timestamp"), *named(aggregates)], "slot", grain, {s.name: None})


@template
def total(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = sources[0]
    key, aggregates = d.key(s), d.aggregates(s)
    text = f"SELECT {key} AS k, {listed(aggregates)} FROM {s.sql}{d.where(s)} GROUP BY {key}"
    return View(text, [("k", "string"), *named(aggregates)], None, "none", {s.name: None})


@template
def last_seen(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None:
        return None
    key = d.key(s)
    at = d.rng.choice(["max", "min"])
    text = f"SELECT {key} AS k, {at}({s.time}) AS seen, count(*) AS n FROM {s.sql}{d.where(s)} GROUP BY {key}"
    columns = [("k", "string"), ("seen", s.type_of(s.time or "")), ("n", "bigint")]
    return View(text, columns, "seen", grain, {s.name: None})


@template
def windowed(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None:
        return None
    key, number = d.key(s), d.number(s)
    # Ordered by all that is shown, so that equal rows cannot be told apart.
    over = f"(PARTITION BY {key} ORDER BY {s.time}, {number} NULLS FIRST)"
    what = d.rng.choice(
        [
            f"lag({number}) OVER {over}",
            f"row_number() OVER {over}",
            f"sum({number}) OVER (PARTITION BY {key})",
            f"count(*) OVER {over[:-1]} ROWS UNBOUNDED PRECEDING)",
        ]
    )
    text = f"SELECT {key} AS k, {s.time}, {number} AS v, {what} AS w FROM {s.sql}{d.where(s)}"
    kind = s.type_of(s.time or "")
    return View(
        text, [("k", "string"), (s.time or "", kind), ("v", "bigint"), ("w", "bigint")], s.time, grain, {s.name: None}
    )


@template
def joined(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """Two timed sources, in the same stretch of time."""
    timed = [one for one in sources if one.timed]
    if len(timed) < 2 or timed[0].name == timed[1].name or grain == "none":
        return None
    a, b = timed[:2]
    how = d.rng.choice(["JOIN", "LEFT JOIN"])
    right = (
        f"(SELECT {d.key(b)} AS k, {d.trunc(grain, b)} AS slot, sum({d.number(b)}) AS total FROM {b.sql} GROUP BY 1, 2)"
    )
    key, number = d.key(a), d.number(a)
    text = (
        f"SELECT a.{key} AS k, a.{a.time}, a.{number} AS v, b.total AS other FROM {a.sql} a {how} {right} b "
        f"ON a.{key} = b.k AND {d.trunc(grain, a, 'a.')} = b.slot"
    )
    columns = [("k", "string"), (a.time or "", a.type_of(a.time or "")), ("v", "bigint"), ("other", "bigint")]
    return View(text, columns, a.time, grain, {a.name: None, b.name: None})


@template
def looked_up(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """A timed source with a table that is as it is now."""
    s = _timed(sources)
    r = next((one for one in sources if not one.timed and one.of("string") and one.of("bigint", "int")), None)
    if s is None or r is None:
        return None
    how = d.rng.choice(["JOIN", "LEFT JOIN"])
    key, number = d.key(s), d.number(s)
    text = (
        f"SELECT s.{key} AS k, s.{s.time}, s.{number} AS v, r.found FROM {s.sql} s {how} "
        f"(SELECT {d.key(r)} AS k, max({d.number(r)}) AS found FROM {r.sql} GROUP BY 1) r ON s.{key} = r.k"
    )
    columns = [("k", "string"), (s.time or "", s.type_of(s.time or "")), ("v", "bigint"), ("found", "bigint")]
    return View(text, columns, s.time, grain, {s.name: None, r.name: None})


@template
def union(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    timed = [one for one in sources if one.timed]
    if len(timed) < 2:
        return None
    a, b = timed[:2]
    kind = a.type_of(a.time or "")
    if kind != b.type_of(b.time or ""):
        return None
    parts = [
        f"SELECT {d.key(one)} AS k, {one.time} AS moment_, {d.number(one)} AS v FROM {one.sql}{d.where(one)}"
        for one in (a, b)
    ]
    text = f"{parts[0]} {d.rng.choice(['UNION ALL', 'UNION ALL', 'UNION'])} {parts[1]}"
    sources_ = {a.name: None, b.name: None}
    return View(text, [("k", "string"), ("moment_", kind), ("v", "bigint")], "moment_", grain, sources_)


@template
def cte(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or grain == "none":
        return None
    key, number, bucket = d.key(s), d.number(s), d.trunc(grain, s)
    text = (
        f"WITH good AS (SELECT {key} AS k, {bucket} AS slot, {number} AS v FROM {s.sql}{d.where(s)}), "
        f"sums AS (SELECT k, slot, sum(v) AS total FROM good GROUP BY k, slot) "
        f"SELECT k, slot, total FROM sums WHERE coalesce(total, 0) >= (SELECT min(coalesce(total, 0)) FROM sums)"
    )
    return View(text, [("k", "string"), ("slot", "timestamp"), ("total", "bigint")], "slot", grain, {s.name: None})


@template
def subquery(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None:
        return None
    key, number = d.key(s), d.number(s)
    text = (
        f"SELECT {key} AS k, {s.time}, {number} AS v FROM {s.sql} "
        f"WHERE {key} {d.rng.choice(['IN', 'NOT IN'])} (SELECT {key} FROM {s.sql} WHERE {number} > 30 AND {key} IS NOT NULL)"
    )
    columns = [("k", "string"), (s.time or "", s.type_of(s.time or "")), ("v", "bigint")]
    return View(text, columns, s.time, grain, {s.name: None})


@template
def lateral(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or d.plain:
        return None
    key, number = d.key(s), d.number(s)
    view = "⟦LATERAL VIEW explode(array(1, 2)) x AS part¦CROSS JOIN (VALUES (1), (2)) x(part)⟧"
    text = f"SELECT {key} AS k, {s.time}, {number} * part AS v FROM {s.sql} {view}{d.where(s)}"
    columns = [("k", "string"), (s.time or "", s.type_of(s.time or "")), ("v", "bigint")]
    return View(text, columns, s.time, grain, {s.name: None})


@template
def self_join(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or grain == "none":
        return None
    key, number = d.key(s), d.number(s)
    text = (
        f"SELECT a.{key} AS k, {d.trunc(grain, s, 'a.')} AS slot, count(*) AS pairs, sum(b.{number}) AS total FROM {s.sql} a "
        f"JOIN {s.sql} b ON a.{key} = b.{key} AND {d.trunc(grain, s, 'a.')} = {d.trunc(grain, s, 'b.')} GROUP BY 1, 2"
    )
    columns = [("k", "string"), ("slot", "timestamp"), ("pairs", "bigint"), ("total", "bigint")]
    return View(text, columns, "slot", grain, {s.name: None})


@template
def of_partition(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or grain == "none" or s.grain == "none":
        return None
    key, aggregates = d.key(s), d.aggregates(s)
    order = ""
    if d.rng.random() < 0.3:
        order = " ORDER BY k NULLS FIRST LIMIT 2"
    text = f"SELECT {key} AS k, {START} AS begins, {listed(aggregates)} FROM {s.sql}{d.where(s)} GROUP BY {key}{order}"
    return View(text, [("k", "string"), ("begins", "timestamp"), *named(aggregates)], "begins", grain, {s.name: None})


@template
def shifted(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or s.type_of(s.time or "") != "timestamp":
        return None
    key, number = d.key(s), d.number(s)
    minutes = d.rng.choice([5, -5, 90, 1440])
    text = f"SELECT {key} AS k, {plus(s.time or '', minutes)} AS later, {number} AS v FROM {s.sql}{d.where(s)}"
    return View(
        text, [("k", "string"), ("later", "timestamp"), ("v", "bigint")], "later", grain, {s.name: None}, how="whole"
    )


@template
def days(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """A date as the time of a roll-up."""
    s = _timed(sources)
    if s is None or grain not in ("day", "week", *MONTHS) or d.plain:
        return None
    key, aggregates = d.key(s), d.aggregates(s)
    duck = duck_text(instant(s))
    bucket = f"⟦to_date({spark_text(s.time or '')})¦local_date({duck})⟧"
    text = f"SELECT {key} AS k, {bucket} AS day, {listed(aggregates)} FROM {s.sql}{d.where(s)} GROUP BY 1, 2"
    return View(text, [("k", "string"), ("day", "date"), *named(aggregates)], "day", grain, {s.name: None})


@template
def distinct(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or grain == "none":
        return None
    key, bucket = d.key(s), d.trunc(grain, s)
    text = f"SELECT DISTINCT {key} AS k, {bucket} AS slot, 1 AS one FROM {s.sql}{d.where(s)}"
    return View(text, [("k", "string"), ("slot", "timestamp"), ("one", "int")], "slot", grain, {s.name: None})


@template
def lifetime(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """A table that reads its own previous partition."""
    s = _timed(sources)
    if s is None or grain == "none" or s.grain == "none":
        return None
    key, number = d.key(s), d.number(s)
    text = (
        f"SELECT k, {START} AS begins, sum(v) AS v FROM (SELECT {key} AS k, {number} AS v FROM {s.sql} "
        f"UNION ALL SELECT k, v FROM ITSELF) GROUP BY k"
    )
    view = View(
        text,
        [("k", "string"), ("begins", "timestamp"), ("v", "bigint")],
        "begins",
        grain,
        {s.name: None, "ITSELF": "SELF - 1"},
    )
    view.settings["columns"] = "k string, begins timestamp, v bigint"
    return view


@template
def snapshot_total(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = next((one for one in sources if not one.timed), None)
    if s is None:
        return None
    key, number = d.key(s), d.number(s)
    text = d.rng.choice(
        [
            f"SELECT {key} AS k, {number} AS v FROM {s.sql}{d.where(s)}",
            f"SELECT DISTINCT {key} AS k, 1 AS v FROM {s.sql}",
            f"SELECT {key} AS k, sum({number}) AS v FROM {s.sql} GROUP BY {key} HAVING count(*) >= 1",
        ]
    )
    return View(text, [("k", "string"), ("v", "bigint")], None, "none", {s.name: None})


@template
def framed(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """Windows with frames."""
    s = _timed(sources)
    if s is None:
        return None
    key, number = d.key(s), d.number(s)
    order = f"ORDER BY {s.time}, {number} NULLS FIRST"
    what, kind = d.rng.choice(
        [
            (f"avg({number}) OVER (PARTITION BY {key} {order} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)", "double"),
            (f"lead({number}, 2) OVER (PARTITION BY {key} {order})", "bigint"),
            (f"first_value({number}) OVER (PARTITION BY {key} {order})", "bigint"),
            (f"dense_rank() OVER (PARTITION BY {key} {order})", "int"),
            (
                f"max({number}) OVER ({order}, {key} NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)",
                "bigint",
            ),
            (f"count(*) OVER (PARTITION BY {key} {order} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)", "bigint"),
        ]
    )
    text = f"SELECT {key} AS k, {s.time}, {number} AS v, {what} AS w FROM {s.sql}{d.where(s)}"
    columns = [("k", "string"), (s.time or "", s.type_of(s.time or "")), ("v", "bigint"), ("w", kind)]
    return View(text, columns, s.time, grain, {s.name: None})


@template
def correlated(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    other = next((one for one in reversed(sources) if one.timed or one.grain == "none"), None)
    if s is None or other is None:
        return None
    key, number = d.key(s), d.number(s)
    what = d.rng.choice([f"max(b.{d.number(other)})", "count(*)", f"sum(b.{d.number(other)})"])
    text = (
        f"SELECT a.{key} AS k, a.{s.time}, a.{number} AS v, "
        f"(SELECT {what} FROM {other.sql} b WHERE b.{d.key(other)} = a.{key}) AS w FROM {s.sql} a"
    )
    columns = [("k", "string"), (s.time or "", s.type_of(s.time or "")), ("v", "bigint"), ("w", "bigint")]
    return View(text, columns, s.time, grain, {s.name: None, other.name: None})


@template
def range_join(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """What came a while before each row."""
    timed = [one for one in sources if one.timed and one.type_of(one.time or "") == "timestamp"]
    if not timed or grain == "none":
        return None
    a, b = timed[0], timed[-1]
    how = d.rng.choice(["JOIN", "LEFT JOIN"])
    earlier = plus(f"a.{a.time}", -d.rng.choice([10, 60, 1440]))
    text = (
        f"SELECT a.{d.key(a)} AS k, a.{a.time}, count(b.{d.number(b)}) AS n FROM {a.sql} a {how} {b.sql} b "
        f"ON b.{d.key(b)} = a.{d.key(a)} AND b.{b.time} >= {earlier} AND b.{b.time} < a.{a.time} GROUP BY 1, 2"
    )
    return View(
        text,
        [("k", "string"), (a.time or "", "timestamp"), ("n", "bigint")],
        a.time,
        grain,
        {a.name: None, b.name: None},
    )


@template
def union3(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """Sums over several sources at once, one of them twice."""
    timed = [one for one in sources if one.timed]
    if not timed or grain == "none":
        return None
    a, b = timed[0], timed[-1]
    parts = [
        f"SELECT {d.key(one)} AS k, {d.trunc(grain, one)} AS slot, {sign}{d.number(one)} AS v FROM {one.sql}{d.where(one)}"
        for one, sign in ((a, ""), (b, "-"), (a, "1 + "))
    ]
    text = f"SELECT k, slot, sum(v) AS total, count(*) AS n FROM ({' UNION ALL '.join(parts)}) AS q GROUP BY k, slot"
    columns = [("k", "string"), ("slot", "timestamp"), ("total", "bigint"), ("n", "bigint")]
    return View(text, columns, "slot", grain, {a.name: None, b.name: None})


@template
def sums_of_sums(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or grain == "none":
        return None
    inner = f"SELECT {d.key(s)} AS k, {d.trunc(grain, s)} AS slot, sum({d.number(s)}) AS v FROM {s.sql}{d.where(s)} GROUP BY 1, 2"
    text = f"SELECT slot, count(*) AS n, max(v) AS most, sum(v) AS total FROM ({inner}) AS q GROUP BY slot HAVING count(*) > 0"
    return View(
        text,
        [("slot", "timestamp"), ("n", "bigint"), ("most", "bigint"), ("total", "bigint")],
        "slot",
        grain,
        {s.name: None},
    )


@template
def local_hours(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """What clocks showed."""
    s = _timed(sources)
    if s is None or s.type_of(s.time or "") != "timestamp":
        return None
    plain = spark_text(s.time or "")
    shown = f"⟦hour({plain})¦local_hour({duck_text(s.time or '')})⟧"
    where = d.rng.choice(["", f" WHERE {shown} < 12", f" WHERE {shown} BETWEEN 1 AND 3"])
    text = f"SELECT {d.key(s)} AS k, {s.time}, {shown} AS h, {d.number(s)} AS v FROM {s.sql}{where}"
    return View(
        text,
        [("k", "string"), (s.time or "", "timestamp"), ("h", "int"), ("v", "bigint")],
        s.time,
        grain,
        {s.name: None},
    )


@template
def next_days(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """Due a week after."""
    s = _timed(sources)
    if s is None or grain in ("none", "5m", "15m", "30m", "hour") or d.plain:
        return None
    n = d.rng.choice([1, 7, 30])
    due = f"⟦date_add(to_date({spark_text(s.time or '')}), {n})¦local_date({duck_text(instant(s))}) + {n}⟧"
    text = f"SELECT {d.key(s)} AS k, {due} AS due, {d.number(s)} AS v FROM {s.sql}{d.where(s)}"
    return View(text, [("k", "string"), ("due", "date"), ("v", "bigint")], "due", grain, {s.name: None}, how="whole")


@template
def from_epoch(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """A time that is told in seconds."""
    s = next((one for one in sources if "epoch" in dict(one.columns)), None)
    if s is None:
        return None
    at = "⟦timestamp_seconds(epoch)¦epoch * 1000000⟧"
    text = f"SELECT {d.key(s)} AS k, {at} AS begins, {d.number(s)} AS v FROM {s.sql} WHERE epoch IS NOT NULL"
    return View(
        text, [("k", "string"), ("begins", "timestamp"), ("v", "bigint")], "begins", grain, {s.name: None}, how="whole"
    )


@template
def elements(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """A row for each element."""
    s = next((one for one in sources if one.timed and "tags" in dict(one.columns)), None)
    if s is None or d.plain:
        return None
    view = "⟦LATERAL VIEW explode(tags) x AS part¦CROSS JOIN unnest(tags) x(part)⟧"
    text = f"SELECT {d.key(s)} AS k, {s.time}, part AS v FROM {s.sql} {view}"
    return View(
        text, [("k", "string"), (s.time or "", s.type_of(s.time or "")), ("v", "bigint")], s.time, grain, {s.name: None}
    )


@template
def top(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """The first few of all."""
    s = sources[0]
    text = (
        f"SELECT {d.key(s)} AS k, sum({d.number(s)}) AS v FROM {s.sql}{d.where(s)} GROUP BY 1 HAVING count(*) > 0 "
        f"ORDER BY k {d.rng.choice(['NULLS FIRST', 'DESC NULLS LAST'])} LIMIT {d.rng.choice([1, 2])}"
    )
    return View(text, [("k", "string"), ("v", "bigint")], None, "none", {s.name: None})


# Tables in Python


def python(view: View, code: str) -> View:
    view.kind = "python"
    view.settings["__python"] = code
    return view


@template
def python_rows(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    view = rowwise(d, sources, grain)
    if view is None or d.plain:
        return None
    (source,) = view.sources
    text = spark_text(view.text)
    items, _, rest = text.removeprefix("SELECT ").partition(f" FROM {source}")
    condition = rest.removeprefix(" WHERE ")
    where = f".where({condition!r})" if condition else ""
    pieces = (
        [f"{item!r}" for item in items.split(", ")]
        if "coalesce" not in items
        else [repr(items.split(", ")[0]), repr(items.split(", ")[1]), repr(", ".join(items.split(", ")[2:]))]
    )
    return python(view, f"return {source}{where}.selectExpr({', '.join(pieces)})")


@template
def python_sums(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or grain not in ("hour", "day", "week", *MONTHS) or d.plain or d.begins:
        return None
    key, number, bucket = d.key(s), d.number(s), d.trunc(grain, s)
    text = f"SELECT {key} AS k, {bucket} AS slot, sum({number}) AS total FROM {s.sql} GROUP BY 1, 2"
    view = View(text, [("k", "string"), ("slot", "timestamp"), ("total", "bigint")], "slot", grain, {s.name: None})
    code = (
        f"return {s.name}.groupBy(F.col({spark_text(key)!r}).alias('k'), F.date_trunc({grain!r}, {spark_text(s.time or '')!r}).alias('slot'))"
        f".agg(F.sum({spark_text(number)!r}).alias('total'))"
    )
    return python(view, code)


@template
def python_partition(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or grain == "none" or s.grain == "none" or d.plain:
        return None
    key = d.key(s)
    text = f"SELECT {key} AS k, {START} AS begins, count(*) AS n FROM {s.sql} GROUP BY 1"
    view = View(text, [("k", "string"), ("begins", "timestamp"), ("n", "bigint")], "begins", grain, {s.name: None})
    code = (
        f"return {s.name}.groupBy(F.col({spark_text(key)!r}).alias('k')).agg(F.count('*').alias('n'))"
        f".select('k', F.lit(partition.start).cast('timestamp').alias('begins'), 'n')"
    )
    return python(view, code)


# More shapes of SQL


@template
def grouping_sets(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or grain == "none":
        return None
    key, number, bucket = d.key(s), d.number(s), d.trunc(grain, s)
    text = (
        f"SELECT k, slot, sum(v) AS total, count(*) AS n FROM (SELECT {key} AS k, {bucket} AS slot, {number} AS v FROM {s.sql}) AS q "
        f"GROUP BY GROUPING SETS ((k, slot), (slot))"
    )
    columns = [("k", "string"), ("slot", "timestamp"), ("total", "bigint"), ("n", "bigint")]
    return View(text, columns, "slot", grain, {s.name: None})


@template
def anti_join(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    other = next((one for one in sources if s is not None and one.name != s.name), None)
    if s is None or other is None or (other.timed and grain == "none"):
        return None
    key, number = d.key(s), d.number(s)
    word = d.rng.choice(["EXISTS", "NOT EXISTS"])
    text = (
        f"SELECT s.{key} AS k, s.{s.time}, s.{number} AS v FROM {s.sql} s WHERE {word} "
        f"(SELECT 1 FROM {other.sql} o WHERE o.{d.key(other)} = s.{key})"
    )
    columns = [("k", "string"), (s.time or "", s.type_of(s.time or "")), ("v", "bigint")]
    return View(text, columns, s.time, grain, {s.name: None, other.name: None})


@template
def full_join(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    timed = [one for one in sources if one.timed]
    if len(timed) < 2 or timed[0].name == timed[1].name or grain == "none":
        return None
    a, b = timed[:2]
    sides = [
        f"(SELECT {d.key(one)} AS k, {d.trunc(grain, one)} AS slot, sum({d.number(one)}) AS total FROM {one.sql} GROUP BY 1, 2)"
        for one in (a, b)
    ]
    text = (
        "SELECT coalesce(l.k, r.k) AS k, coalesce(l.slot, r.slot) AS slot, l.total AS one, r.total AS two "
        f"FROM {sides[0]} l FULL OUTER JOIN {sides[1]} r ON l.k = r.k AND l.slot = r.slot"
    )
    columns = [("k", "string"), ("slot", "timestamp"), ("one", "bigint"), ("two", "bigint")]
    return View(text, columns, "slot", grain, {a.name: None, b.name: None})


@template
def ranked(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """The largest of each stretch of time, by a window function in a subquery."""
    s = _timed(sources)
    if s is None or grain == "none":
        return None
    key, number, bucket = d.key(s), d.number(s), d.trunc(grain, s)
    text = (
        f"SELECT k, slot, v FROM (SELECT {key} AS k, {bucket} AS slot, {number} AS v, "
        f"rank() OVER (PARTITION BY {bucket} ORDER BY {number} DESC NULLS LAST) AS place FROM {s.sql}) AS q WHERE place <= 2"
    )
    return View(text, [("k", "string"), ("slot", "timestamp"), ("v", "bigint")], "slot", grain, {s.name: None})


@template
def set_difference(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    s = _timed(sources)
    if s is None or grain == "none":
        return None
    key, number, bucket = d.key(s), d.number(s), d.trunc(grain, s)
    word = d.rng.choice(["EXCEPT", "INTERSECT"])
    text = (
        f"SELECT {key} AS k, {bucket} AS slot, 1 AS one FROM {s.sql} WHERE {number} > 10 {word} "
        f"SELECT {key} AS k, {bucket} AS slot, 1 AS one FROM {s.sql} WHERE {number} < 60"
    )
    return View(text, [("k", "string"), ("slot", "timestamp"), ("one", "int")], "slot", grain, {s.name: None})


@template
def total_join(d: Drawing, sources: Sequence[Source], grain: str) -> View | None:
    """A view without time over two sources."""
    if len(sources) < 2:
        return None
    a, b = sources[:2]
    text = (
        f"SELECT l.k, l.total AS one, r.total AS two FROM (SELECT {d.key(a)} AS k, sum({d.number(a)}) AS total FROM {a.sql} GROUP BY 1) l "
        f"LEFT JOIN (SELECT {d.key(b)} AS k, sum({d.number(b)}) AS total FROM {b.sql} GROUP BY 1) r ON l.k = r.k"
    )
    return View(
        text, [("k", "string"), ("one", "bigint"), ("two", "bigint")], None, "none", {a.name: None, b.name: None}
    )
