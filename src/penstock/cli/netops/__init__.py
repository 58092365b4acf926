"""The demo's project (`project/`) and the feeds that it follows."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable


def netops_project() -> Traversable:
    return files(__package__) / "project"
