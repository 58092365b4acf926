"""Policies from a project: its `policies.py`, whose functions and classes are registered by name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from penstock.errors import PenstockError

_loaded: dict[Path, float] = {}


def load_policies(folder: Path) -> None:
    """Import `policies.py` of a folder, if there is one and it is not known already."""
    path = (folder / "policies.py").resolve()
    if not path.is_file():
        return
    changed = path.stat().st_mtime
    if _loaded.get(path) == changed:
        return
    name = f"penstock_project_policies_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PenstockError(f"{path}: {type(error).__name__}: {error}") from error
    _loaded[path] = changed
