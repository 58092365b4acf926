"""Flows of row packs through queues with limits, on a virtual clock."""

from __future__ import annotations

from penstock.papers.flows.operators import Machine
from penstock.papers.flows.simulator import FlowOutcome, simulate_flow

__all__ = ["FlowOutcome", "Machine", "simulate_flow"]
