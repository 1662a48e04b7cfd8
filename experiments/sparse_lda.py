"""Globally optimal sparse LDA on small pools (Moghaddam et al., 2006), as an oracle for greedy search.

The class separation of a set S of weak learners is d_S^T A_SS^-1 d_S, with A the within-class scatter plus the ridge
and d the difference of the class means. Adding a learner never decreases it. So branch and bound starts from all
learners and leaves them out one by one; a set that is already below the best known set of k is not continued.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from whet.lda.selection import Scatter

Floats = NDArray[np.float64]


def scatter_matrix(scatter: Scatter) -> Floats:
    """The matrix A (M, M) of a scatter, ridge included."""
    return np.stack([scatter.row(scatter.described(j)) for j in range(len(scatter.gap))])


def separation(A: Floats, d: Floats, chosen: NDArray[np.intp]) -> float:
    """Class separation of a set of weak learners.

    >>> separation(np.diag([1.0, 2.0]), np.array([1.0, 2.0]), np.array([0, 1]))
    3.0
    """
    return float(d[chosen] @ np.linalg.solve(A[np.ix_(chosen, chosen)], d[chosen]))


def exhaustive(A: Floats, d: Floats, k: int) -> tuple[float, tuple[int, ...]]:
    """Separation and members of the best set of k, by trying all sets."""
    sets = np.array(list(combinations(range(len(d)), k)))
    values = [separation(A, d, chosen) for chosen in sets]
    best = int(np.argmax(values))
    return values[best], tuple(sets[best].tolist())


@dataclass
class BranchAndBound:
    """Search for the best set of k; `n_sets` counts the sets that were evaluated.

    >>> search = BranchAndBound(2)
    >>> search.run(np.diag([1.0, 4.0, 1.0]), np.array([2.0, 2.0, 0.5]))
    (5.0, (0, 1))
    """

    k: int
    best: float = -np.inf
    members: tuple[int, ...] = ()
    n_sets: int = field(default=0, init=False)

    def run(self, A: Floats, d: Floats) -> tuple[float, tuple[int, ...]]:
        """Separation and members of the best set."""
        B: Floats = np.asarray(np.linalg.inv(A), dtype=np.float64)
        self._leave_out(list(range(len(d))), B, B @ d, float(d @ B @ d), 0)
        return self.best, tuple(sorted(self.members))

    def _leave_out(self, kept: list[int], B: Floats, w: Floats, value: float, first: int) -> None:
        """Try all ways to leave out members from position `first` on; B is the inverse of their scatter, w = B d."""
        self.n_sets += 1
        if len(kept) == self.k:
            if value > self.best:
                self.best, self.members = value, tuple(kept)
            return
        excess = len(kept) - self.k
        losses = w**2 / np.diagonal(B)
        # Positions that may still be left out, those of little loss first; those behind a position stay.
        order = [p for p in np.argsort(losses) if p >= first and len(kept) - p >= excess]
        for p in order:
            if value - losses[p] <= self.best:
                break
            others = np.arange(len(kept)) != p
            smaller = B[np.ix_(others, others)] - np.outer(B[others, p], B[p, others]) / B[p, p]
            weights = w[others] - B[others, p] * (w[p] / B[p, p])
            self._leave_out(kept[:p] + kept[p + 1 :], smaller, weights, value - float(losses[p]), int(p))
