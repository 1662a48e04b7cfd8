"""Negatives from pictures that do show the object: windows outside every box.

A box that is the object, or that is to be ignored, forbids all windows that show more than a little of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.detect.pyramid import Level
from whet.detect.scan import Scan
from whet.evaluate.overlap import areas
from whet.io.annotations.annotation import Annotations

Boxes = NDArray[np.float64]
Flags = NDArray[np.bool_]
Forbidden = Mapping[Path, Boxes]

# A window may lie in a box by this share of its own area. Intersection over union is never more than that share.
MOST_OVERLAP = 0.2
# Of a picture that is a crop of the object there is nothing left to look at.
MOST_COVERED = 0.8


def backgrounds_of(annotations: Annotations) -> dict[Path, Boxes]:
    """The pictures of a data set to mine, each with the boxes (n, 4) that no negative may show, ignored ones included.

    Pictures of which one box covers nearly all are left out, and so are those that are not complete.
    """
    return {
        picture.path: picture.boxes
        for picture in annotations.pictures
        if picture.is_complete
        and areas(picture.boxes).max(initial=0) <= MOST_COVERED * picture.shape[0] * picture.shape[1]
    }


def forbidden_places(level: Level, window: tuple[int, int], boxes: Boxes, most: float = MOST_OVERLAP) -> Flags:
    """Of each window (height, width) of a level, by the y and x of its top left pixel, whether a box forbids it.

    >>> level = Level(np.zeros((4, 10), dtype=np.uint8), scale_y=2.0, scale_x=2.0)
    >>> forbidden_places(level, (4, 4), np.array([[0.0, 0.0, 8.0, 8.0]])).astype(int)
    array([[1, 1, 1, 1, 0, 0, 0]])
    """
    height, width = window
    rows, columns = (max(side - length + 1, 0) for side, length in zip(level.picture.shape, window, strict=True))
    found = np.zeros((rows, columns), dtype=np.bool_)
    for x1, y1, x2, y2 in boxes.tolist():
        across = _shares(columns, width, level.scale_x, x1, x2)
        down = _shares(rows, height, level.scale_y, y1, y2)
        # A window's share of a box is the product of the two, so where either is small nothing is forbidden.
        y, x = np.flatnonzero(down > most), np.flatnonzero(across > most)
        if len(y) and len(x):
            part = found[y[0] : y[-1] + 1, x[0] : x[-1] + 1]
            part |= np.outer(down[y], across[x]) > most
    return found


def _shares(n: int, length: int, scale: float, low: float, high: float) -> NDArray[np.float64]:
    """Share of each of n windows of a length, side by side, that lies between two places of the picture."""
    start = np.arange(n) * scale
    common = np.minimum(start + length * scale, high) - np.maximum(start, low)
    return np.asarray(np.clip(common, 0, None) / (length * scale))


def without_forbidden(
    scans: Sequence[Scan], levels: Sequence[Level], window: tuple[int, int], boxes: Boxes, step: int = 1
) -> list[Scan]:
    """Scans of the levels of a picture without what its boxes forbid.

    A scan does not tell which windows it looked at. Those forbidden are taken to have contrast as often as the others.
    """
    if not len(boxes):
        return list(scans)
    return [
        _without(scan, forbidden_places(level, window, boxes), step) for scan, level in zip(scans, levels, strict=True)
    ]


def _without(scan: Scan, forbidden: Flags, step: int) -> Scan:
    free = ~forbidden[scan.y, scan.x]
    places = forbidden[::step, ::step]
    left = 1.0 if not places.size else 1 - float(places.mean())
    n_looked_at = max(round(scan.n_looked_at * left), int(free.sum()))
    return replace(
        scan,
        y=scan.y[free],
        x=scan.x[free],
        scores=scan.scores[free],
        n_windows=round(scan.n_windows * left),
        n_looked_at=n_looked_at,
    )
