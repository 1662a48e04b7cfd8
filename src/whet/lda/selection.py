"""Greedy selection of the weak learners that separate two classes best [ALG:GSLDA].

The separation of a set is J = g^T A^-1 g over its members, with the gap g = m_1 - m_2 and the regularised
scatter A. Selection reads A one row at a time, so it runs alike on statistics, on response matrices and on
anything else that gives the scatter of one weak learner with all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whet._kernels.lda_algebra import best_gain, invert, project_out
from whet.arrays import Bools, Bytes, Floats, Indices, Int64s
from whet.lda.discriminant import Criterion, factorise, regularised_scatter
from whet.lda.statistics import ClassStatistics
from whet.parallel.workers import Held, Threads, Workers

Search = Literal["forward", "forward-backward"]


@dataclass(frozen=True, eq=False)
class Scatter:
    """What selection needs to know of M candidates: gap (M,), diagonal of A (M,), and rows of A (M,).

    `described` gives what identifies a candidate, and `row` makes of that its scatter with all M. If these are a block
    of more candidates, the described one may be in another block. `nbytes` is what `row` keeps in memory.
    """

    gap: Floats
    diagonal: Floats
    row: Callable[[Any], Floats]
    described: Callable[[int], Any] = field(default=int)
    nbytes: int = 0

    @classmethod
    def from_statistics(
        cls, positive: ClassStatistics, negative: ClassStatistics, criterion: Criterion, ridge: float
    ) -> Scatter:
        """From the statistics of two classes, without any sample."""
        A = regularised_scatter(positive, negative, criterion, ridge)
        return cls(positive.mean - negative.mean, np.diagonal(A), A.__getitem__)

    @classmethod
    def from_responses(
        cls, responses: NDArray[Any], is_positive: Bools, weights: Int64s, criterion: Criterion, ridge: float
    ) -> Scatter:
        """From a response matrix (N, M), in O(N M) memory: rows of A are computed when needed.

        For binary responses the numbers are those of `from_statistics`, to the last bit.
        """
        of_class = _binary_rows if responses.dtype == np.uint8 else _centred_rows
        mean, diagonal, row_of_positives = of_class(responses[is_positive], weights[is_positive])
        other_mean, other_diagonal, row_of_negatives = of_class(responses[~is_positive], weights[~is_positive])
        fda = criterion == "fda"

        def row(j: int) -> Floats:
            total = row_of_positives(j) + row_of_negatives(j) if fda else row_of_positives(j)
            total[j] += ridge
            return total

        return cls(mean - other_mean, (diagonal + other_diagonal if fda else diagonal) + ridge, row)


Rows = tuple[Floats, Floats, Callable[[int], Floats]]  # of a class: mean, diagonal of the scatter, and its rows


def _binary_rows(X: Bytes, weights: Int64s) -> Rows:
    n = int(weights.sum())
    wide = X.astype(np.float64)  # whole numbers below 2^53: exact in any order
    weighted = wide * weights[:, None]
    s = weighted.sum(axis=0)

    def row(j: int) -> Floats:
        return np.asarray(weighted.T @ wide[:, j] - s[j] * s / n)

    return s / n, s - s * s / n, row


def _centred_rows(X: Floats, weights: Int64s) -> Rows:
    mean = weights @ X / weights.sum()
    D = X - mean
    weighted = D * weights[:, None]
    return mean, np.einsum("ij,ij->j", weighted, D), lambda j: weighted.T @ D[:, j]


@dataclass(frozen=True, eq=False)
class Best:
    """The candidate of a block that adds most to the separation.

    `index` is its number among all candidates, `described` what identifies it. `column` (t,) are its entries in the
    earlier rows of the factor; `pivot` and `gap` are what is left of its scatter and gap.
    """

    index: int
    gain: float
    described: Any
    column: Floats
    pivot: float
    gap: float


@dataclass(frozen=True, eq=False)
class Candidates:
    """A block of candidates after t rounds of a selection: every `stride`-th of all, from number `first` on.

    `r` and `v` (M,) are what is left of gaps and scatters, `smallest` (M,) the scatters that count as nothing. `factor`
    (at least t, M) has a row of the Cholesky factor for each round.
    """

    scatter: Scatter
    first: int
    r: Floats
    v: Floats
    smallest: Floats
    factor: Floats
    t: int = 0
    stride: int = 1

    @classmethod
    def from_scatter(cls, scatter: Scatter, first: int = 0, stride: int = 1) -> Candidates:
        """Candidates of which none is selected."""
        # A candidate of which less than this share of its own scatter is left after projecting the selected ones out is
        # a linear combination of them, up to the rounding of float64.
        smallest, factor = 1e-11 * scatter.diagonal, np.empty((0, len(scatter.gap)))
        return cls(scatter, first, scatter.gap, scatter.diagonal, smallest, factor, stride=stride)

    def __sizeof__(self) -> int:  # by which Dask knows what a worker holds
        return self.scatter.nbytes + self.factor.nbytes + 3 * self.r.nbytes

    def best(self) -> Best | None:
        """The candidate that adds most, the first of equals; None if none adds anything."""
        i, gain = best_gain(self.r, self.v, self.smallest)
        if i < 0:
            return None
        column = self.factor[: self.t, i].copy()
        return Best(
            self.first + i * self.stride, gain, self.scatter.described(i), column, float(self.v[i]), float(self.r[i])
        )

    def without(self, chosen: Best) -> Candidates:
        """The block with a candidate projected out, which is of this block or of another.

        Row t of the factor is written in place: a repeated call writes the same numbers, and no other block reads them.
        """
        r, v, smallest = self.r.copy(), self.v.copy(), self.smallest
        factor = self.factor
        if len(factor) == self.t or not factor.flags.writeable:  # full, or received from another worker
            # Rounds that the rows of a factor are made for at once.
            factor = np.concatenate([factor[: self.t], np.empty((32, len(r)))])
        project_out(self.scatter.row(chosen.described), factor, self.t, chosen.column, chosen.pivot, chosen.gap, r, v)
        place, is_elsewhere = divmod(chosen.index - self.first, self.stride)
        if not is_elsewhere:
            smallest = smallest.copy()
            smallest[place] = np.inf
        return replace(self, r=r, v=v, smallest=smallest, factor=factor, t=self.t + 1)


def rounds(scatter: Scatter, n_most: int) -> Iterator[tuple[int, float]]:
    """Add, round by round, the candidate that adds most to the separation: its index, and J with it.

    A candidate j adds r_j^2 / v_j, where r_j is what is left of its gap, and v_j of its scatter, after
    projecting the selected ones out: a row of a Cholesky factor a round, O(M T^2) in all (the paper has
    O(M T^3)). Ties go to the lowest index. Stops after `n_most`, or when no candidate is left that adds anything.
    """
    return rounds_of_blocks([Candidates.from_scatter(scatter)], n_most, Threads(1))


def rounds_of_blocks(blocks: Sequence[Held], n_most: int, workers: Workers) -> Iterator[tuple[int, float]]:
    """The same for candidates in blocks, each held by a worker.

    In a round, each block answers with its best candidate, and the best of these goes out to all blocks. The numbers of
    a candidate do not depend on the other candidates of its block: the result is the same for blocks of any size.
    """
    separation = 0.0
    chosen: Best | None = None
    for _ in range(n_most):
        if chosen is not None:
            blocks = workers.hold(Candidates.without, blocks, repeat(chosen))
        answers = [best for best in workers.map(Candidates.best, blocks) if best is not None]
        if not answers:
            return
        chosen = max(answers, key=lambda best: (best.gain, -best.index))
        separation += chosen.gain
        yield chosen.index, separation


def forward(scatter: Scatter, n_select: int) -> tuple[Indices, Floats]:
    """Forward search to `n_select` candidates: indices (T,), and J after each round (T,).

    >>> gap, A = np.array([1.0, 2.0, 2.0]), np.diag([1.0, 2.0, 2.0])
    >>> forward(Scatter(gap, np.diagonal(A), A.__getitem__), 2)
    (array([1, 2]), array([2., 4.]))
    """
    steps = list(rounds(scatter, n_select))
    return np.array([j for j, _ in steps], dtype=np.intp), np.array([J for _, J in steps])


def eliminate(scatter: Scatter, selected: Indices, n_keep: int) -> tuple[Indices, float]:
    """Take out, round by round, the member that the separation misses least: the kept ones, and their J.

    Without member i, J falls by a_i^2 / (A^-1)_ii, where a = A^-1 g.
    """
    kept = list(selected)
    A = np.array([scatter.row(scatter.described(int(j)))[selected] for j in selected])
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


def select(scatter: Scatter, n_select: int, search: Search = "forward") -> Indices:
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
