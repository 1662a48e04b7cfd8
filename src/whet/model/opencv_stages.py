"""An OpenCV cascade of stumps as stages of ours: the same windows pass, and what they answer can be counted.

A stump of OpenCV's adds one of two leaves. It is a response in {0, 1} whose weight is the difference of the leaves;
what all windows get in any case is taken off the threshold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whet.errors import CannotConvertError
from whet.features.rectangle_pool import RectanglePool
from whet.features.stump_training import TrainedStumps
from whet.features.subset_training import TrainedSubsets
from whet.features.weak_training import TrainedWeak
from whet.model.opencv_cascade import OpenCVCascade
from whet.model.stage import Stage

INSTEAD = "run it as OpenCV does, with whet.opencv.CascadeClassifier"


def stages_of(cascade: OpenCVCascade) -> tuple[Stage, ...]:
    """Fixed stages that accept the windows that OpenCV's stages accept.

    Sums are the same numbers, added in another order: a window whose sum is within 1e-14 of a threshold may be judged
    otherwise. Raises `CannotConvertError` for trees, tilted features and weights that are not whole.

    >>> from whet.model.opencv_cascade import Trees
    >>> boxes = np.array([[[0, 0, 4, 4], [2, 0, 2, 4], [0, 0, 0, 0]]], dtype=np.int32)
    >>> pool = RectanglePool((4, 4), boxes, np.array([[-1, 2, 0]], dtype=np.float32), np.array([False]))
    >>> ints, floats = (lambda *v: np.array(v, dtype=np.int32)), (lambda *v: np.array(v, dtype=np.float32))
    >>> stump = Trees(ints(0, 1), ints(0), ints(-1), ints(0), floats(0.5), np.zeros((1, 4), np.uint64), floats(-1, 2))
    >>> stage, = stages_of(OpenCVCascade(pool, stump, ints(0, 1), floats(1)))
    >>> stage.coef, round(stage.threshold, 6)
    (array([3.]), 2.0)
    """
    _check(cascade)
    trees = cascade.trees
    leaves = trees.leaves.astype(np.float64).reshape(-1, 2)
    # A code of the subset goes left, and so does a value below the threshold; responses are 1 for the code, and for
    # a value that is not below.
    zero, one = (leaves[:, 1], leaves[:, 0]) if cascade.family == "LBP" else (leaves[:, 0], leaves[:, 1])
    stages = []
    for threshold, rows in zip(cascade.threshold.astype(np.float64), cascade.stages, strict=True):
        above = _just_below(float(threshold - zero[rows].sum()))
        features = cascade.features.take(trees.feature[rows].astype(np.intp))
        stages.append(Stage(features, _weak(cascade, rows), one[rows] - zero[rows], above))
    return tuple(stages)


def _check(cascade: OpenCVCascade) -> None:
    pool = cascade.features
    fault = ""
    if not cascade.trees.are_stumps:
        fault = f"trees of up to {int(cascade.trees.sizes.max())} nodes"
    elif cascade.has_tilted:
        fault = "tilted features"
    elif isinstance(pool, RectanglePool) and not pool.is_exact:
        fault = "rectangles whose weights are not whole numbers"
    if fault:
        raise CannotConvertError(f"the cascade has {fault}; a detector has stumps on upright features: {INSTEAD}")


def _weak(cascade: OpenCVCascade, rows: slice) -> TrainedWeak:
    n = rows.stop - rows.start
    learner, unknown = np.arange(n), np.full(n, np.nan)
    if cascade.family == "LBP":
        return TrainedSubsets(learner, cascade.trees.subset[rows], unknown)
    # Ours is above the threshold where OpenCV's is not below it.
    threshold: NDArray[np.float32] = np.nextafter(cascade.trees.threshold[rows], np.float32(-np.inf))
    return TrainedStumps(learner, threshold, np.ones(n, dtype=np.int8), unknown)


def _just_below(threshold: float) -> float:
    """OpenCV accepts a sum that equals the threshold, ours has to exceed it; with room for another order of adding."""
    return threshold - 1e-14 * max(abs(threshold), 1.0)
