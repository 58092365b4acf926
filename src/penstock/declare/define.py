"""What each declared table is made of and how: its view, function or flow, understood and checked against what it reads.

Tables come in the order of the graph, so that of each that is read the columns are known; those of a broken one are not.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256

from penstock.control.declaration import SEAM
from penstock.declare.analysis_cache import Remembered
from penstock.declare.api import FeedDeclaration, TableDeclaration, function_fingerprint
from penstock.declare.check_feeds import columns_of, time_problems
from penstock.declare.check_names import CONTEXT
from penstock.declare.definition import Definition, aligned, exact_time, foldable_view, schema_of, shape_of
from penstock.declare.flow_check import SparkSql, check_flow, known_schema, with_unknown
from penstock.declare.problems import Location, Problem
from penstock.declare.source_partitions import Placing, place
from penstock.declare.sql.view import NamedColumns, Rowwise, SqlProblem, View, analyse
from penstock.flows.description import TypedFlow
from penstock.flows.following import Following, follow
from penstock.model.grain import MONTHS, WHOLE, Calendar, Fixed, clock_offset_us
from penstock.model.relations import SAME
from penstock.model.schema import Schema, ddl
from penstock.model.tables import Table
from penstock.model.time import HOUR_US

# How many partitions a job takes whose view must be computed partition by partition.
ONE_BY_ONE = 16


def time_of(declaration: TableDeclaration, feeds: Mapping[str, FeedDeclaration]) -> str | None:
    """The column that says which partition a row is in."""
    if declaration.config.time is not None or declaration.config.feed is None:
        return declaration.config.time
    feed = feeds.get(declaration.config.feed)
    return feed.config.time if feed else None


def one_by_one(definition: Definition) -> int | None:
    return None if definition.table.grain is WHOLE or definition.at_once else ONE_BY_ONE


def _is_time(view: View, time: str) -> bool:
    types = {column.name.lower(): column.type for column in view.columns or ()}
    return types.get(time.lower()) in (None, "timestamp", "timestamp_ntz", "date")


def sql_problems(error: SqlProblem) -> Iterator[Problem]:
    for found in error.problems:
        yield Problem(Location(found.file, found.line), f"{found.found}; {found.expected}")


def rows_fingerprint(feed: FeedDeclaration, zone: str) -> str:
    """Equal as long as the files of a feed give the same rows."""
    config = feed.config
    columns = columns_of(feed, "")[0]
    order = config.order if config.mode == "snapshot" else ""
    read_in = config.zone or zone
    kind = next((c.type for c in columns or () if c.name.lower() == (config.time or "").lower()), None)
    if config.zone is not None and (columns is None or kind in ("date", "timestamp_ntz")):
        read_in += f" {zone}"  # when a day or what a clock shows is, the project's zone says
    said = (config.time, config.mode, order, config.rules, config.max_ahead, columns and ddl(columns), read_in)
    text = repr(said if config.late == "load" else (*said, config.late))
    return sha256(text.encode()).hexdigest()[:12]


class Definer:
    def __init__(
        self,
        feeds: Mapping[str, FeedDeclaration],
        feed_schemas: Mapping[str, Schema],
        zone: str,
        remembered: Remembered,
    ) -> None:
        self.feeds, self.feed_schemas, self.zone = feeds, feed_schemas, zone
        self._remembered = remembered
        self.problems: list[Problem] = []

    def problem(self, where: Location, message: str) -> None:
        self.problems.append(Problem(where, message))

    def __call__(self, declaration: TableDeclaration, table: Table, done: Mapping[str, Definition]) -> Definition:
        what = f"table `{declaration.name}`"
        own, found = columns_of(declaration, what)
        self.problems.extend(found)
        feed = self.feeds.get(declaration.config.feed or "")
        restated = feed is not None and feed.config.mode == "snapshot" and not declaration.every
        definition = Definition(
            table, declaration, time_of(declaration, self.feeds), own, columns=own, restated=restated
        )
        if declaration.is_external:
            logic = f"external:{declaration.config.code_version or ''}"
            definition = replace(definition, table=replace(table, logic=logic), schema=own)
        elif declaration.function is not None:
            definition = self._function(definition)
        elif declaration.flow is not None:
            definition = self._flow(definition, done)
        elif declaration.is_plain:
            rows = self.feed_schemas.get(declaration.config.feed or "")
            definition = replace(definition, table=replace(table, logic="rows"), schema=rows, columns=rows)
        elif declaration.config.feed is not None:
            definition = self._base(definition)
        else:
            definition = self._view(definition, done)
        logic, shape = definition.table.logic, definition.table.shape
        if feed is not None:
            logic += f"{SEAM}{rows_fingerprint(feed, self.zone)}"
            if restated:  # which of its files count depends on the partitions that they state
                logic += f":{table.partition}"
        elif definition.columns is not None:
            shape = "\n".join(f"{each.name} {(each.type or '?').replace(' ', '')}" for each in definition.columns)
        time = (definition.time or "").lower()
        definition = replace(definition, table=replace(definition.table, time=time, logic=logic, shape=shape))
        plain = declaration.is_plain  # then its feed was checked
        if definition.time is not None and not plain and "partition" not in declaration.broken:
            columns: NamedColumns | None = own or (definition.view.columns if definition.view else None)
            if definition.flow is not None:
                columns = definition.columns
            if columns is not None:
                where, grain = declaration.at("time"), declaration.config.partition
                self.problems.extend(time_problems(where, what, definition.time, columns, grain))
        return definition

    def _function(self, definition: Definition) -> Definition:
        declaration, table = definition.declaration, definition.table
        assert declaration.function is not None
        logic = function_fingerprint(declaration.function, declaration.config.code_version)
        if declaration.config.feed is not None:
            return replace(definition, table=replace(table, logic=logic))
        wants = CONTEXT in inspect.signature(declaration.function).parameters
        definition = replace(definition, wants_partition=wants)
        table = replace(table, logic=logic, chop=table.chop or one_by_one(definition))
        if not wants and table.grain is not WHOLE:
            lows = [source.window[0] for source in table.sources if source.window and source.table != table.name]
            table = replace(table, ahead=max([0, *(-low for low in lows)]), anywhere=definition.reads_the_same)
        return replace(definition, table=table)

    def _flow(self, definition: Definition, done: Mapping[str, Definition]) -> Definition:
        declaration, table = definition.declaration, definition.table
        assert declaration.flow is not None
        feed = declaration.config.feed
        known = {name: with_unknown(done[name].columns) for name in declaration.flow.sources if name in done}
        if feed is not None:
            known = dict.fromkeys(declaration.flow.sources, self.feed_schemas.get(feed))
        flow, problems = check_flow(declaration.flow, known, declaration)
        following = self._following(flow, table, done) if feed is None else None
        if table.leader is None:  # else they were told of the leader
            self.problems.extend(problems)
        logic = f"{declaration.flow.fingerprint}:{declaration.config.code_version or ''}"
        chop = table.chop or (None if table.grain is WHOLE or feed is not None else ONE_BY_ONE)
        columns = flow.columns(declaration.name)
        return replace(
            definition,
            table=replace(
                table,
                logic=logic,
                chop=chop,
                foldable=bool(following),
                looked_up=tuple(s.table for s in table.sources if following and s.table not in following.sources),
            ),
            flow=flow,
            following=following,
            schema=known_schema(columns),
            columns=shape_of(columns),
        )

    def _following(self, flow: TypedFlow, table: Table, done: Mapping[str, Definition]) -> Following:
        timed = [source for source in table.sources if source.waits and self._has_edge(source.table, done)]
        alike = [s.table for s in timed if table.grain is WHOLE or s.window == (SAME.low, SAME.high)]
        others = {
            source.table: "more of its rows are read as time goes on, by partitions that are there"
            for source in timed
            if source.table not in alike
        }
        return follow(flow, SparkSql(partitioned=table.grain is not WHOLE), alike, others)

    def _base(self, definition: Definition) -> Definition:
        declaration, table = definition.declaration, definition.table
        feed = declaration.config.feed or ""
        rows = self.feed_schemas.get(feed)
        definition = self._analysed(definition, {feed: rows} if rows else {})
        view = definition.view
        if view is None:
            return definition
        if not isinstance(view.how, Rowwise) and view.sources == (feed,):
            self.problem(
                declaration.where,
                f"base table `{declaration.name}`: its SELECT must work row by row, as files are loaded one after the other "
                f"({view.how.why}); aggregate in a table that reads it",
            )
        return replace(definition, table=replace(table, logic=view.fingerprint))

    def _view(self, definition: Definition, done: Mapping[str, Definition]) -> Definition:
        declaration, table = definition.declaration, definition.table
        read: dict[str, NamedColumns] = {}
        for source in table.sources:
            found = definition if source.table == declaration.name else done.get(source.table)
            if found is not None and found.columns is not None:
                read[source.table] = found.columns
        definition = self._analysed(definition, read)
        view = definition.view
        if view is None:
            return definition
        if view.parameters and table.grain is WHOLE and "partition" not in declaration.broken:
            message = f"table `{declaration.name}` uses :{view.parameters[0]}, but is not partitioned; set `partition`"
            self.problem(declaration.where, message)
        self._check_zone(declaration, table, view)
        placing = None
        if definition.time is not None and "partition" not in declaration.broken:
            times = {name: done[name].time for name in (source.table for source in table.sources) if name in done}
            placing = place(view.origins, times, table.grain, self.zone)
            if _is_time(view, definition.time):
                table = self._placed(declaration, table, placing)
        table = replace(
            table,
            logic=f"{view.fingerprint}:{declaration.config.code_version or ''}",
            foldable=foldable_view(view, table, placing),
            exact_time=exact_time(view, table, placing, done),
            aligned=aligned(view, table, placing, done),
        )
        self._warn(declaration, table, view, done)
        others = [source for source in table.sources if source.table != table.name]
        definition = replace(
            definition,
            table=table,
            placed=placing is not None and not any(placing.doubt(source) for source in others),
            in_place=placing is not None
            and placing.stays
            and all(source.window == (SAME.low, SAME.high) for source in others if source.table in placing.moved),
        )
        strays = self._strays(table, placing, done)
        if strays and not definition.at_once:
            message = f"table `{declaration.name}`: its time may be that of `{strays[0]}`, which is read as a whole, so that its rows may lie in any {table.grain}, also where its other sources have none"
            hint = f'write partition = "none", or give the rows of `{strays[0]}` a table of their own'
            self.problem(declaration.at("time"), f"{message}; {hint}")
        scattered = definition.reads_the_same and not (table.aligned or table.exact_time)
        ahead = placing.ahead(others, bool(view.parameters)) if placing is not None else 0
        table = replace(
            table, chop=table.chop or one_by_one(definition), ahead=ahead, anywhere=scattered or bool(strays)
        )
        return replace(definition, table=table)

    def _strays(self, table: Table, placing: Placing | None, done: Mapping[str, Definition]) -> list[str]:
        """Sources that have no edge and are read as a whole, but whose rows say in which partition they are: they may lie
        where no other source has any."""
        if placing is None or table.grain is WHOLE:
            return []
        dated = {*placing.moved, *(name for name, _ in placing.unknown)}
        sources = [source for source in table.sources if source.table in dated and source.window is None]
        others = {source.table for source in table.sources if self._has_edge(source.table, done)}
        return [source.table for source in sources if others and source.table not in others]

    def _has_edge(self, name: str, done: Mapping[str, Definition]) -> bool:
        """Whether a table is complete up to some time, not simply as it is now."""
        if name not in done:
            return False
        table = done[name].table
        if table.feed is None:
            if table.is_origin:
                return done[name].time is not None or table.grain is not WHOLE
            return any(each.waits and self._has_edge(each.table, done) for each in table.sources if each.table != name)
        feed = self.feeds[table.feed].config
        return feed.time is not None and not (feed.mode == "snapshot" and table.grain is WHOLE)

    def _placed(self, declaration: TableDeclaration, table: Table, placing: Placing) -> Table:
        """The table with its sources read as far as its rows can come from; a problem where that cannot be known, or where
        what is said leaves some out."""
        found = []
        time, grain = declaration.config.time, table.grain
        if placing.outside:
            message = f"table `{declaration.name}`: its time `{time}` does not lie in the partition that is being made"
            self.problem(declaration.at("time"), f"{message}; write :partition_start AS {time}")
        for source in table.sources:
            if grain is WHOLE or source.window is None or source.table == table.name:
                found.append(source)
                continue
            said = source.table in declaration.config.sources
            doubt = "" if said else placing.doubt(source)
            needs = placing.needs(source.table)
            setting = f"sources.{source.table}"
            what = f"table `{declaration.name}`: its time `{time}`"
            if doubt:
                message = f"{what} does not say from which partitions of `{source.table}` the rows of one {grain} come: {doubt}"
                hint = f'say which it reads: {setting} = "PARTITION" (the same {grain}), "PARTITION - 7 .. PARTITION" or "everything"'
                self.problem(declaration.at("time"), f"{message}; {hint}")
            elif placing.coarse and not said:
                message = f"{what} is that of a {placing.coarse}, so that all its rows would be in its first {grain}"
                partition = placing.coarse if placing.coarse in ("day", "week", *MONTHS) else "none"
                self.problem(declaration.at("time"), f'{message}; write partition = "{partition}", or another `time`')
            elif not said and needs.high <= 1:
                # Moved to later: rows of this partition come from earlier ones, too.
                source = replace(source, window=(min(needs.low, source.window[0]), source.window[1]))
            elif not placing.covered_by(source):
                message = f"{what} says that the rows of one {grain} come from {needs} of `{source.table}`, but it reads {source.relation}"
                wait = ", and it waits until those are complete" if needs.high > 1 else ""
                self.problem(
                    declaration.at(setting if said else "time"), f'{message}; write {setting} = "{needs}"{wait}'
                )
            found.append(source)
        return table if tuple(found) == table.sources else replace(table, sources=tuple(found))

    def _warn(self, declaration: TableDeclaration, table: Table, view: View, done: Mapping[str, Definition]) -> None:
        """What runs, but can hardly be meant."""
        if view.chance is not None:
            message = f"table `{declaration.name}`: {view.chance}, and its rows keep what that was when they were made"
            hint = "use a column of its source, or :partition_start"
            self.problems.append(Problem(declaration.where, f"{message}; {hint}", "warning"))
        same = {s.table for s in table.sources if s.window == (SAME.low, SAME.high)} - set(declaration.config.sources)
        moments = [
            name for name in same if name in done and (done[name].table.is_origin or done[name].table.exact_time)
        ]
        times = {(name, (done[name].time or "").lower()) for name in moments}
        for one, other in view.ranges if table.grain is not WHOLE else ():
            if {(one.table, one.column), (other.table, other.column)} <= times:
                message = f"table `{declaration.name}` joins rows by a range of time, but reads one {table.grain} at a time, so that none are found across its ends"
                hint = f'say how far it looks: sources.{other.table} = "PARTITION - 1 .. PARTITION"'
                self.problems.append(Problem(declaration.where, f"{message}; {hint}", "warning"))
                return

    def _check_zone(self, declaration: TableDeclaration, table: Table, view: View) -> None:
        """date_trunc cuts by the clock of the zone, as partitions do, with two exceptions. Where clocks were once set back over
        midnight, an hour that comes twice has the date of one day and lies in the partition of the next. And where clocks
        change by parts of an hour, hours cannot have one length."""
        expression = view.time_expression or ""
        cut = re.match(r"(DATE_TRUNC|TRUNC|TO_DATE|DATE|CAST)\(", expression, re.IGNORECASE)
        if cut is None:
            return
        grain, hourly = table.grain, re.match(r"DATE_TRUNC\('HOUR'", expression, re.IGNORECASE)
        if isinstance(grain, Calendar) and grain.sets_back_over_midnight():
            why = f"clocks of {self.zone} were set back over midnight, where {cut[1].lower()} gives the {grain} before the one of the partition"
        elif isinstance(grain, Fixed) and hourly and clock_offset_us(self.zone, HOUR_US) is None:
            why = f"clocks of {self.zone} were set by parts of an hour, but partitions have one length"
        else:
            return
        where, time = declaration.at("time"), declaration.config.time
        self.problem(where, f"table `{declaration.name}`: {why}; write :partition_start AS {time}")

    def _analysed(self, definition: Definition, read: Mapping[str, NamedColumns]) -> Definition:
        """The definition with its view, if its SQL can be understood."""
        declaration = definition.declaration
        assert declaration.sql is not None
        try:
            view = self._remembered.get(
                analyse,
                declaration.sql,
                read,
                time=definition.time,
                file=declaration.where.file,
                line=declaration.sql_line,
                strict=True,
            )
        except SqlProblem as error:
            self.problems.extend(sql_problems(error))
            return definition
        if definition.columns is not None:
            self._compare(declaration, definition.columns, view)
            return replace(definition, view=view)
        return replace(definition, view=view, schema=schema_of(view), columns=view.columns)

    def _compare(self, declaration: TableDeclaration, own: NamedColumns, view: View) -> None:
        """The columns that are declared must be those that the SELECT gives."""
        if view.columns is None:
            return
        what, where = f"table `{declaration.name}`", declaration.at("columns")
        given = {column.name.lower(): column for column in view.columns}
        said = {column.name.lower(): column for column in own}
        for name, column in said.items():
            if name not in given:
                self.problem(where, f"{what}: `columns` names `{column.name}`, which its SELECT does not give")
        for name, output in given.items():
            if name not in said:
                self.problem(where, f"{what}: its SELECT gives `{output.name}`, which `columns` does not name")
            elif output.type is not None and output.type != said[name].type:
                message = (
                    f"{what}: column `{output.name}` is {output.type} in its SELECT, but {said[name].type} in `columns`"
                )
                self.problem(where, f"{message}; change one, for example with CAST({output.name} AS {said[name].type})")
