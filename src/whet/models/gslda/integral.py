"""Integral images of training patches, and the protocol that every feature family follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from whet._kernels.pixel_sums import integrate_stack, stack_factors
from whet._kernels.window_scan import OPENCV_MIN_SIGMA
from whet.arrays import UInt32s


def patch_integrals(patches: NDArray[np.uint8]) -> tuple[UInt32s, UInt32s]:
    """Sums and sums of squares of patches (samples, height, width), each as (pixels, samples).

    Pixel (y, x) of the (height + 1) x (width + 1) integral image is row y (width + 1) + x. Samples lie side
    by side in memory, so that one feature is evaluated on many of them at once.

    >>> sums, squares = patch_integrals(np.full((2, 1, 2), 3, dtype=np.uint8))
    >>> sums[:, 0].reshape(2, 3)
    array([[0, 0, 0],
           [0, 3, 6]], dtype=uint32)
    """
    patches = np.ascontiguousarray(patches, dtype=np.uint8)
    n, height, width = patches.shape
    sums = np.zeros(((height + 1) * (width + 1), n), dtype=np.uint32)
    squares = np.zeros_like(sums)
    integrate_stack(patches, sums, squares)
    return sums, squares


def tilted_integrals(patches: NDArray[np.uint8]) -> UInt32s:
    """Sums over triangles of patches (samples, height, width), as (pixels, samples), for rectangles at 45 degrees.

    Pixel (Y, X) of the integral image is over y < Y and `|x - X + 1| <= Y - y - 1`, as OpenCV's `integral` has it. With
    a row more, a triangle gains the two diagonals that end in its lowest pixel.

    >>> tilted_integrals(np.array([[[1, 2, 4], [8, 16, 32]]], dtype=np.uint8))[:, 0].reshape(3, 4)
    array([[ 0,  0,  0,  0],
           [ 0,  1,  2,  4],
           [ 1, 11, 23, 38]], dtype=uint32)
    """
    n, height, width = patches.shape
    pixels = np.zeros((height, width + 1, n), dtype=np.uint32)  # the first column lies outside
    pixels[:, 1:] = patches.transpose(1, 2, 0)
    sums = np.zeros((height + 1, width + 1, n), dtype=np.uint32)
    from_left, from_right = np.zeros((2, width + 1, n), dtype=np.uint32)
    for y in range(height):
        from_left[1:], from_left[0] = from_left[:-1], 0
        from_right[:-1], from_right[-1] = from_right[1:], 0
        from_left += pixels[y]
        from_right += pixels[y]
        sums[y + 1] = sums[y] + from_left + from_right - pixels[y]
    return sums.reshape((height + 1) * (width + 1), n)


@dataclass(frozen=True, eq=False)
class IntegralStack:
    """Patches with their integral images, as features read them.

    `window` is the (height, width) of a patch, `sums` (pixels, samples) the integral images, `factors`
    (samples,) their normalisation. Detectors skip windows without `has_contrast` (samples,). `patches` (samples,
    height, width) are kept for `tilted`, which few features need.

    >>> stack = IntegralStack.from_patches(np.eye(4, dtype=np.uint8)[None] * 200)
    >>> stack.sums.shape, stack.factors, stack.has_contrast
    ((25, 1), array([0.0025], dtype=float32), array([ True]))
    """

    window: tuple[int, int]
    sums: UInt32s
    factors: NDArray[np.float32]
    has_contrast: NDArray[np.bool_]
    patches: NDArray[np.uint8]

    @classmethod
    def from_patches(cls, patches: NDArray[np.uint8], min_sigma: float = OPENCV_MIN_SIGMA) -> IntegralStack:
        """Integrate and normalise patches (samples, height, width) of at least 3 x 3 pixels."""
        if patches.ndim != 3 or min(patches.shape[1:]) < 3:
            raise ValueError(
                f"got patches of shape {patches.shape}; expected (samples, height, width), 3 x 3 or larger"
            )
        n, height, width = patches.shape
        sums, squares = patch_integrals(patches)
        factors, has_contrast = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.bool_)
        area = (height - 2) * (width - 2)
        stack_factors(sums, squares, _inner_corners(height, width), area, min_sigma, factors, has_contrast)
        return cls((height, width), sums, factors, has_contrast, patches)

    def __len__(self) -> int:
        return len(self.factors)

    @cached_property
    def tilted(self) -> UInt32s:
        """Integral images (pixels, samples) for rectangles at 45 degrees."""
        return tilted_integrals(self.patches)

    def take(self, samples: NDArray[np.bool_]) -> IntegralStack:
        """The patches where a mask (samples,) is true, in this order."""
        if samples.all():
            return self
        sums = np.compress(samples, self.sums, axis=1)
        columns = self.factors[samples], self.has_contrast[samples], self.patches[samples]
        return IntegralStack(self.window, sums, *columns)


def _inner_corners(height: int, width: int) -> NDArray[np.int64]:
    """Rows of `sums` at the corners of the inner rectangle (x = 1, y = 1, width - 2, height - 2)."""
    line = width + 1
    top, bottom = line, line * (height - 1)
    return np.array([top + 1, top + width - 1, bottom + 1, bottom + width - 1])


Indices = NDArray[np.intp] | slice
# Arrays by name, and their types: dtype, and shape of one row.
Columns = Mapping[str, NDArray[Any]]
ColumnTypes = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]


class FeatureFamily(Protocol):
    """A pool of features on windows of one size: how to enumerate them and how to evaluate them."""

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the windows that the features cover."""

    @property
    def categories(self) -> int | None:
        """How many codes the values are drawn from; None if values are numbers that can be thresholded."""

    def __len__(self) -> int: ...

    def take(self, indices: Indices) -> Self:
        """The features at these indices, in this order."""

    def evaluate(self, stack: IntegralStack) -> NDArray[Any]:
        """Values (features, samples), each row contiguous: float32, or uint8 codes of categories."""


class Corners(NamedTuple):
    """Where a scan reads the integral images: rows `y` and columns `x` (features, up to 16) of each corner.

    `weights` (features, up to 12) are whole numbers, and a value is the weighted sum; None for patterns of 3 x 3
    blocks, which have 4 x 4 corners. `channel` (features,) is the integral image: 0 sums, 2 tilted sums.
    """

    y: NDArray[np.integer]
    x: NDArray[np.integer]
    weights: NDArray[np.int32] | None
    channel: NDArray[np.int32]


class ScannedFamily(FeatureFamily, Protocol):
    """A family that can be saved and scanned: what an entry of `whet.models.gslda.pools.FAMILIES` needs.

    `categories` is the same for all pools of a family. `column_types` are the arrays of a file, in its order: a pool
    has an attribute of each name, with a row for each feature. `leaf_column_types` are those that only leaves of trees
    have.
    """

    categories: ClassVar[int | None]
    column_types: ClassVar[ColumnTypes]
    leaf_column_types: ClassVar[ColumnTypes]

    @classmethod
    def from_columns(cls, window: tuple[int, int], columns: Columns) -> Self:
        """Features from the columns of a file; raises ValueError for those that the window cannot have."""

    @property
    def channels(self) -> int:
        """Number of integral images that the scan needs: 2, sums and squares, or 3 with tilted sums."""

    def scan_corners(self) -> Corners:
        """Corners and weights of all features."""


def check_window(window: tuple[int, int], stack: IntegralStack) -> None:
    """Refuse patches that are not of the size that the features were made for."""
    if stack.window != window:
        got, expected = " x ".join(map(str, stack.window)), " x ".join(map(str, window))
        raise ValueError(f"got patches of {got} pixels for features of a {expected} window: resize the patches")
