"""The log: what happened, in words and fields, in files that do not grow."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.declare.config import LogConfig
from penstock.engine import log
from tests.engine.crashing import DELIVERIES, Site, make_site

BROKEN = "severity FROM", "CAST(router AS INT) AS severity FROM"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return make_site(tmp_path, monkeypatch)


def worked(site: Site, config: LogConfig) -> Path:
    """Some updates, a file that is set aside, a view that fails."""
    broken = site.folder / "tables" / "severe.sql"
    broken.write_text(broken.read_text().replace(*BROKEN))
    state = site.folder / ".penstock"
    with log.written(config, state), site.running() as process:
        for files in DELIVERIES:
            site.deliver(files)
            process.run(until_idle=True)
    return state


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_happened_is_there_with_its_fields(site: Site, form: str) -> None:
    state = worked(site, LogConfig(format=form, level="debug"))
    found = list(log.lines(state))
    assert len(found) == len((state / log.FILE).read_text().splitlines())
    begun = [line for line in found if line.get("event") == "update-started"]
    done = [line for line in found if line.get("event") == "update-finished"]
    assert {line["table"] for line in done} == {"stats", "alerts", "routers", "hourly", "daily", "context", "lifetime"}
    assert {line["job"] for line in done} < {line["job"] for line in begun}
    assert all(line["level"] == "info" and line["seconds"] >= 0 and line["rows"] >= 0 for line in done)
    failed = [line for line in found if line.get("event") == "update-failed"]
    assert failed and all(line["table"] == "severe" and line["level"] == "error" and line["error"] for line in failed)
    (aside,) = [line for line in found if line.get("event") == "file-quarantined"]
    assert aside["feed"] == "stats" and aside["file"].endswith("broken.csv") and "missing ts" in aside["reason"]
    assert [line["event"] for line in found if line.get("event", "").startswith("run-")] == [
        "run-started",
        "run-stopped",
    ]


def test_less_is_logged_if_less_is_wanted(site: Site) -> None:
    state = worked(site, LogConfig(level="warning"))
    assert {line["level"] for line in log.lines(state)} == {"warning", "error"}


def test_it_is_rotated_and_read_across_files(site: Site) -> None:
    state = worked(site, LogConfig.model_construct(size=2_000, keep=100))
    files = sorted(path.name for path in state.glob("penstock.log*"))
    assert len(files) > 3 and all((state / name).stat().st_size <= 2_000 for name in files)
    found = list(log.lines(state))
    assert [line["at"] for line in found] == sorted(line["at"] for line in found)
    assert found[0]["event"] == "run-started" and found[-1]["event"] == "run-stopped"
    with log.written(LogConfig.model_construct(size=2_000, keep=2), site.folder):
        for number in range(100):
            logging.getLogger("penstock").info("line %s of many that are long enough", number)
    assert sorted(path.name for path in site.folder.glob("penstock.log*")) == [
        "penstock.log",
        "penstock.log.1",
        "penstock.log.2",
    ]
    assert [line["message"] for line in log.lines(site.folder)][-1].startswith("line 99 ")


def test_a_file_that_another_process_writes_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / log.SPARK_FILE
    with path.open("ab", buffering=0) as other:
        for number in range(4):
            other.write(b"%d" % number * 100)
            log.keep_small(path, 50, 2)
            assert path.stat().st_size == 0
        other.write(b"more")
    log.keep_small(path, 50, 2)
    assert path.read_bytes() == b"more"
    assert [(tmp_path / f"spark.log.{n}").read_bytes()[:1] for n in (1, 2)] == [b"3", b"2"]
    assert len(list(tmp_path.iterdir())) == 3


def test_why_it_ends(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="odd"), log.written(LogConfig(format="json"), tmp_path):
        raise ValueError("odd: postgresql://me:secret@there/db")
    (line,) = log.lines(tmp_path)
    assert line["level"] == "error" and "odd" in line["message"] and "ValueError" in line["traceback"]
    assert "secret" not in (tmp_path / log.FILE).read_text()
    assert logging.getLogger("penstock").level == logging.NOTSET


def test_a_full_disk_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / log.FILE).symlink_to("/dev/full")
    with log.written(LogConfig(), tmp_path):
        logging.getLogger("penstock").warning("nobody will read it")
    assert capsys.readouterr().err == ""


def test_the_command(site: Site) -> None:
    worked(site, LogConfig())

    def logs(*words: str) -> str:
        return CliRunner().invoke(app, ["logs", "-p", str(site.folder), *words]).stdout

    assert "hourly: " in logs() and "severe: failed: " in logs()
    assert all(line.split()[1] == "daily:" for line in logs("daily").splitlines()) and logs("daily")
    assert len(logs("--last", "2").splitlines()) == 2
    (aside,) = [json.loads(line) for line in logs("stats", "--level", "warning", "--json").splitlines()]
    assert aside["event"] == "file-quarantined"
    (site.folder / ".penstock" / log.FILE).unlink()
    told = CliRunner().invoke(app, ["logs", "-p", str(site.folder)])
    assert told.exit_code == 0 and "nothing is logged" in told.stderr
