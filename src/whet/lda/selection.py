"""Greedy selection of the weak learners that separate two classes best [ALG:GSLDA].

The separation of a set is J = g^T A^-1 g over its members, with the gap g = m_1 - m_2 and the regularised
scatter A. Selection reads A one row at a time, so it runs alike on statistics, on response matrices and on
anything else that gives the scatter of one weak learner with all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whet._kernels.lda import best_gain, invert, project_out
from whet._kernels.threads import for_each_block
from whet.lda.discriminant import Criterion, factorise, regularised_scatter
from whet.lda.statistics import ClassStatistics

Floats = NDArray[np.float64]
Search = Literal["forward", "forward-backward"]

# A candidate of which less than this share of its own scatter is left after projecting the selected ones out
# is a linear combination of them, up to the rounding of float64.
DEPENDENT = 1e-11
# Candidates a task of a round: 100 earlier rows of them are 13 MB, a millisecond's work.
PROJECTED_AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class Scatter:
    """What selection needs to know of M candidates: gap (M,), diagonal of A (M,), and any row of A (M,)."""

    gap: Floats
    diagonal: Floats
    row: Callable[[int], Floats]

    @classmethod
    def from_statistics(
        cls, positive: ClassStatistics, negative: ClassStatistics, criterion: Criterion, ridge: float
    ) -> Scatter:
        """From the statistics of two classes, without any sample."""
        A = regularised_scatter(positive, negative, criterion, ridge)
        return cls(positive.mean - negative.mean, np.diagonal(A), A.__getitem__)

    @classmethod
    def from_responses(
        cls,
        responses: NDArray[Any],
        is_positive: NDArray[np.bool_],
        weights: NDArray[np.int64],
        criterion: Criterion,
        ridge: float,
    ) -> Scatter:
        """From a response matrix (N, M), in O(N M) memory: rows of A are computed when needed.

        For binary responses the numbers are those of `from_statistics`, to the last bit.
        """
        of_class = _binary_rows if responses.dtype == np.uint8 else _centred_rows
        ones = of_class(responses[is_positive], weights[is_positive])
        zeros = of_class(responses[~is_positive], weights[~is_positive])
        fda = criterion == "fda"

        def row(j: int) -> Floats:
            total = ones.scatter_row(j) + zeros.scatter_row(j) if fda else ones.scatter_row(j)
            total[j] += ridge
            return total

        diagonal = ones.scatter_diagonal + zeros.scatter_diagonal if fda else ones.scatter_diagonal
        return cls(ones.mean - zeros.mean, diagonal + ridge, row)


@dataclass(frozen=True, eq=False)
class _Rows:
    mean: Floats
    scatter_diagonal: Floats
    scatter_row: Callable[[int], Floats]


def _binary_rows(X: NDArray[np.uint8], weights: NDArray[np.int64]) -> _Rows:
    n = int(weights.sum())
    wide = X.astype(np.float64)  # whole numbers below 2^53: exact in any order
    weighted = wide * weights[:, None]
    s = weighted.sum(axis=0)

    def row(j: int) -> Floats:
        return np.asarray(weighted.T @ wide[:, j] - s[j] * s / n)

    return _Rows(s / n, s - s * s / n, row)


def _centred_rows(X: Floats, weights: NDArray[np.int64]) -> _Rows:
    mean = weights @ X / weights.sum()
    D = X - mean
    weighted = D * weights[:, None]
    return _Rows(mean, np.einsum("ij,ij->j", weighted, D), lambda j: weighted.T @ D[:, j])


def rounds(scatter: Scatter, n_most: int, threads: int | None = None) -> Iterator[tuple[int, float]]:
    """Add, round by round, the candidate that adds most to the separation: its index, and J with it.

    A candidate j adds r_j^2 / v_j, where r_j is what is left of its gap, and v_j of its scatter, after
    projecting the selected ones out: a row of a Cholesky factor a round, O(M T^2) in all (the paper has
    O(M T^3)). Ties go to the lowest index. Stops after `n_most`, or when no candidate is left that adds anything.
    """
    M = len(scatter.gap)
    r, v = scatter.gap.copy(), scatter.diagonal.copy()
    smallest = DEPENDENT * scatter.diagonal
    factor = np.empty((min(n_most, M), M))
    separation = 0.0
    for t in range(len(factor)):
        j, gain = best_gain(r, v, smallest)
        if j < 0:
            return
        chosen = factor[:t, j].copy(), float(v[j]), float(r[j])  # read before any block is changed
        project = partial(_project_block, scatter.row(j), factor, t, chosen, r, v)
        for_each_block(project, M, PROJECTED_AT_ONCE, threads)
        smallest[j] = np.inf
        separation += gain
        yield j, separation


def _project_block(
    row: Floats, factor: Floats, t: int, chosen: tuple[Floats, float, float], r: Floats, v: Floats, part: slice
) -> None:
    project_out(row[part], factor[:, part], t, *chosen, r[part], v[part])


def forward(scatter: Scatter, n_select: int, threads: int | None = None) -> tuple[NDArray[np.intp], Floats]:
    """Forward search to `n_select` candidates: indices (T,), and J after each round (T,).

    >>> gap, A = np.array([1.0, 2.0, 2.0]), np.diag([1.0, 2.0, 2.0])
    >>> forward(Scatter(gap, np.diagonal(A), A.__getitem__), 2)
    (array([1, 2]), array([2., 4.]))
    """
    steps = list(rounds(scatter, n_select, threads))
    return np.array([j for j, _ in steps], dtype=np.intp), np.array([J for _, J in steps])


def eliminate(scatter: Scatter, selected: NDArray[np.intp], n_keep: int) -> tuple[NDArray[np.intp], float]:
    """Take out, round by round, the member that the separation misses least: the kept ones, and their J.

    Without member i, J falls by a_i^2 / (A^-1)_ii, where a = A^-1 g.
    """
    kept = list(selected)
    A = np.array([scatter.row(int(j))[selected] for j in selected])
    g = scatter.gap[selected]
    inverse = invert(factorise(A))
    while len(kept) > n_keep:
        a = inverse @ g
        i = int(np.argmin(a**2 / np.diagonal(inverse)))
        rest = np.arange(len(kept)) != i
        inverse = inverse[np.ix_(rest, rest)] - np.outer(inverse[rest, i], inverse[i, rest]) / inverse[i, i]
        g = g[rest]
        del kept[i]
    return np.array(kept, dtype=np.intp), float(g @ inverse @ g)


def select(scatter: Scatter, n_select: int, search: Search = "forward") -> NDArray[np.intp]:
    """Choose `n_select` of the candidates, in the order in which they were added.

    `forward-backward` goes forward to twice as many, eliminates back, and keeps the better of both sets.

    >>> gap, A = np.array([1.0, 2.0, 3.0]), np.eye(3)
    >>> select(Scatter(gap, np.diagonal(A), A.__getitem__), 2)
    array([2, 1])
    """
    if search == "forward":
        return forward(scatter, n_select)[0]
    longer, separation = forward(scatter, 2 * n_select)
    if len(longer) <= n_select:
        return longer
    kept, separation_of_kept = eliminate(scatter, longer, n_select)
    return kept if separation_of_kept > separation[n_select - 1] else longer[:n_select]
