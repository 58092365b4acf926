"""The one root of all errors that users see. A message says what was found, where, what was expected, and what
to type next; the CLI prints it and nothing else."""

from __future__ import annotations

import re

_IN_URL = re.compile(r"(\w+://[^\s:/@]*):[^\s/]*@")
_NAMED = re.compile(r"(?i)\b(password|passwd|pwd|secret)(\s*=\s*)('[^']*'|\"[^\"]*\"|[^\s&,;'\"]+)")


def masked(text: str) -> str:
    """A text without the passwords that may be in it.

    >>> masked("cannot reach postgresql://penstock:s3cret@db:5432/main or user=p password='a b'")
    'cannot reach postgresql://penstock:***@db:5432/main or user=p password=***'
    """
    return _NAMED.sub(r"\1\2***", _IN_URL.sub(r"\1:***@", text))


class PenstockError(Exception):
    """Something the user can understand and mend."""

    def __str__(self) -> str:
        return masked(super().__str__())
