"""Versioned tables: Parquet files and a DuckLake catalogue of them, in one database with Penstock's own
tables.
"""

from penstock.tables.catalogue import Catalogue
from penstock.tables.evolution import Added, Relaxed, SchemaStep, Widened, evolve
from penstock.tables.outside_commits import OthersCommit
from penstock.tables.types import (
    HIDDEN_PREFIX,
    ColumnStats,
    Conflict,
    DataFile,
    Expired,
    Interval,
    Note,
    RowsDeletedInPlace,
    SchemaConflict,
    TableChange,
)

__all__ = [
    "HIDDEN_PREFIX",
    "Added",
    "Catalogue",
    "ColumnStats",
    "Conflict",
    "DataFile",
    "Expired",
    "Interval",
    "Note",
    "OthersCommit",
    "Relaxed",
    "RowsDeletedInPlace",
    "SchemaConflict",
    "SchemaStep",
    "TableChange",
    "Widened",
    "evolve",
]
