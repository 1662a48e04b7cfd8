"""An OpenCV cascade as arrays: stages of trees over rectangle features or block patterns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from whet.features.lbp import BlockPatternPool
from whet.features.rectangle_pool import RectanglePool
from whet.model.cascade import MOST_PIXELS

Int32s = NDArray[np.int32]
Float32s = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Trees:
    """Decision trees one after the other, as arrays of all their nodes (nodes,) and leaves.

    A value below the threshold, or a code in the subset, goes left. A child above 0 is a node of the same tree, counted
    from its root; a child of 0 or less is leaf number -child of the tree. A tree of n nodes has n + 1 leaves, so that
    tree t begins at node `first[t]` and at leaf `first[t] + t`.
    """

    first: Int32s  # (trees + 1,)
    left: Int32s
    right: Int32s
    feature: Int32s
    threshold: Float32s
    subset: NDArray[np.uint64]  # (nodes, 4): 256 bits; all zero for numbers
    leaves: Float32s  # (nodes + trees,)

    def __post_init__(self) -> None:
        nodes = len(self.left)
        if not len(self) or self.first[0] != 0 or self.first[-1] != nodes or (np.diff(self.first) < 1).any():
            raise ValueError("every tree has at least one node, and there is at least one tree")
        if not all(len(column) == nodes for column in (self.right, self.feature, self.threshold, self.subset)):
            raise ValueError("every node has two children, a feature and a test")
        if len(self.leaves) != nodes + len(self):
            raise ValueError(
                f"got {len(self.leaves)} leaves of {len(self)} trees with {nodes} nodes: one more than nodes"
            )
        if not (np.isfinite(self.leaves).all() and np.isfinite(self.threshold).all()):
            raise ValueError("thresholds and leaf values must be finite numbers")
        self._check_children()

    def _check_children(self) -> None:
        """A node other than the root has at most one parent, and the root none: no walk from the root ever returns."""
        children = np.stack([self.left, self.right]).astype(np.int64)
        size = np.repeat(self.sizes, self.sizes)
        if (children >= size).any() or (-children > size).any():
            raise ValueError("a child is neither a node nor a leaf of its tree")
        inner = children > 0
        places = (children + np.repeat(self.first[:-1], self.sizes))[inner]
        if len(np.unique(places)) != len(places):
            raise ValueError("two nodes of a tree share a child: not a tree")

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def sizes(self) -> Int32s:
        """Nodes of each tree (trees,)."""
        return np.diff(self.first)

    @property
    def are_stumps(self) -> bool:
        """Whether all trees have one node."""
        return len(self.left) == len(self)


@dataclass(frozen=True, eq=False)
class OpenCVCascade:
    """Stages of trees on windows (height, width): stage s has the trees `first_tree[s]` to `first_tree[s + 1]`.

    A window passes a stage if the sum of its leaves, in double precision, is not below the stage's threshold.
    """

    features: RectanglePool | BlockPatternPool
    trees: Trees
    first_tree: Int32s  # (stages + 1,)
    threshold: Float32s  # (stages,): what the file says less OpenCV's margin of 1e-5, in float32

    def __post_init__(self) -> None:
        height, width = self.window
        if min(height, width) < 3 or height * width > MOST_PIXELS:
            raise ValueError(f"got a window of {width} x {height}; expected at least 3 x 3, and {MOST_PIXELS:,} pixels")
        stages = len(self.threshold)
        if not stages or len(self.first_tree) != stages + 1 or (np.diff(self.first_tree) < 1).any():
            raise ValueError("a cascade has at least one stage, and every stage at least one tree")
        if self.first_tree[0] != 0 or self.first_tree[-1] != len(self.trees):
            raise ValueError("the stages do not hold all the trees")
        if not np.isfinite(self.threshold).all():
            raise ValueError("the threshold of a stage must be a finite number")
        feature = self.trees.feature
        if (feature < 0).any() or (feature >= len(self.features)).any():
            worst = int(feature[np.argmax((feature < 0) | (feature >= len(self.features)))])
            raise ValueError(f"a node asks for feature {worst}; there are {len(self.features)}")

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the windows."""
        return self.features.window

    @property
    def family(self) -> str:
        """HAAR or LBP, as OpenCV names them."""
        return "HAAR" if isinstance(self.features, RectanglePool) else "LBP"

    @property
    def has_tilted(self) -> bool:
        """Whether some features need the tilted integral image."""
        return isinstance(self.features, RectanglePool) and bool(self.features.tilted.any())

    @cached_property
    def stages(self) -> list[slice]:
        """The trees of each stage."""
        return [slice(int(a), int(b)) for a, b in pairwise(self.first_tree)]

    def __len__(self) -> int:
        return len(self.threshold)
