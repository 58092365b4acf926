"""Projects that earlier commits left go on: whatever the format of the store, and whatever the policy was called."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.declarations import restored_controller, restored_state
from penstock.scheduling.policies import DEFAULT
from penstock.store.store import Store
from tests.engine.crashing import DELIVERIES, Site, check, make_site
from tests.engine.older import names, unpack
from tests.engine.test_crash_backfill import requesting
from tests.tables.conftest import DAY_US


@pytest.fixture(params=names())
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    site, place = make_site(tmp_path, monkeypatch), tmp_path / "older"
    place.mkdir()
    unpack(request.param, place)
    site.replace_by(place)
    site.clock.pass_by(5 * 365 * DAY_US)  # to after it was written
    settings = (
        site.folder / "penstock.toml"
    )  # a name in the settings is told with its line; here it is about what is stored
    settings.write_text("".join(line for line in settings.read_text().splitlines(True) if "policy" not in line))
    return site


def test_a_project_of_an_earlier_commit_goes_on(site: Site) -> None:
    with site.running() as process:
        process.run(until_idle=True)
        for files in DELIVERIES[1:]:
            site.deliver(files)
            process.run(until_idle=True)
        error = process.controller.state.tables["stats"].error
        if error is not None:  # a corrected file, whose rows nobody can find
            assert "type `penstock backfill stats all`" in error
            now_us = site.clock.now_us()
            requesting(site, process.store).backfill(restored_state(process.store), "stats", "all", now_us)
            process.run(until_idle=True)
    check(site)


def test_a_name_that_is_no_longer_known_is_told(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """The last one that ran it may have gone by a policy that has another name now, or none."""
    store = Store(site.warehouse.declarations.store_url)
    try:
        store.create()
        with store.write() as conn:
            conn.exec_driver_sql(
                "UPDATE penstock_event SET body = json_set(body, '$.policy', 'mine(3)') WHERE kind = 'warehouse-declared'"
            )
            conn.exec_driver_sql("UPDATE penstock_state SET body = json_set(body, '$.policy', 'mine(3)')")
        assert restored_controller(store).state.policy == DEFAULT
    finally:
        store.close()
    assert "policy = 'mine(3)', which is no longer known" in caplog.text
