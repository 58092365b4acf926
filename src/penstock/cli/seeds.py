"""What commands that try many runs share: numbers as people write them, and a sign of progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.progress import track

from penstock.cli.common import err
from penstock.errors import PenstockError

T = TypeVar("T")


def parse_seeds(text: str) -> list[int]:
    """How many (5), a range (1..5), or a list (3,7)."""
    try:
        return list(range(1, int(text) + 1)) if int(text) > 0 else _refused("--seeds", text)
    except ValueError:
        return parse_numbers(text, "--seeds")


def parse_numbers(text: str, option: str) -> list[int]:
    """A number, a range (1..4) or a list (2,4)."""
    try:
        if ".." in text:
            first, last = text.split("..")
            found = list(range(int(first), int(last) + 1))
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    return found if found and min(found) >= (1 if option == "--tracks" else 0) else _refused(option, text)


def _refused(option: str, text: str) -> list[int]:
    first = "how many (5)" if option == "--seeds" else "a number (2)"
    raise PenstockError(f"{option} {text}: write {first}, a range (1..5) or a list (3,7)")


def watched(results: Iterable[T], count: int) -> Iterator[T]:
    """A sign of progress for people."""
    if not err.is_terminal:
        yield from results
        return
    yield from track(results, description="simulating", total=count, console=err, transient=True)
