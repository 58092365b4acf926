"""What a query really is, as Spark itself understood it: which functions it calls and which files it reads.

The check of the text (`declare/sql/read.py`) comes before. This one does not care how anything was written: functions that a query may not call are
taken out of its session, so that Spark cannot find them; and of the resolved plan every node, expression and subquery is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.declare.sql.functions import ALLOWED, WORDS
from penstock.errors import PenstockError

# Words that Spark resolves to such expressions without calling any function, and what depends on where a row lies. Others are found by the
# functions that make them.
_NEVER = {
    "CurrentUser", "CurrentPath", "CurrentCatalog", "CurrentDatabase", "CurrentSchema", "CurrentTimeZone", "SparkVersion", "InputFileName",
    "InputFileBlockStart", "InputFileBlockLength", "CallMethodViaReflection", "TryReflect", "ScalaUDF", "PythonUDF", "PythonUDAF", "PythonUDTF",
    "UnresolvedPythonUDTF", "HiveSimpleUDF", "HiveGenericUDF", "ApplyFunctionExpression", "VariableReference",
}  # fmt: skip
_EMPTY_LEAVES = {"OneRowRelation", "LocalRelation", "CTERelationRef"}
_FILES = "org.apache.spark.sql.execution.datasources.LogicalRelation"
# A table without files.
_NO_FILES = "org.apache.spark.sql.execution.LogicalRDD"
_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_NOT_READING = {"ScriptTransformation", "BaseEvalPython", "BatchEvalPython", "ArrowEvalPython", "MapInPandas"}


class NotAllowed(PenstockError):
    pass


class PlanCheck:
    """For one session, which has from then on the functions that queries may call, and no others."""

    def __init__(self, session: SparkSession, functions: Collection[str] = ()) -> None:
        allowed = ALLOWED | WORDS | {name.lower() for name in functions}
        jvm: Any = session._jvm
        infos = jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos()
        may: set[str] = set()
        may_not: set[str] = set(_NEVER)
        for info in infos:
            name = str(info.getName()).lower()
            # What is no word is an operator.
            is_free = name in allowed or not name.replace("_", "").isalnum()
            (may if is_free else may_not).add(_short(str(info.getClassName())))
        self._may_not = may_not - may
        registry = session._jsparkSession.sessionState().functionRegistry()
        for identifier in _each(registry.listFunction()):
            name = str(identifier.funcName()).lower()
            if name.replace("_", "").isalnum() and name not in allowed:
                registry.dropFunction(identifier)

    def check(self, frame: DataFrame, files: Collection[str]) -> None:
        """Raises `NotAllowed` if the query does anything but read these files."""
        known = {_local(path) for path in files}
        plans = [frame._jdf.queryExecution().analyzed()]
        while plans:
            plan = plans.pop()
            self._node(plan, known)
            for expression in _each(plan.expressions()):
                for name in _classes(json.loads(expression.toJSON())):
                    if name in self._may_not:
                        raise NotAllowed(
                            f"the query calls {name}, which is not among the functions that queries may call"
                        )
            plans += [*_each(plan.children()), *_each(plan.subqueries())]

    def _node(self, plan: Any, files: Collection[str]) -> None:
        full = str(plan.getClass().getName())
        name = _short(full)
        if full == _FILES:
            for path in _each(plan.relation().location().rootPaths()):
                if _local(str(path.toString())) not in files:
                    raise NotAllowed("the query reads a file that is not of its tables")
        elif full != _NO_FILES and (
            not full.startswith(_PLANS)
            or name in _NOT_READING
            or (plan.children().isEmpty() and name not in _EMPTY_LEAVES)
        ):
            raise NotAllowed(f"the query does more than read tables of the project: {name}")


def _each(items: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (items.apply(number) for number in range(items.size()))


def _classes(found: Any) -> Iterator[str]:
    if isinstance(found, list):
        for one in found:
            yield from _classes(one)
    elif isinstance(found, dict):
        if isinstance(found.get("class"), str):
            yield _short(found["class"])
        for one in found.values():
            yield from _classes(one)


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1].rstrip("$")


def _local(path: str) -> str:
    """Spark writes `file:/a`, `file:///a` and `/a` for the same."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith(("file:", "/")) else path
