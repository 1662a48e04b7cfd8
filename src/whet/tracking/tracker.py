"""A detector that watches a video, follows one object in it, and teaches itself what it sees.

What it taught itself stays in reach: the last lessons are kept as responses of weak learners (no pixel), the oldest are
unlearned when there are too many, and the newest when they have damaged what the detector knew. Unlearning is exact, so
a detector that took everything back is, byte for byte, the one that it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import box_iou
from whet.cascade.detect import grouped
from whet.cascade.detections import Detections, FiredWindows
from whet.cascade.pyramid import SCALE_FACTOR, level_at
from whet.detector.base import StageBase
from whet.detector.detector import Detector
from whet.detector.journal import Entry, Places, entries_of, image_hash, lesson_of
from whet.detector.taught import TaughtDetector
from whet.io.images import as_grey
from whet.tracking.following import Follower, Prior, Sighting
from whet.tracking.self_training import Memory, expected_scores, memory_of, moved

if TYPE_CHECKING:
    from whet.io.images import ImageLike


Grey = NDArray[np.uint8]

# A window that shares less than this with the object shows something else.
ELSEWHERE = 0.3
# Of the way from what false positives score to what objects do: the round share that brings the detector of faces
# closest, with 39.6, to the 40 that was chosen for it on made-up footage.
GATE_SHARE = 0.4


@dataclass(frozen=True)
class Lessons:
    """When a frame teaches, how much, and how long that is remembered. Chosen on made-up footage.

    A sighting teaches if its margin is above `gate`, and with it up to `others` windows elsewhere in the frame that
    the detector takes for the object. A gate that is not given comes from the detector, between what false positives
    and objects score in its training. Each lesson counts `share` of the positives that the base was trained on, and the
    last `remembered` of these shares are kept: what is older is unlearned. Lessons are counted together: the first at
    once, then two, four and so on, up to `every`. They are taken back if the detector would then lose more than
    `most_lost` of the positives of its training, or let through more than `most_accepted` times as many negatives.
    """

    gate: float | None = None
    others: int = 0
    share: float = 0.008
    remembered: float = 1.0
    every: int = 32
    most_lost: float = 0.05
    most_accepted: float = 300.0

    def weight(self, taught: TaughtDetector) -> int:
        """How often a lesson counts: a whole number of the base alone."""
        counts = [stage.positive.n for stage in taught.base.stages if isinstance(stage, StageBase)]
        return max(1, round(self.share * min(counts, default=0)))

    def gate_of(self, taught: TaughtDetector) -> float:
        """The margin above which a sighting teaches: if it is not given, from the base alone."""
        return expected_scores(taught.base).between(GATE_SHARE) if self.gate is None else self.gate

    def most_kept(self) -> int:
        """How many sightings are remembered."""
        return max(self.every, round(self.remembered / self.share))


@dataclass(frozen=True, eq=False)
class Look:
    """One frame: all detections, the followed object (or None), and what was learned and taken back after it.

    `moved` is how far the weights have turned since the base, in lengths of them.
    """

    number: int
    detections: Detections
    sighting: Sighting | None
    box: NDArray[np.float64] | None
    teaches: bool
    n_learned: int
    n_taken_back: int
    moved: float

    @property
    def elsewhere(self) -> NDArray[np.float64]:
        """Boxes (n, 4) of detections that are not the followed object."""
        boxes = self.detections.boxes
        if self.box is None or not len(boxes):
            return boxes
        return np.asarray(boxes[box_iou(self.box[None], boxes)[0] < ELSEWHERE])


@dataclass(frozen=True, eq=False)
class _Lesson:
    """Windows of one image, by its hash: the object first, then others."""

    image: str
    places: tuple[tuple[float, int, int], ...]
    patches: Grey


@dataclass(eq=False)
class Watcher:
    """Looks at one frame after the other. A followed window teaches if its margin is above `gate`.

    >>> import whet
    >>> watcher = Watcher(whet.load("face"), learn=True)
    >>> round(watcher.gate, 1)
    39.6
    >>> seen = watcher.look(np.zeros((60, 80), np.uint8))
    >>> seen.sighting is None, seen.n_learned, watcher.detector.learned
    (True, 0, (0, 0))
    """

    detector: Detector
    learn: bool = False
    prior: Prior = field(default_factory=Prior)
    lessons: Lessons = field(default_factory=Lessons)
    scale_factor: float = SCALE_FACTOR
    min_score: float | str | None = None
    threads: int | None = None
    number: int = 0
    _learned: deque[list[Entry]] = field(default_factory=deque, repr=False)
    _pending: list[_Lesson] = field(default_factory=list, repr=False)
    _due: int = 1
    _moved: float = 0.0

    def __post_init__(self) -> None:
        if self.learn:
            self.detector.taught.check_can_learn()
            _keep_freed_memory()
        self.detector.taught.reporting.min_score(self.min_score)  # a name that is not known is said now
        self.follower = Follower(self.prior, self.scale_factor, threads=self.threads)
        self.gate = self.lessons.gate_of(self.detector.taught)
        self._start: Memory = memory_of(self.detector.taught)
        self._moved = moved(self.detector.taught)

    def look(self, image: ImageLike) -> Look:
        """Detect, follow and, where the watcher learns, learn before the next frame."""
        grey, taught = as_grey(image), self.detector.taught
        sighting = self.follower.look(taught.cascade(), grey)
        fired = FiredWindows() if sighting is None else sighting.fired
        frame = taught.reporting.frame
        groups = grouped(fired)
        found = Detections(frame.boxes(groups.boxes), groups.scores, fired, groups.group)
        found = found.above(taught.reporting.min_score(self.min_score))
        teaches = self.learn and sighting is not None and sighting.score > self.gate
        if teaches and sighting is not None:
            self._pending.append(self._lesson(grey, sighting))
        learned, taken_back = self._count() if len(self._pending) >= self._due else (0, 0)
        self.number += 1
        box = None if sighting is None else frame.boxes(sighting.box[None])[0]
        return Look(self.number - 1, found, sighting, box, teaches, learned, taken_back, self._moved)

    def finish(self) -> tuple[int, int]:
        """Learn what is still pending, after the last frame; how many lessons were learned and taken back."""
        return self._count() if self._pending else (0, 0)

    @property
    def moved(self) -> float:
        """How far the weights have turned since the base, in lengths of them."""
        return self._moved

    @property
    def remembered(self) -> list[Entry]:
        """What was learned and has not been unlearned since, oldest first: as a journal would have it."""
        return [entry for lesson in self._learned for entry in lesson]

    def roll_back(self, n: int | None = None) -> int:
        """Unlearn the newest `n` lessons, or all that are remembered; returns how many that were.

        Where nothing older has been let go, rolling everything back restores the detector byte for byte.
        """
        self._pending.clear()
        n = len(self._learned) if n is None else min(n, len(self._learned))
        newest = [self._learned.pop() for _ in range(n)]
        self._replace([], newest)
        return n

    def _lesson(self, grey: Grey, sighting: Sighting) -> _Lesson:
        """The sighting, and with it the best windows elsewhere that fired."""
        fired, places, patches = sighting.fired, [sighting.place], [sighting.patch]
        if self.lessons.others and len(fired):
            elsewhere = box_iou(sighting.box[None], fired.boxes)[0] < ELSEWHERE
            best = np.argsort(np.where(elsewhere, -fired.scores, np.inf), kind="stable")[: self.lessons.others]
            places += [(float(fired.scale[i]), int(fired.y[i]), int(fired.x[i])) for i in best if elsewhere[i]]
        height, width = self.detector.window
        patches += [level_at(grey, s).image[y : y + height, x : x + width] for s, y, x in places[1:]]
        return _Lesson(image_hash(grey), tuple(places), np.array(patches))

    def _entries(self, lessons: Sequence[_Lesson]) -> list[list[Entry]]:
        """What the journal would hold of each lesson; all together, as weak learners answer to many at little more."""
        taught, sizes = self.detector.taught, [len(lesson.places) for lesson in lessons]
        scale, y, x = (np.array(column) for column in zip(*chain(*(one.places for one in lessons)), strict=True))
        where = Places(scale.astype(np.float64), y.astype(np.intp), x.astype(np.intp))
        is_object = np.concatenate([np.arange(size) == 0 for size in sizes])
        weights = np.full(len(is_object), self.lessons.weight(taught), dtype=np.int64)
        patches = np.concatenate([lesson.patches for lesson in lessons])
        entries = iter(entries_of(taught.base, "", where, patches, is_object, weights))
        return [[replace(entry, image=one.image) for entry in islice(entries, len(one.places))] for one in lessons]

    def _count(self) -> tuple[int, int]:
        """Learn what is pending, let go of what is too old; take both back where they did damage."""
        new, self._pending = self._entries(self._pending), []
        self._due = min(2 * self._due, self.lessons.every)
        n_old = max(0, len(self._learned) + len(new) - self.lessons.most_kept())
        old = [self._learned[i] for i in range(min(n_old, len(self._learned)))]
        before = self.detector
        self._replace(new, old)
        lost, accepted = self._start.lost(memory_of(self.detector.taught))
        if lost > self.lessons.most_lost or accepted > self.lessons.most_accepted:
            self.detector = before
            self._moved = moved(before.taught)
            return 0, len(new)
        for _ in old:
            self._learned.popleft()
        self._learned.extend(new)
        return len(new), 0

    def _replace(self, new: Iterable[list[Entry]], old: Iterable[list[Entry]]) -> None:
        """Learn some lessons and unlearn others, in one step."""
        taught = self.detector.taught
        learned, unlearned = ([entry for lesson in lessons for entry in lesson] for lessons in (new, old))
        delta = taught.learned + lesson_of(taught.base, learned)
        delta = delta - lesson_of(taught.base, unlearned) if unlearned else delta
        self.detector = Detector(TaughtDetector(taught.base, delta, taught.reporting))
        self._moved = moved(self.detector.taught)


def _keep_freed_memory() -> None:
    """Let a lesson find the memory that the last one used.

    glibc gives back to the system what is free above twice the largest block that was ever freed, and a lesson's
    matrices of half a megabyte would come page by page again, for a third of the time that it takes. A large block
    that is freed untouched moves that limit up; elsewhere it does nothing.
    """
    np.empty(16 * 2**20, np.uint8)
