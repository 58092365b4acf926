"""What is in the pictures: ticks, marks, curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli import whatif
from penstock.cli.experiment import _plot
from penstock.model.time import DAY_US, HOUR_US, MINUTE_US
from penstock.papers import load_all
from penstock.sim.figure import Line, Panel, write_chart
from penstock.sim.timeline import Bar, Timeline, _envelope, write_timeline


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """The last picture, which is kept instead of written."""
    kept: list[Any] = []
    for module in ("figure", "timeline"):
        monkeypatch.setattr(f"penstock.sim.{module}.write_figure", lambda figure, path: kept.append(figure))
    return lambda: kept[-1]


def ticks(axis: Any) -> list[str]:
    low, high = axis.get_view_interval()
    shown = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert not axis.get_minorticklocs().size
    return [tick.label1.get_text() for tick in shown]


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def chart(*values: float, **settings: Any) -> None:
    line = Line("a", tuple((float(x), y, 0.0) for x, y in enumerate(values)))
    write_chart(Path("out.svg"), "", "x", "y", [Panel("", (line,))], **settings)


@pytest.mark.parametrize(
    ("values", "log", "shown"),
    [
        ((30, 9000), True, ["30s", "1m", "2m", "5m", "10m", "30m", "1h", "2h"]),
        ((0.04, 0.6), True, ["50ms", "100ms", "200ms", "500ms"]),
        ((700, 950), True, ["12m", "13m", "14m", "15m", "16m"]),
        ((20.1, 22), False, ["21s", "22s"]),
        ((500_000, 510_000), False, ["5d 19h", "5d 20h", "5d 21h"]),
        ((0, 100_000), False, ["0s", "6h", "12h", "18h", "1d"]),
        ((100, 900), False, ["2m", "4m", "6m", "8m", "10m", "12m", "14m"]),
    ],
)
def test_durations_are_round(drawn: Callable[[], Any], values: tuple[float, ...], log: bool, shown: list[str]) -> None:
    chart(*values, log=log, durations=True)
    assert ticks(drawn().axes[0].yaxis) == shown


def test_nothing_is_stale(drawn: Callable[[], Any]) -> None:
    chart(0.0, 0.0, durations=True)
    assert "0s" in ticks(drawn().axes[0].yaxis)


def test_there_are_few_ticks_however_wide_the_axis_is(drawn: Callable[[], Any]) -> None:
    for log in (True, False):
        chart(1e-6, 5e9, log=log, durations=True)
        assert 3 <= len(ticks(drawn().axes[0].yaxis)) <= 12


def test_a_log_axis_has_no_labels_over_each_other(drawn: Callable[[], Any]) -> None:
    chart(0.9, 2100, log=True)
    drawn().draw_without_rendering()
    assert ticks(drawn().axes[0].yaxis) == ["1", "2", "5", "10", "20", "50", "100", "200", "500", "1000", "2000"]
    chart(1.01, 1.99, log=True)
    drawn().draw_without_rendering()
    assert ticks(drawn().axes[0].yaxis) == ["1", "1.2", "1.4", "1.6", "1.8", "2"]


def test_a_target_lies_across_the_points_of_its_table(drawn: Callable[[], Any]) -> None:
    row = {"target_s": {"a": 60.0, "b": None, "new": 90.0}, "tracks": 2}
    rows = [row | {"policy": name, "staleness_s": {"a": 30.0, "b": 40.0, "new": 50.0}} for name in ("fifo", "edf")]
    was: Any = SimpleNamespace(
        declared=SimpleNamespace(policy="fifo", tracks=1),
        freshness=[SimpleNamespace(table="a", mean_s=35.0), SimpleNamespace(table="b", mean_s=45.0)],
    )
    whatif._plot(Path("out.svg"), was, rows)
    axis = drawn().axes[0]
    assert sorted(legend(drawn())) == ["as it was: fifo, 1 track", "edf, 2 tracks", "fifo, 2 tracks", "target"]
    points = {bars.get_label(): bars.lines[0].get_xydata().tolist() for bars in axis.containers}
    # A table that is new was not there.
    assert [y for _, y in points["as it was: fifo, 1 track"]] == [35.0, 45.0]
    (target,) = (found for found in axis.collections if found.get_label() == "target")
    levels = [segment.tolist() for segment in target.get_segments()]
    assert [(left[1], right[1]) for left, right in levels] == [(60.0, 60.0), (90.0, 90.0)]
    for place, ((left, _), (right, _)) in zip((0, 2), levels, strict=True):
        near = [x for line in points.values() for x, _ in line if abs(x - place) < 0.5]
        assert place - 0.5 < left < min(near) and max(near) < right < place + 0.5
        assert left + right == pytest.approx(2 * place)


def rows_of(name: str, levels: tuple[float, ...]) -> list[dict[str, Any]]:
    return [
        {"experiment": name, "cycle": 20.0, "policy": "fifo", "slowdown": slow, "utilisation": level, "seed": seed}
        | {"relative_lateness": slow + level * seed}
        for slow in (2.0, 3.0)
        for level in levels
        for seed in (1, 2)
    ]


def test_lines_say_what_their_numbers_are(drawn: Callable[[], Any]) -> None:
    known = load_all()
    for name, shown in (("golab-fig4", ["slowdown 2", "slowdown 3"]), ("golab-fig5", ["fifo"])):
        _plot(Path("out.svg"), known[name], rows_of(name, (0.5, 1.0)))
        assert legend(drawn()) == shown and not drawn().axes[0].containers


def test_a_single_value_has_its_error(drawn: Callable[[], Any]) -> None:
    _plot(Path("out.svg"), load_all()["golab-fig4"], rows_of("golab-fig4", (0.5,)))
    axis = drawn().axes[0]
    assert ticks(axis.xaxis) == ["0.5"]
    assert [bars.has_yerr for bars in axis.containers] == [True, True]
    first, second = (bars.lines[0].get_xdata()[0] for bars in axis.containers)
    assert first < second
    # So has a line of one point among longer ones.
    lines = (Line("one", ((1.0, 5.0, 0.5),)), Line("two", ((1.0, 6.0, 0.5), (2.0, 6.0, 0.5))))
    write_chart(Path("out.svg"), "", "x", "y", [Panel("", lines)])
    (bars,) = drawn().axes[0].containers
    assert bars.get_label() == "one" and bars.lines[0].get_xdata()[0] == 1.0


def saw(every_us: int, low_us: int, end_us: int) -> tuple[tuple[int, int], ...]:
    return tuple((at, at - low_us) for at in range(0, end_us, every_us))


def a_run(failed: frozenset[int] = frozenset()) -> Timeline:
    end = 3 * DAY_US
    starts = range(0, end, 5 * MINUTE_US)
    bars = [Bar("fast", f"f{n}", 0, at, at + MINUTE_US, n in failed, "") for n, at in enumerate(starts)]
    bars += [Bar("daily", f"d{n}", 1, n * DAY_US, n * DAY_US + HOUR_US, False, "") for n in range(3)]
    edges = {"fast": saw(5 * MINUTE_US, MINUTE_US, end), "daily": saw(DAY_US, HOUR_US, end)}
    return Timeline(0, end, tuple(bars), edges, {"fast": 6 * MINUTE_US}, {"fast": 2.0, "daily": 1.0})


def curve(axis: Any, name: str) -> list[float]:
    (line,) = (line for line in axis.lines if line.get_label() == name)
    return [float(y) for y in line.get_ydata()]


def test_what_is_updated_rarely_keeps_its_teeth(drawn: Callable[[], Any]) -> None:
    write_timeline(Path("out.svg"), "run", a_run())
    axis = drawn().axes[1]
    assert curve(axis, "daily") == [3600, 25 * 3600, 3600, 25 * 3600, 3600, 25 * 3600]
    (band,) = axis.collections
    # In each stretch of 21.6 minutes it is between one and six minutes stale.
    extent = band.get_datalim(axis.transData)
    assert (extent.y0, extent.y1) == (60, 360) and set(curve(axis, "fast")) == {360}
    assert axis.get_xlabel().endswith("\ndotted: target; band: from lowest to highest, the line is the highest")


def test_a_long_tooth_grows_through_its_stretches() -> None:
    found = replace(a_run(), end_us=2000)
    xs, lows, highs = _envelope(found, [0, 1000, 1000, 2000], [5, 1005, 3, 1003])
    assert xs[:3] == [5, 15, 25] and lows[:3] == [5, 15, 25] and highs[:3] == [15, 25, 35]
    at = xs.index(1005)
    assert (lows[at - 1], highs[at - 1]) == (995, 1005) and (lows[at + 1], highs[at + 1]) == (13, 23)
    assert lows[at] == 3


def test_a_table_without_updates_in_that_time_is_as_stale_as_before(drawn: Callable[[], Any]) -> None:
    late = replace(a_run(), start_us=2 * DAY_US + HOUR_US, edges={"daily": ((0, 0),)})
    write_timeline(Path("out.svg"), "run", late)
    assert curve(drawn().axes[1], "daily") == [49 * 3600, 72 * 3600]


def test_failures_leave_the_bars_to_be_seen(drawn: Callable[[], Any]) -> None:
    write_timeline(Path("out.svg"), "run", a_run(frozenset(range(0, 864, 10))))
    axis = drawn().axes[0]
    red = (1.0, 0.0, 0.0, 1.0)
    updates = [found for found in axis.collections if tuple(found.get_facecolor()[:1].flat) != red]
    failures = [found for found in axis.collections if tuple(found.get_facecolor()[:1].flat) == red]
    assert max(len(found.get_paths()) for found in failures) == 87
    lowest = min(path.vertices[:, 1].min() for found in failures for path in found.get_paths())
    assert lowest > max(path.vertices[:, 1].max() for path in updates[0].get_paths())
    assert max(found.get_linewidth()[0] for found in failures) <= 0.5
    assert "red: failed" in drawn().axes[1].get_xlabel()
