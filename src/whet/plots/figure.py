"""The one door to matplotlib, and the looks that figures share."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.errors import MissingExtraError, WhetError
from whet.io.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#1f5fa8", "#e07b00", "#2a8c4a", "#c0392b", "#7d4fa0", "#777777"
COLORS = (BLUE, ORANGE, GREEN, RED, PURPLE, GREY)


def check_installed() -> None:
    """Raise `MissingExtraError` where matplotlib is not: before the work, rather than after it."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plots")


def prepared_folder(out: Path) -> Path:
    """The folder for figures and numbers, made if need be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WhetError(f"cannot write to the folder {out}: {error.strerror}; choose another --out") from error
    return out


def new_figure(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:  # noqa: ANN401
    """A figure of width x height inches and its (rows, columns) array of axes."""
    check_installed()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # no window, no global state: safe in servers and tests
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def save(figure: Figure, path: Path) -> Path:
    """Write a PNG, whole or not at all."""
    content = BytesIO()
    figure.savefig(content, format="png", dpi=130)
    write_atomically(path, content.getvalue())
    return path
