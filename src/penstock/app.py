"""The composition root: the only place that knows everyone. `Warehouse` is the Python face of a project. What needs Spark or Arrow is imported where
it is used: commands that only look at the state answer without.

import penstock

warehouse = penstock.Warehouse("my-project")
warehouse.run(until_idle=True)
for row in warehouse.status():
    print(row.table, row.complete_to, row.staleness)
print(warehouse.query("select * from hourly_traffic").rows)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.control.controller import Controller
from penstock.control.orders import WorkOrder, open_orders
from penstock.control.state import State
from penstock.control.views.explain import Explanation, explain
from penstock.control.views.health import FeedHealth, feed_healths
from penstock.control.views.inputs import WaitingRows
from penstock.control.views.recovery import Assumed, Recovery, assumed, broken, guarantees, recoveries
from penstock.control.views.requests import RequestStatus, requests
from penstock.control.views.savings import Savings, savings
from penstock.control.views.status import TableStatus, status
from penstock.declare.contracts import DEFAULT, contract_of, profiles
from penstock.declare.problems import Problem, ProjectError, near_or_all
from penstock.declare.project import Declarations, read_project
from penstock.declare.spark_settings import cores_of
from penstock.declare.warehouse import Definition, check_project
from penstock.declare.warehouse import Definitions as Declared
from penstock.engine.arrivals.schemas import FeedSchemas, inferred_schemas
from penstock.engine.clock import WallClock
from penstock.engine.commands.feeds import Paused, Withdrawn, give_back, pause, resume, withdraw
from penstock.engine.commands.requests import Requesting, RequestPlan, RequestReceipt
from penstock.engine.declarations import restored_state
from penstock.engine.desk.history import History, PastVersion, TableDifference
from penstock.engine.desk.versions import QueryError, QueryResult
from penstock.engine.faults import NotAvailable
from penstock.engine.ports import Clock
from penstock.engine.updates.times import waiting_rows
from penstock.engine.upkeep.backup import Backup, backup
from penstock.engine.upkeep.identity import Identity
from penstock.engine.upkeep.restore import MovedFiles, Restored, copy_project
from penstock.engine.upkeep.restore import move as move_data
from penstock.engine.upkeep.restore import restore as put_back
from penstock.engine.upkeep.retention import check_presence
from penstock.engine.upkeep.verify import ProgressReport, Verified, Verifier, silent
from penstock.errors import PenstockError
from penstock.flows.following import Following
from penstock.model.grain import zone_of
from penstock.model.partitions import PartitionSet
from penstock.model.span import parse_span
from penstock.model.time import parse_instant
from penstock.queries.contract import ANY, Contract, Profile
from penstock.queries.policies import find_query_policy
from penstock.scheduling.recovery.guarantees import BoundsReport, Violation
from penstock.scheduling.recovery.proposal import Proposal, propose
from penstock.store.lock import RunLock
from penstock.store.store import Store
from penstock.tables import Catalogue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.commands.feeds import Retried
    from penstock.engine.desk.answer import Answer
    from penstock.engine.desk.front import Front
    from penstock.engine.desk.question import Reader
    from penstock.engine.external.report import Handed, Reports
    from penstock.engine.flows.trial import FlowTrials
    from penstock.engine.runtime import Pace, Runtime
    from penstock.engine.upkeep.replication import ReplicaStatus
    from penstock.sim.whatif.recording import Recording


def check(folder: str | Path) -> list[Problem]:
    """Everything that is wrong with a project, without running anything."""
    return check_with_flows(folder)[0]


def check_with_flows(folder: str | Path) -> tuple[list[Problem], dict[str, Following]]:
    """The same, and how each flow follows what it reads."""
    try:
        declarations = read_project(Path(folder))
    except ProjectError as error:
        return list(error.problems), {}
    found, problems = check_project(declarations, _inferred(declarations))
    return problems, found.followings if found is not None else {}


def _inferred(declarations: Declarations) -> dict[str, Any]:
    """Schemas of feeds that were inferred in earlier runs."""
    url = declarations.store_url
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        return {}
    store = Store(url)
    try:
        store.create()
        with store.read() as conn:
            return inferred_schemas(store, conn, [feed.name for feed in declarations.feeds])
    finally:
        store.close()


def restore(
    backup: str | Path,
    folder: str | Path = ".",
    *,
    force: bool = False,
    copy: bool = False,
    clock: Clock | None = None,
    progress: ProgressReport = silent,
) -> Restored:
    """Put a backup into a project that has no data, or with `force` in the place of what it has. A folder without a project gets the backup's."""
    copy_project(Path(backup).resolve(), Path(folder))
    declarations = read_project(Path(folder))
    now_us = (clock or WallClock()).now_us
    return put_back(declarations, Path(backup).resolve(), now_us, force=force, copy=copy, progress=progress)


def move(
    path: str | Path, folder: str | Path = ".", *, clock: Clock | None = None, progress: ProgressReport = silent
) -> MovedFiles:
    """Move the data files of a project to another folder."""
    return move_data(read_project(Path(folder)), Path(path), (clock or WallClock()).now_us, progress=progress)


@dataclass(frozen=True)
class Bounds:
    """What is proven of freshness, and what does not hold of it now."""

    report: BoundsReport
    policy: str
    violated: list[Violation]
    state: State
    # What they are the bounds of.
    assumed: Assumed


# What the first query of a process takes longer, until that was measured: Java starts, and compiles.
_COLD_S = 8.0


class Warehouse:
    """A project, opened. Raises `ProjectError` if something is wrong with it, and `NotOurs` if its catalogue and its data folder do not belong
    together; `accept`: they do, though one is older than the other, or the folder lost its `penstock.json`."""

    def __init__(
        self,
        folder: str | Path = ".",
        *,
        spark: SparkSession | None = None,
        clock: Clock | None = None,
        accept: bool = False,
    ) -> None:
        declarations = read_project(Path(folder))
        warehouse, problems = check_project(declarations, _inferred(declarations))
        self.problems = problems
        if warehouse is None:
            raise ProjectError([problem for problem in problems if problem.severity == "error"])
        self.declared: Declared = warehouse
        self.clock = clock or WallClock()
        self.store = Store(declarations.store_url)
        self.store.create()
        self.catalogue = Catalogue(declarations.data_path)
        with self.store.write() as conn:
            self.catalogue.create(conn, self.clock.now_us())
        self.identity = Identity(declarations.config.name, self.store, self.catalogue)
        try:
            self.identity.check(accept)
        except BaseException:
            self.store.close()
            raise
        self._given = spark
        self._session: SparkSession | None = None
        self._starting = threading.Lock()
        self._fronted = False
        self._lock = RunLock(self.store, declarations.state_folder / "run.lock")
        # Whether the last process was killed, as of the last look at the state.
        self.died = False

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started when first needed, and again should its process have ended."""
        from penstock.engine.spark.session import SparkProblem, is_alive, start_spark

        if self._given is not None:
            if not is_alive(self._given):
                raise PenstockError(
                    "the Spark session that Penstock was given has ended; open the warehouse with a new one"
                )
            return self._given
        with self._starting:
            if self._session is None or not is_alive(self._session):
                declarations = self.declared.declarations
                config = declarations.config
                try:
                    self._session = start_spark(
                        config.name, declarations.state_folder, config.spark, config.zone, leaves_archive=True
                    )
                except SparkProblem as error:
                    if self._session is None:
                        raise
                    raise NotAvailable("spark", str(error)) from error  # it did start before
            return self._session

    def close(self) -> None:
        if self._fronted:
            self.front.close()
        self.store.close()

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def running(
        self,
        pace: Pace | None = None,
        *,
        for_queries: bool = False,
        standby: bool = False,
        on_wait: Callable[[str], None] = lambda _who: None,
    ) -> Iterator[Runtime]:
        """The runtime, with the project taken over for the time being; `for_queries`: updates follow what queries ask for; `standby`: as soon as nobody
        else runs it, and who does is told."""
        from penstock.engine.runtime import Runtime

        runtime = Runtime(self.declared, self.store, self.catalogue, lambda: self.spark, self.clock, pace)
        if for_queries:
            runtime.updates = find_query_policy(self.declared.declarations.config.queries.policy).updates
        runtime.start(standby, on_wait)
        try:
            yield runtime
        finally:
            runtime.close()

    def run(self, *, until_idle: bool = False, on_round: Callable[[Controller], None] | None = None) -> State:
        """Keep the tables fresh: until nothing is left to do, or until interrupted."""
        with self.running() as runtime:
            runtime.run(until_idle, (lambda: on_round(runtime.controller)) if on_round else lambda: None)
            return runtime.controller.state

    def state(self, known: State | None = None) -> State:
        """The state as the store has it now, also while another process runs the project; `known` is brought up to date."""
        state = restored_state(self.store, known)
        self.died = state.owner is not None and not self._lock.held
        if self.died:
            # Nobody writes any more, so after one more look nothing is missed.
            state = restored_state(self.store, state)
            if state.owner is not None:
                state.abandoned()
        return state

    def status(self) -> list[TableStatus]:
        return status(self.state(), self.clock.now_us())

    def explain(self, table: str) -> Explanation:
        """Why its last update ran, what is pending and why it waits."""
        definition = self._definition(table)
        state = self.state()
        found = explain(state, table, self.clock.now_us(), definition.how, self.waiting([table], state))
        problem = self._not_followed(table) if definition.table.external else ""
        return replace(found, lines=(*found.lines, problem)) if problem else found

    def waiting(self, tables: Iterable[str] | None = None, state: State | None = None) -> tuple[WaitingRows, ...]:
        """The rows that these tables (or all) do not use yet, because another source has not come as far."""
        state = self.state() if state is None else state
        with self.store.read() as conn:
            return waiting_rows(
                self.catalogue, conn, self.declared.definitions, state, state.tables if tables is None else tables
            )

    def _definition(self, table: str) -> Definition:
        if table not in self.declared.definitions:
            made = [
                name
                for name, one in self.declared.definitions.items()
                if one.flow is not None and one.flow.flow.name == table
            ]
            if made:
                raise PenstockError(
                    f"`{table}` is a flow, which makes {', '.join(made)}: name one of them, or type `penstock flow show {table}`"
                )
            raise PenstockError(
                f"there is no table `{table}` in this project{near_or_all(table, self.declared.definitions)}"
            )
        return self.declared.definitions[table]

    def query(
        self,
        sql: str,
        *,
        limit: int = 1000,
        within: str | None = None,
        fresh: str | None = None,
        lag: int | None = None,
        consistent: bool | None = None,
        stale: str | None = None,
        weights: Mapping[str, float] | None = None,
        profile: str | None = None,
    ) -> Answer:
        """A consistent read of tables of the project. With a deadline (`within`) or a need of freshness (`fresh="30s"`, `lag=0`) it is a contract:
        the answer says whether it was kept. Without, what is there is read."""
        contract = self.contract(
            profile, within=within, fresh=fresh, lag=lag, consistent=consistent, stale=stale, weights=weights
        )
        asked = self.front.ask(sql, contract, profile=profile or DEFAULT, limit=limit)
        asked.wait()
        if asked.answer is None:
            raise QueryError(asked.error or "the query was cancelled")
        return asked.answer

    def understand(self, sql: str) -> None:
        """Raises what is wrong with the text of a query; nothing is run for that."""
        from penstock.engine.desk.query_text import Texts

        Texts(self.declared, self.declared.declarations.config.queries.functions).understood(sql)

    def contract(self, profile: str | None = None, **said: Any) -> Contract:
        """What a query asks for that says this; nothing at all if neither it nor a profile says how soon or how fresh."""
        if profile is not None and profile not in self.profiles:
            raise PenstockError(f"there is no profile `{profile}`; there are {', '.join(self.profiles)}")
        plain = profile is None and all(said.get(name) is None for name in ("within", "fresh", "lag"))
        base = Contract(freshness=ANY) if plain else self.profiles[profile or DEFAULT].contract
        try:
            return contract_of(base, **said)
        except ValueError as error:
            raise PenstockError(str(error)) from None

    @cached_property
    def front(self) -> Front:
        """The front door for queries, opened when first needed."""
        self._fronted = True
        return self.open_front()

    @property
    def profiles(self) -> dict[str, Profile]:
        return profiles(self.declared.declarations.config.profiles)

    def open_front(self, wake: Callable[[], None] | None = None, within: bool = False) -> Front:
        """The front door; `wake` tells the loop in this process that the log has news. `within`: queries run in the Spark of this process."""
        from penstock.engine.desk.front import Front, FrontSettings

        check_presence(self.store, self.catalogue)
        config = self.declared.declarations.config
        queries = config.queries
        settings = FrontSettings(
            policy=queries.policy,
            unit=queries.unit,
            lanes=queries.lanes,
            functions=queries.functions,
            inline_rows=queries.inline_rows,
            most_rows=queries.most_rows,
            longest_us=queries.longest,
            most_waiting=queries.most_waiting,
            inline_bytes=queries.inline_bytes,
            kept_bytes=queries.kept_bytes,
            disk_bytes=queries.disk_bytes,
            files_kept_us=queries.files_kept,
            cold_s=_COLD_S if self._in_processes and not within else 0.0,
        )
        front = Front(
            self.declared,
            self.store,
            self.catalogue,
            lambda: self._reader(wake is not None, within, lambda: not front.is_closing),
            self.clock,
            settings,
            self.profiles,
            wake or (lambda: None),
        )
        return front

    @property
    def _in_processes(self) -> bool:
        """Whether queries have processes of their own: unless there is a session that was given, or a cluster."""
        spark = self.declared.declarations.config.spark
        master = spark.get("master", spark.get("spark.master", "local"))
        return self._given is None and str(master).startswith("local")

    def _reader(self, updating: bool, within: bool, is_wanted: Callable[[], bool]) -> Reader:
        """What runs queries."""
        declarations = self.declared.declarations
        config = declarations.config
        if within or not self._in_processes:
            from penstock.engine.spark.queries import SparkReader

            return SparkReader(self.spark, config.zone, config.queries.functions)
        from penstock.engine.desk.query_process import BEHIND_UPDATES, ProcessSettings, QueryProcess

        queries = config.queries
        settings = ProcessSettings(
            declarations.state_folder / "queries",
            config.spark,
            config.zone,
            queries.functions,
            queries.memory,
            queries.disk_bytes,
            BEHIND_UPDATES if updating else 0,
        )
        return QueryProcess(settings, is_wanted)

    # The past

    def versions(self, table: str, partition: str | None = None, *, limit: int = 20) -> list[PastVersion]:
        """The last versions of a table, or those that changed a partition: what each was made from, and why."""
        self._definition(table)
        within = None
        if partition is not None:
            try:
                within = PartitionSet.of(parse_span(partition, zone_of(self.declared.zone)))
            except ValueError as error:
                raise PenstockError(str(error)) from None
        return self._history.versions(table, within, limit)

    def query_at(self, sql: str, at: str | int, *, limit: int = 1000, consistent: bool = True) -> QueryResult:
        """A read of tables as they were at a version or a time."""
        check_presence(self.store, self.catalogue)
        return self._history.query(self.spark, sql, at, limit, consistent)

    def diff(
        self, table: str, before: str | int, after: str | int, *, key: Sequence[str] = (), limit: int = 20
    ) -> TableDifference:
        """How a table at one version (or time) differs from another: rows that came and went, by partition."""
        self._definition(table)
        check_presence(self.store, self.catalogue)
        return self._history.diff(self.spark, table, before, after, key, limit)

    @property
    def _history(self) -> History:
        return History(self.declared, self.store, self.catalogue)

    def query_replica(self, name: str, sql: str, *, limit: int = 1000) -> QueryResult:
        """A consistent read at a replica, from what is there."""
        from penstock.engine.desk.query_text import query_replica
        from penstock.tables.replica import Replica

        return query_replica(self.spark, Replica(name, self._replica_path(name)), sql, limit, self.declared.zone)

    def replicas(self, *, sync: bool = False) -> list[ReplicaStatus]:
        """What each replica has of each table; with `sync`, after everything is copied that it lacks."""
        from penstock.engine.upkeep.replication import replicators

        rows: list[ReplicaStatus] = []
        for one in replicators(self.declared, self.store, self.catalogue, self.clock.now_us):
            rows += one.status(one.tried(sync))
        return rows

    def _replica_path(self, name: str) -> str:
        declarations = self.declared.declarations
        if name not in declarations.config.replicas:
            known = ", ".join(declarations.config.replicas) or "none; see [replicas.NAME] in penstock.toml"
            raise PenstockError(f"there is no replica `{name}` in this project; it has {known}")
        return declarations.replica_path(name)

    def table(self, name: str) -> DataFrame:
        """The newest version of a table as a DataFrame."""
        from penstock.engine.updates.rows import read_files

        self._definition(name)
        check_presence(self.store, self.catalogue)
        with self.store.read() as conn:
            snapshot = self.catalogue.snapshot(conn)
            schema = self.catalogue.schema(conn, name)
            if schema is None:
                raise PenstockError(f"table `{name}` has nothing to read yet")
            files = self.catalogue.files(conn, name, snapshot)
        paths = [self.catalogue.locate(name, file) for file in files]
        return read_files(self.spark, paths, schema, sum(file.size_bytes for file in files))

    @property
    def trials(self) -> FlowTrials:
        """Flows on a few rows, for who writes them."""
        from penstock.engine.flows.trial import FlowTrials

        return FlowTrials(self.spark, self.declared, self.table)

    def retry(self, names: Sequence[str] = (), *, by: str = "") -> Retried:
        """Try failed tables again and look again at quarantined files: those named, or all."""
        from penstock.engine.commands.feeds import retry

        return retry(self.declared, self.store, self.state(), names, self.clock.now_us(), by)

    # Safety

    def backup(self, folder: str | Path, *, copy: bool = False, progress: ProgressReport = silent) -> Backup:
        """Catalogue, state and data files as of now, into a folder; also while another process runs the project."""
        declarations = self.declared.declarations
        now_us = self.clock.now_us
        return backup(declarations, self.store, self.catalogue, Path(folder), now_us, copy=copy, progress=progress)

    def verify(self, *, deep: bool = False, repair: bool = False, progress: ProgressReport = silent) -> Verified:
        """Whether every file is there and is what the catalogue says; `deep`: and holds what its declaration gives. `repair`: have made
        again what lost its files."""
        verifier = Verifier(self.declared, self.store, self.catalogue, self.clock.now_us, progress)
        found = verifier.run(self.state())
        if repair:
            found = verifier.repair(self.state(), found)
        elif deep:
            if any(problem.live for problem in found.problems):
                return found  # what is not whole cannot be read
            from penstock.engine.upkeep.recompute import Recompute

            schemas = FeedSchemas(self.declared, self.store).fixed(self.spark)
            again = Recompute(self.spark, self.declared, self.store, self.catalogue, schemas, self.clock.now_us)
            found = replace(found, compared=tuple(again.run(self.state(), progress)))
        return found

    # Feeds

    def feeds(self) -> list[FeedHealth]:
        """How each feed delivers: healthy, late, out, or paused."""
        return feed_healths(self.state(), self.clock.now_us(), zone_of(self.declared.zone))

    def recoveries(self) -> list[Recovery]:
        """Tables that catch up after an outage or a pause, and when that should be over."""
        return recoveries(self.state(), self.clock.now_us())

    def bounds(self, outage_us: int | None = None, tracks: int | None = None) -> Bounds:
        """How stale each table can become, and what that proves, with so many tracks; after an outage, when all is recovered."""
        state = self.state()
        learned = {name: table.cost for name, table in state.tables.items()}
        declared = self.declared.declarations
        number, policy = tracks or declared.tracks, declared.config.run.policy
        cores = cores_of(declared.config.spark)
        graph = self.declared.graph
        report, _ = guarantees(graph, learned, number, policy, outage_us=outage_us, feeds=state.feeds, cores=cores)
        found = assumed(graph, learned, number, policy, feeds=state.feeds, cores=cores)
        return Bounds(report, policy, broken(state, found, self.clock.now_us()), state, found)

    def recovery_proposal(self, bounds: Bounds, outage_us: int) -> Proposal | None:
        """Recovery periods with which all tables have recovered sooner after such an outage; None if nothing of that is proven."""
        found, graph = bounds.assumed, self.declared.graph
        if found.ground.doubt or found.ground.unknown or found.policy.plain:
            return None
        told = bounds.report.guarantees
        targets = {each.table: each.target_us for each in told if each.target_us is not None and each.bound is not None}
        return propose(found.model, targets, graph.inherited, outage_us)

    def recording(self) -> Recording:
        """The log, as what-if replays it, with what is declared now: tables that are new are part of what is tried."""
        from penstock.sim.whatif.recording import record

        with self.store.read() as conn:
            found = record(self.store.events(conn))
        graph = self.declared.graph
        now = replace(found.declared, feeds=tuple(graph.feeds.values()), tables=tuple(graph.tables.values()))
        return replace(found, declared=now)

    @property
    def has_runner(self) -> bool:
        """Whether a process keeps the tables fresh now."""
        return self._lock.held

    def pause(self, feed: str, *, reason: str = "", by: str = "") -> Paused:
        """Notice files of a feed, but load none until it is resumed."""
        return pause(self.declared, self.store, self.state(), feed, reason, self.clock.now_us(), by)

    def resume(self, feed: str, *, by: str = "") -> Paused:
        """Go on loading, with all that has come meanwhile."""
        return resume(self.declared, self.store, self.state(), feed, self.clock.now_us(), by)

    # Files

    def withdraw(self, files: str | Sequence[str], *, reason: str = "") -> list[Withdrawn]:
        """Take delivered files back: their rows go, with everything that was made from them."""
        names = [files] if isinstance(files, str) else list(files)
        return withdraw(self.declared, self.store, self.state(), names, reason, self.clock.now_us())

    def give_back(self, files: str | Sequence[str]) -> list[Withdrawn]:
        """Load files that were withdrawn after all."""
        names = [files] if isinstance(files, str) else list(files)
        return give_back(self.declared, self.store, self.state(), names, self.clock.now_us())

    # Tables that others make

    def orders(self) -> list[WorkOrder]:
        """What outside jobs are to make now, oldest first."""
        return open_orders(self.state())

    def publish(
        self,
        table: str,
        partitions: str | Sequence[str] = (),
        *,
        order: str | None = None,
        version: int | None = None,
        inputs: Mapping[str, int] | None = None,
        files: Sequence[str | Path] | None = None,
        complete_to: str | None = None,
        by: str = "",
    ) -> Handed:
        """Report what an outside job made: the partitions, what it was made from, and the Parquet files that hold the rows."""
        spans = [partitions] if isinstance(partitions, str) else list(partitions)
        spans = [each for span in spans for each in span.split(",") if each.strip()]
        complete_us = None
        if complete_to is not None:
            try:
                complete_us = parse_instant(complete_to, zone_of(self.declared.zone))
            except ValueError as error:
                raise PenstockError(f"--complete-to: {error}") from None
        return self._reports.publish(
            self.state(),
            table,
            spans,
            self.clock.now_us(),
            order=order,
            version=version,
            inputs=inputs,
            files=files,
            complete_us=complete_us,
            by=by,
        )

    def not_told(self, order: WorkOrder) -> str:
        """Why the outside job does not know of its order yet; empty if it does, or polls."""
        with self.store.read() as conn:
            return self.store.fact(conn, f"telling {order.table}") or ""

    def _not_followed(self, table: str) -> str:
        from penstock.engine.external.followed_replicas import problem_fact

        with self.store.read() as conn:
            return self.store.fact(conn, problem_fact(table)) or ""

    def return_order(self, order: str, *, failed: str | None = None) -> WorkOrder:
        """Give a work order back: it is issued anew with the newest inputs; with `failed` later, as after a failed update."""
        return self._reports.give_back(self.state(), order, self.clock.now_us(), failed)

    @property
    def _reports(self) -> Reports:
        from penstock.engine.external.report import Reports

        return Reports(self.declared, self.store, self.catalogue)

    # Requests

    @property
    def _requesting(self) -> Requesting:
        return Requesting(self.declared, self.store, self.catalogue)

    def backfill(
        self,
        table: str,
        span: str | None = None,
        *,
        reason: str = "",
        downstream: bool = True,
        deadline_us: int | None = None,
        by: str = "",
    ) -> RequestReceipt:
        """Make partitions again, such as those of `2024-03-01..2024-03-07`, and what is made from them."""
        self._definition(table)
        return self._requesting.backfill(
            self.state(),
            table,
            span,
            self.clock.now_us(),
            reason=reason,
            downstream=downstream,
            deadline_us=deadline_us,
            by=by,
        )

    def replay(self, name: str, *, by: str = "") -> tuple[Retried, list[RequestReceipt]]:
        """Look again at the rows that a base table or a flow refused, after a fix: files that are read again, or partitions of a
        flow that are made again."""
        from penstock.engine.commands.feeds import Retried, read_again

        state, definitions = self.state(), self.declared.definitions
        flows = {definition.flow.flow.name for definition in definitions.values() if definition.flow is not None}
        bases = {
            table for table, definition in definitions.items() if definition.table.is_base and definition.table.feed
        }
        own = definitions.get(name)
        if own is not None and own.flow is not None:
            name = own.flow.flow.name
        if name in bases:
            return read_again(self.declared, self.store, self.catalogue, state, name, self.clock.now_us()), []
        if name not in flows:
            raise PenstockError(f"`{name}` has no quarantine{near_or_all(name, sorted(flows | bases))}")
        again = self._requesting.refused_in(state, name)
        asked = [self.backfill(table, span, reason=f"quarantine of {name}", by=by) for table, span in again]
        return Retried((), (), state.owner is not None), asked

    def plan(self, *wishes: tuple[str, str | None] | tuple[str, str | None, bool]) -> RequestPlan:
        """What will run now, and what these backfills would add: (table, span), or (table, span, downstream)."""
        for name, *_ in wishes:
            self._definition(name)
        asked = [(wish[0], wish[1], wish[2] if len(wish) == 3 else True) for wish in wishes]
        return self._requesting.plan(self.state(), asked, self.clock.now_us())

    def requests(self) -> list[RequestStatus]:
        """What was asked for and how far it is, newest first."""
        return requests(self.state())

    def savings(self) -> list[Savings]:
        """What became of every reason to make something again, by table, and the sum of all."""
        return savings(self.state())

    def cancel(self, request: int, *, by: str = "") -> tuple[RequestStatus, RequestStatus]:
        """Take a request back; it as it was and as it is now."""
        return self._requesting.cancel(self.state(), request, self.clock.now_us(), by)
