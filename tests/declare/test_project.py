"""How a project's folder is read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.declare.project import read_project
from penstock.declare.warehouse import Definitions

from .conftest import FEEDS, Write

Load = Callable[[dict[str, str]], Definitions]


def test_a_feed_has_a_base_table(load: Load) -> None:
    warehouse = load({})
    stats = warehouse.definitions["stats"]
    assert (stats.table.feed, stats.table.partition, stats.time) == ("stats", "hour", "ts")
    assert [column.name for column in stats.schema or ()] == ["router", "ts", "bytes", "place"]
    assert warehouse.graph.periods_us["stats"] == 300_000_000
    assert stats.how == "appended: rows of new files are added"
    assert warehouse.definitions["sites"].how == "replaced: each file states the table anew"


def test_declarations_made_in_a_loop_by_a_helper(load: Load) -> None:
    warehouse = load(
        {
            "tables/many.py": """
            import penstock as ps
            from helpers import copy_of
            for region in ("eu", "us"):
                ps.feed(f"alerts_{region}", path=f"landing/{region}/*.json", format="json")
            copy_of("stats")
            copy_of("sites")
            """,
            # Read by itself too, and then declares nothing of its own.
            "tables/helpers.py": """
            import penstock as ps
            def copy_of(name):
                source = {"stats": lambda stats: stats, "sites": lambda sites: sites}[name]
                return ps.table(name=f"{name}_copy")(source)
            """,
        }
    )
    assert {"alerts_eu", "alerts_us", "stats_copy", "sites_copy"} <= warehouse.definitions.keys()
    assert str(warehouse.definitions["sites_copy"].declaration.where) == "tables/many.py:6"
    assert not any("helpers" in name for name in sys.modules if name == "helpers")


def test_a_declaration_can_be_called_and_imported_by_others(load: Load) -> None:
    warehouse = load(
        {
            "tables/one.py": "import penstock as ps\n@ps.table\ndef one(stats):\n    'About one.'\n    return stats",
            "tables/two.py": "import penstock as ps\nfrom one import one\n@ps.table(priority=2)\ndef two(stats):\n    return one(stats)",
        }
    )
    two = warehouse.definitions["two"].declaration
    assert two("rows") == "rows"
    assert warehouse.definitions["one"].declaration.description == "About one."
    assert set(warehouse.definitions) == {"one", "two", "stats", "sites"}


@pytest.mark.spark
def test_functions_reach_the_workers_of_spark(load: Load, spark: SparkSession) -> None:
    """Workers cannot import the project's modules, so the functions themselves are sent."""
    text = """
    import penstock as ps
    from pyspark.sql.functions import udf
    from helpers import twice

    def once_more(value):
        return twice(value) + 1

    @ps.table
    def doubled(stats):
        return stats.select(udf(once_more, "long")("id").alias("n"))
    """
    helpers = "OFFSET = 0\ndef twice(value):\n    return 2 * value + OFFSET\n"
    warehouse = load({"tables/doubled.py": text, "tables/helpers.py": helpers})
    rows = warehouse.definitions["doubled"].declaration(spark.range(3).coalesce(1))
    assert [row.n for row in rows.collect()] == [1, 3, 5]


def test_projects_with_helpers_of_the_same_name(tmp_path: Path) -> None:
    def made(folder: str, name: str) -> str:
        place = tmp_path / folder / "tables"
        place.mkdir(parents=True)
        (place.parent / "penstock.toml").write_text(FEEDS)
        (place / "shared.py").write_text(f"NAME = {name!r}\n")
        (place / "use.py").write_text(
            "import penstock as ps\nfrom shared import NAME\n@ps.table(name=NAME)\ndef x(stats): ...\n"
        )
        return next(table.name for table in read_project(place.parent).tables if table.function is not None)

    assert (made("p", "of_p"), made("q", "of_q")) == ("of_p", "of_q")


def test_hidden_files_and_others_are_left_alone(load: Load) -> None:
    load({"tables/.x.sql": "nonsense", "tables/__pycache__/y.sql": "nonsense", "tables/notes.md": "# Notes"})


def test_where_things_are(project: Write) -> None:
    declarations = read_project(project({"penstock.toml": FEEDS + '[store]\nurl = "sqlite:///state/my.db"\n'}))
    folder = declarations.folder
    assert declarations.store_url == f"sqlite:///{folder}/state/my.db"
    assert declarations.data_path == f"{folder}/warehouse"
    assert declarations.state_folder == folder / ".penstock"


def test_settings_of_spark_are_flat_names(project: Write) -> None:
    text = FEEDS + '[spark]\nmaster = "local[2]"\ndriver.memory = "2g"\n"spark.sql.adaptive.enabled" = true\n'
    assert read_project(project({"penstock.toml": text})).config.spark == {
        "master": "local[2]",
        "driver.memory": "2g",
        "spark.sql.adaptive.enabled": True,
    }
