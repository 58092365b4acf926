"""What a change of each setting does to what is there already; and which settings of a project changed.

The one table of this: the docs show it, `penstock plan` and the log tell it, and a test goes through all settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from pydantic import BaseModel

from penstock.control.declaration import SEAM
from penstock.control.events import Effect, SettingChanged
from penstock.declare.api import TableDeclaration
from penstock.declare.values import is_duration
from penstock.declare.warehouse import Definitions
from penstock.model.time import format_duration

# In words, after "feeds.stats.rules: …".
WORDS: Mapping[Effect, str] = {
    "nothing": "no row changes",
    "comes": "applies to what comes",
    "again": "partitions are made again",
    "anew": "the table starts anew, with what reads it",
    "refused": "refused",
}


class Entry(NamedTuple):
    effect: Effect
    says: str = ""


_SCHEDULING = Entry("nothing", "from now on it decides when updates run")
_SERVE = Entry("nothing", "from the next start of `penstock serve` on it decides who may ask")
_QUERIES = Entry("nothing", "from now on it decides how queries are answered")
_LOG = Entry("nothing", "from the next start on it decides what is logged, and where")
_FLOWS = Entry("nothing", "from now on it decides how flows run; their rows are the same")
_DOCS = Entry("nothing", "the console and `penstock docs build` show it")
_VERSIONS = Entry("comes", "old versions that need not be kept go with the next upkeep")
_FILES_AGAIN = Entry("anew", "its files are read again")
_EDGE = Entry(
    "again", "`complete up to` moves at once; partitions that held rows back, or lie beyond it now, are made again"
)
_MADE_AGAIN = Entry("again", "all its partitions, and what reads them")

# Settings of the base table of a feed that are written with the feed are found under `tables`.
EFFECTS: Mapping[str, Entry] = {
    "name": Entry("nothing"),
    "zone": Entry("anew", "partitions are those of the new zone, and files with times without offset are read again"),
    "tables": Entry("nothing", "the tables that are declared in the new folder are those of the project"),
    "storage.path": Entry("refused", "`penstock move` moves the data"),
    "storage.keep_versions": _VERSIONS,
    "storage.keep_days": _VERSIONS,
    "store.url": Entry(
        "refused",
        "a store that does not know the data folder is refused; `penstock backup` and `restore` take it along",
    ),
    "run.tracks": _SCHEDULING,
    "run.patience": _SCHEDULING,
    "run.late_cost": _SCHEDULING,
    "run.policy": _SCHEDULING,
    "run.grace": Entry("nothing", "how long running updates may go on after the process is asked to stop"),
    "run.driver_bytes": Entry("nothing", "files that are written from now on hold the same, whoever writes them"),
    "flows.objective": _FLOWS,
    "flows.memory": _FLOWS,
    "flows.slots": _FLOWS,
    "flows.order": _FLOWS,
    "queries.policy": _QUERIES,
    "queries.lanes": _QUERIES,
    "queries.functions": _QUERIES,
    "queries.inline_rows": _QUERIES,
    "queries.most_rows": _QUERIES,
    "queries.longest": _QUERIES,
    "queries.most_waiting": _QUERIES,
    "queries.memory": _QUERIES,
    "queries.inline_bytes": _QUERIES,
    "queries.kept_bytes": _QUERIES,
    "queries.disk_bytes": _QUERIES,
    "queries.files_kept": _QUERIES,
    "queries.unit_grace": _QUERIES,
    "queries.unit_victims": _QUERIES,
    "queries.unit_c_du": _QUERIES,
    "queries.unit_c_uu": _QUERIES,
    "queries.unit_c_forget": _QUERIES,
    "queries.unit_stretch": _QUERIES,
    "serve.tokens": _SERVE,
    "serve.hosts": _SERVE,
    "log.to": _LOG,
    "log.format": _LOG,
    "log.level": _LOG,
    "log.size": _LOG,
    "log.keep": _LOG,
    "profiles.within": _QUERIES,
    "profiles.fresh": _QUERIES,
    "profiles.lag": _QUERIES,
    "profiles.consistent": _QUERIES,
    "profiles.stale": _QUERIES,
    "profiles.share": _QUERIES,
    "profiles.role": Entry("nothing", "who may change something over HTTP"),
    "profiles.success": _QUERIES,
    "profiles.rejected": _QUERIES,
    "profiles.missed": _QUERIES,
    "profiles.outdated": _QUERIES,
    "spark": Entry("nothing", "what could change rows is refused by `penstock check`"),
    "replicas.path": Entry("comes", "the new place gets a copy of everything; the old one stays as it is"),
    "replicas.tables": Entry("comes", "of a table that is no longer named, the copy stays as it is"),
    "replicas.keep_versions": _VERSIONS,
    "feeds.path": Entry("comes", "files that match now are loaded; what was loaded stays"),
    "feeds.format": Entry("comes", "rows of files that were loaded in another format stay"),
    "feeds.columns": _FILES_AGAIN,
    "feeds.time": _FILES_AGAIN,
    "feeds.zone": _FILES_AGAIN,
    "feeds.period": _SCHEDULING,
    "feeds.lateness": _EDGE,
    "feeds.late": _FILES_AGAIN,
    "feeds.jitter": _SCHEDULING,
    "feeds.punctuation": _EDGE,
    "feeds.mode": _FILES_AGAIN,
    "feeds.order": _FILES_AGAIN,
    "feeds.key": Entry("again", "the table with the current rows, and what reads it"),
    "feeds.change": Entry(
        "again", "the table with the current rows, and what reads it; rows that were refused are read again"
    ),
    "feeds.history": Entry("anew", "the table with all versions is there, or is not"),
    "feeds.reasons": Entry("comes", "files that come from now on"),
    "feeds.options": Entry("comes", "`penstock backfill` reads loaded files with the new options"),
    "feeds.rules": _FILES_AGAIN,
    "feeds.settle": Entry("comes"),
    "feeds.look_every": Entry("comes"),
    "feeds.follow_links": Entry("comes"),
    "feeds.max_ahead": _FILES_AGAIN,
    "tables.name": Entry("anew", "a table of another name is another table"),
    "tables.feed": Entry("anew", "nothing of the other feed stays"),
    "tables.partition": Entry("anew", "a base table takes its rows along; files of a `snapshot` feed are read again"),
    "tables.time": Entry("anew", "rows may be in other partitions"),
    "tables.sources": Entry("anew", "nothing of what was read before stays"),
    "tables.priority": _SCHEDULING,
    "tables.period": _SCHEDULING,
    "tables.freshness": _SCHEDULING,
    "tables.update": Entry("anew", "a partition in progress is there, or is not"),
    "tables.history_weight": _SCHEDULING,
    "tables.attempts": _SCHEDULING,
    "tables.propagate": Entry("comes", "changes that were held back and are followed now are taken up at once"),
    "tables.overrun": _SCHEDULING,
    "tables.reason": Entry("nothing", "it says what the next change of its SQL is for"),
    "tables.absent": Entry(
        "again",
        "partitions that waited and need not are made; where a source is waited for now, it goes back to what that has",
    ),
    "tables.waits": Entry("anew", "rows that were held back are there, or are not"),
    "tables.columns": Entry(
        "anew", "where a column is gone or has another type; a new one: all partitions are made again"
    ),
    "tables.code_version": Entry(
        "again", "all its partitions, and what reads them; a base table reads its files again"
    ),
    "tables.keep_versions": _VERSIONS,
    "tables.keep_days": _VERSIONS,
    "tables.chop": _SCHEDULING,
    "tables.guarantee": _SCHEDULING,
    "tables.cost": _SCHEDULING,
    "tables.recovery": _SCHEDULING,
    "tables.group": _SCHEDULING,
    "tables.patience": _SCHEDULING,
    "tables.late_cost": _SCHEDULING,
    "tables.restated": _SCHEDULING,
    "tables.queue": _SCHEDULING,
    "tables.owner": _DOCS,
    "tables.tags": _DOCS,
    "tables.kind": Entry("anew", "nothing of what it held before stays; whoever makes it makes all of it"),
    "tables.reads": Entry("anew", "nothing of what was read before stays"),
    "tables.data": Entry("anew", "it is handed over again from where its rows are now"),
    "tables.command": Entry("comes", "the next work orders go there"),
    "tables.webhook": Entry("comes", "the next work orders go there"),
    "tables.order_within": _SCHEDULING,
    # What is no setting, but declared as well.
    "tables.sql": _MADE_AGAIN,
    "tables.function": _MADE_AGAIN,
    "tables.rows": _FILES_AGAIN,
    "tables.external": Entry("anew", "others make all of it"),
    "tables.flow": Entry("again", "any argument of any step: all partitions of all its tables, and what reads them"),
    "feeds.added": Entry("comes", "all its files are loaded"),
    "feeds.removed": Entry("nothing", "its files are left alone"),
    "tables.added": Entry("anew", "it is made from all that its sources hold"),
    "tables.removed": Entry(
        "nothing", "it is no longer there to be read; a base table that is declared again goes on from where it was"
    ),
}

# Values of these are nobody's business: they may hold passwords.
_SECRET = ("spark", "store.url")


def settings_of(warehouse: Definitions) -> dict[str, str]:
    """Every setting that is not as it is by default, by where it stands, as text."""
    found = dict(_settings("", warehouse.declarations.config, skip=("feeds",)))
    for feed in warehouse.declarations.feeds:
        found[f"feeds.{feed.name}"] = "feed"
        found |= _settings(f"feeds.{feed.name}", feed.config)
    for name, definition in warehouse.definitions.items():
        if not definition.declaration.is_plain:
            kind = found[f"tables.{name}"] = _kind(definition.declaration)
            if kind != "external":
                found[f"tables.{name}.{kind}"] = f"#{definition.table.logic.partition(SEAM)[0]}"
            found |= _settings(f"tables.{name}", definition.declaration.config, skip=("name",))
    return found


def _kind(table: TableDeclaration) -> str:
    if table.is_external:
        return "external"
    if table.config.feed is not None:
        return "rows"
    return "sql" if table.sql is not None else "function" if table.function is not None else "flow"


def _settings(place: str, config: BaseModel, skip: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        where = f"{place}.{name}".strip(".")
        if name in skip or value == field.get_default(call_default_factory=True):
            continue
        if isinstance(value, BaseModel):
            yield from _settings(where, value)
        elif isinstance(value, Mapping) and any(isinstance(each, BaseModel) for each in value.values()):
            for key, each in value.items():
                yield from _settings(f"{where}.{key}", each)
        elif where in _SECRET:
            each = value.items() if isinstance(value, Mapping) else [("", value)]
            for key, secret in each:
                yield f"{where}.{key}".strip("."), f"#{sha256(str(secret).encode()).hexdigest()[:8]}"
        else:
            yield where, format_duration(value) if is_duration(field) else _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def entry_of(where: str, before: str = "", now: str = "") -> Entry:
    """What is known of a setting, by where it stands: `feeds.stats.rules`, `run.tracks`, `spark.driver.memory`; and of a feed
    or a table that is there now or no longer, or is made in another way."""
    parts = where.split(".")
    if parts[0] in ("feeds", "tables") and len(parts) == 2:
        return EFFECTS[f"tables.{now}" if before and now else f"{parts[0]}.{'added' if now else 'removed'}"]
    names = (where, parts[0], f"{parts[0]}.{parts[-1]}", f"tables.{parts[-1]}")
    return next(EFFECTS[name] for name in names if name in EFFECTS and (name != "tables" or where == "tables"))


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[SettingChanged, ...]:
    """What is declared otherwise than before, with what follows from it. Nothing if nobody knows what was before."""
    if not before:
        return ()
    found = []
    there = before.keys() & now.keys()
    for where in sorted(where for where in before.keys() | now.keys() if before.get(where) != now.get(where)):
        old, new = before.get(where, ""), now.get(where, "")
        kind, *rest = where.split(".")
        if kind in ("feeds", "tables") and len(rest) > 1 and f"{kind}.{rest[0]}" not in there:
            continue  # of something that is new, or gone
        found.append(SettingChanged(where, _shown(old), _shown(new), entry_of(where, old, new).effect))
    return tuple(found)


def told(change: SettingChanged) -> str:
    """A change for people, on one line."""
    says = entry_of(change.setting, change.before, change.now).says
    parts = change.setting.split(".")
    if parts[0] in ("feeds", "tables") and len(parts) == 2 and not (change.before and change.now):
        what = "new" if change.now else "taken out"
    else:
        what = f"{change.before or 'not set'} → {change.now or 'not set'}" if change.before != change.now else "changed"
    return f"{change.setting}: {what}: {WORDS[change.effect]}{f' ({says})' if says else ''}"


def _shown(value: str) -> str:
    return "…" if value.startswith("#") else value
