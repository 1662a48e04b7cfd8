"""The detector as its user sees it: load, detect, learn, unlearn, merge, save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from whet.cascade.detect import GROUPING, Grouping, detect
from whet.cascade.detections import Detections
from whet.cascade.grouping import IOU
from whet.cascade.pyramid import SCALE_FACTOR, SMALLEST
from whet.detector import bundled, model_file
from whet.detector.base import DetectorBase, Provenance
from whet.detector.corrections import Correction
from whet.detector.journal import Entry, image_hash, lesson_of
from whet.detector.reporting import Frame, Reporting
from whet.detector.taught import TaughtDetector
from whet.detector.windows import ImageWindows, checked
from whet.io.images import as_grey
from whet.lda.statistics import MOST_SAMPLES
from whet.opencv.export import EarlyExits, Exported, write_opencv

if TYPE_CHECKING:
    from whet.io.images import ImageLike


class Detector:
    """Finds objects in images, and is corrected by being shown its mistakes.

    A trained base, which stays as it is, and whole counts of what was learned since. Every change is made as a
    whole or, with an error, not at all.

    >>> import numpy as np
    >>> from whet.features.haar import HaarPool
    >>> from whet.training.stage import train_node
    >>> from whet.training.stage import NodeGoal
    >>> rng = np.random.default_rng(0)
    >>> patches = rng.integers(0, 200, (400, 8, 8), dtype=np.uint8)
    >>> patches[:200, :, 4:] += 55  # the object is brighter on the right
    >>> samples = patches, np.arange(400) < 200
    >>> node = train_node(HaarPool.from_window((8, 8)), *samples, 5, goal=NodeGoal(0.98, 0.001), validation=samples)
    >>> detector = Detector.from_base(DetectorBase((8, 8), (node.base(),)))
    >>> image = rng.integers(0, 200, (40, 40), dtype=np.uint8)
    >>> wrong = detector.detect(image, max_detections=1)
    >>> learned = detector.learn(image, wrong.boxes, [False])
    >>> detector
    Detector(8 x 8 windows, 1 stage, 5 weak learners; learned since its base: 0 of the object, ... of others)
    >>> detector.unlearn(learned)
    >>> detector.learned
    (0, 0)
    """

    def __init__(self, taught: TaughtDetector) -> None:
        self._taught = taught

    @classmethod
    def from_base(cls, base: DetectorBase, frame: Frame | None = None) -> Detector:
        """A detector that has learned nothing since its base; `frame` says which box it reports for a window."""
        return cls(TaughtDetector(base, reporting=Reporting(frame or Frame())))

    def detect(
        self,
        image: ImageLike,
        *,
        min_size: float | None = None,
        max_size: float | None = None,
        scale_factor: float = SCALE_FACTOR,
        step: int = 1,
        grouping: Grouping | None = GROUPING,
        iou: float = IOU,
        max_detections: int | None = None,
        min_score: float | str | None = None,
        threads: int | None = None,
    ) -> Detections:
        """Find objects in an image: a path, a Pillow image or an array (see `whet.io.images.as_grey`).

        Boxes from `min_size` to `max_size` (their longer side, in pixels), each `scale_factor` times the one before,
        are moved by `step` pixels of their level, and grouped where they overlap (see `whet.cascade.detect.detect`).
        Detections with scores above `min_score`, a number or the name of an operating point, are kept, at most
        `max_detections` of them. Without a minimum score the operating point "default" is used, if the detector has
        one.
        """
        taught = self._taught
        frame = taught.reporting.frame
        min_window, max_window = self._window_sizes(min_size, max_size)
        found = detect(
            taught.cascade(),
            as_grey(image),
            min_size=min_window,
            max_size=max_window,
            scale_factor=scale_factor,
            step=step,
            grouping=grouping,
            iou=iou,
            max_detections=max_detections,
            min_score=taught.reporting.min_score(min_score),
            threads=threads,
        )
        return replace(found, boxes=frame.boxes(found.boxes))

    def learn(
        self,
        image: ImageLike,
        boxes: ArrayLike,
        labels: ArrayLike,
        weight: int | None = None,
        *,
        min_size: float | None = None,
        max_size: float | None = None,
        scale_factor: float = SCALE_FACTOR,
        step: int = 1,
        grouping: Grouping | None = GROUPING,
        iou: float = IOU,
        min_score: float | str | None = None,
        threads: int | None = None,
    ) -> list[Entry]:
        """Learn boxes (n, 4) of an image, as x1, y1, x2, y2, with labels (n,): True for the object, False for others.

        A True box teaches the window nearest to it. A False one teaches the windows behind the detections there,
        or, where nothing was detected, the nearest window. So give the sizes, `scale_factor`, `step`,
        `grouping`, `iou` and `min_score` with which the detections were made.

        `weight` is a whole number: how often a box counts, shared by the windows of a false positive. Without one, a
        box counts 4 % of its class in the base (`whet.detector.counting.default_weight`), and a false positive that is
        still there, or an object that is still missed, is taught again with twice the weight, for a few rounds; one
        that stays all the same keeps its first lesson only. The entries that are returned say what was learned;
        `unlearn` takes them out again, and a `whet.detector.journal.Journal` keeps them.
        """
        whole = isinstance(weight, Integral) and not isinstance(weight, bool)
        if weight is not None and not (whole and 1 <= weight < MOST_SAMPLES):
            raise ValueError(f"got weight={weight}; expected a whole number from 1")
        taught = self._taught.copy()
        taught.check_can_learn()
        grey = as_grey(image)
        array, flags = checked(boxes, labels, grey.shape)
        if not len(array):
            return []
        windows = ImageWindows.from_image(
            grey, self.window, scale_factor, step, self._window_sizes(min_size, max_size), threads
        )
        times = None if weight is None else int(weight)
        above = taught.reporting.min_score(min_score)
        correction = Correction(windows, image_hash(grey), array, flags, times, grouping, iou, above, threads)
        entries = correction.teach(taught)
        self._taught = taught
        return entries

    def _window_sizes(self, least: float | None, most: float | None) -> tuple[float | None, float | None]:
        """Longer sides of windows, from those of the boxes that are reported for them."""
        (height, width), frame = self.window, self.frame
        ratio = max(height, width) / max(height * frame.size[0], width * frame.size[1])
        smallest = SMALLEST * max(height, width) / ratio
        if least is not None and not least >= smallest:
            raise ValueError(f"got min_size={least}; this detector finds objects from {smallest:g} pixels up")
        if least is not None and most is not None and least > most:
            raise ValueError(f"got min_size={least} above max_size={most}: no size is left")
        return None if least is None else least * ratio, None if most is None else most * ratio

    def unlearn(self, entries: Iterable[Entry]) -> None:
        """Take out what was learned, as if it had never been shown; the images are not needed.

        What the base was trained on cannot be taken out: it chose the weak learners. Raises `JournalError` for entries
        of another base, and `CannotUnlearnError` where counts show that an entry was not learned, or was taken out
        before; counts cannot show all such mistakes, but a journal can.
        """
        taught = self._taught.copy()
        taught.check_can_learn()
        taught.remove_all(lesson_of(taught.base, list(entries)))
        self._taught = taught

    def relearn(self, entries: Iterable[Entry]) -> None:
        """Learn entries that this detector, or another one of the same base, has learned before; without images.

        In any order, the same entries make the same detector.
        """
        taught = self._taught.copy()
        taught.check_can_learn()
        taught.insert_all(lesson_of(taught.base, list(entries)))
        self._taught = taught

    def merge(self, other: Detector) -> None:
        """Add all that another detector of the same base has learned since that base.

        What both learned before they were copied apart would count twice. Frame, operating points and provenance
        stay those of this detector.
        """
        taught = self._taught.copy()
        taught.merge(other._taught)
        self._taught = taught

    def copy(self) -> Detector:
        """A detector that from here on learns on its own."""
        return Detector(self._taught.copy())

    def save(self, path: str | PathLike[str]) -> None:
        """Write all of it to a file: as a whole, or not at all. Equal histories give equal bytes."""
        model_file.save(self._taught, path)

    def export_opencv(
        self, path: str | PathLike[str], *, early_exits: EarlyExits = "doubling", exact: bool = False
    ) -> Exported:
        """Write the detector as it is now for `cv2.CascadeClassifier`; statistics, frame and points stay behind.

        The answer says how the file's decisions can differ (see `whet.opencv.export.write_opencv`). Raises
        `CannotExportError` where OpenCV's format has no words for it.
        """
        return write_opencv(self._taught.cascade(), Path(path), early_exits=early_exits, exact=exact)

    def set_operating_point(self, name: str, threshold: float | None) -> None:
        """Give a score threshold a name, for `detect(min_score=name)`; None takes the name away.

        The threshold comes from an evaluation: `operating_point(result.curve, 0.1)` of `whet.evaluation.curves` is the
        lowest with at most one false positive in ten images. It is about the detector as it was then, with the
        `scale_factor`, `step` and `grouping` that were used: set it anew when the detector has learned much.
        """
        taught = self._taught.copy()
        taught.reporting = taught.reporting.with_point(name, threshold)
        self._taught = taught

    @property
    def operating_points(self) -> Mapping[str, float]:
        """Score thresholds by name; see `set_operating_point`."""
        return dict(self._taught.reporting.operating_points)

    @property
    def taught(self) -> TaughtDetector:
        """The base and the counts, for those who work on windows."""
        return self._taught

    @property
    def frame(self) -> Frame:
        """Which box is reported for a window."""
        return self._taught.reporting.frame

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the smallest window, in pixels."""
        return self._taught.base.window

    @property
    def base_id(self) -> str:
        """Hash of the base: detectors that share it can be merged, and can unlearn each other's entries."""
        return self._taught.base.base_id

    @property
    def provenance(self) -> Provenance:
        """What the base was trained on, under which licence and by which command."""
        return self._taught.base.provenance

    @property
    def learned(self) -> tuple[int, int]:
        """How often the object and other things were counted since the base, each window by its weight."""
        objects, others = zip(*self._taught.learned.counts, strict=True)
        return max(objects), max(others)

    def __repr__(self) -> str:
        cascade, (height, width), (objects, others) = self._taught.cascade(), self.window, self.learned
        n = len(cascade.stages)
        points = "".join(f"; {name!r}: above {score:g}" for name, score in sorted(self.operating_points.items()))
        return (
            f"Detector({width} x {height} windows, {n} stage{'s' * (n != 1)}, {cascade.n_weak} weak learners; "
            f"learned since its base: {objects} of the object, {others} of others{points})"
        )


def load(name_or_path: str | PathLike[str]) -> Detector:
    """Load a detector: one that comes with whet, by its bare name, or one that was saved, by its path.

    >>> load("unicorn")
    Traceback (most recent call last):
    whet.errors.DetectorNotFoundError: there is no detector named 'unicorn'; bundled with whet: ...
    """
    return Detector(bundled.load(name_or_path))
