"""Settings that a command writes into penstock.toml for the user: only their own lines change."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from penstock.declare.config import FILE_NAME
from penstock.declare.problems import key_lines


def write_settings(folder: Path, section: str, settings: Mapping[str, str | int]) -> Path:
    """Set keys of a section, and give back which file it was."""
    path = folder / FILE_NAME
    text = path.read_text()
    for key, value in settings.items():
        text = _with(text, section, key, json.dumps(value, ensure_ascii=False))
    tomllib.loads(text)  # rather an error than a file that cannot be read any more
    part = path.with_name(f".{path.name}.part")  # rather the old file than half of the new one
    part.write_text(text)
    part.replace(path)
    return path


def _with(text: str, section: str, key: str, value: str) -> str:
    lines = text.split("\n")
    found = key_lines(text)
    if (section, key) in found:
        number = found[section, key] - 1
        name, _, _ = lines[number].partition("=")
        comment = re.search(r"\s+#[^\"']*$", lines[number])
        lines[number] = f"{name.rstrip()} = {value}{comment[0] if comment else ''}"
        return "\n".join(lines)
    header = next((n for n, old in enumerate(lines) if re.fullmatch(rf"\s*\[\s*{section}\s*\]\s*(#.*)?", old)), None)
    if header is not None:
        lines.insert(header + 1, f"{key} = {value}")
        return "\n".join(lines)
    return text.rstrip("\n") + f"\n\n[{section}]\n{key} = {value}\n"
