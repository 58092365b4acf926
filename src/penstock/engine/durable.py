"""What must survive a loss of power."""

from __future__ import annotations

import os
from pathlib import Path


def to_disk(path: str | Path) -> None:
    """A file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
