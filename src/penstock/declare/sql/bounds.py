"""How much a query from outside may ask of those who read it: words, depth, tables that it stands for, columns, and sizes that it writes down.

Words and depth are counted before anything is parsed. What named queries stand for is counted before it is resolved: thirty of them that each read
the one before twice are a billion tables. Calls that make memory from nothing (`repeat`, `lpad`, `format_string`) need their size as a number in the
text. What only shows while a query runs, the process that runs it has to bear (see docs/security.md).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.declare.sql.facts import NamedColumns, SqlFlaw
from penstock.declare.sql.parse import Parsed, PenstockSpark, Text, names_cte, table_name, visible_cte

LONGEST = 50_000
MOST_WORDS = 4_000
DEEPEST = 60
# Calls such as `struct(…)` and `date(…)` in one another: each is read twice, as a type and as a call, and all that is in it again.
DEEPEST_TYPES = 8
MOST_TABLES = 200
MOST_COLUMNS = 5_000
# The longest text or list that a call may make from nothing, and of calls that multiply what they are given the most in all.
MOST_MADE = 10_000
MOST_REPEATED = 100_000
# What is taken for the width of a table whose columns are not known yet.
_UNKNOWN = 50


# Words


def words_problems(text: Text, tokens: Sequence[Token]) -> Iterator[SqlFlaw]:
    if len(tokens) > MOST_WORDS:
        yield text.problem(0, f"{len(tokens):,} words", f"at most {MOST_WORDS:,} are read")
        return
    depth = 0
    # Of the brackets that are open, those that follow the name of a type.
    typed: list[bool] = []
    for number, token in enumerate(tokens):
        depth = max(0, depth + _step(tokens, number))
        if token.token_type is TokenType.L_PAREN:
            typed.append(number > 0 and tokens[number - 1].token_type in _TYPES)
            if sum(typed) > DEEPEST_TYPES:
                found = f"{tokens[number - 1].text}(…) inside of others"
                yield text.problem(
                    token.start, found, f"at most {DEEPEST_TYPES} calls named like types are read in one another"
                )
                return
        elif token.token_type is TokenType.R_PAREN and typed:
            typed.pop()
        if depth > DEEPEST:
            yield text.problem(token.start, "the query is nested too deeply", f"at most {DEEPEST} levels are read")
            return


_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)
_TYPES = PenstockSpark.parser_class.TYPE_TOKENS
_NESTED_TYPES = (TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT)


def _step(tokens: Sequence[Token], number: int) -> int:
    kind = tokens[number].token_type
    if kind is TokenType.LT:
        return int(number > 0 and tokens[number - 1].token_type in _NESTED_TYPES)
    # The end of a type may also be a comparison: then what follows is counted as less deep than it is, and the parser's own depth holds.
    return (kind in _OPENING) - (kind in _CLOSING)


# What it stands for


class Expansion:
    """How many tables a query reads, and how many columns it has, when every named query is put where it is named."""

    def __init__(self, parsed: Parsed, schemas: Mapping[str, NamedColumns | None]) -> None:
        self._parsed = parsed
        self._widths = {name.lower(): len(shape) if shape is not None else _UNKNOWN for name, shape in schemas.items()}
        self._tables: dict[int, int] = {}
        self._columns: dict[int, int] = {}

    def problems(self) -> Iterator[SqlFlaw]:
        text = self._parsed.text
        for query in self._parsed.tree.find_all(exp.Query):
            if self._tables_of(query) > MOST_TABLES:
                found = "it reads too many tables, counted as often as they are read"
                yield text.at(query, found, f"expected at most {MOST_TABLES}")
                return
            if self._columns_of(query) > MOST_COLUMNS:
                yield text.at(query, "it has too many columns", f"at most {MOST_COLUMNS:,} are read")
                return

    def _tables_of(self, query: exp.Expr) -> int:
        known = self._tables.get(id(query))
        if known is None:
            self._tables[id(query)] = 1  # of one that names itself
            known = sum(
                self._tables_of(cte.this) if (cte := _cte(node)) is not None else 1
                for node in query.walk(prune=lambda node: isinstance(node, exp.With))
                if isinstance(node, exp.Table)
            )
            # What reads no table is work as well.
            known = self._tables[id(query)] = max(1, known)
        return known

    def _columns_of(self, query: exp.Expr) -> int:
        known = self._columns.get(id(query))
        if known is None:
            self._columns[id(query)] = 1
            known = self._columns[id(query)] = self._count(query)
        return known

    def _count(self, query: exp.Expr) -> int:
        if isinstance(query, exp.Select):
            stars = sum(1 for one in query.expressions if one.is_star)
            read = [one for one in (query.args.get("from_"), *(query.args.get("joins") or ())) if one is not None]
            wide = sum(self._width(one.this) for one in read) if stars else 0
            return len(query.expressions) - stars + stars * wide
        inner = query.args.get("this")
        return self._columns_of(inner) if isinstance(inner, exp.Expr) else 1

    def _width(self, relation: exp.Expr) -> int:
        if isinstance(relation, exp.Table):
            cte = _cte(relation)
            own = self._columns_of(cte.this) if cte is not None else self._widths.get(table_name(relation).lower(), 1)
            return own + sum(self._width(join.this) for join in relation.args.get("joins") or ())
        return self._columns_of(relation)


def _cte(table: exp.Expr) -> exp.CTE | None:
    return visible_cte(table) if isinstance(table, exp.Table) and names_cte(table) else None


# Sizes

# The argument that says how large the value is.
_SIZED = {"lpad": 1, "rpad": 1, "space": 0, "format_number": 1, "histogram_numeric": 1, "approx_percentile": 2, "percentile_approx": 2}  # fmt: skip
_REPEATING = {"repeat": 1, "array_repeat": 1}
_FORMATS = ("format_string", "printf")
_LEAST_ERROR = 0.005


def size_problems(text: Text, tokens: Sequence[Token], free: Collection[str]) -> Iterator[SqlFlaw]:
    """Calls that make memory from nothing; those that a project frees may be as large as they like."""
    repeated = 1
    for number in range(len(tokens) - 1):
        name = tokens[number].text.lower()
        if tokens[number + 1].token_type != TokenType.L_PAREN or name in free:
            continue
        given = _arguments(tokens, number + 1)
        start = tokens[number].start
        most = f"at most {MOST_MADE:,}, written as a number"
        if name in _SIZED and len(given) > _SIZED[name]:
            size = given[_SIZED[name]]
            pattern = name == "format_number" and len(size) == 1 and size[0].token_type == TokenType.STRING
            if not pattern and not 0 <= _whole(size) <= MOST_MADE:
                yield text.problem(start, f"the size in {name}()", most)
        elif name in _REPEATING and len(given) > _REPEATING[name]:
            times = _whole(given[_REPEATING[name]])
            repeated *= max(1, times)
            if not 0 <= times <= MOST_MADE:
                yield text.problem(start, f"the size in {name}()", most)
            elif repeated > MOST_REPEATED:
                yield text.problem(start, f"{name}() of so much", f"at most {MOST_REPEATED:,} in one query, multiplied")
        elif name in _FORMATS and not (given and _is_short(given[0])):
            yield text.problem(start, f"the format in {name}()", f"a literal, with widths of {MOST_MADE:,} at most")
        elif name == "sequence" and not 0 <= _steps(given) <= MOST_MADE:
            yield text.problem(start, "the bounds in sequence()", f"numbers, with {MOST_MADE:,} between them at most")
        elif name == "approx_count_distinct" and len(given) > 1 and not _number(given[1]) >= _LEAST_ERROR:
            yield text.problem(start, f"the error in {name}()", f"a number, {_LEAST_ERROR} at least")


def _arguments(tokens: Sequence[Token], opening: int) -> list[Sequence[Token]]:
    depth, begin = 0, opening + 1
    found: list[Sequence[Token]] = []
    for number in range(opening, len(tokens)):
        kind = tokens[number].token_type
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if (kind == TokenType.COMMA and depth == 1) or not depth:
            found.append(tokens[begin:number])
            begin = number + 1
        if not depth:
            break
    return found


def _number(words: Sequence[Token]) -> float:
    """What is written; -1 if it is not just a number."""
    if len(words) != 1 or words[0].token_type != TokenType.NUMBER:
        return -1.0
    try:
        return float(words[0].text)
    except ValueError:
        return -1.0


def _whole(words: Sequence[Token]) -> int:
    found = _number(words)
    return int(found) if found.is_integer() else -1


def _steps(given: Sequence[Sequence[Token]]) -> int:
    signed = []
    for words in given:
        minus = len(words) == 2 and words[0].token_type == TokenType.DASH
        size = _whole(words[1:] if minus else words)
        if size < 0:
            return -1
        signed.append(-size if minus else size)
    if not 2 <= len(signed) <= 3 or (len(signed) == 3 and not signed[2]):
        return -1
    return abs(signed[1] - signed[0]) // abs(signed[2] if len(signed) == 3 else 1)


def _is_short(words: Sequence[Token]) -> bool:
    # Digits could hide in escapes.
    if len(words) != 1 or words[0].token_type != TokenType.STRING or "\\" in words[0].text:
        return False
    return sum(int(digits[:9]) for digits in re.findall(r"[0-9]+", words[0].text)) <= MOST_MADE
