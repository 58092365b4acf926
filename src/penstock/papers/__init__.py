"""The papers that Penstock is built on: their experiments, the algorithms as they are printed, and small models of each question.

One folder for each question, named as the product's own. What is here drives the product or stands beside it to be compared
with; the product never imports it (`make check`). The one door is this page, for `penstock experiment`.
"""

from __future__ import annotations

from importlib import import_module

from penstock.papers.experiment import EXPERIMENTS, Experiment, Finding, find_experiment

# Every module that has experiments, in the order in which they are listed. Each adds its own to `EXPERIMENTS` by `add`.
MODULES = (
    "flows.etl_spark",
    "scheduling.golab",
    "scheduling.beyond",
    "scheduling.any_workload",
    "recovery.aus_examples",
    "recovery.aus",
    "flows.etl",
    "flows.etl_staging",
    "requests.youtube",
    "requests.youtube_queue",
    "requests.youtube_late",
    "queries.unit",
)


def load_all() -> dict[str, Experiment]:
    for module in MODULES:
        import_module(f"{__name__}.{module}")
    return EXPERIMENTS


__all__ = ["Experiment", "Finding", "find_experiment", "load_all"]
