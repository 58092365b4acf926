"""What a policy of queries means for a live warehouse: which ways of answering it uses, whether it turns queries away, and when
tables are updated. The policies of the simulator's single processor, as far as they can be had with several.

immediate             updates run as they come, queries read what is there
on-demand             updates run when a query needs them, every query waits for its own
admission+on-demand   the same, but queries that cannot succeed are turned away
default               the best way by expected satisfaction; updates follow the demand
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.queries.choice import Choice, Option, Way, choose
from penstock.queries.contract import Contract

Updates = Literal["always", "demand", "on-demand"]
_PATIENT = (Way.REFRESH, Way.WAIT)


@dataclass(frozen=True, slots=True)
class LivePolicy:
    name: str
    # When tables are updated: as data come, as the demand says, or only for a query that waits.
    updates: Updates
    # Whether queries may wait for updates, and must if their data are stale.
    refreshes: bool
    always_refreshes: bool
    rejects: bool

    def choose(
        self, contract: Contract, options: Sequence[Option], now_us: int, arrived_us: int, price_per_s: float
    ) -> Choice:
        able = [option for option in options if self.refreshes or option.way not in _PATIENT]
        patient = [option for option in able if option.way in _PATIENT]
        if patient and self.always_refreshes:
            able = patient
        best = choose(contract, able, now_us, arrived_us, price_per_s if self.rejects else 0.0)
        if best.way is not Way.REJECT or self.rejects:
            return best
        allowed = [option for option in able if option.consistent or not contract.consistent]
        if not allowed:
            return best
        return Choice(allowed[0].way, f"{allowed[0].way}: {self.name} turns nobody away", allowed[0])


POLICIES = {
    policy.name: policy
    for policy in (
        LivePolicy("immediate", "always", refreshes=False, always_refreshes=False, rejects=False),
        LivePolicy("on-demand", "on-demand", refreshes=True, always_refreshes=True, rejects=False),
        LivePolicy("admission+on-demand", "on-demand", refreshes=True, always_refreshes=True, rejects=True),
        LivePolicy("default", "demand", refreshes=True, always_refreshes=False, rejects=True),
    )
}


def find_live_policy(name: str) -> LivePolicy:
    if name not in POLICIES:
        raise ValueError(f"there is no policy of queries {name!r}; expected one of {', '.join(POLICIES)}")
    return POLICIES[name]
