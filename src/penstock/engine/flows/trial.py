"""Flows on a few rows, for who writes them: every activity is done and looked at, and nothing is published.

On a sample of what is loaded; or on small inputs in files, with what should come out in others.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.declare.problems import did_you_mean
from penstock.declare.warehouse import Definition, Definitions
from penstock.engine.flows import history  # noqa: F401  (registers its activities)
from penstock.engine.flows.realise import SNAPSHOT, FormerRows, Inputs, hidden_of, realise, refused, shown
from penstock.engine.updates.executor import explain_error
from penstock.engine.updates.rows import instant_literal, quoted, struct_of
from penstock.errors import PenstockError
from penstock.flows.activities import Activity, Check
from penstock.flows.description import Flow, FlowSource, Target, TypedFlow, bound, parameters
from penstock.model.grain import zone_of
from penstock.model.schema import Schema
from penstock.model.time import parse_instant


@dataclass(frozen=True)
class TriedStep:
    """What an activity, a source or a target gave."""

    name: str
    line: int
    rows_in: int
    rows_out: int
    rejected: int
    columns: tuple[str, ...]
    # Some of its rows.
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Tried:
    steps: tuple[TriedStep, ...]
    # The rows of each target, and of what is refused and kept: the rows with their activity.
    made: Mapping[str, DataFrame]


def main_sources(flow: Flow) -> set[str]:
    """The sources whose rows pass through the flow. Others are only looked up."""
    found: set[str] = set()
    waiting = [step.name for step in flow.steps if isinstance(step.does, Target)]
    while waiting:
        step = flow.by_name[waiting.pop()]
        if isinstance(step.does, FlowSource):
            found.add(step.does.table)
            continue
        looks_up = isinstance(step.does, Activity) and step.does.looks_up
        waiting += step.inputs[:1] if looks_up else step.inputs
    return found


def try_flow(typed: TypedFlow, sources: Mapping[str, DataFrame], loaded: FormerRows, show: int) -> Tried:
    """Every step, one after the other; `show` rows of each are looked at. An error says at which step it is."""
    frames: dict[str, DataFrame] = {}
    counts: dict[str, int] = {}
    steps: list[TriedStep] = []
    made: dict[str, DataFrame] = {}
    try:
        for step in typed.flow.steps:
            given = Inputs(tuple(frames[name] for name in step.inputs), loaded)
            try:
                if isinstance(step.does, FlowSource):
                    rows = sources[step.does.table]
                    # The only snapshot that there ever was.
                    rows = rows.selectExpr("*", f"1L as {SNAPSHOT}") if step.does.every else rows
                elif isinstance(step.does, Target):
                    rows = given.rows
                    made[step.does.table] = rows
                else:
                    rows = realise(step.does, given)
                frames[step.name] = rows = rows.persist()
                counts[step.name] = rows.count()
                bad = refused(step.does, given).count() if isinstance(step.does, Check) else 0
                if bad and isinstance(step.does, Check) and step.does.bad == "fail":
                    raise PenstockError(f"{bad} rows: {step.does.reason}")
                if bad and isinstance(step.does, Check) and step.does.bad == "default":
                    bad = 0
                names = shown(rows)
                some = tuple(map(tuple, rows.select(*map(quoted, names)).head(show))) if show else ()
            except (PySparkException, PenstockError) as error:
                told = explain_error(error).splitlines()[0] if isinstance(error, PySparkException) else str(error)
                place = f" (line {step.line})" if step.line else ""
                raise PenstockError(f"flow `{typed.flow.name}`, {step.name}{place}: {told}") from error
            taken = sum(counts[name] for name in _passing(step.does, step.inputs))
            steps.append(TriedStep(step.name, step.line, taken, counts[step.name], bad, tuple(names), some))
    finally:
        for rows in frames.values():
            rows.unpersist()
    return Tried(tuple(steps), made)


def _passing(does: object, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return inputs[:1] if isinstance(does, Activity) and does.looks_up else inputs


# Tests in files


@dataclass(frozen=True)
class TestCase:
    """A folder with the rows of sources in `in`, and what targets should hold in `out`."""

    __test__ = False

    name: str
    folder: Path

    @property
    def partition(self) -> str | None:
        path = self.folder / "case.toml"
        said = tomllib.loads(path.read_text()).get("partition") if path.is_file() else None
        return str(said) if said is not None else None

    def file(self, place: str, table: str) -> Path | None:
        found = (self.folder / place / f"{table}{suffix}" for suffix in (".csv", ".json"))
        return next((path for path in found if path.is_file()), None)

    def expected(self) -> Iterator[tuple[str, Path]]:
        for path in sorted((self.folder / "out").glob("*")):
            if path.suffix in (".csv", ".json"):
                yield path.stem, path


def cases(folder: Path, flow: str) -> list[TestCase]:
    place = folder / "tests" / flow
    return [TestCase(path.name, path) for path in sorted(place.glob("*")) if (path / "out").is_dir()]


def read_rows(session: SparkSession, path: Path, schema: Schema) -> DataFrame:
    """The rows of a small file, with the columns of a table. A CSV file may have some of them."""
    if path.suffix == ".json":
        return session.read.schema(struct_of(schema)).option("mode", "FAILFAST").json(str(path))
    with path.open() as stream:
        header = [name.strip() for name in stream.readline().strip().split(",")]
    known = {column.name.lower(): column for column in schema}
    if unknown := [name for name in header if name.lower() not in known]:
        raise PenstockError(f"{path} has a column `{unknown[0]}`; the table has {', '.join(c.name for c in schema)}")
    present = struct_of(tuple(known[name.lower()] for name in header))
    rows = session.read.schema(present).options(header=True, mode="FAILFAST", enforceSchema=False).csv(str(path))
    there = {name.lower() for name in header}
    columns = (
        quoted(c.name) if c.name.lower() in there else f"cast(null as {c.type}) as {quoted(c.name)}" for c in schema
    )
    return rows.selectExpr(*columns)


@dataclass(frozen=True)
class TestResult:
    """Rows that a target should have and has not, and the other way round; or why the case could not be tried."""

    __test__ = False

    case: str
    table: str = ""
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    error: str = ""

    @property
    def good(self) -> bool:
        return not (self.missing or self.extra or self.error)


def run_case(
    case: TestCase, session: SparkSession, typed: TypedFlow, read: Mapping[str, tuple[str, Schema]]
) -> Iterator[TestResult]:
    """One result for each table of which it is said what it should hold. `read`: of each source its file and its columns."""
    sources = {}
    for table, (name, schema) in read.items():
        path = case.file("in", name)
        sources[table] = (
            read_rows(session, path, schema) if path is not None else session.createDataFrame([], struct_of(schema))
        )

    def loaded(table: str, columns: Schema) -> DataFrame:
        path = case.file("in", table)
        return read_rows(session, path, columns) if path else session.createDataFrame([], struct_of(columns))

    made = try_flow(typed, sources, loaded, 0).made
    for table, path in case.expected():
        if table not in made:
            told = f"the flow makes {', '.join(made)}, not `{table}`"
            yield TestResult(case.name, table, error=f"{path.name}: {told}")
            continue
        rows = made[table].drop(*hidden_of(made[table]))
        columns = _header(path) or rows.columns
        schema = tuple(c for c in typed.columns(_target(typed.flow, table)) or ())
        wanted = read_rows(session, path, schema).select(*map(quoted, columns))
        got = Counter(_told(row) for row in rows.select(*map(quoted, columns)).collect())
        want = Counter(_told(row) for row in wanted.collect())
        yield TestResult(case.name, table, tuple((want - got).elements()), tuple((got - want).elements()))


def _target(flow: Flow, table: str) -> str:
    return next(step.name for step in flow.steps if isinstance(step.does, Target) and step.does.table == table)


def _header(path: Path) -> list[str]:
    if path.suffix != ".csv":
        return []
    with path.open() as stream:
        return [name.strip() for name in stream.readline().strip().split(",")]


def _told(row: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.asDict().items())


@dataclass(frozen=True)
class FlowTrials:
    """The flows of a project. `table` gives the newest version of one of its tables."""

    session: SparkSession
    declared: Definitions
    table: Callable[[str], DataFrame]

    def _flow(self, name: str) -> tuple[Definition, TypedFlow]:
        found = {d.flow.flow.name: (d, d.flow) for d in self.declared.definitions.values() if d.flow is not None}
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            raise PenstockError(f"there is no flow {name!r} in this project{did_you_mean(name, found)}; it has {known}")
        return found[name]

    def _of_partition(self, name: str, partition: str | None, hint: str) -> TypedFlow:
        definition, typed = self._flow(name)
        if not parameters(typed):
            return typed
        if partition is None:
            raise PenstockError(f"flow `{name}` asks for :{parameters(typed)[0]}; {hint}")
        start = definition.table.grain.floor(parse_instant(partition, zone_of(self.declared.zone)))
        end = definition.table.grain.shift(start, 1)
        return bound(typed, {"partition_start": instant_literal(start), "partition_end": instant_literal(end)})

    def _read(self, definition: Definition, typed: TypedFlow) -> dict[str, tuple[str, Schema]]:
        """Of each table that a flow reads the name that people know, and its columns."""
        found = {}
        for table in typed.flow.sources:
            own = self.declared.definitions.get(table)
            feed = definition.declaration.config.feed
            schema = own.schema if own is not None and feed is None else self.declared.feed_schemas.get(feed or "")
            known = table.removesuffix("_snapshots") if own is not None and own.declaration.every else table
            if schema is None:
                raise PenstockError(f"the columns of `{known}` are not known before it has rows; declare them")
            found[table] = (known, schema)
        return found

    def sample(self, name: str, rows: int = 1000, *, show: int = 0, partition: str | None = None) -> Tried:
        """On some of the rows that are loaded; of tables that are only looked up, on all."""
        definition, _ = self._flow(name)
        if (feed := definition.declaration.config.feed) is not None:
            raise PenstockError(
                f"flow `{name}` loads files of feed `{feed}`, which are not kept as rows; try it on rows of your own with "
                f"`penstock flow test {name}`"
            )
        typed = self._of_partition(name, partition, "say for which partition with --partition 2024-03-01")
        main = main_sources(typed.flow)
        sources = {}
        for table, (known, _) in self._read(definition, typed).items():
            found = self.table(known)
            sources[table] = found.limit(rows) if table in main else found
        return try_flow(typed, sources, self._loaded, show)

    def _loaded(self, table: str, columns: Schema) -> DataFrame:
        nothing = self.session.createDataFrame([], struct_of(columns))
        try:
            found = self.table(table)
        except PenstockError:
            return nothing  # it was never made
        there = {name.lower() for name in found.columns}
        names = [column.name for column in columns]
        return found.select(*map(quoted, names)) if all(name.lower() in there for name in names) else nothing

    def test(self, name: str) -> list[TestResult]:
        """On the rows in `tests/NAME/CASE/in`, compared with those in `tests/NAME/CASE/out`."""
        definition, typed = self._flow(name)
        found = cases(self.declared.declarations.folder, name)
        if not found:
            raise PenstockError(
                f"there are no tests of `{name}`: put rows of its sources into tests/{name}/first/in/<table>.csv, and what its "
                f"targets should hold into tests/{name}/first/out/<table>.csv"
            )
        results: list[TestResult] = []
        for case in found:
            hint = f'write partition = "2024-03-01" into tests/{name}/{case.name}/case.toml'
            try:
                own = self._of_partition(name, case.partition, hint)
                results += run_case(case, self.session, own, self._read(definition, typed))
            except (PenstockError, PySparkException) as error:
                told = str(error) if isinstance(error, PenstockError) else explain_error(error).splitlines()[0]
                results.append(TestResult(case.name, error=told))
        return results
