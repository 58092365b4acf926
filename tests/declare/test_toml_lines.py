"""Lines of keys, against texts that are hard to walk through."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.declare.problems import key_lines, line_of

TEXT = '''# name = 1
name = "x = [" # [feeds.no]
"a b".'c.d' = 1
[feeds.stats]  # here
path = 'a\\' # not the end'
columns = """
a "quoted" int, # not a comment
b = 5
"""
rules = [
  "a > 0", # one
  'b = "]"', """two
lines""", 5]
options = { sep = ";", inner.deep = { x = [1, 2] } }
when = 2020-01-01T00:00:00Z
[[many]]
z = 1
[[many]]
  [many.sub]
  z = true
'''


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("name", 2),
        ("a b/c.d", 3),
        ("feeds", 4),
        ("feeds/stats", 4),
        ("feeds/stats/path", 5),
        ("feeds/stats/columns", 6),
        ("feeds/stats/columns/=", 7),
        ("feeds/stats/rules/0", 11),
        ("feeds/stats/rules/1", 12),
        ("feeds/stats/rules/3", 13),
        ("feeds/stats/options/inner/deep/x/1", 14),
        ("feeds/stats/when", 15),
        ("many/1", 18),
        ("feeds/stats/missing", 4),
        ("nothing", 1),
    ],
)
def test_lines(keys: str, line: int) -> None:
    assert line_of(key_lines(TEXT), keys.split("/")) == line


@given(st.text(alphabet="ab.=[]{}\"'#\n ,1", max_size=60))
def test_any_text_is_walked_through(text: str) -> None:
    found = key_lines(text)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    for key in data:
        assert (key,) in found
