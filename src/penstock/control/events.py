"""What happened. Events are the only thing that enters the core, and the log of them is the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from penstock.model.partitions import Interval
from penstock.model.tables import Feed, Table
from penstock.queries.desk import DeskEntry, DeskSetup
from penstock.queries.situation import Updates
from penstock.requests.job import FeedFile, Job, PublishedTable

# What a changed setting does to what is there: nothing; it applies to what comes; partitions are made again; the table starts
# anew; it is refused.
Effect = Literal["nothing", "comes", "again", "anew", "refused"]


# What a promise that does not hold is about, from the least to the most: with more broken, nothing is left of what is said of less.
PremiseExtent = Literal["outage", "table", "all"]


@dataclass(frozen=True, slots=True)
class SettingChanged:
    """One setting that is another than when the project was last run."""

    setting: str
    before: str
    now: str
    effect: Effect


@dataclass(frozen=True, slots=True)
class WarehouseDeclared:
    at_us: int
    feeds: tuple[Feed, ...]
    tables: tuple[Table, ...]
    tracks: int
    policy: str
    updates: Updates = "always"
    # For people who read the log; what follows from it is decided by the tables themselves.
    changed: tuple[SettingChanged, ...] = ()
    # The cores that its tracks share; None if they have cores of their own, or nobody knows.
    cores: int | None = None
    kind: Literal["warehouse-declared"] = "warehouse-declared"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A process took over: whatever an earlier one was running is void."""

    at_us: int
    owner: str
    kind: Literal["run-started"] = "run-started"


@dataclass(frozen=True, slots=True)
class RunStopped:
    at_us: int
    owner: str
    kind: Literal["run-stopped"] = "run-stopped"


@dataclass(frozen=True, slots=True)
class FileArrived:
    at_us: int
    feed: str
    file: FeedFile
    kind: Literal["file-arrived"] = "file-arrived"


@dataclass(frozen=True, slots=True)
class FileRewritten:
    """A file that was loaded before has other content now. `ranges` are the event times that the old content had."""

    at_us: int
    feed: str
    file: FeedFile
    ranges: tuple[Interval, ...]
    kind: Literal["file-rewritten"] = "file-rewritten"


@dataclass(frozen=True, slots=True)
class FileWithdrawn:
    """A user takes a delivered file back: its rows go, with everything made from them. `ranges` are their event times."""

    at_us: int
    feed: str
    uri: str
    ranges: tuple[Interval, ...]
    reason: str = ""
    kind: Literal["file-withdrawn"] = "file-withdrawn"


@dataclass(frozen=True, slots=True)
class FileQuarantined:
    at_us: int
    feed: str
    file: FeedFile
    reason: str
    kind: Literal["file-quarantined"] = "file-quarantined"


@dataclass(frozen=True, slots=True)
class FilesOffered:
    """A table takes a feed that delivered before: files that it does not hold. `ranges` are the times of older content of
    them that it holds, `promised_us` is what the feed promised last."""

    at_us: int
    table: str
    files: tuple[FeedFile, ...]
    ranges: tuple[Interval, ...] = ()
    promised_us: int | None = None
    kind: Literal["files-offered"] = "files-offered"


@dataclass(frozen=True, slots=True)
class PunctuationArrived:
    """A promise: nothing older than `upto_us` will come on this feed."""

    at_us: int
    feed: str
    upto_us: int
    kind: Literal["punctuation-arrived"] = "punctuation-arrived"


@dataclass(frozen=True, slots=True)
class UpdateStarted:
    at_us: int
    job: Job
    track: int
    why: str
    # The last event that the decision knew of.
    decided_at: int = 0
    # What the policy remembers from this decision on; None if that is what it remembered before.
    memory: Mapping[str, Any] | None = None
    # Since when it could start, if something had held it up before.
    able_us: int | None = None
    kind: Literal["update-started"] = "update-started"


@dataclass(frozen=True, slots=True)
class UpdateFinished:
    at_us: int
    job: str
    table: str
    publications: tuple[PublishedTable, ...]
    seconds: float
    how: str = ""
    kind: Literal["update-finished"] = "update-finished"


@dataclass(frozen=True, slots=True)
class UpdateFailed:
    at_us: int
    job: str
    table: str
    error: str
    seconds: float = 0.0
    # Trying again cannot help (for instance a refused schema change).
    final: bool = False
    kind: Literal["update-failed"] = "update-failed"


@dataclass(frozen=True, slots=True)
class TableRetried:
    """A user asks to try a failed table again."""

    at_us: int
    table: str
    # Who asked, as far as is known; the same below.
    by: str = ""
    kind: Literal["table-retried"] = "table-retried"


@dataclass(frozen=True, slots=True)
class TablePublished:
    """Others changed a table of their own accord, not for an order: one that reads no table of ours, or another program
    wrote to the catalogue. `why` says who and what, after "because it"."""

    at_us: int
    table: str
    publication: PublishedTable
    job: str
    why: str = ""
    kind: Literal["table-published"] = "table-published"


@dataclass(frozen=True, slots=True)
class BackfillRequested:
    """A user asks for partitions to be made again. The number of the event is the number of the request."""

    at_us: int
    table: str
    # Event times; whatever partition they touch is meant.
    ranges: tuple[Interval, ...]
    reason: str = ""
    # Whether what reads the table follows, or waits for another reason.
    downstream: bool = True
    deadline_us: int | None = None
    by: str = ""
    kind: Literal["backfill-requested"] = "backfill-requested"


@dataclass(frozen=True, slots=True)
class RequestCancelled:
    """A user takes a request back: what was not made yet need not be, as far as only this request wanted it."""

    at_us: int
    request: int
    table: str
    by: str = ""
    kind: Literal["request-cancelled"] = "request-cancelled"


@dataclass(frozen=True, slots=True)
class UpdateStopped:
    """A running update was given up for a newer request that asks for the same partitions and more."""

    at_us: int
    job: str
    table: str
    seconds: float = 0.0
    kind: Literal["update-stopped"] = "update-stopped"


@dataclass(frozen=True, slots=True)
class RefreshRequested:
    """A query needs these partitions up to date before its deadline; `wanted` has the tables on the way, sources first."""

    at_us: int
    query: str
    wanted: tuple[tuple[str, tuple[Interval, ...]], ...]
    deadline_us: int
    kind: Literal["refresh-requested"] = "refresh-requested"


@dataclass(frozen=True, slots=True)
class DemandSeen:
    """How many queries read each table since the last such event."""

    at_us: int
    reads: tuple[tuple[str, int], ...]
    # The part of what the machine can do that queries took meanwhile.
    busy: float = 0.0
    kind: Literal["demand-seen"] = "demand-seen"


@dataclass(frozen=True, slots=True)
class DeskOpened:
    """A front door opened: what decides about queries from now on."""

    at_us: int
    setup: DeskSetup
    kind: Literal["desk-opened"] = "desk-opened"


@dataclass(frozen=True, slots=True)
class QueriesHandled:
    """What came to the front door since the last such event, and what it decided."""

    at_us: int
    entries: tuple[DeskEntry, ...]
    kind: Literal["queries-handled"] = "queries-handled"


@dataclass(frozen=True, slots=True)
class PeriodsStretched:
    """The policy of queries wants at least so long between two updates of these tables, and of no others."""

    at_us: int
    periods: tuple[tuple[str, int], ...]
    kind: Literal["periods-stretched"] = "periods-stretched"


@dataclass(frozen=True, slots=True)
class FeedWentOut:
    """Nothing has come on a feed for much longer than usual."""

    at_us: int
    feed: str
    # When the first file was due that did not come.
    since_us: int
    last_us: int | None = None
    kind: Literal["feed-went-out"] = "feed-went-out"


@dataclass(frozen=True, slots=True)
class FeedCameBack:
    at_us: int
    feed: str
    since_us: int
    kind: Literal["feed-came-back"] = "feed-came-back"


@dataclass(frozen=True, slots=True)
class FeedPaused:
    """A user asks to notice the files of a feed, but not to load them until it is resumed."""

    at_us: int
    feed: str
    reason: str = ""
    by: str = ""
    kind: Literal["feed-paused"] = "feed-paused"


@dataclass(frozen=True, slots=True)
class FeedResumed:
    at_us: int
    feed: str
    by: str = ""
    kind: Literal["feed-resumed"] = "feed-resumed"


@dataclass(frozen=True, slots=True)
class FaultMet:
    """A part of the world is not available. An update that met it is pending again, and none of its attempts is used up."""

    at_us: int
    part: Literal["store", "storage", "spark"]
    reason: str
    # The update that met it, if one did.
    job: str = ""
    table: str = ""
    seconds: float = 0.0
    kind: Literal["fault-met"] = "fault-met"


@dataclass(frozen=True, slots=True)
class FaultEnded:
    """It is available again."""

    at_us: int
    part: Literal["store", "storage", "spark"]
    since_us: int
    reason: str
    kind: Literal["fault-ended"] = "fault-ended"


@dataclass(frozen=True, slots=True)
class GuaranteeVoided:
    """Something that the bounds of these tables rest on is not so: nothing is promised of them from now on."""

    at_us: int
    tables: tuple[str, ...]
    because: str
    # What it concerns: a feed that is out, these tables by themselves, or all, as the tracks did not do what was assumed.
    extent: PremiseExtent = "table"
    kind: Literal["guarantee-voided"] = "guarantee-voided"


@dataclass(frozen=True, slots=True)
class GuaranteeRenewed:
    """All that the bounds of these tables rest on is as assumed again, and they are as fresh as if it had always been."""

    at_us: int
    tables: tuple[str, ...]
    kind: Literal["guarantee-renewed"] = "guarantee-renewed"


@runtime_checkable
class OfTable(Protocol):
    """An event of one table."""

    @property
    def table(self) -> str: ...


@runtime_checkable
class OfFeed(Protocol):
    """An event of one feed."""

    @property
    def feed(self) -> str: ...


Event = (
    WarehouseDeclared
    | RunStarted
    | RunStopped
    | FileArrived
    | FileRewritten
    | FileWithdrawn
    | FileQuarantined
    | FilesOffered
    | PunctuationArrived
    | UpdateStarted
    | UpdateFinished
    | UpdateFailed
    | TableRetried
    | TablePublished
    | BackfillRequested
    | RequestCancelled
    | UpdateStopped
    | RefreshRequested
    | DemandSeen
    | DeskOpened
    | QueriesHandled
    | PeriodsStretched
    | FeedWentOut
    | FeedCameBack
    | FeedPaused
    | FeedResumed
    | FaultMet
    | FaultEnded
    | GuaranteeVoided
    | GuaranteeRenewed
)


@dataclass(frozen=True, slots=True)
class StartUpdate:
    """The command that the core gives to a runtime."""

    job: Job
    track: int
    why: str
    at_us: int
    memory: Mapping[str, Any] | None = None
    able_us: int | None = None

    def started(self, decided_at: int) -> UpdateStarted:
        """What to put on record when it is carried out."""
        return UpdateStarted(self.at_us, self.job, self.track, self.why, decided_at, self.memory, self.able_us)
