"""Kinds of errors of a detector, and what each costs in average precision (as TIDE, Bolya et al., 2020).

TIDE removes one kind of error at a time and measures by how much average precision rises. Here the errors are those at
one minimum score, and missed objects are divided further: too small, cut off by the image border, of another aspect
ratio, with a poor box, with a low score, or not found at any score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.arrays import Boxes, Indices
from whet.evaluation.evaluation import NOT_FOUND, Evaluation, ImageResult, Label, average_precision, sweep
from whet.images.boxes import box_iou, checked_boxes

# TIDE's lower bound: a detection with less overlap is on the background.
LEAST_OVERLAP = 0.1
# Boxes that end so near to the image border, in pixels, are taken for cut off.
BORDER = 2.0


class ErrorKind(StrEnum):
    """The kind of a false positive or of a miss; the value is its name in a table."""

    BACKGROUND = "background"
    OTHER_CLASS = "other class"
    DUPLICATE = "duplicate"
    POOR_BOX = "poor box"
    TOO_SMALL = "too small"
    CUT_OFF = "cut off"
    OTHER_ASPECT = "other aspect ratio"
    LOW_SCORE = "low score"
    NOT_FOUND = "not found"


# Properties of objects, found or not; the first that holds is the kind of a miss.
TRAITS = (ErrorKind.TOO_SMALL, ErrorKind.CUT_OFF, ErrorKind.OTHER_ASPECT)


@dataclass(frozen=True)
class ErrorCount:
    """False positives and misses of one kind, and the average precision of the detector without them.

    `n_objects` is the number of objects with the property that the kind names, found or not; None for kinds that name
    no property of objects.
    """

    kind: ErrorKind
    false_positives: int
    missed: int
    average_precision: float
    n_objects: int | None = None


@dataclass(frozen=True)
class BoxFit:
    """How detected boxes fit the annotated ones: means over `n` objects with a detection, which may be a poor box.

    `width` and `height` are those of detections in relation to the annotated box (geometric means). `shift_x` and
    `shift_y` are distances between centres, as shares of the annotated box. `size_spread` is the standard deviation of
    the logarithm of the size: 0.1 means that sizes differ by about 10 %.
    """

    n: int
    width: float
    height: float
    shift_x: float
    shift_y: float
    size_spread: float
    iou: float

    @classmethod
    def from_boxes(cls, detected: Boxes, annotated: Boxes) -> BoxFit:
        """Compare detected boxes (n, 4) with annotated boxes (n, 4), row by row.

        >>> fit = BoxFit.from_boxes(np.array([[0.0, 0.0, 20.0, 10.0]]), np.array([[0.0, 0.0, 10.0, 10.0]]))
        >>> fit.width.__round__(2), fit.height.__round__(2), fit.shift_x.__round__(2), fit.iou
        (2.0, 1.0, 0.5, 0.5)
        """
        if not len(detected):
            return cls(0, *6 * (float("nan"),))
        size, target = (boxes[:, 2:] - boxes[:, :2] for boxes in (detected, annotated))
        ratio = np.log(np.maximum(size, 1e-9) / np.maximum(target, 1e-9))
        middle = (detected[:, :2] + detected[:, 2:] - annotated[:, :2] - annotated[:, 2:]) / 2
        shift = middle / np.maximum(target, 1e-9)
        overlaps = np.diagonal(box_iou(detected, annotated))
        width, height = np.exp(ratio.mean(axis=0)).tolist()
        x, y = shift.mean(axis=0).tolist()
        return cls(len(detected), width, height, x, y, float(ratio.mean(axis=1).std()), float(overlaps.mean()))


@dataclass(frozen=True, eq=False)
class ErrorReport:
    """The errors of a detector at one minimum score, the most expensive kind first; kinds without errors are left out.

    `average_precision` is that of the detector as it is.
    """

    n_objects: int
    n_images: int
    average_precision: float
    counts: tuple[ErrorCount, ...]
    box_fit: BoxFit

    @property
    def n_missed(self) -> int:
        """Missed objects of all kinds."""
        return sum(count.missed for count in self.counts)

    @property
    def n_false_positives(self) -> int:
        """False positives of all kinds."""
        return sum(count.false_positives for count in self.counts)

    @property
    def recall(self) -> float:
        """Share of the objects that are found; NaN without any."""
        return 1 - self.n_missed / self.n_objects if self.n_objects else float("nan")

    def count(self, kind: ErrorKind) -> ErrorCount:
        """The errors of one kind; zeros where there are none."""
        none = ErrorCount(kind, 0, 0, self.average_precision)
        return next((count for count in self.counts if count.kind is kind), none)


def count_errors(
    evaluation: Evaluation,
    threshold: float = -np.inf,
    *,
    iou: float = 0.5,
    shapes: Sequence[tuple[int, int]] | None = None,
    others: Iterable[ArrayLike] | None = None,
    min_size: float = 0.0,
    aspect: float | None = None,
) -> ErrorReport:
    """Count the errors of an evaluation by kind, at a threshold.

    A false positive is a duplicate (IoU above `iou` with an object that is already found), on an object of another
    class (`others` has their boxes (n, 4) for each image), a poor box (IoU of at least 0.1 with an object), or
    background. A miss is too small (its longer side is below `min_size`), cut off (its box ends at the border of an
    image; `shapes` are their heights and widths), of another aspect ratio (by a factor of 1.6 from `aspect`, width over
    height of the detector's boxes), has a poor box, a low score (found below the threshold), or is not found at any
    score. What lies on ignored boxes is no error.

    Average precision without a kind of error: as in TIDE, poor boxes become correct where their object is missed, and
    other false positives are removed. Missed objects are found, with scores just above the threshold. (TIDE removes
    them, which would not count what is found below the threshold.)

    >>> from whet.evaluation.evaluation import average_precision, sweep, evaluate_detections
    >>> cars = [[0, 0, 20, 10], [40, 0, 60, 10]]
    >>> found = [[0, 0, 20, 10], [44, 0, 80, 10], [200, 0, 220, 10]]
    >>> report = count_errors(evaluate_detections([(found, [3.0, 2.0, 1.0])], [(cars, None)]))
    >>> for count in report.counts:
    ...     print(count.kind, count.false_positives, count.missed, count.average_precision)
    poor box 1 1 1.0
    background 1 0 0.5
    """
    n = len(evaluation.images)
    known = zip(
        evaluation.images, [None] * n if shapes is None else shapes, [[]] * n if others is None else others, strict=True
    )
    images = [
        _ImageErrors.from_result(result, threshold, iou, shape, checked_boxes(boxes), min_size, aspect)
        for result, shape, boxes in known
    ]
    before = average_precision(evaluation.curve)
    counts = [_counted(kind, images, evaluation, threshold) for kind in ErrorKind]
    seen = [count for count in counts if count.false_positives or count.missed]
    seen.sort(key=lambda count: (-count.average_precision, -count.missed - count.false_positives))
    pairs = [image.pairs() for image in images]
    fit = BoxFit.from_boxes(*(np.concatenate(side) for side in zip(*pairs, strict=True)))
    return ErrorReport(evaluation.curve.n_truths, n, before, tuple(seen), fit)


NONE = ""


@dataclass(frozen=True, eq=False)
class _ImageErrors:
    """Errors of one image: the kind of each detection (N,) and truth (M,), or "", and the truth that each is near."""

    result: ImageResult
    of_detection: NDArray[np.str_]
    of_truth: NDArray[np.str_]
    traits: NDArray[np.str_]
    nearest: Indices

    @classmethod
    def from_result(
        cls,
        result: ImageResult,
        threshold: float,
        iou: float,
        shape: tuple[int, int] | None,
        others: Boxes,
        min_size: float,
        aspect: float | None,
    ) -> _ImageErrors:
        overlaps = box_iou(result.boxes, np.where(result.ignored[:, None], 0.0, result.truths))
        n_detections, n_truths = overlaps.shape
        nearest = overlaps.argmax(axis=1) if n_truths else np.full(n_detections, NOT_FOUND)
        best = overlaps.max(axis=1) if n_truths else np.zeros(n_detections)
        on_other = box_iou(result.boxes, others).max(axis=1, initial=0.0) > np.maximum(iou, best)
        kinds = [ErrorKind.DUPLICATE, ErrorKind.OTHER_CLASS, ErrorKind.POOR_BOX]
        by_place = np.select([best > iou, on_other, best >= LEAST_OVERLAP], kinds, ErrorKind.BACKGROUND)
        is_wrong = np.isin(np.arange(n_detections), result.false_positives(threshold))
        of_detection = np.where(is_wrong, by_place, NONE)
        traits = _traits(result.truths, shape, min_size, aspect)
        traits[result.ignored] = NONE
        has_poor_box = np.isin(np.arange(n_truths), nearest[of_detection == ErrorKind.POOR_BOX])
        by_score = np.where(np.isfinite(result.truth_scores), ErrorKind.LOW_SCORE, ErrorKind.NOT_FOUND)
        by_place = np.where(has_poor_box, ErrorKind.POOR_BOX, by_score)
        is_missed = np.isin(np.arange(n_truths), result.missed(threshold))
        of_truth = np.where(is_missed, np.where(traits == NONE, by_place, traits), NONE)
        return cls(result, of_detection, of_truth, traits, nearest)

    def pairs(self) -> tuple[Boxes, Boxes]:
        """The best detection of each object that has one, correct or a poor box (n, 4), and the objects (n, 4)."""
        result = self.result
        truths = np.flatnonzero((self.of_truth == NONE) & ~result.ignored)
        poor = np.flatnonzero(self.of_detection == ErrorKind.POOR_BOX)
        detected = np.concatenate([result.matching.found_by[truths], poor]).astype(np.intp)
        of = np.concatenate([truths, self.nearest[poor]]).astype(np.intp)
        best = np.lexsort([-result.scores[detected], of])
        best = best[np.unique(of[best], return_index=True)[1]]
        return result.boxes[detected[best]], result.truths[of[best]]

    def mended(self, kind: ErrorKind) -> tuple[NDArray[np.int8], int]:
        """Labels (N,) of the detections without errors of a kind, and the number of objects that have to be added."""
        labels = self.result.matching.labels.copy()
        wrong, missed = np.flatnonzero(self.of_detection == kind), np.flatnonzero(self.of_truth == kind)
        labels[wrong] = Label.IGNORED
        own = self.result.matching.found_by[missed]  # below the threshold
        labels[own[own != NOT_FOUND]] = Label.IGNORED
        if kind is not ErrorKind.POOR_BOX:
            return labels, len(missed)
        for truth in missed.tolist():
            boxes = wrong[self.nearest[wrong] == truth]
            labels[boxes[np.argmax(self.result.scores[boxes])]] = Label.TRUE
        return labels, 0


def _traits(truths: Boxes, shape: tuple[int, int] | None, min_size: float, aspect: float | None) -> NDArray[np.str_]:
    """The property (M,) that makes each object hard to find, or ""."""
    size = truths[:, 2:] - truths[:, :2]
    height, width = (np.inf, np.inf) if shape is None else shape
    beyond = truths[:, 2:] > np.array([width, height]) - BORDER
    is_cut = (beyond | (truths[:, :2] < BORDER)).any(axis=1) & (shape is not None)
    factor = np.log(np.maximum(size[:, 0], 1e-9) / np.maximum(size[:, 1], 1e-9) / (aspect or 1.0))
    # A box of the right size and place has an IoU of 0.65 with an object whose aspect ratio differs by this factor.
    is_other = (np.abs(factor) > np.log(1.6)) & (aspect is not None)
    return np.select([size.max(axis=1, initial=0.0) < min_size, is_cut, is_other], list(TRAITS), NONE)


def _counted(kind: ErrorKind, images: Sequence[_ImageErrors], evaluation: Evaluation, threshold: float) -> ErrorCount:
    mended = [image.mended(kind) for image in images]
    n_added = sum(n for _, n in mended)
    scores = np.concatenate([image.result.scores for image in images])
    # Missed objects are found at the threshold; without one, as the last detections.
    least = np.nextafter(threshold, np.inf) if np.isfinite(threshold) else scores.min(initial=0.0)
    scores = np.append(scores, np.full(n_added, least))
    labels = np.concatenate([*(labels for labels, _ in mended), np.full(n_added, Label.TRUE, np.int8)])
    swept = sweep(scores, labels, evaluation.curve.n_truths, len(images))
    return ErrorCount(
        kind,
        sum(int((image.of_detection == kind).sum()) for image in images),
        sum(int((image.of_truth == kind).sum()) for image in images),
        average_precision(swept),
        sum(int((image.traits == kind).sum()) for image in images) if kind in TRAITS else None,
    )
