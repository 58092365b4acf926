"""Of which tables nothing is promised now, since when, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from penstock.control.events import GuaranteeRenewed, GuaranteeVoided, PremiseExtent, WarehouseDeclared

EXTENTS: tuple[PremiseExtent, ...] = get_args(PremiseExtent)


@dataclass(frozen=True, slots=True)
class Void:
    """A guarantee that does not hold."""

    since_us: int
    because: str
    extent: PremiseExtent = "table"

    def counts_beside(self, extent: PremiseExtent) -> bool:
        """Whether something of that extent is known already."""
        return EXTENTS.index(self.extent) >= EXTENTS.index(extent)


class Promises:
    """Guarantees that are void, by the name by which updates are planned."""

    def __init__(self) -> None:
        self.void: dict[str, Void] = {}

    def voided(self, event: GuaranteeVoided) -> None:
        for name in event.tables:
            before = self.void.get(name)
            since = event.at_us if before is None else before.since_us
            self.void[name] = Void(since, event.because, event.extent)

    def renewed(self, event: GuaranteeRenewed) -> None:
        for name in event.tables:
            self.void.pop(name, None)

    def declare(self, event: WarehouseDeclared) -> None:
        names = {table.name for table in event.tables}
        self.void = {name: found for name, found in self.void.items() if name in names}
