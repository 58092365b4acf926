"""Tokens by command, and the door that stays shut without them."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from penstock.app import Warehouse
from penstock.cli.main import app
from penstock.store import tokens
from tests.conftest import Write
from tests.engine.shop import FILES


def test_tokens_are_made_listed_and_revoked(project: Write) -> None:
    folder = project(FILES)

    def penstock(*words: str) -> tuple[int, Any]:
        done = CliRunner().invoke(app, [*words, "--project", str(folder), "--json"])
        return done.exit_code, json.loads(done.stdout) if done.stdout else done.stderr

    code, told = penstock("serve", "--host", "0.0.0.0")
    assert code == 1 and "there is no token yet" in told
    assert penstock("token", "add", "nobody")[0] == 1
    code, made = penstock("token", "add", "board", "--note", "wall")
    assert code == 0 and made["profile"] == "board" and made["token"].startswith("pst_")
    with Warehouse(folder) as warehouse, warehouse.store.read() as conn:
        known = tokens.known(conn, made["token"])
        assert known is not None and known.profile == "board"
        assert tokens.known(conn, made["token"][:-1]) is None and tokens.are_used(conn)
    _, (listed,) = penstock("token", "list")
    assert (listed["id"], listed["note"], listed["revoked_us"]) == (made["id"], "wall", None)
    assert made["token"] not in json.dumps(listed)
    assert penstock("token", "revoke", made["id"]) == (0, {"revoked": made["id"]})
    assert penstock("token", "revoke", made["id"])[0] == 1
    with Warehouse(folder) as warehouse, warehouse.store.read() as conn:
        assert tokens.known(conn, made["token"]) is None and tokens.are_used(conn)
