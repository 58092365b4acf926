"""The records of a delivered text file, without Spark: where each begins, what the header says, whether the file ends well.

A record is a line, or several where a quoted value has line breaks in it. Spark reads files line by line, in UTF-8. What is
written otherwise is split into records here, and Spark gets those.
"""

from __future__ import annotations

import base64
import bz2
import codecs
import csv
import gzip
import io
import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from penstock.declare.config import FeedConfig
from penstock.engine.spark.links import compression

_CHUNK = 1 << 20
# Of records that Spark gets from here: the number of the first line, the text, what JSON says, and why it is refused before it is parsed.
LINE, ROW, VALUE, WHY = "_penstock_line", "_penstock_row", "_penstock_value", "_penstock_why"
# JSON that Spark would read otherwise than it is meant: a second object in the line, or a list; and what may be half a character.
# Each begins with a character of its own, for which is searched quickly.
_ODD = (re.compile(rb"\}[ \t]*\{"), re.compile(rb"\n[ \t]*\["))
_ODD_HALF = re.compile(rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]|\\\\u[dD]")
_PAIRS = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
csv.field_size_limit(1 << 30)
# A longer line, or a quoted value that goes on over so many lines, is no record: nobody could hold it in memory several times.
LONGEST_RECORD_BYTES = 64 << 20


class Malformed(Exception):
    """The file cannot be loaded as it is; the message is the reason that users see."""


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a feed writes text."""

    csv: bool
    encoding: str
    header: bool = False
    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    comment: str = ""

    @classmethod
    def of(cls, config: FeedConfig) -> TextForm:
        given = {key.lower(): str(value) for key, value in config.options.items()}
        encoding = given.get("encoding", given.get("charset", "utf-8"))
        if config.format != "csv":
            return cls(False, encoding)
        quote = given.get("quote", '"')
        return cls(
            True,
            encoding,
            given.get("header", "true").lower() == "true",
            given.get("sep", given.get("delimiter", ",")),
            quote,
            given.get("escape", quote),
            given.get("comment", ""),
        )

    @property
    def codec(self) -> str:
        """The encoding, by the name that also takes a byte order mark off."""
        name = codecs.lookup(self.encoding).name
        return "utf-8-sig" if name in ("utf-8", "ascii") else name

    def parsed(self, lines: Iterator[str], strict: bool = False) -> Any:
        doubled = self.escape == self.quote
        return csv.reader(
            lines,
            delimiter=self.separator,
            quotechar=self.quote,
            doublequote=doubled,
            escapechar=None if doubled else self.escape or None,
            strict=strict,
        )


def opened(path: Path) -> IO[bytes]:
    """The content of a file that may be compressed."""
    way: Any = {"": open, ".gz": gzip.open, ".bz2": bz2.open}[compression(path)]
    return cast(IO[bytes], way(path, "rb"))


def header(path: Path, form: TextForm) -> tuple[str, ...]:
    """The names in the first record of a CSV file, in the order of the file."""
    first = next(_records(path, form), None)
    if first is None:
        return ()
    names: list[str] = next(form.parsed(iter(first[1].splitlines(keepends=True))), [])
    return tuple(name.strip() for name in names)


def records(path: Path, form: TextForm) -> Iterator[tuple[int, str]]:
    """Each record that has rows, with the number of its first line. Neither header, nor comments, nor blank lines."""
    found = _records(path, form)
    if form.header:
        next(found, None)
    yield from found


def _records(path: Path, form: TextForm) -> Iterator[tuple[int, str]]:
    with opened(path) as stream, io.TextIOWrapper(stream, form.codec, newline="") as lines:
        if not form.csv:
            found = enumerate(lines, 1)
            yield from ((number, line.rstrip("\r\n")) for number, line in found if line.strip())
            return
        taken: list[str] = []

        def watched() -> Iterator[str]:
            size = 0
            for line in lines:
                size = size + len(line) if taken else len(line)
                taken.append(line)
                if size > LONGEST_RECORD_BYTES:
                    begun = reader.line_num - len(taken) + 2
                    raise Malformed(
                        f"the record that begins in line {begun} is longer than {LONGEST_RECORD_BYTES >> 20} MB; is a quote missing?"
                    )
                yield line

        reader = form.parsed(watched())
        try:
            for _ in reader:
                whole = "".join(taken).rstrip("\r\n")
                number = reader.line_num - len(taken) + 1
                taken.clear()
                if whole.strip() and not (form.comment and whole.startswith(form.comment)):
                    yield number, whole
        except csv.Error as error:
            raise Malformed(f"not CSV near line {reader.line_num}: {error}") from None


def read_by_spark(path: Path, form: TextForm) -> bool:
    """Whether Spark can read the file as it is: in UTF-8, every record in one line, and nothing that it would read otherwise."""
    if form.codec != "utf-8-sig":
        return False
    if not form.csv:
        return not _is_odd(path)
    if not has_broken_lines(path, form):
        return True
    return all("\n" not in record and "\r" not in record for _, record in _records(path, form))


def _is_odd(path: Path) -> bool:
    with opened(path) as stream:
        last = b"\n"
        while chunk := stream.read(_CHUNK):
            text = last + chunk.replace(b"\r", b"\n")
            if any(odd.search(text) for odd in _ODD) or (b"\\u" in text and _ODD_HALF.search(text)):
                return True
            last = chunk[-8:]
    return False


def has_broken_lines(path: Path, form: TextForm) -> bool:
    """Whether quotes in some line do not come in pairs, so that a record may be longer than a line."""
    if form.codec.startswith(("utf-16", "utf-32")):
        return True
    quote = form.quote.encode()
    odd = False
    with opened(path) as stream:
        while chunk := stream.read(_CHUNK):
            if quote not in chunk:
                if odd and b"\n" in chunk:
                    return True
                continue
            *ended, last = chunk.replace(b"\r", b"\n").split(b"\n")
            for line in ended:
                odd ^= bool(line.count(quote) & 1)
                if odd:
                    return True
            odd ^= bool(last.count(quote) & 1)
    return odd


def check_quotes(path: Path, form: TextForm) -> None:
    """A file that ends inside a quoted value was cut off, or has a quote that nobody closed."""
    if not has_broken_lines(path, form):
        return
    ends = deque(_records(path, form), maxlen=1)
    if not ends:
        return
    number, record = ends[0]
    try:
        for _ in form.parsed(iter(record.splitlines(keepends=True)), strict=True):
            pass
    except csv.Error as error:
        if "end of data" in str(error):
            raise Malformed(f"a quoted value in the record that begins in line {number} does not end") from None


def write_records(path: Path, form: TextForm, target: Path) -> None:
    """The records of a file as JSON lines, for Spark. What is JSON itself stands in a list: whatever is not one object shows."""
    with target.open("w", encoding="utf-8") as stream:
        for number, record in records(path, form):
            if form.csv:
                stream.write(json.dumps({LINE: number, ROW: record}) + "\n")
                continue
            half = _HALF.search(_PAIRS.sub(" ", record))
            why = f"has half a character, \\{half[0][1:]}, which no text can hold" if half else None
            write_record(stream, number, record, record, why)


def write_record(stream: IO[str], number: int, record: str, value: str | None, why: str | None) -> None:
    """One record as a line of JSON: where it begins, its text, and the JSON that it stands for or why it is refused."""
    told = f'"{LINE}":"{number}","{ROW}":"{base64.b64encode(record.encode()).decode()}"'
    stream.write(f'{{{told},"{WHY}":{json.dumps(why)}}}\n' if why else f'{{{told},"{VALUE}":[{value}]}}\n')


def write_lines(path: Path, form: TextForm, target: Path) -> None:
    """The records of a file as they are, in UTF-8."""
    with target.open("w", encoding="utf-8", newline="") as stream:
        stream.writelines(f"{record}\n" for _, record in records(path, form))
