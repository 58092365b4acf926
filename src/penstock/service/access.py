"""Who asks: by the token of a request, or by the cookie of a login in a browser; and whether they may change something."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from penstock.queries.contract import Profile
from penstock.service.wire import Refused
from penstock.store import tokens
from penstock.store.store import Store

# So many logins are remembered; who logged in first of them has to do so again.
_MOST_LOGINS = 2_000


class Login(BaseModel):
    """A token, for a cookie that a page cannot read."""

    model_config = ConfigDict(extra="forbid", strict=True)

    token: Annotated[str, Field(min_length=1, max_length=400)]


@dataclass(frozen=True, slots=True)
class Caller:
    # None where there are no tokens: then whoever reaches the port may do everything.
    profile: str | None
    operator: bool
    # As it goes on record.
    name: str


@dataclass
class Access:
    store: Store
    profiles: Mapping[str, Profile]
    # Whether nobody comes in without a token, even where there is none.
    tokens_only: bool = False
    # Of each login a hash of its secret, and the token that it began with: what is revoked is so for logins, too.
    _logins: OrderedDict[str, str] = field(default_factory=OrderedDict)

    async def caller(self, request: Request) -> Caller:
        header = request.headers.get("authorization", "")
        kind, _, written = header.partition(" ")
        given = written.strip() if kind.lower() == "bearer" else self._logged_in(request)
        token, used = await to_thread.run_sync(self._known, given)
        if not used:
            return Caller(None, True, "whoever reached the port")
        if token is None:
            raise Refused(
                401,
                "a token is needed: Authorization: Bearer …; `penstock token add` makes one",
                {"WWW-Authenticate": "Bearer"},
            )
        profile = self.profiles.get(token.profile)
        if profile is None:
            raise Refused(403, f"this token is of profile `{token.profile}`, which the project does not have any more")
        name = f"{token.profile}, token {token.id}" + (f" ({token.note})" if token.note else "")
        return Caller(profile.name, profile.role == "operator", name)

    async def operator(self, request: Request) -> Caller:
        """Where tokens are used, only profiles of which the project says so change anything."""
        found = await self.caller(request)
        if not found.operator:
            raise Refused(
                403,
                f'profile `{found.profile}` may only look; write `role = "operator"` under [profiles.{found.profile}]',
            )
        return found

    def _known(self, written: str) -> tuple[tokens.Token | None, bool]:
        with self.store.read() as conn:
            return tokens.known(conn, written), self.tokens_only or tokens.are_used(conn)

    # Logins

    async def log_in(self, request: Request, token: str, answer: Response) -> None:
        """The cookie holds a secret of its own and not the token: other servers of this machine get it, too, as cookies know no ports."""
        found, _ = await to_thread.run_sync(self._known, token)
        if found is None:
            raise Refused(401, "this is no token that counts; `penstock token list` shows those that do")
        secret = secrets.token_urlsafe(32)
        self._logins[_hash(secret)] = token
        while len(self._logins) > _MOST_LOGINS:
            self._logins.popitem(last=False)
        behind_tls = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
        answer.set_cookie(_cookie(request), secret, httponly=True, samesite="strict", secure=behind_tls)

    def log_out(self, request: Request, answer: Response) -> None:
        self._logins.pop(_hash(request.cookies.get(_cookie(request), "")), None)
        answer.delete_cookie(_cookie(request), httponly=True, samesite="strict")

    def _logged_in(self, request: Request) -> str:
        secret = request.cookies.get(_cookie(request))
        return "" if secret is None else self._logins.get(_hash(secret), "")


def _cookie(request: Request) -> str:
    """With the port, so that two servers of one machine do not take each other's."""
    return f"penstock-{request.url.port or 0}"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
