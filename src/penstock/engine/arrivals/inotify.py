"""Linux tells what happens in a folder (inotify): three functions of the C library, called directly.

What is told is a hint and no more: the queue may overflow, and what another machine does on a shared disk is not told at all. See
`docs/decisions/012-looking-for-files.md`.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

IN_ATTRIB, IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO = 0x4, 0x8, 0x40, 0x80
IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF = 0x100, 0x200, 0x400, 0x800
IN_UNMOUNT, IN_Q_OVERFLOW, IN_IGNORED = 0x2000, 0x4000, 0x8000
_ONLY_FOLDERS = 0x01000000
_WANTED = (
    IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF
)
_HEAD = struct.Struct("iIII")
# Disks on which only this machine writes, by the numbers that Linux has for their formats: ext, xfs, btrfs, tmpfs, ramfs, overlay, zfs, f2fs,
# bcachefs, jfs, vfat, exfat, ntfs.
_OWN = frozenset(
    (0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x858458F6, 0x794C7630, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E, 0x3153464A,
     0x4D44, 0x2011BAB0, 0x7366746E)
)  # fmt: skip


def _library() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    with suppress(OSError, AttributeError):
        found = ctypes.CDLL(None, use_errno=True)
        if found.inotify_init1 and found.inotify_add_watch and found.inotify_rm_watch and found.statfs:
            return found
    return None


_LIBC = _library()


def tells_all(folder: str) -> bool:
    """Whether everything that happens in a folder is told: its disk is one that only this machine writes to."""
    if _LIBC is None:
        return False
    about = ctypes.create_string_buffer(512)
    if _LIBC.statfs(os.fsencode(folder), about) != 0:
        return False
    # The number is the first field, of 32 bits that count.
    return int.from_bytes(about.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) & 0xFFFFFFFF in _OWN


class Inotify:
    """One queue of what happened in the folders that are watched."""

    def __init__(self) -> None:
        self._handle = -1 if _LIBC is None else int(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, folder: str) -> int | None:
        """A number for a watch of the folder; None where there can be none. One folder has one, by whatever path."""
        if self._handle < 0:
            return None
        number = int(_LIBC.inotify_add_watch(self._handle, os.fsencode(folder), _WANTED | _ONLY_FOLDERS))
        return number if number >= 0 else None

    def remove(self, number: int) -> None:
        if self._handle >= 0:
            _LIBC.inotify_rm_watch(self._handle, number)

    def read(self) -> Iterator[tuple[int, int, str]]:
        """What happened since: the number of the watch, what it was, the name in the folder."""
        while self._handle >= 0:
            try:
                data = os.read(self._handle, 1 << 18)
            except OSError:
                return  # nothing
            at = 0
            while at < len(data):
                number, what, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size
                yield number, what, os.fsdecode(data[at : at + length].rstrip(b"\0"))
                at += length

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
