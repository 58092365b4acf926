"""Everything that the text of a view says, found out: the one place where parser, names, types and proofs come together."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.declare.sql.columns import resolve
from penstock.declare.sql.facts import NamedColumns, SqlProblem
from penstock.declare.sql.incremental import chances, classify
from penstock.declare.sql.parse import PenstockSpark, known_columns, parse, tables_read
from penstock.declare.sql.separable import prove_separable, trace
from penstock.declare.sql.strict import strict_problems
from penstock.declare.sql.text import fingerprint
from penstock.declare.sql.times import time_origins, time_ranges
from penstock.declare.sql.view import Given, OutputColumn, View


def analyse(
    sql: str, schemas: Mapping[str, NamedColumns], *, time: str | None, file: str, line: int, strict: bool
) -> View:
    """See `sqlview.analyse`."""
    parsed = parse(sql, file=file, line=line)
    query, problems = resolve(parsed, schemas)
    tables = _spelled(tables_read(parsed.tree), schemas)
    if time is not None and query.outputs is not None:
        names = [o.name for o in query.outputs if o.name]
        if time.lower() not in (name.lower() for name in names):
            found = f"the time column `{time}` is not among the output columns"
            problems.append(parsed.text.problem(parsed.tokens[0].start, found, known_columns(time, names)))
    if strict and not problems:
        problems += strict_problems(parsed, query)
    if problems:
        raise SqlProblem(problems)
    columns = None
    if query.outputs is not None:
        columns = tuple(
            OutputColumn(o.name or "", None if o.type == "void" else o.type, tuple(sorted(o.origins)))
            for o in query.outputs
        )
    expression = trace(query, time) if time is not None else None
    view = View(
        sql=parsed.sql,
        sources=tables,
        columns=columns,
        parameters=parsed.parameters,
        fingerprint=fingerprint(parsed),
        how=classify(parsed, query, tables),
        time=time,
        time_expression=expression.sql(dialect=PenstockSpark) if expression is not None else None,
        separable=prove_separable(parsed, query, tables, time),
        origins=time_origins(query, time) if time is not None else frozenset(),
        chance=next(chances(parsed, query), None),
        ranges=tuple(time_ranges(query)),
        given=Given(sql, dict(schemas), file, line),
    )
    view.__dict__.update(parsed=parsed, query=query)
    return view


def _spelled(tables: tuple[str, ...], schemas: Mapping[str, NamedColumns]) -> tuple[str, ...]:
    """Names as declared: Spark does not tell `Flows` from `flows`."""
    declared = {name.lower(): name for name in schemas}
    return tuple(declared.get(name.lower(), name) for name in tables)
