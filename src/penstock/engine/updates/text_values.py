"""Text becomes values, exactly or not at all.

Spark's own readers cut what does not fit: the time off a date, digits off a decimal, nanoseconds. So text files are read as
text, and each value is converted here. One that does not fit its column is never stored as something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import types as T

from penstock.engine.updates.rows import quoted

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_A_DAY = r"^\s*\d{4}-\d{1,2}-\d{1,2}"
_ONLY_A_DAY = rf"{_A_DAY}\s*$"
# After a time of day: Z, +02:00, or the name of a zone.
_OFFSET = r":\d.*[A-Za-z+-]"
# Finer than a microsecond.
_TOO_FINE = r":\d+\.\d{6}0*[1-9]"


def text(value: str) -> str:
    """A string literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def as_text(kind: T.DataType) -> str:
    """The type in which a column is read first: the same nesting, with text in place of values."""
    if isinstance(kind, T.StructType):
        return f"struct<{','.join(f'{quoted(field.name)}:{as_text(field.dataType)}' for field in kind.fields)}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{as_text(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<string,{as_text(kind.valueType)}>"
    return "string"


def by_clock(e: str, found: T.DataType, wanted: T.DataType, zone: str, depth: int = 0) -> str:
    """A value whose times without offset become instants by the clocks of a zone, at any depth."""
    x, k = f"x{depth}", f"k{depth}"
    if found == wanted:
        return e
    if isinstance(found, T.StructType) and isinstance(wanted, T.StructType):
        fields = ", ".join(
            f"{text(new.name)}, {by_clock(f'{e}.{quoted(new.name)}', old.dataType, new.dataType, zone, depth)}"
            for old, new in zip(found.fields, wanted.fields, strict=True)
        )
        return f"if({e} is null, null, named_struct({fields}))"
    if isinstance(found, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return f"transform({e}, {x} -> {by_clock(x, found.elementType, wanted.elementType, zone, depth + 1)})"
    if isinstance(found, T.MapType) and isinstance(wanted, T.MapType):
        values = by_clock(x, found.valueType, wanted.valueType, zone, depth + 1)
        keys = by_clock(k, found.keyType, wanted.keyType, zone, depth + 1)
        return f"transform_keys(transform_values({e}, ({k}, {x}) -> {values}), ({k}, {x}) -> {keys})"
    return f"to_timestamp(concat(cast({e} as string), {text(' ' + zone)}))"


@dataclass(frozen=True)
class Values:
    """How the text of a feed's files is to be understood. Expressions are SQL."""

    # Binary values are in base64, as JSON has no other way.
    base64: bool = False
    # Formats that the feed gives, by kind: date, timestamp, timestamp_ntz.
    formats: Mapping[str, str] | None = None
    # Of times without offset, where it is not that of the session.
    zone: str | None = None

    def value(self, e: str, kind: T.DataType, depth: int = 0) -> str:
        """What the text says; null where it does not fit."""
        x = f"x{depth}"
        if isinstance(kind, T.StructType):
            fields = ", ".join(
                f"{text(field.name)}, {self.value(f'{e}.{quoted(field.name)}', field.dataType, depth)}"
                for field in kind.fields
            )
            return f"if({e} is null, null, named_struct({fields}))"
        if isinstance(kind, T.ArrayType):
            return f"transform({e}, {x} -> {self.value(x, kind.elementType, depth + 1)})"
        if isinstance(kind, T.MapType):
            values = f"transform_values({e}, (k{depth}, {x}) -> {self.value(x, kind.valueType, depth + 1)})"
            if isinstance(kind.keyType, T.StringType):
                return values
            return f"transform_keys({values}, (k{depth}, {x}) -> {self.value(f'k{depth}', kind.keyType, depth + 1)})"
        return self._value(e, kind.simpleString())

    def _value(self, e: str, name: str) -> str:
        if name == "string":
            return e
        if name == "binary":
            return f"try_to_binary({e}, 'base64')" if self.base64 else f"cast({e} as binary)"
        if name == "boolean":
            return f"lower(trim({e})) = 'true'"
        if (form := (self.formats or {}).get(name)) is not None:
            read = f"try_to_timestamp({e}, {text(form)})"
            if name == "timestamp" and self.zone is not None and not re.search("[VzOXx]", re.sub("'[^']*'", "", form)):
                return f"try_cast(concat(cast({read} as string), {text(' ' + self.zone)}) as timestamp)"
            return f"cast({read} as {name})"
        if name == "timestamp" and self.zone is not None:
            # With a zone Spark wants all of it: hours, minutes and seconds.
            rest = f"case when {e} like '%:%:%' then '' when {e} like '%:%' then ':00' else ' 00:00:00' end"
            local = f"try_cast(concat(trim({e}), {rest}, {text(' ' + self.zone)}) as timestamp)"
            return f"if({e} rlike {text(_OFFSET)}, try_cast({e} as timestamp), {local})"
        return f"try_cast({e} as {name})"

    def unfit(self, e: str, kind: T.DataType, value: str | None = None, depth: int = 0) -> str | None:
        """Whether there is text that is no value of the type; None if any text is one. `value`: where the value of simple
        text is already."""
        x = f"x{depth}"
        if isinstance(kind, T.StructType):
            tests = (self.unfit(f"{e}.{quoted(field.name)}", field.dataType, None, depth) for field in kind.fields)
            return " or ".join(f"({test})" for test in tests if test is not None) or None
        if isinstance(kind, T.ArrayType):
            test = self.unfit(x, kind.elementType, None, depth + 1)
            return None if test is None else f"({e} is not null and exists({e}, {x} -> {test}))"
        if isinstance(kind, T.MapType):
            both = (
                f"({e} is not null and exists({of}({e}), {x} -> {test}))"
                for of, part in (("map_keys", kind.keyType), ("map_values", kind.valueType))
                if (test := self.unfit(x, part, None, depth + 1)) is not None
            )
            return " or ".join(both) or None
        test = self._unfit(e, kind, value or self._value(e, kind.simpleString()))
        return None if test is None else f"({e} is not null and ({test}))"

    def _unfit(self, e: str, kind: T.DataType, value: str) -> str | None:
        name = kind.simpleString()
        nothing = f"{value} is null"
        if name == "string" or (name == "binary" and not self.base64):
            return None
        if name == "boolean":
            return f"lower(trim({e})) not in ('true', 'false')"
        if isinstance(kind, T.DecimalType):
            return f"{nothing} or not {_exact(e, kind, value)}"
        if name in ("float", "double"):
            endless = f"abs({value}) = double('infinity') and lower({e}) not like '%inf%'"
            # `1d` and `1f` are numbers to Java.
            return f"{nothing} or ({endless}) or lower({e}) rlike {text('[0-9.][df][^a-z]*$')}"
        if name in (self.formats or {}) or name in (*_WHOLE, "binary"):
            return nothing
        if name == "date":
            return f"{nothing} or not {e} rlike {text(_ONLY_A_DAY)}"
        # Most times are written like 2024-03-01 10:00:00; patterns, which take longer, are for the others.
        usual = f"(substring({e}, 5, 1) = '-' and substring({e}, 8, 1) = '-')"
        too_fine = f"(length({e}) > 26 and {e} rlike {text(_TOO_FINE)})"
        wrong = f"{nothing} or not ({usual} or {e} rlike {text(_A_DAY)}) or {too_fine}"
        return f"{wrong} or {e} rlike {text(_OFFSET)}" if name == "timestamp_ntz" else wrong


def _exact(e: str, kind: T.DecimalType, value: str) -> str:
    """Whether a number has no more digits after the point than the column."""
    scale = kind.scale
    few = f"(instr(lower({e}), 'e') = 0 and (instr({e}, '.') = 0 or length({e}) - instr({e}, '.') <= {scale}))"
    plain = rf"^\s*[+-]?(\d+(\.\d{{0,{scale}}}0*)?|\.\d{{0,{scale}}}0*)\s*$"
    wide = f"try_cast({e} as decimal(38,{min(38, scale + 38 - kind.precision)}))"
    return f"({few} or {e} rlike {text(plain)} or ({e} rlike '[eE]' and {wide} = {value}))"
