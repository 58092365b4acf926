"""What the network of the demo delivers: every file of a stretch of time, decided beforehand.

The same seed and the same stretch give the same files, byte for byte, however fast the machine is that delivers them. Each
file's rows come from a generator of their own, so that adding an incident does not change all the others.
"""

from __future__ import annotations

import csv
import io
import json
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Literal

from penstock.engine.ports import Clock
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US, SECOND_US, moment

FEEDS = ("router_stats", "alerts", "syslog", "topology")

# late: within the feed's lateness or, on a feed that waits for nothing, a correction; again: the same file once more;
# corrected: the same name with other content; held: kept back by the outage
Kind = Literal["plain", "late", "again", "corrected", "malformed", "held"]


@dataclass(frozen=True, slots=True)
class DemoFile:
    """One file and when it is delivered. `rows` and `refused` say what a loader must make of it."""

    due_us: int
    feed: str
    name: str
    content: bytes
    rows: int
    refused: int = 0
    kind: Kind = "plain"

    @property
    def path(self) -> str:
        return f"landing/{self.feed}/{self.name}"


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that the feeds do wrong, for people to read while it happens."""

    start_us: int
    end_us: int
    text: str


@dataclass(frozen=True, slots=True)
class Scale:
    history_h: int = 3
    routers: int = 40
    alert_every_s: int = 10
    syslog_lines: int = 150


@dataclass(frozen=True, slots=True)
class Router:
    name: str
    site: str
    region: str
    role: str
    bytes_per_minute: int
    phase: int


class Network:
    """The deliveries of `duration_us` from `origin_us` on, after some hours of coarse history."""

    def __init__(self, origin_us: int, duration_us: int, seed: int = 7, scale: Scale | None = None) -> None:
        self.origin_us = origin_us
        self.end_us = origin_us + duration_us
        self.duration_us = duration_us
        self.seed = seed
        self.scale = scale or Scale()
        self.routers = self._routers()
        self.outage = Incident(self._at(0.55), self._at(0.72), "alerts: outage, nothing comes")

    def _at(self, share: float) -> int:
        """A moment of the stretch, to the minute."""
        return self.origin_us + int(self.duration_us * share) // MINUTE_US * MINUTE_US

    def _random(self, *what: object) -> Random:
        return Random(":".join(map(str, (self.seed, *what))))

    def _routers(self) -> list[Router]:
        sites = [("ams", "europe"), ("fra", "europe"), ("nyc", "america"), ("sfo", "america"), ("sin", "asia")]
        routers = []
        for number in range(self.scale.routers):
            random = self._random("router", number)
            site, region = sites[number % len(sites)]
            role = "core" if number < len(sites) else "edge"
            load = 10 ** random.uniform(6.5, 7.5) * (8 if role == "core" else 1)
            routers.append(Router(f"{site}-{role}-{number:02d}", site, region, role, int(load), random.randrange(60)))
        return routers

    # All files

    def history(self) -> list[DemoFile]:
        """What came before the demo begins: one file a feed and day, with hourly samples."""
        begin = self.origin_us // HOUR_US * HOUR_US - self.scale.history_h * HOUR_US
        made: list[DemoFile] = []
        day = begin // DAY_US * DAY_US
        while day < self.origin_us:
            first, last = max(begin, day), min(self.origin_us, day + DAY_US)
            hours = range(first, last, HOUR_US)
            # The hour in which the demo begins is sampled up to its beginning only.
            spans = [(hour, min(HOUR_US, last - hour)) for hour in hours]
            name = f"history-{_stamp(day)[:8]}"
            # Samples of whole hours lie in their first minutes: the history has few partitions and loads fast.
            stats = [
                row
                for hour, span in spans
                for row in self._stats_rows(hour, 5 * MINUTE_US if span == HOUR_US else span, span // MINUTE_US)
            ]
            alerts = [row for hour, span in spans for row in self._alert_rows(hour, span, 12)]
            lines = [row for hour, span in spans for row in self._syslog_rows(hour, span, self.scale.syslog_lines)]
            made.append(_delivery(self.origin_us, "router_stats", f"{name}.csv", stats))
            made.append(_delivery(self.origin_us, "alerts", f"{name}.json", alerts))
            made.append(_delivery(self.origin_us, "syslog", f"{name}.csv", lines))
            made.append(self._topology(day, self.origin_us))
            day += DAY_US
        return made

    def deliveries(self) -> list[DemoFile]:
        """Everything that is delivered while the demo runs, in order."""
        made = [*self._router_stats(), *self._alerts(), *self._syslog(), *self._topologies(), *self._mishaps()]
        return sorted(made, key=lambda delivery: (delivery.due_us, delivery.feed, delivery.name, delivery.kind))

    def incidents(self) -> list[Incident]:
        found = [self.outage]
        texts = {
            "late": "a file comes late",
            "again": "a file is delivered twice",
            "corrected": "a file is corrected after it was loaded",
            "malformed": "a malformed file comes",
        }
        for delivery in self.deliveries():
            shown = self.duration_us // 20
            if delivery.kind in texts:
                found.append(
                    Incident(delivery.due_us, delivery.due_us + shown, f"{delivery.feed}: {texts[delivery.kind]}")
                )
            elif delivery.feed == "topology":
                text = "topology: the new day's snapshot comes"
                found.append(Incident(delivery.due_us, delivery.due_us + shown, text))
        return sorted(found, key=lambda incident: incident.start_us)

    # Feed by feed

    def _router_stats(self) -> Iterator[DemoFile]:
        """A file a minute. Three come late, but within what the feed allows; two hold rows that must be refused."""
        late = {self._at(share) for share in (0.15, 0.5, 0.8)}
        bad = {self._at(share) for share in (0.25, 0.65)}
        for start in range(self.origin_us, self.end_us - MINUTE_US + 1, MINUTE_US):
            rows = self._stats_rows(start, MINUTE_US, 1)
            refused = 0
            if start in bad:
                rows = [dict(row) for row in rows]
                rows[0]["bytes_in"] = "n/a"
                rows[1]["ts"] = ""
                rows[2]["bytes_out"] = -1
                refused = 3
            due = start + MINUTE_US
            delivery = _delivery(due, "router_stats", f"stats-{_stamp(start)}.csv", rows, refused)
            if start in late:
                delivery = replace(delivery, due_us=due + 100 * SECOND_US, kind="late")
            yield delivery

    def _alerts(self) -> Iterator[DemoFile]:
        """A file every few seconds, except while the feed is down: then all of them at its end."""
        step = self.scale.alert_every_s * SECOND_US
        for start in range(self.origin_us, self.end_us - step + 1, step):
            random = self._random("alerts per file", start)
            rows = self._alert_rows(start, step, random.choice((1, 1, 2, 2, 3)))
            refused = 0
            if start == self._at(0.3):
                rows, refused = [*rows, rows[0] | {"raised": None}], 1
            delivery = _delivery(start + step, "alerts", f"alerts-{_stamp(start)}.json", rows, refused)
            if self.outage.start_us <= delivery.due_us < self.outage.end_us:
                delivery = replace(delivery, due_us=self.outage.end_us, kind="held")
            yield delivery

    def _syslog(self) -> Iterator[DemoFile]:
        """A file every five minutes. One comes long after later ones: hours that were complete change once more."""
        step = 5 * MINUTE_US
        first = -(-self.origin_us // step) * step
        starts = range(first, self.end_us - step + 1, step)
        for number, start in enumerate(starts):
            rows = self._syslog_rows(start, step, self.scale.syslog_lines)
            delivery = _delivery(start + step, "syslog", f"syslog-{_stamp(start)}.csv", rows)
            if number == len(starts) // 4:
                due = delivery.due_us + min(25 * MINUTE_US, self.duration_us // 4)
                delivery = replace(delivery, due_us=due, kind="late")
            yield delivery

    def _topologies(self) -> Iterator[DemoFile]:
        """Each new day's snapshot, some minutes after midnight."""
        day = self.origin_us // DAY_US * DAY_US + DAY_US
        while day < self.end_us:
            yield self._topology(day, day + min(8 * MINUTE_US, (self.end_us - day) // 2))
            day += DAY_US

    def _mishaps(self) -> Iterator[DemoFile]:
        """Files beside the regular ones: one with the wrong columns, one that comes again, one that is corrected."""
        start = self._at(0.35)
        text = b"router;time;in;out\nams-core-00;yesterday;1;2\n"
        yield DemoFile(start, "router_stats", f"stats-{_stamp(start)}-poller2.csv", text, 0, 0, "malformed")
        start = self._at(0.2)
        due = min(self.end_us, start + 6 * MINUTE_US)
        name = f"stats-{_stamp(start)}.csv"
        yield _delivery(due, "router_stats", name, self._stats_rows(start, MINUTE_US, 1), kind="again")
        start = self._at(0.4)
        due = min(self.end_us, start + 20 * MINUTE_US)
        rows = [row | {"errors": 0} for row in self._stats_rows(start, MINUTE_US, 1)]
        yield _delivery(due, "router_stats", f"stats-{_stamp(start)}.csv", rows, kind="corrected")

    # Rows

    def _stats_rows(self, start_us: int, span_us: int, minutes: int) -> list[dict[str, object]]:
        """One sample a router, for so many minutes of traffic."""
        random = self._random("stats", start_us)
        hour = start_us % DAY_US / HOUR_US
        daily = 1 + 0.6 * math.sin((hour - 9) / 24 * 2 * math.pi)
        rows: list[dict[str, object]] = []
        for router in self.routers:
            load = router.bytes_per_minute * minutes * daily * random.uniform(0.7, 1.3)
            rows.append(
                {
                    "router": router.name,
                    "ts": _time(start_us + span_us * router.phase // 60),
                    "bytes_in": int(load),
                    "bytes_out": int(load * random.uniform(0.3, 0.9)),
                    "errors": random.choice((0, 0, 0, 0, 0, 1, 2, 9)),
                    "cpu": min(100, int(25 + 40 * daily * random.random())),
                }
            )
        return rows

    def _alert_rows(self, start_us: int, span_us: int, count: int) -> list[dict[str, object]]:
        random = self._random("alerts", start_us)
        codes = ("LINK_DOWN", "BGP_FLAP", "HIGH_CPU", "FAN_FAIL", "CRC_ERRORS")
        rows: list[dict[str, object]] = []
        for offset in sorted(random.randrange(span_us // SECOND_US) for _ in range(count)):
            router = random.choice(self.routers)
            code = random.choice(codes)
            rows.append(
                {
                    "raised": _time(start_us + offset * SECOND_US),
                    "router": router.name,
                    "severity": random.choice((1, 2, 2, 3, 3, 4, 5)),
                    "code": code,
                    "message": f"{code} on {router.name}",
                }
            )
        return rows

    def _syslog_rows(self, start_us: int, span_us: int, count: int) -> list[dict[str, object]]:
        random = self._random("syslog", start_us)
        rows: list[dict[str, object]] = []
        for offset in sorted(random.randrange(span_us // SECOND_US) for _ in range(count)):
            rows.append(
                {
                    "ts": _time(start_us + offset * SECOND_US),
                    "router": random.choice(self.routers).name,
                    "level": random.choice((2, 3, 4, 4, 5, 5, 6, 6, 6, 6)),
                    "program": random.choice(("bgpd", "ospfd", "kernel", "sshd", "snmpd")),
                    "message": f"event {random.randrange(10**6)}, see the log",
                }
            )
        return rows

    def _topology(self, day_us: int, due_us: int) -> DemoFile:
        """Nearly the same every day: one edge router moves house."""
        moves = self._random("move", day_us).randrange(len(self.routers))
        rows: list[dict[str, object]] = []
        for number, router in enumerate(self.routers):
            at = self.routers[(number + 1) % len(self.routers)] if number == moves else router
            rows.append(
                {
                    "day": moment(day_us).strftime("%Y-%m-%d"),
                    "router": router.name,
                    "site": at.site,
                    "region": at.region,
                    "role": router.role,
                }
            )
        return _delivery(due_us, "topology", f"topology-{_stamp(day_us)[:8]}.csv", rows)


def _delivery(
    due_us: int, feed: str, name: str, rows: Sequence[dict[str, object]], refused: int = 0, kind: Kind = "plain"
) -> DemoFile:
    write = _json if name.endswith(".json") else _csv
    return DemoFile(due_us, feed, name, write(rows), len(rows) - refused, refused, kind)


def _csv(rows: Sequence[dict[str, object]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _json(rows: Sequence[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _time(instant_us: int) -> str:
    return moment(instant_us).strftime("%Y-%m-%dT%H:%M:%SZ")


def _stamp(instant_us: int) -> str:
    return moment(instant_us).strftime("%Y%m%dT%H%M%S")


# Delivers the files of the demo's feeds, each when its time has come by the demo's clock.


class Generator:
    """Writes files in a thread of its own until all are written. Whatever the machine's speed, all of them are."""

    def __init__(self, folder: Path, deliveries: Sequence[DemoFile], clock: Clock, end_us: int) -> None:
        self._folder = folder
        self._deliveries = list(deliveries)
        self._clock = clock
        self._end_us = end_us
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-demo-feeds", daemon=True)
        self.finished = threading.Event()
        self.delivered: list[DemoFile] = []
        self.error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Deliver nothing more."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            for delivery in self._deliveries:
                if self._wait_until(min(delivery.due_us, self._end_us)):
                    return
                deliver(self._folder, delivery)
                self.delivered.append(delivery)
            self._wait_until(self._end_us)
        except BaseException as error:
            self.error = error
        finally:
            self.finished.set()

    def _wait_until(self, instant_us: int) -> bool:
        """Whether we were stopped while waiting."""
        return self._stopped.wait(max(0.0, self._clock.wall_s(instant_us - self._clock.now_us())))


def deliver(folder: Path, delivery: DemoFile) -> None:
    """Whole or not at all: readers never see half a file."""
    path = folder / delivery.path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name("." + path.name)
    part.write_bytes(delivery.content)
    part.replace(path)
