"""The detector: load, detect, learn, unlearn, merge, save."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import isfinite
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet._kernels.threads import map_in_order
from whet.cascade.boxes import BoxOffset
from whet.cascade.cascade import Cascade
from whet.cascade.detect import GROUPING, IOU, Grouping, report
from whet.cascade.detections import Calibration, Detections
from whet.cascade.pyramid import SCALE_FACTOR, SMALLEST, Level, Pyramid
from whet.cascade.scan import scan_pyramid
from whet.detector import model_file
from whet.detector.base import (
    DEFAULT_POINT,
    Delta,
    DetectorBase,
    Provenance,
    Reporting,
    check_delta,
)
from whet.detector.model_header import Contents
from whet.detector.records import (
    Record,
    Records,
    State,
    Update,
    check_site,
    checked_records,
    image_hash,
)
from whet.detector.reference import Estimate
from whet.errors import (
    BoxError,
    CannotMergeError,
    CannotUnlearnError,
    RecordError,
)
from whet.io.files import as_path
from whet.io.images import as_grey, as_rgb

if TYPE_CHECKING:
    from whet.detector.checks import Check
    from whet.io.images import ColorOrder, ImageLike
    from whet.opencv.export import EarlyExits, Exported

    Images = list[ImageLike] | tuple[ImageLike, ...]

Floats = NDArray[np.float64]


class _Scan(TypedDict, total=False):
    min_size: float | None
    max_size: float | None
    scale_factor: float
    step: int
    fast: bool | None
    grouping: Grouping | None
    threads: int | None


class ScanOptions(_Scan, total=False):
    """How an image is scanned: keyword arguments of `Detector.detect`, for functions that pass them on."""

    color: ColorOrder


class PixelOptions(_Scan, total=False):
    """Keyword arguments of `Detector.detect_pixels`: those of `detect`, without `color`."""

    iou: float
    min_score: float | str | None
    max_detections: int | None


class DetectOptions(ScanOptions, PixelOptions, total=False):
    """All keyword arguments of `Detector.detect`."""


class LearnOptions(TypedDict, total=False):
    """Keyword arguments of `Detector.learn` and `Detector.new_records`."""

    name: str
    note: str
    site: str
    min_size: float | None
    max_size: float | None
    scale_factor: float
    step: int
    min_score: float | str | None
    color: ColorOrder
    threads: int | None
    shared: dict[float, Level] | None
    base_found: Detections | None
    other_objects: Floats | None


def check_number(name: str, value: object, more: str = "", *, whole: bool = False) -> None:
    """Raise TypeError for an option that is not one number, or not one whole number.

    >>> check_number("min_size", (10, 10), " of pixels")
    Traceback (most recent call last):
    TypeError: got min_size=(10, 10); expected a number of pixels
    """
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        raise TypeError(f"got {name}={value!r}; expected a {'whole ' * whole}number{more}")


def file_name(image: ImageLike) -> str:
    """The name of an image's file, without its folders and without the query of a URL; "" for pixels."""
    return as_path(image).name if isinstance(image, str | PathLike) else ""


class Detector:
    """Finds objects in images, and learns from corrections.

    A detector is a trained base, which stays as it is, and what it learned since: a set of corrections, and counts of
    ordinary examples. Weights are derived from these alone, so the order of learning does not matter, and what is
    unlearned is gone without a trace. Every change is made as a whole or, with an error, not at all. Threads can share
    a detector. What the base was trained on cannot be unlearned: it chose the weak learners.

    >>> from skimage import data
    >>> import whet
    >>> detector = whet.load("face")
    >>> found = detector.detect(data.astronaut())
    >>> found
    Detections(2: face 114 x 127 at (168, 57) scores 119, face 79 x 87 at (262, 318) scores 46.4)
    >>> learned = detector.learn(data.astronaut(), found[1], False)  # "not a face"
    >>> len(detector.detect(data.astronaut()))
    1
    >>> detector.unlearn(learned)
    >>> detector.records
    []
    """

    def __init__(
        self,
        base: DetectorBase,
        counts: Delta | None = None,
        reporting: Reporting | None = None,
        records: Iterable[Record] = (),
    ) -> None:
        if isinstance(base, str | PathLike):
            raise TypeError(f"got {base!r}; use whet.load({str(base)!r}) to load a detector")
        self._reporting = reporting or Reporting()
        empty = Delta.empty(base.sizes)
        if counts is not None:
            check_delta(counts, base)
        self._state = State.from_learned(base, counts or empty, checked_records(records, base))
        self._lock = RLock()
        # File and SHA-256 of its bytes, as it was loaded or saved last.
        self.origin: tuple[Path, str] | None = None

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
        fast: bool | None = None,
        grouping: Grouping | None = GROUPING,
        iou: float = IOU,
        min_score: float | str | None = None,
        max_detections: int | None = None,
        color: ColorOrder = "rgb",
        threads: int | None = None,
    ) -> Detections | list[Detections]:
        """Find objects in an image: a path or URL, a Pillow image or an array (see `whet.io.images.as_grey`).

        Boxes from `min_size` to `max_size` (their longer side, in pixels), each `scale_factor` times the one before,
        are moved by `step` pixels of their level, and grouped where they overlap (see `whet.cascade.detect.detect`).
        Detections with scores above `min_score`, a number or the name of an operating point, are kept, at most
        `max_detections` of them. Without a minimum score the operating point "default" is used, if there is one.

        Detectors that have been shown to lose nothing by it, such as the bundled ones, first look at every second row
        and column of windows, with some of their stages, and then at the windows around those that pass. `fast=False`
        looks at every window instead; `fast=True` does this with other cascades, too, at the risk of missing objects.
        Channel detectors and steps above 1 are scanned in one pass.

        Colour arrays are RGB; pass `color="bgr"` for those of `cv2.imread`. A list or tuple of images gives a list of
        detections.
        """
        options: PixelOptions = {
            "min_size": min_size,
            "max_size": max_size,
            "scale_factor": scale_factor,
            "step": step,
            "fast": fast,
            "grouping": grouping,
            "iou": iou,
            "min_score": min_score,
            "max_detections": max_detections,
            "threads": threads,
        }
        if isinstance(image, list | tuple):
            return [self.detect_pixels(self.pixels(one, color), **options) for one in image]
        return self.detect_pixels(self.pixels(image, color), **options)

    def detect_many(self, images: Iterable[ImageLike], **options: Unpack[DetectOptions]) -> Iterator[Detections]:
        """Find objects in many images, with the options of `detect`; results come in the order of the images.

        Each of the `threads` decodes and scans an image of its own, so that reading one overlaps with scanning others.
        Images are taken from the iterable, and results computed, only a few ahead of the one that is asked for.

        >>> import whet
        >>> [len(found) for found in whet.load("face").detect_many(np.zeros((2, 40, 40), np.uint8))]
        [0, 0]
        """
        inner: DetectOptions = {**options, "threads": 1}
        return map_in_order(lambda image: self.detect(image, **inner), images, options.get("threads"))

    def detect_pixels(
        self, pixels: NDArray[np.uint8], shared: dict[float, Level] | None = None, **options: Unpack[PixelOptions]
    ) -> Detections:
        """Find objects in the `pixels` of an image; detectors can take turns with the `shared` levels of its pyramid.

        Detectors share levels if all look at grey images, or all at channels.
        """
        state, threads = self._state, options.get("threads")
        reporting, most = state.reporting(self._reporting), options.get("max_detections")
        check_number("iou", options.get("iou", IOU))
        if most is not None:
            check_number("max_detections", most, " of at least 1, or None for all", whole=True)
            if most < 1:
                raise ValueError(f"got max_detections={most}; expected a whole number of at least 1, or None for all")
        pyramid = self.pyramid(
            pixels,
            options.get("scale_factor", SCALE_FACTOR),
            options.get("step", 1),
            options.get("min_size"),
            options.get("max_size"),
            threads,
            shared,
        )
        cascade = state.derived.cascade
        fast = options.get("fast")
        if fast is not None:
            cascade = cascade.fast if fast else cascade.full
        fired = scan_pyramid(cascade, pyramid, threads=threads)
        return report(
            fired,
            grouping=options.get("grouping", GROUPING),
            iou=options.get("iou", IOU),
            offset=reporting.box_offset,
            min_score=reporting.min_score(options.get("min_score")),
            max_detections=most,
            calibration=self._calibration(state),
            by_object=cascade.uses_channels,
            class_name=self.class_name,
        )

    def learn(
        self, image: ImageLike, boxes: ArrayLike | Detections, labels: ArrayLike, **options: Unpack[LearnOptions]
    ) -> Update:
        """Correct boxes (n, 4) of an image, as x1, y1, x2, y2: label True for the object, False for a false positive.

        `boxes` may also be detections, or one box (4,). `labels` are one for all boxes or (n,). Pass as options the
        sizes, `scale_factor`, `step` and `color` with which the detections were made, and the `min_score` that a missed
        object has to exceed. A correction that holds already changes nothing, until another one would undo it; learning
        it twice is learning it once.

        Returns the new records, with what they change on the reference set. `name` (by default that of the file) and
        `note` are kept with them, and so is `site`, by which `unlearn_site` finds them in a merged detector. `unlearn`
        takes them out again. Issues a `WorseEstimateWarning` if recall falls by
        more than 1 point there, or if false positives per image rise by more than 10 % and by 0.02.
        """
        update = self.add(self.new_records(image, boxes, labels, **options))
        update.warn_if_worse()
        return update

    def new_records(
        self,
        image: ImageLike,
        boxes: ArrayLike | Detections,
        labels: ArrayLike,
        *,
        name: str = "",
        note: str = "",
        site: str = "",
        min_size: float | None = None,
        max_size: float | None = None,
        scale_factor: float = SCALE_FACTOR,
        step: int = 1,
        min_score: float | str | None = None,
        color: ColorOrder = "rgb",
        threads: int | None = None,
        shared: dict[float, Level] | None = None,
        base_found: Detections | None = None,
        other_objects: Floats | None = None,
    ) -> list[Record]:
        """The records that `learn` adds, one for each box; this detector does not change.

        They depend on the base and on the image, not on what was learned. To learn many images at once, collect their
        records and `add` them in one step. `shared` are levels of the image's pyramid, and `base_found` the detections
        of the base at any score, where they are known. `other_objects` (n, 4) are not learned: only no window of them
        becomes that of a false positive.
        """
        from whet.detector.corrections import checked_labels, new_records

        self.check_can_learn()
        check_site(site)
        pixels = self.pixels(image, color)
        array, flags = checked_labels(boxes, labels, pixels.shape[:2])
        if not len(array):
            return []
        pyramid = self.pyramid(pixels, scale_factor, step, min_size, max_size, threads, shared)
        if not pyramid.levels:
            raise BoxError(
                f"the image has {pixels.shape[1]} x {pixels.shape[0]} pixels, too few for windows of "
                f"{self.window[1]} x {self.window[0]} between these sizes: nothing in it can be learned"
            )
        # The point that the base came with: what was learned before must not matter.
        above = max(self._reporting.min_score(min_score), 0.0)
        if not isfinite(above):
            raise ValueError(f"got min_score={min_score}; expected a finite score that a missed object can exceed")
        found = new_records(
            self.base,
            self.box_offset,
            pyramid,
            image_hash(pixels),
            array,
            flags,
            above,
            threads,
            base_found,
            other_objects,
        )
        now = int(time.time())
        return [record.described(now, name or file_name(image), note, site) for record in found]

    def add(self, records: Iterable[Record]) -> Update:
        """Add records that this detector, or another one of the same base, has made; those it has change nothing."""
        new = checked_records(records, self.base)
        with self._lock:
            before = self._state
            added = tuple(record for key, record in new.items() if key not in before.records)
            self._state = after = before.replaced(new)
        unsatisfied = tuple(after.records[key] for key in after.derived.unsatisfied)
        return Update(added, before.estimate(self._reporting), after.estimate(self._reporting), unsatisfied)

    def unlearn(self, what: Update | Record | str | Iterable[Update | Record | str]) -> None:
        """Take out records, as if they had never been learned; the images are not needed.

        `what` is what `learn` has returned, a record, the first characters of an id, or several of these. Raises
        `RecordError`, and changes nothing, for what is not learned now. What the base was trained on cannot be
        unlearned: it chose the weak learners.
        """
        several = [what] if isinstance(what, Update | Record | str) else list(what)
        wanted = [one for part in several for one in (part if isinstance(part, Update) else (part,))]
        if not all(isinstance(one, Record | str) for one in wanted):
            raise RecordError(f"got {wanted[:3]!r} to unlearn; expected what `learn` returned, records or their ids")
        with self._lock:
            records = self._state.records
            ids = [records.find(one.id if isinstance(one, Record) else one).id for one in wanted]
            self._state = self._state.replaced(Records(), ids)

    def replace_records(self, add: Iterable[Record] = (), remove: Iterable[Record] = ()) -> None:
        """Add records and take out others in one change; weights are derived once. Records in both are kept.

        Raises `RecordError`, and changes nothing, if one to take out is not learned now.
        """
        new, old = checked_records(add, self.base), [record.id for record in remove]
        with self._lock:
            missing = [key for key in old if key not in self._state.records]
            if missing:
                raise RecordError(f"record {missing[0][:8]} is not learned now; nothing was changed")
            self._state = self._state.replaced(new, old)

    def unlearn_site(self, site: str) -> list[Record]:
        """Take out all that a site has learned, as if it had never been merged; returns it.

        What other sites have learned as well stays. Raises `RecordError`, and changes nothing, for an unknown site.
        Patches have no site: take them out with `unlearn_patches`, or merge the other sites again.
        """
        with self._lock:
            found = [record for record in self.records if site and record.site == site]
            if not found:
                sites = sorted({record.site for record in self.records} - {""})
                raise RecordError(f"got the site {site!r}; expected one of {', '.join(sites) or 'none: none is known'}")
            self._state = self._state.replaced(Records(), [record.id for record in found])
        return found

    def learn_patches(
        self, patches: ArrayLike, labels: ArrayLike, weights: ArrayLike = 1, threads: int | None = None
    ) -> None:
        """Count patches (n, height, width) of the window's size with labels (n,) as further training samples.

        Each counts `weights` times, and no record is kept. The result depends neither on the order of the patches, nor
        on how they are divided into calls. To correct single mistakes, use `learn`.
        """
        self.add_counts(self._counted(patches, labels, weights, threads))

    def unlearn_patches(
        self, patches: ArrayLike, labels: ArrayLike, weights: ArrayLike = 1, threads: int | None = None
    ) -> None:
        """Take out patches that `learn_patches` has learned with these labels and weights.

        Raises `CannotUnlearnError`, and changes nothing, where counts show that they were not learned.
        """
        old = self._counted(patches, labels, weights, threads)
        with self._lock:
            rest = self._state.counts - old
            if not rest.is_possible:
                raise CannotUnlearnError(
                    "cannot unlearn these samples: they were not learned since the base, or not so often; nothing was "
                    "changed"
                )
            self._state = State.from_learned(self.base, rest, self._state.records)

    def _counted(self, patches: ArrayLike, labels: ArrayLike, weights: ArrayLike, threads: int | None) -> Delta:
        self.check_can_learn(examples=True)
        from whet.detector.derive import count_patches

        return count_patches(self.base, np.asarray(patches), labels, weights, threads)

    def add_counts(self, new: Delta) -> None:
        """Count further samples in any of the stages, without records; weights and thresholds follow."""
        check_delta(new, self.base)
        with self._lock:
            self._state = State.from_learned(self.base, self._state.counts + new, self._state.records)

    def merge(self, *others: Detector | str | PathLike[str]) -> None:
        """Add all that other detectors of the same base, or those in files, have learned since that base.

        Records that several have count once. Patches have no records: those that several learned before they were
        copied apart count again. Box offset, operating points and provenance stay those of this detector.
        """
        from whet.detector.storage import load

        found = [other if isinstance(other, Detector) else load(other) for other in others]
        for other in found:
            self._check_same_base(other)
        theirs = [other._state for other in found]
        with self._lock:
            counts = sum((state.counts for state in theirs), self._state.counts)
            records = [record for state in theirs for record in state.records.values()]
            self._state = State.from_learned(self.base, counts, self._state.records | records)

    def _check_same_base(self, other: Detector) -> None:
        if self.base_id != other.base_id:
            raise CannotMergeError(
                f"these detectors do not share one base ({self.base_id[:12]} and {other.base_id[:12]}): merge copies "
                "of one detector"
            )
        if (self.base.reference and self.base.reference.digest) != (
            other.base.reference and other.base.reference.digest
        ):
            raise CannotMergeError(
                "these detectors have different reference sets, which guard their corrections: merge copies of one "
                "detector"
            )

    def check_can_learn(self, *, examples: bool = False) -> None:
        """Raise `CannotLearnError` if no stage has statistics; with `examples`, if no weights follow from them."""
        self.base.check_can_learn(examples=examples)

    def copy(self) -> Detector:
        """A detector that learns on its own from here on; the base is shared."""
        twin = Detector.__new__(Detector)
        # All that a detector holds are values: none is ever changed in place.
        twin._reporting, twin._state = self._reporting, self._state
        twin._lock, twin.origin = RLock(), self.origin
        return twin

    def __reduce__(self) -> tuple[Callable[[bytes], Detector], tuple[bytes]]:
        return Detector.from_bytes, (self.to_bytes(),)

    def as_trained(self) -> Detector:
        """A detector of the same base that has learned nothing, with the operating points that the base came with."""
        return Detector(self.base, reporting=self._reporting)

    def to_bytes(self) -> bytes:
        """The detector as the bytes of its file. Equal sets of records and counts give equal bytes."""
        state = self._state
        return model_file.to_bytes(Contents(self.base, state.counts, self._reporting, state.records))

    @classmethod
    def from_bytes(cls, data: bytes) -> Detector:
        """A detector from the bytes of its file; raises `ModelFileError` where they are damaged."""
        with model_file.damage_as_error():
            contents = model_file.from_bytes(data)
            return cls(contents.base, contents.counts, contents.reporting, contents.records.values())

    def check(self) -> list[Check]:
        """Check what this detector claims: statistics, weights, corrections and its file, each derived in another way.

        Takes from milliseconds to seconds. Corrections that contradict one another are no fault: see `unsatisfied`.

        >>> import whet
        >>> [check.name for check in whet.load("face").check() if check.holds]
        ['statistics are those of samples', 'weights follow from counts', 'state follows from records',
         'corrections hold', 'file gives the same detector']
        """
        from whet.detector.checks import run_checks

        return run_checks(self, self._state)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the detector to a file: as a whole, or not at all.

        Raises `ModelChangedError` if this detector was loaded from that file, and the file has changed since: load it
        again, or use `edit`. Raises `ModelNameError` for a name that `load` would take for something else: one that
        ends in .xml, or one without a directory and a suffix.
        """
        from whet.detector.storage import save

        save(self, path)

    def export_opencv(
        self, path: str | PathLike[str], *, early_exits: EarlyExits = "doubling", exact: bool = False
    ) -> Exported:
        """Write the detector as it is now for `cv2.CascadeClassifier`; statistics and operating points stay behind.

        The answer says how the file's decisions can differ (see `whet.opencv.export.write_opencv`). Raises
        `CannotExportError` where the detector cannot be represented in OpenCV's format.
        """
        from whet.opencv.export import write_opencv

        exported = write_opencv(self.cascade, Path(path), early_exits=early_exits, exact=exact)
        height, width = self.box_offset.size
        more = []
        if self.box_offset != BoxOffset():
            more.append(
                f"OpenCV reports whole windows: its boxes are {1 / width:.2f} times as wide and {1 / height:.2f} times "
                "as high as those of whet"
            )
        default = self.operating_points.get(DEFAULT_POINT)
        if default is not None:
            more.append(
                f"OpenCV has no minimum score (that of whet is {default:.3g}); raise minNeighbors for fewer false "
                "positives"
            )
        return replace(exported, differences=(*exported.differences, *more))

    def set_operating_point(self, name: str, min_score: float | None) -> None:
        """Give a minimum score a name, for `detect(min_score=name)`; None removes the name.

        The score comes from an evaluation: `operating_point(result.curve, 0.1)` of `whet.evaluation.curves` is the
        lowest with at most one false positive in ten images. It belongs to the detector as it is now, with the
        `scale_factor`, `step` and `grouping` that were used. A point that is set before anything is learned follows
        what is learned; one that is set later stays as it is.
        """
        with self._lock:
            self._reporting = self._reporting.with_point(name, min_score, follows=self._state.is_base)

    @property
    def operating_points(self) -> Mapping[str, float]:
        """Minimum scores by name, as they are now; see `set_operating_point`.

        Examples move scores. Points that the base came with follow by the reference set: they have as much recall
        there, and no more false positives than before. Corrections reject or accept windows, and move no point.
        """
        return dict(self.reporting.operating_points)

    @property
    def reporting(self) -> Reporting:
        """Box offset and operating points, as they are now."""
        return self._state.reporting(self._reporting)

    def _calibration(self, state: State) -> Calibration | None:
        if self.base.reference is None or not self.base.reference.n_images:
            return None

        def probability(scores: Floats, _: NDArray[np.intp]) -> Floats:
            judged = state.judgement
            return np.full(len(scores), np.nan) if judged is None else judged.calibration.probability(scores)

        return probability

    @property
    def estimate(self) -> Estimate | None:
        """Recall and false positives per image at the default operating point, by the reference set; None without."""
        return self._state.estimate(self._reporting)

    @property
    def records(self) -> list[Record]:
        """All that was learned and can be unlearned, the newest first."""
        return self._state.records.newest_first()

    @property
    def unsatisfied(self) -> list[Record]:
        """Corrections that do not hold: they contradict one another, or lie beyond these weak learners."""
        state = self._state
        return [state.records[key] for key in state.derived.unsatisfied]

    @property
    def base(self) -> DetectorBase:
        """The frozen result of the training."""
        return self._state.base

    @property
    def cascade(self) -> Cascade:
        """The weighted cascade as it is now; where nothing was learned, the base's own."""
        return self._state.derived.cascade

    @property
    def weighted(self) -> Cascade:
        """The cascade with the weights of base and examples, without corrections."""
        return self._state.derived.weighted

    @property
    def delta(self) -> Delta:
        """The counts of all examples since the base, with or without records."""
        return self._state.total

    @property
    def counts(self) -> Delta:
        """The counts of examples without records: those of `learn_patches` and `add_counts`."""
        return self._state.counts

    @property
    def box_offset(self) -> BoxOffset:
        """Which box is reported for a window."""
        return self._reporting.box_offset

    @property
    def aspect(self) -> float:
        """Width over height of the boxes that are reported."""
        (height, width), (rows, columns) = self.window, self.box_offset.size
        return width * columns / (height * rows)

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the smallest window, in pixels."""
        return self.base.window

    @property
    def base_id(self) -> str:
        """Hash of the base: detectors that share it can be merged, and can unlearn each other's records."""
        return self.base.base_id

    @property
    def provenance(self) -> Provenance:
        """What the base was trained on, under which licence and by which command."""
        return self.base.provenance

    @property
    def class_name(self) -> str | None:
        """The class that the base was trained for, as its annotations call it; None if it is not known."""
        return self.base.provenance.class_name

    @property
    def n_examples(self) -> tuple[int, int]:
        """Positive and negative examples that were learned since the base; corrections are no examples."""
        objects, others = zip(*self._state.total.counts, strict=True)
        return max(objects), max(others)

    def __repr__(self) -> str:
        (height, width), (objects, others), n = self.window, self.n_examples, len(self.cascade.stages)
        n_corrections = sum(record.kind == "correction" for record in self._state.records.values())
        points = "".join(f", {name!r}: {score:g}" for name, score in sorted(self.operating_points.items()))
        name = "" if self.class_name is None else f"{self.class_name}: "
        return (
            f"Detector({name}{width} x {height} windows, {n} stage{'s' * (n != 1)}, {self.cascade.n_weak} weak learners"
            f"; learned {n_corrections} correction{'s' * (n_corrections != 1)}, {objects} positives, {others} negatives"
            f"{'; operating points ' + points[2:] if points else ''})"
        )

    def pyramid(
        self,
        pixels: NDArray[np.uint8],
        scale_factor: float = SCALE_FACTOR,
        step: int = 1,
        min_size: float | None = None,
        max_size: float | None = None,
        threads: int | None = None,
        shared: dict[float, Level] | None = None,
    ) -> Pyramid:
        """The levels on which boxes have these sizes; windows are smaller or larger than the boxes reported."""
        check_number("scale_factor", scale_factor)
        check_number("step", step, whole=True)
        for name, size in (("min_size", min_size), ("max_size", max_size)):
            if size is not None:
                check_number(name, size, " of pixels: the longer side of a box")
        (height, width), offset = self.window, self.box_offset
        ratio = max(height, width) / max(height * offset.size[0], width * offset.size[1])
        smallest = SMALLEST * max(height, width) / ratio
        least = self._default_min_size(smallest, max_size) if min_size is None else min_size
        if least is not None and not smallest <= least < np.inf:
            raise ValueError(f"got min_size={least}; this detector finds objects from {smallest:g} pixels up")
        if max_size is not None and not max_size > 0:
            raise ValueError(f"got max_size={max_size}; expected a size in pixels, above 0")
        if least is not None and max_size is not None and least > max_size:
            raise ValueError(f"got min_size={least} above max_size={max_size}; expected min_size <= max_size")
        return Pyramid.from_image(
            pixels,
            self.window,
            scale_factor=scale_factor,
            step=step,
            min_size=None if least is None else least * ratio,
            max_size=None if max_size is None else max_size * ratio,
            grid=self.base.cascade.grid,
            shared=shared,
            threads=threads,
        )

    def _default_min_size(self, smallest: float, most: float | None) -> float | None:
        """The least size that this detector looks for, within what it can find and what is asked for."""
        if self._reporting.min_size is None or (most is not None and most < smallest):
            return None
        return min(max(self._reporting.min_size, smallest), np.inf if most is None else most)

    def pixels(self, image: ImageLike, color: ColorOrder = "rgb") -> NDArray[np.uint8]:
        """An image as this detector looks at it: RGB (height, width, 3) for channels, else grey (height, width)."""
        return as_rgb(image, color) if self.base.cascade.uses_channels else as_grey(image, color)
