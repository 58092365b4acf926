"""A replica: copies of some tables in another place, readable there without the catalogue.

A version is a manifest, `versions/<table>/<snapshot>.json`, that names its columns and files. It is written when all its
files are there, by one rename, so that a version is whole or not there at all. Files are never changed, only added and
removed, so versions share them. `penstock.json` says which warehouse it is of.

Only what a manifest named is ever deleted. While a version is being copied or dropped its manifest is there under another name, so that nothing is
forgotten if that is interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from urllib.parse import quote, unquote

from pyarrow import fs

from penstock.errors import PenstockError
from penstock.model.schema import Column, Schema

_OWNER = "penstock.json"
_BEGUN = ".begun"
_GOING = ".going"


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
        except (ValueError, OSError, NotImplementedError) as error:
            raise ReplicaError(f"replica {name}: {path} cannot be opened: {error}") from None
        self.path = path.rstrip("/")

    # Whose it is

    def owner(self) -> tuple[str, str] | None:
        """The identity and the name of the project that it is of."""
        path = f"{self._root}/{_OWNER}"
        if self._fs.get_file_info(path).type != fs.FileType.File:
            return None
        try:
            with self._fs.open_input_stream(path) as stream:
                read = json.loads(stream.readall())
            return str(read["identity"]), str(read["project"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ReplicaError(f"replica {self.name}: {path} cannot be read: {error}") from None

    def take(self, identity: str, project: str) -> None:
        self._fs.create_dir(self._root, recursive=True)
        self._put(f"{self._root}/{_OWNER}", {"identity": identity, "project": project})

    def _put(self, path: str, content: object) -> None:
        with self._fs.open_output_stream(path + ".part") as stream:
            stream.write(json.dumps(content).encode())
        self._fs.move(path + ".part", path)

    # Versions

    def versions(self) -> dict[str, set[int]]:
        """The versions that are there, by table."""
        return self._named(".json")

    def _named(self, ending: str) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for entry in self._list(f"{self._root}/versions", recursive=True):
            name = entry.base_name.removesuffix(ending)
            if entry.type == fs.FileType.File and entry.base_name.endswith(ending) and name.isdigit():
                found.setdefault(unquote(entry.path.rsplit("/", 2)[-2]), set()).add(int(name))
        return found

    def manifest(self, table: str, snapshot: int) -> Manifest:
        return self._read(self._manifest_path(table, snapshot))

    def _read(self, path: str) -> Manifest:
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

    def begin(self, manifest: Manifest) -> None:
        """Note which files a version will have, before any of them is copied."""
        path = self._manifest_path(manifest.table, manifest.snapshot)
        self._fs.create_dir(path.rsplit("/", 1)[0], recursive=True)
        self._put(path + _BEGUN, asdict(manifest))

    def add(self, manifest: Manifest) -> None:
        """The version is there. What belongs to it was noted before."""
        path = self._manifest_path(manifest.table, manifest.snapshot)
        if self._fs.get_file_info(path + _BEGUN).type != fs.FileType.File:
            self.begin(manifest)
        self._fs.move(path + _BEGUN, path)

    def drop(self, table: str, snapshots: Iterable[int]) -> None:
        """Versions go, then the files that no version left here needs."""
        for snapshot in snapshots:
            path = self._manifest_path(table, snapshot)
            self._fs.move(path, path + _GOING)
        self.tidy()

    def tidy(self, unwanted: Callable[[str, int], bool] = lambda _table, _snapshot: False) -> None:
        """Take away what versions had that are being dropped, or that were begun and are not wanted any more."""
        for ending in (_GOING, _BEGUN):
            for table, snapshots in self._named(f".json{ending}").items():
                for snapshot in snapshots:
                    if ending == _GOING or unwanted(table, snapshot):
                        self._remove(table, self._manifest_path(table, snapshot) + ending)

    def _remove(self, table: str, path: str) -> None:
        try:
            named = {file.path for file in self._read(path).files}
        except ReplicaError:
            named = set()  # what it named is not known, so it stays
        others = [f"{self._manifest_path(table, snapshot)}" for snapshot in self.versions().get(table, ())]
        others += [self._manifest_path(table, one) + _BEGUN for one in self._named(f".json{_BEGUN}").get(table, ())]
        for other in others:
            if other != path:
                named -= {file.path for file in self._read(other).files}
        for name in named:
            self._delete(f"{self._folder(table)}/{name}.part")
            self._delete(f"{self._folder(table)}/{name}")
        self._delete(path)

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
