"""The pages, and what they ask for besides the API of queries: pictures of now and of the past, what-if, and what an operator does."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from penstock import __version__
from penstock.control.events import Event
from penstock.control.views.health import feed_healths
from penstock.errors import PenstockError
from penstock.model.grain import zone_of
from penstock.model.time import HOUR_US, parse_duration
from penstock.service.access import Login
from penstock.service.live import Live
from penstock.service.page_data import bars, calendar, curve, graph_picture, kinds_of_marks
from penstock.service.requests import number_of
from penstock.service.trials import TooMany, Trial, TrialBody, Trials
from penstock.service.wire import Refused, plain
from penstock.tables import Expired

if TYPE_CHECKING:
    from penstock.service.api import Api

T = TypeVar("T")

# What `make console` builds; empty in a checkout that was never built.
ASSETS = Path(__file__).parent / "console"
_NOT_BUILT = """<!doctype html><html lang=en><meta charset=utf-8><title>Penstock</title><body style="font:16px sans-serif;margin:3em;max-width:40em">
<h1>The console is not built here</h1><p>This is a checkout, and its pages have not been built yet. With Node 20 or newer, type <code>make console</code>,
then load this page again. Wheels have them built in.</p><p>Everything else works: <a href="/openapi.json">the API</a>, and all commands.</p>"""
# A page that is not ours can neither be put around it nor into it; styles are set by the libraries of charts and of the SQL box.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_EVERY_KIND = tuple(kind.__dataclass_fields__["kind"].default for kind in get_args(Event))
_BARS = ("update-started", "update-finished", "update-failed", "update-stopped")
_LONGEST_LOG = 500
_MOST_EVENTS = 40_000
# With more bars than these the reasons are left out; a narrower stretch has them.
_WITH_WHY = 6_000
_MOST_MOVES = 4_000
_MOST_ROWS = 200
_UPDATES = 60


class Retries(BaseModel):
    """Failed tables and files that were set aside: those named, or all."""

    model_config = ConfigDict(extra="forbid", strict=True)

    names: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=1000)] = []


class Pause(BaseModel):
    """Files of a feed are noticed, but not loaded."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Annotated[str, Field(max_length=200)] = ""


class Console:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.live = Live(api.warehouse, api.front, api.is_alive)

    @cached_property
    def trials(self) -> Trials:
        return Trials(self.api.warehouse.declared.declarations.folder)

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page, methods=["GET"]),
            Route("/assets/{name}", self.asset, methods=["GET"]),
            Route("/v1/session", self.session, methods=["GET"]),
            Route("/v1/session", self.log_in, methods=["POST"]),
            Route("/v1/session", self.log_out, methods=["DELETE"]),
            Route("/v1/live", self.watch, methods=["GET"]),
            Route("/v1/graph", self.graph, methods=["GET"]),
            Route("/v1/tables/{name}/versions", self.versions, methods=["GET"]),
            Route("/v1/tables/{name}/staleness", self.staleness, methods=["GET"]),
            Route("/v1/tables/{name}/partitions", self.partitions, methods=["GET"]),
            Route("/v1/tables/{name}/rows", self.rows, methods=["GET"]),
            Route("/v1/timeline", self.timeline, methods=["GET"]),
            Route("/v1/log", self.log, methods=["GET"]),
            Route("/v1/bounds", self.bounds, methods=["GET"]),
            Route("/v1/trials", self.begin_trial, methods=["POST"]),
            Route("/v1/trials/{number}", self.trial, methods=["GET"]),
            Route("/v1/trials/{number}", self.cancel_trial, methods=["DELETE"]),
            Route("/v1/health", self.health, methods=["GET"]),
            Route("/v1/retries", self.retry, methods=["POST"]),
            Route("/v1/feeds/{name}/pause", self.pause, methods=["POST"]),
            Route("/v1/feeds/{name}/pause", self.resume, methods=["DELETE"]),
        ]

    def close(self) -> None:
        if "trials" in self.__dict__:
            self.trials.close()

    # Pages: anybody may have them, as they hold nothing of the warehouse

    async def page(self, _request: Request) -> Response:
        index = ASSETS / "index.html"
        if not index.exists():
            return HTMLResponse(_NOT_BUILT, headers=_PAGE_HEADERS)
        return FileResponse(index, headers={**_PAGE_HEADERS, "Cache-Control": "no-cache"})

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        folder = ASSETS / "assets"
        known = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
        if name not in known:
            raise Refused(404, "there is no such part of the console; load the page again")
        # Their names change with what is in them.
        return FileResponse(
            known[name], headers={**_PAGE_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
        )

    # Who

    async def session(self, request: Request) -> Response:
        caller = await self.api.access.caller(request)
        warehouse = self.api.warehouse
        declarations = warehouse.declared.declarations
        return JSONResponse(
            {
                "project": declarations.config.name,
                "zone": warehouse.declared.zone,
                "version": __version__,
                "profile": caller.profile,
                "operator": caller.operator,
                "profiles": list(self.api.front.profiles),
                "running": self.api.is_alive(),
                "tracks": declarations.tracks,
                "policy": declarations.config.run.policy,
            }
        )

    async def log_in(self, request: Request) -> Response:
        body = await self.api.body(request, Login, "a login")
        answer = Response(status_code=204)
        await self.api.access.log_in(request, body.token, answer)
        return answer

    async def log_out(self, request: Request) -> Response:
        answer = Response(status_code=204)
        self.api.access.log_out(request, answer)
        return answer

    # Now

    async def watch(self, request: Request) -> Response:
        await self.api.access.caller(request)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self.live.stream(), media_type="text/event-stream", headers=headers)

    async def graph(self, request: Request) -> Response:
        await self.api.access.caller(request)
        return JSONResponse(await to_thread.run_sync(graph_picture, self.api.warehouse.declared))

    # A table

    async def _table(self, request: Request) -> str:
        await self.api.access.caller(request)
        name = str(request.path_params["name"])
        if name not in self.api.warehouse.declared.definitions:
            raise Refused(404, f"there is no table `{name}`; /v1/tables has all")
        return name

    async def versions(self, request: Request) -> Response:
        name = await self._table(request)
        limit = _whole(request, "limit", 20, 200)
        found = await _told(lambda: self.api.warehouse.versions(name, limit=limit))
        return JSONResponse({"versions": [asdict(one) for one in found]})

    async def staleness(self, request: Request) -> Response:
        """From when on it was complete up to where, and what its last updates took and why they ran."""
        name = await self._table(request)
        since_us = _whole(request, "since_us", 0, 1 << 62)

        def look() -> dict[str, Any]:
            warehouse = self.api.warehouse
            planned = warehouse.declared.graph.updated_as[name]
            with warehouse.store.read() as conn:
                since = warehouse.store.number_at(conn, since_us) if since_us else 0
                events = warehouse.store.events_of(conn, planned, ("update-finished", "table-published"), _MOST_MOVES)
            bodies = [
                {
                    "at_us": event.at_us,
                    "publications": [
                        asdict(one)
                        for one in getattr(event, "publications", ()) or (getattr(event, "publication", None),)
                        if one is not None
                    ],
                }
                for number, event in reversed(events)
                if number > since
            ]
            with warehouse.store.read() as conn:
                recent = warehouse.store.events_of(conn, planned, _BARS, 2 * _UPDATES)
            plain_events = [(number, event.kind, asdict(event)) for number, event in recent]
            return {
                "table": name,
                "moves": curve(bodies, name),
                "all": len(events) < _MOST_MOVES,
                "updates": bars(plain_events, 0, True),
            }

        return JSONResponse(await _told(look))

    async def partitions(self, request: Request) -> Response:
        name = await self._table(request)
        warehouse = self.api.warehouse

        def look() -> dict[str, Any]:
            with warehouse.store.read() as conn:
                files = warehouse.catalogue.files(conn, name, warehouse.catalogue.snapshot(conn))
            return self.api.front.looking(lambda state: calendar(state, name, files))

        return JSONResponse(await _told(look))

    async def rows(self, request: Request) -> Response:
        """Some rows of a version, read from its files without Spark."""
        name = await self._table(request)
        limit = _whole(request, "limit", 50, _MOST_ROWS)
        at = _whole(request, "at", 0, 1 << 62)
        return JSONResponse(await _told(lambda: self._rows(name, at or None, limit)))

    def _rows(self, name: str, at: int | None, limit: int) -> dict[str, Any]:
        import pyarrow.parquet as pq

        warehouse = self.api.warehouse
        with warehouse.store.read() as conn:
            snapshot = warehouse.catalogue.snapshot(conn) if at is None else at
            try:
                files = warehouse.catalogue.files(conn, name, snapshot)
                schema = warehouse.catalogue.schema(conn, name, snapshot)
            except Expired as error:
                raise Refused(410, str(error)) from None
        columns = [one.name for one in schema or () if not one.name.startswith("_penstock_")]
        rows: list[list[Any]] = []
        # The newest partitions first, which are those that people look for.
        for file in sorted(files, key=lambda file: (-file.partition_us, -file.id)):
            if len(rows) >= limit:
                break
            with pq.ParquetFile(warehouse.catalogue.locate(name, file)) as opened:
                there = [column for column in columns if column in opened.schema_arrow.names]
                for batch in opened.iter_batches(batch_size=limit - len(rows), columns=there):
                    for row in batch.to_pylist():
                        rows.append([plain(row.get(column)) for column in columns])
                    break
        return {
            "table": name,
            "version": snapshot,
            "columns": [{"name": one.name, "type": str(one.type)} for one in schema or () if one.name in columns],
            "rows": rows[:limit],
            "of": sum(file.records for file in files),
        }

    # Time

    async def timeline(self, request: Request) -> Response:
        """Updates between two times, the newest ones if there are too many for one answer."""
        await self.api.access.caller(request)
        now_us = self.api.warehouse.clock.now_us()
        until_us = _whole(request, "until_us", now_us, 1 << 62)
        since_us = _whole(request, "since_us", until_us - HOUR_US, 1 << 62)
        limit = _whole(request, "limit", _MOST_EVENTS, _MOST_EVENTS)

        def look() -> dict[str, Any]:
            store = self.api.warehouse.store
            with store.read() as conn:
                low = store.number_at(conn, since_us)
                high = store.number_at(conn, until_us + 1) + 1
                found = store.newest(conn, (*_BARS, *kinds_of_marks()), high, limit, low)
                oldest = found[-1][2]["at_us"] if len(found) == limit else since_us
            told = bars(found, oldest, len(found) <= _WITH_WHY)
            return {**told, "until_us": until_us, "now_us": now_us, "whole": len(found) < limit}

        return JSONResponse(await _told(look))

    async def log(self, request: Request) -> Response:
        """The newest events, or those before a number; of one kind if it is named. What people did says who."""
        await self.api.access.caller(request)
        before = _whole(request, "before", 0, 1 << 62)
        limit = _whole(request, "limit", 100, _LONGEST_LOG)
        kinds = tuple(one for one in request.query_params.get("kinds", "").split(",") if one)

        def look() -> dict[str, Any]:
            store = self.api.warehouse.store
            with store.read() as conn:
                # Of a rare kind only so much of the log is searched at once; `next` goes on from there.
                high = before or store.last_number(conn) + 1
                low = max(0, high - 100 * limit) if kinds else 0
                found = store.newest(conn, kinds or _EVERY_KIND, high, limit, low)
            rest = found[-1][0] if len(found) == limit else low
            return {"events": [{**body, "number": number} for number, _, body in found], "next": rest or None}

        return JSONResponse(await _told(look))

    # What if

    async def bounds(self, request: Request) -> Response:
        await self.api.access.caller(request)
        said = request.query_params.get("outage")
        tracks = _whole(request, "tracks", 0, 256) or None

        def look() -> dict[str, Any]:
            try:
                outage_us = parse_duration(said) if said else None
            except ValueError as error:
                raise Refused(422, f"outage: {error}") from None
            found = self.api.warehouse.bounds(outage_us, tracks)
            return {
                **asdict(found.report),
                "policy": found.policy,
                "violated": [asdict(each) for each in found.violated],
                "void": {name: asdict(each) for name, each in found.state.void.items()},
            }

        return JSONResponse(await _told(look))

    async def begin_trial(self, request: Request) -> Response:
        await self.api.access.caller(request)
        wish = await self.api.body(request, TrialBody, "a what-if")
        try:
            trial = await to_thread.run_sync(self.trials.begin, wish)
        except TooMany as error:
            raise Refused(429, str(error), {"Retry-After": "1"}) from None
        here = f"/v1/trials/{trial.id}"
        return JSONResponse({"trial": trial.id, **trial.told}, 202, {"Location": here})

    async def _trial(self, request: Request) -> Trial:
        await self.api.access.caller(request)
        trial = self.trials.find(number_of(request.path_params["number"]))
        if trial is None:
            raise Refused(404, "there is no such what-if, or it ended long ago")
        return trial

    async def trial(self, request: Request) -> Response:
        trial = await self._trial(request)
        return JSONResponse({"trial": trial.id, **trial.told})

    async def cancel_trial(self, request: Request) -> Response:
        trial = await self._trial(request)
        self.trials.cancel(trial)
        return JSONResponse({"trial": trial.id, **trial.told})

    # Health, and what an operator does

    async def health(self, request: Request) -> Response:
        await self.api.access.caller(request)
        api = self.api

        def look() -> dict[str, Any]:
            path = Path(api.warehouse.catalogue.data_path)
            disk = shutil.disk_usage(path) if path.is_dir() else None
            now_us = api.warehouse.clock.now_us()
            zone = zone_of(api.warehouse.declared.zone)
            tallies = api.front.tallies
            return {
                "at_us": now_us,
                "disk": {"total": disk.total, "used": disk.used, "free": disk.free} if disk is not None else None,
                "feeds": [asdict(one) for one in api.front.looking(lambda state: feed_healths(state, now_us, zone))],
                "waiting": [asdict(one) for one in api.front.waiting(None)],
                "queries": {
                    "now": api.front.status(),
                    "failed": tallies.failed,
                    "withdrawn": tallies.withdrawn,
                    "profiles": {name: {**asdict(one), "usm": one.usm} for name, one in tallies.satisfaction.items()},
                },
            }

        return JSONResponse(await _told(look))

    async def retry(self, request: Request) -> Response:
        by = await self.api.access.operator(request)
        body = await self.api.body(request, Retries, "a list of names")
        return JSONResponse(asdict(await _told(lambda: self.api.warehouse.retry(body.names, by=by.name))))

    async def pause(self, request: Request) -> Response:
        by = await self.api.access.operator(request)
        body = await self.api.body(request, Pause, "a pause")
        feed = request.path_params["name"]
        done = await _told(lambda: self.api.warehouse.pause(feed, reason=body.reason, by=by.name))
        return JSONResponse(asdict(done))

    async def resume(self, request: Request) -> Response:
        by = await self.api.access.operator(request)
        done = await _told(lambda: self.api.warehouse.resume(request.path_params["name"], by=by.name))
        return JSONResponse(asdict(done))


async def _told(look: Callable[[], T]) -> T:
    """Errors of users become answers that say what was expected."""
    try:
        return await to_thread.run_sync(look)
    except PenstockError as error:
        raise Refused(422, str(error)) from None


def _whole(request: Request, name: str, default: int, most: int) -> int:
    said = request.query_params.get(name)
    if said is None:
        return default
    if not said.isascii() or not said.isdecimal() or len(said) > 19 or int(said) > most:
        raise Refused(400, f"{name}: {said[:40]!r} is not a whole number up to {most}")
    return int(said)
