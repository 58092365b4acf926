"""The archive of Java's classes in the cache folder: left by one process, used by the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engine.spark.machine import archive_options

JAVA = 'openjdk version "17.0.1"'


def test_one_process_leaves_it_and_the_next_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("PENSTOCK_CACHE", str(folder))
    assert archive_options(JAVA, False) == "" and not folder.exists()
    first = archive_options(JAVA, True).split()[0]
    left = Path(first.removeprefix("-XX:ArchiveClassesAtExit="))
    assert left.parent == folder and left.suffix == f".{os.getpid()}"

    def leave(content: bytes, age_s: int, pid: str = str(_dead())) -> None:
        place = left.with_suffix(f".{pid}")
        place.write_bytes(content)
        os.utime(place, (place.stat().st_mtime - age_s,) * 2)

    leave(b"\xa8\xba\x0b\xf0classes", 3)  # it may not be whole yet
    assert archive_options(JAVA, False) == ""
    leave(b"\xa8\xba\x0b\xf0classes", 60, str(os.getpid()))  # who leaves it is alive
    assert archive_options(JAVA, False) == ""
    leave(b"\0\0\0\0clas", 60)  # it was killed meanwhile
    assert archive_options(JAVA, False) == "" and [path.suffix for path in folder.iterdir()] == [f".{os.getpid()}"]
    leave(b"\xa8\xba\x0b\xf0classes", 60)
    archive = left.with_suffix("")
    for leaves_one in (True, False):
        assert archive_options(JAVA, leaves_one).split()[0] == f"-XX:SharedArchiveFile={archive}"
    assert archive.read_bytes().endswith(b"classes") and archive_options("another", False) == ""


def test_what_nobody_used_for_long_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    for name, age_s in (("spark-old.jsa", 40 * 86_400), ("spark-new.jsa", 86_400), ("mine", 40 * 86_400)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ((tmp_path / name).stat().st_mtime - age_s,) * 2)
    assert archive_options(JAVA, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "spark-new.jsa"]


@pytest.mark.parametrize("folder", ["", "with space"])
def test_where_there_is_no_place_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", folder and str(tmp_path / folder))
    assert archive_options(JAVA, True) == "" and not any(tmp_path.iterdir())


def _dead() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid
