"""The documentation as a site: no link and no anchor leads nowhere, and every page is in its menu."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_link_leads_nowhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}
    assert {page.with_suffix(".html") for page in pages if page.name != "README.md"} <= {
        page.relative_to(tmp_path / "site") for page in (tmp_path / "site").rglob("*.html")
    }
    assert "A tour of one minute" in (tmp_path / "site" / "index.html").read_text()
    menu = (ROOT / "mkdocs.yml").read_text()
    assert not [str(page) for page in pages if f"- {page}\n" not in menu], "pages that the menu of mkdocs.yml lacks"
