"""Samples gathered until both classes have come."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.learn.inputs import check_known, two_classes

Block = tuple[NDArray[np.float64], NDArray[Any], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class ColdStart:
    """Blocks of samples (X, y, weights) that came before there was anything to train on.

    >>> cold = ColdStart().with_samples(np.zeros((1, 2)), np.array([7]), np.array([1]), None)
    >>> cold.classes, cold.is_complete(1)
    (array([7]), False)
    """

    blocks: tuple[Block, ...] = ()
    classes: NDArray[Any] = field(default_factory=lambda: np.array([]))

    def with_samples(
        self, X: NDArray[np.float64], y: NDArray[Any], weights: NDArray[np.int64], classes: ArrayLike | None
    ) -> ColdStart:
        """Gather one more block; `classes` names both classes before both have come."""
        known = self.classes if len(self.classes) == 2 else None
        if known is None and classes is not None:
            known = two_classes(np.asarray(classes))
        if known is None:
            seen = np.unique(np.concatenate([y, *(labels for _, labels, _ in self.blocks)]))
            known = seen if len(seen) == 1 else two_classes(seen)
        if len(known) == 2:
            check_known(y, known)
        counted = weights > 0
        return ColdStart((*self.blocks, (X[counted], y[counted], weights[counted])), known)

    def batch(self) -> Block:
        """All that was gathered."""
        X, y, weights = (np.concatenate(parts) for parts in zip(*self.blocks, strict=True))
        return X, y, weights

    def class_count(self, classes: NDArray[Any]) -> NDArray[np.float64]:
        """How often each class came, with one pseudo-count each so that no prior is 0."""
        _, y, weights = self.batch()
        return np.array([1 + weights[y == c].sum() for c in classes], dtype=np.float64)

    def is_complete(self, min_initial: int) -> bool:
        """Tell whether both classes came at least `min_initial` times."""
        if len(self.classes) < 2:
            return False
        _, y, _ = self.batch()
        return all((y == c).sum() >= min_initial for c in self.classes)

    def log_odds(self, classes: NDArray[Any]) -> float:
        """Log odds of the prior; with one class known, certainly not the other."""
        if len(classes) < 2:
            return -math.inf
        negative, positive = self.class_count(classes)
        return math.log(positive / negative)
