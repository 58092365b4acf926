"""From the text of a view to one checked SELECT: what can be said without knowing any table's columns."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.declare.sql.facts import SqlFlaw, SqlProblem
from penstock.declare.sql.model import Block, OutputItem, Relation
from penstock.declare.sql.types import fields

PARAMETERS = ("partition_start", "partition_end")
_ONE_SELECT = "write one SELECT (it may begin with WITH)"
_BEGINNINGS = {TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.L_PAREN}


class PenstockSpark(Spark):
    """Spark's dialect, but date patterns stay as written: sqlglot's own mapping takes 'YYYY' (week year) and 'yyyy'
    (year) for the same, and two different keys would look equal."""

    TIME_MAPPING: dict[str, str] = {}  # noqa: RUF012  (the base class declares it so)


@dataclass(frozen=True, eq=False)
class Text:
    """The SQL as the user wrote it, and where it stands."""

    sql: str
    file: str
    first_line: int

    def problem(self, offset: int, found: str, expected: str) -> SqlFlaw:
        before = self.sql[:offset]
        line = self.first_line + before.count("\n")
        return SqlFlaw(self.file, line, offset - (before.rfind("\n") + 1) + 1, found, expected)

    def at(self, node: exp.Expr | None, found: str, expected: str) -> SqlFlaw:
        return self.problem(offset_of(node), found, expected)


@dataclass(frozen=True, eq=False)
class Parsed:
    text: Text
    tree: exp.Query
    tokens: tuple[Token, ...]
    """Without a closing semicolon."""
    parameters: tuple[str, ...]

    @property
    def sql(self) -> str:
        """The query alone: exactly the user's text, without what stands before and after it."""
        return self.text.sql[self.tokens[0].start : self.tokens[-1].end + 1]

    def with_moments(self, moments_us: Mapping[str, int]) -> str:
        """The query with its parameters as moments. Spark binds a timestamp by the text that clocks of the session's zone
        show, which is another moment in the hour that they show twice."""
        pieces, done = [], self.tokens[0].start
        for colon, name in pairwise(self.tokens):
            moment_us = moments_us.get(name.text.lower())
            if colon.token_type == TokenType.COLON and name.start == colon.end + 1 and moment_us is not None:
                pieces += [self.text.sql[done : colon.start], f"timestamp_micros({moment_us}L)"]
                done = name.end + 1
        return "".join([*pieces, self.text.sql[done : self.tokens[-1].end + 1]])


def offset_of(node: exp.Expr | None) -> int:
    """Where a node begins; sqlglot keeps places of names and calls only, so the first of those inside it."""
    if node is None:
        return 0
    starts = [child.meta["start"] for child in node.walk() if "start" in child.meta]
    return min(starts, default=0 if node.parent is None else offset_of(node.parent))


def parse(sql: str, *, file: str, line: int = 1) -> Parsed:
    """One SELECT (with CTEs, set operations, subqueries) or `SqlProblem`."""
    text = Text(sql, file, line)
    tokens = tokens_of(text)
    _refuse_holes(text, tokens)
    first = next((t for t in tokens if t.token_type != TokenType.SEMICOLON), None)
    if first is not None and first.token_type not in _BEGINNINGS:
        # before parsing, so that "SELEC" is named itself and not the word after it
        raise SqlProblem([text.problem(first.start, f"a statement that begins with {first.text!r}", _ONE_SELECT)])
    statements = [s for s in _statements(text) if s is not None and not isinstance(s, exp.Semicolon)]
    if not statements:
        raise SqlProblem([text.problem(0, "no statement", _ONE_SELECT)])
    if len(statements) > 1:
        second = next(t for i, t in enumerate(tokens) if i and tokens[i - 1].token_type == TokenType.SEMICOLON)
        found = f"{len(statements)} statements"
        raise SqlProblem([text.problem(second.start, found, "write exactly one SELECT: use CTEs, or several of them")])
    tree = statements[0]
    if not isinstance(tree, exp.Query) or tree.find(
        exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Command, exp.Into
    ):
        found = f"{type(tree).__name__.upper()} instead of a query"
        raise SqlProblem([text.problem(tokens[0].start, found, _ONE_SELECT)])
    while tokens[-1].token_type == TokenType.SEMICOLON:
        tokens = tokens[:-1]
    problems = [*_refused_relations(text, tree), *_refused_parameters(text, tree, tokens)]
    if problems:
        raise SqlProblem(problems)
    used = {str(node.name).lower() for node in tree.find_all(exp.Placeholder)}
    return Parsed(text, tree, tuple(tokens), tuple(name for name in PARAMETERS if name in used))


_BEFORE_ALL = (TokenType.SELECT, TokenType.ALL, TokenType.COMMA, TokenType.DOT)


def carrying_sql(parsed: Parsed, column: str) -> str | None:
    """A simple SELECT, as it was written, that hands a further column of its source on; None if it is not so simple."""
    kinds = [token.token_type for token in parsed.tokens]
    if kinds[0] is not TokenType.SELECT or kinds.count(TokenType.SELECT) != 1:
        return None
    depth = 0
    for number, token in enumerate(parsed.tokens):
        if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET):
            depth += 1
        elif token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET):
            depth -= 1
        elif token.token_type is TokenType.STAR and not depth and kinds[number - 1] in _BEFORE_ALL:
            return parsed.sql  # all columns, this one too
        elif token.token_type is TokenType.FROM and not depth:
            here = token.start - parsed.tokens[0].start
            return f"{parsed.sql[:here]}, {column} {parsed.sql[here:]}"
    return None


def sources(sql: str, *, file: str = "<sql>", line: int = 1) -> tuple[str, ...]:
    """The tables that the query reads, in order of first appearance.

    >>> sources("with r as (select * from flows) select * from r join routers using (router)")
    ('flows', 'routers')
    """
    return tables_read(parse(sql, file=file, line=line).tree)


def source_lines(sql: str, *, file: str = "<sql>", line: int = 1) -> dict[str, int]:
    """The tables that the query reads, each with the line of the file where it is first named."""
    parsed = parse(sql, file=file, line=line)
    return {name: line + sql.count("\n", 0, place) for place, name in _tables_read(parsed.tree)}


def tables_read(tree: exp.Expr) -> tuple[str, ...]:
    return tuple(name for _, name in _tables_read(tree))


def _tables_read(tree: exp.Expr) -> list[tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and not names_cte(table) and not table.find_ancestor(exp.Hint):
            name = table_name(table)
            place = offset_of(table.this)
            if name.lower() not in found or place < found[name.lower()][0]:
                found[name.lower()] = (place, name)
    return sorted(found.values())


def table_name(table: exp.Table) -> str:
    return ".".join(part.name for part in table.parts)


def names_cte(table: exp.Table) -> bool:
    """Whether a name in FROM means a CTE in scope at that place."""
    return not table.args.get("db") and visible_cte(table) is not None


def visible_cte(table: exp.Table) -> exp.CTE | None:
    """The CTE that a name in FROM means: those of each enclosing query, from the inside out; of a WITH list only
    the earlier ones, and itself where it is recursive."""
    name = str(table.name).lower()
    node: exp.Expr = table
    inside: exp.CTE | None = None
    while node.parent is not None:
        if isinstance(node, exp.CTE):
            inside = node
        node = node.parent
        clause = node.args.get("with_")
        if clause is None:
            continue
        visible: list[exp.CTE] = []
        for cte in clause.expressions:
            if cte is not inside or clause.args.get("recursive"):
                visible.append(cte)
            if cte is inside:
                break
        for cte in reversed(visible):
            if str(cte.alias).lower() == name:
                return cte
    return None


def tokens_of(text: Text) -> list[Token]:
    try:
        return list(PenstockSpark().tokenize(text.sql))
    except TokenError:
        offset, quote = _unclosed(text.sql)
        expected = f"a closing {quote}"
        raise SqlProblem(
            [text.problem(offset, f"{text.sql[offset : offset + 20]!r} is not closed", expected)]
        ) from None


_OPENERS = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:\\.|''|[^'\\])*'|\"(?:\\.|\"\"|[^\"\\])*\"|`(?:``|[^`])*`|(?P<open>['\"`]|/\*)", re.S
)


def _unclosed(sql: str) -> tuple[int, str]:
    """The tokenizer does not say where; the first quote or comment that nothing closes."""
    for match in _OPENERS.finditer(sql):
        if match["open"]:
            return match.start(), {"/*": "*/"}.get(match["open"], match["open"])
    return 0, "quote"


def _statements(text: Text) -> list[exp.Expr | None]:
    try:
        return list(sqlglot.parse(text.sql, dialect=PenstockSpark))
    except ParseError as error:
        problems = []
        for detail in error.errors[:1]:  # what follows the first is noise
            lines = text.sql.split("\n")
            highlight = str(detail["highlight"] or "")
            # sqlglot counts the last character of the token
            column = int(detail["col"]) - len(highlight.rsplit("\n", 1)[-1])
            offset = sum(len(line) + 1 for line in lines[: int(detail["line"]) - 1]) + max(column, 0)
            problems.append(text.problem(offset, *_parse_words(str(detail["description"]), highlight, text.sql)))
        raise SqlProblem(problems) from None
    except (ValueError, TypeError, AttributeError, IndexError, RecursionError) as error:
        # The parser itself stumbled: all that is known is that it did.
        found = f"the SQL cannot be read ({str(error) or type(error).__name__})"
        raise SqlProblem([text.problem(0, found, "expected a SELECT in Spark's SQL")]) from None


def _parse_words(description: str, highlight: str, sql: str) -> tuple[str, str]:
    at_end = "SENTINEL" in description
    found = f"the query ends after {highlight!r}" if at_end else f"unexpected {highlight!r}"
    if re.search(r"\bwindow\s*\(", sql, re.I):
        return found, "window(…) of a timestamp is not read here: use date_trunc, or a view in Python"
    wanted = re.match(r"Expect(?:ed|ing) (.*?)(?: but got .*)?$", description)
    if wanted:
        return (found if at_end else f"near {highlight!r}"), f"expected {wanted[1]}"
    return found, "expected a SELECT in Spark's SQL"


_ENDS = {TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.WHERE, TokenType.GROUP_BY, TokenType.ORDER_BY}


def _refuse_holes(text: Text, tokens: Sequence[Token]) -> None:
    """sqlglot forgives `a,, b` and `a, FROM`; Spark does not."""
    for comma, after in pairwise(tokens):
        if comma.token_type == TokenType.COMMA and after.token_type in _ENDS:
            found = f"nothing between ',' and {after.text!r}"
            raise SqlProblem([text.problem(comma.start, found, "expected an expression, or one comma less")])


# Databricks and Spark functions that read something which is not a declared table.
_READERS = re.compile(r"^(read_|cloud_files|table_changes|from_|http_|remote_query|event_log|list_secrets)", re.I)
_FORMATS = {"parquet", "csv", "json", "orc", "text", "avro", "delta", "iceberg", "xml", "binaryfile", "hudi", "jdbc"}


def _refused_relations(text: Text, tree: exp.Query) -> Iterator[SqlFlaw]:
    expected = "read declared tables only: declare a feed or a table for it and read that"
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            if str(table.db).lower() in _FORMATS or "/" in table.name:
                yield text.at(table, f"{table_name(table)} reads files", expected)
            elif table.args.get("version"):
                yield text.at(
                    table, f"a version of `{table_name(table)}`", "Penstock chooses the version: leave AS OF out"
                )
        elif isinstance(table.this, exp.Anonymous):
            name = str(table.this.this)
            if _READERS.match(name):
                yield text.at(table, f"{name}(…) reads files or another system", expected)
            elif name.lower() in ("identifier", "table"):
                yield text.at(
                    table, f"{name}(…) in FROM", "expected the table's name itself, so that it can be followed"
                )


def _refused_parameters(text: Text, tree: exp.Query, tokens: Sequence[Token]) -> Iterator[SqlFlaw]:
    allowed = " and ".join(f":{name}" for name in PARAMETERS)
    for i, token in enumerate(tokens):
        # by token: sqlglot keeps no place of a placeholder
        if token.token_type == TokenType.COLON and i + 1 < len(tokens) and tokens[i + 1].start == token.end + 1:
            name = tokens[i + 1].text
            if name.lower() not in PARAMETERS and any(p.name == name for p in tree.find_all(exp.Placeholder)):
                yield text.problem(token.start, f"parameter :{name}", f"only {allowed} are known")
        elif token.token_type == TokenType.PLACEHOLDER:
            yield text.problem(token.start, "parameter ?", f"only {allowed} are known")


# Small questions about names, asked while a query is resolved.


def trusted(relation: Relation, name: str) -> frozenset[tuple[str, str]]:
    return frozenset({(relation.table, name)}) if relation.table else frozenset()


def names_relation(relation: Relation, qualifier: Sequence[str]) -> bool:
    wanted = ".".join(qualifier).lower()
    table = relation.node is not None and not relation.node.alias and relation.table
    return wanted == relation.alias.lower() or bool(table and wanted == str(relation.table).lower())


def renamed(outputs: tuple[OutputItem, ...] | None, names: Sequence[exp.Identifier]) -> tuple[OutputItem, ...] | None:
    if outputs is None or not names:
        return outputs
    pairs = zip(outputs, names, strict=False)
    return tuple(OutputItem(n.name, o.type, o.origins, o.expression, o.node) for o, n in pairs)


def item_name(block: Block, item: exp.Expr) -> str | None:
    """The name that Spark gives an item of the select list without being asked; None where it is only a spelling."""
    while isinstance(item, exp.Paren):
        item = item.this
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column):
        return str(item.name)
    if isinstance(item, exp.Dot) and isinstance(item.expression, exp.Identifier):
        return str(item.expression.name)
    if isinstance(item, exp.Cast) and isinstance(item.this, exp.Column):
        bound = block.meaning(item.this)  # cast(a as int) is named a, but cast(struct.a as int) is not
        return None if bound is None or bound.path else str(item.this.name)
    return None


def type_of(block: Block, column: exp.Column) -> str | None:
    bound = block.meaning(column)
    return field_type(bound.output.type, bound.path) if bound else None


def field_type(type_: str | None, path: Sequence[str]) -> str | None:
    for part in path:
        type_ = {name.lower(): t for name, t in fields(type_) or ()}.get(part.lower())
    return type_


def known_columns(name: str, candidates: Sequence[str], label: str = "there are", more: Sequence[str] = ()) -> str:
    close = difflib.get_close_matches(name.lower(), {c.lower(): c for c in (*candidates, *more)}, 1, 0.6)
    spelled = {c.lower(): c for c in (*candidates, *more)}
    hint = f"did you mean `{spelled[close[0]]}`? " if close else ""
    listed = ", ".join(dict.fromkeys(candidates)) or "nothing"
    return f"{hint}{label}: {listed}"
