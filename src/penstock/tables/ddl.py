"""The tables of a DuckLake 1.0 catalogue as DuckDB creates them, and Penstock's own beside them.

Names, columns and types are those that DuckDB's extension writes: on SQLite it stores booleans as integers,
and UUIDs and instants as text; on PostgreSQL it uses the native types. The indices are ours: DuckLake
prescribes none, and without them every look-up reads a whole table.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Connection, DateTime, Dialect, Index, MetaData, String, Table
from sqlalchemy import Uuid as AnyUuid
from sqlalchemy.types import TypeDecorator, TypeEngine

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text_of(at_us: int) -> str:
    """An instant as DuckDB prints it.

    >>> text_of(1_500_000)
    '1970-01-01 00:00:01.5+00'
    """
    return plain_text_of(at_us) + "+00"


def plain_text_of(at_us: int) -> str:
    whole = str((EPOCH + timedelta(microseconds=at_us)).replace(tzinfo=None))
    return whole.rstrip("0") if "." in whole else whole


class Instant(TypeDecorator[int]):
    """Microseconds since 1970 UTC in Python, DuckLake's instant in the database."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(DateTime(timezone=True) if dialect.name == "postgresql" else String())

    def process_bind_param(self, value: int | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        return EPOCH + timedelta(microseconds=value) if dialect.name == "postgresql" else text_of(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:
        if value is None:
            return None
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return (moment - EPOCH) // timedelta(microseconds=1)


_Text = String()
Number = BigInteger()
Flag = BigInteger().with_variant(Boolean(), "postgresql")
Uuid = String().with_variant(AnyUuid(as_uuid=False), "postgresql")

metadata = MetaData()


def _table(name: str, key: str | None, /, **columns: TypeEngine[Any]) -> Table:
    return Table(
        name,
        metadata,
        *(Column(column, kind, primary_key=column == key, autoincrement=False) for column, kind in columns.items()),
    )


settings = Table(
    "ducklake_metadata",
    metadata,
    Column("key", _Text, nullable=False),
    Column("value", _Text, nullable=False),
    Column("scope", _Text),
    Column("scope_id", Number),
)
snapshot = _table(
    "ducklake_snapshot", "snapshot_id", snapshot_id=Number, snapshot_time=Instant(), schema_version=Number,
    next_catalog_id=Number, next_file_id=Number,
)  # fmt: skip
snapshot_changes = _table(
    "ducklake_snapshot_changes", "snapshot_id", snapshot_id=Number, changes_made=_Text, author=_Text,
    commit_message=_Text, commit_extra_info=_Text,
)  # fmt: skip
schema = _table(
    "ducklake_schema", "schema_id", schema_id=Number, schema_uuid=Uuid, begin_snapshot=Number, end_snapshot=Number,
    schema_name=_Text, path=_Text, path_is_relative=Flag,
)  # fmt: skip
table = _table(
    "ducklake_table", None, table_id=Number, table_uuid=Uuid, begin_snapshot=Number, end_snapshot=Number,
    schema_id=Number, table_name=_Text, path=_Text, path_is_relative=Flag,
)  # fmt: skip
view = _table(
    "ducklake_view", None, view_id=Number, view_uuid=Uuid, begin_snapshot=Number, end_snapshot=Number,
    schema_id=Number, view_name=_Text, dialect=_Text, sql=_Text, column_aliases=_Text,
)  # fmt: skip
tag = _table("ducklake_tag", None, object_id=Number, begin_snapshot=Number, end_snapshot=Number, key=_Text, value=_Text)
column_tag = _table(
    "ducklake_column_tag", None, table_id=Number, column_id=Number, begin_snapshot=Number, end_snapshot=Number,
    key=_Text, value=_Text,
)  # fmt: skip
data_file = _table(
    "ducklake_data_file", "data_file_id", data_file_id=Number, table_id=Number, begin_snapshot=Number,
    end_snapshot=Number, file_order=Number, path=_Text, path_is_relative=Flag, file_format=_Text, record_count=Number,
    file_size_bytes=Number, footer_size=Number, row_id_start=Number, partition_id=Number, encryption_key=_Text,
    mapping_id=Number, partial_max=Number,
)  # fmt: skip
file_column_stats = _table(
    "ducklake_file_column_stats", None, data_file_id=Number, table_id=Number, column_id=Number,
    column_size_bytes=Number, value_count=Number, null_count=Number, min_value=_Text, max_value=_Text,
    contains_nan=Flag, extra_stats=_Text,
)  # fmt: skip
file_variant_stats = _table(
    "ducklake_file_variant_stats", None, data_file_id=Number, table_id=Number, column_id=Number, variant_path=_Text,
    shredded_type=_Text, column_size_bytes=Number, value_count=Number, null_count=Number, min_value=_Text,
    max_value=_Text, contains_nan=Flag, extra_stats=_Text,
)  # fmt: skip
delete_file = _table(
    "ducklake_delete_file", "delete_file_id", delete_file_id=Number, table_id=Number, begin_snapshot=Number,
    end_snapshot=Number, data_file_id=Number, path=_Text, path_is_relative=Flag, format=_Text, delete_count=Number,
    file_size_bytes=Number, footer_size=Number, encryption_key=_Text, partial_max=Number,
)  # fmt: skip
column = _table(
    "ducklake_column", None, column_id=Number, begin_snapshot=Number, end_snapshot=Number, table_id=Number,
    column_order=Number, column_name=_Text, column_type=_Text, initial_default=_Text, default_value=_Text,
    nulls_allowed=Flag, parent_column=Number, default_value_type=_Text, default_value_dialect=_Text,
)  # fmt: skip
table_stats = _table(
    "ducklake_table_stats",
    None,
    table_id=Number,
    record_count=Number,
    next_row_id=Number,
    file_size_bytes=Number,
)
table_column_stats = _table(
    "ducklake_table_column_stats", None, table_id=Number, column_id=Number, contains_null=Flag, contains_nan=Flag,
    min_value=_Text, max_value=_Text, extra_stats=_Text,
)  # fmt: skip
partition_info = _table(
    "ducklake_partition_info",
    None,
    partition_id=Number,
    table_id=Number,
    begin_snapshot=Number,
    end_snapshot=Number,
)
partition_column = _table(
    "ducklake_partition_column", None, partition_id=Number, table_id=Number, partition_key_index=Number,
    column_id=Number, transform=_Text,
)  # fmt: skip
file_partition_value = _table(
    "ducklake_file_partition_value", None, data_file_id=Number, table_id=Number, partition_key_index=Number,
    partition_value=_Text,
)  # fmt: skip
scheduled = _table(
    "ducklake_files_scheduled_for_deletion", None, data_file_id=Number, path=_Text, path_is_relative=Flag,
    schedule_start=Instant(),
)  # fmt: skip
inlined_data_tables = _table(
    "ducklake_inlined_data_tables", None, table_id=Number, table_name=_Text, schema_version=Number
)
column_mapping = _table("ducklake_column_mapping", None, mapping_id=Number, table_id=Number, type=_Text)
name_mapping = _table(
    "ducklake_name_mapping", None, mapping_id=Number, column_id=Number, source_name=_Text, target_field_id=Number,
    parent_column=Number, is_partition=Flag,
)  # fmt: skip
schema_versions = _table(
    "ducklake_schema_versions", None, begin_snapshot=Number, schema_version=Number, table_id=Number
)
macro = _table(
    "ducklake_macro", None, schema_id=Number, macro_id=Number, macro_name=_Text, begin_snapshot=Number,
    end_snapshot=Number,
)  # fmt: skip
macro_impl = _table("ducklake_macro_impl", None, macro_id=Number, impl_id=Number, dialect=_Text, sql=_Text, type=_Text)
macro_parameters = _table(
    "ducklake_macro_parameters", None, macro_id=Number, impl_id=Number, column_id=Number, parameter_name=_Text,
    parameter_type=_Text, default_value=_Text, default_value_type=_Text,
)  # fmt: skip
sort_info = _table(
    "ducklake_sort_info", None, sort_id=Number, table_id=Number, begin_snapshot=Number, end_snapshot=Number
)
sort_expression = _table(
    "ducklake_sort_expression", None, sort_id=Number, table_id=Number, sort_key_index=Number, expression=_Text,
    dialect=_Text, sort_direction=_Text, null_order=_Text,
)  # fmt: skip

# Ours. `penstock_data_file` knows what DuckLake has no column for; `end_snapshot` repeats DuckLake's so that
# the live files of one partition are found by one partial index, however often the partition was replaced
# before.
own_file = _table(
    "penstock_data_file", "data_file_id", data_file_id=Number, table_id=Number, partition_us=Number,
    content_snapshot=Number, end_snapshot=Number, physical=_Text, digest=_Text,
)  # fmt: skip
own_table = _table("penstock_table", "table_id", table_id=Number, mapping_id=Number, mapped_at=Number, horizon=Number)
own_head = _table("penstock_head", "id", id=Number, snapshot_id=Number, next_file_id=Number)
pin = Table(
    "penstock_pin",
    metadata,
    Column("holder", _Text, primary_key=True),
    Column("snapshot_id", Number, primary_key=True, autoincrement=False),
    Column("until_us", Number, nullable=False),
)

_live = own_file.c.end_snapshot.is_(None)
_ended = own_file.c.end_snapshot.is_not(None)
indices = (
    Index("penstock_ix_file_live", own_file.c.table_id, own_file.c.partition_us, sqlite_where=_live),
    # Both are partial so that no planner takes the one for the other.
    Index("penstock_ix_file_end", own_file.c.table_id, own_file.c.end_snapshot, sqlite_where=_ended),
    Index("penstock_ix_file_content", own_file.c.table_id, own_file.c.content_snapshot),
    Index("penstock_ix_pin", pin.c.until_us),
    Index("penstock_ix_scheduled", scheduled.c.path),
    Index("penstock_ix_table_name", table.c.table_name),
    Index("penstock_ix_table_id", table.c.table_id),
    Index("penstock_ix_column", column.c.table_id),
    Index("penstock_ix_data_file_table", data_file.c.table_id, data_file.c.begin_snapshot),
    Index("penstock_ix_data_file_end", data_file.c.end_snapshot),
    Index("penstock_ix_file_stats", file_column_stats.c.data_file_id),
    Index("penstock_ix_variant_stats", file_variant_stats.c.data_file_id),
    Index("penstock_ix_partition_value", file_partition_value.c.data_file_id),
    Index("penstock_ix_delete_file", delete_file.c.data_file_id),
    Index("penstock_ix_table_stats", table_stats.c.table_id),
    Index("penstock_ix_table_column_stats", table_column_stats.c.table_id),
    Index("penstock_ix_name_mapping", name_mapping.c.mapping_id),
    Index("penstock_ix_schema_versions", schema_versions.c.table_id),
)  # fmt: skip


def create(conn: Connection) -> None:
    """Make what is not there yet."""
    if conn.dialect.name == "postgresql":
        # Said only here: to say it of an index loads all that belongs to PostgreSQL.
        for index, rows in zip(indices, (_live, _ended), strict=False):
            index.dialect_options["postgresql"]["where"] = rows
    metadata.create_all(conn, checkfirst=True)
