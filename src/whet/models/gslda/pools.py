"""Pools of features but Haar: OpenCV's rectangles, local binary patterns, and the table of all feature families.

`columns_of` and `from_columns` give features and weak learners as named columns, which are hashed and saved.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.pixel_sums import block_codes, corner_values
from whet.arrays import Int32s
from whet.models.contract import Area
from whet.models.gslda.haar import HaarPool, boxes, check_boxes
from whet.models.gslda.integral import (
    Columns,
    ColumnTypes,
    Corners,
    FeatureFamily,
    Indices,
    IntegralStack,
    ScannedFamily,
    check_window,
)
from whet.models.gslda.weak_learners import LeafPool, Leaves, Stumps, Subsets, WeakLearners, conditions_of

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


# Names are those of the `features` setting and of model files.
TRAINABLE: dict[str, Any] = {"haar": HaarPool, "lbp": BlockPatternPool}
# All families of a file: those that a training can select, and OpenCV's rectangles.
FAMILIES = ChainMap({"rectangles": RectanglePool}, TRAINABLE)
# Families whose features are conditions of leaves of trees.
LEAVES: dict[str, Any] = {"lbp leaves": BlockPatternPool, "rectangle leaves": RectanglePool}
# Leaves of a tree of n nodes have up to n^2 / 2 conditions. OpenCV's cascades have up to 6,000; more than this in all
# stages of a detector is somebody's attack.
MOST_CONDITIONS = 100_000


def name_in(table: Mapping[str, Any], kind: type) -> str | None:
    """The name of a class in a table, or None."""
    return next((name for name, known in table.items() if known is kind), None)


def weak_type(family: type[ScannedFamily] | ScannedFamily) -> type[Stumps] | type[Subsets]:
    """The weak learners of a family: stumps on numbers, subsets of codes."""
    return Stumps if family.categories is None else Subsets


def family_name(features: FeatureFamily) -> str:
    """The name by which a file knows this family.

    >>> family_name(BlockPatternPool.from_window((3, 3)))
    'lbp'
    """
    kind = type(features.conditions) if isinstance(features, LeafPool) else type(features)
    table = LEAVES if isinstance(features, LeafPool) else FAMILIES
    name = name_in(table, kind)
    if name is None:
        raise TypeError(
            f"got features of type {kind.__name__}; expected a family that whet.models.gslda.pools lists: "
            f"{', '.join(table)}"
        )
    if name == "rectangles" and getattr(features, "tilted", np.False_).any():
        raise TypeError("got tilted features: a detector has those in leaves, be they of a single condition")
    return name


def family_names() -> list[str]:
    """All names that a file may have."""
    return [*FAMILIES, *LEAVES]


@cache
def layout_of(name: str) -> ColumnTypes:
    """Name and dtype of every column of a family, and the shape of one row.

    Columns of the family come first, then those of its weak learners, then those that only leaves have. A column has a
    row for each weak learner; in families of leaves, for each of their conditions.
    """
    family = LEAVES[name] if name in LEAVES else FAMILIES[name]
    types = {**family.column_types, **weak_type(family).column_types}
    return {**types, **family.leaf_column_types, "joins": (np.dtype(np.uint8), ())} if name in LEAVES else types


def n_rows(features: FeatureFamily, weak: WeakLearners) -> int:
    """Rows of the columns of features and weak learners."""
    return len(conditions_of(features, weak)[1])


def columns_of(features: FeatureFamily, weak: WeakLearners) -> Columns:
    """Each column of the features and of their weak learners, by name, in the order of the layout.

    The weak learners' index into a training pool and their training errors are not among them: neither is run.

    >>> pool = BlockPatternPool.from_window((3, 3))
    >>> columns = columns_of(pool, Subsets(np.arange(1), np.ones((1, 4), np.uint64), np.zeros(1)))
    >>> {name: column.shape for name, column in columns.items()}
    {'x': (1,), 'y': (1,), 'block_width': (1,), 'block_height': (1,), 'subset': (1, 4)}
    """
    layout, sources = layout_of(family_name(features)), (*conditions_of(features, weak)[:2], features)
    found = {name: next((getattr(s, name) for s in sources if hasattr(s, name)), None) for name in layout}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise TypeError(
            f"weak learners of type {type(weak).__name__} have no {missing[0]}: not made for these features"
        )
    return {name: np.ascontiguousarray(column, dtype=layout[name][0]) for name, column in found.items()}


def from_columns(name: str, window: tuple[int, int], columns: Columns) -> tuple[FeatureFamily, WeakLearners]:
    """Features and weak learners from their columns; raises ValueError on what no window could have."""
    if name not in LEAVES:
        return _conditions(FAMILIES[name], window, columns)
    joins = columns["joins"]
    if (joins > 1).any() or joins[-1] != 0:
        raise ValueError("a condition joins the next one (1) or is the last of its leaf (0), as the very last one is")
    first = np.concatenate([[0], np.flatnonzero(joins == 0) + 1])
    conditions, weak = _conditions(LEAVES[name], window, columns)
    return LeafPool(conditions, first), Leaves(weak, first)


def _conditions(family: type[ScannedFamily], window: tuple[int, int], columns: Columns) -> tuple[Any, Any]:
    return family.from_columns(window, columns), weak_type(family).from_columns(columns)


def areas_of(features: FeatureFamily, i: int) -> list[Area]:
    """The rectangles of feature i, with their weights; those of a pattern, and of unknown features, have none."""
    match features:
        case LeafPool():
            conditions = range(features.first[i], features.first[i + 1])
            return [area for condition in conditions for area in areas_of(features.conditions, condition)]
        case HaarPool():
            return [Area(*part) for part in features.parts(i)]
        case RectanglePool():
            parts = zip(features.boxes[i].tolist(), features.weights[i].tolist(), strict=True)
            tilted = bool(features.tilted[i])
            return [Area(x, y, width, height, weight, tilted) for (x, y, width, height), weight in parts]
        case BlockPatternPool():
            x, y, width, height = features.describe(i)
            return [
                Area(x + column * width, y + row * height, width, height) for row in range(3) for column in range(3)
            ]
    return [Area(0, 0, features.window[1], features.window[0])]
