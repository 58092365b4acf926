"""Whether an update should wait, by the recursion of Xu, Gao, Davidson 2023, Sec. 4.2, as it is printed.

It counts tables that several children share once for each, and compares ratios, which do not add up. What users run is the exact
decision of `requests/closure.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from penstock.requests.closure import Children, descendants


def printed_recursion(
    root: str, children: Children, cost: Callable[[str], float], penalty: Callable[[str], float]
) -> frozenset[str]:
    """The recursion of Sec. 4.2 as it is printed: the larger ratio of reward to penalty wins at each table. Returns the
    tables that wait."""
    known: dict[str, tuple[float, float, frozenset[str]]] = {}
    for name in _bottom_up(root, children):
        below = descendants(name, children)
        reward, loss = sum(map(cost, below)), sum(map(penalty, below))
        options = [known[child] for child in children(name)]
        apart = (
            sum(option[0] for option in options),
            sum(option[1] for option in options),
            frozenset().union(*(option[2] for option in options)),
        )
        together = (reward, loss, frozenset(below))
        known[name] = together if _ratio(together) >= _ratio(apart) else apart
    return known[root][2]


def _ratio(option: tuple[float, float, frozenset[str]]) -> float:
    reward, loss, _ = option
    return reward / loss if loss else (inf if reward else 0.0)


def _bottom_up(root: str, children: Children) -> list[str]:
    """Each table after all that is made from it."""
    done: dict[str, None] = {}
    path = [(root, iter(list(children(root))))]
    seen = {root}
    while path:
        name, rest = path[-1]
        child = next((child for child in rest if child not in seen), None)
        if child is None:
            done[name] = None
            path.pop()
        else:
            seen.add(child)
            path.append((child, iter(list(children(child)))))
    return list(done)
