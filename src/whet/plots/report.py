"""Curves and images of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import numpy as np

from whet.errors import MissingExtraError
from whet.evaluation.curves import Curve, average_precision
from whet.evaluation.evaluation import Mistake
from whet.evaluation.runs import EvaluationRun
from whet.io.files import write_atomically
from whet.io.images import GreyFiles
from whet.plots.drawing import (
    FALSE_POSITIVE,
    MISSED,
    check_none_replaced,
    contact_sheet,
    drawing_places,
    result_drawn,
    save_image,
)
from whet.plots.figure import COLORS, check_installed, new_figure, prepared_folder, save

Axis = Literal["linear", "log"]
Unit = Literal["recall", "found"]


def draw_roc(curves: Mapping[str, Curve], path: Path, axis: Axis = "linear", unit: Unit = "recall") -> Path:
    """Faces found against false positives in all images together, as a PNG; one line for each named curve.

    `unit` is the share of the truths or their number. On a log axis what was found without any false positive stands at
    the left edge, at half a false positive.

    >>> import tempfile
    >>> from whet.evaluation.curves import sweep
    >>> swept = sweep([3.0, 2.0, 1.0], [1, 0, 1], n_truths=2, n_images=1)
    >>> draw_roc({"ours": swept}, Path(tempfile.mkdtemp()) / "roc.png", axis="log").name
    'roc.png'
    """
    figure, axes = new_figure(1, 1, 5.6, 4.2)
    panel = axes[0, 0]
    for number, (name, curve) in enumerate(curves.items()):
        x = np.maximum(curve.false_positives, 0.5) if axis == "log" else curve.false_positives
        y = curve.recall if unit == "recall" else curve.found
        panel.step(x, y, where="post", label=name, color=COLORS[number % len(COLORS)], linewidth=1.6)
    panel.set_xscale(axis)
    panel.set_xlabel("false positives in all images")
    panel.set_ylabel("recall" if unit == "recall" else "found")
    _finish(panel)
    return save(figure, path)


def draw_precision_recall(curves: Mapping[str, Curve], path: Path) -> Path:
    """Precision against recall as a PNG; the legend has the average precision of each named curve."""
    figure, axes = new_figure(1, 1, 5.6, 4.2)
    panel = axes[0, 0]
    for number, (name, curve) in enumerate(curves.items()):
        label = f"{name} ({average_precision(curve):.3f})"
        panel.step(curve.recall, curve.precision, where="pre", label=label, color=COLORS[number % len(COLORS)])
    panel.set_xlabel("recall")
    panel.set_ylabel("precision")
    panel.set_xlim(0, 1)
    panel.set_ylim(0, 1.02)
    _finish(panel)
    return save(figure, path)


def _finish(panel: Any) -> None:  # noqa: ANN401 - matplotlib has no types
    if panel.lines:
        panel.legend(fontsize=8)
    panel.grid(alpha=0.3)


FILES = ("evaluation.json", "roc.png", "precision-recall.png", "misses.png", "false-positives.png")


def check_places(images: Sequence[Path], report: Path | None, drawn: Path | None) -> None:
    """Raise a `WhetError` where a report, or drawn images, in these folders would replace one of the images."""
    if report is not None:
        check_none_replaced([report / name for name in FILES], images)
    if drawn is not None:
        drawing_places(drawn, images)


def write_report(run: EvaluationRun, folder: Path, name: str, numbers: Mapping[str, Any]) -> tuple[list[Path], str]:
    """Write evaluation.json, roc.png, precision-recall.png, misses.png and false-positives.png; returns the files.

    Without matplotlib there are no curves; why is then returned, too. A sheet of no mistakes is not written, and an
    old one is taken away.
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
    images = GreyFiles(run.paths)
    sheets = {
        "misses.png": (run.evaluation.worst_misses(run.threshold), MISSED, "missed"),
        "false-positives.png": (run.evaluation.worst_false_positives(run.threshold), FALSE_POSITIVE, "false positive"),
    }
    for file, (mistakes, color, what) in sheets.items():
        if mistakes:
            captions = [_caption(mistake, run.paths, what) for mistake in mistakes]
            sheet = contact_sheet(images, mistakes, color=color, captions=captions)
            written.append(save_image(sheet, folder / file))
        else:
            (folder / file).unlink(missing_ok=True)
    return written, fault


def _caption(mistake: Mistake, paths: Sequence[Path], what: str) -> str:
    """The image, what is wrong there, and the score; of a miss, that of the box which is below the threshold."""
    score = f" {mistake.score:.4g}" if isfinite(mistake.score) else ", no box"
    return f"{paths[mistake.image].name}\n{what}{score}"


def draw_results(run: EvaluationRun, folder: Path, tell: Callable[[float], None] = lambda _: None) -> None:
    """Draw what was found, missed and falsely found into each image, as PNG files in a folder."""
    images, places = GreyFiles(run.paths), drawing_places(folder, run.paths)
    prepared_folder(folder)
    for number, (place, result) in enumerate(zip(places, run.evaluation.images, strict=True)):
        save_image(result_drawn(images[number], result, run.threshold), place)
        tell((number + 1) / len(places))
