"""Projects as earlier commits left them: the store as text (`store.sql`), the data files, and what was delivered until then.

    python -m tests.engine.older NAME COMMIT [POLICY]

writes NAME.zip with that commit, on Spark.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).parent
_FOLDER = "{FOLDER}"
_DATABASE = Path(".penstock") / "penstock.db"
_KEPT = ("landing", "warehouse", "tables", "penstock.toml")


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.zip"))


def unpack(name: str, folder: Path) -> None:
    """The project, with a database that was never opened by what opens it now."""
    with zipfile.ZipFile(HERE / f"{name}.zip") as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, folder))
            os.utime(path, (1_709_500_000, 1_709_500_000 + entry.date_time[5]))
    dump = folder / "store.sql"
    (folder / _DATABASE).parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(folder / _DATABASE)) as con:
        con.executescript(dump.read_text().replace(_FOLDER, str(folder)))
    dump.unlink()


def pack(name: str, folder: Path) -> None:
    with zipfile.ZipFile(HERE / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        with closing(sqlite3.connect(folder / _DATABASE)) as con:
            archive.writestr("store.sql", "\n".join(con.iterdump()).replace(str(folder), _FOLDER))
        for place in _KEPT:
            for path in sorted([folder / place, *(folder / place).rglob("*")]):
                if path.is_file() and path.suffix != ".crc":
                    archive.writestr(str(path.relative_to(folder)), path.read_bytes())


def write(name: str, commit: str, policy: str = "") -> None:
    from tests.engine.crashing import DELIVERIES, PROJECT, Points, Site, write_project

    top = HERE.parents[2]
    with tempfile.TemporaryDirectory() as scratch:
        tree, folder = Path(scratch) / "tree", Path(scratch) / "project"
        subprocess.run(["git", "-C", top, "worktree", "add", "-q", "--detach", tree, commit], check=True)
        try:
            write_project(folder, PROJECT)
            if policy:
                settings = folder / "penstock.toml"
                settings.write_text(settings.read_text().replace("[run]\n", f'[run]\npolicy = "{policy}"\n'))
            Site(folder, Points()).deliver(DELIVERIES[0])
            command = [sys.executable, "-m", "penstock.cli.main", "run", "--until-idle", "--project", str(folder)]
            subprocess.run(command, check=True, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree / "src")})
            shutil.rmtree(folder / ".penstock" / "spark", ignore_errors=True)
            pack(name, folder)
        finally:
            subprocess.run(["git", "-C", top, "worktree", "remove", "--force", tree], check=True)
