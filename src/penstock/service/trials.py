"""What would have been: the log replayed under other policies, tracks and mishaps, in a process of its own, with progress.

Run as a module it is that process: it reads one wish as JSON and writes lines of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from penstock.errors import PenstockError

_Text = Annotated[str, Field(min_length=1, max_length=200)]
# Of the curves those of so many tables, and of each at most so many moves.
_CURVES = 12
_MOVES = 4_000
_KEPT = 20
_AT_ONCE = 1


class TrialBody(BaseModel):
    """What shall be other than it was. What is left out is as it was; without policies, one of each kind is tried."""

    model_config = ConfigDict(extra="forbid", strict=True)

    policies: Annotated[list[_Text], Field(max_length=12)] = []
    tracks: Annotated[list[Annotated[int, Field(ge=1, le=256)]], Field(max_length=8)] = []
    seeds: Annotated[int, Field(ge=1, le=10)] = 1
    volume: Annotated[float, Field(gt=0, le=100)] = 1.0
    outages: Annotated[list[_Text], Field(max_length=20)] = []
    tables: Annotated[list[_Text], Field(max_length=_CURVES)] = []


class TooMany(PenstockError):
    pass


@dataclass
class Trial:
    id: int
    process: subprocess.Popen[str]
    told: dict[str, Any] = field(default_factory=lambda: {"status": "running", "done": 0, "of": None})

    @property
    def runs(self) -> bool:
        return bool(self.told["status"] == "running")


class Trials:
    """Those that run and the last that have ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: OrderedDict[int, Trial] = OrderedDict()
        self._last = 0

    def begin(self, wish: TrialBody) -> Trial:
        with self._lock:
            if sum(one.runs for one in self._known.values()) >= _AT_ONCE:
                raise TooMany("another what-if is being computed; ask again when it is done, or cancel it")
            words = [sys.executable, "-m", "penstock.service.trials", str(self._folder)]
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self._last += 1
            trial = self._known[self._last] = Trial(self._last, process)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        assert process.stdin is not None
        process.stdin.write(wish.model_dump_json())
        process.stdin.close()
        threading.Thread(target=self._follow, args=(trial,), name="penstock-trial", daemon=True).start()
        return trial

    def find(self, number: int) -> Trial | None:
        with self._lock:
            return self._known.get(number)

    def cancel(self, trial: Trial) -> None:
        if trial.runs:
            trial.told = {**trial.told, "status": "cancelled"}
            trial.process.kill()

    def close(self) -> None:
        for trial in list(self._known.values()):
            self.cancel(trial)

    @staticmethod
    def _follow(trial: Trial) -> None:
        process = trial.process
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            trial.told = {**trial.told, **json.loads(line)}
        said = process.stderr.read()
        if process.wait() and trial.runs:
            trial.told = {**trial.told, "status": "failed", "error": said.strip()[-500:] or "the process ended early"}


# The process.


def _main(folder: Path, wish: TrialBody) -> None:
    from penstock.app import Warehouse
    from penstock.sim.timeline import timeline
    from penstock.sim.whatif.advice import CANDIDATES, advise, compare, recorded, too_short
    from penstock.sim.whatif.replay import Replay, parse_changes

    os.nice(10)  # updates go first
    with Warehouse(folder) as warehouse:
        recording = warehouse.recording()
    declared = recording.declared
    changes = parse_changes(declared, wish.volume, wish.outages, ())
    policies = wish.policies or list(dict.fromkeys([declared.policy, *CANDIDATES]))
    count, results = compare(
        recording, policies, wish.tracks or [declared.tracks], range(1, wish.seeds + 1), changes, folder, 1
    )
    was = recorded(recording)
    was["tables"] = [asdict(table) for table in was["tables"]]
    was["crowding"] = asdict(was["crowding"])
    _say(done=0, of=count, recorded=was, start_us=recording.start_us, end_us=recording.end_us)
    rows: list[dict[str, Any]] = []
    for number, some in enumerate(results, 1):
        rows += some
        _say(done=number, rows=rows)
    advice = advise(rows, declared.policy, keep=too_short(recording))
    run = Replay(recording, advice.policy, advice.tracks, changes, seed=1, keep_log=True).run()
    drawn = timeline(run.log, recording.start_us)
    shown = wish.tables or _most_pressed(rows)
    curves = {name: _thinned(drawn.edges[name]) for name in shown if name in drawn.edges}
    _say(status="done", rows=rows, advice=asdict(advice), curves=curves, targets_us=drawn.targets_us)


def _most_pressed(rows: Sequence[dict[str, Any]]) -> list[str]:
    targets = rows[0]["target_s"]
    pressure = {name: rows[0]["peak_s"][name] / target for name, target in targets.items() if target}
    return sorted(pressure, key=lambda name: -pressure[name])[:_CURVES]


def _thinned(moves: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    step = len(moves) // _MOVES + 1
    return [move for place, move in enumerate(moves) if place % step == 0 or place == len(moves) - 1]


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    try:
        _main(Path(sys.argv[1]), TrialBody.model_validate_json(sys.stdin.read()))
    except PenstockError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from None
