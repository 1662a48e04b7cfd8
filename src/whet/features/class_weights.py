"""What a sample weighs when the error of a weak learner is counted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.features.sample_layout import SampleLayout

Floats = NDArray[np.float64]


class ClassWeights(NamedTuple):
    """Weights as kernels take them, and their sum.

    Two numbers, what a positive and what a negative weighs, or one for every sample, positives first. An
    error that a kernel counts, over `total`, is a share of 1.
    """

    weights: Floats
    total: float


def class_weights(layout: SampleLayout, weights: Floats | None, balanced: bool) -> ClassWeights:
    """Weights of samples (samples,), or equal ones; if balanced, each class weighs one half in all.

    A plain count of errors gives useless stumps, the same answer for nearly all, when negatives outnumber
    positives by ten to one. Equal weights are whole numbers, so that errors are exact and ties are seen.

    >>> class_weights(SampleLayout.of(np.array([True, False, False])), None, balanced=True)
    ClassWeights(weights=array([2., 1.]), total=4.0)
    """
    if weights is None:
        ones, zeros = layout.n_positive, layout.n_negative
        of_classes = np.array([zeros, ones] if balanced else [1, 1], dtype=np.float64)
        return ClassWeights(of_classes, float(of_classes @ [ones, zeros]))
    ordered = _checked(weights, len(layout))[layout.order]
    if balanced:
        ordered[: layout.n_positive] /= 2 * ordered[: layout.n_positive].sum()
        ordered[layout.n_positive :] /= 2 * ordered[layout.n_positive :].sum()
    return ClassWeights(ordered, float(ordered.sum()))


def _checked(weights: Floats, n: int) -> Floats:
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not np.all(np.isfinite(weights) & (weights >= 0)):
        raise ValueError(f"got weights of shape {weights.shape}; expected {n} finite numbers, none below zero")
    return weights
