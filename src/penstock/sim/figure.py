"""Pictures as SVG, PNG or PDF, drawn with matplotlib (the extra `plot`). The same data give the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.errors import PenstockError

KINDS = (".svg", ".png", ".pdf")
COLOURS = ("#1f6fb4", "#d9541e", "#2b8a3e", "#8e44ad", "#b8860b", "#c2255c", "#0b7285", "#555555")


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
