"""Tables that others make: settings that cannot work, that are missing, or that would do nothing."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.declare.api import TableDeclaration
from penstock.declare.config import OF_EXTERNAL
from penstock.declare.problems import Problem

# What says how a table of ours is made, and when.
_OURS = ("feed", "group", "guarantee", "cost", "recovery")

# Where we see ourselves what others publish.
_FOLLOWED = ("lake", "replica")


def external_problems(table: TableDeclaration) -> Iterator[Problem]:
    config, what = table.config, f"table `{table.name}`"
    if not table.is_external:
        for name in OF_EXTERNAL:
            if name in config.model_fields_set and name not in table.broken:
                message = f'{what}: `{name}` is for tables that others make; write kind = "external", or leave it out'
                yield Problem(table.at(name), message)
        return
    if not table.has_no_code:
        yield Problem(
            table.at("kind"),
            f"{what} is made by others, so it has no SELECT and no function; write it as {table.name}.toml",
        )
    for name in _OURS:
        if name in config.model_fields_set:
            yield Problem(table.at(name), f"{what} is made by others: `{name}` is for tables that are made here")
    word, _, _ = config.data.partition(" ")
    if config.columns is None and word != "elsewhere" and "columns" not in table.broken:
        example = 'columns = "router string, day timestamp, score double"'
        yield Problem(table.where, f"{what} is made by others, so it must say its `columns`: {example}")
    if config.command is not None and config.webhook is not None:
        yield Problem(
            table.at("webhook"), f"{what} has both a command and a webhook; its work orders go to one of them"
        )
    told = [name for name in ("command", "webhook", "order_within") if name in config.model_fields_set]
    if told and not config.reads:
        message = f"{what} reads no table of ours, so there are no work orders: `{told[0]}` has no effect"
        yield Problem(table.at(told[0]), f"{message}; say what it `reads`", "warning")
    if config.reads and word in _FOLLOWED:
        message = f'{what}: data = "{config.data}" follows what others publish, so it has no work orders'
        hint = "leave out `reads`, or let the job report what it made (`penstock publish`)"
        yield Problem(table.at("reads"), f"{message}; {hint}")
