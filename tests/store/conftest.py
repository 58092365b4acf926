"""The same contract over both stores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from penstock.store.store import Store
from tests.tables.conftest import postgres  # noqa: F401

_numbers = count(1)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new, empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state/penstock.db"
    place = request.getfixturevalue("postgres")(f"store{next(_numbers)}")
    return f"postgresql://penstock@{place}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    made = Store(url)
    made.create()
    yield made
    made.close()
