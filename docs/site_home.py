"""For `make docs`: the README is the first page, and what links to folders or to the README leads to a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: Any) -> Files:
    text = (_ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    decisions = sorted(file.name for file in (_ROOT / "docs" / "decisions").glob("*.md"))
    up = "../" * page.file.src_uri.count("/")
    return (
        markdown.replace("](decisions/)", f"](decisions/{decisions[0]})")
        .replace("](ideas/)", "](ideas/README.md)")
        .replace("](../README.md)", f"]({up}index.md)")
    )
