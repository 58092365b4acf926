"""A replica: copies of some tables in another place, readable there without the catalogue.

A version is a manifest, `versions/<table>/<snapshot>.json`, that names its columns and files. It is written when all its
files are there, by one rename, so that a version is whole or not there at all. Files are never changed, only added and
removed, so versions share them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from urllib.parse import quote, unquote

from pyarrow import fs

from penstock.errors import PenstockError
from penstock.model.schema import Column, Schema


class ReplicaError(PenstockError):
    """A replica that cannot be read or written."""


@dataclass(frozen=True, slots=True)
class ReplicaFile:
    # Relative to the table's folder.
    path: str
    size_bytes: int


@dataclass(frozen=True)
class Manifest:
    table: str
    snapshot: int
    at_us: int
    complete_us: int | None
    # Which publication of each base table the version fully reflects.
    reflects: dict[str, int]
    schema: Schema
    files: tuple[ReplicaFile, ...]


class Replica:
    def __init__(self, name: str, path: str) -> None:
        self.name = name
        try:
            self._fs, self._root = fs.FileSystem.from_uri(path)
        except (ValueError, OSError) as error:
            raise ReplicaError(f"replica {name}: {path} cannot be opened: {error}") from None
        self.path = path.rstrip("/")

    # Versions

    def versions(self) -> dict[str, set[int]]:
        """The versions that are there, by table."""
        found: dict[str, set[int]] = {}
        for entry in self._list(f"{self._root}/versions", recursive=True):
            name = entry.base_name
            if entry.type == fs.FileType.File and name.endswith(".json") and name[:-5].isdigit():
                found.setdefault(unquote(entry.path.rsplit("/", 2)[-2]), set()).add(int(name[:-5]))
        return found

    def manifest(self, table: str, snapshot: int) -> Manifest:
        path = self._manifest_path(table, snapshot)
        try:
            with self._fs.open_input_stream(path) as stream:
                read = json.loads(stream.readall())
        except (OSError, ValueError) as error:
            raise ReplicaError(f"replica {self.name}: {path} cannot be read: {error}") from None
        return Manifest(
            read["table"],
            read["snapshot"],
            read["at_us"],
            read["complete_us"],
            read["reflects"],
            tuple(Column(**column) for column in read["schema"]),
            tuple(ReplicaFile(**file) for file in read["files"]),
        )

    def whole(self, manifest: Manifest) -> bool:
        """Whether all files of a version are still there."""
        return not self.missing(manifest)

    def missing(self, manifest: Manifest) -> list[ReplicaFile]:
        there = self._sizes(manifest.table)
        return [file for file in manifest.files if there.get(file.path) != file.size_bytes]

    def locate(self, table: str, file: ReplicaFile) -> str:
        scheme = self.path.split("://", 1)[0] + "://" if "://" in self.path else ""
        return f"{scheme}{self._folder(table)}/{file.path}"

    # Copying

    def copy(self, table: str, file: ReplicaFile, source: str) -> None:
        """One file, whole or not at all: it gets its name when all of it is there."""
        theirs, path = fs.FileSystem.from_uri(source)
        target = f"{self._folder(table)}/{file.path}"
        self._fs.create_dir(target.rsplit("/", 1)[0], recursive=True)
        fs.copy_files(path, target + ".part", source_filesystem=theirs, destination_filesystem=self._fs)
        self._fs.move(target + ".part", target)

    def add(self, manifest: Manifest) -> None:
        path = self._manifest_path(manifest.table, manifest.snapshot)
        self._fs.create_dir(path.rsplit("/", 1)[0], recursive=True)
        with self._fs.open_output_stream(path + ".part") as stream:
            stream.write(json.dumps(asdict(manifest)).encode())
        self._fs.move(path + ".part", path)

    def drop(self, table: str, snapshots: Iterable[int]) -> None:
        """Versions go, then the files that no version left here needs."""
        for snapshot in snapshots:
            self._delete(self._manifest_path(table, snapshot))
        used: set[str] = set()
        for snapshot in self.versions().get(table, ()):
            used |= {file.path for file in self.manifest(table, snapshot).files}
        for path in self._sizes(table):
            if path not in used:
                self._delete(f"{self._folder(table)}/{path}")

    def _delete(self, path: str) -> None:
        if self._fs.get_file_info(path).type == fs.FileType.File:
            self._fs.delete_file(path)

    # Places

    def _sizes(self, table: str) -> dict[str, int]:
        """The files of a table that are there, relative to its folder."""
        folder = self._folder(table)
        return {
            entry.path.removeprefix(folder + "/"): entry.size
            for entry in self._list(folder, recursive=True)
            if entry.type == fs.FileType.File
        }

    def _list(self, folder: str, recursive: bool) -> list[fs.FileInfo]:
        selector = fs.FileSelector(folder, recursive=recursive, allow_not_found=True)
        listed: list[fs.FileInfo] = self._fs.get_file_info(selector)
        return listed

    def _folder(self, table: str) -> str:
        return f"{self._root}/data/{quote(table, safe='-_')}"

    def _manifest_path(self, table: str, snapshot: int) -> str:
        return f"{self._root}/versions/{quote(table, safe='-_')}/{snapshot}.json"
