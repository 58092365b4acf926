"""Who comes in, and what those who are not let in can do to the others. Queries are answered without Spark."""

from __future__ import annotations

import json
import logging
import re
import socket
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.app import Warehouse
from penstock.engine.desk.front import Front, FrontSettings
from penstock.engine.desk.question import Question, ResultRows
from penstock.service.api import Api
from penstock.service.connections import Sparse
from penstock.service.limits import Limits
from penstock.service.serve import NoToken, check_door, listener_at, names_of, server_of
from penstock.store import tokens
from tests.engine.shop import FILES
from tests.waiting import LONG_S, until

ASK = {"sql": "select 1 as one"}


class Reader:
    """Answers with so many bytes as the limit says."""

    is_alive = True

    def answer(self, question: Question) -> ResultRows:
        return ResultRows(pa.table({"one": ["x" * question.limit]}), ("string",), count=1)

    def cancel(self, group: str) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class Door:
    url: str
    warehouse: Warehouse
    api: Api
    front: Front

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def token(self, profile: str) -> str:
        with self.warehouse.store.write() as conn:
            return tokens.add(conn, profile, "", 0)[1]

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=LONG_S)


LIMITS = Limits(body_s=1.0, connections=40, connections_of_client=20, quiet_s=3.0, unread_s=2.0)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text).lstrip("\n"))
    with Warehouse(tmp_path) as warehouse:
        settings = FrontSettings(kept_bytes=1 << 20, inline_rows=1 << 30)
        front = Front(
            warehouse.declared, warehouse.store, warehouse.catalogue, Reader, None, settings, warehouse.profiles
        )
        listener = listener_at("127.0.0.1", 0)
        api = Api(warehouse, front, LIMITS, names_of("127.0.0.1", ("wall.example",)))
        server = server_of(api, listener)
        server.start()
        try:
            yield Door(server.url, warehouse, api, front)
        finally:
            server.end()
            front.close()
            listener.close()


def ask(door: Door, headers: dict[str, str] | None = None, **more: object) -> httpx.Response:
    return httpx.post(f"{door.url}/v1/queries", json={**ASK, **more}, headers=headers, timeout=LONG_S)


def test_only_by_its_own_name(door: Door) -> None:
    """A name of an attacker that leads to 127.0.0.1 makes a browser send what it likes."""
    for good in ("127.0.0.1", "localhost", "[::1]:80", "WALL.example:443"):
        assert httpx.get(f"{door.url}/v1/tables", headers={"Host": good}).status_code == 200, good
    for bad in ("evil.example", "127.0.0.1.evil.example", "localhost.evil:8321", "evil.example:8321", "", "10.0.0.1"):
        for path in ("/v1/tables", "/healthz", "/metrics"):
            assert httpx.get(f"{door.url}{path}", headers={"Host": bad}).status_code == 421, bad
    own = door.url.removeprefix("http://")
    for origin in ("http://evil.example", "null", "http://localhost:1", "https://evil.example:8321"):
        refused = ask(door, {"Origin": origin})
        assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json"), origin
    assert ask(door, {"Origin": f"http://{own}"}).is_success
    assert ask(door, {"Sec-Fetch-Site": "cross-site"}).status_code == 403
    # What a form of a page can send.
    for kind in (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"):
        headers = {} if kind is None else {"Content-Type": kind}
        sent = httpx.post(f"{door.url}/v1/queries", content=b'{"sql": "select 1 as one"}', headers=headers)
        assert sent.status_code == 415, kind


def test_tokens_may_be_demanded_of_everyone(door: Door) -> None:
    door.api.access.tokens_only = True
    assert ask(door).status_code == 401 and httpx.get(f"{door.url}/metrics").status_code == 401
    key = {"Authorization": f"Bearer {door.token('board')}"}
    assert ask(door, key).is_success and ask(door, key, profile="audit").status_code == 403


def test_a_server_that_nobody_could_use_does_not_start(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        more = "\n[serve]\ntokens = true\n" if name == "penstock.toml" else ""
        (tmp_path / name).write_text(textwrap.dedent(text).lstrip("\n") + more)
    with Warehouse(tmp_path) as warehouse:
        with pytest.raises(NoToken, match="penstock token add"):
            check_door(warehouse, "127.0.0.1")
        with warehouse.store.write() as conn:
            tokens.add(conn, "board", "", 0)
        check_door(warehouse, "127.0.0.1")


def test_nothing_is_read_of_who_may_not_ask(door: Door) -> None:
    """Bodies come after the token."""
    door.token("board")
    with door.socket() as one:
        one.sendall(
            b"POST /v1/queries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90000\r\n\r\n{"
        )
        assert one.recv(100).startswith(b"HTTP/1.1 401")


HALF = b"POST /v1/queries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"


def test_who_says_half_a_request_takes_nobodys_place(door: Door) -> None:
    with ExitStack() as opened:
        sockets = [opened.enter_context(door.socket()) for _ in range(18)]
        for number, one in enumerate(sockets):
            one.sendall((HALF, HALF[:30], b"")[number % 3])
        time.sleep(1.2)  # it is not young any more
        for _ in range(10):
            sockets.append(opened.enter_context(door.socket()))
            sockets[-1].sendall(HALF)
        # There are more than one client may have, and still there is room.
        until(lambda: _is_well(door), "an answer")
        # A body has its time, and so has a connection that says nothing.
        assert sockets[-1].recv(100).startswith(b"HTTP/1.1 408")
        until(lambda: all(_has_ended(one) for one in sockets), "the connections to end")
    assert ask(door).is_success


def _is_well(door: Door) -> bool:
    try:
        return httpx.get(f"{door.url}/healthz", timeout=LONG_S).status_code == 200
    except httpx.HTTPError:
        return False


def _has_ended(one: socket.socket) -> bool:
    one.settimeout(0.05)
    try:
        return not one.recv(4096) or _has_ended(one)
    except TimeoutError:
        return False
    except OSError:
        return True


def test_who_does_not_read_holds_nothing(door: Door) -> None:
    """An answer of megabytes for somebody who does not take it."""
    asked = ask(door, {"Prefer": "wait=60"}, limit=8_000_000)
    assert asked.status_code == 200, asked.text[:300]
    path = asked.json()["answer"] and f"/v1/queries/{asked.json()['id']}"
    with door.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        time.sleep(LIMITS.unread_s + 3)
        received = 0
        try:
            while chunk := one.recv(1 << 16):
                received += len(chunk)
        except ConnectionResetError:
            pass
        assert received < 8_000_000


def test_answers_are_kept_by_bytes(door: Door) -> None:
    """The newest stay, of others it is told that they had rows."""
    urls = []
    for number in range(6):
        told = httpx.post(
            f"{door.url}/v1/queries",
            json={"sql": f"select {number} as n", "limit": 400_000},
            headers={"Prefer": "wait=60"},
        ).json()
        urls.append(f"{door.url}{told['links']['self']}")
    codes = [httpx.get(url).status_code for url in urls]
    assert codes == [410, 410, 410, 410, 200, 200]
    assert door.front._register._bytes <= 1 << 20


def test_other_things_are_answered_while_many_ask(door: Door) -> None:
    """`/healthz` waits for no thread."""
    held = threading.Event()
    busy = threading.Event()

    def slow(*_: object, **__: object) -> None:
        busy.set()
        held.wait(LONG_S)

    door.front.ask = slow  # type: ignore[method-assign,assignment]
    threads = [threading.Thread(target=lambda: _quietly(door)) for _ in range(12)]
    for thread in threads:
        thread.start()
    try:
        assert busy.wait(LONG_S)
        assert httpx.get(f"{door.url}/healthz", timeout=60).status_code == 200
        assert httpx.get(f"{door.url}/v1/tables", timeout=60).status_code == 200
    finally:
        held.set()
        for thread in threads:
            thread.join(LONG_S)


def _quietly(door: Door) -> None:
    with suppress(httpx.HTTPError):
        ask(door)


def test_the_log_is_not_filled(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(40):
        with door.socket() as one:
            one.sendall(b"\x00\x01 nonsense\r\n\r\n")
            assert b"400" in one.recv(100)
    sparse = Sparse(most=3)
    kept = [sparse.filter(logging.makeLogRecord({"name": "x", "msg": "Invalid %s", "args": (n,)})) for n in range(9)]
    assert kept == [True] * 3 + [False] * 6
    assert len([one for one in caplog.records if "Invalid HTTP" in one.message]) <= 10


# Whatever is sent

QUIET = settings(suppress_health_check=list(HealthCheck), database=None, max_examples=60)
LONG = settings(QUIET, max_examples=3_000, derandomize=False)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(["1m", "-1s", "1e999", "select 1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_FIELDS = ("sql", "within", "fresh", "lag", "consistent", "stale", "weights", "profile", "limit", "files", "more")
_asked = st.dictionaries(st.sampled_from(_FIELDS), _values, max_size=6).map(
    lambda found: {**ASK, **found} if len(found) % 2 else found
)
_bodies = st.one_of(
    _values.map(lambda value: json.dumps(value).encode()),
    _asked.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=60),
    st.sampled_from([b"[" * 50_000, b'{"sql": "' + b"(" * 40_000 + b'"}', b'{"sql": "\\ud800"}', b'{"a":' * 20_000, b"1" * 90_000, b""]),
)  # fmt: skip


def bodies(door: Door, profile: settings) -> None:
    with httpx.Client(base_url=door.url, timeout=LONG_S) as client:

        @settings(profile)
        @given(
            _bodies,
            st.sampled_from(["application/json", "application/json; charset=utf-16", "text/plain", "a/b;" * 50]),
        )
        def run(body: bytes, kind: str) -> None:
            told = client.post("/v1/queries", content=body, headers={"Content-Type": kind})
            assert told.status_code in (200, 202, 400, 409, 413, 415, 422, 429), told.text
            if told.status_code >= 400:
                assert told.headers["content-type"] == "application/problem+json" and told.json()["detail"]

        run()


def test_any_body_is_taken_or_refused(door: Door) -> None:
    bodies(door, QUIET)


GOOD = b'POST /v1/queries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n{"sql": "select 1"}'
_requests = st.builds(
    lambda at, length, put: GOOD[:at] + put + GOOD[at + length :],
    st.integers(0, len(GOOD)),
    st.integers(0, 40),
    st.one_of(st.binary(max_size=8), st.sampled_from([b"\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: evil\r\n", b"%00", b"/../../etc/passwd", b"X: " + b"y" * 70_000])),
)  # fmt: skip


def requests(door: Door, profile: settings) -> None:
    @settings(profile)
    @given(_requests)
    def run(raw: bytes) -> None:
        with suppress(OSError), door.socket() as one:
            one.sendall(raw)
            one.shutdown(socket.SHUT_WR)
            told = one.recv(4096)
            assert not told or re.match(rb"HTTP/1\.1 (2|4)\d\d ", told), told

    run()
    assert _is_well(door)


def test_any_bytes_are_answered_or_dropped(door: Door) -> None:
    requests(door, QUIET)


def test_nothing_but_a_token_opens(door: Door) -> None:
    real = door.token("board")
    with httpx.Client(base_url=door.url, timeout=LONG_S) as client:

        @QUIET
        @given(
            st.one_of(
                st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=80),
                st.builds(
                    lambda at, put: real[:at] + put + real[at + 1 :],
                    st.integers(0, len(real) - 1),
                    st.sampled_from(["", "a", "_", "%", "'", '"', "pst_"]),
                ),
            )
        )
        def run(token: str) -> None:
            if token != real:
                assert client.get("/v1/tables", headers={"Authorization": f"Bearer {token}"}).status_code == 401

        run()
        assert client.get("/v1/tables", headers={"Authorization": f"bearer  {real}"}).status_code == 200


@pytest.mark.soak
def test_whatever_is_sent_for_long(door: Door) -> None:
    bodies(door, LONG)
    requests(door, LONG)
