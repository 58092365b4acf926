"""`penstock docs build`: every table has its page, every link leads somewhere, and a search finds words."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

from typer.testing import CliRunner

from penstock.cli.main import application

TOML = """
name = "shop"
[feeds.orders]
path = "landing/*.csv"
format = "csv"
columns = "id bigint, at timestamp, price double"
time = "at"
partition = "day"
owner = "desk"
rules = ["price < 1000"]
"""
DAILY = """-- What was sold, day by day <b>.
-- partition = "day"
-- time = "day"
-- owner = "finance"
-- tags = ["money", "daily"]
SELECT date_trunc('day', at) AS day, sum(price) AS revenue FROM orders GROUP BY 1
"""


def build(project: Path, folder: Path, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(application(), ["docs", "build", str(folder), "-p", str(project), *more])
    return result.exit_code, result.output


def test_every_table_has_its_page(tmp_path: Path) -> None:
    project, site = tmp_path / "shop", tmp_path / "site"
    (project / "tables").mkdir(parents=True)
    (project / "penstock.toml").write_text(TOML)
    (project / "tables" / "daily.sql").write_text(DAILY)
    code, said = build(project, site, "--json")
    assert code == 0, said
    assert {"index.html", "search.js", "style.css", "tables/daily.html", "tables/orders.html"} <= set(
        json.loads(said)["files"]
    )
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"]+)"', page.read_text()):
            assert (page.parent / unquote(unescape(target))).exists(), (page, target)
    daily = (site / "tables" / "daily.html").read_text()
    assert "What was sold, day by day &lt;b&gt;." in daily and "orders.price" in daily
    assert "finance" in daily and "money" in (site / "index.html").read_text()
    assert "price &lt; 1000" in (site / "tables" / "orders.html").read_text()
    assert '"w": "daily what was sold' in (site / "search.js").read_text()

    # Built again, what is gone is gone; a folder of somebody else is left alone.
    (project / "tables" / "daily.sql").unlink()
    assert build(project, site)[0] == 0 and not (site / "tables" / "daily.html").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    code, said = build(project, tmp_path / "mine")
    assert code == 1 and "was not made by this command" in said
