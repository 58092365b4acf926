"""Immediate update (IMU; Qu, Labrinidis, Mossé 2006, Sec. 4.1): every update runs as it comes, every query is admitted. All
answers are fresh; under load there are few."""

from __future__ import annotations

from penstock.queries.policies.base import BasePolicy


class Immediate(BasePolicy):
    pass
