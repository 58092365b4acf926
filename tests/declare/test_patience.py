"""How long late work may wait: of a table, or of all under [run]."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.declare.project import read_project
from penstock.declare.warehouse import check_project
from penstock.model.time import MINUTE_US

PROJECT = {
    "penstock.toml": """
        name = "small"
        [run]
        patience = "10m"
        late_cost = 30.0
        [feeds.rows]
        path = "landing/*.csv"
        format = "csv"
        columns = "n bigint"
        restated = "Mon, Thu 02:00..02:30"
        """,
    "landing/a.csv": "n\n1\n",
    "tables/all_rows.sql": "SELECT count(*) AS n FROM rows",
    "tables/urgent.sql": "-- priority = 2.0\nSELECT min(n) AS n FROM rows",
    "tables/at_once.sql": "-- patience = '0s'\n-- late_cost = 7.0\nSELECT max(n) AS n FROM rows",
}


def test_a_table_says_it_or_the_project_does(project: Callable[[dict[str, str]], Path]) -> None:
    warehouse, problems = check_project(read_project(project(PROJECT)))
    assert [str(problem) for problem in problems if problem.severity == "error"] == [] and warehouse is not None
    tables = {name: definition.table for name, definition in warehouse.definitions.items()}
    assert tables["all_rows"].patience_us == 10 * MINUTE_US
    assert tables["at_once"].patience_us == 0
    costs = {name: table.late_cost for name, table in tables.items()}
    assert costs == {"rows": 30.0, "all_rows": 30.0, "urgent": 60.0, "at_once": 7.0}
    assert str(tables["rows"].timetable) == "Mondays and Thursdays 02:00"
    assert warehouse.graph.restated == {"all_rows": {"rows"}, "urgent": {"rows"}, "at_once": {"rows"}}
