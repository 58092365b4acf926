"""Events as JSON. The types of the core are the schema; nothing is written twice."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter

from penstock.control.events import Event

_adapter: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def encode(event: Event) -> str:
    return _adapter.dump_json(event).decode()


def decode(body: str) -> Event:
    return _adapter.validate_json(body)


def subject(event: Event) -> str | None:
    """The table or feed an event is about, for look-ups."""
    job = getattr(event, "job", None)
    if job is not None and not isinstance(job, str):
        return str(job.table)
    return getattr(event, "table", None) or getattr(event, "feed", None)
