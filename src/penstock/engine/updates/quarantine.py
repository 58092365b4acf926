"""The tables in which refused rows are kept, and their columns: one for each table, one for each flow."""

from __future__ import annotations

from penstock.declare.warehouse import Warehouse
from penstock.engine.flows.work import REFUSED, quarantine_of
from penstock.engine.updates.load import QUARANTINE
from penstock.model.schema import Schema


def quarantines(warehouse: Warehouse) -> dict[str, Schema]:
    flows = {one.flow.flow.name for one in warehouse.definitions.values() if one.flow is not None}
    return {
        **{quarantine_of(flow): REFUSED for flow in flows},
        **{
            f"{name}_quarantine": QUARANTINE
            for name, one in warehouse.definitions.items()
            if one.table.is_base or name not in flows
        },
    }
