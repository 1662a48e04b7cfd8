"""Features of up to three weighted rectangles, upright or turned by 45 degrees: what OpenCV's Haar cascades hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from whet._kernels.pixel_sums import corner_values
from whet.models.gslda.integral import Columns, ColumnTypes, Corners, Indices, IntegralStack, check_window

Int32s = NDArray[np.int32]

RECTANGLES = 3
CORNERS = 4 * RECTANGLES
# Whole numbers below 2^24 are exact in float32, and so are their sums in any order.
EXACT = 2**24
# The third channel of the integral images of a scan.
TILTED = 2


@dataclass(frozen=True, eq=False)
class RectanglePool:
    """Weighted rectangles on a window (height, width): boxes (n, 3, 4) as x, y, width, height, and weights (n, 3).

    A `tilted` (n,) rectangle begins at its topmost corner (x, y) and runs `width` pixels down to the right and `height`
    pixels down to the left. Unused rectangles are all zero.

    >>> pool = RectanglePool((3, 4), np.array([[[0, 0, 4, 3], [2, 0, 2, 3], [0, 0, 0, 0]]], dtype=np.int32),
    ...                      np.array([[-1, 2, 0]], dtype=np.float32), np.array([False]))
    >>> patch = np.repeat(np.array([[[0, 0, 90, 90]]], dtype=np.uint8), 3, axis=1)
    >>> pool.evaluate(IntegralStack.from_patches(patch))
    array([[6.]], dtype=float32)
    """

    window: tuple[int, int]
    boxes: Int32s
    weights: NDArray[np.float32]
    tilted: NDArray[np.bool_]

    categories: ClassVar[int | None] = None  # values are numbers: thresholds make sense of them
    column_types: ClassVar[ColumnTypes] = {
        "boxes": (np.dtype(np.int16), (RECTANGLES, 4)),
        "weights": (np.dtype(np.float32), (RECTANGLES,)),
    }
    leaf_column_types: ClassVar[ColumnTypes] = {"tilted": (np.dtype(np.uint8), ())}

    @classmethod
    def from_columns(cls, window: tuple[int, int], columns: Columns) -> RectanglePool:
        """Features from the columns of a file; raises ValueError for those that the window cannot have."""
        boxes, weights = columns["boxes"].astype(np.int32), columns["weights"]
        tilted = columns.get("tilted", np.zeros(len(boxes), dtype=np.uint8))
        if (tilted > 1).any():
            raise ValueError(f"whether a rectangle is tilted: got {tilted.max()}; expected 0 or 1")
        pool = cls(window, boxes, weights, tilted.astype(np.bool_))
        if not pool.is_exact:
            raise ValueError("the weights of rectangles must be whole numbers, and their sums below 2^24")
        return pool

    def __post_init__(self) -> None:
        n = len(self.tilted)
        if self.boxes.shape != (n, RECTANGLES, 4) or self.weights.shape != (n, RECTANGLES):
            raise ValueError(f"got boxes {self.boxes.shape} and weights {self.weights.shape} of {n} features")
        if not np.isfinite(self.weights).all():
            raise ValueError("the weight of a rectangle must be a finite number")
        self._check_places()

    def _check_places(self) -> None:
        """Raise ValueError unless all corners lie inside the window."""
        height, width = self.window
        y, x = self.corner_places
        inside = ((y >= 0) & (y <= height) & (x >= 0) & (x <= width)).all(axis=-1)
        good = inside & (self.boxes[..., 2:] >= 0).all(axis=-1)
        if not good.all():
            feature, rectangle = np.argwhere(~good)[0].tolist()
            box = "x={}, y={}, width={}, height={}".format(*self.boxes[feature, rectangle].tolist())
            kind = "tilted " if self.tilted[feature] else ""
            raise ValueError(
                f"feature {feature} has a {kind}rectangle ({box}) outside the window of {width} x {height}"
            )

    @property
    def channels(self) -> int:
        """Integral images that the scan needs: sums and squares, and tilted sums for tilted features."""
        return TILTED + 1 if self.tilted.any() else TILTED

    def __len__(self) -> int:
        return len(self.tilted)

    def take(self, indices: Indices) -> RectanglePool:
        """The features at these indices, in this order."""
        return RectanglePool(self.window, self.boxes[indices], self.weights[indices], self.tilted[indices])

    @cached_property
    def corner_places(self) -> tuple[Int32s, Int32s]:
        """Rows and columns (n, 3, 4) of the integral image, upright or tilted, whose signed sum is the rectangle's."""
        x, y, width, height = np.moveaxis(self.boxes, -1, 0)
        upright_y, upright_x = np.stack([y, y, y + height, y + height]), np.stack([x, x + width, x, x + width])
        tilted_y = np.stack([y, y + height, y + width, y + width + height])
        tilted_x = np.stack([x, x - height, x + width, x + width - height])
        turned = self.tilted[:, None]
        rows, columns = np.where(turned, tilted_y, upright_y), np.where(turned, tilted_x, upright_x)
        return np.moveaxis(rows, 0, -1), np.moveaxis(columns, 0, -1)

    @cached_property
    def is_exact(self) -> bool:
        """Whether values are whole numbers that float32 holds, so that the order of the additions does not matter."""
        area = self.boxes[..., 2].astype(np.int64) * self.boxes[..., 3]
        area = np.where(self.tilted[:, None], 2 * area, area)
        # An empty rectangle sums to 0 whatever its weight; that has to be a number of a sensible size all the same.
        largest = 255.0 * (abs(self.weights.astype(np.float64)) * np.maximum(area, 1)).sum(axis=1)
        return bool((self.weights == np.rint(self.weights)).all() and (largest < EXACT).all())

    @cached_property
    def merged_corners(self) -> tuple[Int32s, Int32s, Int32s]:
        """Rows, columns and whole weights (n, 12) of the corners that count; where rectangles touch, they add up."""
        signs = np.array([1, -1, -1, 1])
        weights = (self.weights.astype(np.int64)[..., None] * signs).reshape(-1, CORNERS).tolist()
        rows, columns = (places.reshape(-1, CORNERS).tolist() for places in self.corner_places)
        merged = np.zeros((3, len(self), CORNERS), dtype=np.int32)
        for feature, corners in enumerate(zip(rows, columns, weights, strict=True)):
            sums: Counter[tuple[int, int]] = Counter()
            for y, x, weight in zip(*corners, strict=True):
                sums[y, x] += weight
            for k, ((y, x), weight) in enumerate(sorted(item for item in sums.items() if item[1])):
                merged[:, feature, k] = y, x, weight
        return merged[0], merged[1], merged[2]

    def scan_corners(self) -> Corners:
        """Corners and weights as the scan reads them."""
        return Corners(*self.merged_corners, np.where(self.tilted, TILTED, 0).astype(np.int32))

    def evaluate(self, stack: IntegralStack) -> NDArray[np.float32]:
        """Normalised values (features, samples), of rectangles with whole weights."""
        check_window(self.window, stack)
        if not self.is_exact:
            raise ValueError("the weights of rectangles are not whole numbers: their values depend on who adds them up")
        y, x, weights = self.merged_corners
        corners = y * np.int32(self.window[1] + 1) + x
        values = np.empty((len(self), len(stack)), dtype=np.float32)
        if not self.tilted.any():
            corner_values(stack.sums, stack.factors, corners, weights, values)
            return values
        for turned, sums in ((False, stack.sums), (True, stack.tilted)):
            rows = np.flatnonzero(self.tilted == turned)
            some = np.empty((len(rows), len(stack)), dtype=np.float32)
            corner_values(sums, stack.factors, corners[rows], weights[rows], some)
            values[rows] = some
        return values
