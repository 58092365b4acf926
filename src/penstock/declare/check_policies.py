"""What tables do about changes they are told of: settings that cannot work, or that would do nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from penstock.declare.api import TableDeclaration
from penstock.declare.problems import Problem, did_you_mean
from penstock.model.grain import WHOLE
from penstock.model.graph import Graph


def policy_problems(table: TableDeclaration, read: Collection[str]) -> Iterator[Problem]:
    config = table.config
    what = f"table `{table.name}`"
    if config.feed is not None:
        for name in ("propagate", "overrun", "absent", "waits"):
            if name in config.model_fields_set and name not in table.broken:
                message = (
                    f"base {what}: `{name}` is for tables that read tables; a base table takes every file of its feed"
                )
                yield Problem(table.at(name), message)
        return
    others = [name for name in read if name != table.name]
    for name in config.absent:
        if name != "*" and name not in others:
            hint = did_you_mean(name, others) or f"; it reads: {', '.join(others) or 'nothing'}"
            message = f"{what} says what to do while `{name}` is absent, but does not read it{hint}"
            yield Problem(table.at(f"absent.{name}"), message)
    for name in config.waits:
        if name != "*" and name not in others:
            hint = did_you_mean(name, others) or f"; it reads: {', '.join(others) or 'nothing'}"
            yield Problem(
                table.at(f"waits.{name}"), f"{what} says whether it waits for `{name}`, but does not read it{hint}"
            )
    choices = [config.absent.get(name, config.absent.get("*", "wait")) for name in others]
    if choices and all(choice == "empty" for choice in choices):
        one = "its source" if len(others) == 1 else "none of its sources"
        message = f'{what} is not to wait for {one}: absent = "empty" needs another source that says up to when there are data'
        yield Problem(table.at("absent"), message)


def waiting_problems(graph: Graph, tables: Mapping[str, TableDeclaration]) -> Iterator[Problem]:
    """Tables without partitions over several sources with times: whoever joins such may not expect that rows of one wait."""
    for name in graph.order:
        edges = [e for e in graph.into[name] if graph.holds(e) and (e.source, name) not in graph.optional]
        origins = {frozenset(base for base in graph.origins[e.source] if graph.has_time[base]) for e in edges}
        said = tables[name].config.waits
        if graph.tables[name].grain is not WHOLE or len(origins) < 2 or "*" in said:
            continue
        silent = [edge.source for edge in edges if edge.source not in said]
        if len(silent) > 1:
            listed = " and ".join(f"`{source}`" for source in silent)
            message = f"table `{name}` is made up to the time that both {listed} have reached: later rows of one wait for the other"
            hint = "write waits = false to read all that is there, or waits = true if that is meant"
            yield Problem(tables[name].where, f"{message}; {hint}", "warning")
