"""Detections of many images against annotations: one curve over all, and the matches and mistakes of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from whet.arrays import Bools, Floats, Indices
from whet.evaluation import curves
from whet.evaluation.curves import Curve
from whet.evaluation.matching import NOT_FOUND, Label, Matching, checked_flags, match
from whet.images.boxes import areas, checked_boxes

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
        """See `whet.evaluation.curves.average_precision`."""
        return curves.average_precision(self.curve)

    @property
    def log_average_miss_rate(self) -> float:
        """See `whet.evaluation.curves.log_average_miss_rate`."""
        return curves.log_average_miss_rate(self.curve)

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
    in the same order. `iou` and `ignore_overlap` are those of `whet.evaluation.matching.match`.

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
    return Evaluation(tuple(images), curves.sweep(scores, labels, n_truths, len(images)))
