"""The detector: load, detect, learn, unlearn, merge, save."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.cascade.boxes import BoxOffset
from whet.cascade.cascade import Cascade, Stage
from whet.cascade.detect import GROUPING, IOU, Grouping, report
from whet.cascade.detections import Detections
from whet.cascade.pyramid import SCALE_FACTOR, SMALLEST, Pyramid
from whet.cascade.scan import scan_pyramid
from whet.detector import model_file
from whet.detector.base import Delta, DetectorBase, Provenance, Reporting, check_delta
from whet.errors import (
    BoxError,
    CannotConvertError,
    CannotLearnError,
    CannotMergeError,
    CannotUnlearnError,
    DetectorNotFoundError,
)
from whet.io.files import write_atomically
from whet.io.images import as_grey
from whet.lda.statistics import MOST_SAMPLES

if TYPE_CHECKING:
    from whet.detector.records import Record
    from whet.io.images import ColorOrder, ImageLike
    from whet.opencv.export import EarlyExits, Exported

    Images = list[ImageLike] | tuple[ImageLike, ...]

SUFFIX = ".whet"
BUNDLED = Path(str(files("whet") / "bundled"))


class ScanOptions(TypedDict, total=False):
    """How an image is scanned: keyword arguments of `Detector.detect`, for functions that pass them on."""

    min_size: float | None
    max_size: float | None
    scale_factor: float
    step: int
    grouping: Grouping | None
    color: ColorOrder
    threads: int | None


class DetectOptions(ScanOptions, total=False):
    """All keyword arguments of `Detector.detect`."""

    iou: float
    min_score: float | str | None
    max_detections: int | None


class Detector:
    """Finds objects in images, and learns from corrections.

    A detector is a trained base, which stays as it is, and whole counts of what was learned since. Together they are,
    to the last bit, the same weak learners trained on everything. Every change is made as a whole or, with an error,
    not at all. What the base was trained on cannot be unlearned: it chose the weak learners.

    >>> from skimage import data
    >>> detector = load("face")
    >>> found = detector.detect(data.astronaut())
    >>> found
    Detections(2: 114 x 126 at (168, 57) scores 119, 76 x 84 at (264, 320) scores 49.7)
    >>> records = detector.learn(data.astronaut(), found[1].boxes, False)  # "not a face"
    >>> len(detector.detect(data.astronaut()))
    1
    >>> detector.unlearn(records)
    >>> detector.learned
    (0, 0)
    """

    def __init__(self, base: DetectorBase, learned: Delta | None = None, reporting: Reporting | None = None) -> None:
        self._base = base
        self._reporting = reporting or Reporting()
        self._delta = Delta.empty(base.sizes)
        self._cascade = base.cascade
        if learned is not None:
            self.add(learned)

    @overload
    def detect(self, image: Images, **options: Unpack[DetectOptions]) -> list[Detections]: ...

    @overload
    def detect(self, image: ImageLike, **options: Unpack[DetectOptions]) -> Detections: ...

    def detect(
        self,
        image: ImageLike | Images,
        *,
        min_size: float | None = None,
        max_size: float | None = None,
        scale_factor: float = SCALE_FACTOR,
        step: int = 1,
        grouping: Grouping | None = GROUPING,
        iou: float = IOU,
        min_score: float | str | None = None,
        max_detections: int | None = None,
        color: ColorOrder = "rgb",
        threads: int | None = None,
    ) -> Detections | list[Detections]:
        """Find objects in an image: a path, a Pillow image or an array (see `whet.io.images.as_grey`).

        Boxes from `min_size` to `max_size` (their longer side, in pixels), each `scale_factor` times the one before,
        are moved by `step` pixels of their level, and grouped where they overlap (see `whet.cascade.detect.detect`).
        Detections with scores above `min_score`, a number or the name of an operating point, are kept, at most
        `max_detections` of them. Without a minimum score the operating point "default" is used, if there is one.

        Colour arrays are RGB; pass `color="bgr"` for those of `cv2.imread`. A list or tuple of images gives a list of
        detections.
        """
        if isinstance(image, list | tuple):
            options: DetectOptions = {
                "min_size": min_size,
                "max_size": max_size,
                "scale_factor": scale_factor,
                "step": step,
                "grouping": grouping,
                "iou": iou,
                "min_score": min_score,
                "max_detections": max_detections,
                "color": color,
                "threads": threads,
            }
            return [self.detect(one, **options) for one in image]
        cascade, reporting = self._cascade, self._reporting
        pyramid = self._pyramid(as_grey(image, color), scale_factor, step, min_size, max_size, threads)
        fired = scan_pyramid(cascade, pyramid, threads=threads)
        return report(
            fired,
            grouping=grouping,
            iou=iou,
            offset=reporting.box_offset,
            min_score=reporting.min_score(min_score),
            max_detections=max_detections,
        )

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
        color: ColorOrder = "rgb",
        threads: int | None = None,
    ) -> list[Record]:
        """Learn boxes (n, 4) of an image, as x1, y1, x2, y2, with labels: True for the object, False for others.

        `labels` are one for all boxes or (n,). A True box is learned by the window nearest to it. A False one is
        learned by the windows behind the detections there, or, where nothing was detected, by the nearest window. So
        pass the sizes, `scale_factor`, `step`, `grouping`, `iou` and `min_score` with which the detections were made.

        `weight` is a whole number: how often a box counts, shared by the windows of a false positive. Without one, a
        box counts 4 % of its class in the base, and a false positive that is still there, or an object that is still
        missed, is learned again with twice the weight, for a few rounds; one that stays keeps its first round only.

        Returns records of what was learned. `unlearn` takes them out again; a `whet.detector.journal.Journal` stores
        them.
        """
        from whet.detector.corrections import Correction, checked_labels
        from whet.detector.records import image_hash

        whole = isinstance(weight, Integral) and not isinstance(weight, bool)
        if weight is not None and not (whole and 1 <= weight < MOST_SAMPLES):
            raise ValueError(f"got weight={weight}; expected a whole number from 1")
        changed = self.copy()
        changed.check_can_learn()
        grey = as_grey(image, color)
        array, flags = checked_labels(boxes, labels, grey.shape)
        if not len(array):
            return []
        pyramid = self._pyramid(grey, scale_factor, step, min_size, max_size, threads)
        if not pyramid.levels:
            raise BoxError(
                f"the image has {grey.shape[1]} x {grey.shape[0]} pixels, too few for windows of {self.window[1]} x "
                f"{self.window[0]} between these sizes: nothing in it can be learned"
            )
        times = None if weight is None else int(weight)
        above = self._reporting.min_score(min_score)
        correction = Correction(pyramid, image_hash(grey), array, flags, times, grouping, iou, above, threads)
        records = correction.apply(changed)
        self._become(changed)
        return records

    def unlearn(self, records: Iterable[Record]) -> None:
        """Take out what was learned, as if it had never been learned; the images are not needed.

        What the base was trained on cannot be unlearned: it chose the weak learners. Raises `JournalError` for records
        of another base, and `CannotUnlearnError` where counts show that a record was not learned, or was unlearned
        before; counts cannot show all such mistakes, but a journal can.
        """
        from whet.detector.records import count_records

        self.check_can_learn()
        self.subtract(count_records(self._base, list(records)))

    def relearn(self, records: Iterable[Record]) -> None:
        """Learn records that this detector, or another one of the same base, has learned before; without images.

        In any order, the same records make the same detector.
        """
        from whet.detector.records import count_records

        self.check_can_learn()
        self.add(count_records(self._base, list(records)))

    def learn_patches(
        self, patches: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = 1, threads: int | None = None
    ) -> None:
        """Learn patches (n, height, width) of the window's size with labels (n,), each `weights` times.

        The result depends neither on the order of the patches, nor on how they are divided into calls.
        """
        from whet.detector.records import count_patches

        self.check_can_learn()
        self.add(count_patches(self._base, np.asarray(patches), labels, weights, threads))

    def unlearn_patches(
        self, patches: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = 1, threads: int | None = None
    ) -> None:
        """Take out patches that `learn_patches` has learned with these labels and weights.

        Raises `CannotUnlearnError`, and changes nothing, where counts show that they were not learned.
        """
        from whet.detector.records import count_patches

        self.check_can_learn()
        self.subtract(count_patches(self._base, np.asarray(patches), labels, weights, threads))

    def merge(self, other: Detector | str | PathLike[str]) -> None:
        """Add all that another detector of the same base, or the one in a file, has learned since that base.

        What both learned before they were copied apart would count twice. Box offset, operating points and provenance
        stay those of this detector.
        """
        other = other if isinstance(other, Detector) else load(other)
        if self.base_id != other.base_id:
            raise CannotMergeError(
                f"these detectors do not share one base ({self.base_id[:12]} and {other.base_id[:12]}): merge copies "
                "of one detector"
            )
        self.add(other.delta)

    def add(self, new: Delta) -> None:
        """Count further samples in any of the stages; weights and thresholds follow."""
        check_delta(new, self._base)
        self._set(self._delta + new, changed=new)

    def subtract(self, old: Delta) -> None:
        """Take samples out of any of the stages again; refuses what was not learned since the base."""
        check_delta(old, self._base)
        rest = self._delta - old
        if not rest.is_possible:
            raise CannotUnlearnError(
                "cannot unlearn these samples: they were not learned since the base, or not so often; nothing was "
                "changed"
            )
        self._set(rest, changed=old)

    def _set(self, learned: Delta, changed: Delta) -> None:
        learned.check_counts(self._base)
        stages: list[Stage] = list(self._cascade.stages)
        for number, counts in enumerate(changed.counts):
            if any(counts):
                pair = learned.stages[number]
                nothing = not any(statistics.n for statistics in pair)
                stages[number] = self._base.cascade.stages[number] if nothing else self._base.stages[number].run(pair)
        self._cascade = Cascade(self._base.window, tuple(stages), self._base.min_sigma)
        self._delta = learned

    def check_can_learn(self) -> None:
        """Raise `CannotLearnError` if no stage has statistics."""
        if not any(stage.learns for stage in self._base.stages):
            raise CannotLearnError(
                "no stage has statistics, so this detector runs but cannot learn; adopt an OpenCV cascade first, with "
                "`whet adopt` or whet.adopt, or train a detector with `whet train`"
            )

    def copy(self) -> Detector:
        """A detector that learns on its own from here on; the base is shared."""
        twin = Detector.__new__(Detector)
        twin._become(self)
        return twin

    def _become(self, other: Detector) -> None:
        # All that a detector holds are values: none is ever changed in place.
        self._base, self._reporting = other._base, other._reporting
        self._delta, self._cascade = other._delta, other._cascade

    def to_bytes(self) -> bytes:
        """The detector as the bytes of its file. Equal histories give equal bytes."""
        return model_file.to_bytes(model_file.Contents(self._base, self._delta, self._reporting))

    @classmethod
    def from_bytes(cls, data: bytes) -> Detector:
        """A detector from the bytes of its file; raises `ModelFileError` where they are damaged."""
        with model_file.damage_as_error():
            return cls(*model_file.from_bytes(data))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the detector to a file: as a whole, or not at all. Equal histories give equal bytes."""
        write_atomically(Path(path), self.to_bytes())

    def export_opencv(
        self, path: str | PathLike[str], *, early_exits: EarlyExits = "doubling", exact: bool = False
    ) -> Exported:
        """Write the detector as it is now for `cv2.CascadeClassifier`; statistics and operating points stay behind.

        The answer says how the file's decisions can differ (see `whet.opencv.export.write_opencv`). Raises
        `CannotExportError` where the detector cannot be represented in OpenCV's format.
        """
        from whet.opencv.export import write_opencv

        return write_opencv(self._cascade, Path(path), early_exits=early_exits, exact=exact)

    def set_operating_point(self, name: str, min_score: float | None) -> None:
        """Give a minimum score a name, for `detect(min_score=name)`; None removes the name.

        The score comes from an evaluation: `operating_point(result.curve, 0.1)` of `whet.evaluation.curves` is the
        lowest with at most one false positive in ten images. It belongs to the detector as it is now, with the
        `scale_factor`, `step` and `grouping` that were used: set it again when the detector has learned much.
        """
        self._reporting = self._reporting.with_point(name, min_score)

    @property
    def operating_points(self) -> Mapping[str, float]:
        """Minimum scores by name; see `set_operating_point`."""
        return dict(self._reporting.operating_points)

    @property
    def base(self) -> DetectorBase:
        """The frozen result of the training."""
        return self._base

    @property
    def cascade(self) -> Cascade:
        """The weighted cascade as it is now; where nothing was learned, the base's own."""
        return self._cascade

    @property
    def delta(self) -> Delta:
        """The counts of all that was learned since the base."""
        return self._delta

    @property
    def reporting(self) -> Reporting:
        """Box offset and operating points."""
        return self._reporting

    @property
    def box_offset(self) -> BoxOffset:
        """Which box is reported for a window."""
        return self._reporting.box_offset

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the smallest window, in pixels."""
        return self._base.window

    @property
    def base_id(self) -> str:
        """Hash of the base: detectors that share it can be merged, and can unlearn each other's records."""
        return self._base.base_id

    @property
    def provenance(self) -> Provenance:
        """What the base was trained on, under which licence and by which command."""
        return self._base.provenance

    @property
    def learned(self) -> tuple[int, int]:
        """How often the object and other things were counted since the base, each window by its weight."""
        objects, others = zip(*self._delta.counts, strict=True)
        return max(objects), max(others)

    def __repr__(self) -> str:
        (height, width), (objects, others), n = self.window, self.learned, len(self._cascade.stages)
        points = "".join(f", {name!r}: {score:g}" for name, score in sorted(self.operating_points.items()))
        return (
            f"Detector({width} x {height} windows, {n} stage{'s' * (n != 1)}, {self._cascade.n_weak} weak learners; "
            f"learned {objects} positives, {others} negatives{'; operating points ' + points[2:] if points else ''})"
        )

    def _pyramid(
        self,
        grey: NDArray[np.uint8],
        scale_factor: float,
        step: int,
        least: float | None,
        most: float | None,
        threads: int | None,
    ) -> Pyramid:
        """The levels on which boxes have these sizes; windows are smaller or larger than the boxes reported."""
        (height, width), offset = self.window, self.box_offset
        ratio = max(height, width) / max(height * offset.size[0], width * offset.size[1])
        smallest = SMALLEST * max(height, width) / ratio
        if least is not None and not least >= smallest:
            raise ValueError(f"got min_size={least}; this detector finds objects from {smallest:g} pixels up")
        if least is not None and most is not None and least > most:
            raise ValueError(f"got min_size={least} above max_size={most}; expected min_size <= max_size")
        return Pyramid.from_image(
            grey,
            self.window,
            scale_factor=scale_factor,
            step=step,
            min_size=None if least is None else least * ratio,
            max_size=None if most is None else most * ratio,
            threads=threads,
        )


def bundled_names() -> list[str]:
    """The names of all detectors that come with whet.

    >>> bundled_names()
    ['face']
    """
    return sorted(path.name.removesuffix(SUFFIX) for path in BUNDLED.glob(f"*{SUFFIX}"))


def load(name_or_path: str | PathLike[str]) -> Detector:
    """Load a detector: a bundled one by its bare name, a saved one by its path, or an OpenCV cascade (`.xml`).

    >>> load("unicorn")
    Traceback (most recent call last):
    whet.errors.DetectorNotFoundError: there is no detector named 'unicorn'; bundled with whet: ...
    """
    if isinstance(name_or_path, str) and re.fullmatch(r"[\w-]+", name_or_path):
        return _load_bundled(name_or_path)
    if Path(name_or_path).suffix.lower() == ".xml":
        return _load_opencv(Path(name_or_path))
    return _load_file(Path(name_or_path))


def _load_bundled(name: str) -> Detector:
    names = bundled_names()
    if name not in names:
        there = ", ".join(map(repr, names)) or "none"
        raise DetectorNotFoundError(f"there is no detector named {name!r}; bundled with whet: {there}. {_hint(name)}")
    return _load_file(BUNDLED / f"{name}{SUFFIX}")


def _load_file(path: Path) -> Detector:
    contents = model_file.read_model(path)
    with model_file.damage_as_error(path):  # base and learned samples may not fit together
        return Detector(*contents)


def _hint(name: str) -> str:
    """What else may be meant by a bare name."""
    if Path(name).is_dir():
        return f"{name} is a folder here; expected a detector's name or its file"
    if Path(name).exists():
        return f"For the file that is here, write './{name}'"
    return "For a file, give its path with its suffix, or './' before it"


def _load_opencv(path: Path) -> Detector:
    from whet.opencv.cascade import stages_of
    from whet.opencv.xml import read_opencv

    if not path.exists():
        raise DetectorNotFoundError(f"there is no file {path}; expected an OpenCV cascade")
    cascade = read_opencv(path)
    try:
        stages = stages_of(cascade)
    except CannotConvertError as error:
        raise CannotConvertError(f"{path}: {error}") from error
    return Detector(DetectorBase(cascade.window, stages))
