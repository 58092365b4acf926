"""What may change about a table's columns while old files stay as they are.

Allowed is what every reader can do with an old file: a new nullable column reads as null, a wider type is a
cast that loses nothing. Everything else would silently change the meaning of files already published, and is
refused.

    evolve(s, s) == []
    evolve(a, b) and evolve(b, c) allowed  =>  evolve(a, c) allowed
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.schema import Column, Schema
from penstock.tables.types import SchemaConflict, Type, parse

_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}


@dataclass(frozen=True, slots=True)
class Added:
    """A new column, or a new field inside a struct; `path` ends with its own name."""

    path: tuple[str, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Widened:
    path: tuple[str, ...]
    was: Type
    type: Type


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A required column may be null from now on."""

    path: tuple[str, ...]


SchemaStep = Added | Widened | Relaxed


def evolve(old: Schema, new: Schema, table: str = "the table") -> list[SchemaStep]:
    """The steps that turn `old` into `new`, or `SchemaConflict`.

    The order of columns does not matter: files are matched by name, and a table keeps the order it has. A
    column that is nullable in the table and required in the new rows stays nullable.

    >>> evolve((Column("n", "int"),), (Column("n", "bigint"), Column("note", "string")))
    [Widened(path=('n',), was=Type(name='int', children=()), type=Type(name='bigint', children=())), \
Added(path=('note',), type=Type(name='string', children=()))]
    """
    check_names(new, table)
    steps: list[SchemaStep] = []
    given = {column.name: column for column in new}
    for column in old:
        found = given.pop(column.name, None)
        if found is None:
            raise _missing(table, column, new)
        steps += _compare(table, (column.name,), parse(column.type), parse(found.type))
        if found.nullable and not column.nullable:
            steps.append(Relaxed((column.name,)))
    for column in given.values():
        if not column.nullable:
            raise SchemaConflict(
                f"{table}: the new column {column.name!r} ({column.type}) is required, but files already published "
                "do not have it. Declare it nullable; old rows will read null."
            )
        steps.append(Added((column.name,), parse(column.type)))
    return steps


def check_names(schema: Schema, table: str = "the table") -> None:
    """Spark and DuckDB fold case, so names that differ by case only are one name."""
    seen: dict[str, str] = {}
    for column in schema:
        if column.name.lower() in seen:
            raise SchemaConflict(
                f"{table}: columns {seen[column.name.lower()]!r} and {column.name!r} have the same name "
                "(case does not count). Rename one."
            )
        seen[column.name.lower()] = column.name


def wider(old: Type, new: Type) -> bool:
    """Whether every value of `old` is a value of `new`, unchanged, and every reader casts it so.

    >>> wider(parse("decimal(10,2)"), parse("decimal(12,4)")), wider(parse("date"), parse("timestamp_ntz"))
    (True, False)
    """
    if new.name in _WIDER.get(old.name, ()):
        return True
    was, now = old.decimal, new.decimal
    return (
        was is not None and now is not None and was != now and now[1] >= was[1] and now[0] - now[1] >= was[0] - was[1]
    )


def _compare(table: str, path: tuple[str, ...], old: Type, new: Type) -> list[SchemaStep]:
    if old == new:
        return []
    if not old.children or old.name != new.name:
        if wider(old, new):
            return [Widened(path, old, new)]
        raise _retyped(table, path, old, new)
    steps: list[SchemaStep] = []
    given = dict(new.children)
    for name, child in old.children:
        found = given.pop(name, None)
        if found is None:
            raise SchemaConflict(
                f"{table}: field {name!r} of {'.'.join(path)!r} is gone (expected {old}, found {new}). "
                f"Keep it as `cast(null as {child}) as {name}`."
            )
        steps += _compare(table, (*path, name), child, found)
    steps += [Added((*path, name), child) for name, child in given.items()]
    return steps


def _missing(table: str, column: Column, new: Schema) -> SchemaConflict:
    alike = next((c.name for c in new if c.name.lower() == column.name.lower()), None)
    if alike is not None:
        return SchemaConflict(
            f"{table}: column {column.name!r} is now called {alike!r}. Keep the name: `{alike} as {column.name}`."
        )
    have = ", ".join(c.name for c in new)
    return SchemaConflict(
        f"{table}: column {column.name!r} ({column.type}) is missing; the new rows have {have}. A column is never "
        f"dropped or renamed in place. Keep it as `cast(null as {column.type}) as {column.name}`, "
        "or publish under another table name."
    )


def _retyped(table: str, path: tuple[str, ...], old: Type, new: Type) -> SchemaConflict:
    name = ".".join(path)
    if wider(new, old):
        advice = f"Cast it back: `cast({name} as {old}) as {path[-1]}`."
    else:
        advice = f"Give it as {old}, or add it as a new column under another name."
    return SchemaConflict(f"{table}: column {name!r} was {old} and is now {new}, which is not wider. {advice}")
