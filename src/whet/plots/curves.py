"""Curves of one or more evaluations in one figure: ROC, and precision against recall."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from whet.evaluate.curves import Curve, average_precision
from whet.plots.figure import COLORS, new_figure, save

Axis = Literal["linear", "log"]
Unit = Literal["recall", "found"]


def draw_roc(curves: Mapping[str, Curve], path: Path, axis: Axis = "linear", unit: Unit = "recall") -> Path:
    """Faces found against false alarms in all pictures together, as a PNG; one line for each named curve.

    `unit` is the share of the truths or their number. On a log axis what was found without any false alarm stands at
    the left edge, at half a false alarm.

    >>> import tempfile
    >>> from whet.evaluate.curves import sweep
    >>> swept = sweep([3.0, 2.0, 1.0], [1, 0, 1], n_truths=2, n_pictures=1)
    >>> draw_roc({"ours": swept}, Path(tempfile.mkdtemp()) / "roc.png", axis="log").name
    'roc.png'
    """
    figure, axes = new_figure(1, 1, 5.6, 4.2)
    panel = axes[0, 0]
    for number, (name, curve) in enumerate(curves.items()):
        x = np.maximum(curve.false_alarms, 0.5) if axis == "log" else curve.false_alarms
        y = curve.recall if unit == "recall" else curve.found
        panel.step(x, y, where="post", label=name, color=COLORS[number % len(COLORS)], linewidth=1.6)
    panel.set_xscale(axis)
    panel.set_xlabel("false alarms in all pictures")
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
