"""Typed values as plain data (what JSON has) and back, by the annotations of their types.

`codec(kind).read(codec(kind).write(value))` equals `value`. A dataclass is an object of its fields, all of them: a new field cannot be forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from penstock.model.partitions import IntervalMap, PartitionSet
from penstock.requests.needs import pending


class Codec(NamedTuple):
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


_PLAIN = Codec(_same, _same)


@cache
def codec(kind: Any) -> Codec:
    origin, args = get_origin(kind), get_args(kind)
    if kind in (int, float, str, bool, NoneType, Any) or origin is Literal:
        return _PLAIN
    if kind is PartitionSet:
        # Pieces that touch stay what they are.
        return Codec(lambda found: [list(one) for one in found], lambda data: PartitionSet(tuple(map(tuple, data))))
    if origin is IntervalMap:
        return _pieces(codec(args[0]))
    if origin in (Union, UnionType):
        return _optional([codec(arg) for arg in args if arg is not NoneType])
    if origin is tuple and args[-1] is not Ellipsis:
        return _fixed([codec(arg) for arg in args])
    if origin is dict:
        inner = codec(args[1])
        if inner is _PLAIN:
            return Codec(dict, dict)
        return Codec(
            lambda found: {name: inner.write(value) for name, value in found.items()},
            lambda data: {name: inner.read(value) for name, value in data.items()},
        )
    if origin in (tuple, list, deque, set):
        return _many(origin, codec(args[0]))
    if is_dataclass(kind):
        return _fields(kind)
    if isinstance(kind, type) and issubclass(kind, tuple):
        # A named tuple is a list of its values.
        inner = _fixed([codec(each) for each in get_type_hints(kind).values()])
        return Codec(inner.write, lambda data: kind(*inner.read(data)))
    raise TypeError(f"{kind} has no plain form")


def _optional(kinds: list[Codec]) -> Codec:
    if all(one is _PLAIN for one in kinds):
        return _PLAIN
    (inner,) = kinds
    return Codec(
        lambda found: None if found is None else inner.write(found),
        lambda data: None if data is None else inner.read(data),
    )


def _many(kind: Callable[[Any], Any], inner: Codec) -> Codec:
    listed: Callable[[Any], list[Any]] = sorted if kind is set else list
    if inner is _PLAIN:
        return Codec(listed, kind)
    return Codec(lambda found: listed(map(inner.write, found)), lambda data: kind(map(inner.read, data)))


def _fixed(kinds: list[Codec]) -> Codec:
    if all(one is _PLAIN for one in kinds):
        return Codec(list, tuple)
    return Codec(
        lambda found: [one.write(value) for one, value in zip(kinds, found, strict=True)],
        lambda data: tuple(one.read(value) for one, value in zip(kinds, data, strict=True)),
    )


def _pieces(inner: Codec) -> Codec:
    """The only maps that are remembered are those of needs: their rule is that of `pending`."""

    def read(data: Any) -> Any:
        found: Any = pending()
        for start, end, value in data:
            found.add(PartitionSet(((start, end),)), inner.read(value))
        return found

    return Codec(lambda found: [[start, end, inner.write(value)] for start, end, value in found.pieces()], read)


def _fields(kind: Any) -> Codec:
    # Made when it is first needed: a job has jobs beside it.
    found: list[tuple[str, Codec]] = []

    def known() -> list[tuple[str, Codec]]:
        if not found:
            hints = get_type_hints(kind)
            found.extend((each.name, codec(hints[each.name])) for each in fields(kind))
        return found

    return Codec(
        lambda value: {name: one.write(getattr(value, name)) for name, one in known()},
        lambda data: kind(**{name: one.read(data[name]) for name, one in known()}),
    )
