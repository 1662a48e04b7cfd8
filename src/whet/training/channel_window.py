"""The window of a channel detector, chosen from boxes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from whet._kernels.channels import CELL
from whet.cascade.boxes import BoxOffset, checked_boxes
from whet.cascade.pyramid import Grid
from whet.errors import TrainingDataError
from whet.evaluation.advice import MANY_MISFITS
from whet.features.channels import PADDING

Boxes = NDArray[np.float64]

# Side of a square object in the window, in pixels; smaller where images would have to be enlarged more than twice.
OBJECT_SIDE = 48.0
MOST_ENLARGED = 2.0
# Context around the object on each side, as a share of the square root of its area.
CONTEXT = 0.2
# More than the padding of levels on both sides.
FEWEST_CELLS = 9
# Percentages of the objects that may be too small for the window, and for the largest level of a pyramid.
SMALL, SMALLEST = 5.0, 2.0
# Wider or higher objects are fitted by their longer side, others by their area.
LONG = 1.25
LONGEST = 6.0
# Boxes whose IoU with the object of the window stays below this cannot be found.
LEAST_FIT = 0.5


@dataclass(frozen=True)
class ChannelWindow:
    """A window (height, width) of whole cells, and the height and width of the object in its middle.

    `aspect` is the median width over height of the boxes; 80 % lie between `aspect_low` and `aspect_high`. `misfits`
    is the share of the boxes with another shape: their IoU with the object of the window around them is below 0.5.
    `min_size` is the longer side of the smallest objects to find, in pixels of an image.

    >>> print(ChannelWindow.from_boxes(np.array([[0.0, 0.0, 50.0, 100.0]] * 50)))
    52 x 88 window for objects of 34 x 68, from 50 boxes, aspect 0.5 (0.5 to 0.5)
    """

    height: int
    width: int
    object_height: float
    object_width: float
    n_boxes: int
    aspect: float
    aspect_low: float
    aspect_high: float
    min_size: float
    misfits: float = 0.0

    @classmethod
    def from_boxes(
        cls, boxes: Boxes, margin: float | None = None, window: tuple[int, int] | None = None
    ) -> ChannelWindow:
        """Choose a window by boxes (n, 4), with a margin as a share of the object; or fit it into a `window`."""
        size = checked_boxes(boxes)[:, 2:] - checked_boxes(boxes)[:, :2]
        size = size[(size > 0).all(axis=1)]
        if not len(size):
            raise TrainingDataError(
                "no box to choose a window from; expected boxes of one class, better 200 or more: add annotated images"
            )
        low, middle, high = np.percentile(np.log(size[:, 0] / size[:, 1]), [10, 50, 90]).tolist()
        aspect = exp(min(max(middle, -log(LONGEST)), log(LONGEST)))
        sides = np.sqrt(size.prod(axis=1))
        side = min(OBJECT_SIDE, MOST_ENLARGED * float(np.percentile(sides, SMALL)))
        inner = side / sqrt(aspect), side * sqrt(aspect)
        context = [CONTEXT * side if margin is None else margin * each for each in inner]
        cells = [max(FEWEST_CELLS, round((each + 2 * more) / CELL)) for each, more in zip(inner, context, strict=True)]
        if window is not None:
            cells = [max(FEWEST_CELLS, round(each / CELL)) for each in window]
            share = 1 + 2 * (CONTEXT if margin is None else margin)
            scale = min(CELL * n / (each * share) for n, each in zip(cells, inner, strict=True))
            side, inner = side * scale, (inner[0] * scale, inner[1] * scale)
        smallest = max(0.9 * float(np.percentile(sides, SMALLEST)), side / MOST_ENLARGED)
        chosen = cls(
            CELL * cells[0],
            CELL * cells[1],
            *inner,
            len(size),
            exp(middle),
            exp(low),
            exp(high),
            max(inner) * smallest / side,
        )
        return replace(chosen, misfits=float((chosen.fit(size) < LEAST_FIT).mean()))

    def __str__(self) -> str:
        return (
            f"{self.width} x {self.height} window for objects of {self.object_width:.0f} x {self.object_height:.0f}, "
            f"from {self.n_boxes:,} boxes, aspect {self.aspect:.2g} ({self.aspect_low:.2g} to {self.aspect_high:.2g})"
            + (f"; {self.misfits:.0%} of the boxes have too different a shape" if self.misfits >= MANY_MISFITS else "")
        )

    @property
    def window(self) -> tuple[int, int]:
        """Height and width, in the order of features and detectors."""
        return self.height, self.width

    @property
    def grid(self) -> Grid:
        """How windows lie on levels."""
        return Grid(CELL, PADDING, is_colour=True)

    @property
    def box_offset(self) -> BoxOffset:
        """The box to report for a window: the object without its context."""
        x, y = (1 - self.object_width / self.width) / 2, (1 - self.object_height / self.height) / 2
        return BoxOffset(x, y, 1 - x, 1 - y)

    def windows(self, boxes: Boxes) -> Boxes:
        """The window (n, 4) around each box (n, 4)."""
        half = self._scales(boxes[:, 2:] - boxes[:, :2])[:, None] * [self.width, self.height] / 2
        centre = (boxes[:, :2] + boxes[:, 2:]) / 2
        return np.concatenate([centre - half, centre + half], axis=1)

    def fit(self, sizes: Boxes) -> NDArray[np.float64]:
        """IoU (n,) of boxes of widths and heights (n, 2) with the objects of the windows around them."""
        found = self._scales(sizes)[:, None] * [self.object_width, self.object_height]
        common = np.minimum(sizes, found).prod(axis=1)
        return np.asarray(common / (sizes.prod(axis=1) + found.prod(axis=1) - common))

    def _scales(self, sizes: Boxes) -> NDArray[np.float64]:
        """Scales (n,) of the windows around boxes: long objects are fitted by their longer side, others by area."""
        shares = sizes / [self.object_width, self.object_height]
        aspect = self.object_width / self.object_height
        if aspect > LONG:
            return np.asarray(shares[:, 0])
        if aspect < 1 / LONG:
            return np.asarray(shares[:, 1])
        return np.asarray(np.sqrt(shares.prod(axis=1)))
