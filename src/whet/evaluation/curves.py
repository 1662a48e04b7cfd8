"""Curves, rates and their confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.arrays import Floats, Indices, Int64s
from whet.evaluation.matching import Label, checked_scores

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
