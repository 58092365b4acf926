"""Policies of a project's own: `policies.py` beside penstock.toml (or beside a scenario), imported before names of policies
are looked up. What it registers is then known by name."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path

from penstock.declare.problems import Location, Problem, ProjectError

POLICIES_FILE = "policies.py"
_loaded: dict[Path, str] = {}


def load_policies(folder: Path) -> None:
    """Import the policies of a folder, if it has any and they are not known already."""
    path = (folder / POLICIES_FILE).resolve()
    if not path.is_file():
        return
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    if _loaded.get(path) == content:
        return
    # One name a path: a changed file takes the place of what it registered before.
    name = f"penstock_policies_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = frames[-1].lineno if frames and frames[-1].lineno else getattr(error, "lineno", None) or 1
        message = f"{type(error).__name__}: {error}"
        raise ProjectError([Problem(Location(POLICIES_FILE, line), message)]) from None
    _loaded[path] = content
