"""Comparisons of detections: with labels, with another state of the detector, and with the boxes of locked images."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import box_iou
from whet.cascade.detections import Detections
from whet.detector.corrections import CONTRARY, SAME
from whet.web.store import Label
from whet.web.views import Box, ChangeView, DetectionView, LabelCounts, LabelState, LabelView

Boxes = NDArray[np.float64]

# A box that keeps less of itself than this has moved.
MOVED = 0.8


def as_box(box: Sequence[float] | Boxes) -> Box:
    """A box as numbers, to a hundredth of a pixel."""
    x1, y1, x2, y2 = (round(float(side), 2) for side in box)
    return x1, y1, x2, y2


def boxes_of(labels: Sequence[Label]) -> Boxes:
    """The boxes (n, 4) of labels."""
    return np.array([label.box for label in labels], np.float64).reshape(-1, 4)


def labelled(found: Detections, labels: Sequence[Label]) -> list[Label | None]:
    """For each detection, the label that overlaps it most (IoU from 0.5 up); of equals, the newest."""
    if not labels or not len(found):
        return [None] * len(found)
    overlaps = box_iou(found.boxes, boxes_of(labels)).round(3)
    newest = np.array([label.time for label in labels])
    chosen = [max(range(len(labels)), key=lambda j: (overlaps[i, j], newest[j])) for i in range(len(found))]
    return [labels[j] if overlaps[i, j] >= SAME else None for i, j in enumerate(chosen)]


def detection_views(found: Detections, labels: Sequence[Label] = ()) -> list[DetectionView]:
    """Detections for the page, best first."""
    probabilities = found.probabilities.tolist()
    rows = zip(found.boxes, found.scores.tolist(), probabilities, found.labels, labelled(found, labels), strict=True)
    return [
        DetectionView(
            as_box(box),
            round(score, 4),
            round(probability, 4) if isfinite(probability) else None,
            name or None,
            None if label is None else label.is_object,
            None if label is None else label.id,
        )
        for box, score, probability, name, label in rows
    ]


def disputes(labels: Sequence[Label]) -> set[str]:
    """The ids of labels of one image that say the contrary of another one about the same box."""
    sides = [[label for label in labels if label.is_object is side] for side in (True, False)]
    pairs = np.argwhere(box_iou(boxes_of(sides[0]), boxes_of(sides[1])) >= CONTRARY)
    return {sides[side][pair[side]].id for pair in pairs.tolist() for side in (0, 1)}


def label_views(labels: Sequence[Label], unsatisfied: frozenset[str]) -> list[LabelView]:
    """Labels of an image for the page, the oldest first."""
    disputed = disputes(labels)

    def state(label: Label) -> LabelState:
        return "disputed" if label.id in disputed else "unsatisfied" if label.id in unsatisfied else "holds"

    return [
        LabelView(label.id, as_box(label.box), label.is_object, label.author, label.time, state(label))
        for label in sorted(labels, key=lambda label: (label.time, label.id))
    ]


def label_counts(labels: Sequence[Label]) -> LabelCounts:
    """How many boxes are right, wrong and missed."""
    right = sum(label.is_object and label.was_found for label in labels)
    wrong = sum(not label.is_object for label in labels)
    return LabelCounts(right, wrong, len(labels) - right - wrong)


def pairs_of(before: Boxes, after: Boxes) -> list[tuple[int, int, float]]:
    """Boxes (n, 4) and (m, 4) that are the same object: pairs with an IoU from 0.5 up, the best first, each once."""
    overlaps = box_iou(before, after)
    rows, columns = np.nonzero(overlaps >= SAME)
    order = np.argsort(-overlaps[rows, columns], kind="stable")
    seen: tuple[set[int], set[int]] = set(), set()
    found = []
    for i, j in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if i not in seen[0] and j not in seen[1]:
            seen[0].add(i)
            seen[1].add(j)
            found.append((i, j, float(overlaps[i, j])))
    return found


def changes(image: str, name: str, before: Detections, after: Detections, labels: Sequence[Label]) -> list[ChangeView]:
    """Boxes of an image that were gained, lost or moved.

    Harm is between -1 and 2. A lost box harms by the probability that it is an object, a gained one by that it is none,
    a moved one by the part of it that is gone. What a person has confirmed harms by one more, and what a person wanted
    changed is no harm.
    """
    pairs = pairs_of(before.boxes, after.boxes)
    kept_before, kept_after = {i for i, _, _ in pairs}, {j for _, j, _ in pairs}
    said_before, said_after = labelled(before, labels), labelled(after, labels)
    likely_before, likely_after = (np.nan_to_num(found.probabilities, nan=0.5).tolist() for found in (before, after))
    found: list[ChangeView] = []
    for i in sorted(set(range(len(before))) - kept_before):
        said = said_before[i]
        harm = likely_before[i] if said is None else 2.0 if said.is_object else -1.0
        found.append(_change(image, name, "lost", before.boxes[i], float(before.scores[i]), None, harm, said))
    for j in sorted(set(range(len(after))) - kept_after):
        said = said_after[j]
        harm = 1 - likely_after[j] if said is None else -1.0 if said.is_object else 2.0
        found.append(_change(image, name, "gained", after.boxes[j], None, float(after.scores[j]), harm, said))
    for i, j, overlap in pairs:
        if overlap < MOVED:
            scores = float(before.scores[i]), float(after.scores[j])
            found.append(_change(image, name, "moved", after.boxes[j], *scores, 1 - overlap, said_after[j]))
    return found


def _change(
    image: str,
    name: str,
    kind: str,
    box: Boxes,
    score_before: float | None,
    score_after: float | None,
    harm: float,
    said: Label | None,
) -> ChangeView:
    before, after = (None if score is None else round(score, 4) for score in (score_before, score_after))
    return ChangeView(image, name, kind, as_box(box), before, after, round(harm, 4), said is not None)  # type: ignore[arg-type]


def found_of(truth: Boxes, found: Detections) -> tuple[int, int]:
    """How many boxes (n, 4) of an image are found, and how many detections are none of them."""
    n = len(pairs_of(truth, found.boxes))
    return n, len(found) - n
