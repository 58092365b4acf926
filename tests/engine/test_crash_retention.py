"""What expiry leaves can be read: also the newest version of a table that nothing has changed for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model.time import DAY_US
from tests.engine.crashing import DELIVERIES, Site, check, make_site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return make_site(tmp_path, monkeypatch)


def test_tables_that_did_not_change_for_a_month_are_still_there(site: Site) -> None:
    site.work()
    edges = check(site)
    site.clock.pass_by(30 * DAY_US)
    site.work([{"routers/r3.csv": "router,site\na,west\nb,east\n"}])
    assert check(site) == edges
    site.work([{**DELIVERIES[1], "stats/s0.csv": DELIVERIES[0]["stats/s1.csv"]}])
    assert check(site) == edges
