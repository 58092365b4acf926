"""However broken a project is, checking it ends with problems, never with a stack trace."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.declare.problems import ProjectError
from penstock.declare.project import read_project
from penstock.declare.warehouse import check_project

from .conftest import FEEDS

FILES = {
    "penstock.toml": FEEDS + "rules = ['router is not null']\n[run]\ntracks = 2\n[spark]\ndriver.memory = '1g'\n",
    "tables/hourly.sql": "-- Hours.\n-- partition = 'hour'\n-- time = 'hour'\nSELECT router, date_trunc('hour', ts) AS hour, sum(bytes) AS bytes\nFROM stats GROUP BY 1, 2\n",
    "tables/total.sql": "-- partition = 'day'\n-- time = 'day'\n-- sources = { total = 'SELF - 1' }\n-- columns = 'router string, day timestamp, bytes bigint'\nSELECT router, :partition_start AS day, sum(bytes) AS bytes FROM (SELECT router, bytes FROM hourly UNION ALL SELECT router, bytes FROM total) GROUP BY router\n",
    "tables/more.py": "import penstock as ps\n\n@ps.table(partition='day', time='day', sources={'sites': 'everything'})\ndef joined(total, sites, partition):\n    return total.join(sites, 'router')\n",
}  # fmt: skip
SPLINTERS = [*"\"'`()[]{}=,;:\n-#<>*", "NULL", " select ", " from ", "hour", "none", "é", "\0", "5"]


def broken(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    match rng.randrange(4):
        case 0:
            return text[:at] + text[at + rng.randint(1, 20) :]
        case 1:
            return text[:at] + rng.choice(SPLINTERS) + text[at:]
        case 2:
            lines = text.split("\n")
            rng.shuffle(lines)
            return "\n".join(lines)
        case _:
            words = text.split(" ")
            one, other = rng.randrange(len(words)), rng.randrange(len(words))
            words[one], words[other] = words[other], words[one]
            return " ".join(words)


@pytest.mark.parametrize("seed", range(60))
def test_any_text(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    files = dict(FILES)
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(list(files))
        files[name] = broken(files[name], rng)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    try:
        warehouse, problems = check_project(read_project(tmp_path))
    except ProjectError as error:
        assert error.problems
    else:
        assert (warehouse is None) == any(problem.severity == "error" for problem in problems)
