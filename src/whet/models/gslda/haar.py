"""Haar features of up to four rectangles, and the enumeration of all boxes in a window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.pixel_sums import corner_values
from whet.arrays import Int32s
from whet.models.gslda.integral import Columns, ColumnTypes, Corners, Indices, IntegralStack, check_window

Ints = NDArray[np.int16]


def spans(length: int, parts: int) -> tuple[Ints, Ints]:
    """Sizes and starts of all intervals within `length` that divide into equal `parts`, shortest first.

    >>> spans(3, 1)
    (array([1, 1, 1, 2, 2, 3], dtype=int16), array([0, 1, 2, 0, 1, 0], dtype=int16))
    """
    sizes = np.arange(parts, length + 1, parts)
    places = length - sizes + 1
    starts = [np.arange(n) for n in places]
    empty = np.empty(0, dtype=np.int64)
    return np.repeat(sizes, places).astype(np.int16), np.concatenate([empty, *starts]).astype(np.int16)


def boxes(window: tuple[int, int], parts: tuple[int, int]) -> tuple[Ints, Ints, Ints, Ints]:
    """x, y, width and height of all boxes in a window (height, width) that divide into parts (down, across).

    Ordered by height, y, width and x, x fastest: neighbours share rows of corners, and so the cache.

    >>> x, y, width, height = boxes((1, 2), (1, 1))
    >>> list(zip(x.tolist(), width.tolist()))
    [(0, 1), (1, 1), (0, 2)]
    """
    heights, ys = spans(window[0], parts[0])
    widths, xs = spans(window[1], parts[1])
    down, across = len(heights), len(widths)
    return np.tile(xs, down), np.repeat(ys, across), np.tile(widths, down), np.repeat(heights, across)


def check_boxes(
    window: tuple[int, int],
    x: NDArray[np.integer],
    y: NDArray[np.integer],
    width: NDArray[np.integer],
    height: NDArray[np.integer],
    parts: NDArray[np.integer],
) -> None:
    """Raise ValueError unless all boxes (n,) lie in the window and divide into equal parts (n, 2), down and across."""
    # In 64 bits: x + width of two 16-bit columns can wrap around and seem to lie inside.
    x, y, width, height = (column.astype(np.int64) for column in (x, y, width, height))
    inside = (x >= 0) & (y >= 0) & (x + width <= window[1]) & (y + height <= window[0])
    divides = (height % parts[:, 0] == 0) & (width % parts[:, 1] == 0) & (width > 0) & (height > 0)
    for good, fault in ((inside, "not inside the window"), (divides, "not divisible into equal parts")):
        if not good.all():
            t = int(np.argmin(good))
            box = f"x={x[t]}, y={y[t]}, width={width[t]}, height={height[t]}"
            raise ValueError(f"feature {t} ({box}) is {fault} of {window[0]} x {window[1]} pixels")


Int16s = NDArray[np.int16]

# Four-rectangle features have 3 x 3 corners, three-rectangle ones 8, two-rectangle ones 6.
CORNERS = 9


class HaarKind(IntEnum):
    """How a feature divides its box, by OpenCV's names: the number of parts across (x) and down (y)."""

    X2 = 0
    Y2 = 1
    X3 = 2
    Y3 = 3
    X2_Y2 = 4


# Weights of the parts (down, across); a part's weight is their product. The weights of equal parts sum to
# zero, so that the mean brightness of a window does not matter. Signs are OpenCV's.
PATTERNS: dict[HaarKind, tuple[tuple[int, ...], tuple[int, ...]]] = {
    HaarKind.X2: ((1,), (-1, 1)),
    HaarKind.Y2: ((-1, 1), (1,)),
    HaarKind.X3: ((1,), (-1, 2, -1)),
    HaarKind.Y3: ((-1, 2, -1), (1,)),
    HaarKind.X2_Y2: ((-1, 1), (-1, 1)),
}
PARTS = np.array([[len(down), len(across)] for down, across in PATTERNS.values()], dtype=np.int32)


def _corner_grid(down: tuple[int, ...], across: tuple[int, ...]) -> Int32s:
    """Corners of a pattern as (steps down, steps across, weights) (3, 9); a step is the side of a part.

    Every part counts its end up and its start down, and where parts touch, these add up.
    """
    edges = [np.subtract([0, *parts], [*parts, 0]) for parts in (down, across)]
    steps = np.indices((len(edges[0]), len(edges[1]))).reshape(2, -1)
    grid = np.zeros((3, CORNERS), dtype=np.int32)
    grid[:, : steps.shape[1]] = *steps, np.outer(*edges).ravel()
    return grid


CORNER_GRIDS = np.array([_corner_grid(*pattern) for pattern in PATTERNS.values()])


class HaarFeature(NamedTuple):
    """One feature in words: its kind and the box it covers, in pixels of the window."""

    kind: str
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, eq=False)
class HaarPool:
    """Haar features on a window (height, width): kind and box of each, as arrays (features,).

    The full pool is ordered by kind, then height, y, width and x of the box, x fastest. The order is part of
    the format: an index means the same feature in every version.

    >>> pool = HaarPool.from_window((24, 24))
    >>> len(pool)
    162336
    >>> pool.describe(100_000)
    HaarFeature(kind='x3', x=6, y=0, width=15, height=8)
    """

    window: tuple[int, int]
    kind: NDArray[np.uint8]
    x: Int16s
    y: Int16s
    width: Int16s
    height: Int16s

    categories: ClassVar[int | None] = None  # values are numbers: thresholds make sense of them
    channels: ClassVar[int] = 2
    column_types: ClassVar[ColumnTypes] = {
        "kind": (np.dtype(np.uint8), ()),
        **dict.fromkeys(("x", "y", "width", "height"), (np.dtype(np.int16), ())),
    }
    leaf_column_types: ClassVar[ColumnTypes] = {}

    @classmethod
    def from_columns(cls, window: tuple[int, int], columns: Columns) -> HaarPool:
        """Features from the columns of a file; raises ValueError for those that the window cannot have."""
        kind, x, y, width, height = (columns[name] for name in cls.column_types)
        if (kind >= len(PARTS)).any():
            raise ValueError(f"kind of a Haar feature: got {kind.max()}; expected 0 to {len(PARTS) - 1}")
        check_boxes(window, x, y, width, height, PARTS[kind])
        return cls(window, kind, x, y, width, height)

    @classmethod
    def from_window(cls, window: tuple[int, int], kinds: Iterable[HaarKind] = HaarKind) -> HaarPool:
        """All features of these kinds that fit into a window (height, width), kinds in ascending order."""
        kinds = sorted(kinds)
        tables = [boxes(window, (len(PATTERNS[kind][0]), len(PATTERNS[kind][1]))) for kind in kinds]
        kind = np.repeat(np.array(kinds, dtype=np.uint8), [len(x) for x, *_ in tables])
        return cls(window, kind, *(np.concatenate(column) for column in zip(*tables, strict=True)))

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, indices: Indices | NDArray[np.bool_]) -> HaarPool:
        """The features at these indices, or where a mask is true, in this order."""
        box = (column[indices] for column in (self.x, self.y, self.width, self.height))
        return HaarPool(self.window, self.kind[indices], *box)

    def sample(self, n: int, rng: np.random.Generator) -> HaarPool:
        """`n` different features drawn at random, in the order of the pool.

        >>> len(HaarPool.from_window((12, 12)).sample(50, np.random.default_rng(0)))
        50
        """
        return self.take(np.sort(rng.choice(len(self), n, replace=False)))

    def describe(self, i: int) -> HaarFeature:
        """Kind and box of feature i."""
        box = (int(column[i]) for column in (self.x, self.y, self.width, self.height))
        return HaarFeature(HaarKind(self.kind[i]).name.lower(), *box)

    def draw(self, i: int) -> NDArray[np.uint8]:
        """Feature i as an image (height, width): white counts up, black counts down, grey not at all.

        >>> HaarPool.from_window((2, 3)).draw(0)
        array([[  0, 255, 128],
               [128, 128, 128]], dtype=uint8)
        """
        image = np.full(self.window, 128, dtype=np.uint8)
        for x, y, width, height, weight in self.parts(i):
            image[y : y + height, x : x + width] = 255 if weight > 0 else 0
        return image

    def parts(self, i: int) -> Iterator[tuple[int, int, int, int, int]]:
        """The rectangles of feature i, which do not overlap: x, y, width, height and weight."""
        feature = self.describe(i)
        down, across = PATTERNS[HaarKind(self.kind[i])]
        height, width = feature.height // len(down), feature.width // len(across)
        for row, weight_down in enumerate(down):
            for column, weight_across in enumerate(across):
                x, y = feature.x + column * width, feature.y + row * height
                yield x, y, width, height, weight_down * weight_across

    def corners(self) -> tuple[Int32s, Int32s]:
        """Pixels of the integral image and their weights, both (features, 9); unused ones weigh nothing.

        Where parts touch, their corners are merged: 6, 8 or 9 loads instead of 8, 12 or 16.
        """
        down, across, weights = CORNER_GRIDS[self.kind].transpose(1, 0, 2)
        parts_down, parts_across = PARTS[self.kind].T
        y = self.y[:, None] + (self.height // parts_down)[:, None] * down
        x = self.x[:, None] + (self.width // parts_across)[:, None] * across
        return y * np.int32(self.window[1] + 1) + x, np.ascontiguousarray(weights)

    def scan_corners(self) -> Corners:
        """Corners and weights as the scan reads them."""
        corners, weights = self.corners()
        return Corners(*np.divmod(corners, self.window[1] + 1), weights, np.zeros(len(self), dtype=np.int32))

    def evaluate(self, stack: IntegralStack) -> NDArray[np.float32]:
        """Normalised values (features, samples): weighted sums of pixels over (area sigma) of the window.

        >>> stripes = np.tile(np.array([0, 100, 0], dtype=np.uint8), (1, 3, 1))
        >>> HaarPool.from_window((3, 3), [HaarKind.X3]).evaluate(IntegralStack.from_patches(stripes))[:, 0]
        array([200., 200., 200., 400., 400., 600.], dtype=float32)
        """
        check_window(self.window, stack)
        values = np.empty((len(self), len(stack)), dtype=np.float32)
        corner_values(stack.sums, stack.factors, *self.corners(), values)
        return values
