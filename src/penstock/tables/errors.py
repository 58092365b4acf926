"""Errors of the catalogue."""

from __future__ import annotations

from penstock.errors import PenstockError


class Conflict(PenstockError):
    """Someone else changed the catalogue first. Roll the transaction back, look again, try again."""


class Expired(PenstockError):
    """The snapshot asked for is older than what is kept."""


class SchemaConflict(PenstockError):
    """The new rows do not fit the table as it is."""


class RowsDeletedInPlace(PenstockError):
    """DuckDB marked rows of a file as deleted; a plain list of files cannot say so."""
