"""Features and weak learners as named columns: what a base is hashed by and what its file holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.features.haar import PARTS, HaarPool
from whet.features.integral import FeatureFamily
from whet.features.lbp import BlockPatternPool
from whet.features.rectangles import RECTANGLES, RectanglePool
from whet.features.weak_learners import LeafPool, Leaves, Stumps, Subsets, WeakLearners, conditions_of

Columns = Mapping[str, NDArray[Any]]

Layout = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]

# Name and dtype of every column, and the shape of one row. A column has a row for each weak learner; in families
# of leaves, for each of their conditions.
_BOX = dict.fromkeys(("x", "y"), (np.dtype(np.int16), ()))
_JOINS: Layout = {"joins": (np.dtype(np.uint8), ())}
LAYOUTS: dict[str, Layout] = {
    "haar": {
        "kind": (np.dtype(np.uint8), ()),
        **_BOX,
        **dict.fromkeys(("width", "height"), (np.dtype(np.int16), ())),
        "threshold": (np.dtype(np.float32), ()),
        "polarity": (np.dtype(np.int8), ()),
    },
    "lbp": {
        **_BOX,
        **dict.fromkeys(("block_width", "block_height"), (np.dtype(np.int16), ())),
        "subset": (np.dtype(np.uint64), (4,)),
    },
    "rectangles": {
        "boxes": (np.dtype(np.int16), (RECTANGLES, 4)),
        "weights": (np.dtype(np.float32), (RECTANGLES,)),
        "threshold": (np.dtype(np.float32), ()),
        "polarity": (np.dtype(np.int8), ()),
    },
}
# Leaves of a tree of n nodes have up to n^2 / 2 conditions. OpenCV's cascades have up to 6,000; more than this in all
# stages of a detector is somebody's attack.
MOST_CONDITIONS = 100_000
LEAVES = {"lbp leaves": "lbp", "rectangle leaves": "rectangles"}
LAYOUTS["lbp leaves"] = LAYOUTS["lbp"] | _JOINS
LAYOUTS["rectangle leaves"] = LAYOUTS["rectangles"] | {"tilted": (np.dtype(np.uint8), ())} | _JOINS


def family_name(features: FeatureFamily) -> str:
    """The name by which a file knows this family."""
    names = {HaarPool: "haar", BlockPatternPool: "lbp", RectanglePool: "rectangles"}
    if isinstance(features, LeafPool):
        return next(name for name, of in LEAVES.items() if of == names[type(features.conditions)])
    if type(features) not in names:
        raise TypeError(f"got features of type {type(features).__name__}; a detector is of Haar or LBP features")
    if isinstance(features, RectanglePool) and features.tilted.any():
        raise TypeError("got tilted features: a detector has those in leaves, be they of a single condition")
    return names[type(features)]


def columns_of(features: FeatureFamily, weak: WeakLearners) -> Columns:
    """Each column of the features and of their weak learners, by name, in the order of the layout.

    The weak learners' index into a training pool and their training errors are not among them: neither is run.

    >>> pool = BlockPatternPool.from_window((3, 3))
    >>> columns = columns_of(pool, Subsets(np.arange(1), np.ones((1, 4), np.uint64), np.zeros(1)))
    >>> {name: column.shape for name, column in columns.items()}
    {'x': (1,), 'y': (1,), 'block_width': (1,), 'block_height': (1,), 'subset': (1, 4)}
    """
    layout, sources = LAYOUTS[family_name(features)], (*conditions_of(features, weak)[:2], features)
    found = {name: next((getattr(s, name) for s in sources if hasattr(s, name)), None) for name in layout}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise TypeError(
            f"weak learners of type {type(weak).__name__} have no {missing[0]}: not made for these features"
        )
    return {name: np.ascontiguousarray(column, dtype=layout[name][0]) for name, column in found.items()}


def from_columns(family: str, window: tuple[int, int], columns: Columns) -> tuple[FeatureFamily, WeakLearners]:
    """Features and weak learners from their columns; raises ValueError on what no window could have."""
    if family in LEAVES:
        return _leaves(LEAVES[family], window, columns)
    return _plain(family, window, columns)


def _leaves(family: str, window: tuple[int, int], columns: Columns) -> tuple[LeafPool, Leaves]:
    joins = columns["joins"]
    if (joins > 1).any() or joins[-1] != 0:
        raise ValueError("a condition joins the next one (1) or is the last of its leaf (0), as the very last one is")
    first = np.concatenate([[0], np.flatnonzero(joins == 0) + 1])
    conditions, weak = _plain(family, window, columns)
    return LeafPool(conditions, first), Leaves(weak, first)


def _plain(family: str, window: tuple[int, int], columns: Columns) -> tuple[Any, Any]:
    T = len(next(iter(columns.values())))
    learner, unknown = np.arange(T), np.full(T, np.nan)
    if family == "rectangles":
        pool = RectanglePool(window, columns["boxes"].astype(np.int32), columns["weights"], _tilted(columns, T))
        if not pool.is_exact:
            raise ValueError("the weights of rectangles must be whole numbers, and their sums below 2^24")
        _check_stumps(columns["threshold"], columns["polarity"])
        return pool, Stumps(learner, columns["threshold"], columns["polarity"], unknown)
    place = columns["x"], columns["y"]
    if family == "haar":
        features = HaarPool(window, columns["kind"], *place, columns["width"], columns["height"])
        _check_boxes(window, *place, columns["width"], columns["height"], _parts(columns["kind"]))
        _check_stumps(columns["threshold"], columns["polarity"])
        return features, Stumps(learner, columns["threshold"], columns["polarity"], unknown)
    size = columns["block_width"].astype(np.int64) * 3, columns["block_height"].astype(np.int64) * 3
    patterns = BlockPatternPool(window, *place, columns["block_width"], columns["block_height"])
    _check_boxes(window, *place, *size, np.full((T, 2), 3))
    return patterns, Subsets(learner, columns["subset"], unknown)


def _tilted(columns: Columns, T: int) -> NDArray[np.bool_]:
    tilted = columns.get("tilted", np.zeros(T, dtype=np.uint8))
    if (tilted > 1).any():
        raise ValueError(f"whether a rectangle is tilted: got {tilted.max()}; expected 0 or 1")
    return tilted.astype(np.bool_)


def _parts(kind: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Into how many parts each box is divided, down and across (T, 2)."""
    if (kind >= len(PARTS)).any():
        raise ValueError(f"kind of a Haar feature: got {kind.max()}; expected 0 to {len(PARTS) - 1}")
    return PARTS[kind]


def _check_boxes(
    window: tuple[int, int],
    x: NDArray[Any],
    y: NDArray[Any],
    width: NDArray[Any],
    height: NDArray[Any],
    parts: NDArray[Any],
) -> None:
    # In 64 bits: x + width of two 16-bit columns can wrap around and seem to lie inside.
    x, y, width, height = (column.astype(np.int64) for column in (x, y, width, height))
    inside = (x >= 0) & (y >= 0) & (x + width <= window[1]) & (y + height <= window[0])
    divides = (height % parts[:, 0] == 0) & (width % parts[:, 1] == 0) & (width > 0) & (height > 0)
    for good, fault in ((inside, "not inside the window"), (divides, "not divisible into equal parts")):
        if not good.all():
            t = int(np.argmin(good))
            box = f"x={x[t]}, y={y[t]}, width={width[t]}, height={height[t]}"
            raise ValueError(f"feature {t} ({box}) is {fault} of {window[0]} x {window[1]} pixels")


def _check_stumps(threshold: NDArray[np.float32], polarity: NDArray[np.int8]) -> None:
    if not np.isfinite(threshold).all():
        raise ValueError(f"threshold of stump {int(np.argmin(np.isfinite(threshold)))} is not a finite number")
    if not (abs(polarity.astype(np.int64)) == 1).all():
        raise ValueError("the polarity of a stump is 1 or -1")
