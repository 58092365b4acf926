"""Feeds whose rows say what became of keys: `mode = "changes"` (inserts, updates and deletes, as change data capture writes
them) and `mode = "upsert"` (rows as they are now).

Such a feed has a base table `NAME_changes`, to which its rows are added like those of any other feed, and over it the table
`NAME` with the current rows: of each key the last by the order column, unless that is a delete. Both follow from the rows that
were delivered and nothing else: files may come late, in any order and number, be rewritten or withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.declare.api import FeedDeclaration, TableDeclaration
from penstock.declare.config import OF_TABLE, FeedConfig, TableConfig
from penstock.declare.problems import Problem, near_or_all
from penstock.declare.sql.facts import quoted
from penstock.model.schema import Schema, WrongColumns, parse_ddl

KEYED = ("changes", "upsert")
# What the tools write, in any case: Debezium, Oracle GoldenGate, AWS DMS, Delta and others.
PUTS = ("c", "r", "u", "i", "insert", "update", "update_postimage", "create", "read", "upsert", "merge")
DELETES = ("d", "delete", "remove")
# How a row was before: another says how it is.
IGNORED = ("update_preimage",)
_LAST = "_last"


def is_keyed(feed: FeedDeclaration) -> bool:
    return feed.config.mode in KEYED


def order_columns(config: FeedConfig) -> list[str]:
    """The columns by which the last of several rows of a key is found."""
    kind, _, rest = config.order.partition(" ")
    return [each.strip() for each in rest.split(",") if each.strip()] if kind == "column" else []


def with_rules(feed: FeedDeclaration) -> FeedDeclaration:
    """The feed whose rows must say which key they are of and when they were said. A delete need say nothing else."""
    if not is_keyed(feed) or not {"rules", "order", "key", "change"}.isdisjoint(feed.broken):
        return feed
    config = feed.config
    named = [f"{quoted(name)} is not null" for name in (*config.key, *order_columns(config))]
    rules = list(config.rules)
    if config.mode == "changes":
        rules = [f"({_is(config.change, DELETES)}) or ({rule})" for rule in rules]
        named.append(_is(config.change, (*PUTS, *DELETES, *IGNORED)))
    return replace(feed, config=config.model_copy(update={"rules": (*rules, *named)}))


def keyed_tables(feed: FeedDeclaration, plain: TableDeclaration) -> Iterator[TableDeclaration]:
    """The tables of a keyed feed; `plain` is the base table that takes rows as they come."""
    config = feed.config
    log = f"{feed.name}_changes"
    unmeant = {"freshness": None, "guarantee": False}
    yield replace(
        plain,
        name=log,
        config=plain.config.model_copy(update=unmeant),
        description=f"The rows of feed {feed.name}, as they came.",
    )
    columns = _columns(feed)
    if columns is None:
        return
    same = {key: getattr(config, key) for key in ("time", *OF_TABLE) if key not in ("restated", "queue")}
    # With partitions it is as far as its rows are, so that a change of one concerns that one.
    read = {"sources": {log: "same"}} if config.partition != "none" else {"waits": {"*": False}}
    settings = TableConfig().model_copy(update={**same, **read})
    made = replace(plain, config=settings, sql_line=feed.where.line)
    yield replace(
        made, name=feed.name, sql=_current(config, columns, log), description=f"The current rows of feed {feed.name}."
    )
    if config.history:
        name = f"{feed.name}_history"
        yield replace(
            made,
            name=name,
            sql=_history(config, columns, log),
            description=f"Every version of the rows of feed {feed.name}.",
        )


def _columns(feed: FeedDeclaration) -> Schema | None:
    if feed.config.columns is None or {"columns", "order", "key", "mode", "change"} & feed.broken:
        return None
    try:
        columns = parse_ddl(feed.config.columns)
    except WrongColumns:
        return None
    known = {column.name.lower() for column in columns}
    named = (*feed.config.key, *order_columns(feed.config), *([feed.config.change] * (feed.config.mode == "changes")))
    # What is wrong is told of the feed.
    fits = named and feed.config.key and order_columns(feed.config)
    return columns if fits and all(name.lower() in known for name in named) else None


def _is(column: str, words: tuple[str, ...]) -> str:
    return f"lower({quoted(column)}) in ({', '.join(repr(word) for word in words)})"


def _shown(config: FeedConfig, columns: Schema) -> list[str]:
    hidden = config.change.lower() if config.mode == "changes" else None
    return [quoted(column.name) for column in columns if column.name.lower() != hidden]


def _ranked(config: FeedConfig, columns: Schema, log: str, by: list[str]) -> str:
    """The rows, those first that are the last with equal `by`. Where the order is the same, too, a delete counts; in the end the
    greatest row, so that it does not matter which came first."""
    first = [quoted(name) for name in order_columns(config)]
    if config.mode == "changes":
        first.append(f"CASE WHEN {_is(config.change, DELETES)} THEN 1 ELSE 0 END")
    named = {name.lower() for name in (*config.key, *order_columns(config), config.change)}
    rest = [column for column in columns if column.name.lower() not in named]
    first += [f"to_json({quoted(c.name)})" if "map<" in c.type else quoted(c.name) for c in rest]
    ordered = ", ".join(f"{each} DESC NULLS LAST" for each in first)
    keys = ", ".join(map(quoted, by))
    where = f" WHERE NOT {_is(config.change, IGNORED)}" if config.mode == "changes" else ""
    return f"SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {ordered}) AS {_LAST} FROM {quoted(log)}{where}"


def _alive(config: FeedConfig) -> str:
    return f" AND NOT {_is(config.change, DELETES)}" if config.mode == "changes" else ""


def _current(config: FeedConfig, columns: Schema, log: str) -> str:
    ranked = _ranked(config, columns, log, list(config.key))
    return f"SELECT {', '.join(_shown(config, columns))}\nFROM ({ranked})\nWHERE {_LAST} = 1{_alive(config)}"


def _history(config: FeedConfig, columns: Schema, log: str) -> str:
    """Each version with the time from which and up to which it held, and whether it still does."""
    keys = ", ".join(map(quoted, config.key))
    (since, *_) = order_columns(config)
    ranked = _ranked(config, columns, log, [*config.key, *order_columns(config)])
    order = ", ".join(map(quoted, order_columns(config)))
    shown = ", ".join(_shown(config, columns))
    type_ = next(column.type for column in columns if column.name.lower() == since.lower())
    until = f"CAST(lead({quoted(since)}) OVER (PARTITION BY {keys} ORDER BY {order}) AS {type_})"
    versions = f"SELECT *, {until} AS valid_to FROM ({ranked}) WHERE {_LAST} = 1"
    alive = _alive(config).removeprefix(" AND ")
    return (
        f"SELECT {shown}, {quoted(since)} AS valid_from, valid_to, valid_to IS NULL AS is_current\n"
        f"FROM ({versions})" + (f"\nWHERE {alive}" if alive else "")
    )


def keyed_problems(feed: FeedDeclaration, takers: tuple[str, ...]) -> Iterator[Problem]:
    """What is wrong with what a feed says of keys."""
    config, what = feed.config, f"feed `{feed.name}`"
    if not is_keyed(feed):
        for key in ("key", "change", "history"):
            if key in config.model_fields_set:
                message = f'{what}: `{key}` has no effect; it is for mode = "changes" and mode = "upsert"'
                yield Problem(feed.at(key), message, "warning")
        return
    mode = f'{what} has mode = "{config.mode}"'
    if others := [name for name in takers if name != f"{feed.name}_changes"]:
        message = f"{mode}, but table `{others[0]}` takes its rows"
        yield Problem(feed.at("mode"), f"{message}; let that read `{feed.name}`, without `feed`")
    if not config.key and "key" not in feed.broken:
        yield Problem(feed.at("mode"), f'{mode} but no `key`; name the columns that say which row is meant: key = "id"')
    if not order_columns(config) and "order" not in feed.broken:
        hint = 'name the column that says which row of a key is the last: order = "column changed_at"'
        yield Problem(feed.at("order"), f'{mode}, and `order` is "{config.order}"; {hint}')
    if config.columns is None and "columns" not in feed.broken:
        yield Problem(feed.at("mode"), f'{mode} but no `columns`; write them: columns = "id bigint, …"')
    for key in ("lateness", "punctuation"):
        if getattr(config, key) not in (None, 0):
            yield Problem(feed.at(key), f"{mode}: changes of old rows come at any time; leave out `{key}`")
    if config.late != "load" and "late" not in feed.broken:
        yield Problem(feed.at("late"), f"{mode}: no change is too late; leave out `late`")
    try:
        columns = parse_ddl(config.columns or "")
    except WrongColumns:
        return
    known = {column.name.lower(): column for column in columns}
    said = [("key", name) for name in config.key] + [("order", name) for name in order_columns(config)]
    said += [("change", config.change)] if config.mode == "changes" else []
    for key, name in said:
        if name.lower() not in known and config.columns is not None:
            hint = near_or_all(name, known).replace("declared:", "there are:")
            default = (
                ' (say which it is: change = "operation")' if key == "change" and feed.at(key) == feed.where else ""
            )
            yield Problem(feed.at(key), f"{what}: the column `{name}` of `{key}` does not exist{default}{hint}")
        elif name.lower() in known and "map<" in known[name.lower()].type:
            yield Problem(feed.at(key), f"{what}: `{name}` is a map, which cannot be compared; name another column")
    keys = {name.lower() for name in config.key}
    if config.partition != "none" and config.time and config.time.lower() not in keys:
        message = f"{what} has partitions, so a key must stay in its partition: `{config.time}` must be part of `key`"
        hint = f'write key = "{", ".join((*config.key, config.time))}" if it never changes, else leave out `partition`'
        yield Problem(feed.at("partition"), f"{message}; {hint}")
