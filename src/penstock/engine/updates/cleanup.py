"""What jobs left that died: the log says that this project began them, and no transaction published what they wrote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.engine.ports import Storage
from penstock.store.store import Store
from penstock.tables import Catalogue

_SWEPT = "swept"


def job_folder(job: str, owner: str) -> str:
    """Where a job writes its files, in the folder of each of its tables."""
    return f"{job}-{owner[-8:]}"


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A job that the project began and of which no transaction published anything."""

    folder: str
    tables: tuple[str, ...]


def unpublished(store: Store) -> tuple[list[Unpublished], int]:
    """The jobs of earlier processes, as far back as they were not swept yet, and the number of the event that ends them."""
    begun: dict[str, Unpublished] = {}
    owner = ""
    with store.read() as conn:
        known = store.fact(conn, _SWEPT)
        upto = store.last_number(conn)
        for _, kind, body in store.bodies(conn, _KINDS, int(known.split()[0]) if known else 0):
            if kind == "run-started":
                owner = body["owner"]
            elif kind == "update-started":
                job = body["job"]
                names = [each["table"] for each in (job, *job.get("beside", ()))]
                tables = tuple(name for own in names for name in (own, f"{own}_quarantine"))
                begun[job["id"]] = Unpublished(job_folder(job["id"], owner), tables)
            else:
                begun.pop(body["job"], None)
    return list(begun.values()), upto


_KINDS = ("run-started", "update-started", "update-finished")


def swept(store: Store, upto: int) -> None:
    """Jobs up to that event need not be looked at again; those of one process before are, as it may have died slowly."""
    with store.write() as conn:
        known = store.fact(conn, _SWEPT)
        store.set_fact(conn, _SWEPT, f"{known.split()[1] if known else 0} {upto}")


def leave_all(store: Store) -> None:
    """Nothing of what ran until now is swept."""
    with store.write() as conn:
        last = store.last_number(conn)
        store.set_fact(conn, _SWEPT, f"{last} {last}")


def sweep(store: Store, catalogue: Catalogue, storage: Storage, job: Unpublished, also: Iterable[str]) -> None:
    """Remove what a job wrote that nothing published, in the folders of its tables and of those that are made with them."""
    for table in dict.fromkeys((*job.tables, *also)):
        for folder in storage.job_folders(catalogue.folder(table), job.folder):
            with store.read() as conn:
                # A later try of a flow may have published what a step of this one made.
                published = catalogue.listed_in(conn, table, folder.name)
            storage.clear(folder, published)
