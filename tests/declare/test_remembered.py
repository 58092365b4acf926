"""What was understood before is what would be understood now."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.declare import define
from penstock.declare.analysis_cache import Remembered
from penstock.declare.project import read_project
from penstock.declare.warehouse import check_project
from tests.conftest import Write

PROJECT = {
    "penstock.toml": """
        name = "p"
        [feeds.f]
        path = "landing/*.csv"
        format = "csv"
        columns = "k string, at timestamp, v double"
        time = "at"
        partition = "hour"
    """,
    "tables/sums.sql": """\
        -- partition = "hour"
        -- time = "at"
        SELECT k, date_trunc('hour', at) AS at, sum(v) AS v FROM f GROUP BY k, date_trunc('hour', at)
    """,
    "tables/late.sql": "SELECT k, v, now() AS made FROM sums\n",
    "landing/readme": "",
    ".penstock/lock": "",
}


def understood(folder: Path) -> tuple[Any, list[Any], int]:
    """The definitions, what is wrong, and how many views had to be analysed."""
    analysed, count = define.analyse, []

    def counted(*args: Any, **more: Any) -> Any:
        count.append(args)
        return analysed(*args, **more)

    counted.__qualname__ = analysed.__qualname__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(define, "analyse", counted)
        warehouse, problems = check_project(read_project(folder))
    return dict(warehouse.definitions) if warehouse is not None else None, problems, len(count)


def test_the_same_is_understood_from_what_is_kept(project: Write) -> None:
    folder = project(PROJECT)
    first, told, count = understood(folder)
    again, told_again, none = understood(folder)
    assert (count, none) == (2, 0)
    assert again == first and told_again == told and len(told) == 1
    assert first is not None
    for name in ("sums", "late"):
        view, kept = first[name].view, again[name].view
        assert kept.parsed.sql == view.parsed.sql and "parsed" in kept.__dict__
        assert [output.name for output in kept.query.outputs] == [output.name for output in view.query.outputs]


def test_what_changes_is_understood_anew(project: Write) -> None:
    folder = project(PROJECT)
    understood(folder)
    sql = (folder / "tables/sums.sql").read_text()
    (folder / "tables/sums.sql").write_text(sql.replace("AS v", "AS total"))
    _, told, count = understood(folder)
    # The one that reads it, too, as the columns are others.
    assert count == 2 and any("`v`" in problem.message for problem in told)
    (folder / "tables/sums.sql").write_text(sql)
    definitions, _, count = understood(folder)
    assert definitions is not None and count in (1, 2)
    # Only what the last one needed is kept.
    (folder / "tables/late.sql").unlink()
    understood(folder)
    (folder / "tables/late.sql").write_text(PROJECT["tables/late.sql"])
    assert understood(folder)[2] == 1


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


@pytest.mark.parametrize("content", [b"", b"nonsense", pickle.dumps(Evil()), pickle.dumps(("v", {})), pickle.dumps(7)])
def test_a_file_that_is_not_ours_is_as_none(project: Write, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    folder = project(PROJECT)
    expected = understood(folder)[0]
    monkeypatch.chdir(folder)
    (folder / ".penstock/understood").write_bytes(content)
    assert understood(folder)[::2] == (expected, 2)
    assert understood(folder)[::2] == (expected, 0)
    assert not (folder / "evil").exists()


def test_nothing_is_kept_where_nothing_may_be_written(project: Write) -> None:
    folder = project({name: text for name, text in PROJECT.items() if not name.startswith(".penstock")})
    understood(folder)
    assert not (folder / ".penstock").exists()
    Remembered(folder / "landing/readme/understood").keep()


def test_before_a_project_has_a_state_folder_the_users_cache_keeps_it(
    project: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("PENSTOCK_CACHE", str(cache))
    folder = project({name: text for name, text in PROJECT.items() if not name.startswith(".penstock")})
    expected = understood(folder)[0]
    (old := cache / "understood-old").touch()
    os.utime(old, (0, 0))
    assert understood(folder)[::2] == (expected, 0)
    assert not (folder / ".penstock").exists() and not old.exists()
    assert [path.name.split("-")[0] for path in cache.iterdir()] == ["understood"]
    # It is for nobody else to read, and not needed where it cannot be written.
    assert cache.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("PENSTOCK_CACHE", str(folder / "penstock.toml"))
    assert understood(folder)[::2] == (expected, 2)
