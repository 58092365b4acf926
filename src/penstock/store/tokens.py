"""Tokens by which those who ask are known. Only a hash is stored: what was given out cannot be found again, only compared. A token
is 32 random bytes, so a plain hash is enough; guessing one is hopeless."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from penstock.store import schema as tables

PREFIX = "pst"


@dataclass(frozen=True, slots=True)
class Token:
    id: str
    profile: str
    note: str
    created_us: int
    revoked_us: int | None


def add(conn: Connection, profile: str, note: str, now_us: int) -> tuple[Token, str]:
    """A new token, and the one time its secret can be seen."""
    identity, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    row = {"id": identity, "profile": profile, "note": note, "created_us": now_us, "hash": _hash(secret)}
    conn.execute(insert(tables.token).values(row))
    return Token(identity, profile, note, now_us, None), f"{PREFIX}_{identity}_{secret}"


def listed(conn: Connection) -> list[Token]:
    own = tables.token.c
    rows = conn.execute(select(own.id, own.profile, own.note, own.created_us, own.revoked_us).order_by(own.created_us))
    return [Token(*row) for row in rows]


def revoke(conn: Connection, identity: str, now_us: int) -> bool:
    """Whether there was such a token that still counted."""
    own = tables.token.c
    done = conn.execute(
        update(tables.token).where(own.id == identity, own.revoked_us.is_(None)).values(revoked_us=now_us)
    )
    return bool(done.rowcount)


def known(conn: Connection, written: str) -> Token | None:
    """The token that is written so; None if it is none, or was revoked."""
    parts = written.split("_", 2)
    if len(parts) != 3 or parts[0] != PREFIX:
        return None
    own = tables.token.c
    row = conn.execute(select(tables.token).where(own.id == parts[1], own.revoked_us.is_(None))).first()
    if row is None or not secrets.compare_digest(row.hash, _hash(parts[2])):
        return None
    return Token(row.id, row.profile, row.note, row.created_us, None)


def are_used(conn: Connection) -> bool:
    """Whether there ever was a token: then nobody comes in without one, also when all are revoked."""
    return conn.execute(select(tables.token.c.id).limit(1)).first() is not None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
