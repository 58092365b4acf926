"""Experiments that anyone can repeat and vary: `penstock experiment --list`.

An experiment has named parameters with defaults, gives flat rows (the parameters and what was measured), and says what
was claimed beside what was found. Modules of this package add theirs to `EXPERIMENTS` by `add`.
"""

from __future__ import annotations

from importlib import import_module

from penstock.sim.experiments.base import EXPERIMENTS, Experiment, Finding, Picture, add, find_experiment

# Every module that has experiments.
MODULES = (
    "golab",
    "beyond",
    "aus_examples",
    "aus",
    "etl",
    "etl_staging",
    "youtube",
    "youtube_tree",
    "youtube_queue",
    "unit",
)


def load_all() -> dict[str, Experiment]:
    for module in MODULES:
        import_module(f"penstock.sim.experiments.{module}")
    return EXPERIMENTS


__all__ = ["EXPERIMENTS", "Experiment", "Finding", "Picture", "add", "find_experiment", "load_all"]
