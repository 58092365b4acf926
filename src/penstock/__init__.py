"""Penstock keeps a Spark warehouse fresh: declare tables, feed files, watch them propagate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.declare.api import base_table, external, feed, table
from penstock.declare.flow import flow
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.app import Warehouse

__version__ = "0.1.0"
__all__ = ["PenstockError", "Warehouse", "base_table", "external", "feed", "flow", "table"]


def __getattr__(name: str) -> Any:
    # Declaring tables must not cost the import of Spark.
    if name == "Warehouse":
        from penstock.app import Warehouse

        return Warehouse
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
