"""A project as plain data, what can happen to it, and how it is written as a folder.

A case is JSON: `{"seed", "project": {"zone", "run", "feeds": {name: feed}, "tables": {name: table}}, "steps": [[action, …], …]}`.
After each step the project runs until it is idle. Anything can be taken out of a case, and the rest still makes sense: what reads
something that is not there is left out, an action on it does nothing.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.projects.views import spark_text, token

Case = dict[str, Any]
Project = dict[str, Any]


def present(project: Project) -> Project:
    """Only what can stand: tables whose feeds and sources are there."""
    found = copy.deepcopy(project)
    tables = found["tables"]
    while True:
        names = {*tables, *found["feeds"]}
        gone = [
            name
            for name, table in tables.items()
            if (table.get("feed") and table["feed"] not in found["feeds"])
            or any(source not in names for source in table["sources"] if source != name)
            or any(beside not in tables for beside in table.get("made_with", []))
        ]
        if not gone:
            return found
        for name in gone:
            del tables[name]


def order(project: Project) -> list[str]:
    """Tables after what they read; base tables of feeds that nothing else takes come first."""
    found: list[str] = [name for name in project["feeds"] if name in bases(project)]
    waiting = dict(project["tables"])
    while waiting:
        ready = [
            name
            for name, table in waiting.items()
            if table.get("feed") or all(source in found or source == name for source in table["sources"])
        ]
        assert ready, f"a circle: {sorted(waiting)}"
        for name in ready:
            found.append(name)
            del waiting[name]
    return found


def bases(project: Project) -> set[str]:
    """Feeds that have a table of their own name: all that no other table takes the rows of."""
    taken = {table["feed"] for table in project["tables"].values() if table.get("feed")}
    return set(project["feeds"]) - taken


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        value = spark_text(value)
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(one) for one in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml(key)} = {toml(one)}" for key, one in value.items()) + " }"
    return str(value)


def ddl(columns: Any) -> str:
    return ", ".join(f"{spark_text(token(name))} {kind}" for name, kind in columns)


def texts(project: Project) -> dict[str, str]:
    """The files of the project: {name: text}."""
    lines = ['name = "drawn"', f"zone = {toml(project['zone'])}"]
    if project.get("run"):
        lines += ["", "[run]", *(f"{key} = {toml(value)}" for key, value in project["run"].items())]
    for name, feed in project["feeds"].items():
        lines += ["", f"[feeds.{name}]", f'path = "landing/{name}/{pattern(feed)}"', f"format = {toml(feed['format'])}"]
        if feed["declared"]:
            lines.append(f"columns = {toml(ddl(feed['columns']))}")
        if feed["time"]:
            lines.append(f"time = {toml(feed['time'])}")
        if feed["mode"] != "append":
            lines.append(f"mode = {toml(feed['mode'])}")
        lines += [f"{key} = {toml(value)}" for key, value in feed["settings"].items()]
    found = {"penstock.toml": "\n".join(lines) + "\n"}
    for name, table in project["tables"].items():
        if table["kind"] == "keyed":
            continue  # its feed brings it
        if table["kind"] == "flow":
            if table["flow"] is not None:
                found[f"tables/{name}_flow.py"] = table["flow"]
        elif table["kind"] == "python":
            found[f"tables/{name}.py"] = _python(name, table)
        else:
            found[f"tables/{name}.sql"] = _sql(name, table)
    return found


def pattern(feed: Mapping[str, Any]) -> str:
    """Which files of its folder are of a feed."""
    return str(feed.get("pattern") or f"*.{feed['format']}")


def header(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a table, as its author writes them."""
    found: dict[str, Any] = {}
    if table.get("feed"):
        found["feed"] = table["feed"]
    if table["grain"] != "none":
        found["partition"] = table["grain"]
    if table["time"] and not table.get("feed"):
        found["time"] = table["time"]
    relations = {source: relation for source, relation in table["sources"].items() if relation}
    if relations:
        found["sources"] = relations
    return found | table["settings"]


def _sql(name: str, table: Mapping[str, Any]) -> str:
    lines = [f"-- {key} = {toml(value)}" for key, value in header(name, table).items()]
    return "\n".join([*lines, spark_text(table["text"])]) + "\n"


def _python(name: str, table: Mapping[str, Any]) -> str:
    arguments = ", ".join(f"{key}={value!r}" for key, value in header(name, table).items())
    parameters = [*table["sources"], *(["partition"] if "partition.start" in table["python"] else [])]
    decorator = "base_table" if table.get("feed") else "table"
    if table.get("feed"):
        parameters = ["rows"]
    return (
        "import penstock as ps\nfrom pyspark.sql import functions as F\n\n\n"
        f"@ps.{decorator}({arguments})\ndef {name}({', '.join(parameters)}):\n    {table['python']}\n"
    )


def write_project(project: Project, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "tables", ignore_errors=True)
    (folder / "tables").mkdir()
    for feed in project["feeds"]:
        (folder / "landing" / feed).mkdir(parents=True, exist_ok=True)
    for name, text in texts(project).items():
        (folder / name).write_text(text, encoding="utf-8")


def declare(project: Project, action: Mapping[str, Any]) -> None:
    """Carry out a change of the declarations."""
    what = action["do"]
    if what == "table":
        if action["table"] is None:
            project["tables"].pop(action["name"], None)
        else:
            project["tables"][action["name"]] = copy.deepcopy(action["table"])
    elif what == "table setting" and action["name"] in project["tables"]:
        _set(project["tables"][action["name"]]["settings"], action)
    elif what == "feed setting" and action["name"] in project["feeds"]:
        _set(project["feeds"][action["name"]]["settings"], action)
    elif what == "grain" and action["name"] in project["tables"]:
        table = project["tables"][action["name"]]
        table["grain"] = action["value"]
        table["sources"] = {source: action["relations"].get(source) for source in table["sources"]}
    elif what == "feed" and action["feed_"] is None:
        project["feeds"].pop(action["name"], None)
    elif what == "feed":
        project["feeds"][action["name"]] = copy.deepcopy(action["feed_"])
    elif what == "feed fields" and action["name"] in project["feeds"]:
        project["feeds"][action["name"]].update(copy.deepcopy(action["fields"]))
    elif what == "tables":
        project["tables"].update(copy.deepcopy(action["tables"]))
    elif what == "relations" and action["name"] in project["tables"]:
        project["tables"][action["name"]]["sources"].update(action["relations"])
    elif what == "zone":
        project["zone"] = action["value"]
    elif what == "run setting":
        _set(project.setdefault("run", {}), action)


def _set(settings: dict[str, Any], action: Mapping[str, Any]) -> None:
    if action["value"] is None:
        settings.pop(action["key"], None)
    else:
        settings[action["key"]] = action["value"]
