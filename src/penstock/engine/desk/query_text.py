"""What the text of a query asks: which tables, which of their partitions, what kind of work. Read once for all who send the same text."""

from __future__ import annotations

from typing import NamedTuple

from penstock.control.query_inputs import Touched
from penstock.declare.sql.read import ReadQuery, read_query
from penstock.declare.sql.shape import is_steady, shape_of
from penstock.declare.sql.touched import Timed, touched
from penstock.declare.warehouse import Warehouse
from penstock.engine.updates.quarantine import quarantines
from penstock.model.grain import zone_of
from penstock.queries.predict import PlanShape

# Texts of queries that are remembered.
_TEXTS = 1_000


class Understood(NamedTuple):
    read: ReadQuery
    shape: PlanShape
    # Its answer follows from the versions that it reads.
    steady: bool


class Texts:
    def __init__(self, warehouse: Warehouse, functions: tuple[str, ...]) -> None:
        self._functions = functions
        self._own = frozenset(warehouse.definitions)
        self._schemas = {
            **{name: one.columns for name, one in warehouse.definitions.items()},
            **quarantines(warehouse),
        }
        self._timed = {
            name: Timed(one.time, one.table.grain)
            for name, one in warehouse.definitions.items()
            if one.time is not None
        }
        self._zone = zone_of(warehouse.zone)
        self._known: dict[str, Understood] = {}

    def understood(self, sql: str) -> Understood:
        """Raises `SqlProblem` if it cannot be a query."""
        known = self._known.get(sql)
        if known is None:
            read = read_query(sql, self._schemas, self._functions)
            known = self._known[sql] = Understood(read, shape_of(read), is_steady(read))
            while len(self._known) > _TEXTS:
                self._known.pop(next(iter(self._known)), None)
        return known

    def touched(self, read: ReadQuery, now_us: int) -> Touched:
        """The partitions of the tables of the project that it can touch if it is asked now."""
        found = touched(read, self._timed, now_us, self._zone)
        return {name: found[name] for name in read.tables if name in self._own}
