"""What Spark gets of this machine, and where others find it, when nobody says otherwise."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from pathlib import Path

import pyspark

# Of the memory: the rest is for queries, which have processes of their own, for Arrow, and for files that the machine keeps in memory.
_SHARE = 3
_LEAST_MB, _MOST_MB = 1024, 24 * 1024
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_OF_WORKERS = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*(\d+)\s*]")
HERE = "127.0.0.1"


def memory_bytes() -> int:
    """What the machine has, or the container."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _LIMITS:
        # Without a limit it says `max`.
        with suppress(OSError, ValueError):
            found.append(int(Path(path).read_text()))
    return min(found)


def memory_settings(master: str, memory: int) -> dict[str, str]:
    """How much memory the driver has, and the executors of a cluster that is started with us. What those of others have is theirs to say."""
    settings = {}
    if not _said("spark.driver.memory", "SPARK_DRIVER_MEMORY"):
        driver = min(max(memory // _SHARE >> 20, _LEAST_MB), _MOST_MB)
        settings["spark.driver.memory"] = f"{driver}m"
    if (workers := _OF_WORKERS.match(master)) and not _said("spark.executor.memory", "SPARK_EXECUTOR_MEMORY"):
        settings["spark.executor.memory"] = f"{workers[1]}m"
    return settings


def _said(key: str, variable: str) -> bool:
    """Whether a file of defaults or a variable of Spark's own says it."""
    if os.environ.get(variable):
        return True
    folder = os.environ.get("SPARK_CONF_DIR") or Path(
        os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent), "conf"
    )
    try:
        lines = Path(folder, "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return False
    return any(re.match(rf"\s*{re.escape(key)}[\s=:]", line) for line in lines)


def address_settings(master: str) -> dict[str, str]:
    """Where executors find the driver: on this machine only, or by the address from which the cluster's master is reached. Of other clusters Spark
    knows best itself."""
    if master.startswith("local"):
        found: str | None = HERE
    elif hosts := re.match(r"spark://(?:\[([^]]+)]|([^:,/]+))", master):
        found = _address_towards(hosts[1] or hosts[2])
    else:
        found = None
    if found is None:
        return {}
    return {"spark.driver.host": found, "spark.driver.bindAddress": found}


def _address_towards(host: str) -> str | None:
    """The address of this machine on the way to another one. Nothing is sent."""
    with suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind, protocol) as way:
                way.connect(address)
                found = str(way.getsockname()[0])
                return f"[{found}]" if ":" in found else found
    return None
