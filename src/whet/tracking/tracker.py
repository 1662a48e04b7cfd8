"""A tracker: follows one object through a video by detection, and trains its detector on what it tracks.

What it learned from the video stays in reach: the newest updates are kept as responses of weak learners (no pixels),
the oldest are unlearned when there are too many, and the newest when they have damaged what the detector knew.
Unlearning is exact, so a detector that unlearned all updates is, byte for byte, the one that it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import box_iou
from whet.cascade.cascade import Cascade
from whet.cascade.detect import report
from whet.cascade.detections import Detections, FiredWindows
from whet.cascade.pyramid import SCALE_FACTOR, Pyramid, WindowIndex
from whet.cascade.scan import scan_near, scan_pyramid
from whet.detector.detector import Detector
from whet.detector.records import Record, count_records, image_hash, record_windows
from whet.io.images import as_grey
from whet.tracking.self_training import Retention, expected_scores, retention_of, weight_change

if TYPE_CHECKING:
    from whet.io.images import ColorOrder, ImageLike

Grey = NDArray[np.uint8]
Floats = NDArray[np.float64]

# Windows that overlap the best one so much are the same answer: the box is their mean.
SAME = 0.6
# A window with a lower IoU with the tracked box is not the tracked object.
ELSEWHERE = 0.3
# Of the way from the scores of false positives to those of objects: the round share that brings the face detector
# closest, with 39.6, to the 40 that was chosen for it on made-up footage.
LEARN_ABOVE_SHARE = 0.4


@dataclass(frozen=True)
class MotionPrior:
    """Where the object is expected, and what a surprise costs.

    A window's margin is lowered by `cost` times the squared distance from the last box, in standard deviations:
    `places` sides of the box, and `sizes` in the logarithm of its size. No distance counts more than `most`: an object
    may leave the image and come back elsewhere. Around the last box, up to `reach` sides away and `steps` levels
    larger or smaller, windows are scored even if the detector rejects them. Chosen on made-up footage
    (`experiments.drifting_faces`).
    """

    cost: float = 4.0
    places: float = 0.15
    sizes: float = 0.12
    most: float = 10.0
    reach: float = 0.35
    steps: float = 1.5
    softness: float = 8.0  # margins by which windows weigh in the mean: e times less for each

    def penalty(self, boxes: Floats, last: Floats) -> Floats:
        """What is subtracted from the margins of boxes (n, 4) when the last box (4,) is known.

        >>> boxes = np.array([[0.0, 0.0, 100.0, 100.0], [15.0, 0.0, 115.0, 100.0], [500.0, 0.0, 600.0, 100.0]])
        >>> MotionPrior().penalty(boxes, boxes[0])
        array([ 0.,  4., 40.])
        """
        side = last[2] - last[0]
        moved = ((boxes[:, :2] + boxes[:, 2:]) - (last[:2] + last[2:])) / 2 / (self.places * side)
        grown = np.log((boxes[:, 2] - boxes[:, 0]) / side) / self.sizes
        return np.asarray(self.cost * np.minimum((moved**2).sum(axis=1) + grown**2, self.most))


@dataclass(frozen=True, eq=False)
class Track:
    """The object in one frame: its box (4,), its window's margin and index, all windows that fired, and the pyramid.

    `accepted` is set if the detector accepts this window; else it was only the best near the last box.
    """

    box: Floats
    score: float
    index: WindowIndex
    accepted: bool
    fired: FiredWindows
    pyramid: Pyramid


def track(
    cascade: Cascade,
    pyramid: Pyramid,
    last: Floats | None,
    prior: MotionPrior | None = None,
    scale_factor: float = SCALE_FACTOR,
    threads: int | None = None,
) -> Track | None:
    """The object in the next frame, given its last box (4,); None until a window has fired."""
    prior = MotionPrior() if prior is None else prior
    fired = windows = scan_pyramid(cascade, pyramid, threads=threads)
    if last is not None:
        ratio = scale_factor**prior.steps
        near = scan_near(cascade, pyramid, last, reach=prior.reach, max_ratio=ratio, threads=threads)
        windows = FiredWindows.concatenate([fired, near])
    if not len(windows):
        return None
    worth = windows.scores - (0.0 if last is None else prior.penalty(windows.boxes, last))
    best = int(np.argmax(worth))
    same = box_iou(windows.boxes[best : best + 1], windows.boxes)[0] > SAME
    weight = np.exp((worth[same] - worth[best]) / prior.softness)
    box = np.asarray(weight @ windows.boxes[same] / weight.sum())
    index = windows.index.take(slice(best, best + 1))
    here = [getattr(fired.index, name) == getattr(index, name) for name in ("scale", "y", "x")]
    accepted = bool(np.logical_and.reduce(here).any())
    return Track(box, float(windows.scores[best]), index, accepted, fired, pyramid)


@dataclass(frozen=True)
class SelfTraining:
    """When a frame is learned, with which weight, and how long it is kept. Chosen on made-up footage.

    A tracked window is learned if its margin is above `learn_above`, and with it, as negatives, up to `others` windows
    elsewhere in the frame that the detector accepts. Without `learn_above` this score comes from the detector, between
    the scores of false positives and of objects in its training. Each update counts `share` of the positives that the
    base was trained on, and the last `kept` of these shares are kept: what is older is unlearned. Updates are counted
    together: the first at once, then two, four and so on, up to `every`. They are unlearned if the detector would then
    lose more than `max_lost` of the positives of its training, or accept more than `max_accepted` times as many
    negatives.
    """

    learn_above: float | None = None
    others: int = 0
    share: float = 0.008
    kept: float = 1.0
    every: int = 32
    max_lost: float = 0.05
    max_accepted: float = 300.0

    def weight(self, detector: Detector) -> int:
        """How often an update counts: a whole number that depends on the base alone."""
        counts = [stage.statistics[0].n for stage in detector.base.stages if stage.learns]
        return max(1, round(self.share * min(counts, default=0)))

    def learn_above_of(self, detector: Detector) -> float:
        """The margin above which a tracked window is learned: `learn_above`, or one that depends on the base alone."""
        given = self.learn_above
        return expected_scores(detector.base).between(LEARN_ABOVE_SHARE) if given is None else given

    def max_kept(self) -> int:
        """How many updates are kept."""
        return max(self.every, round(self.kept / self.share))


@dataclass(frozen=True, eq=False)
class TrackedFrame:
    """One frame: all detections, the tracked object (or None), and what was learned and unlearned after it.

    `is_learned` is set if the tracked window is learned. `weight_change` is the distance of the weights from those of
    the base, relative to their length.
    """

    number: int
    detections: Detections
    track: Track | None
    box: Floats | None
    is_learned: bool
    n_learned: int
    n_rolled_back: int
    weight_change: float

    @property
    def elsewhere(self) -> Floats:
        """Boxes (n, 4) of detections that are not the tracked object."""
        boxes = self.detections.boxes
        if self.box is None or not len(boxes):
            return boxes
        return np.asarray(boxes[box_iou(self.box[None], boxes)[0] < ELSEWHERE])


@dataclass(frozen=True, eq=False)
class _Update:
    """Windows of one image, by its hash: the object first, then negatives."""

    image: str
    index: WindowIndex
    patches: Grey


@dataclass(eq=False)
class Tracker:
    """Tracks one object from frame to frame. With `learn`, tracked windows train the detector.

    >>> import whet
    >>> tracker = Tracker(whet.load("face"), learn=True)
    >>> round(tracker.learn_above, 1)
    39.6
    >>> frame = tracker.update(np.zeros((60, 80), np.uint8))
    >>> frame.track is None, frame.n_learned, tracker.detector.learned
    (True, 0, (0, 0))
    """

    detector: Detector
    learn: bool = False
    prior: MotionPrior = field(default_factory=MotionPrior)
    self_training: SelfTraining = field(default_factory=SelfTraining)
    scale_factor: float = SCALE_FACTOR
    min_score: float | str | None = None
    threads: int | None = None
    number: int = 0
    last: Floats | None = None
    _learned: deque[list[Record]] = field(default_factory=deque, repr=False)
    _pending: list[_Update] = field(default_factory=list, repr=False)
    _due: int = 1
    _weight_change: float = 0.0

    def __post_init__(self) -> None:
        if self.learn:
            self.detector.check_can_learn()
        self.detector.reporting.min_score(self.min_score)  # an unknown name is an error now
        self.learn_above = self.self_training.learn_above_of(self.detector)
        self._start: Retention = retention_of(self.detector)
        self._weight_change = weight_change(self.detector)

    def update(self, image: ImageLike, color: ColorOrder = "rgb") -> TrackedFrame:
        """Detect, track and, if the tracker learns, learn before the next frame."""
        grey, detector = as_grey(image, color), self.detector
        pyramid = Pyramid.from_image(grey, detector.window, scale_factor=self.scale_factor, threads=self.threads)
        found = track(detector.cascade, pyramid, self.last, self.prior, self.scale_factor, self.threads)
        self.last = self.last if found is None else found.box
        fired = FiredWindows() if found is None else found.fired
        offset, min_score = detector.box_offset, detector.reporting.min_score(self.min_score)
        detections = report(fired, offset=offset, min_score=min_score)
        is_learned = self.learn and found is not None and found.score > self.learn_above
        if is_learned and found is not None:
            self._pending.append(self._new_update(grey, found))
        learned, rolled_back = self._learn_pending() if len(self._pending) >= self._due else (0, 0)
        self.number += 1
        box = None if found is None else offset.boxes(found.box[None])[0]
        return TrackedFrame(
            self.number - 1, detections, found, box, is_learned, learned, rolled_back, self._weight_change
        )

    def finish(self) -> tuple[int, int]:
        """Learn what is still pending, after the last frame; how many updates were learned and rolled back."""
        return self._learn_pending() if self._pending else (0, 0)

    @property
    def weight_change(self) -> float:
        """Distance of the weights from those of the base, relative to their length."""
        return self._weight_change

    @property
    def kept(self) -> list[Record]:
        """Records of what was learned and has not been unlearned since, oldest first."""
        return [record for update in self._learned for record in update]

    def roll_back(self, n: int | None = None) -> int:
        """Unlearn the newest `n` updates, or all that are kept; returns how many were unlearned.

        If nothing older has been unlearned, rolling everything back restores the detector byte for byte.
        """
        self._pending.clear()
        n = len(self._learned) if n is None else min(n, len(self._learned))
        newest = [self._learned.pop() for _ in range(n)]
        self._replace([], newest)
        return n

    def _new_update(self, grey: Grey, found: Track) -> _Update:
        """The tracked window, and with it the best windows elsewhere that fired."""
        fired, index = found.fired, found.index
        if self.self_training.others and len(fired):
            elsewhere = box_iou(found.box[None], fired.boxes)[0] < ELSEWHERE
            best = np.argsort(np.where(elsewhere, -fired.scores, np.inf), kind="stable")[: self.self_training.others]
            index = WindowIndex.concatenate([index, fired.index.take(best[elsewhere[best]])])
        return _Update(image_hash(grey), index, found.pyramid.patches(index))

    def _records(self, updates: Sequence[_Update]) -> list[list[Record]]:
        """The records of each update; all together, as weak learners answer to many patches at little more cost."""
        detector, sizes = self.detector, [len(update.index) for update in updates]
        index = WindowIndex.concatenate([update.index for update in updates])
        is_object = np.concatenate([np.arange(size) == 0 for size in sizes])
        weights = np.full(len(is_object), self.self_training.weight(detector), dtype=np.int64)
        patches = np.concatenate([update.patches for update in updates])
        records = iter(record_windows(detector.base, "", index, patches, is_object, weights))
        return [[replace(record, image=one.image) for record in islice(records, len(one.index))] for one in updates]

    def _learn_pending(self) -> tuple[int, int]:
        """Learn what is pending and unlearn what is too old; roll both back if they did damage."""
        new, self._pending = self._records(self._pending), []
        self._due = min(2 * self._due, self.self_training.every)
        n_old = max(0, len(self._learned) + len(new) - self.self_training.max_kept())
        old = [self._learned[i] for i in range(min(n_old, len(self._learned)))]
        before = self.detector
        self._replace(new, old)
        lost, accepted = self._start.change(retention_of(self.detector))
        if lost > self.self_training.max_lost or accepted > self.self_training.max_accepted:
            self.detector = before
            self._weight_change = weight_change(before)
            return 0, len(new)
        for _ in old:
            self._learned.popleft()
        self._learned.extend(new)
        return len(new), 0

    def _replace(self, new: Iterable[list[Record]], old: Iterable[list[Record]]) -> None:
        """Learn some updates and unlearn others, in one step."""
        base = self.detector.base
        learned, unlearned = ([record for update in updates for record in update] for updates in (new, old))
        delta = self.detector.delta + count_records(base, learned)
        delta = delta - count_records(base, unlearned) if unlearned else delta
        self.detector = Detector(base, delta, self.detector.reporting)
        self._weight_change = weight_change(self.detector)
