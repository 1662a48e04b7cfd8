"""The window of a detector, chosen from the boxes of its object."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from whet.errors import TrainingDataError
from whet.evaluate.overlap import checked_boxes
from whet.model.reporting import Frame

Boxes = NDArray[np.float64]

# As many as the 24 x 24 of Viola and Jones: more show little more, and the pool of features grows with their square.
PIXELS = 576
# The side of a square of the fewest pixels in which an object can still be told.
LEAST_SIDE = 12.0
# Of the objects, one in ten may be smaller than the window.
SMALL = 10.0
# Longer shapes than these would leave a window of a few pixels across.
LONGEST = 6.0


@dataclass(frozen=True)
class WindowChoice:
    """A window's height and width, and the boxes that it was chosen from: how many, and their aspect ratios.

    `aspect` is width over height, the median of the boxes; from `aspect_low` to `aspect_high` lie eight in ten.
    `margin` is how much of a box's size is added on each side, to show what is around the object.

    >>> print(WindowChoice(16, 36, 550, 2.2, 1.9, 2.6))
    36 x 16 window from 550 boxes, aspect 2.2 (1.9 to 2.6)
    """

    height: int
    width: int
    n_boxes: int
    aspect: float
    aspect_low: float
    aspect_high: float
    margin: float = 0.0

    def __str__(self) -> str:
        margin = f", margin {self.margin:g}" if self.margin else ""
        return (
            f"{self.width} x {self.height} window from {self.n_boxes:,} boxes, aspect {self.aspect:.2g} "
            f"({self.aspect_low:.2g} to {self.aspect_high:.2g}){margin}"
        )

    @property
    def window(self) -> tuple[int, int]:
        """Height and width, as features and detectors take them."""
        return self.height, self.width

    @property
    def frame(self) -> Frame:
        """The box that a detector has to report for a window so that it fits the object, without the margin."""
        inset = self.margin / (1 + 2 * self.margin)
        return Frame(inset, inset, 1 - inset, 1 - inset)

    def windows(self, boxes: Boxes) -> Boxes:
        """The window (n, 4) around each box (n, 4): the shorter side grows about the centre, so no object is cut.

        >>> WindowChoice(24, 24, 1, 1.0, 1.0, 1.0).windows(np.array([[10.0, 20.0, 30.0, 60.0]]))
        array([[ 0., 20., 40., 60.]])
        """
        size = (boxes[:, 2:] - boxes[:, :2]) * (1 + 2 * self.margin)
        scale = (size / [self.width, self.height]).max(axis=1, keepdims=True)
        half = scale * [self.width, self.height] / 2
        centre = (boxes[:, :2] + boxes[:, 2:]) / 2
        return np.concatenate([centre - half, centre + half], axis=1)


def window_of(boxes: Boxes, *, pixels: int = PIXELS, margin: float = 0.0) -> WindowChoice:
    """Choose a window from boxes (n, 4): their median shape, of about `pixels`, or fewer if the objects are small.

    >>> cars = np.array([[0.0, 0.0, 100.0, 40.0]] * 50)
    >>> print(window_of(cars))
    38 x 15 window from 50 boxes, aspect 2.5 (2.5 to 2.5)
    >>> window_of(np.array([[0.0, 0.0, 80.0, 80.0]])).window
    (24, 24)
    """
    boxes = checked_boxes(boxes)
    size = boxes[:, 2:] - boxes[:, :2]
    size = size[(size > 0).all(axis=1)]
    if not len(size):
        raise TrainingDataError("there is no box to choose a window from; expected some hundred boxes of one object")
    if not 0 <= margin <= 1:
        raise ValueError(f"got margin={margin}; expected a share of the box's size from 0 to 1")
    ratios = np.log(size[:, 0] / size[:, 1])
    low, middle, high = np.percentile(ratios, [10, 50, 90]).tolist()
    aspect = exp(min(max(middle, -log(LONGEST)), log(LONGEST)))
    # The window grows around the box until it has this shape; small objects by that size, not by their own.
    scale = np.sqrt(np.maximum(size[:, 0] / aspect, size[:, 1]) ** 2 * aspect) * (1 + 2 * margin)
    side = min(sqrt(pixels), max(float(np.percentile(scale, SMALL)), LEAST_SIDE))
    return WindowChoice(
        round(side / sqrt(aspect)), round(side * sqrt(aspect)), len(size), exp(middle), exp(low), exp(high), margin
    )
