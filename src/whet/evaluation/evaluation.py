"""A detector judged on many images: one curve over all, and each image's faces found, missed and false positives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.cascade.boxes import Floats, areas, checked_boxes
from whet.evaluation import curves
from whet.evaluation.curves import Curve
from whet.evaluation.matching import NOT_FOUND, Label, Matching, checked_flags, match

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
    ignored: NDArray[np.bool_]
    matching: Matching

    @cached_property
    def truth_scores(self) -> Floats:
        """Score (M,) of the detection that found each truth, -inf where none did: found below that threshold."""
        found = self.matching.found_by != NOT_FOUND
        scores = np.full(len(self.truths), -np.inf)
        scores[found] = self.scores[self.matching.found_by[found]]
        return scores

    def found(self, threshold: float = -np.inf) -> NDArray[np.intp]:
        """Indices of the truths that are found."""
        return np.flatnonzero(self.truth_scores > threshold)

    def missed(self, threshold: float = -np.inf) -> NDArray[np.intp]:
        """Indices of the truths that are not found, without those to be ignored."""
        return np.flatnonzero(~(self.truth_scores > threshold) & ~self.ignored)

    def false_positives(self, threshold: float = -np.inf) -> NDArray[np.intp]:
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
    detections: Iterable[Detected],
    truths: Iterable[Labelled],
    *,
    iou: float = 0.5,
    ignore_overlap: float = 0.5,
) -> Evaluation:
    """StageValidation the detections of many images.

    `detections` has (boxes (N, 4), scores (N,)) for each image, `truths` (boxes (M, 4), ignore flags (M,) or None),
    in the same order. `iou` and `ignore_overlap` are those of `whet.evaluation.matching.match`.

    >>> face = [[0, 0, 10, 10]]
    >>> result = evaluate_detections([(face, [2.0]), ([[5, 5, 9, 9]], [1.0])], [(face, None), (face, None)])
    >>> result.curve.recall, result.average_precision
    (array([0. , 0.5, 0.5]), 0.5)
    >>> [(miss.image, miss.index) for miss in result.worst_misses()]
    [(1, 0)]
    """
    pairs = _paired(list(detections), list(truths))
    images = tuple(_judge(*detected, *labelled, iou=iou, ignore_overlap=ignore_overlap) for detected, labelled in pairs)
    scores = np.concatenate([image.scores for image in images])
    labels = np.concatenate([image.matching.labels for image in images])
    n_truths = sum(int((~image.ignored).sum()) for image in images)
    return Evaluation(images, curves.sweep(scores, labels, n_truths, len(images)))


def _paired(detections: list[Detected], truths: list[Labelled]) -> list[tuple[Detected, Labelled]]:
    if len(detections) != len(truths):
        raise ValueError(f"detections of {len(detections)} images, but truths of {len(truths)}; expected as many")
    if not detections:
        raise ValueError("no images to evaluate; pass ([], []) for an image without detections")
    return list(zip(detections, truths, strict=True))


def _judge(
    boxes: ArrayLike,
    scores: ArrayLike,
    truths: ArrayLike,
    ignored: ArrayLike | None,
    *,
    iou: float,
    ignore_overlap: float,
) -> ImageResult:
    matching = match(boxes, scores, truths, ignored, iou=iou, ignore_overlap=ignore_overlap)
    labelled = checked_boxes(truths)
    return ImageResult(
        checked_boxes(boxes),
        np.asarray(scores, dtype=np.float64),
        labelled,
        checked_flags(ignored, len(labelled)),
        matching,
    )
