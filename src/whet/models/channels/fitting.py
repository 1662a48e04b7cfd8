"""Fitting of trees on channels: AdaBoost of depth-two trees over cells (Dollar et al., 2014), and cross-validation.

Trees that were grown without some of the objects say what the trees of all objects do with new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from whet._kernels.cell_trees import best_nodes, leaves_by_feature
from whet.models.channels.tree_model import TreeModel, tree_votes
from whet.parallel.threads import available_threads, for_each_block
from whet.parallel.workers import Workers

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

# Each tree sees this share of the features, and at least FEWEST_FEATURES.
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
FOLDS = 3
# While mining, a window is rejected below the lowest positive by more than this share of the distance between the
# classes: unseen objects score far lower than those that were trained on.
SLACK = 0.8
# In the end, objects of other folds decide: all that the threshold accepts pass the trees before, by this share.
UNSEEN_SLACK = 0.1
LEAST_GAP = 0.01


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


def tree_model(trees: BoostedTrees, window: tuple[int, int], rejection: Floats, threshold: float) -> TreeModel:
    """The model of trees on windows (height, width), with rejection thresholds (trees,) after each of them."""
    votes = tree_votes(trees.votes, rejection, threshold)
    return TreeModel.from_indices(window, trees.features, trees.threshold, votes)


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


# --- Rejection thresholds ---------------------------------------------------------------------------------------------


def rejection_by_slack(trees: BoostedTrees) -> Floats:
    """Rejection thresholds (trees,) from the scores of the samples that trees were grown on."""
    return trees.lowest - SLACK * (trees.median - trees.median_negative)


def rejection_of_accepted(trees: BoostedTrees, unseen: Floats, least: float) -> Floats:
    """Rejection thresholds (trees,) that pass all unseen objects whose scores (trees, n) are above `least` at last.

    What is rejected later anyway may be rejected at once (Zhang and Viola, 2007).
    """
    accepted = unseen[:, unseen[-1] > least]
    if not accepted.shape[1]:
        return rejection_by_slack(trees)
    # Early trees may have one median for both classes: the lowest of the accepted still has to pass.
    slack = UNSEEN_SLACK * np.maximum(trees.median - trees.median_negative, LEAST_GAP)
    return np.asarray(accepted.min(axis=1) - slack)


# --- Cross-validation -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TreeSamples:
    """Columns (features, n): positives with the objects that they show, then negatives with their images."""

    columns: Bytes
    objects: Indices
    images: NDArray[np.int32]

    @classmethod
    def from_cells(cls, positives: Bytes, objects: Indices, negatives: Bytes, images: NDArray[np.int32]) -> TreeSamples:
        """Samples of the cells (n, ...) of windows."""
        return cls(columns_of(positives, negatives), objects, images)

    @property
    def n_positives(self) -> int:
        """Number of positives."""
        return len(self.objects)

    @property
    def positives(self) -> Bytes:
        """Columns of the positives."""
        return self.columns[:, : self.n_positives]

    @property
    def negatives(self) -> Bytes:
        """Columns of the negatives."""
        return self.columns[:, self.n_positives :]

    def __sizeof__(self) -> int:  # by which Dask knows what a worker holds
        return self.columns.nbytes

    def grow(
        self,
        positives: Indices,
        negatives: Indices,
        drawn: NDArray[np.int32],
        threads: int,
        progress: Callable[[int], None],
    ) -> BoostedTrees:
        """Grow trees on some of the positives and of the negatives."""
        chosen = np.take(self.columns, np.concatenate([positives, self.n_positives + negatives]), axis=1)
        return boost(chosen, len(positives), drawn, threads=threads, progress=progress)


def columns_of(*parts: Bytes) -> Bytes:
    """The cells (n, ...) of windows as columns (features, n), one part after the other."""
    columns = np.empty((int(np.prod(parts[0].shape[1:])), sum(map(len, parts))), np.uint8)
    ends = np.cumsum([len(part) for part in parts]).tolist()
    for part, end in zip(parts, ends, strict=True):
        columns[:, end - len(part) : end] = part.reshape(len(part), len(columns)).T
    return columns


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Trees grown without the objects of each fold, and the fold (n,) of each positive."""

    folds: tuple[BoostedTrees, ...]
    fold: Indices

    def unseen_scores(self, positives: Bytes, trees: BoostedTrees) -> Floats:
        """Running scores (trees, n) of `trees` for positives (features, n), as if it had not been trained on them.

        Scores of each fold are carried over by the medians of both classes, since trees differ.
        """
        scores = np.empty((len(trees), len(self.fold)))
        for k, other in enumerate(self.folds):
            outside = np.flatnonzero(self.fold == k)
            running = other.running_scores(np.ascontiguousarray(positives[:, outside]))
            scores[:, outside] = carried_over(running, other, trees)
        return scores


def cross_validate(
    samples: TreeSamples, n_trees: int, seed: int, workers: Workers, progress: Callable[[int], None]
) -> CrossValidation:
    """Grow trees on the objects of all folds but one, and on all negatives; `progress` receives trees of all folds."""
    _, number = np.unique(samples.objects, return_inverse=True)
    rng = np.random.default_rng([seed, 13])
    fold = (rng.permutation(number.max() + 1) % FOLDS)[number]
    every = np.arange(len(samples.images))
    subsets = [(np.flatnonzero(fold != k), every) for k in range(FOLDS)]
    return CrossValidation(tuple(grow_models(samples, subsets, n_trees, rng, workers, progress)), fold)


def grow_models(
    samples: TreeSamples,
    subsets: Sequence[tuple[Indices, Indices]],
    n_trees: int,
    rng: np.random.Generator,
    workers: Workers,
    progress: Callable[[int], None],
) -> list[BoostedTrees]:
    """Trees on each of some subsets of positives and negatives; `progress` receives the trees of all so far."""

    def grown(done: int, n: int) -> None:
        progress(done * n_trees + n)

    numbers = range(len(subsets))
    models = workers.map(
        TreeSamples.grow,
        repeat(workers.share(samples)),
        *zip(*subsets, strict=True),
        [draw_features(len(samples.columns), n_trees, rng) for _ in numbers],
        repeat(workers.threads_of_task(1)),
        [partial(grown, k) if workers.in_process else _ignore for k in numbers],
        in_turn=True,
    )
    done = []
    for trees in models:
        done.append(trees)
        if not workers.in_process:
            progress(len(done) * n_trees)
    return done


def _ignore(_: int) -> None:
    """No progress: a task on a cluster cannot call back."""


def carried_over(running: Floats, other: BoostedTrees, trees: BoostedTrees) -> Floats:
    """Running scores (trees, n) of other trees as these trees would give them, by the medians of both classes.

    Where the first trees of one of them do not tell the medians apart, scores stay as they are.
    """
    gap, own_gap = ((part.median - part.median_negative)[:, None] for part in (other, trees))
    share = (running - other.median_negative[:, None]) / np.where(gap > 0, gap, 1.0)
    carried = trees.median_negative[:, None] + share * own_gap
    return np.where((gap > 0) & (own_gap > 0), carried, running)


def fold_model(
    other: BoostedTrees,
    trees: BoostedTrees,
    window: tuple[int, int],
    rejection: Floats,
    threshold: float | None = None,
) -> TreeModel:
    """The trees of a fold, with rejection thresholds (trees,) of `trees`; without a threshold, the last is its own."""
    carried = carried_over(rejection[:, None], trees, other)[:, 0]
    return tree_model(other, window, carried, float(carried[-1]) if threshold is None else threshold)
