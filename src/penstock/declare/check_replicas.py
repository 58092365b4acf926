"""Replicas: tables that there are, in places that are not used for something else."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.declare.config import FILE_NAME
from penstock.declare.problems import Location, Problem, did_you_mean
from penstock.declare.project import Declarations
from penstock.declare.toml_lines import key_lines, line_of


def replica_problems(declarations: Declarations, tables: Collection[str]) -> Iterator[Problem]:
    if not declarations.config.replicas:
        return
    lines = key_lines((declarations.folder / FILE_NAME).read_text())
    taken = {declarations.data_path: "the warehouse itself"}
    for name, replica in declarations.config.replicas.items():
        where = Location(FILE_NAME, line_of(lines, ("replicas", name)))
        for table in replica.tables:
            if table not in tables:
                yield Problem(
                    where,
                    f"replica `{name}` is of table `{table}`, which is not there{did_you_mean(table, list(tables))}",
                )
        path = declarations.replica_path(name)
        other = next((use for used, use in taken.items() if path == used or path.startswith(used + "/")), None)
        if other is not None:
            yield Problem(
                where, f"replica `{name}` is at {replica.path}, which is the place of {other}; give it its own"
            )
        taken[path] = f"replica `{name}`"
