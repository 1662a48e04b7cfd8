"""The rule of corrections: windows whose answer is known decide, by their distance, about windows that are like them.

`decide` is the whole rule. A scan calls it with the distances of the windows that it found (`KnownWindows`), the studio
with those that it keeps of all images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet._kernels.response_bits import lower_until
from whet.arrays import Bools, Floats, Int64s
from whet.models.responses import Responses
from whet.parallel.threads import for_each_block

Integers = NDArray[np.integer]

# A window follows a correction of a false positive if it is nearer to it than to all objects by some factor, the reach:
# the largest between these at which next to none of the held-out objects would follow, too. At fixed factors of 0.9,
# 0.95, 0.98 and 1, corrections of the first half of 8 clips left 19, 10, 4 and 3 % of the false positives of the second
# half, and 100 corrections of other images changed recall by 0.0, -0.3, -0.8 and -1.4 points (development images).
# At 0.8, detectors of stop signs, cats and blood cells without held-out objects lost none by 100 corrections.
LEAST_REACH, MOST_REACH = 0.8, 1.0
FOLLOWING = 0.0015
# There are far more kinds of other things than of objects: 20 corrected misses of faces raised false positives in 80
# images from 10 to 52 at 0.9, and not at all at 0.8; 90 % of them were found at both (development images).
MUCH_NEARER = 0.8
# Without this many guards of the other class, one more is taken to be at a distance of this share of the weak learners.
# Of the face detector's false positives, 99 % are farther than 0.23 from every held-out face. Without guards, 20
# corrections of OpenCV's frontalface_default, adopted with photographs of ten people, lost 6 points of recall.
FEWEST_GUARDS = 60
UNKNOWN = 0.15
# Windows per task of a thread.
AT_ONCE = 512


@dataclass(frozen=True)
class Distances:
    """Least distances (n,) of windows to the known ones of each kind: of corrections and of samples that guard.

    `rejected` and `accepted` are those of corrections: false positives and missed objects. `objects` and `others` are
    samples that stay as they are. A distance to samples need not be exact where it is small enough to decide.
    """

    rejected: Integers
    accepted: Integers
    objects: Integers
    others: Integers


def decide(
    scores: Floats,
    distances: Distances,
    targets: Floats,
    reach: float,
    unknown: tuple[int, int],
    is_reached: Bools | None = None,
) -> Floats:
    """Scores (n,) of windows with these `scores` by the votes alone (-inf: rejected), after corrections.

    A window that is nearer to a rejected one than to all accepted ones and objects, by the factor `reach`, is rejected.
    One that is much nearer to an accepted one than to all rejected ones and others has at least the score of its
    `targets` (n,). All other windows keep their scores. No object is farther than `unknown[0]`, and no other thing than
    `unknown[1]`: with too few guards, what is far from a correction does not follow it. Windows that a scan does not
    reach (`is_reached`) are rejected.

    >>> distances = Distances(*(np.array(row) for row in ([1, 3], [32, 32], [3, 1], [32, 32])))
    >>> decide(np.array([5.0, 5.0]), distances, np.zeros(2), reach=1.0, unknown=(32, 32))
    array([-inf,   5.])
    """
    contrary = np.minimum(distances.accepted, distances.objects).clip(max=unknown[0])
    is_rejected = is_nearer(distances.rejected, contrary, reach)
    contrary = np.minimum(distances.rejected, distances.others).clip(max=unknown[1])
    is_accepted = is_nearer(distances.accepted, contrary, MUCH_NEARER)
    decided = np.where(is_rejected, -np.inf, scores)
    decided = np.where(is_accepted, np.maximum(decided, targets), decided)
    return decided if is_reached is None else np.where(is_reached, decided, -np.inf)


def is_nearer(distance: Integers, contrary: Integers, factor: float) -> Bools:
    """Whether windows (n,) at this distance are nearer than those of the other class, by a factor.

    >>> is_nearer(np.array([7, 8, 9]), np.array([10, 10, 10]), 0.8)
    array([ True, False, False])
    """
    return np.asarray(~(factor * contrary.astype(np.int64) <= distance))


def unknown_distance(n_weak: int, n_guards: int) -> int:
    """How far away one more window of the other class is taken to be: with enough guards, beyond all windows."""
    return 4 * n_weak if n_guards >= FEWEST_GUARDS else max(round(UNKNOWN * n_weak), 1)


def unknown_distances(objects: Responses, others: Responses) -> tuple[int, int]:
    """How far away one more object, and one more other thing, is taken to be, by the samples that guard."""
    n_objects, n_others = (unknown_distance(guards.n_weak, len(guards)) for guards in (objects, others))
    return n_objects, n_others


def reach_of(rejected: Integers, nearest: Integers) -> float:
    """The largest reach at which next to none of some held-out objects (n,) is rejected.

    `rejected` are their distances to the nearest rejected window, `nearest` those to the nearest guard or other object.
    Without held-out objects it is the least reach.
    """
    if not len(rejected):
        return LEAST_REACH
    ratios = np.sort(np.asarray(rejected, np.int64) / np.maximum(np.asarray(nearest, np.int64), 1))
    return float(np.clip(ratios[int(FOLLOWING * len(ratios))], LEAST_REACH, MOST_REACH))


@dataclass(frozen=True, eq=False)
class KnownWindows:
    """Responses of windows whose answer is known: of corrections, with `targets` for the accepted, and of guards.

    >>> seen = Responses.from_bits(np.uint8([[0, 0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]]))
    >>> none = Responses.empty(8)
    >>> known = KnownWindows(seen.take([0]), none, np.empty(0), seen.take([1]), none, reach=1.0, unknown=(32, 32))
    >>> windows = Responses.from_bits(np.uint8([[0, 0, 0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 1]]))
    >>> known.decide(windows, np.array([5.0, 5.0]))
    array([-inf,   5.])
    """

    rejected: Responses
    accepted: Responses
    targets: Floats
    objects: Responses
    others: Responses
    reach: float
    unknown: tuple[int, int]

    def decide(
        self, windows: Responses, scores: Floats, threads: int | None = None, *, is_reached: Bools | None = None
    ) -> Floats:
        """Scores (n,) of windows that have these `scores` by the votes alone, or -inf; see the function `decide`."""
        decided = np.empty(len(windows))

        def work(rows: slice) -> None:
            some = windows.take(rows)
            rejected, (accepted, which) = some.distances(self.rejected), some.nearest(self.accepted)
            distances = Distances(
                rejected,
                accepted,
                self._guarded(some, self.objects, rejected, self.reach, self.unknown[0]),
                self._guarded(some, self.others, accepted, MUCH_NEARER, self.unknown[1]),
            )
            targets = self.targets[which] if len(self.targets) else np.zeros(len(some))
            reached = None if is_reached is None else is_reached[rows]
            decided[rows] = decide(scores[rows], distances, targets, self.reach, self.unknown, reached)

        for_each_block(work, len(windows), AT_ONCE, threads)
        return decided

    @staticmethod
    def _guarded(windows: Responses, guards: Responses, distance: Int64s, factor: float, unknown: int) -> Int64s:
        """Distances (n,) to guards, at most `unknown`; exact only where no guard keeps a window from following."""
        nearest = np.full(len(windows), unknown, np.int64)
        lower_until(windows.words, guards.words, nearest, factor, distance)
        return nearest
