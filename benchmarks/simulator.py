"""The simulator: events a second on one core, alone and with many tables, and through the whole controller."""

from __future__ import annotations

from time import perf_counter, process_time

from penstock.scheduling.policies import find_policy
from penstock.sim import lean, runtime
from penstock.sim.scenario import Scenario, SimTable, Slowdown, loaded_to

TRACKS = 4
AT_LEAST = 100_000
EVENTS = 1_000_000


def run() -> list[dict[str, object]]:
    few = _lean("max-benefit", 30, EVENTS)
    rows = [_row(f"global Max Benefit, 30 tables, {EVENTS:,} events", *few, limit=AT_LEAST)]
    for policy in ("proportional(all, aggressive)", "reserve / max-benefit / inherit=chain"):
        rows.append(_row(f"{policy}, 30 tables", *_lean(policy, 30, 200_000)))
    many = _lean("max-benefit", 10_000, 200_000)
    rows.append(_row("global Max Benefit, 10,000 tables", *many))
    rows.append(
        {"benchmark": "how much slower an event is with 10,000 tables", "ratio": few[1] / many[1], "limit": 4.0}
    )
    rows.append(_row("through the controller, 30 tables", *_controller(30, 20_000)))
    return rows


def _scenario(tables: int) -> Scenario:
    slowdown = Slowdown()
    alike = loaded_to([SimTable(f"t{n}") for n in range(tables)], 0.9, TRACKS, slowdown)
    return Scenario(alike, tracks=TRACKS, horizon_s=1e12, jitter=0.5, slowdown=slowdown)


def _lean(policy: str, tables: int, events: int) -> tuple[float, float]:
    """Events a second by the clock, and by the time that the processor spent on it."""
    scenario = _scenario(tables)
    _ = scenario.graph.periods_us
    start, spent = perf_counter(), process_time()
    found = lean.simulate(scenario, find_policy(policy), 1, max_events=events)
    return found.events / (perf_counter() - start), found.events / (process_time() - spent)


def _controller(tables: int, events: int) -> tuple[float, float]:
    simulation = runtime.Simulation(_scenario(tables), find_policy("max-benefit"), 1)
    start, spent = perf_counter(), process_time()
    found = simulation.run(events)
    return found.events / (perf_counter() - start), found.events / (process_time() - spent)


def _row(name: str, wall: float, processor: float, **more: object) -> dict[str, object]:
    return {"benchmark": name, "events_per_s": round(wall), "per_cpu_s": round(processor), **more}
