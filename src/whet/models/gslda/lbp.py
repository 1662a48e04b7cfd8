"""Multi-block local binary patterns (Zhang et al., 2007), the categorical family of OpenCV's LBP cascades."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.pixel_sums import block_codes
from whet.models.gslda.haar import boxes, check_boxes
from whet.models.gslda.integral import Columns, ColumnTypes, Corners, Indices, IntegralStack, check_window

Int16s = NDArray[np.int16]

CODES = 256
STEPS = np.arange(4, dtype=np.int32)


class BlockPattern(NamedTuple):
    """One feature in words: where its 3 x 3 blocks begin, and the size of a single block."""

    x: int
    y: int
    block_width: int
    block_height: int


@dataclass(frozen=True, eq=False)
class BlockPatternPool:
    """Patterns of 3 x 3 equal blocks on a window (height, width), as arrays (features,).

    A code has a bit for each of the eight outer blocks, set where it is at least as bright as the centre.
    Ordered by height, y, width and x, x fastest.

    >>> pool = BlockPatternPool.from_window((24, 24))
    >>> len(pool), pool.describe(0)
    (8464, BlockPattern(x=0, y=0, block_width=1, block_height=1))
    """

    window: tuple[int, int]
    x: Int16s
    y: Int16s
    block_width: Int16s
    block_height: Int16s

    categories: ClassVar[int | None] = CODES  # codes are names, not numbers: a weak learner is a set of them
    channels: ClassVar[int] = 2
    column_types: ClassVar[ColumnTypes] = dict.fromkeys(
        ("x", "y", "block_width", "block_height"), (np.dtype(np.int16), ())
    )
    leaf_column_types: ClassVar[ColumnTypes] = {}

    @classmethod
    def from_columns(cls, window: tuple[int, int], columns: Columns) -> BlockPatternPool:
        """Features from the columns of a file; raises ValueError for those that the window cannot have."""
        x, y, width, height = (columns[name] for name in cls.column_types)
        check_boxes(window, x, y, width.astype(np.int64) * 3, height.astype(np.int64) * 3, np.full((len(x), 2), 3))
        return cls(window, x, y, width, height)

    @classmethod
    def from_window(cls, window: tuple[int, int]) -> BlockPatternPool:
        """All patterns that fit into a window (height, width)."""
        x, y, width, height = boxes(window, (3, 3))
        return cls(window, x, y, width // 3, height // 3)

    def __len__(self) -> int:
        return len(self.x)

    def take(self, indices: Indices) -> BlockPatternPool:
        """The features at these indices, in this order."""
        columns = (self.x, self.y, self.block_width, self.block_height)
        return BlockPatternPool(self.window, *(column[indices] for column in columns))

    def describe(self, i: int) -> BlockPattern:
        """Place and block size of feature i."""
        columns = (self.x, self.y, self.block_width, self.block_height)
        return BlockPattern(*(int(column[i]) for column in columns))

    def corners(self) -> NDArray[np.int32]:
        """Pixels of the integral image at the corners of the blocks (features, 4, 4)."""
        x = self.x[:, None] + self.block_width[:, None] * STEPS
        y = self.y[:, None] + self.block_height[:, None] * STEPS
        return y[:, :, None] * np.int32(self.window[1] + 1) + x[:, None, :]

    def scan_corners(self) -> Corners:
        """Corners as the scan reads them, without weights."""
        y, x = np.divmod(self.corners().reshape(len(self), -1), self.window[1] + 1)
        return Corners(y, x, None, np.zeros(len(self), dtype=np.int32))

    def evaluate(self, stack: IntegralStack) -> NDArray[np.uint8]:
        """Codes (features, samples), the top left block in the highest bit, then clockwise.

        >>> patch = np.array([[[9, 0, 0], [0, 5, 0], [0, 0, 0]]], dtype=np.uint8)
        >>> BlockPatternPool.from_window((3, 3)).evaluate(IntegralStack.from_patches(patch))
        array([[128]], dtype=uint8)
        """
        check_window(self.window, stack)
        codes = np.empty((len(self), len(stack)), dtype=np.uint8)
        block_codes(stack.sums, self.corners(), codes)
        return codes
