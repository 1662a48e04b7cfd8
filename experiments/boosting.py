"""Boosting of stages, to compare with greedy LDA: of weak learners that are trained already, or, as published, anew.

`rounds` keeps the stumps that were trained under equal weights; `retrained_rounds` trains all stumps anew in each round
under the weights of the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import kernel
from whet._kernels.weak_fitting import BINS, NARROW, bin_values, extremes, gap, middle
from whet.arrays import Bytes, Float32s, Floats, Indices
from whet.models.gslda.candidates import BitResponses, Responses, SampleLayout
from whet.models.gslda.fitting import FixedVote
from whet.models.gslda.integral import FeatureFamily, IntegralStack
from whet.models.gslda.weak_learners import Stumps
from whet.models.gslda.weak_training import SMALLEST_ERROR, balanced, reweighted
from whet.parallel.threads import for_each_block

Learner = TypeVar("Learner")

# Features a task: the bins of 64 features on 10,000 samples are 640 kB, and one pass over them takes a millisecond.
BINNED_AT_ONCE = 64


@kernel
def bin_rows(values: Float32s, bins: Bytes) -> None:
    """Fill `bins` (features, samples) with the bin of every value within the range of its feature."""
    for f in range(values.shape[0]):
        low, high = extremes(values[f])
        bin_values(values[f], low, high if high - low > NARROW else np.float32(np.inf), bins[f])


@kernel
def best_cuts(
    bins: Bytes, signed: Floats, totals: tuple[float, float], cut: Bytes, polarity: NDArray[np.int8], error: Floats
) -> None:
    """Write cut, polarity and weighted error (features,) of the best stump on each row of `bins` (features, samples).

    `signed` (samples,) are the weights, those of negatives with a minus; `totals` are the weights of the positives and
    of the negatives. Ties go to the lowest cut, and there to polarity 1. Two sums take turns, since neighbours often
    fall into the same bin.
    """
    positive, negative = totals
    rounding = 1e-13 * (positive + negative)
    sums = np.empty((2, BINS))
    even, odd = sums[0], sums[1]
    n = bins.shape[1]
    for f in range(bins.shape[0]):
        row = bins[f]
        sums[:] = 0.0
        for i in range(0, n - 1, 2):
            even[row[i]] += signed[i]
            odd[row[i + 1]] += signed[i + 1]
        if n % 2:
            even[row[n - 1]] += signed[n - 1]
        below, least = 0.0, np.inf
        for k in range(BINS - 1):
            below += even[k] + odd[k]
            upright, flipped = negative + below, positive - below
            if min(upright, flipped) < least - rounding:
                least = min(upright, flipped)
                cut[f], polarity[f] = k, 1 if upright <= flipped else -1
        error[f] = least


@dataclass(frozen=True, eq=False)
class BinnedFeatures:
    """Bins (features, samples) of all features on patches, positives first: bin once, train under many weightings.

    A byte a value: 10,000 features on 11,000 patches take 110 MB. `best_stump` finds the stump of least weighted error
    of all features by histograms, as boosting needs it in each round.

    >>> from whet.models.gslda.haar import HaarPool
    >>> patches = np.random.default_rng(0).integers(0, 200, (40, 6, 6), dtype=np.uint8)
    >>> patches[:20, :, 3:] += 50  # positives are brighter on the right
    >>> binned = BinnedFeatures.from_patches(HaarPool.from_window((6, 6)), patches, np.arange(40) < 20)
    >>> stump, right = binned.best_stump(np.full(40, 1 / 40))
    >>> binned.pool.describe(stump.feature[0]), bool(right.mean() == 1 - stump.error[0])
    (HaarFeature(kind='x2', x=0, y=0, width=6, height=5), True)
    """

    pool: FeatureFamily
    stack: IntegralStack
    layout: SampleLayout
    bins: NDArray[np.uint8]
    threads: int | None = None

    @classmethod
    def from_patches(
        cls,
        pool: FeatureFamily,
        patches: NDArray[np.uint8],
        is_positive: NDArray[np.bool_],
        threads: int | None = None,
    ) -> BinnedFeatures:
        """Bin the values of all features of a pool on patches (samples, height, width)."""
        layout = SampleLayout.from_labels(is_positive)
        stack = IntegralStack.from_patches(patches[layout.order])
        bins = np.empty((len(pool), len(layout)), dtype=np.uint8)

        def work(rows: slice) -> None:
            bin_rows(pool.take(rows).evaluate(stack), bins[rows])

        for_each_block(work, len(pool), BINNED_AT_ONCE, threads)
        return cls(pool, stack, layout, bins, threads)

    def best_stump(self, weights: Floats) -> tuple[Stumps, NDArray[np.bool_]]:
        """The stump of least error under weights (samples,), and which samples (samples,) it gets right.

        Of equal features, the first. Thresholds lie in the middle of the gap between two bins.
        """
        ordered = weights[self.layout.order]
        n, n_positive = len(self.bins), self.layout.n_positive
        totals = float(ordered[:n_positive].sum()), float(ordered[n_positive:].sum())
        signed = np.concatenate([ordered[:n_positive], -ordered[n_positive:]])
        cut, polarity, error = np.zeros(n, np.uint8), np.ones(n, np.int8), np.empty(n)

        def work(rows: slice) -> None:
            best_cuts(self.bins[rows], signed, totals, cut[rows], polarity[rows], error[rows])

        for_each_block(work, n, BINNED_AT_ONCE, self.threads)
        best = int(np.flatnonzero(error <= error.min() + 1e-12)[0])  # the first of equals, up to rounding
        values = self.pool.take(np.array([best])).evaluate(self.stack)
        threshold = np.array([middle(*gap(values[0], self.bins[best], int(cut[best])))], dtype=np.float32)
        stump = Stumps(np.array([best]), threshold, polarity[[best]], error[[best]])
        right = np.empty(len(ordered), dtype=np.bool_)
        right[self.layout.order] = stump.respond(values)[0] == (np.arange(len(ordered)) < n_positive)
        return stump, right


def retrained_rounds(
    features: BinnedFeatures, n_most: int, asymmetry: float = 1.0, balance: bool = True
) -> Iterator[tuple[Stumps, float]]:
    """The stump of each round and its vote; arguments as in `rounds`."""
    yield from boost(features.best_stump, features.layout.is_positive, n_most, asymmetry, balance)


def rounds(
    responses: BitResponses | Responses, n_most: int, asymmetry: float = 1.0, balance: bool = True
) -> Iterator[tuple[int, float]]:
    """In each round the learner of least weighted error: its index, and its vote log((1 - e) / e).

    The learners stay as they were trained under equal weights, so a round is one pass over the bits.
    With `asymmetry` above 1 a missed positive costs that many false positives, divided over `n_most` rounds, as in
    `AsymBoost`. With `balance` both classes start with one half of
    the weight, as Viola and Jones have it; without it all samples start with equal weights. Stops early at a learner
    without error, or if none is better than chance.

    >>> bits = BitResponses.from_responses(np.array([[1, 0, 0], [1, 1, 1]], dtype=bool), np.array([True, True, False]))
    >>> [(j, round(vote, 3)) for j, vote in rounds(bits, 1)]
    [(0, 1.099)]
    """
    is_positive = responses.layout.is_positive

    def best(D: NDArray[np.float64]) -> tuple[int, NDArray[np.bool_]]:
        j = int(np.argmin(responses.weighted_errors(D)))
        return j, responses.row(j) == is_positive

    yield from boost(best, is_positive, n_most, asymmetry, balance)


def boost(
    best: Callable[[NDArray[np.float64]], tuple[Learner, NDArray[np.bool_]]],
    is_positive: NDArray[np.bool_],
    n_most: int,
    asymmetry: float,
    balance: bool,
) -> Iterator[tuple[Learner, float]]:
    """Rounds of AdaBoost; `best` returns the learner of least error under weights, and which samples it gets right."""
    up = asymmetry ** (0.5 / n_most)
    tilt = np.where(is_positive, up, 1 / up)
    n = len(is_positive)
    D = balanced(is_positive, np.ones(n, dtype=np.int64)) if balance else np.full(n, 1 / n)
    for _ in range(n_most):
        D = D * tilt
        D /= D.sum()
        learner, right = best(D)
        error = float(D[~right].sum())
        if error >= 0.5:
            return
        error = max(error, SMALLEST_ERROR)
        yield learner, math.log((1 - error) / error)
        if error == SMALLEST_ERROR:
            return
        D = reweighted(D, right, error)


@dataclass
class Boosting:
    """AdaBoost, or with an `asymmetry` above 1 AsymBoost, over trained weak learners.

    With `balance` both classes start with the same weight; without it all samples do.
    """

    asymmetry: float = 1.0
    balance: bool = True
    votes: list[float] = field(default_factory=list, init=False, repr=False)

    def rounds(self, responses: Responses, n_most: int) -> Iterator[int]:
        """Indices of the selected learners, at most `n_most`; one may be selected more than once."""
        self.votes = []
        for j, vote in rounds(responses, n_most, self.asymmetry, self.balance):
            self.votes.append(vote)
            yield j

    def vote(self, responses: Responses, chosen: Indices) -> FixedVote:  # noqa: ARG002
        """The strong classifier of Viola and Jones: at least half of the sum of weights."""
        votes = np.array(self.votes[: len(chosen)])
        return FixedVote(votes, float(votes.sum()) / 2)
