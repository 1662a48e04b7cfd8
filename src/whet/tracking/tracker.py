"""A tracker: follows one object through a video by detection, and trains its detector on what it tracks.

The object is looked for among the windows that fire and those around its last box, with a motion prior.

`SelfTraining` says which tracked windows are learned, how long they are kept, and what they may not damage. The newest
updates are kept as records of the detector (responses of weak learners, no pixels), the oldest are unlearned when there
are too many, and the newest when they have damaged what the detector knew. Unlearning is exact, so a detector that
unlearned all updates is, byte for byte, the one that it was.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import exp, fsum, pi, sqrt
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whet._kernels.lda_algebra import project_binary
from whet.arrays import Boxes, Floats, Pixels
from whet.corrections.effects import Corrected
from whet.corrections.records import LONGEST_NAME, Record, image_hash
from whet.detector.detector import Detector
from whet.errors import CannotLearnError
from whet.images.boxes import box_iou
from whet.images.detections import Detections, FiredWindows, report
from whet.images.pyramid import SCALE_FACTOR, Pyramid, WindowIndex
from whet.models.contract import Model, family_of

if TYPE_CHECKING:
    from whet.io.image_files import ColorOrder, ImageLike

# Of the way from the scores of false positives to those of objects: the round share that brings the face detector
# closest, with 39.6, to the 40 that was chosen for it on made-up footage.
MIN_SCORE_SHARE = 0.4
# The note of records that a tracker has made; the next session on the same model takes them over.
TRACKED = "tracked"


@dataclass(frozen=True)
class SelfTraining:
    """When a frame is learned, with which weight, and how long it is kept. Chosen on made-up footage.

    A tracked window is learned if its score is above `learn_min_score`. Without it, this score comes from the detector,
    between the scores of false positives and of objects in its training. Each update counts `share` of the positives
    that the base was trained on, and the last `kept` of these shares are kept: what is older is unlearned. Updates are
    counted together: the first at once, then two, four and so on, up to `every`.

    The reference set of the detector guards it: updates are rolled back if the detector would lose more than `max_lost`
    of the held-out objects, or have more than `max_false_positives` times as many false positives on held-out images,
    both compared with the detector without tracked windows. A detector without a reference set cannot be guarded, and
    learns from its tracks only with `guarded=False`.
    """

    learn_min_score: float | None = None
    share: float = 0.004
    kept: float = 0.125
    every: int = 32
    max_lost: float = 0.02
    max_false_positives: float = 1.1
    guarded: bool = True

    def weight(self, detector: Detector) -> int:
        """How often an update counts: a whole number that depends on the base alone."""
        statistics = family_of(detector.model.family).statistics(detector.base.model)
        counts = [pair[0].n for pair in statistics if pair is not None]
        return max(1, round(self.share * min(counts, default=0)))

    def learn_min_score_for(self, detector: Detector) -> float:
        """The score above which a tracked window is learned: that which is set, or one that the base decides."""
        if self.learn_min_score is not None:
            return self.learn_min_score
        negative, positive = expected_scores(detector.base.model)
        return negative + MIN_SCORE_SHARE * (positive - negative)

    def max_kept(self) -> int:
        """How many updates are kept."""
        return max(self.every, round(self.kept / self.share))

    def guard_of(self, detector: Detector) -> Guard | None:
        """The guard of a detector, or None if it is not guarded; raises `CannotLearnError` without a reference set."""
        if not self.guarded:
            return None
        clean = detector.copy()
        clean.only.replace_records(remove=tracked_records(detector.records))
        start = health_of(clean)
        if start is None:
            raise CannotLearnError(
                "this detector has no reference set of held-out samples, so that damage by tracked windows would not "
                "be noticed; train it with `whet train`, or use --unguarded (SelfTraining(guarded=False)) and evaluate "
                "the result"
            )
        return Guard(start, self.max_lost, self.max_false_positives)


def tracked_records(records: Iterable[Record]) -> list[Record]:
    """Those that a tracker has made, the oldest first."""
    tracked = [record for record in records if record.kind == "example" and record.note == TRACKED]
    return sorted(tracked, key=lambda record: (record.time, record.image, not record.is_object, record.id))


def weight_change(detector: Detector) -> float:
    """Distance of the weights of all stages from those of the base, relative to their length; 0 without learning."""
    now, base = detector.model.votes.coef, detector.base.model.votes.coef
    return float(np.linalg.norm(now - base) / np.linalg.norm(base))


class Health(NamedTuple):
    """What the reference set says of a detector.

    `accepted` is the share of held-out objects that all stages accept, `recall` the share that is found at the default
    operating point, `false_positives` their number per image at this point.
    """

    accepted: float
    recall: float
    false_positives: float


def health_of(detector: Detector) -> Health | None:
    """The health of a detector as it is now; None without a reference set.

    >>> import whet
    >>> health = health_of(whet.load("face"))
    >>> round(health.accepted, 2), round(health.recall, 2), round(health.false_positives, 1)
    (1.0, 0.98, 0.1)
    """
    reference, estimate = detector.base.reference, detector.estimate
    if reference is None or estimate is None:
        return None
    accepted = float((reference.judge(detector.only.corrected).positive > 0).mean())
    return Health(accepted, estimate.recall, estimate.false_positives_per_image)


@dataclass(frozen=True)
class Guard:
    """How much worse than `start` a detector may become.

    >>> guard = Guard(Health(0.99, 0.98, 0.1), max_lost=0.02, max_false_positives=1.1)
    >>> guard.allows(Health(0.98, 0.965, 0.1)), guard.allows(Health(0.98, 0.95, 0.1)), guard.allows(Health(1, 1, 0.2))
    (True, False, False)
    """

    start: Health
    max_lost: float
    max_false_positives: float

    def allows(self, now: Health | None) -> bool:
        """Whether a detector of this health may stay as it is."""
        if now is None:
            return False
        lost = max(self.start.accepted - now.accepted, self.start.recall - now.recall)
        return lost <= self.max_lost and now.false_positives <= self.max_false_positives * self.start.false_positives


class ExpectedScores(NamedTuple):
    """The mean score of negatives that pass all stages, and that of positives."""

    negative: float
    positive: float


def expected_scores(model: Model) -> ExpectedScores:
    """The scores of the samples that a model was trained on, by its own weights and thresholds.

    That of the positives is exact if all stages counted the same ones: the mean of a sum is the sum of the means.
    Negatives of a stage are taken for a Gaussian, of which those above the threshold pass.

    >>> import whet
    >>> scores = expected_scores(whet.load("face").base.model)
    >>> round(scores.negative, 2), round(scores.positive, 2)
    (10.71, 82.83)
    """
    votes, statistics = model.votes, family_of(model.family).statistics(model)
    means = []
    for stage in range(votes.first_scoring, len(votes.ends)):
        coef, threshold = votes.coef[votes.columns[stage]], float(votes.threshold[stage])
        counted = statistics[stage] if statistics else None
        if counted is None:
            # If responses were tossed coins, this would be the deviation of their sum. In the later halves of five of
            # OpenCV's cascades, the mean margin of faces is 0.8 to 1.5 times that (docs/decisions.md).
            deviation = sqrt(fsum(coef**2)) / 2
            means.append((_mean_above_zero(-deviation, deviation), deviation))
        else:
            (positive, _), (negative, variance) = (
                project_binary(side.n, side.s, side.C, coef, np.zeros_like(coef)) for side in counted
            )
            passing = _mean_above_zero(float(negative - threshold), sqrt(max(variance, 0.0)))
            means.append((passing, float(positive - threshold)))
    return ExpectedScores(*(fsum(of_class) for of_class in zip(*means, strict=True)))


def _mean_above_zero(mean: float, deviation: float) -> float:
    """The mean of that part of a Gaussian which is above zero."""
    from scipy.special import log_ndtr

    deviation = max(deviation, 1e-3 * abs(mean), 1e-12)
    z = mean / deviation
    return mean + deviation * exp(-z * z / 2 - float(log_ndtr(z))) / sqrt(2 * pi)


# Windows with this IoU or more with the best one are the same answer: the box is their mean.
SAME = 0.6


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

    The box is a mean of windows around the best one, `window` (4,) the box of that one. `accepted` is set if the
    detector accepts this window; else it was only the best near the last box.
    """

    box: Floats
    score: float
    index: WindowIndex
    accepted: bool
    fired: FiredWindows
    pyramid: Pyramid
    window: Floats


def track(
    corrected: Corrected,
    pyramid: Pyramid,
    last: Floats | None,
    prior: MotionPrior,
    scale_factor: float = SCALE_FACTOR,
    threads: int | None = None,
) -> Track | None:
    """The object in the next frame, given its last box (4,); None until a window has fired."""
    fired = windows = corrected.scan(pyramid, fast=False, threads=threads)
    if last is not None:
        ratio = scale_factor**prior.steps
        near = scan_near(corrected.model, pyramid, last, reach=prior.reach, max_ratio=ratio, threads=threads)
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
    return Track(box, float(windows.scores[best]), index, accepted, fired, pyramid, windows.boxes[best])


def scan_near(
    model: Model, pyramid: Pyramid, box: Boxes, *, reach: float, max_ratio: float, threads: int | None = None
) -> FiredWindows:
    """Windows around a box (4,), accepted or not, with their scores.

    Corrections are not applied here: they decide what is accepted. Centres are at most `reach` sides of the box away
    from its own, in either direction, and sizes at most `max_ratio` times larger or smaller. Windows without contrast
    are left out.
    """
    spans = pyramid.spans_around(box, reach * float(box[2] - box[0]), max_ratio)
    return model.scan(pyramid, model.votes.unlimited, spans=spans, threads=threads)


# A window with a lower IoU with the tracked box is not the tracked object.
ELSEWHERE = 0.3


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


@dataclass(eq=False)
class Tracker:
    """Tracks one object from frame to frame. With `learn`, tracked windows train a copy of the detector.

    Each tracked window that is learned becomes a record of the detector, named after `source` and the frame. Records of
    an earlier session on the same model are the oldest of this one.

    >>> import whet
    >>> tracker = Tracker(whet.load("face"), learn=True)
    >>> round(tracker.learn_min_score, 1)
    39.6
    >>> frame = tracker.update(np.zeros((60, 80), np.uint8))
    >>> frame.track is None, frame.n_learned, tracker.detector.n_examples
    (True, 0, (0, 0))
    """

    detector: Detector
    learn: bool = False
    prior: MotionPrior = field(default_factory=MotionPrior)
    self_training: SelfTraining = field(default_factory=SelfTraining)
    scale_factor: float = SCALE_FACTOR
    min_score: float | str | None = None
    threads: int | None = None
    source: str = ""
    number: int = 0
    last: Floats | None = None
    learn_min_score: float = field(init=False)
    _learned: deque[Record] = field(init=False, repr=False, default_factory=deque)
    _pending: list[tuple[Record, Pixels]] = field(init=False, repr=False, default_factory=list)
    _due: int = field(init=False, repr=False, default=1)
    _weight_change: float = field(init=False, repr=False, default=0.0)

    def __post_init__(self) -> None:
        if isinstance(self.detector, str | PathLike):
            raise TypeError(f"got {self.detector!r}; expected a detector, such as whet.load('face')")
        self.detector.reporting.min_score(self.min_score)  # an unknown name is an error now
        self.learn_min_score = self.self_training.learn_min_score_for(self.detector)
        if self.learn:
            self.detector.check_can_learn(examples=True)
            self._learned.extend(tracked_records(self.detector.records))
        self.adopt(self.detector)

    def adopt(self, detector: Detector) -> None:
        """Go on with another state of the same detector, such as one that other people have corrected.

        Updates that it does not have were unlearned there, and are forgotten.
        """
        there = {record.id for record in detector.records}
        self._learned = deque(record for record in self._learned if record.id in there)
        self._guard = self.self_training.guard_of(detector) if self.learn else None
        self._set(detector)

    def update(self, image: ImageLike, color: ColorOrder = "rgb") -> TrackedFrame:
        """Detect, track and, if the tracker learns, learn before the next frame."""
        detector = self.detector
        pixels, grid = detector.only.pixels(image, color), detector.model.grid
        pyramid = Pyramid.from_image(
            pixels, detector.window, scale_factor=self.scale_factor, grid=grid, threads=self.threads
        )
        tracked = track(detector.only.corrected, pyramid, self.last, self.prior, self.scale_factor, self.threads)
        self.last = self.last if tracked is None else tracked.box
        fired = FiredWindows() if tracked is None else tracked.fired
        offset, min_score = detector.box_offset, detector.reporting.min_score(self.min_score)
        detections = report(fired, offset=offset, min_score=min_score, by_object=grid.by_object)
        is_learned = self.learn and tracked is not None and tracked.score > self.learn_min_score
        if is_learned and tracked is not None:
            self._pending.append(self._new_update(pixels, tracked))
        learned, rolled_back = self._learn_pending() if len(self._pending) >= self._due else (0, 0)
        self.number += 1
        box = None if tracked is None else offset.boxes(tracked.box[None])[0]
        return TrackedFrame(
            self.number - 1, detections, tracked, box, is_learned, learned, rolled_back, self._weight_change
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
        return list(self._learned)

    def roll_back(self, n: int | None = None) -> int:
        """Unlearn the newest `n` updates, or all that are kept; returns how many were unlearned.

        If nothing older has been unlearned, rolling everything back restores the detector byte for byte.
        """
        self._pending.clear()
        n = len(self._learned) if n is None else min(n, len(self._learned))
        newest = [self._learned.pop() for _ in range(n)]
        self._set(self._changed([], newest))
        return n

    def _new_update(self, pixels: Pixels, tracked: Track) -> tuple[Record, Pixels]:
        """The tracked window, to be learned as the object: a record without responses, and the patch (1, ...)."""
        box = tuple(self.detector.box_offset.boxes(tracked.window[None])[0].tolist())
        name = f"{self.source} frame {self.number}".strip()[:LONGEST_NAME]
        index, base_id = tracked.index, self.detector.base_id
        record = Record("example", image_hash(pixels), box, True, index=index, base_id=base_id, name=name, note=TRACKED)
        return record, tracked.pyramid.patches(index)

    def _records(self, updates: Sequence[tuple[Record, Pixels]]) -> list[Record]:
        """The new records of updates; a frame that is shown twice is learned once.

        All patches are evaluated together: weak learners answer to 32 of them in less than twice the time of one.
        """
        patches, model = np.concatenate([patch for _, patch in updates]), self.detector.base.model
        responses, _ = model.responses(*Pyramid.from_patches(patches, model.window))
        weight, now = self.self_training.weight(self.detector), int(time.time())
        known, new = {record.id for record in self.detector.records}, dict[str, Record]()
        for row, (update, _) in enumerate(updates):
            record = replace(update, weight=weight, time=now, responses=responses.take(slice(row, row + 1)))
            if record.id not in known:
                new.setdefault(record.id, record)
        return list(new.values())

    def _learn_pending(self) -> tuple[int, int]:
        """Learn what is pending and unlearn what is too old; roll both back if they did damage."""
        new, self._pending = self._records(self._pending), []
        self._due = min(2 * self._due, self.self_training.every)
        n_old = min(max(0, len(self._learned) + len(new) - self.self_training.max_kept()), len(self._learned))
        changed = self._changed(new, [self._learned[i] for i in range(n_old)])
        if self._guard is not None and not self._guard.allows(health_of(changed)):
            return 0, len(new)
        for _ in range(n_old):
            self._learned.popleft()
        self._learned.extend(new)
        self._set(changed)
        return len(new), 0

    def _changed(self, new: Iterable[Record], old: Iterable[Record]) -> Detector:
        """The detector with some updates learned and others unlearned, in one step."""
        changed = self.detector.copy()
        changed.only.replace_records(new, old)
        return changed

    def _set(self, detector: Detector) -> None:
        self.detector, self._weight_change = detector, weight_change(detector)
