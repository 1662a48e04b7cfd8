"""The table of feature families, and features and weak learners as named columns, which are hashed and saved."""

from __future__ import annotations

from collections import ChainMap
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from whet.models.contract import Area
from whet.models.gslda.integral import Columns, ColumnTypes, FeatureFamily, ScannedFamily
from whet.models.gslda.weak_learners import LeafPool, Leaves, Stumps, Subsets, WeakLearners, conditions_of


class Table(ChainMap[str, Any]):
    """Classes by name. A text is where a class is: a detector imports only those that it has."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a class of features
        found = super().__getitem__(name)
        if isinstance(found, str):
            module, _, kind = found.rpartition(".")
            found = self[name] = getattr(import_module(module), kind)
        return found

    def name_of(self, kind: type) -> str | None:
        """The name of a class, or None; imports nothing."""
        places = kind, f"{kind.__module__}.{kind.__qualname__}"
        return next((name for name in self if super(Table, self).__getitem__(name) in places), None)


_HAAR, _LBP = "whet.models.gslda.haar.HaarPool", "whet.models.gslda.lbp.BlockPatternPool"
_RECTANGLES = "whet.models.gslda.rectangles.RectanglePool"
# Names are those of the `features` setting and of model files.
TRAINABLE = Table({"haar": _HAAR, "lbp": _LBP})
# All families of a file: those that a training can select, and OpenCV's rectangles.
FAMILIES = Table({"rectangles": _RECTANGLES}, TRAINABLE.maps[0])
# Families whose features are conditions of leaves of trees.
LEAVES = Table({"lbp leaves": _LBP, "rectangle leaves": _RECTANGLES})
# Leaves of a tree of n nodes have up to n^2 / 2 conditions. OpenCV's cascades have up to 6,000; more than this in all
# stages of a detector is somebody's attack.
MOST_CONDITIONS = 100_000


def weak_type(family: type[ScannedFamily] | ScannedFamily) -> type[Stumps] | type[Subsets]:
    """The weak learners of a family: stumps on numbers, subsets of codes."""
    return Stumps if family.categories is None else Subsets


def family_name(features: FeatureFamily) -> str:
    """The name by which a file knows this family.

    >>> from whet.models.gslda.lbp import BlockPatternPool
    >>> family_name(BlockPatternPool.from_window((3, 3)))
    'lbp'
    """
    kind = type(features.conditions) if isinstance(features, LeafPool) else type(features)
    table = LEAVES if isinstance(features, LeafPool) else FAMILIES
    name = table.name_of(kind)
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

    >>> from whet.models.gslda.lbp import BlockPatternPool
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
    from whet.models.gslda.haar import HaarPool
    from whet.models.gslda.lbp import BlockPatternPool
    from whet.models.gslda.rectangles import RectanglePool

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
