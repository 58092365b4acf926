"""What docs/queries.md shows works as shown."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.papers.queries.unit import COMMON
from penstock.queries.policies import DEFAULT, POLICIES

PAGE = (Path(__file__).parents[2] / "docs/queries.md").read_text()


def test_the_example() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})


def test_all_policies_and_parameters_are_there() -> None:
    for name in POLICIES:
        assert f"| `{name}`" in PAGE
    assert f"`{DEFAULT}` (default)" in PAGE
    for name in COMMON:
        assert name == "policies" or f"`{name}`" in PAGE
    for name in ("items", "scale", "load", "skew", "bias", "tail"):
        assert f"| `{name}` | {COMMON[name]} |" in PAGE
