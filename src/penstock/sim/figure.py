"""Pictures as SVG, PNG or PDF, drawn with matplotlib (the extra `plot`). The same data give the same file."""

from __future__ import annotations

from math import ceil, floor
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.model.time import SECOND_US, format_duration

KINDS = (".svg", ".png", ".pdf")
COLOURS = ("#1f6fb4", "#d9541e", "#2b8a3e", "#8e44ad", "#b8860b", "#c2255c", "#0b7285", "#555555")
# What a clock calls round, in seconds; each two or three times the one before.
_TENS = (1, 2, 5)
_ROUND = (
    *(digit / 10**power for power in range(6, 0, -1) for digit in _TENS),
    *(number * unit for unit in (1, 60) for number in (1, 2, 5, 10, 30)),
    *(number * 3_600 for number in (1, 2, 6, 12)),
    *(digit * 10**power * 86_400 for power in range(4) for digit in _TENS),
)
_MOST_TICKS = 12


class PictureError(PenstockError):
    """A picture that cannot be drawn."""


def check_picture(path: Path) -> None:
    """Say before long work that its picture could not be written."""
    if path.suffix.lower() not in KINDS:
        raise PictureError(f"{path}: expected a name that ends in {', '.join(KINDS)}; try {path.stem}.svg")
    if not path.resolve().parent.is_dir():
        raise PictureError(f"{path}: there is no folder {path.resolve().parent}; type: mkdir -p {path.parent}")
    _matplotlib()


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **settings: Any) -> tuple[Any, Any]:
    """A figure and its axes, always as a grid of `rows` times `columns`."""
    _matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **settings)


def mark_durations(axis: Any, log: bool = False) -> None:
    """Ticks at round durations of an axis in seconds: 30m, not 2000. To be called when the axis has its limits."""
    low, high = sorted(axis.get_view_interval())
    ticks = [float(seconds) for seconds in _ROUND if low <= seconds <= high] if log else []
    if len(ticks) < 3:
        for step in (step for step in _ROUND if (high - low) / step <= 8 or step == _ROUND[-1]):
            ticks = [step * number for number in range(ceil(low / step), floor(high / step) + 1)]
            if len(set(_said(ticks))) == len(ticks):  # days are told without minutes
                break
    ticks = ticks[:: ceil(len(ticks) / _MOST_TICKS) or 1]
    axis.set_ticks(ticks, _said(ticks))
    axis.set_ticks([], minor=True)


def _said(seconds: list[float]) -> list[str]:
    return [format_duration(round(each * SECOND_US)) for each in seconds]


def mark_powers(axis: Any) -> None:
    """Ticks of a log axis at 1, 2, 5, 10: all nine of a decade would be printed over each other."""
    from matplotlib.ticker import AutoLocator, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    locator = LogLocator(subs=_TENS)
    few = sum(low <= tick <= high for tick in locator.tick_values(low, high)) < 3
    axis.set_major_locator(AutoLocator() if few else locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def write_figure(figure: Any, path: Path) -> None:
    check_picture(path)
    import matplotlib

    # Texts stay texts, and nothing of the day of drawing is in the file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "penstock"}):
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
        figure.savefig(path, dpi=150, metadata=metadata)


def _matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PictureError("pictures need matplotlib; type: pip install 'penstock[plot]'") from None
