"""Works on the text of a query, by tokens. What Spark runs is made by splicing the user's own text, never by printing
a tree: a printed query is equal in meaning only as far as sqlglot knows Spark's functions. Every piece that is cut
out is parsed again and compared with its node, so a wrong cut is noticed, not run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.declare.sql.functions import aggregates
from penstock.declare.sql.parse import Parsed, PenstockSpark

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET}
_AFTER_LIST = {
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.LATERAL,
    TokenType.SORT_BY, TokenType.CLUSTER_BY, TokenType.DISTRIBUTE_BY, TokenType.LIMIT, TokenType.WINDOW,
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """An aggregate call in the text: `sum(a + b) FILTER (WHERE c)`; `start` is -1 if it was not found there."""

    start: int
    end: int
    arguments: str
    filter: str
    text: str


@dataclass(frozen=True)
class Item:
    """One item of the select list. `end` is after its expression, before its alias."""

    start: int
    end: int
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class SelectList:
    items: tuple[Item, ...]
    end: int
    """Where further items may be inserted."""


def _parse_item(text: str) -> exp.Expr | None:
    try:
        tree = sqlglot.parse_one(f"SELECT {text}", dialect=PenstockSpark)
    except SqlglotError:
        return None
    return tree.expressions[0] if isinstance(tree, exp.Select) and len(tree.expressions) == 1 else None


def _depths(tokens: Sequence[Token]) -> list[int]:
    """Depth of each token; both brackets of a pair count as outside it."""
    depths, depth = [], 0
    for token in tokens:
        depth -= token.token_type in _CLOSE
        depths.append(depth)
        depth += token.token_type in _OPEN
    return depths


def _closing(tokens: Sequence[Token], depths: Sequence[int], opening: int) -> int:
    return next(i for i in range(opening + 1, len(tokens)) if depths[i] == depths[opening])


def select_list(parsed: Parsed) -> SelectList | None:
    """The items of the outermost SELECT in the text; None if the text is not of the plain form."""
    tree, sql, tokens = parsed.tree, parsed.text.sql, parsed.tokens
    depths = _depths(tokens)
    selects = [i for i, t in enumerate(tokens) if t.token_type == TokenType.SELECT and depths[i] == 0]
    if not isinstance(tree, exp.Select) or len(selects) != 1:
        return None
    first = selects[0] + 1
    top = [i for i in range(first, len(tokens)) if depths[i] == 0]
    stop = next((i for i in top if tokens[i].token_type in _AFTER_LIST), len(tokens))
    commas = [i for i in top if i < stop and tokens[i].token_type == TokenType.COMMA]
    ranges = list(zip([first, *(c + 1 for c in commas)], [*commas, stop], strict=True))
    if len(ranges) != len(tree.expressions):
        return None
    items = []
    for (begin, end), node in zip(ranges, tree.expressions, strict=True):
        item = _item(sql, tokens[begin:end], node)
        if item is None:
            return None
        items.append(item)
    return SelectList(tuple(items), tokens[stop - 1].end + 1)


def _item(sql: str, tokens: Sequence[Token], node: exp.Expr) -> Item | None:
    if not tokens or _parse_item(sql[tokens[0].start : tokens[-1].end + 1]) != node:
        return None
    if isinstance(node, exp.Alias):
        tokens = tokens[:-1]
        if tokens and tokens[-1].token_type == TokenType.ALIAS:
            tokens = tokens[:-1]
        node = node.this
    start, end = tokens[0].start, tokens[-1].end + 1
    if _parse_item(sql[start:end]) != node:
        return None
    depths = _depths(tokens)
    found = aggregates(node)
    calls = [_call(sql, tokens, depths, a) or Call(-1, -1, "", "", a.sql(dialect=PenstockSpark)) for a in found]
    return Item(start, end, tuple(calls))


def _call(sql: str, tokens: Sequence[Token], depths: Sequence[int], node: exp.Expr) -> Call | None:
    inner = node.this if isinstance(node, exp.Filter) else node
    name = next((i for i, t in enumerate(tokens) if t.start == inner.meta.get("start", -1)), None)
    if name is None or name + 1 >= len(tokens) or tokens[name + 1].token_type != TokenType.L_PAREN:
        return None
    close = _closing(tokens, depths, name + 1)
    last = close
    if isinstance(node, exp.Filter):
        last = _closing(tokens, depths, close + 2)
    start, end = tokens[name].start, tokens[last].end + 1
    if _parse_item(sql[start:end]) != node:
        return None
    arguments = sql[tokens[name + 1].end + 1 : tokens[close].start]
    return Call(start, end, arguments, sql[tokens[close].end + 1 : end], sql[start:end])


def one_line(text: str) -> str:
    return " ".join(text.split())


# -- fingerprint

_ATOMS = (exp.Column, exp.Literal, exp.Func, exp.Paren, exp.Boolean, exp.Null, exp.Star, exp.Placeholder)
_SUMS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_LOGIC = (exp.And, exp.Or)
_HOLDERS = (exp.Alias, exp.Select, exp.Where, exp.Having, exp.Func, exp.Paren, exp.Group, exp.Ordered, exp.Join)


def _removable(node: exp.Expr) -> bool:
    """Parentheses may go where sqlglot's order of operators is certainly Spark's; elsewhere (bit operators, ||,
    NOT, BETWEEN …) the same tree could be another meaning."""
    if isinstance(node, exp.Subquery):
        return isinstance(node.this, exp.Query) and not any(v for k, v in node.args.items() if k != "this")
    if not isinstance(node, exp.Paren):
        return False
    inner, outer = node.this, node.parent
    operator = isinstance(outer, exp.Binary | exp.Unary) and not isinstance(outer, exp.Paren)
    if isinstance(outer, _HOLDERS) and not operator:
        return isinstance(inner, (*_ATOMS, *_SUMS, *_COMPARISONS, *_LOGIC))
    if isinstance(outer, _LOGIC):
        return isinstance(inner, (*_ATOMS, *_SUMS, *_COMPARISONS, *_LOGIC))
    if isinstance(outer, _COMPARISONS):
        return isinstance(inner, (*_ATOMS, *_SUMS))
    return isinstance(outer, _SUMS) and isinstance(inner, (*_ATOMS, *_SUMS))


def _stripped(tree: exp.Expr) -> exp.Expr:
    root = tree.copy()
    for node in reversed(list(root.find_all(exp.Paren, exp.Subquery))):
        if node is not root and _removable(node):
            node.replace(node.this)
    while _removable(root):
        root = root.this.pop()
    return root


def fingerprint(parsed: Parsed) -> str:
    """A hash of the tokens: without comments, white space, the case of key words and parentheses that change nothing.
    Made of tokens, not of the tree, so that another version of sqlglot does not make every view look changed."""
    sql, tokens = parsed.text.sql, parsed.tokens
    depths = _depths(tokens)
    goal = _stripped(parsed.tree)
    text = sql
    dropped: set[int] = set()
    for i, token in enumerate(tokens):
        if token.token_type != TokenType.L_PAREN or (i and tokens[i - 1].token_type == TokenType.VAR):
            continue
        j = _closing(tokens, depths, i)
        shorter = _blank(_blank(text, token.start), tokens[j].start)
        try:
            same = _stripped(sqlglot.parse_one(shorter, dialect=PenstockSpark)) == goal
        except SqlglotError:
            continue
        if same:
            text = shorter
            dropped |= {i, j}
    names = {n.meta["start"] for n in parsed.tree.find_all(exp.Identifier) if "start" in n.meta}
    words = []
    for i, token in enumerate(tokens):
        word = sql[token.start : token.end + 1]
        literal = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) or token.start in names
        if i not in dropped:
            words.append(word if literal else word.upper())
    return hashlib.sha256("\x00".join(words).encode()).hexdigest()[:16]


def _blank(text: str, at: int) -> str:
    return f"{text[:at]} {text[at + 1 :]}"
