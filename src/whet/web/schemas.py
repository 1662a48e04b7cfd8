"""What the studio shows: the shapes of its answers, as plain data. The HTTP API sends them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from whet.corrections.reference import Estimate

Box = tuple[float, float, float, float]
Change = Literal["gained", "lost", "moved"]
LabelState = Literal["holds", "unsatisfied", "disputed"]


@dataclass(frozen=True)
class ModelView:
    """The detector as it is now."""

    name: str
    class_name: str | None
    base_id: str
    window: tuple[int, int]
    n_weak: int
    operating_points: dict[str, float]
    can_learn: bool
    cannot_learn_reason: str | None
    can_export_opencv: bool
    estimate: Estimate | None


@dataclass(frozen=True)
class LabelCounts:
    """Labels of an image: boxes that are right, that are wrong, and objects that were missed."""

    right: int = 0
    wrong: int = 0
    missed: int = 0


@dataclass(frozen=True)
class ImageSummary:
    """An image in a list."""

    id: str
    name: str
    width: int
    height: int
    n_detections: int | None
    n_labels: LabelCounts
    is_reviewed: bool
    is_locked: bool
    n_disputed: int
    group: int
    expected_change: float | None
    is_missing: bool


@dataclass(frozen=True)
class ImageList:
    """A part of all images, in the order that was asked for."""

    total: int
    images: list[ImageSummary]


@dataclass(frozen=True)
class DetectionView:
    """A detection, and the label on it."""

    box: Box
    score: float
    probability: float | None
    class_name: str | None
    label: bool | None
    record_id: str | None


@dataclass(frozen=True)
class LabelView:
    """A label of a box, with its author."""

    record_id: str
    box: Box
    is_object: bool
    author: str
    time: float
    state: LabelState


@dataclass(frozen=True)
class ImageView:
    """An image with its detections and labels."""

    id: str
    name: str
    width: int
    height: int
    detections: list[DetectionView]
    labels: list[LabelView]
    is_reviewed: bool
    is_locked: bool
    node: int


@dataclass(frozen=True)
class EffectSummary:
    """What a change did to all images that are cached.

    By labels and probabilities, `wrong_gained` of the boxes gained are expected to be false positives, and
    `objects_lost` of those lost to be objects; None if the detector has no probabilities.
    """

    gained: int
    lost: int
    moved: int
    images: int
    wrong_gained: float | None
    objects_lost: float | None
    estimate_before: Estimate | None
    estimate_after: Estimate | None


@dataclass(frozen=True)
class ChangeView:
    """A box that appeared, vanished or moved."""

    image: str
    name: str
    kind: Change
    box: Box
    score_before: float | None
    score_after: float | None
    harm: float
    is_labelled: bool


@dataclass(frozen=True)
class LockedImage:
    """A locked image: what is found of its objects, and what else, before and now; recall is None without objects.

    Only judged boxes count: `n_judged` of the `n_boxes` that the image shows or that were labelled.
    """

    id: str
    name: str
    recall_before: float | None
    recall_now: float | None
    false_positives_before: int
    false_positives_now: int
    n_judged: int
    n_boxes: int


@dataclass(frozen=True)
class LockedView:
    """All locked images together."""

    images: list[LockedImage] = field(default_factory=list)
    n_objects: int = 0
    recall_before: float | None = None
    recall_now: float | None = None
    false_positives_before: int = 0
    false_positives_now: int = 0
    n_judged: int = 0
    n_boxes: int = 0
    is_worse: bool = False


@dataclass(frozen=True)
class EffectView:
    """What differs between two states, the most harmful first."""

    from_node: int
    to_node: int
    changes: list[ChangeView]
    locked: LockedView
    summary: EffectSummary
    is_complete: bool


@dataclass(frozen=True)
class Corrected:
    """The answer to a correction; `hint` says what the client may not expect."""

    node: int
    revision: int
    added: list[str]
    image: ImageView | None
    effect: EffectSummary | None
    hint: str | None = None


@dataclass(frozen=True)
class NodeView:
    """A state of the history."""

    id: int
    parent: int | None
    time: float
    author: str
    text: str
    n_corrections: int


@dataclass(frozen=True)
class HistoryView:
    """The tree of states, and where the studio is."""

    nodes: list[NodeView]
    branches: dict[str, int]
    current: int
    branch: str | None


@dataclass(frozen=True)
class CauseView:
    """A correction without which a box would have another score, or would not be there (None)."""

    record_id: str
    image: str | None
    name: str
    box: Box
    is_object: bool
    score_without: float | None


@dataclass(frozen=True)
class BlameView:
    """The corrections that made a box what it is, the strongest first.

    `together` says that no single one is the cause: only without all of them the box changes.
    """

    box_score: float | None
    causes: list[CauseView]
    together: bool


@dataclass(frozen=True)
class CurvePoint:
    """Precision and recall at a score."""

    score: float
    recall: float
    precision: float


@dataclass(frozen=True)
class Histogram:
    """Numbers of detections between the edges of scores: of objects, of other things, and of what nobody has judged."""

    edges: list[float]
    objects: list[int]
    others: list[int]
    unjudged: list[int]


@dataclass(frozen=True)
class CurvesView:
    """The precision-recall curve of the images that were reviewed or labelled, and scores of both classes."""

    pr: list[CurvePoint]
    histogram: Histogram
    operating_points: dict[str, float]
    n_labelled: int
    n_images: int


@dataclass(frozen=True)
class JobView:
    """A training in progress, or the last one."""

    state: Literal["running", "finished", "failed", "cancelled"]
    class_name: str
    text: str
    progress: float | None
    seconds: float
    seconds_left: float | None
    error: str | None = None


@dataclass(frozen=True)
class VideoView:
    """The video that plays."""

    source: str
    state: Literal["waiting", "playing", "paused", "ended", "failed"]
    frame: int | None
    seconds: float | None
    rate: float
    n_frames: int | None
    is_live: bool
    image: str | None
    error: str | None = None


@dataclass(frozen=True)
class RescanView:
    """How many images show exactly what a scan finds with the present corrections, of how many, and unreadable ones."""

    done: int
    total: int
    unreadable: int = 0


@dataclass(frozen=True)
class StateView:
    """The studio as a whole."""

    project: str
    revision: int
    model: ModelView | None
    node: int
    branch: str | None
    n_corrections: int
    can_undo: bool
    can_redo: bool
    is_saved: bool
    min_score: float | None
    min_score_name: str | None
    n_images: int
    n_missing: int
    n_reviewed: int
    n_objects: int
    objects_to_train: int
    can_train: bool
    locked: LockedView
    job: JobView | None
    video: VideoView | None
    rescan: RescanView


@dataclass(frozen=True)
class FoundView:
    """Detections in an image that was sent."""

    width: int
    height: int
    detections: list[DetectionView]


@dataclass(frozen=True)
class SavedView:
    """A file that was written."""

    name: str
    n_corrections: int
