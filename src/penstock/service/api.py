"""The HTTP API: ask queries, see how they fare, cancel them; look at tables and metrics. Nothing here decides anything."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import InitVar, asdict, dataclass
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from penstock.app import Warehouse
from penstock.control.orders import OutOfDate
from penstock.control.views.explain import explain
from penstock.control.views.savings import savings
from penstock.control.views.status import overview
from penstock.declare.contracts import DEFAULT, contract_of
from penstock.declare.sql.facts import SqlProblem
from penstock.engine.desk.front import Busy, Front
from penstock.engine.desk.ticket import QueryTicket
from penstock.engine.desk.versions import QueryError
from penstock.engine.external.dispatch import as_plain
from penstock.engine.external.report import Handed
from penstock.errors import PenstockError
from penstock.model.grain import zone_of
from penstock.queries.contract import Contract
from penstock.service.access import Access
from penstock.service.console import Console
from penstock.service.health import Health, probes_of
from penstock.service.limits import Limits, OneTooMany, OwnName
from penstock.service.metrics import CONTENT_TYPE, availability, metrics
from penstock.service.openapi import description
from penstock.service.page_data import described
from penstock.service.requests import BackfillBody, RequestsDoor, Wishes, number_of
from penstock.service.wire import (
    ARROW,
    JSON,
    AskedFor,
    Refused,
    Reported,
    arrow_bytes,
    asked_json,
    broken,
    http_error,
    refused,
)

B = TypeVar("B", bound=BaseModel)
_LONGEST_WAIT_S = 60.0
# Queries of one profile that are read at the same time.
_READ_AT_ONCE = 2
# Large answers that are written at the same time; smaller ones are written at once.
_WRITTEN_AT_ONCE = 3
_SMALL_BYTES = 100_000
_CLOSE = {"Connection": "close"}
_KEY = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass
class Api:
    warehouse: Warehouse
    front: Front
    limits: Limits
    # By which names it may be called; None: by any.
    hosts: frozenset[str] | None = None
    # Whether nobody comes in without a token, even where there is none.
    tokens_only: InitVar[bool] = False
    # Whether the loop that keeps the tables fresh is alive.
    is_alive: Callable[[], bool] = lambda: True
    # Whether the process of Spark is gone, without asking it; and what is wrong with it, if it is asked.
    spark_ended: Callable[[], bool] = lambda: False
    spark: Callable[[], str] = lambda: ""

    def __post_init__(self, tokens_only: bool) -> None:
        self.asking = {name: CapacityLimiter(_READ_AT_ONCE) for name in self.front.profiles}
        self.telling = CapacityLimiter(_WRITTEN_AT_ONCE)
        self.access = Access(self.warehouse.store, self.front.profiles, tokens_only)
        self.console = Console(self)
        self.healths = Health(probes_of(self.warehouse, self.spark), self.warehouse.clock.now_us)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/queries", self.ask, methods=["POST"]),
                Route("/v1/queries/{id}", self.look, methods=["GET"]),
                Route("/v1/queries/{id}", self.withdraw, methods=["DELETE"]),
                Route("/v1/queries/{id}/events", self.events, methods=["GET"]),
                Route("/v1/queries/{id}/files/{number}", self.file, methods=["GET"]),
                Route("/v1/tables", self.tables, methods=["GET"]),
                Route("/v1/tables/{name}", self.table, methods=["GET"]),
                Route("/v1/tables/{name}/versions", self.publish, methods=["POST"]),
                Route("/v1/orders", self.orders, methods=["GET"]),
                Route("/v1/orders/{order}", self.return_order, methods=["DELETE"]),
                Route("/v1/plans", self.plan, methods=["POST"]),
                Route("/v1/requests", self.requests, methods=["GET"]),
                Route("/v1/requests", self.backfill, methods=["POST"]),
                Route("/v1/requests/{number}", self.request, methods=["GET"]),
                Route("/v1/requests/{number}", self.cancel, methods=["DELETE"]),
                *self.console.routes(),
                Route("/metrics", self.metrics, methods=["GET"]),
                Route("/openapi.json", self.openapi, methods=["GET"]),
                Route("/healthz", self.health, methods=["GET"]),
                Route("/readyz", self.ready, methods=["GET"]),
            ],
            middleware=[Middleware(OneTooMany, limits=self.limits), Middleware(OwnName, hosts=self.hosts)],
            exception_handlers={Refused: refused, HTTPException: http_error, Exception: broken},
        )

    # Who asks

    async def _who(self, request: Request) -> str | None:
        """The profile of the token of a request; None where there are no tokens."""
        return (await self.access.caller(request)).profile

    def _profile(self, known: str | None, named: str | None) -> str:
        """For whom a query is asked: the profile of the token. Where there are no tokens, the one that it names."""
        if known is not None and named not in (None, known):
            raise Refused(403, f"this token is of profile `{known}`, not of `{named}`")
        profile = known or named or DEFAULT
        if profile not in self.front.profiles:
            raise Refused(422, f"there is no profile `{profile}`; there are {', '.join(self.front.profiles)}")
        return profile

    # Queries

    async def ask(self, request: Request) -> Response:
        # Nothing is read of who may not ask.
        known = await self._who(request)
        body = await self.body(request, AskedFor, "a query")
        profile = self._profile(known, body.profile)
        contract = self._contract(body, profile)
        key = request.headers.get("idempotency-key")
        if key is not None and not _KEY.fullmatch(key):
            raise Refused(400, "an Idempotency-Key has 1 to 200 visible characters")
        # What a text takes to be read holds up who asks in the same profile, and nothing else.
        asked = await to_thread.run_sync(self._ask, body, contract, profile, key, limiter=self.asking[profile])
        wait = _preferred_wait_s(request)
        if wait:
            await _until_ended(asked, wait)
        return await self._told(request, asked, 202)

    def _ask(self, body: AskedFor, contract: Contract, profile: str, key: str | None) -> QueryTicket:
        try:
            return self.front.ask(body.sql, contract, profile=profile, limit=body.limit, as_files=body.files, key=key)
        except SqlProblem as error:
            found = [
                {"line": one.line, "column": one.column, "found": one.found, "expected": one.expected}
                for one in error.problems
            ]
            raise Refused(422, f"the query cannot be run: {error}", problems=found) from None
        except QueryError as error:
            raise Refused(409, str(error)) from None
        except Busy as error:
            raise Refused(429, str(error), {"Retry-After": "1"}) from None

    def _contract(self, body: AskedFor, profile: str) -> Contract:
        try:
            return contract_of(
                self.front.profiles[profile].contract,
                within=body.within,
                fresh=body.fresh,
                lag=body.lag,
                consistent=body.consistent,
                stale=body.stale,
                weights=body.weights.model_dump(exclude_none=True) if body.weights is not None else None,
            )
        except (ValueError, OverflowError) as error:
            raise Refused(422, str(error)) from None

    async def body(self, request: Request, model: type[B], what_is: str) -> B:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise Refused(415, f"expected a body of type {JSON}", {"Accept-Post": JSON})
        raw = await self._read(request)
        try:
            return model.model_validate_json(raw)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            malformed = any(one["type"] == "json_invalid" for one in found)
            told = [{"at": ".".join(map(str, one["loc"])), "expected": one["msg"]} for one in found]
            what = "the body is not JSON" if malformed else f"the body is not {what_is}"
            raise Refused(400 if malformed else 422, f"{what}: {told[0]['expected']}", problems=told) from None

    async def _read(self, request: Request) -> bytes:
        raw = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_s):
                async for chunk in request.stream():
                    raw += chunk
                    if len(raw) > self.limits.body_bytes:
                        raise Refused(413, f"a body has at most {self.limits.body_bytes:,} bytes")
        except TimeoutError:
            raise Refused(408, f"the body was not there after {self.limits.body_s:g} s", _CLOSE) from None
        except ClientDisconnect:
            raise Refused(400, "the body ended early") from None
        return bytes(raw)

    async def _find(self, request: Request) -> QueryTicket:
        profile = await self._who(request)
        asked = self.front.find(request.path_params["id"])
        # Where there are tokens, each profile sees its own queries only.
        if asked is None or profile not in (None, asked.profile):
            raise Refused(404, "there is no such query, or it ended long ago")
        return asked

    async def look(self, request: Request) -> Response:
        asked = await self._find(request)
        wait = _preferred_wait_s(request)
        if wait:
            await _until_ended(asked, wait)
        return await self._told(request, asked, 200)

    async def _told(self, request: Request, asked: QueryTicket, unfinished: int) -> Response:
        found = asked.answer.found if asked.answer is not None else None
        if found is None or found.nbytes < _SMALL_BYTES:
            return self._written(request, asked, unfinished)
        # Many values take long to be written, and much memory.
        return await to_thread.run_sync(self._written, request, asked, unfinished, limiter=self.telling)

    def _written(self, request: Request, asked: QueryTicket, unfinished: int) -> Response:
        headers = {"Location": f"/v1/queries/{asked.id}"}
        if not asked.has_ended:
            return JSONResponse(asked_json(asked), unfinished, {**headers, "Retry-After": "1"})
        answer = asked.answer
        if answer is not None and answer.dropped and request.method == "GET":
            raise Refused(410, "the rows of this answer are not kept any more; ask again")
        if ARROW in request.headers.get("accept", ""):
            if answer is None or not answer.is_answered or (answer.found is not None and answer.found.files):
                raise Refused(406, f"there are no rows to send as {ARROW}; ask for {JSON}, which says why")
            told = json.dumps(answer.plain())
            return Response(arrow_bytes(answer), 200, {**headers, "Penstock-Answer": told}, ARROW)
        return JSONResponse(asked_json(asked), 200, headers)

    async def withdraw(self, request: Request) -> Response:
        asked = await self._find(request)
        await to_thread.run_sync(self.front.withdraw, asked)
        return JSONResponse(asked_json(asked, with_rows=False))

    async def events(self, request: Request) -> Response:
        asked = await self._find(request)
        return StreamingResponse(_events(asked), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def file(self, request: Request) -> Response:
        asked = await self._find(request)
        files = asked.answer.found.files if asked.answer is not None and asked.answer.found is not None else ()
        number = request.path_params["number"]
        if not re.fullmatch(r"[0-9]{1,6}", number) or int(number) >= len(files) or not files[int(number)].exists():
            raise Refused(404, "there is no such file; files of answers are kept for a while only")
        return FileResponse(files[int(number)], media_type="application/vnd.apache.parquet")

    # The warehouse

    async def tables(self, request: Request) -> Response:
        await self._who(request)
        now_us = self.warehouse.clock.now_us()
        found = await to_thread.run_sync(self.front.looking, lambda state: overview(state, now_us))
        waiting = await to_thread.run_sync(self.front.waiting, None)
        told = {"at_us": now_us, "running": self.is_alive(), **asdict(found)}
        return JSONResponse({**told, "waiting": [asdict(rows) for rows in waiting]})

    async def table(self, request: Request) -> Response:
        await self._who(request)
        name = request.path_params["name"]
        definition = self.warehouse.declared.definitions.get(name)
        if definition is None:
            raise Refused(404, f"there is no table `{name}`; /v1/tables has all")
        now_us = self.warehouse.clock.now_us()
        waiting = await to_thread.run_sync(self.front.waiting, (name,))
        found = await to_thread.run_sync(
            self.front.looking, lambda state: explain(state, name, now_us, definition.how, waiting)
        )
        return JSONResponse({**asdict(found), **described(self.warehouse.declared, definition)})

    # Tables that others make

    async def orders(self, request: Request) -> Response:
        await self._who(request)
        found = await to_thread.run_sync(self.warehouse.orders)
        zone = zone_of(self.warehouse.declared.zone)
        return JSONResponse({"orders": [as_plain(order, zone) for order in found]})

    async def publish(self, request: Request) -> Response:
        await self.access.operator(request)
        body = await self.body(request, Reported, "a report")
        done = await to_thread.run_sync(self._publish, request.path_params["name"], body)
        return JSONResponse(asdict(done), 201)

    def _publish(self, name: str, body: Reported) -> Handed:
        if name not in self.warehouse.declared.definitions:
            raise Refused(404, f"there is no table `{name}`; /v1/tables has all")
        folder = self.warehouse.declared.declarations.folder
        try:
            files = None if body.files is None else [(folder / file).resolve() for file in body.files]
            # Else who may report could have any file of this machine read.
            outside = [file for file in files or () if not file.is_relative_to(folder)]
            if outside:
                raise Refused(422, f"{outside[0]} lies outside of the project's folder; over HTTP, files lie below it")
            return self.warehouse.publish(
                name,
                body.range,
                order=body.order,
                version=body.version,
                inputs=body.inputs,
                files=files,
                complete_to=body.complete_to,
                by=body.by,
            )
        except OutOfDate as error:
            raise Refused(409, str(error)) from None
        except (PenstockError, ValueError) as error:
            raise Refused(422, str(error)) from None

    async def return_order(self, request: Request) -> Response:
        await self.access.operator(request)
        failed = request.query_params.get("failed")
        try:
            order = await to_thread.run_sync(
                lambda: self.warehouse.return_order(request.path_params["order"], failed=failed)
            )
        except PenstockError as error:
            raise Refused(404, str(error)) from None
        return JSONResponse(as_plain(order, zone_of(self.warehouse.declared.zone)))

    # What is to be made again

    async def plan(self, request: Request) -> Response:
        await self._who(request)
        return JSONResponse(await self._door.plan(await self.body(request, Wishes, "a list of wishes")))

    async def requests(self, request: Request) -> Response:
        await self._who(request)
        return JSONResponse(await self._door.listed())

    async def request(self, request: Request) -> Response:
        await self._who(request)
        return JSONResponse(await self._door.one(number_of(request.path_params["number"])))

    async def backfill(self, request: Request) -> Response:
        by = await self.access.operator(request)
        told = await self._door.ask(await self.body(request, BackfillBody, "a request"), by.name)
        return JSONResponse(told, 201, {"Location": told["links"]["self"]})

    async def cancel(self, request: Request) -> Response:
        by = await self.access.operator(request)
        return JSONResponse(await self._door.cancel(number_of(request.path_params["number"]), by.name))

    @property
    def _door(self) -> RequestsDoor:
        return RequestsDoor(self.warehouse)

    async def metrics(self, request: Request) -> Response:
        await self._who(request)
        now_us = self.warehouse.clock.now_us()
        away = await self.healths.look()
        told = availability(("store", "storage", "spark"), away, self.is_alive(), now_us)
        if not any(each.part == "store" for each in away):  # else nothing is known of tables
            found, saved = await to_thread.run_sync(
                self.front.looking, lambda state: (overview(state, now_us), savings(state))
            )
            told += metrics(self.front, found, saved, now_us)
        return PlainTextResponse(told, media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(description())

    async def health(self, request: Request) -> Response:
        """Whether this process can work: it waits for nothing and nobody."""
        if not self.is_alive():
            return JSONResponse({"status": "the loop has ended"}, 503)
        if self.spark_ended():
            return JSONResponse({"status": "Spark has ended; it is started again"}, 503)
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether the store, the disk and Spark answer. What is wrong in detail is not for everybody."""
        away = await self.healths.look()
        alive = self.is_alive()
        told = {
            "status": "ready" if alive and not away else "not ready" if alive else "the loop has ended",
            "unavailable": [{"part": each.part, "since_us": each.since_us} for each in away],
        }
        return JSONResponse(told, 200 if alive and not away else 503)


def _preferred_wait_s(request: Request) -> float:
    """`Prefer: wait=5` (RFC 7240): answer when it is done, or after so many seconds."""
    found = re.search(r"\bwait=([0-9]{1,4})\b", request.headers.get("prefer", ""))
    return min(_LONGEST_WAIT_S, float(found[1])) if found else 0.0


async def _until_ended(asked: QueryTicket, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    end = asked.listen(lambda: loop.call_soon_threadsafe(changed.set))
    try:
        async with asyncio.timeout(seconds):
            while not asked.has_ended:
                await changed.wait()
                changed.clear()
    except TimeoutError:
        pass
    finally:
        end()


async def _events(asked: QueryTicket) -> AsyncIterator[str]:
    """Each step of a query as it is taken; the last event says how it ended."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    end = asked.listen(lambda: loop.call_soon_threadsafe(changed.set))
    told = 0
    try:
        while True:
            ended = asked.has_ended
            for step in asked.steps[told:]:
                told += 1
                yield _event("step", {"at_us": step.at_us, "status": step.status, "what": step.what})
            if ended:
                yield _event("end", asked_json(asked, with_rows=False))
                return
            try:
                async with asyncio.timeout(15):
                    await changed.wait()
            except TimeoutError:
                yield ": still there\n\n"
            changed.clear()
    finally:
        end()


def _event(kind: str, data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"
