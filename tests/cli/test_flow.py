"""`penstock flow plan` from the command line."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from penstock.app import Warehouse
from penstock.cli.flow import EXAMPLES, bars
from penstock.cli.main import app
from penstock.engine.flows.progress import FlowProgress, StepProgress
from penstock.flows.archetypes import ARCHETYPES
from penstock.flows.composites import COMPOSITES
from penstock.flows.graph import NodeKind
from penstock.flows.report import ActivityRun, FlowReport, StepRun
from penstock.sim.figure import draw_run, layout
from tests.conftest import Write

run = CliRunner().invoke


def test_a_plan_for_people() -> None:
    shown = run(app, ["flow", "plan", "fork"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "in memory, 275 MB: l_orderkey" in shown.output
    assert "held in memory at the most: 275 MB, the least possible for these steps" in shown.output
    assert "40% less than computing each target on its own" in shown.output


def test_a_plan_for_machines() -> None:
    found = json.loads(run(app, ["flow", "plan", "butterfly", "--json"]).output)
    assert [len(stratum) for stratum in found["strata"]] == [2, 2, 2, 1, 3, 2, 2, 2]
    steps = {step["name"]: step for step in found["steps"]}
    assert steps["join_table"]["stages"][0]["place"] == "target"
    assert steps["view_2"]["after"] == ["view_1"] and steps["view_2"]["start_us"] >= steps["view_1"]["end_us"]
    less = json.loads(run(app, ["flow", "plan", "fork", "--memory", "100", "--json"]).output)
    assert less["peak_bytes"] == 0 and less["disk_bytes"] > 100e6


def test_a_flow_of_the_project(project: Write) -> None:
    folder = project(
        {
            "penstock.toml": """
                name = "shop"
                [feeds.orders]
                path = "landing/orders-*.csv"
                format = "csv"
                columns = "product bigint, region string, amount double, note string"
                mode = "snapshot"
            """,
            "tables/sales.py": """
                import penstock as ps


                @ps.flow
                def sales(orders):
                    good = orders.not_null("product").filter("amount > 0").derive(tax="amount * 0.2")
                    good.aggregate("product", tax="sum(tax)").into("tax_of_product")
                    good.aggregate("region", tax="max(tax)").into("tax_of_region")
                    good.aggregate(["product", "region"], tax="sum(tax)").into("tax")
            """,
            "landing/orders-1.csv": "product,region,amount,note\n1,a,2.0,x\n",
        }
    )
    told = run(app, ["flow", "plan", "sales", "--project", str(folder), "--json"])
    assert "sales has not run yet: rows are assumed" in told.stderr
    found = json.loads(told.stdout)
    first = found["steps"][0]
    assert first["stages"][0]["place"] == "memory" and first["stages"][0]["columns"] == ["product", "region", "tax"]
    assert {step["name"] for step in found["steps"][1:]} == {"tax_of_product", "tax_of_region", "tax"}
    # What a run measured is used: a filter that lets hardly anything through makes what is staged small.
    runs = (ActivityRun(first["nodes"][1], "not_null", "tax", 1_000_000, 10),)
    with Warehouse(folder) as warehouse, warehouse.store.write() as conn:
        warehouse.store.set_fact(conn, "flow sales", json.dumps(FlowReport("sales", "job", 1.0, runs, ()).dump()))
    again = json.loads(run(app, ["flow", "plan", "sales", "--project", str(folder), "--json"]).output)
    assert again["cost_us"] < found["cost_us"]
    wrong = run(app, ["flow", "plan", "sale", "--project", str(folder)])
    assert wrong.exit_code == 1 and "did you mean 'sales'" in wrong.output


def test_the_last_run_of_a_flow(project: Write) -> None:
    folder = project(
        {
            "penstock.toml": """
                name = "shop"
                [feeds.orders]
                path = "landing/orders-*.csv"
                format = "csv"
                columns = "product bigint, amount double"
                mode = "snapshot"
            """,
            "tables/sales.py": """
                import penstock as ps


                @ps.flow
                def sales(orders):
                    orders.not_null("product", bad="quarantine").into("sold")
            """,
            "landing/orders-1.csv": "product,amount\n1,2.0\n",
        }
    )
    place = ["--project", str(folder)]
    none_yet = run(app, ["flow", "show", "sales", *place])
    assert none_yet.exit_code == 1 and "has not run yet: type `penstock run`" in none_yet.output
    wrong = run(app, ["flow", "show", "sale", *place])
    assert wrong.exit_code == 1 and "did you mean 'sales'?" in wrong.output
    activities = (ActivityRun("not_null", "not_null", "sold", 1200, 1180, 20, "quarantine", 0.125),)
    steps = (StepRun("sold", 2.0, 0.5, 4_000_000, "memory", 3_000_000, reused=True),)
    report = FlowReport("sales", "job-7", 2.5, activities, steps, 3_000_000, 0)
    with Warehouse(folder) as warehouse, warehouse.store.write() as conn:
        warehouse.store.set_fact(conn, "flow sales", json.dumps(report.dump()))
    shown = run(app, ["flow", "show", "sales", *place], env={"COLUMNS": "160"}).output
    assert "1,200     1,180  20 (quarantine)        0.983  0.125 s" in shown
    assert "sold  2.00 s  0.50 s      4 MB    3 MB  memory (kept from an earlier try)" in shown
    assert (
        "job-7, on all rows: 2.50 s, 0.50 s of CPU, 20 rows rejected; staged at the most 3 MB in memory, 0 B on disk"
        in shown
    )
    told = json.loads(run(app, ["flow", "show", "sales", *place, "--json"]).output)
    assert told["activities"][0]["rejected"] == 20 and told["peak_memory_bytes"] == 3_000_000


def test_a_running_flow_for_people() -> None:
    steps = (StepProgress("sold", 3.0, 30, 120), StepProgress("items", 1.0, 0, 0))
    progress = FlowProgress("sales", "job-7", 2, 5, 12.4, steps, 275_000_000)
    assert progress.share == (2 + 30 / 120) / 5
    screen = Console(width=120, record=True, file=StringIO())
    screen.print(bars([progress]))
    shown = " ".join(screen.export_text().split())
    assert shown.startswith("sales") and "2 of 5 steps, 12 s" in shown
    assert "sold 30/120 tasks, items; 275 MB staged in memory" in shown


def test_a_plan_can_be_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "tree.svg"
    shown = run(app, ["flow", "plan", "tree", "--plot", str(picture)])
    assert shown.exit_code == 0, shown.output
    assert ET.parse(picture).getroot().tag.endswith("svg") and "sum_by_segment" in picture.read_text()


@pytest.mark.parametrize("name", (*ARCHETYPES, *COMPOSITES))
def test_no_box_covers_another_and_arrows_go_to_the_right(name: str) -> None:
    graph = EXAMPLES[name]()
    places = layout(graph)
    for provider, consumer in graph.edges:
        assert places[provider][0] < places[consumer][0]
    for one, (x, y) in places.items():
        assert all(x != to_x or abs(y - to_y) > 0.99 for other, (to_x, to_y) in places.items() if other != one)


def test_what_is_not_there_is_told() -> None:
    wrong = run(app, ["flow", "plan", "butter"])
    assert wrong.exit_code == 1 and "did you mean 'butterfly'" in wrong.output
    wrong = run(app, ["flow", "plan", "fork", "--plot", "fork.txt"])
    assert wrong.exit_code == 1 and "fork.svg" in wrong.output
    wrong = run(app, ["flow", "plan", "fork", "--order", "any"])
    assert wrong.exit_code == 1 and "known are least-peak, round-robin" in wrong.output


def test_the_last_run_is_drawn(tmp_path: Path) -> None:
    graph = ARCHETYPES["fork"]()
    runs = tuple(
        ActivityRun(node.name, "filter", node.name, 1000, 900, 100 if number == 0 else 0, "reject")
        for number, node in enumerate(n for n in graph.nodes if n.kind is NodeKind.ACTIVITY)
    )
    path = tmp_path / "run.svg"
    draw_run(path, graph, FlowReport("fork", "job-1", 1.0, runs, ()))
    drawn = path.read_text()
    assert "900" in drawn and "100 bad (reject)" in drawn
