"""Answers about a workspace: effects of a change on all images, the gold set, causes of boxes, curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from whet.arrays import Boxes
from whet.corrections.box_windows import SAME, SAME_PLACE
from whet.evaluation.evaluation import match, sweep
from whet.images.boxes import box_iou
from whet.images.detections import Detections
from whet.web.schemas import (
    BlameView,
    Box,
    CauseView,
    Change,
    ChangeView,
    CurvePoint,
    CurvesView,
    EffectSummary,
    EffectView,
    Histogram,
    LockedImage,
    LockedView,
)
from whet.web.store import Label, StoredImage
from whet.web.workspace import Workspace

# Points of a curve that a page can show.
MOST_POINTS = 400


# Comparisons of boxes.


def as_box(box: Sequence[float] | Boxes) -> Box:
    """A box as numbers, to a hundredth of a pixel."""
    x1, y1, x2, y2 = (round(float(side), 2) for side in box)
    return x1, y1, x2, y2


def boxes_of(labels: Sequence[Label]) -> Boxes:
    """The boxes (n, 4) of labels."""
    return np.array([label.box for label in labels], np.float64).reshape(-1, 4)


def objects_of(labels: Sequence[Label]) -> Boxes:
    """The boxes (n, 4) of labelled objects, the oldest first; boxes of one place count once, as in the page.

    >>> boxes = (0, 0, 100, 100), (0, 0, 100, 98), (300, 0, 400, 100)
    >>> objects_of([Label(str(n), "a", box, True, False, "", n, None) for n, box in enumerate(boxes)])
    array([[  0.,   0., 100., 100.],
           [300.,   0., 400., 100.]])
    """
    objects = sorted((label for label in labels if label.is_object), key=lambda label: (label.time, label.id))
    boxes = boxes_of(objects)
    is_same = box_iou(boxes, boxes) >= SAME_PLACE
    chosen: list[int] = []
    for i in range(len(boxes)):
        if not is_same[i, chosen].any():
            chosen.append(i)
    return boxes[chosen]


def labelled(found: Detections, labels: Sequence[Label]) -> list[Label | None]:
    """For each detection, the label that overlaps it most (IoU from 0.5 up); of equals, the newest."""
    if not labels or not len(found):
        return [None] * len(found)
    overlaps = box_iou(found.boxes, boxes_of(labels)).round(3)
    newest = np.array([label.time for label in labels])
    chosen = [max(range(len(labels)), key=lambda j: (overlaps[i, j], newest[j])) for i in range(len(found))]
    return [labels[j] if overlaps[i, j] >= SAME else None for i, j in enumerate(chosen)]


def disputes(labels: Sequence[Label]) -> set[str]:
    """The ids of labels of one image that say the contrary of another one about the same box."""
    sides = [[label for label in labels if label.is_object is side] for side in (True, False)]
    pairs = np.argwhere(box_iou(boxes_of(sides[0]), boxes_of(sides[1])) >= SAME_PLACE)
    return {sides[side][pair[side]].id for pair in pairs.tolist() for side in (0, 1)}


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


def image_changes(
    image: str, name: str, before: Detections, after: Detections, labels: Sequence[Label]
) -> list[ChangeView]:
    """Boxes of an image that were gained, lost or moved.

    Harm is between -1 and 2. A lost box harms by the probability that it is an object, a gained one by that it is none,
    a moved one by the part of it that is gone. What a user has confirmed harms by one more, and what a user wanted
    changed is no harm.
    """
    pairs = pairs_of(before.boxes, after.boxes)
    kept_before, kept_after = {i for i, _, _ in pairs}, {j for _, j, _ in pairs}
    judged_before, judged_after = labelled(before, labels), labelled(after, labels)
    likely_before, likely_after = (np.nan_to_num(found.probabilities, nan=0.5).tolist() for found in (before, after))
    scores_before, scores_after = (found.scores.round(4).tolist() for found in (before, after))
    changes: list[ChangeView] = []

    def add(kind: Change, box: Boxes, was: float | None, now: float | None, harm: float, label: Label | None) -> None:
        changes.append(ChangeView(image, name, kind, as_box(box), was, now, round(harm, 4), label is not None))

    for i in sorted(set(range(len(before))) - kept_before):
        label = judged_before[i]
        harm = likely_before[i] if label is None else 2.0 if label.is_object else -1.0
        add("lost", before.boxes[i], scores_before[i], None, harm, label)
    for j in sorted(set(range(len(after))) - kept_after):
        label = judged_after[j]
        harm = 1 - likely_after[j] if label is None else -1.0 if label.is_object else 2.0
        add("gained", after.boxes[j], None, scores_after[j], harm, label)
    for i, j, overlap in pairs:
        # A box that keeps less of itself than this has moved.
        if overlap < 0.8:
            add("moved", after.boxes[j], scores_before[i], scores_after[j], 1 - overlap, judged_after[j])
    return changes


def found_of(truth: Boxes, found: Detections) -> tuple[int, int]:
    """How many boxes (n, 4) of an image are found, and how many detections are none of them."""
    n = len(pairs_of(truth, found.boxes))
    return n, len(found) - n


# Effects.


def effect(workspace: Workspace, before: int | None = None, after: int | None = None) -> EffectView:
    """What differs between two states in all images that were scanned.

    By default, it is what the last change, undo, redo or switch did; or what made another state of its parent.
    """
    with workspace.locked() as history:
        if before is None:
            before = workspace.previous if after is None else None
        after = history.node(history.current if after is None else after).id
        parent = history.nodes[after].parent
        before = history.node((after if parent is None else parent) if before is None else before).id
    is_complete = workspace.has_model and all(image.id in workspace.cache for image in workspace.gallery)
    found = changes(workspace, before, after) if workspace.has_model else []
    # Boxes of a diff: a user reads the first of them.
    return EffectView(
        before,
        after,
        found[:500],
        locked(workspace, before, after),
        summary(workspace, before, after, found),
        is_complete,
    )


def summary(workspace: Workspace, before: int, after: int, found: Sequence[ChangeView] | None = None) -> EffectSummary:
    """How many boxes differ between two states, and the estimates of both."""
    found = changes(workspace, before, after) if found is None else found
    gained, lost, moved = ([change for change in found if change.kind == kind] for kind in ("gained", "lost", "moved"))
    n_images = len({change.image for change in found})
    estimates = [workspace.estimate_at(node) for node in (before, after)]
    wrong, objects = (None if None in estimates else expected_harm(part) for part in (gained, lost))
    return EffectSummary(len(gained), len(lost), len(moved), n_images, wrong, objects, *estimates)


def expected_harm(found: Sequence[ChangeView]) -> float:
    """How many of some gained or lost boxes are expected to be errors: a labelled one is or is not, others by harm."""
    return round(sum(min(max(change.harm, 0.0), 1.0) for change in found), 4)


def changes(workspace: Workspace, before: int, after: int) -> list[ChangeView]:
    """Boxes that differ between two states, in all images that were scanned, the most harmful first."""
    lowest = workspace.min_score
    with workspace.locked():
        ids = workspace.record_ids(before), workspace.record_ids(after)
        caches = workspace.cache_at(before), workspace.cache_at(after)
    if caches[0] is None or caches[1] is None:
        return []
    keys = [image.id for image in workspace.gallery if image.id in caches[0] and image.id in caches[1]]
    if caches[0] is caches[1]:
        keys = caches[0].differing(*ids)
    found: list[ChangeView] = []
    for key in keys:
        one, other = (
            caches[0].detections(key, ids[0]).with_min_score(lowest),
            caches[1].detections(key, ids[1]).with_min_score(lowest),
        )
        found += image_changes(key, workspace.gallery[key].name, one, other, workspace.labels_of(key))
    return sorted(found, key=lambda change: (-change.harm, change.name, change.box))


def lock(workspace: Workspace, key: str, is_locked: bool) -> None:
    """Watch an image: the boxes that are labelled the object now have to be found from now on; or stop."""
    image, truth, node = workspace.gallery[key], None, None
    if is_locked:
        truth = [as_box(box) for box in objects_of(workspace.labels_of(key))]
        node = workspace.history.current
    workspace.store.lock_image(key, truth, node)
    workspace.gallery.update(replace(image, truth=None if truth is None else tuple(truth), locked_at=node))
    workspace.events.publish("state", revision=workspace.revision)


def truth_of(image: StoredImage, labels: Sequence[Label]) -> Boxes:
    """The objects of a locked image: those that it was locked with, and labels since then."""
    boxes = np.array(image.truth or (), np.float64).reshape(-1, 4)
    wrong = boxes_of([label for label in labels if not label.is_object])
    boxes = boxes[~(box_iou(boxes, wrong) >= SAME).any(axis=1)]
    objects = objects_of(labels)
    new = objects[~(box_iou(objects, boxes) >= SAME).any(axis=1)]
    return np.concatenate([boxes, new])


def judged_only(found: Detections, truth: Boxes, labels: Sequence[Label]) -> Detections:
    """The detections of an image that nobody reviewed as a whole, without those that nobody judged."""
    is_judged = np.array([label is not None for label in labelled(found, labels)], np.bool_)
    return found[is_judged | (box_iou(found.boxes, truth) >= SAME).any(axis=1)]


def locked(workspace: Workspace, before: int | None = None, after: int | None = None) -> LockedView:
    """What is found of the objects of locked images; before is the state in which each was locked."""
    if not workspace.has_model:
        return LockedView()
    rows, totals = [], np.zeros(7, np.int64)
    for image in workspace.gallery.readable:
        if image.truth is None:
            continue
        labels = workspace.labels_of(image.id)
        truth, is_reviewed = truth_of(image, labels), workspace.is_reviewed(image.id)
        shown = workspace.shown(image.id)
        n_open = 0 if is_reviewed else len(shown) - len(judged_only(shown, truth, labels))
        n_judged = len(truth) + sum(not label.is_object for label in labels)
        counts = []
        for node in (image.locked_at or 0) if before is None else before, after:
            found = workspace.detections(image.id, node).with_min_score(workspace.min_score)
            counts.append(found_of(truth, found if is_reviewed else judged_only(found, truth, labels)))
        (found_before, wrong_before), (found_now, wrong_now) = counts
        totals += [len(truth), found_before, found_now, wrong_before, wrong_now, n_judged, n_judged + n_open]
        recall_before, recall_now = (found / len(truth) if len(truth) else None for found in (found_before, found_now))
        wrong = wrong_before, wrong_now
        rows.append(LockedImage(image.id, image.name, recall_before, recall_now, *wrong, n_judged, n_judged + n_open))
    n, found_before, found_now, wrong_before, wrong_now, n_judged, n_boxes = totals.tolist()
    is_worse = found_now < found_before or wrong_now > wrong_before
    recall_before, recall_now = (found / n if n else None for found in (found_before, found_now))
    return LockedView(rows, n, recall_before, recall_now, wrong_before, wrong_now, n_judged, n_boxes, is_worse)


# Causes.


def blame(workspace: Workspace, key: str, box: Sequence[float]) -> BlameView:
    """The corrections without which a box of an image would have another score, found by unlearning each of them."""
    ids, target = workspace.record_ids(), np.array([box], np.float64)
    workspace.detections(key)  # scans the image, if that is not done yet
    cache, lowest = workspace.cache, workspace.min_score

    def score(chosen: frozenset[str]) -> float | None:
        found = cache.detections(key, chosen).with_min_score(lowest)
        overlaps = box_iou(target, found.boxes)[0]
        return None if not (overlaps >= SAME).any() else float(found.scores[overlaps >= SAME].max())

    now = score(ids)
    without = {one: score(ids - {one}) for one in sorted(ids)}
    causes = [one for one in without if without[one] != now]
    together = False
    if not causes and ids:
        causes = _smallest_group(ids, now, score)
        together = bool(causes)

    def rank(one: str) -> tuple[float, bool, float, str]:
        """The largest change first; of equals, one that could have made the box appear or vanish, and the newest."""
        label = workspace.labels[one]
        is_other_way = label.is_object is (now is None)
        return -abs((now or 0.0) - (without[one] or 0.0)), is_other_way, -label.time, one

    views = []
    for one in sorted(causes, key=rank):
        label, score_without = workspace.labels[one], _rounded(without[one])
        name = "" if label.record is None else label.record.name
        views.append(CauseView(one, label.image, name, as_box(label.box), label.is_object, score_without))
    return BlameView(_rounded(now), views, together)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _smallest_group(
    ids: frozenset[str], now: float | None, score: Callable[[frozenset[str]], float | None]
) -> list[str]:
    """Corrections that only together make a box what it is: taken out one after the other until it changes."""
    if score(frozenset()) == now:
        return []
    group = sorted(ids)
    for one in list(group):  # what can stay without the box changing back is no part of the cause
        rest = [other for other in group if other != one]
        if score(ids - set(rest)) != now:
            group = rest
    return group


# Curves.


def curves(workspace: Workspace) -> CurvesView:
    """Precision and recall in images that were reviewed, and the scores of detections that were labelled.

    In a reviewed image, what is no object is a false positive. In other images only labelled boxes count.
    """
    scores: list[NDArray[np.float64]] = []
    kinds: list[NDArray[np.int8]] = []
    unjudged: list[NDArray[np.float64]] = []
    n_truths, n_images, n_labelled = 0, 0, 0
    model = workspace.open_model
    for image in workspace.gallery.readable:
        if model is None or image.id not in model.cache:
            continue
        labels = workspace.labels_of(image.id)
        is_reviewed = workspace.is_reviewed(image.id)
        found = workspace.detections(image.id)
        if not is_reviewed:
            is_judged = np.array([label is not None for label in labelled(found, labels)], np.bool_)
            unjudged.append(found.scores[~is_judged])
            found = found[is_judged]
        if not (labels or is_reviewed):
            continue
        truth = truth_of(image, labels) if image.truth is not None else objects_of(labels)
        matched = match(found.boxes, found.scores, truth)
        scores.append(found.scores)
        kinds.append(matched.labels)
        n_truths, n_images, n_labelled = n_truths + len(truth), n_images + 1, n_labelled + len(labels)
    points: list[CurvePoint] = []
    every, flags = np.concatenate([np.empty(0), *scores]), np.concatenate([np.empty(0, np.int8), *kinds])
    if n_truths and len(every):
        curve = sweep(every, flags, n_truths, n_images)
        rows = np.unique(np.linspace(0, len(curve.thresholds) - 1, MOST_POINTS).round().astype(int))
        for row in rows.tolist():
            wrong, right = float(curve.false_positives[row]), float(curve.recall[row]) * n_truths
            precision = right / (right + wrong) if right + wrong else 1.0
            score = float(curve.thresholds[row])
            points.append(CurvePoint(score if isfinite(score) else 0.0, float(curve.recall[row]), precision))
    points_of = dict(workspace.detector.operating_points) if workspace.has_model else {}
    histogram = _histogram(every, flags, np.concatenate([np.empty(0), *unjudged]))
    return CurvesView(points, histogram, points_of, n_labelled, n_images)


def _histogram(scores: NDArray[np.float64], flags: NDArray[np.int8], unjudged: NDArray[np.float64]) -> Histogram:
    every = np.concatenate([scores, unjudged])
    if not len(every):
        return Histogram([], [], [], [])
    edges = np.linspace(0.0, float(every.max()) * 1.0001 + 1e-9, 25)
    parts = scores[flags == 1], scores[flags == 0], unjudged
    counts = (np.histogram(part, edges)[0].tolist() for part in parts)
    return Histogram([round(float(edge), 4) for edge in edges], *counts)
