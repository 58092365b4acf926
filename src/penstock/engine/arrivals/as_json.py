"""XML and text of fixed width: their rows as JSON records, which Spark then gets like those of delivered JSON.

A value is text here, whatever its column is; it becomes a value, or is refused, as text of any file does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from pyspark.sql import types as T

from penstock.declare.config import FeedConfig
from penstock.engine.arrivals import records as text_records
from penstock.engine.arrivals.records import Malformed, TextForm, opened, records, write_record
from penstock.model.schema import Schema

_CHUNK = 1 << 20


class _Unfit(Exception):
    """A row that is none; the message says why."""


def write_as_json(path: Path, config: FeedConfig, columns: T.StructType, target: Path) -> None:
    """The rows of a file as JSON lines, each with its line and its text."""
    with target.open("w", encoding="utf-8") as stream:
        if config.format == "xml":
            for line, row in elements(path, config):
                text = ElementTree.tostring(row, encoding="unicode")
                write_record(stream, line, text, *_told(partial(_struct, row, columns)))
            return
        widths = config.widths
        for line, text in records(path, TextForm.of(config)):
            write_record(stream, line, text, *_told(partial(_cut, text, columns.names, widths)))


def _told(make: Callable[[], dict[str, Any]]) -> tuple[str | None, str | None]:
    """The row as JSON, or why it is none."""
    try:
        return json.dumps(make()), None
    except _Unfit as unfit:
        return None, str(unfit)


def _cut(text: str, names: list[str], widths: list[int]) -> dict[str, Any]:
    """The values of a line. Blanks at its end may be missing."""
    found: dict[str, Any] = {}
    if len(text.rstrip()) > sum(widths):
        raise _Unfit(f"the line has {len(text.rstrip())} characters, expected at most {sum(widths)}")
    start = 0
    for name, width in zip(names, widths, strict=True):
        found[name] = text[start : start + width].strip() or None
        start += width
    if found[names[-1]] is None and len(text) < sum(widths[:-1]):
        raise _Unfit(f"the line has {len(text)} characters, expected {sum(widths)}")
    return found


def elements(path: Path, config: FeedConfig) -> Iterator[tuple[int, ElementTree.Element]]:
    """The elements of an XML file that are rows, each with the line in which it begins: those with the name `rowTag`, or else
    the children of the outermost. Raises `Malformed` at the end if the file is not whole."""
    tag = next((str(value) for key, value in config.options.items() if key.lower() == "rowtag"), None)
    parser = expat.ParserCreate(namespace_separator=None)
    open_: list[ElementTree.Element] = []
    done: list[tuple[int, ElementTree.Element]] = []
    depth = began = line = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, began, line
        name = name.rpartition(":")[2]
        depth += 1
        if open_ or (name == tag if tag is not None else depth == 2):
            element = ElementTree.Element(name, {key.rpartition(":")[2]: value for key, value in attributes.items()})
            if open_:
                open_[-1].append(element)
            else:
                began, line = parser.CurrentByteIndex, parser.CurrentLineNumber
            open_.append(element)

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1
        if open_:
            element = open_.pop()
            if not open_:
                done.append((line, element))

    def text(value: str) -> None:
        if open_ and not len(open_[-1]):
            open_[-1].text = (open_[-1].text or "") + value

    def entity(*_said: Any) -> None:
        raise Malformed("declares entities of its own, which are not followed")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.EntityDeclHandler = entity
    try:
        with opened(path) as stream:
            while chunk := stream.read(_CHUNK):
                parser.Parse(chunk, False)
                yield from done
                done.clear()
                if open_ and parser.CurrentByteIndex - began > text_records.LONGEST_RECORD_BYTES:
                    limit = text_records.LONGEST_RECORD_BYTES >> 20
                    raise Malformed(f"the row that begins in line {line} is longer than {limit} MB")
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise Malformed(f"not whole XML: {expat.errors.messages[error.code]} in line {error.lineno}") from None


def check_xml(path: Path, config: FeedConfig, schema: Schema | None) -> None:
    """The whole file is read, so that it is known to end well; its first row tells whether it is of the right kind."""
    found = elements(path, config)
    first = next(found, None)
    if first is None:
        return
    names = {*first[1].attrib, *(child.tag for child in first[1])}
    if schema and not names & {column.name for column in schema}:
        expected = ", ".join(column.name for column in schema)
        raise Malformed(
            f"wrong columns: found {', '.join(sorted(names))[:300] or 'nothing'} in <{first[1].tag}>; expected {expected}"
        )
    for _ in found:
        pass


def _struct(element: ElementTree.Element, kind: T.StructType) -> dict[str, Any]:
    """The fields of a row: child elements, or attributes."""
    found: dict[str, Any] = {}
    for field in kind.fields:
        name = field.name
        children = [child for child in element if child.tag == name]
        attribute = element.attrib.get(name, element.attrib.get(name.removeprefix("_")))
        if isinstance(field.dataType, T.ArrayType):
            found[name] = [_value(child, field.dataType.elementType) for child in children]
        elif len(children) > 1:
            raise _Unfit(f"<{name}> stands {len(children)} times in <{element.tag}>")
        elif children:
            found[name] = _value(children[0], field.dataType)
        elif attribute is not None:
            found[name] = attribute
    return found


def _value(element: ElementTree.Element, kind: T.DataType) -> Any:
    if isinstance(kind, T.StructType):
        return _struct(element, kind)
    if isinstance(kind, T.MapType):
        return {child.tag: _value(child, kind.valueType) for child in element}
    if isinstance(kind, T.ArrayType) or len(element):
        raise _Unfit(f"<{element.tag}> has elements inside, expected a value")
    return (element.text or "").strip() or None
