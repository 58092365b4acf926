"""The checked project: declarations resolved against each other into the feeds, tables and views that will run.

Everything that can be known to be wrong is found here, before anything runs, and all of it at once: what is wrong with
one table does not keep the others from being checked. They take the columns of a broken table as unknown.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from penstock.declare.api import FeedDeclaration, TableDeclaration
from penstock.declare.check_external import external_problems
from penstock.declare.check_feeds import (
    columns_of,
    feed_problems,
    idle_settings,
    rule_problems,
    same_files,
    time_problems,
)
from penstock.declare.check_names import (
    CONTEXT,
    feed_names,
    group_problems,
    policy_problems,
    replica_problems,
    table_names,
    target_problems,
    unproven_problems,
    waiting_problems,
)
from penstock.declare.config import TableConfig
from penstock.declare.define import Definer, sql_problems, time_of
from penstock.declare.definition import Definition, Definitions
from penstock.declare.flow_check import base_flow_problems, keep_snapshots
from penstock.declare.keyed import keyed_problems
from penstock.declare.problems import Location, Problem, ProjectError, Severity, did_you_mean, near_or_all
from penstock.declare.project import Declarations
from penstock.declare.spark_settings import cores_of
from penstock.declare.sql.view import SqlProblem, source_lines
from penstock.model.grain import WHOLE, Grain, parse_grain
from penstock.model.graph import CycleError, Graph
from penstock.model.relations import Relation, default_relation, parse_relation
from penstock.model.schema import Schema
from penstock.model.tables import ALL, Feed, Source, Table, source_of
from penstock.model.time import DAY_US

__all__ = ["Definition", "Definitions", "check_project", "load_warehouse"]


def check_project(
    declarations: Declarations, known: Mapping[str, Schema] | None = None
) -> tuple[Definitions | None, list[Problem]]:
    """The warehouse, or None, with everything that is wrong. `known` holds schemas that were inferred before."""
    checker = _Checker(declarations, dict(known or {}))
    warehouse = checker.run()
    declarations.remembered.keep()
    return warehouse, sorted(set(checker.problems))


def load_warehouse(declarations: Declarations, known: Mapping[str, Schema] | None = None) -> Definitions:
    warehouse, problems = check_project(declarations, known)
    if warehouse is None:
        raise ProjectError([problem for problem in problems if problem.severity == "error"])
    return warehouse


class _Checker:
    def __init__(self, declarations: Declarations, known: dict[str, Schema]) -> None:
        self.declarations = declarations
        self.zone = declarations.config.zone
        self.patience_us = declarations.config.run.patience
        self.late_cost = declarations.config.run.late_cost
        self.problems: list[Problem] = list(declarations.problems)
        self.feeds: dict[str, FeedDeclaration] = {}
        self.tables: dict[str, TableDeclaration] = {}
        # Of what is declared twice the first counts.
        for feed in declarations.feeds:
            self.feeds.setdefault(feed.name, feed.in_zone(self.zone))
        for table in declarations.tables:
            self.tables.setdefault(table.name, table)
        self.problems.extend(keep_snapshots(self.tables, self.feeds))
        # Spark does not tell `Flows` from `flows`.
        self.spelled = {name.lower(): name for name in (*self.tables, *self.feeds, *declarations.opaque)}
        self.feed_schemas = known

    def problem(self, where: Location, message: str, severity: Severity = "error") -> None:
        self.problems.append(Problem(where, message, severity))

    @property
    def wrong(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)

    def run(self) -> Definitions | None:
        self.problems.extend(feed_names(self.declarations.feeds))
        self.problems.extend(table_names(self.declarations.tables))
        self.problems.extend(replica_problems(self.declarations, self.tables))
        self._check_feeds()
        read = {name: self._sources(table) for name, table in self.tables.items()}
        graph = self._graph({name: self._table(table, read[name]) for name, table in self.tables.items()})
        define = Definer(self.feeds, self.feed_schemas, self.zone, self.declarations.remembered)
        definitions: dict[str, Definition] = {}
        for name in graph.order:
            definitions[name] = define(self.tables[name], graph.tables[name], definitions)
        self.problems.extend(define.problems)
        if self.wrong:
            return None
        graph = Graph(graph.feeds.values(), (definition.table for definition in definitions.values()))
        for name in sorted(graph.chained):
            if not graph.has_time[name]:
                message = f"table `{name}` reads itself, but nothing else that it reads has a time that it waits for"
                hint = "so it has no first partition; read a table with `time`, and let it wait for that"
                self.problem(self.tables[name].where, f"{message}, {hint}")
        for name, definition in definitions.items():
            asks = definition.asks_for
            if asks is not None and definition.table.grain is not WHOLE and not graph.has_time[name]:
                message = f"table `{name}` asks for {asks}, but nothing that it reads has a time that it waits for"
                hint = "so which partitions there are is not known before its rows are"
                do = "take the time from the rows, or read a table with `time`"
                self.problem(definition.declaration.where, f"{message}, {hint}; {do}")
        self.problems.extend(group_problems(graph, self.tables))
        if self.wrong:
            return None
        impossible = list(target_problems(graph, self.tables))
        self.problems.extend(impossible)
        self.problems.extend(waiting_problems(graph, self.tables))
        if not impossible:
            config = self.declarations.config
            cores = cores_of(config.spark)
            self.problems.extend(
                unproven_problems(graph, self.tables, self.declarations.tracks, config.run.policy, cores)
            )
        if not self.tables:
            self.problem(
                Location("penstock.toml", 1), "no feed and no table is declared: nothing would ever run", "warning"
            )
        return Definitions(self.declarations, self.feeds, self.feed_schemas, definitions, graph)

    def _graph(self, tables: dict[str, Table]) -> Graph:
        """The graph. Tables that depend on each other in a circle are told, and taken out of it by their sources."""
        feeds = [self._feed(feed) for feed in self.feeds.values()]
        while True:
            try:
                return Graph(feeds, tables.values())
            except CycleError as error:
                last, first = error.path[-2:]
                where = self._place(self.tables[first], last)
                hint = "a table may only read its own earlier partitions, as SELF - 1"
                self.problem(where, f"{error}; {hint}")
                for name in error.path:
                    rest = tuple(source for source in tables[name].sources if source.table not in error.path)
                    tables[name] = replace(tables[name], sources=rest)

    # Feeds

    def _check_feeds(self) -> None:
        ours = (Path(self.declarations.data_path), self.declarations.state_folder)
        taken: dict[str | None, list[str]] = {}
        for table in self.tables.values():
            taken.setdefault(table.config.feed, []).append(table.name)
        for feed in self.feeds.values():
            self.problems.extend(feed_problems(feed, self.declarations.folder, ours))
            what = f"feed `{feed.name}`"
            schema, found = columns_of(feed, what)
            self.problems.extend(found)
            if schema is not None:
                self.feed_schemas[feed.name] = schema
            elif "columns" in feed.broken or found:
                self.feed_schemas.pop(feed.name, None)
            schema = self.feed_schemas.get(feed.name)
            takers = taken.get(feed.name, [])
            self.problems.extend(keyed_problems(feed, tuple(takers)))
            plain = all(self.tables[name].is_plain for name in takers)
            if schema is not None and feed.config.time is not None:
                grain = feed.config.partition if plain else "none"
                self.problems.extend(time_problems(feed.at("time"), what, feed.config.time, schema, grain))
            self.problems.extend(rule_problems(feed, schema, self.declarations.remembered))
            if not plain:
                self.problems.extend(idle_settings(feed, takers))
        self.problems.extend(same_files(self.feeds.values()))

    def _feed(self, feed: FeedDeclaration) -> Feed:
        config = feed.config
        return Feed(
            feed.name,
            config.period,
            config.lateness,
            config.punctuation is not None,
            "snapshot" if config.mode == "snapshot" else "append",
            config.time is not None,
            config.jitter,
            "period" not in config.model_fields_set,
            config.punctuation or "",
            tuple(config.reasons.items()),
        )

    # Sources

    def _sources(self, table: TableDeclaration) -> dict[str, Location]:
        """The declared tables that a table reads, and where it says so."""
        if table.config.feed is not None:
            self._check_base(table)
            return {}
        if table.is_external:
            found: dict[str, Location] | None = {name: table.at("reads") for name in table.config.reads}
        elif table.flow is not None:
            found = dict.fromkeys(table.flow.sources, table.where)
        else:
            found = self._read_from_sql(table) if table.sql is not None else self._parameters(table)
        if found is None:
            return {}
        # All tables of a flow read the same: its first one speaks for them.
        if table.flow is None or table.name == next(iter(table.flow.targets)):
            self._check_sources(table, found)
        return {name: where for name, where in found.items() if name in self.tables}

    def _check_sources(self, table: TableDeclaration, found: Mapping[str, Location]) -> None:
        who = f"table `{table.name}`" if table.flow is None else f"flow `{table.flow.name}`"
        if not found.keys() - {table.name} and not table.is_external:
            self.problem(table.where, f"{who} reads no other table, so nothing would ever update it")
        for name, where in found.items():
            maybe = "feed" in table.broken and name in self.feeds
            if name not in self.tables and name not in self.declarations.opaque and not maybe:
                self.problem(where, f"{who} reads `{name}`, which is not declared{self._instead(name)}")
        for name in table.config.sources:
            if name not in found:
                hint = did_you_mean(name, found) or f"; it reads: {', '.join(found) or 'nothing'}"
                if name in TableConfig.model_fields:
                    hint = f"; write `{name}` above [sources]"
                self.problem(
                    table.at(f"sources.{name}"), f"{who} says how it reads `{name}`, but does not read it{hint}"
                )

    def _instead(self, name: str) -> str:
        if name in self.feeds:
            takers = [table.name for table in self.tables.values() if table.config.feed == name]
            return f"; the rows of feed `{name}` go to table `{takers[0]}`: read that" if takers else ""
        return near_or_all(name, self.tables)

    def _check_base(self, table: TableDeclaration) -> None:
        feed = table.config.feed
        if feed is not None and feed not in self.feeds and feed not in self.declarations.opaque:
            hint = near_or_all(feed, self.feeds)
            self.problem(table.at("feed"), f"table `{table.name}` reads feed `{feed}`, which is not declared{hint}")
        if table.config.sources:
            message = f"base table `{table.name}` reads its feed only; `sources` is for tables that read tables"
            self.problem(table.at("sources"), message)
        if table.sql is not None:
            for name, where in (self._read_from_sql(table) or {}).items():
                if feed is not None and name != feed:
                    message = f"base table `{table.name}` reads `{name}`; its SELECT can only read its feed `{feed}`"
                    self.problem(where, message)
        elif table.flow is not None:
            self.problems.extend(base_flow_problems(table.flow, table))
        elif table.function is not None:
            parameters = inspect.signature(table.function).parameters
            if len(parameters) != 1:
                message = f"the function of base table `{table.name}` has {len(parameters)} parameters"
                self.problem(table.where, f"{message}; expected one, which gets the rows of its feed")

    def _parameters(self, table: TableDeclaration) -> dict[str, Location] | None:
        if table.function is None:
            return None
        found = inspect.signature(table.function).parameters
        odd = [p for p in found.values() if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        for parameter in odd:
            message = f"the function of table `{table.name}` has the parameter `{parameter}`"
            self.problem(
                table.where, f"{message}; expected plain parameters with the names of the tables that it reads"
            )
        return None if odd else {name: table.where for name in found if name != CONTEXT}

    def _read_from_sql(self, table: TableDeclaration) -> dict[str, Location] | None:
        assert table.sql is not None
        try:
            found = self.declarations.remembered.get(
                source_lines, table.sql, file=table.where.file, line=table.sql_line
            )
        except SqlProblem as error:
            self.problems.extend(sql_problems(error))
            return None
        return {self.spelled.get(name.lower(), name): Location(table.where.file, line) for name, line in found.items()}

    def _place(self, table: TableDeclaration, source: str) -> Location:
        """Where a table reads another."""
        found = self._read_from_sql(table) if table.sql is not None else None
        return (found or {}).get(source, table.where)

    # Tables

    def _grain(self, table: TableDeclaration) -> Grain | None:
        """None if it cannot be known."""
        return None if "partition" in table.broken else parse_grain(table.config.partition, self.zone)

    def _table(self, declaration: TableDeclaration, read: Mapping[str, Location]) -> Table:
        config = declaration.config
        grain = self._grain(declaration)
        what = f"table `{declaration.name}`"
        time = time_of(declaration, self.feeds)
        timeless = time is None and not declaration.is_plain and config.data != "elsewhere"
        if grain not in (None, WHOLE) and timeless and self._knows_time(declaration):
            message = f"{what} has partition {config.partition!r} but no `time`: name the column that says which partition a row is in"
            self.problem(declaration.at("partition"), message)
        closed = config.update == "closed" or config.propagate == ("closed",)
        if grain is WHOLE and closed:
            setting = "update" if config.update == "closed" else "propagate"
            message = f'{what}: {setting} = "closed" has no effect, as the table has no partitions'
            self.problem(declaration.at(setting), message, "warning")
        self.problems.extend(policy_problems(declaration, read))
        self.problems.extend(external_problems(declaration))
        for name in () if declaration.is_external else read:
            if self.tables[name].is_external and self.tables[name].config.data == "elsewhere":
                message = f"{what} reads `{name}`, whose rows are elsewhere: only its versions are known"
                hint = 'a table with kind = "external" can depend on it; or say where its rows are, with `data`'
                self.problem(read[name], f"{message}; {hint}")
        others = [name for name in read if name != declaration.name]
        absent = {name: config.absent.get(name, config.absent.get("*", "wait")) for name in others}
        found: list[Source] = []
        for name in read:
            relation = self._relation(declaration, name, grain)
            waits = config.waits.get(name, config.waits.get("*", True))
            found.append(source_of(name, relation, grain or WHOLE, waits))
        if declaration.name in read and config.columns is None and "columns" not in declaration.broken:
            example = 'columns = "router string, day timestamp, bytes bigint"'
            message = (
                f"{what} reads itself, so it must say its `columns` (the first partition has none to read): {example}"
            )
            self.problem(read[declaration.name], message)
        return Table(
            name=declaration.name,
            partition=config.partition,
            zone=self.zone,
            feed=config.feed if config.feed in self.feeds else None,
            sources=tuple(found),
            priority=config.priority,
            fixed="priority" in config.model_fields_set,
            period_us=config.period,
            target_us=config.freshness,
            when="closed" if closed else "continuous",
            history_weight=config.history_weight,
            attempts=config.attempts,
            group=config.group,
            chop=config.chop,
            guarantee=config.guarantee,
            cost_us=config.cost,
            recovery_us=config.recovery,
            patience_us=self.patience_us if config.patience is None else config.patience,
            late_cost=self.late_cost * config.priority if config.late_cost is None else config.late_cost,
            restated=config.restated or "",
            queue_us=config.queue or 0,
            reason=config.reason or "",
            external=config.data if declaration.is_external else "",
            order_within_us=config.order_within or DAY_US,
            leader=self._leader(declaration),
            propagate=ALL if config.propagate == ("closed",) else config.propagate,
            overrun=config.overrun,
            optional=tuple(name for name, choice in absent.items() if choice == "empty"),
            required=tuple(name for name, choice in absent.items() if choice == "fail"),
        )

    def _leader(self, declaration: TableDeclaration) -> str | None:
        """The table whose jobs make this one too: the first of its flow."""
        if declaration.flow is None:
            return None
        leader = next(iter(declaration.flow.targets))
        return leader if leader != declaration.name and leader in self.tables else None

    def _knows_time(self, declaration: TableDeclaration) -> bool:
        feed = self.feeds.get(declaration.config.feed or "")
        lost = declaration.config.feed is not None and (feed is None or "time" in feed.broken)
        return "time" not in declaration.broken and "feed" not in declaration.broken and not lost

    def _relation(self, declaration: TableDeclaration, source: str, grain: Grain | None) -> Relation | None:
        itself = source == declaration.name
        given = declaration.config.sources.get(source)
        theirs = self._grain(self.tables[source])
        if grain is None or theirs is None or "sources" in declaration.broken:
            return None
        try:
            if given is not None:
                return parse_relation(given, theirs, grain, itself=itself, zone=self.zone)
            if itself:
                raise ValueError(
                    f'a table that reads itself must say which of its earlier partitions: sources = {{ {source} = "SELF - 1" }}'
                )
            return default_relation(theirs, grain)
        except ValueError as error:
            where = declaration.at(f"sources.{source}") if given is not None else declaration.at("partition")
            self.problem(where, f"table `{declaration.name}`, source `{source}`: {error}")
            return None
