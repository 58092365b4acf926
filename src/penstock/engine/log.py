"""The log of a process that runs for months: one line for each thing that happened, as text or JSON, on standard output or in a file that is rotated.
What is on record as an event is told in the same words everywhere."""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from penstock.control.events import (
    Event,
    FaultEnded,
    FaultMet,
    FeedCameBack,
    FeedPaused,
    FeedResumed,
    FeedWentOut,
    FileArrived,
    FileQuarantined,
    FileRewritten,
    GuaranteeRenewed,
    GuaranteeVoided,
    RunStarted,
    RunStopped,
    TableRetried,
    UpdateFailed,
    UpdateFinished,
    UpdateStarted,
    UpdateStopped,
)
from penstock.control.faults import WHAT
from penstock.declare.config import LogConfig
from penstock.engine.faults import fault_of
from penstock.errors import PenstockError, masked
from penstock.model.time import format_duration

FILE = "penstock.log"
SPARK_FILE = "spark.log"
_log = logging.getLogger("penstock")
_log.addHandler(logging.NullHandler())  # who uses Penstock as a library says where its log goes


# What is said of an event


@dataclass(frozen=True, slots=True)
class Said:
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    level: int = logging.INFO


def said_of(event: Event) -> Said | None:
    """What a person should know of an event; None of those that are only for the core."""
    match event:
        case UpdateStarted():
            job = event.job
            return Said(f"{job.table}: begins: {event.why}", {"table": job.table, "job": job.id}, logging.DEBUG)
        case UpdateFinished():
            rows = sum(publication.rows for publication in event.publications)
            fields = {"table": event.table, "job": event.job, "how": event.how, "rows": rows}
            text = f"{event.table}: {event.how}, {rows:,} rows in {event.seconds:.2f}s"
            return Said(text, {**fields, "seconds": round(event.seconds, 3)})
        case UpdateFailed():
            fields = {"table": event.table, "job": event.job, "error": event.error, "seconds": round(event.seconds, 3)}
            return Said(f"{event.table}: failed: {event.error.splitlines()[0]}", fields, logging.ERROR)
        case UpdateStopped():
            fields = {"table": event.table, "job": event.job, "seconds": round(event.seconds, 3)}
            return Said(f"{event.table}: stopped", fields)
        case TableRetried():
            return Said(f"{event.table}: tried again, as asked", {"table": event.table})
        case FileArrived():
            file = event.file.uri
            return Said(f"{file}: arrived", {"feed": event.feed, "file": file}, logging.DEBUG)
        case FileQuarantined():
            fields = {"feed": event.feed, "file": event.file.uri, "reason": event.reason}
            return Said(f"{event.file.uri}: set aside: {event.reason}", fields, logging.WARNING)
        case FileRewritten():
            text = f"{event.file.uri}: rewritten since it was loaded; its partitions are made again"
            return Said(text, {"feed": event.feed, "file": event.file.uri})
        case FeedWentOut():
            text = f"{event.feed}: out, a file was due {format_duration(event.at_us - event.since_us)} ago"
            return Said(text, {"feed": event.feed, "since_us": event.since_us}, logging.WARNING)
        case FeedCameBack():
            text = f"{event.feed}: back after {format_duration(event.at_us - event.since_us)}"
            return Said(text, {"feed": event.feed, "since_us": event.since_us})
        case FeedPaused() | FeedResumed():
            what = "paused" if isinstance(event, FeedPaused) else "resumed"
            return Said(f"{event.feed}: {what}", {"feed": event.feed})
        case GuaranteeVoided():
            fields = {"tables": list(event.tables), "because": event.because}
            return Said(f"guarantee of {', '.join(event.tables)} void: {event.because}", fields, logging.WARNING)
        case GuaranteeRenewed():
            return Said(f"guarantee of {', '.join(event.tables)} holds again", {"tables": list(event.tables)})
        case FaultMet():
            again = f"; {event.table} is done again" if event.table else ""
            fields = {"part": event.part, "table": event.table, "job": event.job, "reason": event.reason}
            return Said(f"{WHAT[event.part]} is not available: {event.reason}{again}", fields, logging.WARNING)
        case FaultEnded():
            fields = {"part": event.part, "since_us": event.since_us, "reason": event.reason}
            away = format_duration(event.at_us - event.since_us)
            return Said(f"{WHAT[event.part]} is available again after {away}", fields)
        case RunStarted():
            return Said(f"{event.owner} runs the project", {"owner": event.owner})
        case RunStopped():
            return Said(f"{event.owner} has stopped", {"owner": event.owner})
    return None


def log_event(event: Event) -> None:
    said = said_of(event)
    if said is not None and _log.isEnabledFor(said.level):
        fields = {name: value for name, value in said.fields.items() if value != ""}
        _log.log(said.level, "%s", said.text, extra={"event": event.kind, "fields": fields})


# How it is written


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found = {"event": record.event} if hasattr(record, "event") else {}
    found.update(getattr(record, "fields", {}))
    if record.exc_info:
        found["traceback"] = logging.Formatter().formatException(record.exc_info)
    return found


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"at": _at(record), "level": record.levelname.lower(), "message": record.getMessage(), **_fields(record)}
        return masked(json.dumps(line, default=str, ensure_ascii=False))


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        pairs = "".join(
            f" {name}={json.dumps(value, default=str, ensure_ascii=False)}" for name, value in _fields(record).items()
        )
        message = " ".join(record.getMessage().splitlines())
        return masked(f"{_at(record)} {record.levelname.lower():7} {message} |{pairs}")


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Rotated(RotatingFileHandler):
    """A full disk must not end what is logged, nor print a stack for each line; the fault itself is met and told elsewhere."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextmanager
def written(config: LogConfig, folder: Path) -> Iterator[None]:
    """What happens meanwhile is logged as the project says; also why it ends, if that is an error."""
    handler: logging.Handler
    if config.to == "output":
        handler = logging.StreamHandler(sys.stdout)
    else:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = _Rotated(folder / FILE, maxBytes=config.size, backupCount=config.keep, encoding="utf-8", delay=True)
    handler.setFormatter(JsonLines() if config.format == "json" else TextLines())
    before = _log.level
    _log.addHandler(handler)
    _log.setLevel(config.level.upper())
    try:
        yield
    except Exception as error:
        known = isinstance(error, PenstockError) or fault_of(error) is not None
        _log.error("the process ends: %s", error, exc_info=None if known else error)
        raise
    finally:
        _log.removeHandler(handler)
        _log.setLevel(before)
        with suppress(OSError):
            handler.close()


def keep_small(path: Path, size: int, keep: int) -> None:
    """Rotate a file that another process has open for appending: what it holds is copied, then it is emptied."""
    with suppress(OSError):
        if path.stat().st_size <= size:
            return
        for number in range(keep - 1, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number + 1}"))
        shutil.copyfile(path, path.with_name(f"{path.name}.1"))
        with path.open("r+b") as file:
            file.truncate()


# How it is read


_TEXT = re.compile(r"(\S+) (\w+) +(.*) \|((?: \w+=.*)?)$")
_PAIR = re.compile(r" (\w+)=")


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    """All that the log still has, oldest first, in whichever form it was written."""
    files = sorted(folder.glob(f"{FILE}.*"), key=lambda path: -int(path.suffix[1:]) if path.suffix[1:].isdigit() else 0)
    for path in [*files, folder / FILE]:
        with suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                found = _read(line.rstrip("\n"))
                if found is not None:
                    yield found


def _read(line: str) -> dict[str, Any] | None:
    if line.startswith("{"):
        with suppress(ValueError):
            found = json.loads(line)
            return found if isinstance(found, dict) else None
    match = _TEXT.fullmatch(line)
    if match is None:
        return None
    told: dict[str, Any] = {"at": match[1], "level": match[2], "message": match[3]}
    rest, decoder = match[4], json.JSONDecoder()
    while pair := _PAIR.match(rest):
        try:
            told[pair[1]], end = decoder.raw_decode(rest, pair.end())
        except ValueError:
            break
        rest = rest[end:]
    return told


def is_about(line: Mapping[str, Any], name: str) -> bool:
    """Whether a line is about a table, a feed or a file."""
    return name in (line.get("table"), line.get("feed"), line.get("file")) or name in line.get("tables", ())
