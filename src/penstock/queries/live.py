"""The policies of queries at the front door of a live warehouse: which ways of answering each uses, whom it turns away, and when tables are
updated. The same modules as in the simulator (`penstock.queries.policies`); what they see of a warehouse is in `steering`.

immediate             updates run as they come, queries read what is there
on-demand             updates run when a query needs them, every query waits for its own
qmf, unit             updates run in periods that are stretched under load, fewer queries are admitted
admission+on-demand   as on-demand, but queries that would be late, or make others late, are turned away
unit+on-demand        both
default               the best way by expected satisfaction; updates follow the demand
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.queries.choice import Choice, Option, Way, choose, refuse
from penstock.queries.contract import Contract
from penstock.queries.outcome import Cause
from penstock.queries.policies import DEFAULT, POLICIES
from penstock.queries.policies.qmf import Qmf
from penstock.queries.policies.unit import Unit, UnitOnDemand
from penstock.queries.situation import QueryPolicy, Updates

_PATIENT = (Way.REFRESH, Way.WAIT)
# With less of a chance to succeed, no query waits for updates.
PATIENCE = 0.1
# How long a controller waits until it judges what it did.
GRACE_S = 30.0
# Those with a controller have the pace of a warehouse, not that of the paper's traces.
_MADE: dict[str, Callable[[], QueryPolicy]] = {
    **POLICIES,
    "qmf": lambda: Qmf(GRACE_S),
    "unit": lambda: Unit(GRACE_S),
    "unit+on-demand": lambda: UnitOnDemand(GRACE_S),
}
NAMES = ("default", *(name for name in POLICIES if name != DEFAULT))


@dataclass(frozen=True, slots=True)
class LivePolicy:
    name: str
    policy: QueryPolicy

    @property
    def is_default(self) -> bool:
        return self.name == "default"

    @property
    def updates(self) -> Updates:
        return self.policy.updates

    def choose(
        self,
        contract: Contract,
        options: Sequence[Option],
        now_us: int,
        arrived_us: int,
        price_per_s: float = 0.0,
        refused: Cause | None = None,
    ) -> Choice:
        """What is done with a query; `refused` is why the policy does not admit it."""
        if self.is_default:
            best = choose(contract, options, now_us, arrived_us, price_per_s)
            if best.way in _PATIENT and best.prospect is not None and best.prospect.success < PATIENCE:
                # Waiting would hardly help, and only keep back what can be answered at once.
                able = [option for option in options if option.way not in _PATIENT]
                other = choose(contract, able, now_us, arrived_us, price_per_s)
                return best if other.way is Way.REJECT else other
            return best
        if refused is not None:
            return refuse(contract, options, now_us, arrived_us, refused)
        patient = [option for option in options if option.way in _PATIENT]
        able = patient if patient and self.policy.refreshes else [one for one in options if one.way not in _PATIENT]
        best = choose(contract, able, now_us, arrived_us)
        if best.way is not Way.REJECT:
            return best
        allowed = [option for option in able if option.consistent or not contract.consistent]
        if not allowed:
            return best
        return Choice(allowed[0].way, f"{allowed[0].way}: {self.name} admits it", allowed[0])


def find_live_policy(name: str) -> LivePolicy:
    if name not in NAMES:
        raise ValueError(f"there is no policy of queries {name!r}; expected one of {', '.join(NAMES)}")
    return LivePolicy(name, _MADE[DEFAULT if name == "default" else name]())
