"""A pattern means what Python's `glob` says, and no file is missed, whatever happens in the folders and whatever is told of it."""

from __future__ import annotations

import glob
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engine.arrivals import folders
from penstock.engine.arrivals.folders import Folder, Tree, Watches
from penstock.engine.arrivals.inotify import tells_all
from penstock.engine.arrivals.patterns import Pattern

PATTERNS = [
    "in/*.csv", "in/**/*.csv", "in/**/a/*.csv", "in/*/a/*.csv", "**/*.csv", "in/a/b.csv", "in/**", "in/[ab].c?v", "in/*/../*.csv",
    "./in//a*.csv", "in/**/**/*.csv", "in/.h/*.csv", "in/**/.h/*.csv", "in/a/../b/*.csv", "nowhere/*.csv", "in/**/b/**/*.csv",
]  # fmt: skip
NAMES = ["a", "b", "a.csv", "b.csv", ".h", ".c.csv", "c.tmp", "d.csv"]


def meant(folder: Path, pattern: str) -> set[str]:
    """The files that `glob` finds."""
    found = glob.iglob(str(Path(glob.escape(str(folder)), pattern)), recursive=True)
    return {path for path in found if Path(path).is_file() and not folders._UNFINISHED.search(Path(path).name)}


def known(tree: Tree) -> set[str]:
    def below(folder: Folder) -> Iterator[str]:
        yield from map(folder.path_of, folder.files)
        for each in folder.folders.values():
            yield from below(each)

    return {path for path in below(tree._base) if Path(path).is_file()} if tree._base is not None else set()


class Disk:
    """Somebody who does whatever one can do with files and folders."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.number = 0
        root.mkdir()

    def some(self, folders_only: bool = False) -> Path:
        found = [self.root / "in", *(self.root / "in").rglob("*")]
        return self.random.choice([path for path in found if not folders_only or path.is_dir()] or [self.root / "in"])

    def act(self) -> None:
        self.number += 1
        draw, path = self.random, self.some()
        new = self.some(folders_only=True) / draw.choice(NAMES)
        what = draw.choice(["write"] * 4 + ["folder"] * 2 + ["move", "move", "delete", "append", "replace", "swap"])
        try:
            if what == "write" or not (self.root / "in").exists():
                new.parent.mkdir(parents=True, exist_ok=True)
                new.write_text("x" * self.number)
            elif what == "folder":
                new.mkdir(parents=True)
            elif what == "move":
                path.rename(new)
            elif what == "delete":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif what == "append":
                with path.open("a") as stream:
                    stream.write("y")
            elif what == "replace":
                path.with_name("c.tmp").write_text("z" * self.number)
                path.with_name("c.tmp").rename(path)
            else:  # a folder goes and another of its name comes, which often gets its number
                shutil.rmtree(path)
                path.mkdir()
                (path / draw.choice(NAMES)).write_text("w" * self.number)
        except OSError:
            pass


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_what_glob_says(tmp_path: Path, pattern: str) -> None:
    for seed in range(12):
        disk = Disk(tmp_path / f"{seed}", seed)
        for _ in range(40):
            disk.act()
        tree = Tree(Pattern(disk.root, pattern))
        tree.look()
        assert {path for path in tree.fresh if Path(path).is_file()} == meant(disk.root, pattern), seed
        one = Pattern(disk.root, pattern)
        if ".." not in pattern:
            for path in disk.root.rglob("*"):
                if path.is_file() and not folders._UNFINISHED.search(path.name):
                    assert one.matches(str(path)) == (str(path) in meant(disk.root, pattern)), path


class Deaf(Watches):
    """Some of what happens is never told."""

    loses = 0.0
    draw = random.Random(1)

    def hear(self) -> None:
        super().hear()
        for tree in self._trees:
            kept = [each for each in tree.stirred if self.draw.random() >= self.loses]
            tree.stirred.clear()
            tree.stirred.extend(kept)


@pytest.mark.parametrize("how", ["told", "half told", "not told"])
@pytest.mark.parametrize("pattern", ["in/**/*.csv", "in/*.csv", "in/*/a/*.csv", "in/**/a/*.csv"])
def test_no_change_is_missed(tmp_path: Path, pattern: str, how: str) -> None:
    if how == "told" and not tells_all(str(tmp_path)):
        pytest.skip("this disk does not tell what happens")
    for seed in range(25):
        disk = Disk(tmp_path / f"{seed}", seed)
        watches = Deaf()
        watches.loses = 0.5 if how == "half told" else 0.0
        if how != "not told":
            watches.open()
        tree = Tree(Pattern(disk.root, pattern), watches)
        tree.look()
        taken: dict[str, tuple[int, int]] = {}
        for step in range(30):
            for _ in range(disk.random.randint(1, 4)):
                disk.act()
            watches.hear()
            if how == "told":
                tree.look() if tree.missed else tree.glance()
            else:
                tree.glance()
                for _ in tree.sweep():
                    pass
            for path, seen in tree.fresh.items():
                taken[path] = (seen.size, seen.mtime_ns)
            tree.fresh.clear()
            files = meant(disk.root, pattern)
            assert known(tree) == files, (seed, step)
            stats = {path: os.stat(path) for path in files}
            assert {path: taken[path] for path in files} == {
                path: (each.st_size, each.st_mtime_ns) for path, each in stats.items()
            }
        watches.close()


def test_a_file_that_went_and_came_back_is_new(tmp_path: Path) -> None:
    path = tmp_path / "in/a.csv"
    path.parent.mkdir()
    path.write_text("a")
    watches = Watches()
    watches.open()
    tree = Tree(Pattern(tmp_path, "in/*.csv"), watches)
    for away in (tmp_path / "away", tmp_path / "in/away.tmp"):
        tree.look()
        assert list(tree.fresh) == [str(path)]
        tree.fresh.clear()
        path.rename(away)
        watches.hear()
        tree.glance()
        away.rename(path)
    tree.look()
    watches.close()


def test_an_overflow_is_known_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    watches = Watches()
    watches.open()
    tree = Tree(Pattern(tmp_path, "in/*.csv"), watches)
    tree.look()
    assert watches._inotify is not None
    monkeypatch.setattr(watches._inotify, "read", lambda: iter([(-1, folders.IN_Q_OVERFLOW, "")]))
    (tmp_path / "in/a.csv").write_text("a")
    watches.hear()
    assert tree.missed
    tree.look()
    assert list(tree.fresh) == [str(tmp_path / "in/a.csv")]
    watches.close()


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    for name in ("a", "c"):
        (tmp_path / "in" / name).mkdir(parents=True)
    (tmp_path / "in/a/f.csv").write_text("f")
    (tmp_path / "in/a/b").symlink_to(tmp_path / "in/c")
    (tmp_path / "in/c/d").symlink_to(tmp_path / "in/a")
    (tmp_path / "in/c/e").symlink_to(tmp_path / "in/a")
    tree = Tree(Pattern(tmp_path, "in/**/*.csv"))
    tree.look()
    assert sorted(str(Path(path).relative_to(tmp_path)) for path in tree.fresh) == [
        "in/a/f.csv",
        "in/c/d/f.csv",
        "in/c/e/f.csv",
    ]


def test_where_nothing_is_told_a_changed_folder_is_listed_again(tmp_path: Path) -> None:
    (tmp_path / "in/a").mkdir(parents=True)
    tree = Tree(Pattern(tmp_path, "in/**/*.csv"))
    tree.look()
    assert not tree.all_told
    (tmp_path / "in/a/f.csv").write_text("f")
    (tmp_path / "in/b").mkdir()
    (tmp_path / "in/b/g.csv").write_text("g")
    tree.list_changed()
    assert sorted(Path(path).name for path in tree.fresh) == ["f.csv", "g.csv"]
