"""Settings of Spark that a project may have, and those that it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.app import check
from penstock.declare.spark_settings import is_harmless, refused
from tests.conftest import Write

HARMLESS = """
    master driver.memory driver.cores driver.maxResultSize executor.memory executor.instances memory.fraction cores.max ui.port
    eventLog.enabled eventLog.dir default.parallelism sql.shuffle.partitions sql.adaptive.enabled sql.adaptive.coalescePartitions.enabled
    network.timeout rpc.message.maxSize kryoserializer.buffer.max serializer local.dir log.level scheduler.mode dynamicAllocation.enabled
    jars jars.packages files archives submit.pyFiles kubernetes.namespace yarn.queue hadoop.fs.s3a.access.key hadoop.fs.s3a.endpoint
    hadoop.fs.defaultFS shuffle.compress io.compression.codec storage.memoryFraction task.cpus python.worker.memory metrics.namespace
    sql.autoBroadcastJoinThreshold sql.files.maxPartitionBytes sql.codegen.wholeStage sql.cbo.enabled sql.parquet.compression.codec
    executorEnv.AWS_REGION pyspark.python ssl.enabled authenticate.secret driver.extraClassPath
"""
OURS = """
    sql.session.timeZone sql.ansi.enabled sql.ansi.doubleQuotedIdentifiers sql.caseSensitive sql.timestampType sql.storeAssignmentPolicy
    sql.legacy.timeParserPolicy sql.legacy.sizeOfNull sql.parquet.outputTimestampType sql.parquet.int96RebaseModeInRead
    sql.parquet.datetimeRebaseModeInWrite sql.parquet.int96AsTimestamp sql.parquet.binaryAsString sql.parquet.inferTimestampNTZ.enabled
    sql.parquet.mergeSchema sql.parquet.filterPushdown sql.mapKeyDedupPolicy sql.decimalOperations.allowPrecisionLoss
    sql.csv.parser.columnPruning.enabled sql.json.enablePartialResults sql.columnNameOfCorruptRecord sql.extensions sql.catalogImplementation
    sql.catalog.spark_catalog sql.defaultCatalog sql.sources.default sql.sources.partitionColumnTypeInference.enabled sql.variable.substitute
    sql.optimizer.excludedRules sql.adaptive.optimizer.excludedRules sql.crossJoin.enabled sql.groupByOrdinal sql.orderByOrdinal
    sql.session.collation.default sql.collation.enabled sql.files.ignoreCorruptFiles sql.files.ignoreMissingFiles files.ignoreCorruptFiles
    sql.execution.pythonUDF.arrow.enabled sql.execution.arrow.pyspark.enabled sql.execution.pandas.convertToArrowArraySafely
    hadoop.parquet.strings.signed-min-max.enabled hadoop.mapreduce.fileoutputcommitter.algorithm.version hadoop.mapred.min.split.size
    speculation plugins remote api.mode executorEnv.TZ sql.streaming.stateStore.providerClass sql.something.new something
"""


@pytest.mark.parametrize("prefix", ["", "spark."])
def test_what_is_a_projects_and_what_is_ours(prefix: str) -> None:
    assert [name for name in HARMLESS.split() if not is_harmless(prefix + name)] == []
    assert [name for name in OURS.split() if is_harmless(prefix + name)] == []
    assert [key for key, _ in refused({f"{prefix}{name}": "x" for name in (OURS + HARMLESS).split()})] == [
        prefix + name for name in OURS.split()
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sql.session.timeZone = 'Europe/Berlin'", "`spark.sql.session.timeZone` can change what tables hold, and is not a project's to set: set `zone` of the project, and take it out"),
        ("'spark.sql.ansi.enabled' = false", "`spark.sql.ansi.enabled` can change what tables hold, and is not a project's to set: where an error shall be a null, write try_cast"),
        ("sql.new.thing = 1", "`spark.sql.new.thing` can change what tables hold, and is not a project's to set: take it out (a project sets resources and speed, such as"),
        ("driver.extraJavaOptions = '-Xss4m -Dspark.sql.ansi.enabled=false'", "`spark.driver.extraJavaOptions` says -Dspark.sql.ansi.enabled=false, which can change what tables hold: take that out"),
        ("driver.extraJavaOptions = '-Duser.timezone=Asia/Tokyo'", "`spark.driver.extraJavaOptions` says -Duser.timezone=Asia/Tokyo"),
    ],
)  # fmt: skip
def test_check_tells_the_line(project: Write, line: str, told: str) -> None:
    folder = project({"penstock.toml": f"name = 'x'\n[spark]\ndriver.memory = '1g'\n{line}\n"})
    problems = [str(problem) for problem in check(Path(folder)) if problem.severity == "error"]
    assert len(problems) == 1 and problems[0].startswith(f"penstock.toml:4: {told}"), problems


def test_the_page_of_spark_stays_off() -> None:
    """Whoever opens it sees every query."""
    for key in ("ui.enabled", "spark.ui.enabled"):
        assert [name for name, why in refused({key: True}) if "page" in why] == [key]
