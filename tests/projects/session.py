"""One Spark session for many tiny cases."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.engine.spark.session import start_spark

# For a handful of rows compiling a query costs more than running it.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def start(scratch: Path) -> SparkSession:
    return start_spark("projects", scratch, QUICK)
