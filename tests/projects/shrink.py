"""Makes a case small: takes out steps, actions, tables, rows and settings, as long as the same kind of thing is found."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.projects.engines import Engine
from tests.projects.play import Finding, play
from tests.projects.project import Case, declare, present, texts

CHANGES = (
    *("table", "tables", "table setting", "relations", "grain"),
    *("feed", "feed setting", "feed fields", "zone", "run setting"),
)


def shrink(case: Case, engine: Engine, finding: Finding, *, seconds: float = 180) -> Case:
    """The smallest case found in the time given that still has a finding of that kind."""
    until = time.monotonic() + seconds

    def still(smaller: Case) -> bool:
        if time.monotonic() > until:
            return False
        return any(one.kind == finding.kind for one in play(smaller, engine).findings)

    case = copy.deepcopy(case)
    case["steps"] = case["steps"][: finding.step + 1]
    changed = True
    while changed and time.monotonic() < until:
        changed = False
        for smaller in _smaller(case, finding):
            if still(smaller):
                case, changed = smaller, True
                break
    return case


def _smaller(case: Case, finding: Finding) -> Iterator[Case]:
    for name in list(case["project"]["tables"]):
        yield _without(case, lambda c, name=name: c["project"]["tables"].pop(name))
    for name in list(case["project"]["feeds"]):
        if len(case["project"]["feeds"]) > 1:
            yield _without(case, lambda c, name=name: c["project"]["feeds"].pop(name))
    for at in range(len(case["steps"]) - 1, -1, -1):
        if len(case["steps"]) > 1:
            yield _without(case, lambda c, at=at: c["steps"].pop(at))
        # or at once with the one before it
        if at:
            yield _without(case, lambda c, at=at: c["steps"][at - 1].extend(c["steps"].pop(at)))
    for at, actions in enumerate(case["steps"]):
        for number in range(len(actions) - 1, -1, -1):
            yield _without(case, lambda c, at=at, number=number: c["steps"][at].pop(number))
    for place in ("tables", "feeds"):
        for name, one in case["project"][place].items():
            for key in one["settings"]:
                if key not in ("settle", "columns", "attempts"):
                    yield _without(
                        case, lambda c, place=place, name=name, key=key: c["project"][place][name]["settings"].pop(key)
                    )
    if case["project"]["zone"] != "UTC":
        yield _without(case, lambda c: c["project"].update(zone="UTC"))
    for at, actions in enumerate(case["steps"]):
        for number, action in enumerate(actions):
            rows = action.get("rows", [])
            if action.get("bad"):
                yield _without(case, lambda c, at=at, number=number: c["steps"][at][number].update(bad=[]))
            if len(rows) > 1:
                half = len(rows) // 2
                yield _without(
                    case,
                    lambda c, at=at, number=number, half=half: c["steps"][at][number].update(
                        rows=c["steps"][at][number]["rows"][:half]
                    ),
                )
                yield _without(
                    case,
                    lambda c, at=at, number=number, half=half: c["steps"][at][number].update(
                        rows=c["steps"][at][number]["rows"][half:]
                    ),
                )
    for at, actions in enumerate(case["steps"]):
        for number, action in enumerate(actions):
            rows = action.get("rows", [])
            if 1 < len(rows) <= 4:
                for row in range(len(rows)):
                    yield _without(
                        case, lambda c, at=at, number=number, row=row: c["steps"][at][number]["rows"].pop(row)
                    )


def _without(case: Case, change: Callable[[Case], Any]) -> Case:
    smaller = copy.deepcopy(case)
    change(smaller)
    return smaller


def told(case: Case) -> str:
    """A case as a person can repeat it: the files of the project, then what happens at each step."""
    from tests.projects import files

    lines = []
    project = copy.deepcopy(case["project"])
    shown: dict[str, str] = {}
    for number, actions in enumerate(case["steps"]):
        happened = []
        for action in actions:
            if action["do"] == "deliver" and action["feed"] in project["feeds"]:
                feed = project["feeds"][action["feed"]]
                name = f"landing/{action['feed']}/{action['file']}" + (
                    " (dated two hours ahead)" if action.get("future") else ""
                )
                rows = [*action["rows"], *action.get("bad", [])]
                if feed["format"] in ("parquet", "orc"):
                    happened += [f"  {name}:", *(f"    {row}" for row in rows)]
                else:
                    text = files.content(feed, project["zone"], rows)[0].decode()
                    happened += [f"  {name}:", *(f"    {line}" for line in text.splitlines())]
            elif action["do"] in CHANGES:
                declare(project, action)
            else:
                happened.append(f"  {json.dumps(action)}")
        now = texts(present(project))
        for name, text in now.items():
            if shown.get(name) != text:
                lines += [f"--- {name}", text.rstrip()]
        lines += [f"--- {name} is deleted" for name in shown if name not in now]
        shown = now
        lines += [f"--- step {number}, then `penstock run --until-idle`", *happened]
    return "\n".join(lines)
