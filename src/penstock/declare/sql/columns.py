"""Resolves the names of a query against the schemas of its sources, as Spark would, and collects every problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from penstock.declare.sql.facts import NamedColumns, SqlFlaw
from penstock.declare.sql.functions import is_generator, walk_block
from penstock.declare.sql.model import Block, Bound, Combined, OutputItem, ParsedQuery, Relation
from penstock.declare.sql.parse import (
    Parsed,
    field_type,
    item_name,
    known_columns,
    names_relation,
    renamed,
    table_name,
    trusted,
    type_of,
    visible_cte,
)
from penstock.declare.sql.types import element, fields, infer, spell, widest

Scope = Sequence[Relation]


def resolve(parsed: Parsed, schemas: Mapping[str, NamedColumns]) -> tuple[ParsedQuery, list[SqlFlaw]]:
    """The query with its names bound, and what is wrong with it. Tables without a schema are taken on trust."""
    resolver = _Resolver(parsed, {name.lower(): (name, schema) for name, schema in schemas.items()})
    query = resolver.query(parsed.tree, ())
    resolver.check_outputs(query)
    return query, resolver.problems


def _children(node: exp.Expr, key: str) -> list[exp.Expr]:
    value = node.args.get(key)
    return value if isinstance(value, list) else [value] if value is not None else []


class _Resolver:
    def __init__(self, parsed: Parsed, schemas: Mapping[str, tuple[str, NamedColumns]]) -> None:
        self.text = parsed.text
        self.schemas = schemas
        self.problems: list[SqlFlaw] = []
        self.ctes: dict[int, ParsedQuery | None] = {}

    # -- queries

    def query(self, node: exp.Expr, outer: Scope) -> ParsedQuery:
        while isinstance(node, exp.Subquery):
            node = node.this
        if isinstance(node, exp.SetOperation):
            return self.combined(node, outer)
        if not isinstance(node, exp.Select):  # `t UNION SELECT …`, which Spark does not read
            found = f"`{node.sql(dialect='spark')[:40]}` where a query belongs"
            self.problems.append(self.text.at(node, found, "expected SELECT … FROM it"))
            return Block(exp.Select(), [])
        return self.select(node, outer)

    def combined(self, node: exp.SetOperation, outer: Scope) -> Combined:
        left, right = self.query(node.this, outer), self.query(node.expression, outer)
        outputs = None
        if left.outputs is not None and right.outputs is not None:
            if len(left.outputs) != len(right.outputs):
                found = f"{type(node).__name__.upper()} of {len(left.outputs)} and {len(right.outputs)} columns"
                self.problems.append(self.text.at(node.expression, found, "expected as many on both sides"))
            outputs = tuple(
                OutputItem(a.name, widest((a.type, b.type)), a.origins | b.origins, None, a.node)
                for a, b in zip(left.outputs, right.outputs, strict=False)
            )
        return Combined(node, left, right, outputs)

    def select(self, node: exp.Select, outer: Scope) -> Block:
        block = Block(node, [])
        hidden: list[Relation] = []  # right sides of semi and anti joins: seen by their ON only
        merged: set[str] = set()  # columns of USING and NATURAL: not ambiguous
        tables = [part.this for part in _children(node, "from_")]
        joins = _children(node, "joins")
        for source in tables:
            self.relation(source, block.relations, block, outer, merged)
        for lateral in _children(node, "laterals"):
            self.relation(lateral, block.relations, block, outer, merged)
        for join in joins:
            into = hidden if str(join.args.get("kind") or "").upper() in ("SEMI", "ANTI") else block.relations
            before = list(block.relations)
            first_new = len(into)
            self.relation(join.this, into, block, outer, merged)
            merged |= {i.name.lower() for i in _children(join, "using")}
            if str(join.args.get("method") or "").upper() == "NATURAL":
                names = {o.name.lower() for r in before for o in r.outputs or () if o.name}
                merged |= {o.name.lower() for r in into[first_new:] for o in r.outputs or () if o.name} & names
            on = join.args.get("on")
            if on is not None:
                self.bind(block, on, [*before, *into[first_new:]], outer, merged, {})
        for clause in ("where", "match", "connect"):
            for child in _children(node, clause):
                self.bind(block, child, block.relations, outer, merged, {})
        self.outputs(block, outer, merged)
        aliases = {
            o.name.lower(): o for o in block.outputs or () if o.name and isinstance(o.node, exp.Alias | exp.Aliases)
        }
        for key in ("group", "having", "qualify", "windows", "order", "sort", "cluster", "distribute"):
            for child in _children(node, key):
                self.bind(block, child, block.relations, outer, merged, aliases)
        return block

    # -- FROM

    def relation(self, node: exp.Expr, into: list[Relation], block: Block, outer: Scope, merged: set[str]) -> None:
        alias = node.alias_or_name
        query: ParsedQuery | None = None
        outputs: tuple[OutputItem, ...] | None = None
        table: str | None = None
        lateral = False
        match node:
            case exp.Table(this=exp.Identifier()):
                cte = None if node.args.get("db") else visible_cte(node)
                if cte is not None:
                    query = self.cte(cte, outer)
                    outputs = query.outputs if query else None
                    self.check_width(cte, outputs, cte.args["alias"].columns)
                    outputs = renamed(outputs, cte.args["alias"].columns)
                else:
                    table, outputs = self.table(table_name(node))
            case exp.Subquery() if isinstance(node.this, exp.Query):
                query = self.query(node.this, outer)
                outputs = query.outputs
            case exp.Subquery():  # (a join b)
                self.relation(node.this, into, block, outer, merged)
                return
            case exp.Lateral() if isinstance(node.this, exp.Query):
                query = self.query(node.this, [*into, *outer])
                outputs = query.outputs
                block.subqueries.append(query)  # it sees the rows before it: a join in disguise
            case exp.Lateral():
                self.bind(block, node.this, into, outer, set(), {})
                lateral = is_generator(node.this)
                names = node.args["alias"].columns if node.args.get("alias") else []
                outputs = self.generated(block, node.this, [n.name for n in names], node) if names else None
            case exp.Values():
                first = node.expressions[0]
                width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
                outputs = tuple(OutputItem(f"col{i + 1}", None, frozenset()) for i in range(width))
            case exp.Table():
                self.bind(block, node.this, into, outer, set(), {})
                outputs = (OutputItem("id", "bigint", frozenset()),) if str(node.this.name).lower() == "range" else None
        if node.args.get("pivots"):
            outputs = None
        if node.args.get("alias") is not None and not lateral:
            self.check_width(node, outputs, node.args["alias"].columns)
            outputs = renamed(outputs, node.args["alias"].columns)
        into.append(Relation(alias, outputs, table, query, node, lateral))
        for join in _children(node, "joins") if isinstance(node, exp.Table) else []:
            self.relation(join.this, into, block, outer, merged)
            merged |= {i.name.lower() for i in _children(join, "using")}
            if join.args.get("on") is not None:
                self.bind(block, join.args["on"], into, outer, set(), {})

    def check_width(self, node: exp.Expr, outputs: tuple[OutputItem, ...] | None, names: Sequence[exp.Expr]) -> None:
        if outputs is not None and names and len(names) != len(outputs):
            found = f"{len(names)} names for {len(outputs)} columns of `{node.alias_or_name}`"
            self.problems.append(self.text.at(node, found, "expected as many"))

    def table(self, name: str) -> tuple[str, tuple[OutputItem, ...] | None]:
        known = self.schemas.get(name.lower())
        if known is None:
            return name, None
        name, schema = known
        return name, tuple(
            OutputItem(c.name, spell(c.type) if c.type else None, frozenset({(name, c.name)})) for c in schema
        )

    def cte(self, cte: exp.CTE, outer: Scope) -> ParsedQuery | None:
        if id(cte) not in self.ctes:
            self.ctes[id(cte)] = None  # a recursive one meets itself here: its columns are taken on trust
            self.ctes[id(cte)] = self.query(cte.this, outer)
        return self.ctes[id(cte)]

    # -- SELECT list

    def outputs(self, block: Block, outer: Scope, merged: set[str]) -> None:
        given: list[OutputItem] = []
        known = True
        aliases: dict[str, OutputItem] = {}  # Spark lets an item use the aliases before it
        for item in block.node.expressions:
            star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
            if isinstance(star, exp.Star):
                expanded = self.star(block, item, star, merged)
                known = known and expanded is not None
                given += expanded or []
                continue
            self.bind(block, item, block.relations, outer, merged, aliases)
            made = self.item(block, item)
            given += made
            if isinstance(item, exp.Alias | exp.Aliases):
                aliases |= {o.name.lower(): o for o in made if o.name}
        block.outputs = tuple(given) if known else None

    def item(self, block: Block, item: exp.Expr) -> list[OutputItem]:
        expression = item.this if isinstance(item, exp.Alias | exp.Aliases) else item
        if isinstance(item, exp.Aliases):
            return list(self.generated(block, expression, [i.name for i in item.expressions], item))
        origins = self.origins(block, expression)
        type_ = infer(expression, lambda c: type_of(block, c))
        return [OutputItem(item_name(block, item), type_, origins, expression, item)]

    def generated(self, block: Block, call: exp.Expr, names: Iterable[str], node: exp.Expr) -> tuple[OutputItem, ...]:
        names = list(names)
        origins = self.origins(block, call)
        inner = infer(call, lambda c: type_of(block, c)) if isinstance(call, exp.Explode) else None
        if isinstance(call, exp.Posexplode):
            types = ["int", element(infer(call.this, lambda c: type_of(block, c)))]
        else:
            types = [inner] if len(names) == 1 else []
        types += [None] * (len(names) - len(types))
        return tuple(OutputItem(n, t, origins, call, node) for n, t in zip(names, types, strict=False))

    def star(self, block: Block, item: exp.Expr, star: exp.Star, merged: set[str]) -> list[OutputItem] | None:
        """Columns of `*`, `t.*` or `struct.*`; None if they cannot be known."""
        relations = block.relations
        if isinstance(item, exp.Column):
            parts = [p.name for p in item.parts[:-1]]
            relations = [r for r in relations if names_relation(r, parts)]
            if not relations:
                return self.struct_star(block, item, parts)
        if not relations:
            self.problems.append(self.text.at(item, "* without FROM", "expected named expressions"))
        outputs: list[OutputItem] = []
        seen: set[str] = set()
        for relation in relations:
            if relation.outputs is None:
                if relation.table is None or relation.node is None or relation.node.args.get("pivots"):
                    found = f"* over `{relation.alias}`, whose columns cannot be known"
                    self.problems.append(self.text.at(block.node, found, "name the columns"))
                return None
            for o in relation.outputs:
                if o.name and o.name.lower() in merged and not isinstance(item, exp.Column):
                    if o.name.lower() in seen:
                        continue
                    seen.add(o.name.lower())
                outputs.append(OutputItem(o.name, o.type, o.origins, None, item))
        if not isinstance(item, exp.Column):  # USING columns come first
            outputs.sort(key=lambda o: (o.name or "").lower() not in merged)
        dropped = {p.name.lower() for p in _children(star, "except_")}
        for column in _children(star, "except_"):
            if not any((o.name or "").lower() == column.name.lower() for o in outputs):
                names = [o.name for o in outputs if o.name]
                self.problems.append(
                    self.text.at(column, f"unknown column `{column.name}`", known_columns(column.name, names))
                )
        return [o for o in outputs if (o.name or "").lower() not in dropped]

    def struct_star(self, block: Block, item: exp.Column, parts: list[str]) -> list[OutputItem] | None:
        bound = self.lookup(item, parts, block.relations, (), set(), {})
        if bound is None:
            return None
        inner = fields(field_type(bound.output.type, bound.path))
        if inner is None:
            found = f"`{'.'.join(parts)}.*`"
            self.problems.append(self.text.at(item, found, "name its fields, or a table's alias before .*"))
            return None
        return [OutputItem(name, type_, bound.output.origins, None, item) for name, type_ in inner]

    def origins(self, block: Block, root: exp.Expr) -> frozenset[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        for node in walk_block(root):
            bound = block.meaning(node)
            if bound is not None:
                found |= bound.output.origins
        nested = {id(n) for n in root.find_all(exp.Query)}
        for query in block.subqueries:
            if id(query.node) in nested:
                found |= {o for output in query.outputs or () for o in output.origins}
        return frozenset(found)

    # -- names

    def bind(
        self,
        block: Block,
        root: exp.Expr,
        scope: Scope,
        outer: Scope,
        merged: set[str],
        aliases: Mapping[str, OutputItem],
    ) -> None:
        for node in walk_block(root):
            if isinstance(node, exp.Query):
                inner = node
                while isinstance(inner, exp.Subquery):
                    inner = inner.this
                if isinstance(inner, exp.Select | exp.SetOperation):
                    found = self.query(inner, [*scope, *outer])
                    block.subqueries.append(found)
                    value = isinstance(node, exp.Subquery) and not isinstance(node.parent, exp.In | exp.Exists)
                    if value and found.outputs is not None and len(found.outputs) != 1:
                        words = f"a subquery of {len(found.outputs)} columns as a value"
                        self.problems.append(self.text.at(node, words, "expected one column"))
            elif isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
                bound = self.lookup(node, [p.name for p in node.parts], scope, outer, merged, aliases)
                if bound is not None:
                    block.bound[id(node)] = bound

    def lookup(
        self,
        node: exp.Column,
        parts: list[str],
        scope: Scope,
        outer: Scope,
        merged: set[str],
        aliases: Mapping[str, OutputItem],
    ) -> Bound | None:
        """What a name means; reports and returns None if it means nothing or too much."""
        for level in (scope, outer):
            for split in range(len(parts) - 1, 0, -1):  # the longest qualifier first: db.table.column
                named = [relation for relation in level if names_relation(relation, parts[:split])]
                if len([r for r in named if r.find(parts[split])]) > 1 and parts[split].lower() not in merged:
                    found_twice = f"`{'.'.join(parts)}` is ambiguous"
                    self.problems.append(self.text.at(node, found_twice, f"give one `{named[0].alias}` another name"))
                    return None
                if named:
                    return self._qualified(node, named[0], parts[split:])
            found = [(r, o) for r in level for o in r.find(parts[0])]
            if found and (len(found) == 1 or parts[0].lower() in merged or level is outer):
                return self._fields(node, Bound(*found[0], tuple(parts[1:])))
            if found:
                choices = " or ".join(f"`{r.alias}.{parts[0]}`" for r, _ in found)
                if len({r.alias for r, _ in found}) == 1:
                    choices = f"different names in `{found[0][0].alias}`"
                self.problems.append(self.text.at(node, f"`{parts[0]}` is ambiguous", f"write {choices}"))
                return None
            if level is scope and parts[0].lower() in aliases:
                return Bound(None, aliases[parts[0].lower()], tuple(parts[1:]))
            if any(r.opaque for r in level):
                opaque = [r for r in level if r.opaque]
                single = opaque[0] if len(opaque) == 1 else Relation("?", None)
                return Bound(single, OutputItem(parts[0], None, trusted(single, parts[0])), tuple(parts[1:]))
        names = [o.name for r in scope for o in r.outputs or () if o.name]
        found_name = ".".join(parts)
        if len(parts) > 1:
            tables = [r.alias for r in scope if r.alias]
            self.problems.append(
                self.text.at(
                    node, f"unknown column `{found_name}`", known_columns(parts[0], tables, "tables here", names)
                )
            )
        else:
            owners = ", ".join(f"`{r.alias}`" if r.alias else "the subquery" for r in scope) or "FROM"
            where = f"{owners} has" if len(scope) == 1 else f"{owners} have"
            self.problems.append(
                self.text.at(node, f"unknown column `{found_name}`", known_columns(parts[0], names, where))
            )
        return None

    def _qualified(self, node: exp.Column, relation: Relation, rest: list[str]) -> Bound | None:
        found = relation.find(rest[0])
        if found:
            return self._fields(node, Bound(relation, found[0], tuple(rest[1:])))
        if relation.opaque:
            return Bound(relation, OutputItem(rest[0], None, trusted(relation, rest[0])), tuple(rest[1:]))
        names = [o.name for o in relation.outputs or () if o.name]
        expected = known_columns(rest[0], names, f"`{relation.alias}` has")
        self.problems.append(self.text.at(node, f"unknown column `{relation.alias}.{rest[0]}`", expected))
        return None

    def _fields(self, node: exp.Column, bound: Bound) -> Bound | None:
        type_ = bound.output.type
        for i, part in enumerate(bound.path):
            inner = fields(type_)
            if inner is None and type_ is not None and "<" not in type_ and type_ not in ("variant", "void"):
                whole = ".".join([bound.output.name or "", *bound.path[:i]])
                found = f"`{whole}.{part}`, but `{whole}` is {type_}"
                self.problems.append(self.text.at(node, found, "expected a struct before the point"))
                return None
            if inner is None:
                return bound  # a map, an array of structs, or unknown: Spark will tell
            types = {name.lower(): t for name, t in inner}
            if part.lower() not in types:
                whole = ".".join([bound.output.name or "", *bound.path[:i]])
                expected = known_columns(part, [n for n, _ in inner], f"`{whole}` has")
                self.problems.append(self.text.at(node, f"unknown field `{whole}.{part}`", expected))
                return None
            type_ = types[part.lower()]
        return bound

    def check_outputs(self, query: ParsedQuery) -> None:
        """The view's own columns need names, each its own."""
        seen: dict[str, str] = {}
        for number, output in enumerate(query.outputs or (), 1):
            if output.name is None:
                found = f"output column {number} has no name"
                self.problems.append(self.text.at(output.node, found, "give it one: … AS name"))
            elif output.name.lower().startswith("_penstock_"):
                found = f"output column `{output.name}`"
                self.problems.append(
                    self.text.at(output.node, found, "names that begin with _penstock_ are kept for state")
                )
            elif output.name.lower() in seen:
                found = f"two output columns named `{output.name}`"
                self.problems.append(self.text.at(output.node, found, "rename one: … AS other_name"))
            else:
                seen[output.name.lower()] = output.name
