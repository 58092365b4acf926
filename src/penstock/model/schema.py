"""Columns of a table. Types are Spark's own short names (`bigint`, `decimal(12,2)`, `array<string>`), the
one vocabulary that every part of the system shares."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

ALIASES = {
    "integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float", "bool": "boolean",
    "timestamp_ltz": "timestamp", "dec": "decimal", "numeric": "decimal", "varchar": "string", "char": "string",
}  # fmt: skip
FLAT = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
)  # fmt: skip
TYPES = (*FLAT, "decimal(p,s)", "array<…>", "map<…,…>", "struct<name:type,…>")
# What other systems call them.
_FOREIGN = {
    "text": "string", "str": "string", "object": "string", "uuid": "string", "json": "string", "varchar2": "string",
    "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "uint8": "smallint", "uint16": "int",
    "uint32": "bigint", "float32": "float", "float64": "double", "number": "decimal(38,0)", "datetime": "timestamp",
    "timestamptz": "timestamp", "blob": "binary", "bytes": "binary",
}  # fmt: skip
_TOKEN = re.compile(
    r"""\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|([<>,:()])|([^\s<>,:()`'"]+)|(.))"""
)
_NAME = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    nullable: bool = True


Schema = tuple[Column, ...]


def ddl(schema: Schema) -> str:
    """The schema as Spark DDL.

    >>> ddl((Column("router", "string"), Column("bytes", "bigint")))
    '`router` string, `bytes` bigint'
    """
    return ", ".join(f"`{column.name.replace('`', '``')}` {column.type}" for column in schema)


class WrongColumns(ValueError):
    """Columns that cannot be read; each flaw with the offset in the text at which it stands."""

    def __init__(self, flaws: list[tuple[int, str]]) -> None:
        super().__init__("; ".join(message for _, message in flaws))
        self.flaws = tuple(flaws)


def parse_ddl(text: str) -> Schema:
    """Columns written as Spark DDL. Raises `WrongColumns` with all that is wrong.

    >>> parse_ddl("router string, price DECIMAL(12, 2), tags map<string, int>")[1]
    Column(name='price', type='decimal(12,2)', nullable=True)
    """
    reader = _Reader(text)
    columns = reader.columns()
    if reader.flaws:
        raise WrongColumns(reader.flaws)
    return tuple(columns)


class _Wrong(Exception):
    pass


class _Reader:
    def __init__(self, text: str) -> None:
        found = [match for match in _TOKEN.finditer(text) if match.lastindex]
        self.tokens = [match[match.lastindex or 0] for match in found]
        self.offsets = [match.start(match.lastindex or 0) for match in found] + [max(0, len(text.rstrip()) - 1)]
        self.at = 0
        self.flaws: list[tuple[int, str]] = []

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def wrong(self, message: str, at: int | None = None) -> _Wrong:
        self.flaws.append((self.offsets[min(self.at if at is None else at, len(self.offsets) - 1)], message))
        return _Wrong()

    def columns(self) -> list[Column]:
        found: list[Column] = []
        seen: set[str] = set()
        if not self.tokens:
            self.wrong("there are no columns; write `name type, name type`, for example `router string, bytes bigint`")
        while self.at < len(self.tokens):
            begin = self.at
            try:
                column = self.column()
            except _Wrong:
                self.skip()
                continue
            if column.name.lower() in seen:
                self.wrong(f"column `{column.name}` stands twice", begin)
            elif column.name.lower().startswith("_penstock_"):
                self.wrong(f"column `{column.name}`: names that begin with _penstock_ are kept for state", begin)
            seen.add(column.name.lower())
            found.append(column)
        return found

    def skip(self) -> None:
        """To the next column, past what could not be read."""
        depth = 0
        while self.at < len(self.tokens):
            token = self.take()
            depth += (token in ("<", "(")) - (token in (">", ")"))
            if token == "," and depth <= 0:
                return

    def column(self) -> Column:
        name = self.name()
        if self.peek() == ":":
            self.take()
        if self.peek() in ("", ","):
            raise self.wrong(f"column `{name}` has no type; write for example `{name} string`", self.at - 1)
        kind = self.type(name)
        nullable = True
        while self.peek() not in ("", ","):
            word = self.take()
            if word.upper() == "NOT" and self.peek().upper() == "NULL":
                self.take()
                nullable = False
            elif word.upper() == "COMMENT" and self.peek()[:1] in ("'", '"'):
                self.take()
            else:
                at = self.at - 1
                raise self.wrong(f"column `{name}`: {word!r} after its type {kind}; expected a comma", at)
        if self.take() == "," and not self.peek():
            self.wrong("nothing stands after the last comma", self.at - 1)
        return Column(name, kind, nullable)

    def name(self) -> str:
        token = self.take()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not _NAME.fullmatch(token):
            expected = "expected the name of a column, in `backquotes` if it is not only letters, digits and _"
            raise self.wrong(f"found {token!r}; {expected}", self.at - 1)
        return token

    def type(self, column: str) -> str:
        begin = self.at
        word = self.take().lower()
        word = ALIASES.get(word, word)
        if word in ("array", "map", "struct"):
            return self.nested(word, column, begin)
        if word == "decimal":
            return self.decimal(column, begin)
        if word not in FLAT:
            raise self.wrong(f"column `{column}`: {word!r} is not a type of Spark{_instead(word)}", begin)
        if word == "string" and self.peek() == "(":  # varchar(10)
            self.take()
            self.take()
            self.expect(")", column)
        return word

    def decimal(self, column: str, begin: int) -> str:
        digits = [10, 0]
        if self.peek() == "(":
            self.take()
            digits = [0, 0]
            for place in range(2):
                if not self.peek().isdigit():
                    raise self.wrong(f"column `{column}`: decimal needs digits, as in decimal(12,2)", begin)
                digits[place] = int(self.take())
                if self.peek() != ",":
                    break
                self.take()
            self.expect(")", column)
        if not (1 <= digits[0] <= 38 and digits[1] <= digits[0]):
            raise self.wrong(
                f"column `{column}`: decimal({digits[0]},{digits[1]}) has impossible digits; expected at most 38, "
                "and not more after the point than in all",
                begin,
            )
        return f"decimal({digits[0]},{digits[1]})"

    def nested(self, word: str, column: str, begin: int) -> str:
        example = {"array": "array<string>", "map": "map<string,bigint>", "struct": "struct<city:string>"}[word]
        if self.peek() != "<":
            raise self.wrong(f"column `{column}`: {word} of what? write for example {example}", begin)
        self.take()
        parts: list[str] = []
        names: set[str] = set()
        while True:
            if word == "struct":
                name = self.name()
                if name.lower() in names:
                    self.wrong(f"column `{column}`: two fields named `{name}` in a struct", self.at - 1)
                names.add(name.lower())
                if self.peek() == ":":
                    self.take()
                parts.append(f"{_quoted(name)}:{self.type(column)}")
            else:
                parts.append(self.type(column))
            if self.peek() != ",":
                break
            self.take()
        self.expect(">", column)
        if len(parts) != {"array": 1, "map": 2}.get(word, len(parts)):
            raise self.wrong(f"column `{column}`: {word} with {len(parts)} types; write for example {example}", begin)
        return f"{word}<{','.join(parts)}>"

    def expect(self, token: str, column: str) -> None:
        if self.peek() != token:
            found = repr(self.peek()) if self.peek() else "the end"
            raise self.wrong(f"column `{column}`: found {found} where {token!r} was expected")
        self.take()


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _instead(word: str) -> str:
    near = _FOREIGN.get(word) or next(iter(difflib.get_close_matches(word, (*FLAT, "decimal"), 1)), None)
    return f"; write {near}" if near else f"; expected one of {', '.join(TYPES)}"
