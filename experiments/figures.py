"""Figures of experiments: rows of a report as curves, in the looks that all figures share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from experiments.report import Row
from whet.io.files import prepared_folder
from whet.plots.figure import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, check_installed, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes


__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PURPLE",
    "RED",
    "check_installed",
    "curve",
    "new_figure",
    "prepared_folder",
    "save",
]


def curve(axes: Axes, rows: Iterable[Row], along: str, label: str, color: str, style: str = "-") -> None:
    """Mean against one entry of the setting, with the spread of the runs as a band."""
    points = sorted((row.setting[along], row.mean, row.std) for row in rows)
    if not points:
        return
    x, mean, std = zip(*points, strict=True)
    axes.plot(x, mean, style, color=color, label=label, linewidth=1.6, markersize=4)
    low = [m - s for m, s in zip(mean, std, strict=True)]
    high = [m + s for m, s in zip(mean, std, strict=True)]
    axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
