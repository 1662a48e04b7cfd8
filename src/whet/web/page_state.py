"""The studio at a glance: its state, its images in order, one image with its boxes, the model, the history.

Images come in the order in which they are worth a review. A training on reviewed images learns from objects, and from
what the detector takes for one or misses. So the image comes first in which most of these are expected. That its
review takes more clicks is no reason against it: boxes that are all right, or all wrong, are judged at once.
Near-duplicates of an image come after all other images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet.corrections.box_windows import SAME, SAME_PLACE
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.errors import CannotExportError, CannotLearnError
from whet.images.boxes import box_iou
from whet.images.detections import Detections
from whet.web import quality
from whet.web.quality import as_box, boxes_of, disputes, labelled, objects_of
from whet.web.schemas import (
    DetectionView,
    HistoryView,
    ImageList,
    ImageSummary,
    ImageView,
    LabelCounts,
    LabelState,
    LabelView,
    ModelView,
    NodeView,
    StateView,
)
from whet.web.store import Label, StoredImage
from whet.web.workspace import REVIEWED, Workspace

if TYPE_CHECKING:
    from whet.web.studio import Studio


@dataclass(frozen=True)
class Expected:
    """What is expected of an image: right and wrong boxes among the detections shown, and objects that are missed."""

    right: float = 0.0
    wrong: float = 0.0
    missed: float = 0.0

    @classmethod
    def from_detections(cls, found: Detections, min_score: float, labelled: NDArray[np.float64]) -> Expected:
        """Expectations by the probabilities of detections at any score.

        Those that overlap a `labelled` box (n, 4) are decided already. Without probabilities, a detection is as likely
        wrong as right.

        >>> found = Detections(np.array([[0.0, 0, 9, 9], [20, 0, 29, 9]]), np.array([5.0, 1.0]))
        >>> Expected.from_detections(found, 2.0, np.empty((0, 4)))
        Expected(right=0.5, wrong=0.5, missed=0.5)
        >>> Expected.from_detections(found, 2.0, found.boxes[:1])
        Expected(right=0.0, wrong=0.0, missed=0.5)
        """
        if not len(found):
            return cls()
        is_open = ~(box_iou(found.boxes, labelled) >= SAME).any(axis=1)
        likely, is_shown = np.nan_to_num(found.probabilities, nan=0.5)[is_open], (found.scores > min_score)[is_open]
        shown = likely[is_shown]
        return cls(float(shown.sum()), float((1 - shown).sum()), float(likely[~is_shown].sum()))

    @property
    def errors(self) -> float:
        """Wrong boxes and missed objects."""
        return self.wrong + self.missed

    @property
    def gain(self) -> float:
        """Objects and errors: a missed object is both.

        >>> Expected(right=1.0, wrong=2.0, missed=0.5).gain
        4.0
        """
        return self.right + self.missed + self.errors


@dataclass(frozen=True)
class Candidate:
    """An image for the queue; near-duplicates have the same group."""

    id: str
    group: int
    expected: Expected
    is_reviewed: bool = False


def queue(images: Sequence[Candidate]) -> list[str]:
    """The ids of images, the next to review first; those that are reviewed come last.

    Of a group, one image comes after all other groups had a turn; a reviewed image counts.

    >>> full, poor, empty = Expected(1.0, 2.0), Expected(0.9, 0.1), Expected(missed=0.1)
    >>> twins = [Candidate("a", 1, full), Candidate("a2", 1, full)]
    >>> others = [Candidate("b", 2, empty), Candidate("c", 3, poor)]
    >>> queue([*twins, *others])
    ['a', 'c', 'b', 'a2']
    >>> queue([Candidate("a", 1, full, is_reviewed=True), twins[1], *others])
    ['c', 'b', 'a2', 'a']
    """
    seen = Counter(image.group for image in images if image.is_reviewed)
    turns = []
    for image in sorted(images, key=lambda image: -image.expected.gain):
        if not image.is_reviewed:
            seen[image.group] += 1
            turns.append((seen[image.group], image.id))
    turns.sort(key=lambda turn: turn[0])
    return [*(key for _, key in turns), *(image.id for image in images if image.is_reviewed)]


def state(studio: Studio) -> StateView:
    """The studio as a whole."""
    workspace = studio.workspace
    score = workspace.min_score
    ids = [image.id for image in workspace.gallery.readable]
    with workspace.locked() as history:
        items = history.items()
        node, branch, can_undo, can_redo = history.current, history.branch, history.can_undo, history.can_redo
        revision = workspace.revision
    labels = [workspace.labels[key] for key in items if key in workspace.labels]
    return StateView(
        project=workspace.store.path.name,
        revision=revision,
        model=model_view(workspace),
        node=node,
        branch=branch,
        n_corrections=len(labels),
        can_undo=can_undo,
        can_redo=can_redo,
        is_saved=workspace.is_saved,
        min_score=score if isfinite(score) else None,
        min_score_name=workspace.min_score_name,
        n_images=len(ids),
        n_missing=len(workspace.gallery.missing),
        n_reviewed=sum(workspace.is_reviewed(key) for key in ids),
        n_objects=studio.training.n_objects,
        objects_to_train=studio.training.n_needed,
        can_train=studio.training.can_start,
        locked=quality.locked(workspace),
        job=studio.training.job,
        video=None if studio.video is None else studio.video.view(),
        rescan=studio.rescan.view(),
    )


def images(workspace: Workspace, order: str, offset: int, limit: int) -> ImageList:
    """A part of all images by name, or as a queue (`queue`)."""
    every = list(workspace.gallery)
    groups = workspace.gallery.groups(every)
    expected = {image.id: _expected(workspace, image.id) for image in every}
    if order == "queue":
        known = {image.id: image for image in workspace.gallery.readable if image.id in groups}
        candidates = [
            Candidate(key, groups[key], expected[key] or Expected(), workspace.is_reviewed(key)) for key in known
        ]
        every = [known[key] for key in queue(candidates)]
    part = every[offset : offset + limit]
    return ImageList(len(every), [summary(workspace, image, groups[image.id], expected[image.id]) for image in part])


def _expected(workspace: Workspace, key: str) -> Expected | None:
    if not workspace.has_model or key not in workspace.cache:
        return None
    labels = boxes_of(workspace.labels_of(key))
    return Expected.from_detections(workspace.detections(key), workspace.min_score, labels)


def image(workspace: Workspace, key: str) -> ImageView:
    """An image with its detections and labels."""
    image = workspace.gallery[key]
    found = workspace.shown(key)
    with workspace.locked():
        labels, node, items = workspace.labels_of(key), workspace.history.current, workspace.history.items()
        model = workspace.open_model
        unsatisfied = frozenset() if model is None else model.cache.unsatisfied(workspace.record_ids())
    return ImageView(
        image.id,
        image.name,
        image.width,
        image.height,
        detection_views(found, labels),
        label_views(labels, unsatisfied),
        REVIEWED + key in items,
        image.truth is not None,
        node,
    )


def summary(workspace: Workspace, image: StoredImage, group: int = 0, expected: Expected | None = None) -> ImageSummary:
    """An image for a list; the number of detections is None until the image was scanned."""
    is_known = workspace.open_model is not None and image.id in workspace.open_model.cache
    return ImageSummary(
        image.id,
        image.name,
        image.width,
        image.height,
        len(workspace.shown(image.id)) if is_known else None,
        label_counts(workspace.labels_of(image.id)),
        workspace.is_reviewed(image.id),
        image.truth is not None,
        len(disputes(workspace.labels_of(image.id))),
        group,
        None if expected is None else round(expected.errors, 4),
        image.id in workspace.gallery.missing,
    )


def history_view(workspace: Workspace) -> HistoryView:
    """The whole tree."""
    with workspace.locked():
        nodes = workspace.history.nodes
        counts: dict[int, int] = {}
        for number in sorted(nodes):
            node = nodes[number]
            own = sum(item in workspace.labels for item in node.added)
            own -= sum(item in workspace.labels for item in node.removed)
            counts[number] = own + (0 if node.parent is None else counts[node.parent])
        rows = [NodeView(n.id, n.parent, n.time, n.author, n.text, counts[n.id]) for _, n in sorted(nodes.items())]
        return HistoryView(rows, dict(workspace.history.branches), workspace.history.current, workspace.history.branch)


def model_view(workspace: Workspace) -> ModelView | None:
    """The detector for the page."""
    if workspace.open_model is None:
        return None
    detector = workspace.open_model.detector
    reason = None
    try:
        detector.check_can_learn()
    except CannotLearnError as error:
        reason = str(error)
    return ModelView(
        workspace.name,
        detector.class_name,
        detector.base_id[:12],
        detector.window,
        detector.model.votes.n_weak,
        dict(detector.operating_points),
        reason is None,
        reason,
        _can_export_opencv(detector.base),
        workspace.estimate_at(workspace.history.current),
    )


@lru_cache(maxsize=4)
def _can_export_opencv(base: DetectorBase) -> bool:
    """Whether OpenCV's format can hold the trained stages; corrections do not change that."""
    with TemporaryDirectory() as folder:
        try:
            Detector.from_base(base).export_opencv(Path(folder) / "model.xml")
        except CannotExportError:
            return False
    return True


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
    objects = objects_of(labels)
    found = boxes_of([label for label in labels if label.is_object and label.was_found])
    right = int((box_iou(objects, found) >= SAME_PLACE).any(axis=1).sum())
    return LabelCounts(right, sum(not label.is_object for label in labels), len(objects) - right)
