"""`penstock docs build`: what is declared, as pages that can be published anywhere and open from a disk, too."""

from __future__ import annotations

import json as to_json
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from penstock.cli.common import JsonOption, ProjectOption, errors_told, open_warehouse, out, print_json
from penstock.declare.warehouse import Definitions
from penstock.errors import PenstockError
from penstock.service.page_data import described, graph_picture

docs = typer.Typer(help="The docs of the warehouse: tables, columns, lineage.", no_args_is_help=True)
# So that nothing is written over that this command did not write.
MARKER = ".penstock-docs"
_WIDE, _HIGH = 190, 26


def register(app: typer.Typer) -> None:
    app.add_typer(docs, name="docs")


@docs.callback()
def _group() -> None:
    """A group with one command keeps its name."""


@docs.command()
def build(
    folder: Annotated[Path, typer.Argument(help="Where to write the pages.")] = Path("site"),
    project: ProjectOption = Path(),
    json: JsonOption = False,
) -> None:
    """Every table with its description, owner, tags, columns, rules and lineage, as a site of plain files with a search."""
    with errors_told():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not (folder / MARKER).exists():
            raise PenstockError(f"{folder} is there already and was not made by this command; name a new folder")
        with open_warehouse(project) as warehouse:
            pages = site(warehouse.declared)
        for old in folder.rglob("*.html"):
            old.unlink()
        for name, text in pages.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if json:
            print_json({"folder": str(folder), "files": sorted(pages)})
        else:
            out.print(f"Wrote {len(pages)} files. Open {folder / 'index.html'}", markup=False, soft_wrap=True)


def site(declared: Definitions) -> dict[str, str]:
    """The files of the site, by their names in its folder."""
    known = {name: described(declared, declared.definitions[name]) for name in declared.graph.order}
    title = declared.declarations.config.name
    nodes = graph_picture(declared)["tables"]
    kinds = {node["name"]: f"by flow {node['flow']}" if node["flow"] else node["kind"] for node in nodes}
    index = [
        {"t": name, "f": _file(name), "w": " ".join([name, one["description"], *(c["name"] for c in one["columns"])]).lower()}
        for name, one in known.items()
    ]  # fmt: skip
    pages = {
        "index.html": _page(title, title, "", _overview(declared, known, kinds)),
        "search.js": f"const TABLES = {to_json.dumps(index)};\n" + _asset("search.js"),
        "style.css": _asset("style.css"),
        MARKER: "Made by `penstock docs build`, which may replace what is in this folder.\n",
    }
    for name, one in known.items():
        pages[f"tables/{_file(name)}"] = _page(name, title, "../", _table(declared, name, one, kinds[name]))
    return pages


def _asset(name: str) -> str:
    return (files("penstock.cli") / "docs_site" / name).read_text(encoding="utf-8")


def _file(name: str) -> str:
    return quote(name, safe="") + ".html"


def _page(heading: str, title: str, up: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(heading)}{"" if heading == title else f" · {escape(title)}"}</title><link rel="stylesheet" href="{up}style.css"></head>
<body><header><a href="{up}index.html"><b>{escape(title)}</b></a>
<label>Find <input type="search" id="find" placeholder="name, column, word" autocomplete="off"></label></header>
<ul id="found" aria-live="polite"></ul><main><h1>{escape(heading)}</h1>{body}</main>
<script>const UP = "{up}";</script><script src="{up}search.js"></script></body></html>
"""


def _link(name: str, up: str = "", text: str = "") -> str:
    # The address of a file whose name has percent signs has them written once more.
    return f'<a href="{up}{quote(_file(name))}">{escape(text or name)}</a>'


def _grid(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{''.join(f'<th scope=col>{name}</th>' for name in head)}</tr></thead><tbody>{cells}</tbody></table></div>"


def _overview(declared: Definitions, known: Mapping[str, Any], kinds: Mapping[str, str]) -> str:
    rows = (
        (
            _link(name, "tables/"),
            escape(kinds[name]),
            escape(one["description"]),
            escape(str(one["settings"].get("owner", ""))),
            escape(", ".join(one["settings"].get("tags", ()))),
        )
        for name, one in known.items()
    )
    return (
        f"<p>{len(known)} tables, from {len(declared.graph.feeds)} feeds.</p>{_graph(declared)}"
        f"<h2>Tables</h2>{_grid(('table', 'kind', 'description', 'owner', 'tags'), rows)}"
    )


def _graph(declared: Definitions) -> str:
    """All tables in layers, sources to the left."""
    graph = declared.graph
    layer: dict[str, int] = {}
    for name in graph.order:
        layer[name] = max((layer[e.source] + 1 for e in graph.into[name] if e.source != name), default=0)
    place: dict[str, tuple[int, int]] = {}
    depth: dict[int, int] = {}
    for name in graph.order:
        place[name] = (layer[name] * (_WIDE + 60), depth.setdefault(layer[name], 0) * (_HIGH + 10))
        depth[layer[name]] += 1
    if not place:
        return ""
    drawn = [
        f'<path d="M{place[e.source][0] + _WIDE} {place[e.source][1] + _HIGH / 2}C{place[e.source][0] + _WIDE + 40} {place[e.source][1] + _HIGH / 2} '
        f'{place[name][0] - 40} {place[name][1] + _HIGH / 2} {place[name][0]} {place[name][1] + _HIGH / 2}"/>'
        for name in graph.order
        for e in graph.into[name]
        if e.source != name
    ]
    for name, (x, y) in place.items():
        short = name if len(name) <= 26 else f"{name[:25]}…"
        drawn.append(
            f'<a href="tables/{quote(_file(name))}"><title>{escape(name)}</title><rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="4"/>'
            f'<text x="{x + 8}" y="{y + 17}">{escape(short)}</text></a>'
        )
    wide, high = (max(layer.values()) + 1) * (_WIDE + 60), max(depth.values()) * (_HIGH + 10)
    return f'<div class=wide><svg width="{wide}" height="{high}" role="img" aria-label="Tables in layers, sources to the left">{"".join(drawn)}</svg></div>'


def _table(declared: Definitions, name: str, one: Mapping[str, Any], kind: str) -> str:
    graph = declared.graph
    sources = sorted({edge.source for edge in graph.into[name]} - {name})
    columns = (
        (
            f"<code id='{escape(column['name'])}'>{escape(column['name'])}</code>",
            escape(str(column["type"] or "?")),
            ", ".join(_link(table, "", f"{table}.{source}") for table, source in column["from"]),
            ", ".join(_link(table, "", f"{table}.{target}") for table, target in column["to"]),
        )
        for column in one["columns"]
    )
    settings = {key: value for key, value in one["settings"].items() if key not in ("columns", "rules")}
    made_from = ", ".join(_link(each) for each in sources) or (
        f"the feed {escape(one['feed_name'])}" if one["feed_name"] else "nothing here"
    )
    parts = [
        f"<p>{escape(one['description'])}</p>" if one["description"] else "",
        f"<p class=dim>{escape(kind)}, declared at {escape(one['declared_at'])}</p>",
        f"<p>Made from {made_from}; read by {', '.join(_link(each) for each in one['readers']) or 'no other table'}.</p>",
        f"<h2>Columns</h2>{_grid(('column', 'type', 'comes from', 'goes to'), columns)}",
        f"<h2>Rules that rows must keep</h2><ul>{''.join(f'<li><code>{escape(rule)}</code></li>' for rule in one['rules'])}</ul>" if one["rules"] else "",
        f"<h2>SQL</h2><pre>{escape(one['sql'])}</pre>" if one["sql"] else "",
        f"<h2>Settings</h2>{_grid(('setting', 'value'), ((f'<code>{escape(key)}</code>', f'<code>{escape(to_json.dumps(value))}</code>') for key, value in settings.items()))}" if settings else "",
    ]  # fmt: skip
    return "".join(parts)
