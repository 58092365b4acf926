"""Types of expressions by Spark's rules (ANSI mode), as far as they are certain; None where they are not.

sqlglot's own inference serves many dialects and is wrong where it matters here (`int / int` is a double in Spark,
a sum of decimals is ten digits wider). Folding relies on these types, so an honest None beats a guess."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp

INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_SYNONYMS = {
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float", "bool": "boolean",
    "timestamp_ltz": "timestamp", "dec": "decimal(10,0)", "decimal": "decimal(10,0)", "numeric": "decimal(10,0)",
    "text": "string",
}  # fmt: skip
TIMES = ("date", "timestamp", "timestamp_ntz")
_PLAIN = {*INTEGERS, "float", "double", "string", "boolean", "date", "timestamp", "timestamp_ntz", "binary"}

# What is longer is not known.
_LONGEST = 20_000

Decimal = tuple[int, int]


def spell(type_: str) -> str:
    """A type in Spark's own short spelling: `DECIMAL(12, 2)` -> `decimal(12,2)`. Field names keep their case."""
    plain = re.sub(r"\s+", "", type_)
    if "<" in plain:
        return plain
    plain = plain.lower()
    return _SYNONYMS.get(plain, re.sub(r"^(dec|numeric)\(", "decimal(", plain))


def decimal_of(type_: str | None) -> Decimal | None:
    match = re.fullmatch(r"decimal\((\d+),(\d+)\)", type_ or "")
    return (int(match[1]), int(match[2])) if match else None


def decimal(precision: int, scale: int) -> str:
    return f"decimal({min(precision, 38)},{min(scale, 38)})"


def is_exact(type_: str | None) -> bool:
    """Numbers whose sum does not depend on the order of addition."""
    return type_ in INTEGERS or decimal_of(type_) is not None


def fields(type_: str | None) -> list[tuple[str, str]] | None:
    """The fields of a struct type; None if it is not one.

    >>> fields("struct<a:int,b:map<string,int>>")
    [('a', 'int'), ('b', 'map<string,int>')]
    """
    if not type_ or not type_.startswith("struct<"):
        return None
    parts: list[tuple[str, str]] = []
    for part in _split(type_[len("struct<") : -1]):
        name, _, inner = part.partition(":")
        parts.append((name.strip("`"), inner))
    return parts


def element(type_: str | None) -> str | None:
    return type_[len("array<") : -1] if type_ and type_.startswith("array<") else None


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]] if text else []


def of_cast(to: exp.Expr) -> str | None:
    if isinstance(to, exp.DataType) and to.this == exp.DataType.Type.TIME:
        return "time(6)"
    spelled = spell(to.sql(dialect="spark"))
    if re.match(r"(var)?char\(", spelled):
        return "string"
    return spelled if spelled in _PLAIN or decimal_of(spelled) else None


_BOOLEANS = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.And, exp.Or, exp.Not, exp.Is, exp.In,
    exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Boolean, exp.Exists, exp.LogicalAnd, exp.LogicalOr,
    exp.StartsWith, exp.EndsWith,
)  # fmt: skip
_STRINGS = (exp.Upper, exp.Lower, exp.Trim, exp.Substring, exp.TimeToStr, exp.RegexpReplace, exp.ConcatWs)
_INTS = (exp.Length, exp.Year, exp.Quarter, exp.Month, exp.Day, exp.Hour, exp.Minute, exp.DayOfWeek, exp.DayOfYear)
_SAME = (exp.Min, exp.Max, exp.Paren, exp.Nullif, exp.Filter, exp.First, exp.AnyValue, exp.ArrayDistinct,
    exp.ArrayFilter,
)  # fmt: skip
_NAMED = {
    **dict.fromkeys(("make_dt_interval", "make_ym_interval", "try_make_interval"), "interval"),
    **dict.fromkeys(("make_time", "to_time", "try_to_time"), "time(6)"),
    **dict.fromkeys(("try_parse_json", "to_variant_object"), "variant"),
}


def infer(node: exp.Expr, column: Callable[[exp.Column], str | None]) -> str | None:
    """The type of an expression; `column` knows those of the columns."""

    def of(child: exp.Expr | None) -> str | None:
        return infer(child, column) if child is not None else None

    match node:
        case exp.Column():
            return column(node)
        case exp.Alias() | exp.IgnoreNulls():
            return of(node.this)
        case exp.Cast():  # TryCast too
            return of_cast(node.to)
        case exp.Literal():
            return _literal(node)
        case exp.Count() | exp.CountIf():
            return "bigint"
        case exp.Sum():
            return of_sum(of(node.this))
        case exp.Avg():
            return of_avg(of(node.this))
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            # Each side once: in a long sum, twice would double with every term.
            left, right = of(node.this), of(node.expression)
            if isinstance(node, exp.Sub) and left in TIMES and right in TIMES:
                return "interval"
            if isinstance(node, exp.Mul | exp.Div) and "interval" in (left, right):
                return "interval"
            return _arithmetic(node, left, right)
        case exp.Neg() | exp.Abs():
            type_ = of(node.this)
            return type_ if is_exact(type_) or type_ in ("float", "double", "interval") else None
        case exp.Interval() | exp.MakeInterval():
            return "interval"
        case exp.CurrentTime():
            return "time(6)"
        case exp.Collate():
            return f"string collate {node.expression.name}"
        case exp.ParseJSON():
            return "variant"
        case exp.IntDiv():
            return "bigint" if is_exact(of(node.this)) and is_exact(of(node.expression)) else None
        case exp.Mod():
            pair = (of(node.this), of(node.expression))
            return widest(pair) if pair[0] in INTEGERS and pair[1] in INTEGERS else None
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            return widest([of(node.this), *map(of, node.expressions)])
        case exp.If():
            return widest([of(node.args["true"]), of(node.args.get("false")) if node.args.get("false") else "void"])
        case exp.Case():
            default = node.args.get("default")
            return widest([*(of(i.args["true"]) for i in node.args["ifs"]), of(default) if default else "void"])
        case exp.Null():
            return "void"
        case exp.TimestampTrunc():
            return "timestamp" if of(node.this) in ("timestamp", "date", "string") else None
        case exp.DateTrunc():
            return "date" if of(node.this) in ("date", "timestamp", "string") else None
        case exp.Anonymous() if str(node.this).lower() == "mean" and len(node.expressions) == 1:
            return of_avg(of(node.expressions[0]))
        case exp.Anonymous():
            return _NAMED.get(str(node.this).lower())
        case exp.Array():
            inside = widest([of(child) for child in node.expressions])
            return _known(f"array<{inside}>") if inside else None
        case exp.ArrayAgg() | exp.ArrayUniqueAgg():
            inside = of(node.this)
            return _known(f"array<{inside}>") if inside else None
        case exp.VarMap():
            both = [widest([of(child) for child in node.args[part].expressions]) for part in ("keys", "values")]
            return _known(f"map<{both[0]},{both[1]}>") if all(both) else None
        case exp.Struct():
            return _struct([(child.name, of(child.expression)) for child in node.expressions])
        case exp.Nvl2():
            return widest([of(node.args["true"]), of(node.args.get("false"))])
        case exp.Explode():
            return element(of(node.this))
        case exp.DPipe() | exp.Concat():
            parts = [of(child) for child in node.iter_expressions()]
            return "string" if parts and all(p == "string" for p in parts) else None
        case exp.RowNumber() | exp.Rank() | exp.DenseRank():
            return "int"
        case exp.Split() | exp.RegexpSplit():
            return "array<string>"
        case exp.Window():
            return of(node.this)
    if isinstance(node, _SAME):
        return of(node.this)
    if isinstance(node, _BOOLEANS):
        return "boolean"
    if isinstance(node, _INTS):
        return "int"
    if isinstance(node, _STRINGS):
        first = of(node.this)  # substring and trim of binary give binary; concat_ws and date_format always a string
        return "string" if first == "string" or isinstance(node, exp.TimeToStr) else None
    return None


def _struct(given: Sequence[tuple[str, str | None]]) -> str | None:
    """Not known with `*`, or with names that are written in some other way in a type."""
    known = given and all(type_ and re.fullmatch(r"\w+", name) for name, type_ in given)
    return _known(f"struct<{','.join(f'{name}:{type_}' for name, type_ in given)}>") if known else None


def _known(type_: str) -> str | None:
    """A struct of two of the same, of which the next query makes two again, is a type of a billion letters after thirty of them."""
    return type_ if len(type_) <= _LONGEST else None


def of_sum(type_: str | None) -> str | None:
    if type_ in INTEGERS:
        return "bigint"
    if type_ in ("float", "double"):
        return "double"
    if type_ == "interval":
        return type_
    digits = decimal_of(type_)
    return decimal(digits[0] + 10, digits[1]) if digits else None


def of_avg(type_: str | None) -> str | None:
    if type_ in (*INTEGERS, "float", "double"):
        return "double"
    if type_ == "interval":
        return type_
    digits = decimal_of(type_)
    return _adjusted(digits[0] + 4, digits[1] + 4) if digits and digits[0] + 4 <= 38 else None


def widest(types: Sequence[str | None]) -> str | None:
    """The common type of branches (CASE, COALESCE, UNION)."""
    known = [t for t in types if t != "void"]
    if not known:
        return "void"
    if any(t is None for t in known):
        return None
    if len(set(known)) == 1:
        return known[0]
    if all(t in INTEGERS for t in known):
        return max((t for t in known if t), key=INTEGERS.index)
    digits = [_as_decimal(t) for t in known]
    if all(d is not None for d in digits):
        scale = max(d[1] for d in digits if d)
        whole = max(d[0] - d[1] for d in digits if d)
        return decimal(whole + scale, scale) if whole + scale <= 38 else None
    return None


def _as_decimal(type_: str | None) -> Decimal | None:
    return (_DIGITS[type_], 0) if type_ in INTEGERS else decimal_of(type_)


def _literal(node: exp.Literal) -> str | None:
    if node.is_string:
        return "string"
    text = str(node.this)
    if re.fullmatch(r"\d+", text):
        return "int" if int(text) < 2**31 else "bigint" if int(text) < 2**63 else None
    if re.fullmatch(r"\d*\.\d*", text):
        whole, _, fraction = text.partition(".")
        whole = whole.lstrip("0")
        precision = max(len(whole) + len(fraction), 1)
        return decimal(precision, len(fraction)) if precision <= 38 else None
    return "double"


def _arithmetic(node: exp.Expr, left: str | None, right: str | None) -> str | None:
    if left is None or right is None:
        return None
    if {left, right} & {"float", "double"} and all(t in ("float", "double") or is_exact(t) for t in (left, right)):
        return "float" if left == right == "float" and not isinstance(node, exp.Div) else "double"
    if left in INTEGERS and right in INTEGERS:
        return "double" if isinstance(node, exp.Div) else widest((left, right))
    a, b = _operand(node.this, left), _operand(node.expression, right)
    if a is None or b is None:
        return None
    (p1, s1), (p2, s2) = a, b
    if isinstance(node, exp.Mul):
        return _adjusted(p1 + p2 + 1, s1 + s2)
    if isinstance(node, exp.Div):
        scale = max(6, s1 + p2 + 1)
        return _adjusted(p1 - s1 + s2 + scale, scale)
    scale = max(s1, s2)
    return _adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)


def _operand(node: exp.Expr, type_: str) -> Decimal | None:
    """An integer beside a decimal counts as a decimal; a literal as one of just its digits."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Literal) and type_ in INTEGERS:
        return len(str(node.this)), 0
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and type_ in INTEGERS:
        return None  # 1L: Spark takes its digits, cast(1 as bigint) its type, and sqlglot shows both alike
    return _as_decimal(type_)


def _adjusted(precision: int, scale: int) -> str:
    """Spark's adjustPrecisionScale: digits before the point are kept, at least 6 after it."""
    if precision <= 38:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(38, max(38 - whole, min(scale, 6)))
