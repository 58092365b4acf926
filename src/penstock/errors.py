"""The one root of all errors that users see. A message says what was found, where, what was expected, and what
to type next; the CLI prints it and nothing else."""

from __future__ import annotations


class PenstockError(Exception):
    """Something the user can understand and mend."""
