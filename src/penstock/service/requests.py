"""Requests over HTTP, as on the command line: what they would cost, asking, how far they are, cancelling."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field

from penstock.app import Warehouse
from penstock.engine.commands.requests import RequestReceipt
from penstock.errors import PenstockError
from penstock.model.grain import zone_of
from penstock.model.span import parse_deadline
from penstock.service.wire import Refused

_Span = Annotated[
    str | None, Field(max_length=100, description="2024-03-01..2024-03-07, 2024-03, or all.", examples=["2024-03"])
]
_Table = Annotated[str, Field(min_length=1, max_length=200)]


class BackfillOutline(BaseModel):
    """Partitions of a table that one thinks of making again."""

    model_config = ConfigDict(extra="forbid", strict=True)

    table: _Table
    span: _Span = None
    downstream: Annotated[bool, Field(description="Whether what reads the table follows.")] = True


class Wishes(BaseModel):
    """What would run if these were asked for; without any, what will run anyway."""

    model_config = ConfigDict(extra="forbid", strict=True)

    wishes: Annotated[list[BackfillOutline], Field(max_length=1000)] = []


class BackfillBody(BackfillOutline):
    """Partitions of a table to be made again."""

    reason: Annotated[str, Field(max_length=200, description="Tables may follow some reasons only.")] = ""
    deadline: Annotated[str | None, Field(max_length=40, description="2h from now, or 2024-03-08T06:00.")] = None


@dataclass(frozen=True)
class RequestsDoor:
    """Errors of users become answers that say what was expected."""

    warehouse: Warehouse

    async def plan(self, body: Wishes) -> dict[str, Any]:
        found = await self._told(
            lambda: self.warehouse.plan(*((one.table, one.span, one.downstream) for one in body.wishes))
        )
        return asdict(found)

    async def ask(self, body: BackfillBody, by: str) -> dict[str, Any]:
        found = await self._told(lambda: self._backfill(body, by))
        here = f"/v1/requests/{found.request.request}"
        return {**asdict(found.request), "running": found.running, "links": {"self": here}}

    def _backfill(self, body: BackfillBody, by: str) -> RequestReceipt:
        until = parse_deadline(body.deadline, self.warehouse.clock.now_us(), zone_of(self.warehouse.declared.zone))
        return self.warehouse.backfill(
            body.table, body.span, reason=body.reason, downstream=body.downstream, deadline_us=until, by=by
        )

    async def listed(self) -> dict[str, Any]:
        """All, with how long what is pending takes."""
        found = await self._told(self.warehouse.requests)
        pending = await self._told(self.warehouse.plan) if any(one.left for one in found) else None
        left = {"total_s": pending.total_s if pending else 0.0, "shortest_s": pending.shortest_s if pending else 0.0}
        return {"requests": [asdict(one) for one in found], "pending": left}

    async def one(self, number: int) -> dict[str, Any]:
        for request in await self._told(self.warehouse.requests):
            if request.request == number:
                return asdict(request)
        raise Refused(404, f"there is no request {number}; /v1/requests has those that are remembered")

    async def cancel(self, number: int, by: str) -> dict[str, Any]:
        before = await self.one(number)
        if before["finished_us"] is not None:
            raise Refused(409, f"request {number} is {before['stage']}: there is nothing left to cancel")
        _, after = await self._told(lambda: self.warehouse.cancel(number, by=by))
        return asdict(after)

    @staticmethod
    async def _told(ask: Any) -> Any:
        try:
            return await to_thread.run_sync(ask)
        except PenstockError as error:
            raise Refused(422, str(error)) from None


def number_of(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise Refused(404, f"{text!r} is not the number of a request; /v1/requests has all")
    return int(text)
