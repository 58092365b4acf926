"""Activities: small descriptions of what is done to rows."""

from penstock.flows.activities.base import BAD, UNKNOWN, Activity, Bad, Check, Shape, Sql, Typed, Wrong
from penstock.flows.activities.checks import Filter, HasType, InDomain, Matches, NotNull
from penstock.flows.activities.columns import BlackBox, Derive, Drop, Reformat, Route, Select, Split
from penstock.flows.activities.combine import Join, Lookup, SortedUnion, Union
from penstock.flows.activities.group import Aggregate, Deduplicate, Gather, GroupPart, Pivot, Sort, Unpivot
from penstock.flows.activities.history import AttachKey, Difference, NewKeys, Overwrite, Versions

__all__ = [
    "BAD",
    "UNKNOWN",
    "Activity",
    "Aggregate",
    "AttachKey",
    "Bad",
    "BlackBox",
    "Check",
    "Deduplicate",
    "Derive",
    "Difference",
    "Drop",
    "Filter",
    "Gather",
    "GroupPart",
    "HasType",
    "InDomain",
    "Join",
    "Lookup",
    "Matches",
    "NewKeys",
    "NotNull",
    "Overwrite",
    "Pivot",
    "Reformat",
    "Route",
    "Select",
    "Shape",
    "Sort",
    "SortedUnion",
    "Split",
    "Sql",
    "Typed",
    "Union",
    "Unpivot",
    "Versions",
    "Wrong",
]
