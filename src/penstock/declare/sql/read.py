"""Queries from outside: read-only by construction. One SELECT over declared tables and known functions, or a problem
that says what is wrong and where. Nothing else reaches Spark.

The check of functions goes by the words of the text, not by the parsed tree: a word before a parenthesis is a call
whatever a parser makes of it. And Spark is not given the text as it came but its words, one by one, without comments:
where two readers of a text disagree about what is a comment or a string, code could hide from one of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.declare.problems import did_you_mean
from penstock.declare.sql.bounds import LONGEST, Expansion, size_problems, words_problems
from penstock.declare.sql.columns import resolve
from penstock.declare.sql.facts import NamedColumns, SqlFlaw, SqlProblem
from penstock.declare.sql.functions import ALLOWED, FUNCTIONS, WORDS
from penstock.declare.sql.model import ParsedQuery
from penstock.declare.sql.parse import Parsed, Text, names_cte, parse, table_name, tables_read, tokens_of


@dataclass(frozen=True)
class ReadQuery:
    """A query that may run."""

    # What Spark gets.
    sql: str
    # As declared, in the order of the text.
    tables: tuple[str, ...]
    parsed: Parsed
    query: ParsedQuery


def read_query(sql: str, schemas: Mapping[str, NamedColumns | None], functions: Collection[str] = ()) -> ReadQuery:
    """The query, if it only reads. `schemas` has every table that may be read, with its columns if they are known;
    `functions` may be called besides the usual ones. Raises `SqlProblem` with everything that is wrong."""
    text = Text(sql, "query", 1)
    if len(sql) > LONGEST:
        raise SqlProblem([text.problem(0, f"{len(sql):,} characters", f"at most {LONGEST:,} are read")])
    if "${" in sql:
        # Spark would put variables of the machine in its place, before anything is parsed.
        raise SqlProblem([text.problem(sql.index("${"), "${…}", "variables cannot be used: write the value")])
    if "\0" in sql:
        raise SqlProblem([text.problem(sql.index("\0"), "a NUL character", "expected text")])
    try:
        problems = list(words_problems(text, tokens_of(text)))
        if problems:
            raise SqlProblem(problems)
        parsed = parse(sql, file="query")
        problems = [*_calls(parsed, functions), *_statements(parsed), *_relations(parsed, schemas)]
        problems = problems or list(Expansion(parsed, schemas).problems())
        if problems:
            raise SqlProblem(_once(problems))
        known = {name: schema for name, schema in schemas.items() if schema is not None}
        query, problems = resolve(parsed, known)
    except RecursionError:
        raise SqlProblem([text.problem(0, "the query is nested too deeply", "expected a simpler one")]) from None
    # What may be unnamed in an answer may not be in a stored table.
    problems = [problem for problem in problems if "name" not in problem.expected or "AS" not in problem.expected]
    if problems:
        raise SqlProblem(problems)
    spelled = {name.lower(): name for name in schemas}
    return ReadQuery(_words(parsed), tuple(spelled[name.lower()] for name in tables_read(parsed.tree)), parsed, query)


_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.S)
_QUOTED = re.compile(r"`(?:[^`]|``)*`", re.S)
_PLAIN = re.compile(r"[^'\"`\\$]+")


def _words(parsed: Parsed) -> str:
    """The text again, from its words. A word that Spark might end elsewhere is refused."""
    text, last = parsed.text, -1
    parts: list[str] = []
    for token in parsed.tokens:
        if token.start <= last:
            continue  # one word that sqlglot takes for several, such as 1L
        word = text.sql[token.start : token.end + 1]
        is_string = token.token_type == TokenType.STRING
        rule = _STRING if is_string else _QUOTED if token.token_type == TokenType.IDENTIFIER else _PLAIN
        if not rule.fullmatch(word) or (rule is _PLAIN and ("--" in word or "/*" in word)):
            raise SqlProblem([text.problem(token.start, f"{word[:40]!r} cannot be read", "expected a plain literal")])
        # Two strings that touch are one in Spark, so they must go on touching; all else may be set apart.
        apart = token.start != last + 1 or (is_string and not parts[-1].endswith(("'", '"')))
        parts.append(f" {word}" if apart and parts else word)
        last = token.end
    return "".join(parts)


def _once(problems: Sequence[SqlFlaw]) -> list[SqlFlaw]:
    return list({(problem.line, problem.column): problem for problem in reversed(problems)}.values())


_NAMES = {TokenType.VAR, TokenType.IDENTIFIER}


def _calls(parsed: Parsed, functions: Collection[str]) -> Iterator[SqlFlaw]:
    text, tokens = parsed.text, parsed.tokens
    more = {name.lower() for name in functions}
    allowed = ALLOWED | more
    named = _named_with_columns(parsed.tree)
    yield from size_problems(text, tokens, more)
    for number, (token, after) in enumerate(pairwise(tokens)):
        word = token.text.lower()
        if after.token_type == TokenType.L_PAREN and (word.replace("_", "").isalnum() or token.token_type in _NAMES):
            quoted = token.token_type == TokenType.IDENTIFIER
            if word in allowed or (word in WORDS and not quoted) or _is_alias(tokens, number, named):
                continue
            if token.token_type in (TokenType.NUMBER, TokenType.STRING):
                continue
            yield text.problem(token.start, f"the function {word}()", _instead(word, allowed))
        elif word == "using" and after.token_type == TokenType.STRING:
            yield text.problem(token.start, "a script", "a query cannot run programs")


def _instead(word: str, allowed: Collection[str]) -> str:
    return f"it is not among those that queries may call{did_you_mean(word, sorted(allowed))}"


def _named_with_columns(tree: exp.Expr) -> frozenset[str]:
    """Names of relations that are followed by their columns: `WITH t(a, b) AS …`, `(…) AS t(a, b)`. None that Spark has a function of: which of
    the two a word is would be for each reader to decide."""
    named = frozenset(str(alias.name).lower() for alias in tree.find_all(exp.TableAlias) if alias.columns)
    return named - FUNCTIONS


def _is_alias(tokens: Sequence[Token], number: int, named: frozenset[str]) -> bool:
    if tokens[number].text.lower() not in named:
        return False
    before = tokens[number - 1] if number else tokens[0]
    # After `)`, AS, WITH, a comma or RECURSIVE; never after a dot, a comparison or SELECT.
    spot = before.token_type in (TokenType.R_PAREN, TokenType.ALIAS, TokenType.WITH, TokenType.COMMA)
    if not spot and before.text.lower() != "recursive":
        return False
    close = _closing(tokens, number + 1)
    inside = tokens[number + 2 : close]
    # A list of plain names is the columns of an alias; what a call of that name could be given is refused anyway.
    plain = all(token.token_type in (*_NAMES, TokenType.COMMA) for token in inside)
    follows = tokens[close + 1].text.lower() if close + 1 < len(tokens) else ""
    if before.token_type in (TokenType.WITH, TokenType.COMMA) or before.text.lower() == "recursive":
        return plain and follows == "as"
    return plain


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for number in range(opening, len(tokens)):
        kind = tokens[number].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if not depth:
            return number
    return len(tokens) - 1


def _statements(parsed: Parsed) -> Iterator[SqlFlaw]:
    text = parsed.text
    if parsed.parameters:
        found = f"parameter :{parsed.parameters[0]}"
        yield text.problem(0, found, "it has a meaning in views only: write the time itself")
    for node in parsed.tree.walk():
        if isinstance(node, exp.QueryTransform):
            yield text.at(node, "TRANSFORM", "a query cannot run programs")
        elif isinstance(node, exp.CurrentUser | exp.SessionUser | exp.CurrentCatalog | exp.CurrentSchema):
            yield text.at(node, f"{type(node).__name__}", "a query cannot ask about the machine")
        elif isinstance(node, exp.Select) and not node.expressions:
            yield text.at(node, "SELECT of nothing", "expected columns")
        elif isinstance(node, exp.Lock):
            yield text.at(node, "FOR UPDATE", "a query only reads")
        elif isinstance(node, exp.With) and node.args.get("recursive"):
            yield text.at(node, "WITH RECURSIVE", "a query may not repeat itself")


def _relations(parsed: Parsed, schemas: Mapping[str, NamedColumns | None]) -> Iterator[SqlFlaw]:
    text = parsed.text
    known = {name.lower() for name in schemas}
    for table in parsed.tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            yield text.at(table, f"{table.sql(dialect='spark')[:40]} in FROM", "expected a table of the project")
        elif not names_cte(table) and table_name(table).lower() not in known:
            hint = did_you_mean(table_name(table), sorted(schemas))
            yield text.at(
                table, f"`{table_name(table)}` is not a table of this project", f"see `penstock status`{hint}"
            )
