"""Matplotlib figures (extra `plots`), the curves of an evaluation, and its report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from whet.errors import MissingExtraError
from whet.evaluation.evaluation import Curve, average_precision
from whet.io.files import prepared_folder, write_atomically
from whet.plots.drawing import (
    FALSE_POSITIVE,
    MISSED,
    check_none_replaced,
    contact_sheet,
    draw_evaluation,
    drawing_places,
    save_image,
    score_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from whet.evaluation.runs import EvaluationRun

BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#1f5fa8", "#e07b00", "#2a8c4a", "#c0392b", "#7d4fa0", "#777777"
COLORS = (BLUE, ORANGE, GREEN, RED, PURPLE, GREY)


def check_installed() -> None:
    """Raise `MissingExtraError` if matplotlib is not installed; call it before a long computation."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plots")


def new_figure(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:  # noqa: ANN401
    """Create a figure of width x height inches, and its (rows, columns) array of axes."""
    check_installed()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # without a window or global state: safe in servers and tests
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as a PNG file, atomically."""
    content = BytesIO()
    figure.savefig(content, format="png", dpi=130)
    write_atomically(path, content.getvalue())
    return path


def draw_roc(curves: Mapping[str, Curve], path: Path, axis: Literal["linear", "log"] = "linear") -> Path:
    """Plot recall against the number of false positives in all images, one line per named curve, as a PNG file.

    On a log axis, zero false positives are drawn at 0.5.

    >>> import tempfile
    >>> from whet.evaluation.evaluation import sweep
    >>> swept = sweep([3.0, 2.0, 1.0], [1, 0, 1], n_truths=2, n_images=1)
    >>> draw_roc({"ours": swept}, Path(tempfile.mkdtemp()) / "roc.png", axis="log").name
    'roc.png'
    """
    figure, axes = new_figure(1, 1, 5.6, 4.2)
    panel = axes[0, 0]
    for number, (name, curve) in enumerate(curves.items()):
        x = np.maximum(curve.false_positives, 0.5) if axis == "log" else curve.false_positives
        panel.step(x, curve.recall, where="post", label=name, color=COLORS[number % len(COLORS)], linewidth=1.6)
    panel.set(xscale=axis, xlabel="false positives in all images", ylabel="recall")
    _finish(panel)
    return save(figure, path)


def draw_precision_recall(curves: Mapping[str, Curve], path: Path) -> Path:
    """Plot precision against recall as a PNG file; the legend has the average precision of each curve."""
    figure, axes = new_figure(1, 1, 5.6, 4.2)
    panel = axes[0, 0]
    for number, (name, curve) in enumerate(curves.items()):
        label = f"{name} ({average_precision(curve):.3f})"
        panel.step(curve.recall, curve.precision, where="pre", label=label, color=COLORS[number % len(COLORS)])
    panel.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    _finish(panel)
    return save(figure, path)


def _finish(panel: Any) -> None:  # noqa: ANN401 - matplotlib has no types
    if panel.lines:
        panel.legend(fontsize=8)
    panel.grid(alpha=0.3)


FILES = ("evaluation.json", "roc.png", "precision-recall.png", "misses.png", "false-positives.png")


def check_places(images: Sequence[Path], report: Path | None, drawn: Path | None) -> None:
    """Raise `WhetError` if a report, or drawn images, in these directories would overwrite an image."""
    if report is not None:
        check_none_replaced([report / name for name in FILES], images)
    if drawn is not None:
        drawing_places(drawn, images)


def write_report(run: EvaluationRun, folder: Path, name: str, numbers: Mapping[str, Any]) -> tuple[list[Path], str]:
    """Write evaluation.json, roc.png, precision-recall.png, misses.png and false-positives.png.

    Returns the files, and a message if matplotlib is missing and the curves were not drawn. A sheet without mistakes is
    not written, and an old one is deleted.
    """
    prepared_folder(folder)
    summary = folder / "evaluation.json"
    write_atomically(summary, (json.dumps(numbers, indent=1) + "\n").encode())
    written, fault = [summary], ""
    try:
        check_installed()
        curves = {name: run.evaluation.curve}
        written.append(draw_roc(curves, folder / "roc.png"))
        written.append(draw_precision_recall(curves, folder / "precision-recall.png"))
    except MissingExtraError as error:
        fault = str(error)
    sheets = {
        "misses.png": (run.evaluation.worst_misses(run.threshold), MISSED, "missed"),
        "false-positives.png": (run.evaluation.worst_false_positives(run.threshold), FALSE_POSITIVE, "false positive"),
    }
    for file, (mistakes, color, what) in sheets.items():
        if mistakes:
            captions = []
            for mistake in mistakes:  # a miss that was detected below the threshold has the score of that detection
                score = f" {score_text(mistake.score)}" if isfinite(mistake.score) else ""
                between = ", score" if score and what == "missed" else ""
                captions.append(f"{what}{between}{score}\n{run.paths[mistake.image].name}")
            sheet = contact_sheet(run.paths, mistakes, color=color, captions=captions)
            written.append(save_image(sheet, folder / file))
        else:
            (folder / file).unlink(missing_ok=True)
    return written, fault


def draw_results(run: EvaluationRun, folder: Path) -> None:
    """Draw detections and mistakes on each image of an evaluation, as PNG files in a directory."""
    places = drawing_places(folder, run.paths)
    prepared_folder(folder)
    for path, place, result in zip(run.paths, places, run.evaluation.images, strict=True):
        save_image(draw_evaluation(path, result, run.threshold), place)
