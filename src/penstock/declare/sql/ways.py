"""The three ways in which a view can follow its source."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model.schema import Schema


@dataclass(frozen=True)
class Rowwise:
    """New rows of the source give new rows of the table: run `delta_sql` over the new rows and append."""

    why: str
    delta_sql: str = field(repr=False)


@dataclass(frozen=True)
class Aggregate:
    """New rows give partial groups, which are folded into the stored ones.

    `delta_sql` over the new rows gives the partials, over all rows the whole table; both with the hidden columns of
    `state` after the visible ones."""

    why: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    """Visible columns, in order."""
    state: Schema
    delta_sql: str = field(repr=False)
    merged: tuple[tuple[str, str], ...] = field(repr=False)
    """Each stored column (visible, then state) and its expression over the union of stored and partial rows."""

    def group_sql(self, rows: str) -> str:
        """The new content of the affected partitions, from a view of their stored rows and the partials together."""
        return self._grouped(quoted(rows))

    def merge_sql(self, existing: str, delta: str) -> str:
        """The same from two views with the stored columns."""
        names = ", ".join(quoted(name) for name, _ in self.merged)
        both = f"SELECT {names} FROM {quoted(existing)} UNION ALL SELECT {names} FROM {quoted(delta)}"
        return self._grouped(f"(\n  {both}\n)")

    def _grouped(self, rows: str) -> str:
        items = ",\n  ".join(f"{expression} AS {quoted(name)}" for name, expression in self.merged)
        group = f"\nGROUP BY {', '.join(map(quoted, self.keys))}" if self.keys else ""
        return f"SELECT\n  {items}\nFROM {rows} AS _penstock_rows{group}"


@dataclass(frozen=True)
class Full:
    """Computed again from all rows of the affected partitions."""

    why: str


How = Rowwise | Aggregate | Full


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
