"""Detections of many images against annotations: which are right, one curve over all, rates and their intervals.

Which detections of one image are right is decided by the rule of the PASCAL challenge. Detections are taken by falling
score. Each finds the truth that it overlaps most among those not yet found, if their intersection over union is above
one half. A second detection of the same object is a false positive.

Since the order is by score, a threshold that takes away the lowest detections changes nothing for the others: one
matching serves all points of a curve.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.arrays import Bools, Floats, Indices, Int64s
from whet.images.boxes import areas, box_iou, checked_boxes, intersection_over_first

NOT_FOUND = -1


class Label(IntEnum):
    """What a detection is: right, a false positive, or neither."""

    IGNORED = -1
    FALSE = 0
    TRUE = 1


@dataclass(frozen=True, eq=False)
class Matching:
    """Detections and truths of one image, matched.

    `labels` (N,) has a `Label` for each detection; `found_by` (M,) has for each truth the index of the detection that
    found it, or `NOT_FOUND`. A truth to be ignored is never found.
    """

    labels: NDArray[np.int8]
    found_by: Indices


def match(
    boxes: ArrayLike,
    scores: ArrayLike,
    truths: ArrayLike,
    ignored: ArrayLike | None = None,
    *,
    iou: float = 0.5,
    ignore_overlap: float = 0.5,
) -> Matching:
    """Match the detections of one image to its truths.

    `boxes` (N, 4) and `scores` (N,) are the detections, in any order; those of equal score are taken as they stand.
    `truths` (M, 4) are the true boxes and `ignored` (M,) bool marks those that neither count as found nor as missed:
    unclear objects, or whole regions. A detection that finds no truth is ignored too where more than `ignore_overlap`
    of its own area lies in such a region. Overlaps have to be *above* `iou`; equal ones go to the first truth.

    >>> cars = [[0, 0, 10, 10], [20, 0, 30, 10]]
    >>> result = match([[0, 0, 10, 9], [0, 0, 10, 10], [20, 0, 24, 10]], [0.5, 0.9, 0.7], cars)
    >>> result.labels.tolist(), result.found_by.tolist()
    ([0, 1, 0], [1, -1])
    >>> match([[20, 0, 24, 10]], [0.7], cars, [False, True]).labels.tolist()
    [-1]
    """
    boxes, truths = checked_boxes(boxes, "detections"), checked_boxes(truths, "truths")
    scores = checked_scores(scores, len(boxes))
    is_ignored = checked_flags(ignored, len(truths))
    for name, value in (("iou", iou), ("ignore_overlap", ignore_overlap)):
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value!r} must be at least 0 and below 1")
    overlaps = box_iou(boxes, truths)
    found_by = _find(np.where(is_ignored, 0.0, overlaps), np.argsort(-scores, kind="stable"), iou)
    labels = np.full(len(boxes), Label.FALSE, dtype=np.int8)
    # With a low `iou`, a detection may be as good as a match of an ignored truth and yet lie mostly beside it.
    in_ignored = intersection_over_first(boxes, truths[is_ignored]) > ignore_overlap
    labels[(in_ignored | (overlaps[:, is_ignored] > iou)).any(axis=1)] = Label.IGNORED
    labels[found_by[found_by != NOT_FOUND]] = Label.TRUE
    return Matching(labels, found_by)


def _find(overlaps: Floats, order: Indices, smallest: float) -> Indices:
    found_by = np.full(overlaps.shape[1], NOT_FOUND, dtype=np.intp)
    left = overlaps.copy()
    near_any = np.flatnonzero((overlaps > smallest).any(axis=1))  # few: most false positives are near no truth
    for i in order[np.isin(order, near_any)]:
        truth = int(np.argmax(left[i]))
        if left[i, truth] > smallest:
            found_by[truth] = i
            left[:, truth] = 0.0
    return found_by


def checked_scores(scores: ArrayLike, n: int) -> Floats:
    """Scores as (n,) float64, all finite, or a `ValueError`.

    >>> checked_scores([1, 2], 2)
    array([1., 2.])
    """
    array = np.asarray(scores, dtype=np.float64)
    if array.shape != (n,):
        raise ValueError(f"scores have shape {array.shape}; expected ({n},), one for each detection")
    finite = np.isfinite(array)
    if not finite.all():
        raise ValueError(f"scores[{int(np.argmin(finite))}] is not finite; detections cannot be ranked by it")
    return array


def checked_flags(ignored: ArrayLike | None, n: int) -> Bools:
    """Flags as (n,) bool, or a `ValueError`; None flags nothing.

    >>> checked_flags(None, 2)
    array([False, False])
    """
    array = np.zeros(n, dtype=np.bool_) if ignored is None else np.asarray(ignored)
    if array.shape != (n,):
        raise ValueError(f"ignore flags have shape {array.shape}; expected ({n},), one for each truth")
    # Indices of the truths to ignore look much like flags, but for their type.
    if n and array.dtype != np.bool_:
        raise ValueError(f"ignore flags are {array.dtype}; expected bool, one for each truth")
    return array.astype(np.bool_)


# Of a 95 % interval.
TAIL = (1 - 0.95) / 2


def rate_interval(n_accepted: float, n: float) -> tuple[float, float]:
    """95 % Clopper-Pearson interval of a rate of which `n_accepted` of `n` independent samples were seen.

    >>> tuple(round(bound, 3) for bound in rate_interval(0, 100))
    (0.0, 0.036)
    """
    from scipy.special import betaincinv

    low = betaincinv(n_accepted, n - n_accepted + 1, TAIL) if n_accepted else 0.0
    high = betaincinv(n_accepted + 1, n - n_accepted, 1 - TAIL) if n_accepted < n else 1.0
    return float(low), float(high)


def image_interval(accepted: Int64s, has_contrast: Int64s) -> tuple[float, float]:
    """95 % interval of the share of windows that are accepted, from counts of each image (images,).

    Windows of one image are accepted together, so that images are the samples, not windows. This is the
    interval of Korn and Graubard (1998) for clusters: Clopper and Pearson's for as many independent windows as
    would have the variance that is seen between images. Where no window was accepted, or there is one
    image only, that variance cannot be seen, and windows count as independent.

    >>> same = image_interval(np.full(20, 5), np.full(20, 1000))
    >>> uneven = image_interval(np.array([100] + 19 * [0]), np.full(20, 1000))
    >>> same[1] < 0.0065 and uneven[1] > 0.02
    True
    """
    from scipy.special import stdtrit

    k, n = len(accepted), int(has_contrast.sum())
    rate = int(accepted.sum()) / max(n, 1)
    if k < 2 or not 0 < rate < 1:
        return rate_interval(int(accepted.sum()), n)
    spread = k / (k - 1) * float(((accepted - rate * has_contrast) ** 2).sum()) / n**2
    worth = rate * (1 - rate) / max(spread, rate * (1 - rate) / n)  # never more than the windows there are
    worth *= float(stdtrit(n - 1, TAIL) / stdtrit(k - 1, TAIL)) ** 2
    return rate_interval(rate * worth, worth)


@dataclass(frozen=True, eq=False)
class Curve:
    """Counts at each threshold, from the highest, where nothing stands, to the lowest, where all does.

    `thresholds`, `found` and `false_positives` are (K,): one row more than there are different scores. Scores above
    `thresholds[k]` are those of step k and before. `found` and `false_positives` never fall.
    """

    thresholds: Floats
    found: Int64s
    false_positives: Int64s
    n_truths: int
    n_images: int

    @property
    def recall(self) -> Floats:
        """Share (K,) of the truths that are found; NaN where there are no truths."""
        return self.found / self.n_truths if self.n_truths else np.full(len(self.found), np.nan)

    @property
    def precision(self) -> Floats:
        """Share (K,) of the detections that are right; 1 as long as there are none."""
        n_detections = self.found + self.false_positives
        share = np.ones(len(n_detections))
        np.divide(self.found, n_detections, out=share, where=n_detections > 0)
        return share

    @property
    def false_positives_per_image(self) -> Floats:
        """Mean number (K,) of false positives in an image."""
        return self.false_positives / self.n_images


def sweep(scores: ArrayLike, labels: ArrayLike, n_truths: int, n_images: int) -> Curve:
    """Sweep the threshold over the pooled `scores` (N,) and `labels` (N,) of the detections of many images.

    Ignored detections have no part in it. `n_truths` counts the truths of all images that are not to be ignored.

    >>> swept = sweep([3.0, 2.0, 2.0, 1.0], [1, 1, 0, -1], n_truths=4, n_images=2)
    >>> swept.recall
    array([0.  , 0.25, 0.5 ])
    >>> swept.false_positives_per_image
    array([0. , 0. , 0.5])
    """
    label = np.asarray(labels)
    _check_counts(label, n_truths, n_images)
    score = checked_scores(scores, len(label))
    counted = np.flatnonzero(label != Label.IGNORED)
    order = counted[np.argsort(-score[counted], kind="stable")]
    falling, right = score[order], label[order] == Label.TRUE
    last_of_step = np.flatnonzero(np.append(falling[1:] != falling[:-1], len(falling) > 0))
    found = np.append(0, np.cumsum(right)[last_of_step])
    false_positives = np.append(0, np.cumsum(~right)[last_of_step])
    steps = falling[last_of_step]
    # Just below a score, and far above the next: a comparison with >= hardly ever gives another result.
    # Without any score, there is none that a threshold could be put below.
    thresholds = np.append(steps[0], np.nextafter(steps, -np.inf)) if len(steps) else np.array([np.inf])
    return Curve(thresholds, found, false_positives, n_truths, n_images)


def _check_counts(labels: NDArray[np.int8], n_truths: int, n_images: int) -> None:
    if n_images < 1:
        raise ValueError(f"n_images={n_images}; a curve needs at least one image")
    unknown = set(np.unique(labels).tolist()) - set(Label)
    if unknown:
        raise ValueError(f"labels have {sorted(unknown)}; expected 1 (right), 0 (false positive) or -1 (ignored)")
    n_right = int((labels == Label.TRUE).sum())
    if n_right > n_truths:
        raise ValueError(f"{n_right} detections are right, but n_truths={n_truths}: each truth is found once at most")


def operating_point(curve: Curve, false_positives_per_image: float) -> float:
    """The lowest threshold of the curve with at most this many false positives per image; detections above it count.

    It lies just below the last score that still stands, not further: what scores lower was never seen. Where already
    the highest score brings too many false positives, it is that score, and nothing stands. Without detections:
    infinite.

    >>> swept = sweep([4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0], n_truths=2, n_images=10)
    >>> 1.99 < operating_point(swept, 0.1) < 2
    True
    """
    rate = np.asarray(false_positives_per_image, dtype=np.float64)
    return float(curve.thresholds[_last_with_at_most(curve.false_positives_per_image, rate)])


def best_f1(objects: Floats, false_positives: Floats, n_images: int, objects_per_image: float = 1.0) -> float | None:
    """The threshold with the best F1 by scores of objects (n,), -inf where not found, and of false positives (m,).

    The false positives are those of `n_images` images. In images with so many objects each, F1 is 2 r k / (r k + f + k)
    with recall r, f false positives and k objects per image. None without an object that is found.

    >>> best_f1(np.array([9.0, 8.0, 5.0, -np.inf]), np.array([7.0, 4.0, 3.0, 2.0]), n_images=1) > 7
    True
    """
    falling = np.sort(objects[np.isfinite(objects)])[::-1]
    if not len(falling):
        return None
    recall = np.arange(1, len(falling) + 1) / len(objects)
    wrong = np.sort(false_positives)
    rate = (len(wrong) - np.searchsorted(wrong, falling, side="left")) / n_images
    k = objects_per_image
    f1 = 2 * recall * k / (recall * k + rate + k)
    return float(np.nextafter(falling[int(np.argmax(f1))], -np.inf))


def _last_with_at_most(counts: Int64s | Floats, most: Floats) -> Indices:
    if not (most >= 0).all():
        raise ValueError(f"there cannot be {most.min()} false positives or fewer; ask for 0 or more")
    return np.asarray(np.searchsorted(counts, most, side="right") - 1)


def average_precision(curve: Curve) -> float:
    """Area under precision against recall, interpolated at all points (PASCAL since 2010; before, at eleven).

    The precision at a recall is the best at that recall or any higher one; recall that is never reached has precision
    0. From 0 to 1; NaN where there are no truths.

    >>> average_precision(sweep([4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0], n_truths=2, n_images=1)).__round__(4)
    0.8333
    """
    if not curve.n_truths:
        return float("nan")
    best_from_here = np.maximum.accumulate(curve.precision[::-1])[::-1]
    return float(np.sum(np.diff(curve.recall) * best_from_here[1:]))


def log_average_miss_rate(curve: Curve) -> float:
    """Geometric mean of the miss rate at nine rates from 0.01 to 1 false positives per image (Dollar et al., 2012).

    Their steps, not lines between points: the miss rate at a rate is that of the last point of the curve with at most
    that rate, and so 1 before the first detection and the lowest of all beyond the end of the curve. A miss rate of 0
    counts as 1e-10, as in their toolbox. Lower is better; NaN where there are no truths.

    >>> swept = sweep([3.0, 2.0, 1.0], [1, 0, 1], n_truths=4, n_images=10)
    >>> log_average_miss_rate(swept).__round__(4) == ((0.75**4 * 0.5**5) ** (1 / 9)).__round__(4)
    True
    """
    at = _last_with_at_most(curve.false_positives_per_image, np.logspace(-2, 0, 9))
    return float(np.exp(np.mean(np.log(np.maximum(1 - curve.recall[at], 1e-10)))))


Detected = tuple[ArrayLike, ArrayLike]
Labelled = tuple[ArrayLike, ArrayLike | None]


@dataclass(frozen=True, eq=False)
class ImageResult:
    """One image: detections (N, 4) with scores (N,), truths (M, 4) with ignore flags (M,), and their matching.

    What is asked at a threshold is answered for the detections with scores above it.
    """

    boxes: Floats
    scores: Floats
    truths: Floats
    ignored: Bools
    matching: Matching

    @cached_property
    def truth_scores(self) -> Floats:
        """Score (M,) of the detection that found each truth, -inf where none did: found below that threshold."""
        is_found = self.matching.found_by != NOT_FOUND
        scores = np.full(len(self.truths), -np.inf)
        scores[is_found] = self.scores[self.matching.found_by[is_found]]
        return scores

    def found(self, threshold: float = -np.inf) -> Indices:
        """Indices of the truths that are found."""
        return np.flatnonzero(self.truth_scores > threshold)

    def missed(self, threshold: float = -np.inf) -> Indices:
        """Indices of the truths that are not found, without those to be ignored."""
        return np.flatnonzero(~(self.truth_scores > threshold) & ~self.ignored)

    def false_positives(self, threshold: float = -np.inf) -> Indices:
        """Indices of the detections that are false positives."""
        return np.flatnonzero((self.matching.labels == Label.FALSE) & (self.scores > threshold))


@dataclass(frozen=True, eq=False)
class Mistake:
    """A false positive or a miss: image, index among its detections or truths, box (4,), and score.

    The score of a miss is that of the detection which would have found it at a lower threshold, or -inf.
    """

    image: int
    index: int
    box: Floats
    score: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All images in the order in which they came, and the curve over their pooled detections."""

    images: tuple[ImageResult, ...]
    curve: Curve

    def __repr__(self) -> str:
        return f"Evaluation({len(self.images):,} images: average precision {self.average_precision:.3f})"

    @property
    def average_precision(self) -> float:
        """See `average_precision`."""
        return average_precision(self.curve)

    @property
    def log_average_miss_rate(self) -> float:
        """See `log_average_miss_rate`."""
        return log_average_miss_rate(self.curve)

    def worst_false_positives(self, threshold: float = -np.inf) -> list[Mistake]:
        """List the false positives above a threshold, the most confident first."""
        mistakes = [
            Mistake(image, int(i), result.boxes[i], float(result.scores[i]))
            for image, result in enumerate(self.images)
            for i in result.false_positives(threshold)
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.score)

    def worst_misses(self, threshold: float = -np.inf) -> list[Mistake]:
        """List the truths that are not found at a threshold: the lowest scores first, and of equals the largest."""
        mistakes = [
            Mistake(image, int(i), result.truths[i], float(result.truth_scores[i]))
            for image, result in enumerate(self.images)
            for i in result.missed(threshold)
        ]
        return sorted(mistakes, key=lambda mistake: (mistake.score, -float(areas(mistake.box[None])[0])))


def evaluate_detections(
    detections: Iterable[Detected], truths: Iterable[Labelled], *, iou: float = 0.5, ignore_overlap: float = 0.5
) -> Evaluation:
    """Evaluate the detections of many images.

    `detections` has (boxes (N, 4), scores (N,)) for each image, `truths` (boxes (M, 4), ignore flags (M,) or None),
    in the same order. `iou` and `ignore_overlap` are those of `match`.

    >>> car = [[0, 0, 10, 10]]
    >>> result = evaluate_detections([(car, [2.0]), ([[5, 5, 9, 9]], [1.0])], [(car, None), (car, None)])
    >>> result.curve.recall, result.average_precision
    (array([0. , 0.5, 0.5]), 0.5)
    >>> [(miss.image, miss.index) for miss in result.worst_misses()]
    [(1, 0)]
    """
    detected, labelled = list(detections), list(truths)
    if len(detected) != len(labelled):
        raise ValueError(f"detections of {len(detected)} images, but truths of {len(labelled)}; expected as many")
    if not detected:
        raise ValueError("no images to evaluate; pass ([], []) for an image without detections")
    images = []
    for (boxes, scores_of_boxes), (true_boxes, ignored) in zip(detected, labelled, strict=True):
        matching = match(boxes, scores_of_boxes, true_boxes, ignored, iou=iou, ignore_overlap=ignore_overlap)
        ours, objects = checked_boxes(boxes), checked_boxes(true_boxes)
        flags = checked_flags(ignored, len(objects))
        images.append(ImageResult(ours, np.asarray(scores_of_boxes, np.float64), objects, flags, matching))
    scores = np.concatenate([image.scores for image in images])
    labels = np.concatenate([image.matching.labels for image in images])
    n_truths = sum(int((~image.ignored).sum()) for image in images)
    return Evaluation(tuple(images), sweep(scores, labels, n_truths, len(images)))
