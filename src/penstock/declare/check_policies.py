"""What tables do about changes they are told of: settings that cannot work, or that would do nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.declare.api import TableDeclaration
from penstock.declare.problems import Problem, did_you_mean


def policy_problems(table: TableDeclaration, read: Collection[str]) -> Iterator[Problem]:
    config = table.config
    what = f"table `{table.name}`"
    if config.feed is not None:
        for name in ("propagate", "overrun", "absent"):
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
    choices = [config.absent.get(name, config.absent.get("*", "wait")) for name in others]
    if choices and all(choice == "empty" for choice in choices):
        one = "its source" if len(others) == 1 else "none of its sources"
        message = f'{what} is not to wait for {one}: absent = "empty" needs another source that says up to when there are data'
        yield Problem(table.at("absent"), message)
