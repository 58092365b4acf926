"""What a project keeps is its owner's; and no message has a password."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.app import Warehouse
from penstock.errors import PenstockError, masked
from penstock.store.store import Store, StoreError
from tests.conftest import Write

TOML = 'name = "p"\n[feeds.a]\npath = "landing/a/*.csv"\nformat = "csv"\ncolumns = "x int"\nperiod = "1h"\n'


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_of_a_project_are_for_its_owner(project: Write, umask: int) -> None:
    before = os.umask(umask)
    try:
        folder = project({"penstock.toml": TOML})
        with Warehouse(folder) as warehouse:
            warehouse.state()
            names = [".penstock", "warehouse", ".penstock/penstock.db", ".penstock/penstock.db-wal"]
            assert [mode(folder / name) & 0o077 for name in names] == [0] * len(names)
    finally:
        os.umask(before)


def test_no_message_has_a_password() -> None:
    url = "postgresql://penstock:s3:cr@et@127.0.0.1:1/none"
    store = Store(url)
    for use in (store.create, lambda: store.read().__enter__(), lambda: store.write().__enter__()):
        with pytest.raises(StoreError) as found:
            use()
        assert "s3" not in str(found.value) and "***@127.0.0.1" in str(found.value)
    with pytest.raises(StoreError) as found:
        Store("mysql://penstock:s3cret@db/none")
    assert "s3cret" not in str(found.value)
    for text in ("postgresql://a:s3cret@db/x", "host=db password=s3cret", "PASSWORD = 's3cret s3cret'", 'pwd="s3cret"'):
        assert "s3cret" not in masked(text) and "s3cret" not in str(PenstockError(text))
    assert masked("2024-03-01T10:00 a@b http://host:80/x@y") == "2024-03-01T10:00 a@b http://host:80/x@y"
