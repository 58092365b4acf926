"""`backfill`, `plan`, `requests` and `cancel` from the command line: what people see, and what they are told when it is
wrong. The project is made without Spark, as these commands do not need any."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from tests.engine.crashing import make_site

Type = Callable[..., str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        site = make_site(tmp_path_factory.mktemp("made"), patch)
        site.work()
    yield site.folder


@pytest.fixture
def penstock(made: Path) -> Type:
    def run(*words: str, wrong: bool = False) -> str:
        result = CliRunner().invoke(app, [*words, "--project", str(made)], env={"COLUMNS": "240"})
        assert (result.exit_code == 1) == wrong, result.output
        return " ".join(result.output.split())

    return run


def test_from_a_plan_to_a_cancelled_request(penstock: Type, made: Path) -> None:
    assert penstock("plan") == "nothing else would run"
    planned = penstock("plan", "hourly", "2024-03", "stats", "2024-03-01")
    assert "2 requests: 69 updates -> 61" in planned
    first = json.loads(penstock("backfill", "hourly", "2024-03", "--reason", "audit", "--json"))["request"]
    assert (first["partitions"], first["stage"], first["reason"]) == (27, "queued", "audit")
    shown = penstock("backfill", "stats", "2024-03-01", "--deadline", "2h")
    assert f"merged with request {first['request']}: what they share is made once" in shown
    assert shown.endswith("it is done with the next `penstock run`")
    penstock("backfill", "daily", "2024-03-02", "--only-this")
    listed = {each["table"]: each for each in json.loads(penstock("requests", "--json"))["requests"]}
    assert {name: each["stage"] for name, each in listed.items()} == {
        "hourly": "queued", "stats": "queued", "daily": "waiting",
    }  # fmt: skip
    assert listed["daily"]["waits"] == "an old change is still on its way to it through hourly, stats"
    assert listed["stats"]["merged_with"] == [first["request"]]
    text = penstock("requests")
    assert "only this table" in text and "audit" in text
    assert f"request {first['request']} cancelled: 27 partitions of hourly dropped" in penstock(
        "cancel", str(first["request"])
    )
    listed = {each["table"]: each for each in json.loads(penstock("requests", "--json"))["requests"]}
    assert listed["hourly"]["stage"] == "cancelled" and listed["stats"]["merged_with"] == []
    assert "there is nothing left to cancel" in penstock("cancel", str(first["request"]), wrong=True)
    # A changed view is a reason like any other.
    view = made / "tables/hourly.sql"
    before = view.read_text()
    view.write_text(before.replace("count(*)", "count(router)"))
    assert "hourly 27 2024-03-01 22:00 to 2024-03-03 01:00" in (told := penstock("plan")) and "changed logic" in told
    view.write_text(before)
    for each in listed.values():
        if each["finished_us"] is None:
            penstock("cancel", str(each["request"]))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("backfill hourli 2024-03", "there is no table `hourli` in this project; did you mean `hourly`?"),
        ("backfill zzz 2024-03", "there is no table `zzz` in this project; declared: alerts, context, daily, hourly"),
        ("backfill hourly", "say which partitions, for example `penstock backfill hourly 2024-03-03`, or `all`"),
        ("backfill hourly 2024-13", "'2024-13' is not a time: month must be in 1..12"),
        ("backfill hourly yesterday", "'yesterday' is not a stretch of time; write for example 2024-03-01..2024-03-07"),
        ("backfill hourly 2024-03-02..2024-03-01", "ends before it begins; write the earlier time first"),
        ("backfill hourly 2030", "`hourly` has nothing in 2030; it goes from 2024-03-01 22:00 to 2024-03-03 01:00"),
        ("backfill hourly 2024-03 --deadline soon", "'soon' is not a deadline; write a duration such as 2h, or a time"),
        ("backfill hourly 2024-03 --deadline 2020-01-01", "the deadline 2020-01-01 is over: it is"),
        ("plan 2024-03", "2024-03 follows no table; write TABLE FROM..TO, as in `penstock plan orders 2024-03`"),
        ("plan zzz", "there is no table `zzz` in this project; declared:"),
        ("cancel 99999", "there is no request 99999; `penstock requests` lists them"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(penstock: Type, words: str, told: str) -> None:
    assert told in penstock(*words.split(), wrong=True)
