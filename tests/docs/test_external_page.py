"""The tour of the page about tables that others make: the files that it shows, its commands as processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from duckdb_extensions import import_extension

from tests.docs.test_docs import ROOT, commands, write_files
from tests.engine.test_kill import QUICK_START
from tests.waiting import LONG_S

PAGE = ROOT / "docs/external.md"
# What differs from run to run: how long ago, until when.
_VARIES = re.compile(r"[\d.]+(?:ms|s|m)(?: \d+s)?\s{2,}\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?")


def lines(text: str) -> list[list[str]]:
    text = re.sub(r", \d+d[^,\n]* ago$", "", _VARIES.sub("…", text), flags=re.MULTILINE)
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


@pytest.mark.spark
def test_the_tour(tmp_path: Path) -> None:
    for name in ("ducklake", "sqlite_scanner"):
        import_extension(name)
    write_files(PAGE, tmp_path)
    with (tmp_path / "penstock.toml").open("a") as toml:
        toml.write(QUICK_START)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/one.csv").write_text(
        "router,ts,bytes\na,2024-03-01 10:05:00,10\nb,2024-03-01 10:25:00,30\nend,2024-03-02 00:00:00,0\n"
    )
    bin_ = str(Path(sys.executable).parent)
    environment = {**os.environ, "COLUMNS": "300", "NO_COLOR": "1", "PATH": f"{bin_}:{os.environ['PATH']}"}
    for words, output in commands(PAGE):
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONG_S)
        assert done.returncode == 0, done.stdout + done.stderr
        if "--quiet" not in words:
            assert lines(done.stdout) == lines(output), " ".join(words)
