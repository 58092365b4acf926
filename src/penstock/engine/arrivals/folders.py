"""The files that a pattern stands for, and which of them are new or changed, without a look at all of them each time.

What Linux tells about a folder is looked at as it comes. As that may be incomplete, everything is also looked at again, a little
at a time: a file that was missed, or that lies where nothing is told, is found by that.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.engine.arrivals.inotify import (
    IN_DELETE_SELF,
    IN_IGNORED,
    IN_MOVE_SELF,
    IN_Q_OVERFLOW,
    IN_UNMOUNT,
    Inotify,
    tells_all,
)
from penstock.engine.arrivals.patterns import Pattern, Places
from penstock.engine.ports import Seen

# Names by which writers mark what is not ready yet.
_UNFINISHED = re.compile(r"(^[._])|(\.(tmp|part|partial|crdownload|inprogress)$)", re.IGNORECASE)
_OUTPUT = re.compile(r"\.(csv|json|parquet)$", re.IGNORECASE)
# Looked at in one go.
_SOME = 256
# A folder that changed so short a time ago may change again without another time of change.
_COARSE_S = 3.0


@dataclass(slots=True, eq=False)
class Folder:
    """One in which files are looked for."""

    path: str
    places: Places
    # By which the system knows it.
    identity: tuple[int, int]
    above: Folder | None = None
    name: str = ""
    # Its files, as they were when last looked at.
    files: dict[str, int] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)
    watch: int | None = None
    # Whether all that happens in it is told; and that nothing is any more, though a folder of that name may be there.
    told: bool = False
    lost: bool = False
    # Its own time of change when it was last listed, and until when that says too little.
    mtime_ns: int = -1
    coarse_until: float = 0.0

    def path_of(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    @property
    def all_above(self) -> Iterator[Folder]:
        folder = self.above
        while folder is not None:
            yield folder
            folder = folder.above


class Watches:
    """What happens in watched folders, handed to the trees that they belong to."""

    def __init__(self) -> None:
        self._inotify: Inotify | None = None
        self._lock = threading.Lock()
        self._of: dict[int, list[tuple[Tree, Folder]]] = {}
        self._trees: list[Tree] = []

    def join(self, tree: Tree) -> None:
        self._trees.append(tree)

    def open(self) -> None:
        """Begin to watch; what was looked at before is looked at once more."""
        if self._inotify is None:
            self._inotify = Inotify()
            for tree in self._trees:
                tree.missed = tree.unwatched = True

    def add(self, tree: Tree, folder: Folder) -> None:
        with self._lock:
            folder.watch = self._inotify.add(folder.path) if self._inotify is not None else None
            if folder.watch is not None:
                self._of.setdefault(folder.watch, []).append((tree, folder))

    def remove(self, folder: Folder) -> None:
        with self._lock:
            number, folder.watch = folder.watch, None
            if number is None or number not in self._of:
                return
            left = [(tree, each) for tree, each in self._of[number] if each is not folder]
            if left:
                self._of[number] = left
            else:
                del self._of[number]
                if self._inotify is not None:
                    self._inotify.remove(number)

    def hear(self) -> None:
        """Hand out what has happened since."""
        with self._lock:
            for number, what, name in self._inotify.read() if self._inotify is not None else ():
                if what & IN_Q_OVERFLOW:
                    for tree in self._trees:
                        tree.missed = True
                ended = what & (IN_DELETE_SELF | IN_UNMOUNT | IN_IGNORED)
                for tree, folder in self._of.get(number, ()):
                    if ended:
                        # One that is made in its place may get the same number of the system.
                        folder.lost = True
                    if name:
                        tree.stirred.append((folder, name))
                    elif ended or what & IN_MOVE_SELF:
                        tree.went(folder)
                if what & IN_IGNORED:
                    self._of.pop(number, None)

    def close(self) -> None:
        with self._lock:
            self._of.clear()
            if self._inotify is not None:
                self._inotify.close()


class Tree:
    """The files of one pattern. `fresh` has those that are new or changed, until somebody takes them."""

    def __init__(self, pattern: Pattern, watches: Watches | None = None, follow_links: bool = True) -> None:
        self.pattern = pattern
        self._stat = os.stat if follow_links else os.lstat
        self.fresh: dict[str, Seen] = {}
        # What was told: entries to look at; and that something was not told.
        self.stirred: deque[tuple[Folder, str]] = deque()
        self.again: deque[str] = deque()
        self.missed = True
        # Known from a time when nothing was told.
        self.unwatched = False
        self._watches = watches
        self._base: Folder | None = None
        self._to_list: list[Folder] = []
        # How many folders there are of which not all is told.
        self._untold = 0
        if watches is not None:
            watches.join(self)

    def matches(self, path: str) -> bool:
        return self.pattern.matches(path)

    @property
    def has_news(self) -> bool:
        return self.missed or bool(self.stirred or self.again)

    def went(self, folder: Folder) -> None:
        """A folder is not what it was, or not where it was."""
        if folder.above is not None:
            self.stirred.append((folder.above, folder.name))
        else:
            self.missed = True

    # Looking

    def look(self) -> None:
        """At everything there is."""
        self.missed = False
        known = self._base
        self.glance()
        for _ in self.sweep() if known is not None and known is self._base else ():
            pass

    def glance(self) -> None:
        """At what was told. Also whether it still is the same folder: that one above it was renamed is not told."""
        self._find_base()
        while self.again:
            self._look_again(self.again.popleft())
        for folder, name in dict.fromkeys(self.stirred.popleft() for _ in range(len(self.stirred))):
            if self._is_ours(folder):
                self._see(folder, name)
        self._list_new()

    def sweep(self) -> Iterator[None]:
        """Look at everything again, a little with each step."""
        self._find_base()
        folders = [self._base] if self._base is not None else []
        while folders:
            folder = folders.pop()
            if not self._is_ours(folder):
                continue
            known = [*folder.files, *folder.folders]
            # Where all is told, the names in a folder change no more than its time of change does.
            for _ in self._listing(folder, only_changed=folder.told):
                yield
            self._list_new()
            yield
            for start in range(0, len(known), _SOME):
                for name in known[start : start + _SOME]:
                    self._see(folder, name)
                self._list_new()
                yield
            folders += folder.folders.values()

    def list_changed(self) -> None:
        """List folders again that changed, of those of which not all is told."""
        self._find_base()
        folders = [self._base] if self._base is not None else []
        while folders:
            folder = folders.pop()
            if not folder.told:
                self._list(folder, only_changed=True)
            folders += folder.folders.values()
        self._list_new()

    @property
    def all_told(self) -> bool:
        """Whether what happens is told, wherever there is something to look at."""
        return self._base is not None and self._untold == 0

    # Taking

    def look_again(self, path: str) -> None:
        self.again.append(path)

    def forget(self, path: str) -> None:
        """Whatever it is, it is new when it is seen next."""
        self.fresh.pop(path, None)
        folder, name = self._place_of(path)
        if folder is not None:
            folder.files.pop(name, None)
            folder.mtime_ns = -1

    def see_again(self, path: str) -> Seen | None:
        """A fresh file as it is now; None if it is gone, or new no more."""
        folder, name = self._place_of(path)
        if folder is not None:
            self._see(folder, name)
        return self.fresh.get(path)

    def _look_again(self, path: str) -> None:
        folder, name = self._place_of(path)
        if folder is not None:
            folder.files.pop(name, None)
            self._see(folder, name)

    def _place_of(self, path: str) -> tuple[Folder | None, str]:
        place, name = os.path.split(path)
        folder = self._base
        if folder is not None and place != folder.path:
            for part in Path(os.path.relpath(place, folder.path)).parts:
                folder = folder.folders.get(part) if folder is not None else None
        return folder, name

    # One folder

    def _find_base(self) -> None:
        try:
            status = os.stat(self.pattern.base)
            found = (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None
        except OSError:
            found = None  # not there, or not to be reached now
        if self._base is not None and (self._base.identity != found or self._base.lost or self.unwatched):
            self._drop(self._base)
            self._base = None
        self.unwatched = False
        if self._base is None and found is not None:
            self._base = self._entered(Folder(self.pattern.base, self.pattern.begin, found))
        self._list_new()

    def _is_ours(self, folder: Folder) -> bool:
        return folder is self._base or (folder.above is not None and folder.above.folders.get(folder.name) is folder)

    def _entered(self, folder: Folder) -> Folder:
        above = folder.above
        folder.told = (
            above.told if above is not None and above.identity[0] == folder.identity[0] else tells_all(folder.path)
        )
        if self._watches is not None:
            # Before it is listed: what comes in between is told.
            self._watches.add(self, folder)
        folder.told = folder.told and folder.watch is not None
        self._untold += not folder.told
        self._to_list.append(folder)
        return folder

    def _drop(self, folder: Folder) -> None:
        below = [folder]
        while below:
            each = below.pop()
            self._untold -= not each.told
            if self._watches is not None:
                self._watches.remove(each)
            below += each.folders.values()
            each.above = None

    def _list_new(self) -> None:
        while self._to_list:
            folder = self._to_list.pop()
            if self._is_ours(folder):
                self._list(folder)

    def _list(self, folder: Folder, only_changed: bool = False) -> None:
        for _ in self._listing(folder, only_changed):
            pass

    def _listing(self, folder: Folder, only_changed: bool) -> Iterator[None]:
        """Find what is not known yet in a folder, some with each step. What is known and gone is noticed when it is looked at."""
        try:
            changed = os.stat(folder.path).st_mtime_ns
            now = time.monotonic()
            if changed != folder.mtime_ns:
                folder.mtime_ns, folder.coarse_until = changed, now + _COARSE_S
            elif only_changed and now >= folder.coarse_until:
                return
            names = self.pattern.names(folder.places)
            if names is not None:
                for name in names:
                    self._see(folder, name)
                return
            with os.scandir(folder.path) as entries:
                for number, entry in enumerate(entries, 1):
                    if number % _SOME == 0:
                        yield
                    if entry.name not in folder.files and entry.name not in folder.folders:
                        self._see(folder, entry.name, entry)
        except OSError:
            # It is gone, or cannot be read now. What is in it is new when it can.
            for name in list(folder.files):
                self._gone(folder, name)
            folder.mtime_ns = -1

    # One entry

    def _see(self, folder: Folder, name: str, entry: os.DirEntry[str] | None = None) -> None:
        is_file = self.pattern.is_file(folder.places, name) and not _UNFINISHED.search(name)
        path = folder.path_of(name)
        try:
            if not is_file and not (self.pattern.inside(folder.places, name) if entry is None else entry.is_dir()):
                return
            status = self._stat(path)
        except (OSError, ValueError):
            self._gone(folder, name)  # or a link that leads nowhere
            return
        # One that is not followed is told of: whoever put it there waits for what it leads to.
        is_link = stat.S_ISLNK(status.st_mode)
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder or name in folder.folders:
            inside = self.pattern.inside(folder.places, name)
            self._enter(folder, name, path, inside, (status.st_dev, status.st_ino) if is_folder and inside else None)
        if is_link or (is_file and (stat.S_ISREG(status.st_mode) or (is_folder and _OUTPUT.search(name)))):
            found = Seen(status.st_size, status.st_mtime_ns)
            packed = found.mtime_ns << 64 | found.size  # half the memory
            if folder.files.get(name) != packed:
                folder.files[name] = packed
                self.fresh[path] = found
        elif name in folder.files:
            del folder.files[name]
            self.fresh.pop(path, None)

    def _enter(self, folder: Folder, name: str, path: str, places: Places, identity: tuple[int, int] | None) -> None:
        known = folder.folders.get(name)
        if known is not None and (known.identity != identity or known.lost):
            del folder.folders[name]
            self._drop(known)
            known = None
        if known is None and identity is not None:
            inner = Folder(path, places, identity, folder, name)
            if not (self.pattern.any_depth and _in_a_loop(inner)):
                folder.folders[name] = self._entered(inner)

    def _gone(self, folder: Folder, name: str) -> None:
        folder.files.pop(name, None)
        self.fresh.pop(folder.path_of(name), None)
        inner = folder.folders.pop(name, None)
        if inner is not None:
            self._drop(inner)


def _in_a_loop(folder: Folder) -> bool:
    """Whether a folder is reached through a link to a folder above it: then its files have shorter names, too."""
    path = Path(folder.path)
    if not path.is_symlink():
        return False
    if any(each.identity == folder.identity for each in folder.all_above):
        return True
    return path.parent.resolve().is_relative_to(path.resolve())
