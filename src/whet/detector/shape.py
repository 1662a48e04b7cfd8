"""One shape of a class: a trained base, and what it has learned since."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from importlib import import_module
from math import isfinite
from numbers import Integral, Real
from threading import RLock
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from whet.arrays import Floats, Pixels
from whet.corrections.kept import Crop, Crops
from whet.corrections.records import Record, Records, image_hash, newest_first
from whet.corrections.reference import Estimate, probability_by
from whet.detector import model_file
from whet.detector.base import DetectorBase, Reporting
from whet.detector.model_header import MOST_BYTES, Contents
from whet.detector.state import Refit, State, Update, added, checked_records, seen_after
from whet.errors import (
    BoxError,
    CannotLearnError,
    CannotMergeError,
    CannotUnlearnError,
    ModelFileError,
    RecordError,
)
from whet.images.boxes import BoxOffset
from whet.images.detections import GROUPING, IOU, ONLY_CLASS, Detections, Grouping, report
from whet.images.pyramid import SCALE_FACTOR, SMALLEST, Level, Pyramid
from whet.images.scan_memory import default_max_memory
from whet.io.image_files import as_grey, as_rgb
from whet.models.contract import Counts, Model, family_of
from whet.parallel.workers import ALL_THREADS, Workers

if TYPE_CHECKING:
    from whet.corrections.effects import Corrected
    from whet.detector.state import Check
    from whet.io.image_files import ColorOrder, ImageLike


def _crops_of(records: Iterable[Record]) -> list[Crop]:
    """The crops of all records; raises `ModelFileError` where they take more memory than a file may."""
    crops: list[Crop] = []
    size = 0
    for record in records:
        kept = record.keeps.crops
        size += len(kept.data)
        if size > MOST_BYTES:
            raise ModelFileError(f"the samples of the records have more than {MOST_BYTES:,} bytes")
        crops += kept
    return crops


def _check_number(name: str, value: object, more: str = "", *, whole: bool = False) -> None:
    """Raise TypeError for an option that is not one number, or not one whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        raise TypeError(f"got {name}={value!r}; expected a {'whole ' * whole}number{more}")


@dataclass(frozen=True)
class ScanSettings:
    """How an image is scanned and what is reported: the keyword arguments of `Detector.detect`, with their defaults.

    >>> ScanSettings(min_size=(10, 10))
    Traceback (most recent call last):
    TypeError: got min_size=(10, 10); expected a number of pixels: the longer side of a box
    """

    min_size: float | None = None
    max_size: float | None = None
    scale_factor: float = SCALE_FACTOR
    step: int = 1
    fast: bool | None = None
    grouping: Grouping | None = GROUPING
    iou: float = IOU
    min_score: float | str | None = None
    max_detections: int | None = None
    color: ColorOrder = "rgb"
    threads: int | None = None
    max_memory: int | None = None

    def __post_init__(self) -> None:
        _check_number("scale_factor", self.scale_factor)
        _check_number("step", self.step, whole=True)
        _check_number("iou", self.iou)
        for name, size in (("min_size", self.min_size), ("max_size", self.max_size)):
            if size is not None:
                _check_number(name, size, " of pixels: the longer side of a box")
        if self.max_memory is not None:
            _check_number("max_memory", self.max_memory, " of bytes", whole=True)
        if self.max_detections is not None:
            wanted = " of at least 1, or None for all"
            _check_number("max_detections", self.max_detections, wanted, whole=True)
            if self.max_detections < 1:
                raise ValueError(f"got max_detections={self.max_detections}; expected a whole number{wanted}")


class ScanOptions(TypedDict, total=False):
    """How an image is scanned: keyword arguments of `Detector.detect`, for functions that pass them on."""

    min_size: float | None
    max_size: float | None
    scale_factor: float
    step: int
    fast: bool | None
    grouping: Grouping | None
    color: ColorOrder
    threads: int | None
    max_memory: int | None


class DetectOptions(ScanOptions, total=False):
    """All keyword arguments of `Detector.detect`; `ScanSettings` has their defaults."""

    iou: float
    min_score: float | str | None
    max_detections: int | None


class LearnOptions(TypedDict, total=False):
    """How an image is scanned for what is learned of it: keyword arguments of `Detector.learn`."""

    min_size: float | None
    max_size: float | None
    scale_factor: float
    step: int
    color: ColorOrder
    threads: int | None
    max_memory: int | None
    min_score: float | str | None


def learn_settings(options: LearnOptions) -> ScanSettings:
    """The settings of a scan for corrections, which do not depend on how detections are grouped, limited or sped up.

    >>> learn_settings({"iou": 0.5})
    Traceback (most recent call last):
    TypeError: got the option iou; expected those of a correction: min_size, max_size, scale_factor, step, ...
    """
    wrong = [name for name in options if name not in LearnOptions.__annotations__]
    if wrong:
        known = ", ".join(LearnOptions.__annotations__)
        raise TypeError(f"got the option {', '.join(wrong)}; expected those of a correction: {known}")
    return ScanSettings(**options)


DEFAULTS = ScanSettings()


class ShapeDetector:
    """Finds objects of one shape in images, and learns from corrections; a `Detector` has one or more of them.

    Every change is made as a whole or, with an error, not at all. Threads can share it.

    >>> import whet
    >>> whet.load("face").only
    ShapeDetector(face: 24 x 24 windows, 10 stages, ... weak learners; learned 0 corrections, 0 positives, ...)
    """

    def __init__(
        self,
        base: DetectorBase,
        counts: Counts | None = None,
        reporting: Reporting | None = None,
        records: Iterable[Record] = (),
        refit: Refit | None = None,
    ) -> None:
        self._reporting = reporting or Reporting()
        self._state = State.from_learned(base, counts, checked_records(records, base), refit)
        self._lock = RLock()

    def detect_pixels(
        self, pixels: Pixels, scan: ScanSettings = DEFAULTS, shared: dict[float, Level] | None = None
    ) -> Detections:
        """Find objects in the `pixels` of an image; detectors of the same pixels can share levels of a pyramid."""
        state = self._state
        reporting = state.reporting(self._reporting)
        pyramid = self.pyramid(pixels, scan, shared)
        return report(
            state.corrected.scan(pyramid, fast=scan.fast, threads=scan.threads),
            grouping=scan.grouping,
            iou=scan.iou,
            offset=reporting.box_offset,
            min_score=reporting.min_score(scan.min_score),
            max_detections=scan.max_detections,
            calibration=probability_by(state.current.reference, lambda: state.held_out_scores),
            by_object=state.model.grid.by_object,
            class_name=self.class_name,
        )

    def new_records(
        self,
        pixels: Pixels,
        boxes: ArrayLike | Detections,
        labels: ArrayLike,
        scan: ScanSettings = DEFAULTS,
        *,
        shared: dict[float, Level] | None = None,
        base_found: Detections | None = None,
        other_objects: Floats | None = None,
        all_objects: Floats | None = None,
        ignored: Floats | None = None,
        keeps_region: bool = False,
    ) -> list[Record]:
        """One record for each box, without time and texts; this detector does not change.

        They depend on the base and on the image, not on what was learned. `shared` are levels of the image's pyramid,
        and `base_found` the detections of the base at any score, where they are known. `other_objects` (n, 4) are not
        learned: only no window of them becomes that of a false positive. `all_objects` (n, 4) are those of an image
        whose objects are all known: what shows none of them, and is not `ignored`, is background. With `keeps_region`,
        records keep what other models need to see them, also without samples.
        """
        if self._state.refit is not None:
            return self.as_trained().new_records(
                pixels,
                boxes,
                labels,
                scan,
                shared=shared,
                base_found=base_found,
                other_objects=other_objects,
                all_objects=all_objects,
                ignored=ignored,
                keeps_region=True,
            )
        from whet.corrections.box_windows import checked_labels, new_records

        self.check_can_learn()
        array, flags = checked_labels(boxes, labels, pixels.shape[:2])
        if not len(array) and (all_objects is None or self.base.crops is None):
            return []
        pyramid = self.pyramid(pixels, scan, shared)
        if not pyramid.levels:
            raise BoxError(
                f"the image has {pixels.shape[1]} x {pixels.shape[0]} pixels, too few for windows of "
                f"{self.window[1]} x {self.window[0]} between these sizes: nothing in it can be learned"
            )
        # The point that the base came with: what was learned before must not matter.
        above = max(self._reporting.min_score(scan.min_score), 0.0)
        if not isfinite(above):
            raise ValueError(f"got min_score={scan.min_score}; expected a finite score that a missed object can exceed")
        model, offset, image = self.base.model, self.box_offset, image_hash(pixels)
        known = scan.threads, base_found, other_objects, self.base.crops is not None
        records = list(new_records(model, offset, pyramid, image, array, flags, above, *known))
        has_samples = self.base.crops is not None
        if has_samples or keeps_region:
            from whet.corrections.sampling import background_record, with_samples

            sampled = pixels if has_samples else None
            records = [with_samples(record, model, offset, pyramid, sampled) for record in records]
            if has_samples and all_objects is not None:
                rest = np.empty((0, 4)) if ignored is None else ignored
                records.append(
                    background_record(model, offset, pyramid, pixels, image, all_objects, rest, scan.threads)
                )
        return [replace(record, base_id=self.base_id) for record in records]

    def add(self, records: Iterable[Record]) -> Update:
        """Add records that this detector, or another one of the same base, has made; those it has change nothing."""
        new = checked_records(records, self.base)
        with self._lock:
            before = self._state
            added = tuple(record for key, record in new.items() if key not in before.records)
            self._state = after = before.replaced(new)
        unsatisfied = tuple(after.records[key] for key in after.corrected.unsatisfied)
        return Update(added, before.estimate(self._reporting), after.estimate(self._reporting), unsatisfied)

    @property
    def counts_examples(self) -> bool:
        """Whether the model learns by counting, at once: there is nothing to make again."""
        return not family_of(self.base.model.family).refit

    def check_can_refit(self) -> None:
        """Raise `CannotLearnError` for a model that learns from samples, and keeps none."""
        if self.base.crops is None and not self.counts_examples:
            raise CannotLearnError(
                "this detector keeps no samples to be made again from: corrections hold at once, for what looks like "
                "them; train again with the setting samples='keep', the default, to learn from more"
            )

    def refit(self, workers: Workers = ALL_THREADS, progress: Callable[[str, float], None] = lambda *_: None) -> Update:
        """Make the model again from all samples: those of the base, and those of all records; see `Detector.refit`."""
        state = self._state
        self.check_can_refit()
        distinct, learned = state.records.distinct, state.to_learn
        if self.counts_examples or not self.needs_refit:
            return Update((), (now := state.estimate(self._reporting)), now)
        refit = compared = None
        if learned:
            module, _, name = family_of(self.base.model.family).refit.rpartition(".")
            given = [record for record in distinct.values() if record.kept]
            crops = Crops.from_iterable([*(self.base.crops or ()), *_crops_of(given)])
            again = getattr(import_module(module), name)(
                self.base, self._reporting, crops, workers=workers, progress=progress
            )
            refit = Refit(again.base, again.reporting, learned, ()).checked(given)
            compared = again.compared
        with self._lock:
            self._state = after = State.from_learned(self.base, self._state.counts, self._state.records, refit)
        unsatisfied = tuple(after.records[key] for key in after.corrected.unsatisfied)
        before, now = compared or (state.estimate(self._reporting), after.estimate(self._reporting))
        return Update((), before, now, unsatisfied)

    @property
    def needs_refit(self) -> bool:
        """Whether something was learned or unlearned that the model was not made again with."""
        refit = self._state.refit
        return self._state.to_learn != (() if refit is None else refit.learned)

    def take_refit(self, other: ShapeDetector) -> None:
        """Take over the last refit of another detector; raises `RecordError` where it learned what this one has not."""
        refit = other._state.refit
        with self._lock:
            state = self._state
            if refit is not None and not set(refit.learned) <= set(state.to_learn):
                raise RecordError("the refit has learned records that this detector has not; nothing was changed")
            own = state.refit
            if own is not None and refit is not None and set(refit.learned) <= set(own.learned) <= set(state.to_learn):
                return  # somebody else made it again from more
            self._state = State.from_learned(self.base, state.counts, state.records, refit)

    def strip(self) -> None:
        """Remove all samples; what was made from them stays, and with it the regions that its corrections need."""
        with self._lock:
            state = self._state
            base = replace(state.base, crops=None, settings=None)
            records = Records.from_iterable(
                record.without_crops(keep_region=state.refit is not None) for record in state.records.values()
            )
            self._state = State.from_learned(base, state.counts, records, state.refit)

    def forget_refit(self) -> None:
        """Return to the model of the training if nothing is learned now."""
        with self._lock:
            state = self._state
            if not state.records and state.refit is not None:
                self._state = State.from_learned(self.base, state.counts, state.records)

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
            counts = self._state.counts
            rest = counts if counts is None or old is None else counts - old
            if old is not None and (rest is None or not rest.is_possible):
                raise CannotUnlearnError(
                    "cannot unlearn these samples: they were not learned since the base, or not so often; nothing was "
                    "changed"
                )
            self._state = State.from_learned(self.base, rest, self._state.records, self._state.refit)

    def _counted(self, patches: ArrayLike, labels: ArrayLike, weights: ArrayLike, threads: int | None) -> Counts | None:
        self.check_can_learn(examples=True)
        from whet.detector.state import count_patches

        counts = count_patches(self.base.model, np.asarray(patches), labels, weights, threads)
        return None if counts is None or counts.is_empty else counts

    def add_counts(self, new: Counts | None) -> None:
        """Count further samples, without records; weights and thresholds follow."""
        with self._lock:
            state = self._state
            self._state = State.from_learned(self.base, added(state.counts, new), state.records, state.refit)

    def merge(self, *others: ShapeDetector) -> None:
        """Add all that other detectors of the same base have learned since that base; see `Detector.merge`."""
        for other in others:
            if self.base_id != other.base_id:
                raise CannotMergeError(
                    f"these detectors do not share one base ({self.base_id[:12]} and {other.base_id[:12]}): merge "
                    "copies of one detector"
                )
            ours, theirs = (base.reference and base.reference.digest for base in (self.base, other.base))
            if ours != theirs:
                raise CannotMergeError(
                    "these detectors have different reference sets, which guard their corrections: merge copies of one "
                    "detector"
                )
        states = [other._state for other in others]
        with self._lock:
            counts = reduce(added, (state.counts for state in states), self._state.counts)
            records = [record for state in states for record in state.records.values()]
            if self.base.crops is None and any(state.base.crops is not None for state in states):
                records = [record.without_crops(keep_region=True) for record in records]
            refits = [state.refit for state in (self._state, *states) if state.refit is not None]
            refit = max(refits, key=lambda refit: refit.rank) if refits else None
            self._state = State.from_learned(self.base, counts, self._state.records | records, refit)

    def check_can_learn(self, *, examples: bool = False) -> None:
        """Raise `CannotLearnError` if no stage has statistics; with `examples`, if no weights follow from them."""
        self.base.check_can_learn(examples=examples)

    def copy(self) -> ShapeDetector:
        """A detector that learns on its own from here on; the base is shared."""
        twin = ShapeDetector.__new__(ShapeDetector)
        # All that a detector holds are values: none is ever changed in place.
        twin._reporting, twin._state, twin._lock = self._reporting, self._state, RLock()
        return twin

    def __reduce__(self) -> tuple[Callable[[bytes], ShapeDetector], tuple[bytes]]:
        return ShapeDetector.from_bytes, (self.to_bytes(),)

    def as_trained(self) -> ShapeDetector:
        """A detector of the same base that has learned nothing, with the operating points that the base came with."""
        return ShapeDetector(self.base, reporting=self._reporting)

    def to_bytes(self) -> bytes:
        """The detector as the bytes of its file. Equal sets of records and counts give equal bytes."""
        state = self._state
        return model_file.to_bytes(Contents(self.base, state.counts, self._reporting, state.records, state.refit))

    @classmethod
    def from_bytes(cls, data: bytes) -> ShapeDetector:
        """A detector from the bytes of its file; raises `ModelFileError` where they are damaged."""
        with model_file.damage_as_error():
            contents = model_file.from_bytes(data)
            return cls(contents.base, contents.counts, contents.reporting, contents.records.values(), contents.refit)

    def check(self) -> list[Check]:
        """Check what this detector claims; see `Detector.check`."""
        from whet.detector.state import run_checks

        return run_checks(self, self._state)

    def set_operating_point(self, name: str, min_score: float | None) -> None:
        """Give a minimum score a name; None removes the name. See `Detector.set_operating_point`."""
        with self._lock:
            state, refit = self._state, self._state.refit
            self._reporting = self._reporting.with_point(name, min_score, follows=state.is_base)
            if refit is not None:
                refit = replace(refit, reporting=refit.reporting.with_point(name, min_score, follows=False))
                self._state = State.from_learned(self.base, state.counts, state.records, refit)

    @property
    def reporting(self) -> Reporting:
        """Box offset and operating points, as they are now."""
        return self._state.reporting(self._reporting)

    @property
    def estimate(self) -> Estimate | None:
        """Recall and false positives per image at the default operating point, by the reference set; None without."""
        return self._state.estimate(self._reporting)

    @property
    def records(self) -> list[Record]:
        """All that was learned and can be unlearned, the newest first."""
        return newest_first(self._state.records.values())

    @property
    def unsatisfied(self) -> list[Record]:
        """Corrections that do not hold: they contradict one another, or lie beyond these weak learners."""
        state = self._state
        return [state.records[key] for key in state.corrected.unsatisfied]

    @property
    def base(self) -> DetectorBase:
        """The frozen result of the training."""
        return self._state.base

    @property
    def model(self) -> Model:
        """The model of base and examples, without corrections; where nothing was learned, the base's own."""
        return self._state.model

    @property
    def corrected(self) -> Corrected:
        """The model as it is now, with all corrections."""
        return self._state.corrected

    @property
    def total(self) -> Counts | None:
        """The counts of all examples since the base, with or without records; None without any."""
        return self._state.total

    @property
    def counts(self) -> Counts | None:
        """The counts of examples without records: those of `learn_patches` and `add_counts`; None without any."""
        return self._state.counts

    @property
    def box_offset(self) -> BoxOffset:
        """Which box is reported for a window."""
        return self._own_reporting.box_offset

    @property
    def _own_reporting(self) -> Reporting:
        """What base or refit report, without what examples have changed."""
        return self._reporting if self._state.refit is None else self._state.refit.reporting

    @property
    def current(self) -> DetectorBase:
        """The base, or that of the last refit."""
        return self._state.current

    def as_seen(self, records: Iterable[Record]) -> list[Record]:
        """Corrections as the model of the last refit sees them, without those that it satisfies by itself."""
        refit = self._state.refit
        return list(records) if refit is None else seen_after(refit, records)

    @property
    def refit_of(self) -> Refit | None:
        """The model that was made again from samples; None for that of the base."""
        return self._state.refit

    @property
    def aspect(self) -> float:
        """Width over height of the boxes that are reported."""
        (height, width), (rows, columns) = self.window, self.box_offset.size
        return width * columns / (height * rows)

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the smallest window, in pixels."""
        return self._state.current.window

    @property
    def base_id(self) -> str:
        """Hash of the base: detectors that share it can be merged, and can unlearn each other's records."""
        return self.base.base_id

    @property
    def class_name(self) -> str | None:
        """The class that the base was trained for, as its annotations call it; None if it is not known."""
        return self.base.provenance.class_name

    def __repr__(self) -> str:
        return f"ShapeDetector({self.class_name or ONLY_CLASS}: {self.summary})"

    @property
    def summary(self) -> str:
        """Window, stages, what was learned and operating points, in one line."""
        (height, width), n = self.window, len(self.model.votes.ends)
        objects, others = (0, 0) if self.total is None else self.total.n_examples
        n_corrections = sum(record.kind == "correction" for record in self._state.records.values())
        points = "".join(f", {name!r}: {score:g}" for name, score in sorted(self.reporting.operating_points.items()))
        return (
            f"{width} x {height} windows, {n} stage{'s' * (n != 1)}, {self.model.votes.n_weak} weak learners"
            f"; learned {n_corrections} correction{'s' * (n_corrections != 1)}, {objects} positives, {others} negatives"
            f"{'; operating points ' + points[2:] if points else ''}"
        )

    def pyramid(
        self, pixels: Pixels, scan: ScanSettings = DEFAULTS, shared: dict[float, Level] | None = None
    ) -> Pyramid:
        """The levels on which boxes have these sizes; windows are smaller or larger than the boxes reported."""
        least, max_size = scan.min_size, scan.max_size
        (height, width), offset = self.window, self.box_offset
        ratio = max(height, width) / max(height * offset.size[0], width * offset.size[1])
        smallest, most = SMALLEST * max(height, width) / ratio, np.inf if max_size is None else max_size
        min_size = self._own_reporting.min_size
        if least is None and min_size is not None and most >= smallest:
            least = min(max(min_size, smallest), most)
        if least is not None and not smallest <= least < np.inf:
            raise ValueError(f"got min_size={least}; this detector finds objects from {smallest:g} pixels up")
        if max_size is not None and not max_size > 0:
            raise ValueError(f"got max_size={max_size}; expected a size in pixels, above 0")
        if least is not None and least > most:
            raise ValueError(f"got min_size={least} above max_size={max_size}; expected min_size <= max_size")
        return Pyramid.from_image(
            pixels,
            self.window,
            scale_factor=scan.scale_factor,
            step=scan.step,
            min_size=None if least is None else least * ratio,
            max_size=None if max_size is None else max_size * ratio,
            grid=self.base.model.grid,
            shared=shared,
            threads=scan.threads,
            max_memory=default_max_memory() if scan.max_memory is None else scan.max_memory,
        )

    def pixels(self, image: ImageLike, color: ColorOrder = "rgb") -> Pixels:
        """An image as this detector looks at it: RGB (height, width, 3) for channels, else grey (height, width)."""
        return as_rgb(image, color) if self.base.model.grid.is_colour else as_grey(image, color)
