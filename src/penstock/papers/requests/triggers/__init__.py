"""How a change becomes requests: all at once (`eager`), step by step with a look back (`lazy`), and step by step with
schedules that are known beforehand (`grouping`)."""

from penstock.papers.requests.triggers.eager import Eager
from penstock.papers.requests.triggers.grouping import Grouping
from penstock.papers.requests.triggers.lazy import Lazy

__all__ = ["Eager", "Grouping", "Lazy"]
