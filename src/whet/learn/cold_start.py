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

    `classes` are those named or seen so far, `counts` how often each came.

    >>> cold = ColdStart().with_samples(np.zeros((1, 2)), np.array([7]), np.array([1]), None)
    >>> cold.classes, cold.counts, cold.is_complete(1)
    (array([7]), array([1]), False)
    """

    blocks: tuple[Block, ...] = ()
    classes: NDArray[Any] = field(default_factory=lambda: np.array([]))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.array([], dtype=np.int64))

    def with_samples(
        self, X: NDArray[np.float64], y: NDArray[Any], weights: NDArray[np.int64], classes: ArrayLike | None
    ) -> ColdStart:
        """Gather one more block; `classes` names both classes before both have come."""
        seen = np.unique(np.concatenate([y, self.classes[self.counts > 0]])) if self.blocks else np.unique(y)
        named = self.classes if len(self.classes) == 2 else seen
        if classes is not None:
            named = two_classes(np.asarray(classes))
        if len(named) != 1:
            check_known(seen, two_classes(named))
        counts = np.array([weights[y == c].sum() + self.counts[self.classes == c].sum() for c in named])
        return ColdStart((*self.blocks, (X, y, weights)), named, counts)

    def batch(self) -> Block:
        """All that was gathered."""
        X, y, weights = (np.concatenate(parts) for parts in zip(*self.blocks, strict=True))
        return X, y, weights

    def is_complete(self, min_initial: int) -> bool:
        """Tell whether both classes came at least `min_initial` times."""
        return len(self.classes) == 2 and bool((self.counts >= min_initial).all())

    @property
    def prior(self) -> NDArray[np.float64]:
        """Probability of each class, with one pseudo-count each so that none is 0."""
        return np.asarray((self.counts + 1) / (self.counts + 1).sum())

    @property
    def log_odds(self) -> float:
        """Log odds of the prior; with one class known, certainly not another."""
        return -math.inf if len(self.classes) < 2 else float(np.log(self.prior[1] / self.prior[0]))
