"""Names: each once, of letters that every part understands, and none that is kept for something else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.declare.api import FeedDeclaration, TableDeclaration
from penstock.declare.problems import Problem
from penstock.declare.values import NAME, NAME_RULE

# The parameter by which a Python function is given its partition.
CONTEXT = "partition"


def feed_names(feeds: Iterable[FeedDeclaration]) -> Iterator[Problem]:
    seen: dict[str, FeedDeclaration] = {}
    for feed in feeds:
        first = seen.setdefault(feed.name, feed)
        if first is not feed:
            yield Problem(feed.where, f"feed `{feed.name}` is declared twice, first at {first.where}")
        elif not NAME.fullmatch(feed.name):
            yield Problem(feed.where, f"{feed.name!r} cannot be the name of a feed; {NAME_RULE}")


def table_names(tables: Iterable[TableDeclaration]) -> Iterator[Problem]:
    seen: dict[str, TableDeclaration] = {}
    for table in tables:
        first = seen.setdefault(table.name, table)
        if first is not table:
            yield from _twice(first, table)
        elif not table.is_plain and not NAME.fullmatch(table.name):
            yield Problem(table.where, f"{table.name!r} cannot be the name of a table; {NAME_RULE}")
        elif table.name.endswith("_quarantine") or table.name.startswith("_penstock"):
            kept = "names that end in _quarantine hold refused rows, those that begin with _penstock are kept for state"
            yield Problem(table.where, f"table `{table.name}` needs another name: {kept}")
        elif table.name == CONTEXT:
            message = f"table `{CONTEXT}` needs another name: Python functions are given their partition by this one"
            yield Problem(table.where, message)


def _twice(first: TableDeclaration, second: TableDeclaration) -> Iterator[Problem]:
    if not second.is_plain:
        yield Problem(second.where, f"table `{second.name}` is declared twice, first at {first.where}")
    elif not first.is_plain:  # two feeds of one name are told as such
        message = f"table `{first.name}` has the name of a feed ({second.where}), whose rows it does not take"
        hint = f'rename one of them, or write feed = "{first.name}" if it is the base table'
        yield Problem(first.where, f"{message}; {hint}")
