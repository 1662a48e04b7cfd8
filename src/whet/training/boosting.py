"""AdaBoost of depth-two trees over cells of channels (Dollar et al., 2014)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet._kernels.cell_trees import best_nodes, leaves_by_feature
from whet._kernels.threads import available_threads, for_each_block
from whet.cascade.stage import Stage
from whet.features.channels import ChannelTrees
from whet.features.weak_learners import LEAVES, Trees

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

# Each tree sees this share of the features, and at least so many.
FEATURE_SHARE = 1 / 64
FEWEST_FEATURES = 32
# The lightest samples, which have this share of the weight, are left out of growing a tree: twice as fast.
TRIMMED = 0.01
# Sums of weights below this lose digits.
SMALLEST_SUM = 1e-200
# Votes are multiples of this, so that sums of thousands are exact; the largest is that of a tree without errors.
VOTE_UNIT = 2.0**-20
MOST_VOTE = 5.0
# Votes are this part of AdaBoost's own: average precision of cats rose from 0.47 to 0.50, that of people by 0.005.
SHRINKAGE = 0.5


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Trees as they are grown, and the running scores of the samples that they were grown on.

    `features` and `threshold` (trees, 3) are those of root and children, `votes` (trees, 4) those of the leaves.
    `lowest`, `median` and `median_negative` (trees,) are running scores after each tree: of the lowest positive, the
    median positive and the median negative.
    """

    features: NDArray[np.int32]
    threshold: Bytes
    votes: Floats
    lowest: Floats
    median: Floats
    median_negative: Floats

    def __len__(self) -> int:
        return len(self.votes)

    def running_scores(self, samples: Bytes) -> Floats:
        """Sums of votes (trees, samples) after each tree, for samples (features, samples)."""
        leaf, scores = np.empty(samples.shape[1], np.uint8), np.empty((len(self), samples.shape[1]))
        for t in range(len(self)):
            leaves_by_feature(samples, self.features[t], self.threshold[t], leaf)
            scores[t] = self.votes[t, leaf]
        return np.cumsum(scores, axis=0)


def draw_features(n_features: int, n_trees: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """The features (trees, drawn), in order, that each tree may split on.

    >>> draw_features(4, 2, np.random.default_rng(0))
    array([[0, 1, 2, 3],
           [0, 1, 2, 3]], dtype=int32)
    """
    drawn = min(n_features, max(FEWEST_FEATURES, int(n_features * FEATURE_SHARE)))
    chosen = np.empty((n_trees, drawn), np.int32)
    for row in chosen:
        row[:] = np.sort(rng.choice(n_features, drawn, replace=False))
    return chosen


def boost(
    samples: Bytes,
    n_positives: int,
    drawn: NDArray[np.int32],
    *,
    threads: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> BoostedTrees:
    """Grow trees on samples (features, samples), positives first; both classes have equal weight.

    Each row of `drawn` (trees, some) has the features that a tree may split on, in order; see `draw_features`.
    Discrete AdaBoost: the leaves of a tree with the weighted error e vote log((1 - e) / e) / 4, half of AdaBoost's own
    votes, for the class that has more weight in them. (Real AdaBoost, whose leaves have votes of their own, overfits
    few objects.) The result does not depend on `threads`.

    >>> samples = np.array([[1, 2, 3, 9, 9, 9], [5, 6, 5, 6, 5, 6]], np.uint8)
    >>> trees = boost(samples, 3, draw_features(2, 1, np.random.default_rng(0)))
    >>> np.sign(trees.running_scores(samples)[-1])
    array([ 1.,  1.,  1., -1., -1., -1.])
    """
    n, n_trees = samples.shape[1], len(drawn)
    sign = np.where(np.arange(n) < n_positives, 1.0, -1.0)
    start = np.where(sign > 0, 0.5 / n_positives, 0.5 / (n - n_positives))
    scores, leaf = np.zeros(n), np.empty(n, np.uint8)
    grower = _Grower(samples, n_positives, threads or available_threads())
    features, thresholds = np.empty((n_trees, 3), np.int32), np.empty((n_trees, 3), np.uint8)
    votes, traces = np.empty((n_trees, 4)), np.empty((3, n_trees))
    for t in range(n_trees):
        weights = sample_weights(start, sign * scores)
        features[t], thresholds[t] = grower.tree(weights, drawn[t])
        leaves_by_feature(samples, features[t], thresholds[t], leaf)
        votes[t] = leaf_votes(leaf, weights, n_positives)
        scores += votes[t, leaf]
        of_positives = scores[:n_positives]
        traces[:, t] = of_positives.min(), np.median(of_positives), np.median(scores[n_positives:])
        progress(t + 1)
    return BoostedTrees(features, thresholds, votes, *traces)


def sample_weights(start: Floats, margins: Floats) -> Floats:
    """Weights (n,) of samples with these margins, which sum to 1; `start` are those before the first tree.

    >>> sample_weights(np.array([0.5, 0.5]), np.array([2000.0, 2000.0]))  # exp(-2000) is 0
    array([0.5, 0.5])
    """
    weights = start * np.exp(-margins)
    if weights.sum() < SMALLEST_SUM:  # every tree is right about every sample
        weights = start * np.exp(margins.min() - margins)
    return np.asarray(weights / weights.sum())


def tree_stage(trees: BoostedTrees, window: tuple[int, int], rejection: Floats, threshold: float) -> Stage:
    """The stage of trees on windows (height, width), with rejection thresholds (trees,) after each of them."""
    thresholds = np.full(LEAVES * len(trees), -np.inf)
    thresholds[LEAVES - 1 :: LEAVES] = rejection
    features = ChannelTrees.from_indices(window, trees.features)
    return Stage(features, Trees(trees.threshold), trees.votes.ravel(), threshold, thresholds)


def leaf_votes(leaf: Bytes, weights: Floats, n_positives: int) -> Floats:
    """The votes (4,) of the leaves of a tree, from the leaf (n,) and the weight (n,) of each sample.

    >>> leaf_votes(np.uint8([3, 3, 0, 3]), np.full(4, 0.25), 2).round(3)
    array([-0.275, -0.275, -0.275,  0.275])
    """
    positive = np.bincount(leaf[:n_positives], weights[:n_positives], 4)
    negative = np.bincount(leaf[n_positives:], weights[n_positives:], 4)
    error = max(float(np.minimum(positive, negative).sum()), np.exp(-2 * MOST_VOTE))
    vote = max(0.5 * np.log((1 - error) / error), 0.0)
    vote = round(SHRINKAGE * vote / VOTE_UNIT) * VOTE_UNIT
    return np.asarray(np.where(positive > negative, vote, -vote))


def heavy_samples(weights: Floats) -> NDArray[np.int32]:
    """The samples without the lightest ones, which have one percent of the weight (n,)."""
    rising = np.sort(weights)
    least = rising[np.searchsorted(np.cumsum(rising), TRIMMED * weights.sum())]
    return np.flatnonzero(weights >= least).astype(np.int32)


@dataclass(frozen=True, eq=False)
class _Grower:
    samples: Bytes
    n_positives: int
    threads: int

    def tree(self, weights: Floats, features: NDArray[np.int32]) -> tuple[NDArray[np.int32], Bytes]:
        """Features and thresholds (3,) of the tree with the lowest error, its root chosen first."""
        order = heavy_samples(weights)
        weights = weights[order]
        root = self._nodes(order, weights, np.zeros(len(order), np.uint8), features)[0]
        side = (self.samples[root[0], order] > root[1]).astype(np.uint8)
        low, high = self._nodes(order, weights, side, features)
        nodes = np.stack([root, low, high])
        return nodes[:, 0], nodes[:, 1].astype(np.uint8)

    def _nodes(
        self, order: NDArray[np.int32], weights: Floats, side: Bytes, features: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Feature and threshold of the best node of each side (2, 2); blocks of features are tried in threads."""
        size = -(-len(features) // self.threads)
        n_blocks = -(-len(features) // size)
        n_positives = int(np.searchsorted(order, self.n_positives))
        errors, chosen = np.empty((n_blocks, 2)), np.zeros((n_blocks, 2, 2), np.int32)

        def work(rows: slice) -> None:
            block = rows.start // size
            parts = features[rows], errors[block], chosen[block]
            best_nodes(self.samples, order, n_positives, weights, side, *parts)

        for_each_block(work, len(features), size, self.threads)
        best = np.argmin(errors, axis=0)
        return chosen[best, [0, 1]]
