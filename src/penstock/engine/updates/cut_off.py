"""Early cut-off: partitions that were made again and have the same rows as before are published, but nobody who reads them need be told.

Digests of small results are known from writing them. Those of others are computed only where that may help: where a partition has as
many rows as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from penstock.declare.warehouse import Definition, Definitions
from penstock.flows.activities import Overwrite, Versions
from penstock.model.grain import Grain
from penstock.model.partitions import PartitionSet
from penstock.model.schema import Schema
from penstock.requests.job import Job
from penstock.tables import Catalogue, DataFile
from penstock.tables.types import digest_of


@dataclass(frozen=True)
class Rewrite:
    """What a job does to the files of one table."""

    schema: Schema
    added: tuple[DataFile, ...]
    # Partitions whose files end (None: all of them), and single files that do; these have rows of the times `lost`.
    replaced: PartitionSet | None
    dropped: frozenset[int]
    lost: PartitionSet


@dataclass(frozen=True)
class Comparison:
    """Of one table: the partitions that have other rows now, by their starts, and digests that were found on the way, by path."""

    differing: tuple[int, ...]
    digests: Mapping[str, str]


# The digest of the rows of some files of a table, or None.
Digest = Callable[[str, Sequence[DataFile], Schema], str | None]


def compare(
    catalogue: Catalogue, conn: Connection, table: str, grain: Grain, rewrite: Rewrite, digest: Digest
) -> Comparison | None:
    """None if nothing can be said: the table is new, or has other columns now."""
    head = catalogue.snapshot(conn)
    if not rewrite.schema or catalogue.schema(conn, table, head) != rewrite.schema:
        return None
    added: dict[int, list[DataFile]] = {}
    for file in rewrite.added:
        added.setdefault(file.partition_us, []).append(file)
    ended = _ended(catalogue, conn, table, grain, rewrite, head)
    if ended is None:
        return None
    found: dict[str, str] = {}

    def digest_of_part(files: Sequence[DataFile]) -> str | None:
        known = digest_of(files)
        if known is None:
            known = digest(table, files, rewrite.schema)
            if known is not None and len(files) == 1:
                found[files[0].path] = known
        return known

    def former_digest(files: Sequence[DataFile]) -> str | None:
        try:
            return digest_of_part(files)
        except Exception:  # lost or damaged files are made again, too: whatever is wrong with them is no matter
            return None

    differing = []
    for start in sorted({*added, *ended}):
        before, after = ended.get(start, []), added.get(start, [])
        if sum(file.records for file in before) == sum(file.records for file in after):
            first = former_digest(before)
            if first is not None and first == digest_of_part(after):
                continue
        differing.append(start)
    return Comparison(tuple(differing), found)


def _ended(
    catalogue: Catalogue, conn: Connection, table: str, grain: Grain, rewrite: Rewrite, head: int
) -> dict[int, list[DataFile]] | None:
    """The files that end, by partition; None if some of them cannot be found."""
    replaced = rewrite.replaced
    if replaced is not None and not replaced and not rewrite.dropped:
        return {}
    within = None if replaced is None else (replaced | rewrite.lost.hull(grain)).intervals
    ended: dict[int, list[DataFile]] = {}
    missing = set(rewrite.dropped)
    for file in catalogue.files(conn, table, head, within):
        here = replaced is None or bool(replaced & PartitionSet(((file.partition_us, file.partition_us + 1),)))
        if here or file.id in rewrite.dropped:
            missing.discard(file.id)
            ended.setdefault(file.partition_us, []).append(file)
    return None if missing else ended


def with_digests(files: Sequence[DataFile], digests: Mapping[str, str]) -> tuple[DataFile, ...]:
    return tuple(replace(file, digest=digests.get(file.path, file.digest)) for file in files)


def read_by_file(warehouse: Definitions, job: Job, table: str) -> bool:
    """Whether it matters to a reader of a base table with which file a row came, so that the same rows from another file are not
    the same."""
    if job.kind != "load":
        return False
    readers = (edge.table for edge in warehouse.graph.out[table] if edge.table != table)
    return warehouse.definitions[table].declaration.every or any(
        _tells_files_apart(warehouse.definitions[name]) for name in readers
    )


def _tells_files_apart(reader: Definition) -> bool:
    flow = reader.flow
    return flow is not None and any(isinstance(step.does, Overwrite | Versions) for step in flow.flow.steps)
