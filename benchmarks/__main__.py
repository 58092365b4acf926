"""`make bench`: every benchmark, as a table and as JSON. Name suites to run only those: `python -m benchmarks core`."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SUITES = ("core", "requests", "files", "simulator", "updates", "bulk", "flowplan", "flows", "queries", "live")
RESULTS = Path("bench-results") / "results.json"


def main(names: list[str]) -> None:
    # Into a file goes all of every column.
    console = Console(width=None if sys.stdout.isatty() else 220)
    rows: list[dict[str, object]] = []
    for name in names or SUITES:
        console.print(f"[bold]{name}[/] …")
        found = import_module(f"benchmarks.{name}").run()
        rows += [{"suite": name, **row} for row in found]
        console.print(_table(found))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=1))
    console.print(f"written to {RESULTS}")
    beyond = [row for row in rows if is_beyond(row)]
    for row in beyond:
        console.print(
            f"[red]beyond its limit[/]: {row['suite']}, {row['benchmark']} (limit {row.get('limit', 'as its columns say')})"
        )
    sys.exit(1 if beyond else 0)


def is_beyond(row: dict[str, Any]) -> bool:
    """Rows name what they measure as they like: it is what has a limit, at most or (a speed) at least."""
    if row.get("passed") is False or row.get("same_rows") is False:
        return True
    if "limit" not in row:
        return False
    speed = row.get("events_per_s")
    if speed is not None:
        return bool(speed < row["limit"])
    return bool(row.get("value", row.get("ratio")) > row["limit"])


def _table(rows: list[dict[str, object]]) -> Table:
    """One suite's, with the columns that it has."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        table.add_column(column, justify="left" if column in ("benchmark", "against", "policy") else "right")
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in columns))
    return table


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main(sys.argv[1:])
