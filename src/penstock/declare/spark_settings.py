"""Which settings of Spark a project may have: those of resources and speed. What a setting can do to the rows of tables is Penstock's own to
decide, so that a table is the same wherever it is made. The rule is a list of what is known to be harmless; whatever is not on it is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

# A name that ends with a dot stands for everything that begins so.
HARMLESS = (
    "acls.", "admin.", "app.", "archives", "authenticate", "authenticate.", "barrier.", "blockManager.", "broadcast.", "cleaner.",
    "cores.max", "decommission.", "default.parallelism", "deploy.", "driver.", "driverEnv.", "dynamicAllocation.",
    "eventLog.", "excludeOnFailure.", "executor.", "executorEnv.", "extraListeners", "files", "history.",
    "io.", "jars", "jars.", "kryo.", "kryoserializer.", "kubernetes.", "launcher.", "local.dir", "locality.", "log.", "logConf",
    "master", "memory.", "metrics.", "modify.", "network.", "port.", "pyspark.driver.python", "pyspark.python",
    "python.worker.", "rdd.compress", "reducer.", "repl.", "resources.", "rpc.", "scheduler.", "security.", "serializer",
    "serializer.", "shuffle.", "ssl.", "stage.", "storage.", "submit.", "task.", "ui.", "worker.", "yarn.",
    # Access to storage and to a cluster.
    "hadoop.dfs.", "hadoop.fs.", "hadoop.google.", "hadoop.hadoop.", "hadoop.ipc.", "hadoop.yarn.",
    "sql.adaptive.", "sql.artifact.", "sql.autoBroadcastJoinThreshold", "sql.broadcastExchange.", "sql.broadcastTimeout",
    "sql.cartesianProductExec.", "sql.cbo.", "sql.codegen.", "sql.debug.", "sql.event.", "sql.execution.arrow.maxRecordsPerBatch",
    "sql.execution.arrow.maxBytesPerBatch", "sql.files.maxPartitionBytes", "sql.files.maxPartitionNum", "sql.files.minPartitionNum",
    "sql.files.openCostInBytes", "sql.inMemoryColumnarStorage.", "sql.join.preferSortMergeJoin", "sql.maxConcurrentOutputFileWriters",
    "sql.maxPlanStringLength", "sql.objectHashAggregate.", "sql.optimizer.dynamicPartitionPruning.", "sql.optimizer.runtime.",
    "sql.parquet.columnarReaderBatchSize", "sql.parquet.compression.codec", "sql.queryExecutionListeners", "sql.redaction.",
    "sql.resultQueryStage.", "sql.shuffle.partitions", "sql.shuffleExchange.", "sql.sort.", "sql.sortMergeJoinExec.",
    "sql.sources.parallelPartitionDiscovery.", "sql.statistics.", "sql.subquery.", "sql.ui.", "sql.warehouse.dir", "sql.windowExec.",
)  # fmt: skip
# Of those families, what is not harmless.
_EXCEPT = (
    "executorEnv.TZ",
    "driverEnv.TZ",
    "executorEnv.PYTHONHASHSEED",
    "sql.adaptive.optimizer.",
)
# What to do instead.
_INSTEAD = {
    "sql.session.timeZone": "set `zone` of the project",
    "executorEnv.TZ": "set `zone` of the project",
    "driverEnv.TZ": "set `zone` of the project",
    "sql.ansi.": "where an error shall be a null, write try_cast, try_add, try_divide and the like",
    "sql.storeAssignmentPolicy": "where an error shall be a null, write try_cast",
    "sql.caseSensitive": "names are the same whatever their case",
    "sql.timestampType": "write `timestamp_ntz` where a column shall have that type",
    "sql.columnNameOfCorruptRecord": "bad rows go to the quarantine of their table",
    "sql.csv.": "set `options` of the feed",
    "sql.json.": "set `options` of the feed",
    "sql.extensions": "tables are written in the SQL of Spark itself",
    "sql.catalog.": "tables read tables of the project",
    "sql.catalogImplementation": "tables read tables of the project",
    "sql.legacy.": "write the SQL for what Spark does today",
    "speculation": "an update is tried again as a whole (`attempts`)",
    "speculation.": "an update is tried again as a whole (`attempts`)",
    "remote": "Penstock starts Spark itself; name a cluster with `master`",
    "api.mode": "Penstock starts Spark itself; name a cluster with `master`",
}
_JAVA_OPTIONS = re.compile(r"JavaOptions$")
_CHANGES_RESULTS = re.compile(r"-D(spark\.|user\.(timezone|language|country|region)|file\.encoding)[^\s]*")


def full_name(key: str) -> str:
    return key if key.startswith("spark.") else f"spark.{key}"


def is_harmless(key: str) -> bool:
    """Whether a setting only concerns resources and speed."""
    short = full_name(key).removeprefix("spark.")
    return _in(short, HARMLESS) is not None and _in(short, _EXCEPT) is None


def refused(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The settings that a project may not have, each with why and what to do."""
    for key, value in settings.items():
        name = full_name(key)
        if name == "spark.ui.enabled":
            yield (
                key,
                f"`{name}` would show every query to whoever opens Spark's page: take it out, and write a log with eventLog.enabled",
            )
        elif not is_harmless(key):
            instead = _in(name.removeprefix("spark."), _INSTEAD)
            then = f"{_INSTEAD[instead]}, and take it out" if instead is not None else "take it out"
            yield key, f"`{name}` can change what tables hold, and is not a project's to set: {then} ({_ALLOWED})"
        elif _JAVA_OPTIONS.search(key) and (found := _CHANGES_RESULTS.search(str(value))):
            yield key, f"`{name}` says {found[0]}, which can change what tables hold: take that out ({_ALLOWED})"


_ALLOWED = "a project sets resources and speed, such as driver.memory or sql.shuffle.partitions"


def _in(short: str, names: Mapping[str, object] | tuple[str, ...]) -> str | None:
    for name in names:
        if short == name or (name.endswith(".") and short.startswith(name)):
            return name
    return None


def cores_of(spark: Mapping[str, object]) -> int | None:
    """How many cores the updates of a project share; None if they run elsewhere."""
    master = str(spark.get("master", "local[*]"))
    if not master.startswith("local"):
        return None
    given = re.match(r"local\[(\d+)", master)
    return int(given[1]) if given else os.cpu_count()
