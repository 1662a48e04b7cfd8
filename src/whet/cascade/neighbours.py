"""Windows whose answer is known: what was corrected, and held-out samples. New windows are judged by the nearest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet._kernels.responses import find_nearest, have_within
from whet._kernels.threads import for_each_block

Bits = NDArray[np.uint8]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
Integers = NDArray[np.integer]

# A window follows a correction of a false positive if it is nearer to it than to all objects by some factor, the reach:
# the largest between these at which so few of the held-out objects would follow, too. At fixed factors of 0.9, 0.95,
# 0.98 and 1, corrections of the first half of 8 clips left 19, 10, 4 and 3 % of the false positives of the second half,
# and 100 corrections of other images changed recall by 0.0, -0.3, -0.8 and -1.4 points (development images).
# At 0.8, detectors of stop signs, cats and blood cells without held-out objects lost none by 100 corrections.
LEAST_REACH, MOST_REACH = 0.8, 1.0
FOLLOWING = 0.0015
# There are far more kinds of other things than of objects: 20 corrected misses of faces raised false positives in 80
# images from 10 to 52 at 0.9, and not at all at 0.8; 90 % of them were found at both (development images).
MUCH_NEARER = 0.8
# Windows per task of a thread.
AT_ONCE = 512
# Where fewer guards of the other class are known than `fewest_guards`, one more is taken to be so far away, as a share
# of the weak learners. Of the face detector's false positives, 99 % are farther than 0.23 from every held-out face.
UNKNOWN = 0.15


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Responses (n, words), 64 to a word (`words_of`), of windows whose answer is known.

    `rejected` and `accepted` are windows of corrections: of false positives, and of objects with the scores `targets`
    (n,) that they get. `objects` and `others` are samples that stay as they are; the first `n_guards` of each are those
    of the reference set. A window that is nearer to a rejected one than to all accepted ones and objects, by the factor
    `reach`, is rejected. One that is much nearer to an accepted one than to all rejected ones and others is accepted.
    Of all other windows, the stages decide. Nearness is the Hamming distance: the number of weak learners that answer
    differently. With fewer guards than `fewest_guards`, what is far from a correction does not follow it.

    >>> seen = words_of(np.packbits([[0, 0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]], axis=1))
    >>> none, no_scores = seen[:0], np.empty(0)
    >>> known = Neighbours(8, seen[:1], none, no_scores, objects=seen[1:], others=none, n_guards=(1, 0))
    >>> known.judge(np.uint8([[0, 0, 0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 1]]), np.array([5.0, 5.0]))
    array([-inf,   5.])
    """

    n_weak: int
    rejected: Words
    accepted: Words
    targets: Floats
    objects: Words
    others: Words
    n_guards: tuple[int, int]
    reach: float = MOST_REACH
    fewest_guards: int = 1

    def judge(self, responses: Bits, scores: Floats, threads: int | None = None) -> Floats:
        """Scores (n,) of windows with responses (n, n_weak) that have these `scores` in the stages, or -inf there."""
        windows = words_of(np.packbits(responses, axis=1))
        contrary = self.accepted, self.objects
        is_rejected, _ = self._is_nearest(windows, self.rejected, contrary, self.reach, self.unknown[0], threads)
        contrary = self.rejected, self.others
        is_accepted, which = self._is_nearest(windows, self.accepted, contrary, MUCH_NEARER, self.unknown[1], threads)
        targets = self.targets[which] if len(self.targets) else np.zeros(len(windows))
        return decided(scores, is_rejected, is_accepted, targets)

    @property
    def unknown(self) -> tuple[int, int]:
        """How far away one more object, and one more of the others, is taken to be."""
        objects, others = (unknown_distance(self.n_weak, n >= self.fewest_guards) for n in self.n_guards)
        return objects, others

    def _is_nearest(
        self,
        windows: Words,
        known: Words,
        contrary: tuple[Words, Words],
        factor: float,
        unknown: int,
        threads: int | None,
    ) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Which windows are nearer to one of `known`, by a factor, than to all of the other class; and to which."""
        distance, which = np.full(len(windows), 4 * self.n_weak, np.int64), np.zeros(len(windows), np.intp)
        if not len(known) or not len(windows):
            return np.zeros(len(windows), np.bool_), which
        has_nearer = np.zeros(len(windows), np.bool_)

        def work(rows: slice) -> None:
            find_nearest(windows[rows], known, distance[rows], which[rows])
            has_nearer[rows] = ~is_nearer(distance[rows], unknown, factor)
            for others in contrary:
                have_within(windows[rows], others, distance[rows], factor, has_nearer[rows])

        for_each_block(work, len(windows), AT_ONCE, threads)
        return ~has_nearer, which


# From distances to scores. A cache of distances decides by these functions, too.


def is_nearer(distance: Integers, contrary: Integers | int, factor: float) -> NDArray[np.bool_]:
    """Whether windows (n,) at this distance are nearer than those of the other class, by a factor.

    >>> is_nearer(np.array([7, 8, 9]), np.array([10, 10, 10]), 0.8)
    array([ True, False, False])
    """
    return np.asarray(~(factor * np.asarray(contrary, np.int64) <= np.asarray(distance, np.int64)))


def unknown_distance(n_weak: int, is_guarded: bool) -> int:
    """How far away one more window of the other class is taken to be: with enough guards, beyond all windows."""
    return 4 * n_weak if is_guarded else max(round(UNKNOWN * n_weak), 1)


def decided(scores: Floats, is_rejected: NDArray[np.bool_], is_accepted: NDArray[np.bool_], targets: Floats) -> Floats:
    """Scores (n,) of windows: -inf of the rejected, at least their target (n,) of the accepted, else as they are."""
    scores = np.where(is_rejected, -np.inf, scores)
    return np.where(is_accepted, np.maximum(scores, targets), scores)


def reach_of(rejected: Integers, nearest: Integers) -> float:
    """The largest reach at which next to none of some held-out objects (n,) is rejected.

    `rejected` are their distances to the nearest rejected window, `nearest` those to the nearest guard or other object.
    Without held-out objects it is the least reach.
    """
    if not len(rejected):
        return LEAST_REACH
    ratios = np.sort(np.asarray(rejected, np.int64) / np.maximum(np.asarray(nearest, np.int64), 1))
    return float(np.clip(ratios[int(FOLLOWING * len(ratios))], LEAST_REACH, MOST_REACH))


def nearest_distances(windows: Bits, known: Bits) -> NDArray[np.int64]:
    """Distances (n,) of windows (n, bytes) to the nearest of known ones (m, bytes)."""
    distance, which = np.full(len(windows), 8 * windows.shape[1], np.int64), np.zeros(len(windows), np.intp)
    find_nearest(words_of(windows), words_of(known), distance, which)
    return distance


def words_of(packed: Bits) -> Words:
    """Rows of bytes, padded to whole words."""
    n_words = -(-packed.shape[1] // 8)
    padded = np.zeros((len(packed), 8 * n_words), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)
