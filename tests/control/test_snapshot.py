"""A saved state is the state: the same fields, the same future."""

from __future__ import annotations

import json

import pytest

from penstock.control.controller import Controller
from penstock.control.snapshot import FORMAT, SnapshotError, dump, load
from penstock.control.state import State
from penstock.requests.tablestate import TableState
from tests.control.scenarios import Scenario

# What follows from the rest: tables are compared field by field, the graph follows from them, and all are asked again. The last
# two are the policy's.
NOT_SAVED = {
    ("ledger", "graph"),
    ("ledger", "tables"),
    ("ledger", "touched"),
    ("awaited", "_tables"),  # compared as a whole
    (None, "_handlers"),
    (None, "chops"),
    (None, "weights"),
}


def through_json(state: State) -> State:
    return load(json.loads(json.dumps(dump(state))))


@pytest.mark.parametrize("seeds", [range(n, n + 20) for n in range(0, 120, 20)])
def test_folding_on_from_a_saved_state(seeds: range) -> None:
    for seed in seeds:
        scenario = Scenario(seed)
        scenario.run(50)
        log = scenario.world.log
        cut = scenario.rng.randrange(len(log) + 1)
        whole = State().fold(log)
        resumed = through_json(State().fold(log[:cut])).fold(log[cut:])
        assert dump(resumed) == dump(whole), f"seed {seed}, cut at {cut}"
        now = scenario.world.now
        assert Controller(resumed).decide(now) == Controller(whole).decide(now), f"seed {seed}, cut at {cut}"


def test_every_field_is_saved() -> None:
    """A field that someone adds to a table's state must come into the snapshot, too."""
    scenario = Scenario(5)
    scenario.run(80)
    for name, table in scenario.world.state.tables.items():
        again = through_json(scenario.world.state).tables[name]
        for field in TableState.__dataclass_fields__:
            before, after = getattr(table, field), getattr(again, field)
            if field in ("needs", "held"):
                before, after = list(before.pieces()), list(after.pieces())
            elif field == "staleness":
                before, after = ([getattr(s, slot) for slot in s.__slots__] for s in (before, after))
            assert before == after, f"{name}.{field}"
    kept, again = scenario.world.state, through_json(scenario.world.state)
    parts = {id(part): field for field, part in vars(kept).items() if type(part).__module__.startswith("penstock.")}
    assert set(parts.values()) > {
        "ledger",
        "awaited",
        "backfills",
        "reading",
        "known_feeds",
        "files",
        "runs",
        "declaration",
    }
    for owner in (None, *parts.values()):
        mine, other = (kept, again) if owner is None else (getattr(kept, owner), getattr(again, owner))
        for field, before in vars(mine).items():
            after = getattr(other, field)
            if id(before) in parts:  # the parts know each other; each is compared in its own turn
                assert after is getattr(again, parts[id(before)]), f"{owner}.{field}"
            elif (owner, field) not in NOT_SAVED:
                assert before == after, f"{owner}.{field}"
    assert again.awaited == kept.awaited


def test_a_running_job_is_one_thing_not_two() -> None:
    for seed in range(30):
        scenario = Scenario(seed)
        scenario.run(40)
        state = through_json(scenario.world.state)
        for table in state.tables.values():
            if table.running is not None:
                assert state.busy[table.running.track] is table.running


def test_another_format_is_refused_in_words() -> None:
    assert dump(State())["format"] == FORMAT
    for data in ({**dump(State()), "format": FORMAT + 1}, {}):
        with pytest.raises(SnapshotError, match="fold the log from its beginning instead"):
            load(data)


def test_it_does_not_grow_with_history() -> None:
    sizes = []
    for turns in (100, 1000):
        scenario = Scenario(8, calm=True)
        scenario.run(turns)
        scenario.settle()
        sizes.append(len(json.dumps(dump(scenario.world.state))))
    assert sizes[1] < 1.3 * sizes[0]
