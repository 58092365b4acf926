"""What can be set: penstock.toml, feeds and tables, checked at the door."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import tomllib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from penstock.declare.problems import Keys, Location, Problem, ProjectError, key_lines, line_of
from penstock.declare.spark_settings import refused
from penstock.declare.validate import Flaw, validate
from penstock.declare.values import (
    Absent,
    Bytes,
    Count,
    Data,
    Duration,
    FeedFormat,
    FileOrder,
    FlowOrder,
    KeyColumns,
    LocalFolder,
    Name,
    Partition,
    Period,
    PlainOption,
    Policy,
    Positive,
    Propagate,
    QueryPolicyText,
    Queue,
    ReasonText,
    RestatedTimes,
    StoreUrl,
    Waits,
    Webhook,
    Zone,
)
from penstock.flows.frontier import RunPreferences
from penstock.flows.ordering import LEAST_PEAK
from penstock.model.time import SECOND_US
from penstock.queries.policies import LIVE as UNIT
from penstock.queries.policies.unit import UnitSettings
from penstock.scheduling.policies import DEFAULT

# Policies of a project's own: `policies.py` beside penstock.toml (or beside a scenario), imported before names of policies
# are looked up. What it registers is then known by name.

POLICIES_FILE = "policies.py"
_loaded: dict[Path, str] = {}


def load_policies(folder: Path) -> None:
    """Import the policies of a folder, if it has any and they are not known already."""
    path = (folder / POLICIES_FILE).resolve()
    if not path.is_file():
        return
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    if _loaded.get(path) == content:
        return
    # One name a path: a changed file takes the place of what it registered before.
    name = f"penstock_policies_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = frames[-1].lineno if frames and frames[-1].lineno else getattr(error, "lineno", None) or 1
        message = f"{type(error).__name__}: {error}"
        raise ProjectError([Problem(Location(POLICIES_FILE, line), message)]) from None
    _loaded[path] = content


FILE_NAME = "penstock.toml"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


# Formats with columns of their own, which are not text.
BINARY = ("parquet", "orc")


class FeedConfig(Strict):
    """A feed of files. The keys below `partition` are those of the base table that takes the rows as they are."""

    path: str
    format: FeedFormat
    columns: str | None = None
    time: str | None = None
    # In which its times without offset are; None for that of the project.
    zone: Zone | None = None
    period: Period = 60_000_000
    lateness: Duration = 0
    # What becomes of rows that are later than that.
    late: Literal["load", "set aside"] = "load"
    jitter: Duration | None = None
    punctuation: str | None = None
    mode: Literal["append", "snapshot", "changes", "upsert"] = "append"
    # What orders files that state the same partitions, or rows of one key.
    order: FileOrder = "arrival"
    # Of changes and upserts: what says which row is meant; the column with what became of it; whether every version is kept.
    key: KeyColumns = ()
    change: Annotated[str, Field(min_length=1)] = "op"
    history: Annotated[bool, Field(strict=True)] = False
    # What files are a reason for, by patterns of their names.
    reasons: dict[str, ReasonText] = Field(default_factory=dict)
    options: dict[str, PlainOption] = Field(default_factory=dict)
    rules: tuple[str, ...] = ()
    settle: Duration = 500_000
    # How often its folders are looked at; None for at once when the system tells of a file.
    look_every: Period | None = None
    # Whether links in the landing folder are followed: who may write there could make this process read any file.
    follow_links: bool = False
    max_ahead: Duration = 86_400_000_000
    partition: Partition = "none"
    priority: Positive = 1.0
    freshness: Period | None = None
    guarantee: Annotated[bool, Field(strict=True)] = False
    cost: Period | None = None
    recovery: Period | None = None
    restated: RestatedTimes | None = None
    queue: Queue | None = None
    keep_versions: Count | None = None
    keep_days: Positive | None = None
    owner: str = ""
    tags: tuple[str, ...] = ()

    @property
    def widths(self) -> list[int]:
        """How many characters each column of a text of fixed width has. Raises `ValueError`."""
        said = next((str(value) for key, value in self.options.items() if key.lower() == "widths"), "")
        found = [int(part) for part in said.split(",")]
        if min(found) < 1:
            raise ValueError(said)
        return found


# Settings of a feed that belong to its base table.
OF_TABLE = (
    "partition",
    "priority",
    "freshness",
    "guarantee",
    "cost",
    "recovery",
    "restated",
    "queue",
    "keep_versions",
    "keep_days",
    "owner",
    "tags",
)


class TableConfig(Strict):
    """The header of a SQL table, or the arguments of a decorated function."""

    name: Name | None = None
    feed: str | None = None
    partition: Partition = "none"
    time: str | None = None
    sources: dict[str, str] = Field(default_factory=dict)
    priority: Positive = 1.0
    period: Period | None = None
    freshness: Period | None = None
    update: Literal["continuous", "closed"] = "continuous"
    history_weight: Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)] = 0.1
    attempts: Count = 4
    propagate: Propagate = ("all",)
    overrun: Literal["queue", "preempt", "skip"] = "queue"
    absent: Absent = Field(default_factory=dict)
    waits: Waits = Field(default_factory=dict)
    columns: str | None = None
    code_version: str | int | None = None
    # Why its SQL or its code was changed the last time; tables that follow only some changes go by that.
    reason: ReasonText | None = None
    keep_versions: Count | None = None
    keep_days: Positive | None = None
    chop: Count | None = None
    # For the adaptive policy and for `penstock bounds`: a reservation, and the longest time of an update with the data of
    # one period.
    guarantee: Annotated[bool, Field(strict=True)] = False
    cost: Period | None = None
    # How often it is updated while it recovers from an outage; None for as often as there is room for.
    recovery: Period | None = None
    group: Name | None = None
    # How long late work may wait for a newer change; None for what the project says.
    patience: Duration | None = None
    # What an hour costs by which late work of it comes later, in seconds of updates; None for what the project says.
    late_cost: Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)] | None = None
    # For readers of the docs: whom to ask, and words to find it by.
    owner: str = ""
    tags: tuple[str, ...] = ()
    # When its old partitions are stated anew: what is made from it may wait for that.
    restated: RestatedTimes | None = None
    # How long reasons to update it are collected after the first of them.
    queue: Queue | None = None
    # Of a table that others make: what it is made from, where its rows are, how the outside job is told of a work order, and
    # how long it may take.
    kind: Literal["external"] | None = None
    reads: tuple[Name, ...] = ()
    data: Data = "files"
    command: Annotated[str, Field(min_length=1)] | None = None
    webhook: Webhook | None = None
    order_within: Period | None = None


# Settings that only tables have that others make.
OF_EXTERNAL = ("reads", "data", "command", "webhook", "order_within")


class StorageConfig(Strict):
    path: LocalFolder = "warehouse"
    # Tables whose own declaration does not say keep this many old versions.
    keep_versions: Count | None = None
    keep_days: Positive | None = 7


class ReplicaConfig(Strict):
    """Another place where tables can be read."""

    path: Annotated[str, Field(min_length=1)]
    # All, if none is named.
    tables: tuple[str, ...] = ()
    # The newest so many versions of each table.
    keep_versions: Count = 10


class StoreConfig(Strict):
    url: StoreUrl | None = None


class RunConfig(Strict):
    tracks: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = None
    # How long late work of any table may wait for a newer change.
    patience: Duration | None = None
    # What an hour of lateness costs a table of priority 1, in seconds of updates; others in proportion.
    late_cost: Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)] = 0.0
    policy: Policy = DEFAULT
    # How long running updates may go on when the process is asked to stop.
    grace: Duration = 30_000_000
    # Of at most this much input the result is collected and written by this process; of more, by Spark's writer.
    driver_bytes: Annotated[int, Field(ge=0, le=1 << 30, strict=True)] = 8 << 20


class FlowsConfig(Strict):
    """How flows run."""

    objective: Literal["time", "memory", "balanced"] = "time"
    # Of what is staged, for all flows that run at the same time. None: half of what Spark has for storage.
    memory: Bytes | None = None
    # Steps of a flow that may run at the same time. None: as many as Spark has cores.
    slots: Count | None = None
    order: FlowOrder = LEAST_PEAK

    @property
    def running(self) -> RunPreferences:
        return RunPreferences(self.objective, self.memory, self.slots, self.order)


class QueriesConfig(Strict):
    """How queries are answered."""

    policy: QueryPolicyText = "max-satisfaction"
    lanes: Annotated[int, Field(ge=1, le=1000, strict=True)] = 2
    functions: tuple[str, ...] = ()
    inline_rows: Count = 10_000
    most_rows: Count = 1_000_000
    longest: Period = 600_000_000
    most_waiting: Count = 2_000
    # Bytes: of an answer in a message, of answers that are kept, of what a query has on disk and of all files of answers.
    inline_bytes: Count = 16 << 20
    kept_bytes: Count = 64 << 20
    disk_bytes: Count = 8 << 30
    # So long the files of a large answer are there.
    files_kept: Period = 3_600_000_000
    # Of Java, for each query that runs at the same time.
    memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = "1g"
    # The constants of the policies with a controller: how long it waits until it judges what it did (also of qmf), and those of UNIT.
    unit_grace: Period = 30_000_000
    unit_victims: Annotated[float, Field(gt=0, le=1)] = UNIT.victims
    unit_c_du: Positive = UNIT.c_du
    unit_c_uu: Positive = UNIT.c_uu
    unit_c_forget: Annotated[float, Field(gt=0, le=1)] = UNIT.c_forget
    unit_stretch: Annotated[float, Field(gt=1, allow_inf_nan=False)] = UNIT.stretch

    @property
    def unit(self) -> UnitSettings:
        return UnitSettings(
            self.unit_grace / SECOND_US,
            self.unit_victims,
            self.unit_c_du,
            self.unit_c_uu,
            self.unit_c_forget,
            self.unit_stretch,
        )


class ServeConfig(Strict):
    """Who may ask over the network."""

    # Nobody without a token, also not from this machine.
    tokens: bool = False
    # Names by which others call it.
    hosts: tuple[str, ...] = ()


class LogConfig(Strict):
    """What the process that runs the project logs, and where."""

    # A file in `.penstock` that is rotated, or standard output.
    to: Literal["file", "output"] = "file"
    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"
    # The same for the log of Spark, which lies beside it.
    size: Bytes = 10 << 20
    keep: Count = 5


class ProfileConfig(Strict):
    """What queries of a user or an application need unless they say otherwise."""

    within: Period | None = None
    fresh: Duration | None = None
    lag: Annotated[int, Field(ge=0, strict=True)] | None = None
    consistent: bool = True
    stale: Literal["mark", "withhold"] = "mark"
    share: Positive = 1.0
    # Whether those who have a token of it may change something (backfills, pauses, retries), or only look.
    role: Literal["reader", "operator"] = "reader"
    success: Positive = 1.0
    rejected: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    missed: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    outdated: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class ProjectConfig(Strict):
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
    zone: Zone = "UTC"
    tables: LocalFolder = "tables"
    storage: StorageConfig = StorageConfig()
    store: StoreConfig = StoreConfig()
    run: RunConfig = RunConfig()
    flows: FlowsConfig = FlowsConfig()
    queries: QueriesConfig = QueriesConfig()
    serve: ServeConfig = ServeConfig()
    log: LogConfig = LogConfig()
    profiles: dict[Name, ProfileConfig] = Field(default_factory=dict)
    spark: dict[str, PlainOption] = Field(default_factory=dict)
    feeds: dict[str, FeedConfig] = Field(default_factory=dict)
    replicas: dict[Name, ReplicaConfig] = Field(default_factory=dict)


# The file


@dataclass(frozen=True)
class ConfigFile:
    config: ProjectConfig
    flaws: tuple[Flaw, ...]
    lines: Mapping[Keys, int]

    def at(self, *keys: str) -> Location:
        return Location(FILE_NAME, line_of(self.lines, keys))

    @property
    def problems(self) -> list[Problem]:
        # `"driver.memory"` and driver.memory are the same to us, but not to TOML.
        written = {".".join(keys): keys for keys in self.lines}
        names = [".".join(flaw.keys) for flaw in self.flaws]
        return [
            Problem(self.at(*written.get(name, name.split("."))), flaw.message)
            for name, flaw in zip(names, self.flaws, strict=True)
        ]

    def of_feed(self, name: str) -> tuple[frozenset[str], dict[str, int]]:
        """The settings of a feed that are broken, and the lines of all."""
        place = ("feeds", name)
        broken = frozenset(flaw.keys[2] for flaw in self.flaws if flaw.keys[:2] == place and len(flaw.keys) > 2)
        return broken, {".".join(keys[2:]): line for keys, line in self._lines_by_place.get(place, ())}

    @cached_property
    def _lines_by_place(self) -> dict[tuple[str, ...], list[tuple[tuple[str, ...], int]]]:
        found: dict[tuple[str, ...], list[tuple[tuple[str, ...], int]]] = {}
        for keys, line in self.lines.items():
            found.setdefault(tuple(keys[:2]), []).append((keys, line))
        return found


def load_config(folder: Path) -> ConfigFile:
    """Raises `ProjectError` if there is nothing to go on with."""
    path = folder / FILE_NAME
    if not path.is_file():
        message = "there is no such file; make a project with `penstock init`, or name its folder with --project"
        raise ProjectError([Problem(Location(str(path), 1), message)])
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProjectError([Problem(Location(FILE_NAME, 1), f"not UTF-8 text: {error}")]) from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, message = toml_problem(error, text)
        raise ProjectError([Problem(Location(FILE_NAME, line), message)]) from None
    if isinstance(data.get("spark"), dict):
        data["spark"] = _flat(data["spark"])
    load_policies(folder)
    checked = validate(ProjectConfig, data)
    not_ours = tuple(Flaw(("spark", key), message) for key, message in refused(checked.value.spark))
    return ConfigFile(checked.value, (*checked.flaws, *not_ours), key_lines(text))


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`driver.memory = "2g"` is a table in a table to TOML; for Spark it is one name."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        inner = {f"{key}.{name}": each for name, each in _flat(value).items()} if isinstance(value, dict) else None
        found.update(inner or {key: value})
    return found


_BARE_WORD = re.compile(r"\s*[\w.-]+\s*=\s*([A-Za-z_][\w/*.-]*|\d+[a-z]+)\s*(#.*)?$")


def toml_problem(error: tomllib.TOMLDecodeError, text: str) -> tuple[int, str]:
    """The line and what is wrong with it."""
    found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
    lines = text.splitlines()
    line = int(found[1]) if found else len(lines)
    message = f"not valid TOML: {re.sub(r' *[(]at .*[)]', '', str(error))}"
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    if "Cannot overwrite" in message or "Cannot declare" in message:
        message = "not valid TOML: a key stands twice"
    elif found:
        message += f", column {found[2]}"
    if (bare := _BARE_WORD.match(written)) and bare[1] not in ("true", "false"):
        message += f'; a text is written in quotes: "{bare[1]}"'
    return max(line, 1), message
