"""The detector: a set of classes, each with one or more shapes. Load, detect, learn, unlearn, merge, save."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from whet.arrays import Bools, Boxes, Indices, Pixels
from whet.corrections.records import Record, Records, check_site, newest_first
from whet.corrections.reference import Estimate
from whet.detector import model_file
from whet.detector.base import DEFAULT_POINT, LONGEST_CLASS, DetectorBase, Provenance, Reporting
from whet.detector.shape import DetectOptions, LearnOptions, ScanSettings, ShapeDetector, learn_settings
from whet.detector.state import Update, checked_records
from whet.errors import (
    CannotExportError,
    CannotLearnError,
    CannotMergeError,
    ImageMemoryError,
    RecordError,
    SeveralClassesError,
    UnknownClassError,
    UnreadableImageError,
)
from whet.images.boxes import BoxOffset, box_iou
from whet.images.detections import GROUPING, IOU, ONLY_CLASS, Detections, group_shapes, merge_shapes
from whet.images.pyramid import Grid, Level
from whet.io.files import as_path
from whet.models.contract import Counts, Model, family_of
from whet.parallel.threads import map_in_order
from whet.parallel.workers import Workers, workers_from

if TYPE_CHECKING:
    from distributed import Client

    from whet.detector.state import Check
    from whet.io.image_files import ImageLike
    from whet.opencv.xml_writer import EarlyExits, Exported

    Images = list[ImageLike] | tuple[ImageLike, ...]


# Each shape takes a scan of its own.
MOST_SHAPES = 1000


class Detector:
    """Finds objects in images, and learns from corrections: a set of classes, each with one or more shapes.

    A class whose boxes differ much in shape has a detector for each shape (`ShapeDetector`); their detections are
    grouped where they overlap. Most detectors have one class with one shape. Classes learn for themselves: a correction
    touches one of them. An image is resized once, and its channels are computed once, for all of them.

    A shape is a trained base, which stays as it is, and what it learned since: a set of corrections, and counts of
    ordinary examples. Weights are derived from these alone, so the order of learning does not matter, and what is
    unlearned is gone without a trace, from a model that was made again with the next refit. Every change is made as a
    whole or, with an error, not at all. Threads can share a detector. What the base was trained on cannot be unlearned:
    it chose the weak learners.

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

    >>> both = Detector({"face": detector.shapes(), "other": whet.load("face").shapes()})
    >>> both.detect(data.astronaut(), max_detections=2).labels
    ['face', 'other']
    """

    def __init__(self, classes: Mapping[str, Sequence[ShapeDetector]]) -> None:
        if not isinstance(classes, Mapping):
            raise TypeError(
                f"got {repr(classes)[:60]}; expected shapes by class; use whet.load(FILE) to load a detector"
            )
        for name, shapes in classes.items():
            if not (isinstance(shapes, Sequence) and all(isinstance(shape, ShapeDetector) for shape in shapes)):
                raise TypeError(
                    f"got {repr(shapes)[:60]} for the class {name!r}; expected a list of shapes: use detector.shapes()"
                )
        self._classes = MappingProxyType({name: tuple(shapes) for name, shapes in classes.items()})
        if not (all(self._classes.values()) and 0 < len(self.shapes()) <= MOST_SHAPES):
            raise ValueError(
                f"got {len(classes)} classes with {len(self.shapes())} shapes; expected one or more for each class, "
                f"and 1 to {MOST_SHAPES:,} in all"
            )
        if not self._is_plain:
            for name in classes:
                check_class_name(name)
        # SHA-256 of files as they were loaded or saved, the last one last; shared with selections, as the shapes are.
        self.files: dict[Path, str] = {}
        # Held over a change of several shapes, so that it is one.
        self._lock = RLock()

    @classmethod
    def from_base(
        cls,
        base: DetectorBase,
        counts: Counts | None = None,
        reporting: Reporting | None = None,
        records: Iterable[Record] = (),
    ) -> Detector:
        """A detector of one class with one shape: a trained base, and what it has learned."""
        if not isinstance(base, DetectorBase):
            raise TypeError(f"got {repr(base)[:60]}; expected a DetectorBase; use whet.load(FILE) to load a detector")
        return cls._from_shape(ShapeDetector(base, counts, reporting, records))

    @classmethod
    def _from_shape(cls, shape: ShapeDetector) -> Detector:
        return cls({shape.class_name or ONLY_CLASS: (shape,)})

    @property
    def _is_plain(self) -> bool:
        """One class with one shape and no other name than that of its base: the shape's own file and labels do."""
        (name, (first, *more)), *others = self._classes.items()
        return not others and not more and name == (first.class_name or ONLY_CLASS)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; "object" for one without a name."""
        return tuple(self._classes)

    def shapes(self, class_name: str | None = None) -> tuple[ShapeDetector, ...]:
        """The shapes of a class; None: those of all classes."""
        if class_name is None:
            return tuple(shape for shapes in self._classes.values() for shape in shapes)
        if class_name not in self._classes:
            raise UnknownClassError(f"unknown class {class_name!r}; classes: {', '.join(self.classes)}")
        return self._classes[class_name]

    @property
    def named_shapes(self) -> dict[str, ShapeDetector]:
        """All shapes, each with a name for messages: that of its class, and a number if the class has several."""
        return {
            name + f", shape {number}" * (len(shapes) > 1): shape
            for name, shapes in self._classes.items()
            for number, shape in enumerate(shapes, start=1)
        }

    def select(self, class_name: str) -> Detector:
        """The detector of one class; it shares its shapes with this one, so that both learn."""
        selected = Detector({class_name: self.shapes(class_name)})
        selected.files, selected._lock = self.files, self._lock
        return selected

    @property
    def origin(self) -> tuple[Path, str] | None:
        """The file that was loaded or saved last, and the SHA-256 of its bytes."""
        return next(reversed(self.files.items()), None)

    @property
    def only(self) -> ShapeDetector:
        """The shape of a detector that has one class with one shape; raises `SeveralClassesError` for others."""
        shapes = self._of_class(None)
        if len(shapes) > 1:
            raise SeveralClassesError(
                f"the class {self.classes[0]} has {len(shapes)} shapes; expected a detector with one shape: train it "
                "with shapes=1 (whet train --shapes 1)"
            )
        return shapes[0]

    def _of_class(self, class_name: str | None) -> tuple[ShapeDetector, ...]:
        """The shapes of a class; None: of the only one."""
        if class_name is None and len(self.classes) > 1:
            file = "FILE" if self.origin is None else self.origin[0]
            raise SeveralClassesError(
                f"the detector has several classes: {', '.join(self.classes)}; name one of them, such as "
                f"'{file}:{self.classes[0]}' (in Python, pass class_name, or use Detector.select)"
            )
        return self.shapes(class_name)

    @overload
    def detect(self, image: Images, **options: Unpack[DetectOptions]) -> list[Detections]: ...

    @overload
    def detect(self, image: ImageLike, **options: Unpack[DetectOptions]) -> Detections: ...

    def detect(self, image: ImageLike | Images, **options: Unpack[DetectOptions]) -> Detections | list[Detections]:
        """Find objects in an image: a path or URL, a Pillow image or an array (see `whet.io.image_files.as_grey`).

        Boxes from `min_size` to `max_size` (their longer side, in pixels), each `scale_factor` (1.2) times the one
        before, are moved by `step` (1) pixels of their level. Those that overlap with an IoU of `iou` (0.3) are
        grouped: `grouping` is "peaks", "nms" for non-maximum suppression, or None (see `whet.images.detections`).
        Detections with scores above `min_score`, a number or the name of an operating point, are kept, at most
        `max_detections` of them. Without a minimum score each class has its operating point "default", if any.

        Detectors that have been shown to lose nothing by it, such as the bundled ones, first look at every second row
        and column of windows, with some of their stages, and then at the windows around those that pass. `fast=False`
        looks at every window instead; `fast=True` does this with other cascades, too, at the risk of missing objects.
        Channel detectors and steps above 1 are scanned in one pass.

        An image is enlarged to 100 megapixels at most. A scan takes `max_memory` bytes (1.25 GB, or a quarter of a
        smaller machine's memory), the image and all `threads` included: where keeping everything would take more, it
        looks at one part of the image after the other, and finds the same. What still does not fit is an
        `ImageMemoryError`.

        Colour arrays are RGB; pass `color="bgr"` for those of `cv2.imread`. Results do not depend on the number of
        `threads`. A list or tuple of images gives a list of detections.
        """
        scan = ScanSettings(**options)
        if isinstance(image, list | tuple):
            return [self._detect(part, scan) for part in image]
        return self._detect(image, scan)

    def _detect(self, image: ImageLike, scan: ScanSettings) -> Detections:
        try:
            return self._detect_classes(image, scan)
        except UnreadableImageError:
            raise
        except MemoryError as error:
            raise ImageMemoryError(f"the machine has too little memory for this image: {error}") from error

    def _detect_classes(self, image: ImageLike, scan: ScanSettings) -> Detections:
        # By how windows lie on levels: the image, and the levels of its pyramid.
        known: dict[Grid, tuple[Pixels, dict[float, Level]]] = {}

        def detect(shape: ShapeDetector, scan: ScanSettings) -> Detections:
            grid = shape.model.grid
            if grid not in known:
                known[grid] = shape.pixels(image, scan.color), {}
            pixels, levels = known[grid]
            return shape.detect_pixels(pixels, scan, levels)

        detections = {}
        for name, (first, *others) in self._classes.items():
            if not others:
                detections[name] = detect(first, scan)
                continue
            # Shapes have the same operating points; these are of the scores that their detections have together.
            any_score = replace(scan, min_score=-np.inf, max_detections=None)
            merged = merge_shapes([detect(shape, any_score) for shape in (first, *others)], scan.grouping, scan.iou)
            detections[name] = merged.with_min_score(first.reporting.min_score(scan.min_score))
        if self._is_plain:
            return detections[self.classes[0]]
        every_class = Detections.from_classes(detections)
        return every_class if scan.max_detections is None else every_class.first(scan.max_detections)

    def detect_many(self, images: Iterable[ImageLike], **options: Unpack[DetectOptions]) -> Iterator[Detections]:
        """Find objects in many images, with the options of `detect`; results come in the order of the images.

        Each of the `threads` decodes and scans an image of its own, so that reading one overlaps with scanning others.
        Images are taken from the iterable, and results computed, only a few ahead of the one that is asked for.

        >>> import whet
        >>> [len(found) for found in whet.load("face").detect_many(np.zeros((2, 40, 40), np.uint8))]
        [0, 0]
        """
        scan = ScanSettings(**options)
        alone = replace(scan, threads=1)
        return map_in_order(lambda image: self._detect(image, alone), images, scan.threads)

    def learn(
        self,
        image: ImageLike,
        boxes: ArrayLike | Detections,
        labels: ArrayLike,
        *,
        class_name: str | None = None,
        name: str = "",
        note: str = "",
        site: str = "",
        complete: bool = False,
        **options: Unpack[LearnOptions],
    ) -> Update:
        """Correct boxes (n, 4) of an image, as x1, y1, x2, y2: label True for the object, False for a false positive.

        `boxes` may also be detections, or one box (4,). `labels` are one for all boxes or (n,). Pass as options the
        sizes, `scale_factor`, `step` and `color` with which the detections were made, and the `min_score` that a missed
        object has to exceed. A correction that holds already changes nothing, until another one would undo it; learning
        it twice is learning it once. `class_name` may be left out if there is only one class.

        Of a class with several shapes, a missed object is learned by the nearest shape, and a false positive by each
        shape that takes part in the detection, at its own boxes. `Update.shapes` has an update for each.

        Returns the new records, with what they change on the reference set. `name` (by default that of the file) and
        `note` are kept with them, and so is `site`, by which `unlearn_site` finds them in a merged detector. With
        `complete`, the boxes are all objects of the image: `refit` learns the rest of it as background. `unlearn`
        takes them out again. Issues a `WorseEstimateWarning` if recall falls by more than 1 point there, or if false
        positives per image rise by more than 10 % and by 0.02.
        """
        records = self.new_records(
            image,
            boxes,
            labels,
            class_name=class_name,
            name=name,
            note=note,
            site=site,
            all_objects=_objects_of(boxes, labels) if complete else None,
            **options,
        )
        update = self.add(records, class_name=class_name)
        update.warn_if_worse()
        return update

    def new_records(
        self,
        image: ImageLike,
        boxes: ArrayLike | Detections,
        labels: ArrayLike,
        *,
        class_name: str | None = None,
        name: str = "",
        note: str = "",
        site: str = "",
        all_objects: Boxes | None = None,
        ignored: Boxes | None = None,
        shared: dict[float, Level] | None = None,
        base_found: Detections | None = None,
        **options: Unpack[LearnOptions],
    ) -> list[Record]:
        """The records that `learn` adds, one for each box of each shape that learns it; this detector does not change.

        They depend on the base and on the image, not on what was learned. To learn many images at once, collect their
        records and `add` them in one step. `all_objects` (n, 4) are those of an image whose objects are all known: one
        more record learns what shows none of them, and is not `ignored` (n, 4), as background. For a class with one
        shape, `shared` are levels of the image's pyramid, and `base_found` the detections of the base at any score,
        where they are known.
        """
        first, *others = shapes = self._of_class(class_name)
        first.check_can_learn()
        check_site(site)
        scan = learn_settings(options)
        pixels = first.pixels(image, scan.color)
        if others:
            records = _records_of_shapes(shapes, pixels, boxes, labels, scan)
        else:
            records = first.new_records(
                pixels,
                boxes,
                labels,
                scan,
                shared=shared,
                base_found=base_found,
                all_objects=all_objects,
                ignored=ignored,
            )
        name = name or (as_path(image).name if isinstance(image, str | PathLike) else "")
        now = int(time.time())
        return [record.described(now, name, note, site) for record in records]

    def add(self, records: Iterable[Record], *, class_name: str | None = None) -> Update:
        """Add records to one class, each to the shape whose base made it: all of them, or none.

        Records of another detector of the same base can be added, too; those that are there already change nothing.
        """
        first, *others = shapes = self._of_class(class_name)
        if not others:
            return first.add(records)
        given, bases = list(records), {shape.base_id for shape in shapes}
        checked_records((record for record in given if record.base_id not in bases), first.base)  # an error
        parts = [
            checked_records((record for record in given if record.base_id == shape.base_id), shape.base)
            for shape in shapes
        ]
        with self._lock:
            pairs = zip(shapes, parts, strict=True)
            updates = [shape.add(part.values()) if part else Update(()) for shape, part in pairs]
        return Update(
            tuple(record for update in updates for record in update),
            unsatisfied=tuple(record for shape in shapes for record in shape.unsatisfied),
            shapes=tuple(updates),
        )

    def refit(
        self,
        *,
        threads: int | None = None,
        client: Client | None = None,
        workers: Workers | None = None,
        progress: Callable[[str, float], None] = lambda *_: None,
    ) -> Update:
        """Make the model again from all kept samples, so that it does better on all other images; takes seconds.

        The samples are those of the first training and of everything that was learned since; images are not needed.
        The result depends on this set alone: in any order, and after merging or unlearning, equal sets give equal
        bytes. Corrections that the new model satisfies by itself need no known windows any more; the others hold as
        before. Nothing learned means the model of the training. `progress` receives the name of a step and the share
        of it that is done.

        A model that learns by counting (`face`, and all of `--features haar,lbp`) has learned already, and its
        operating points have followed: it stays as it is. Returns estimates before and after, on held-out samples.
        Raises `CannotLearnError` for another detector that keeps no samples, and for its classes with several shapes.
        """
        several = [name for name, shapes in self._classes.items() if len(shapes) > 1 and not shapes[0].counts_examples]
        if several:
            raise CannotLearnError(
                f"the class {several[0]} has several shapes, whose scores must compare: only a class with one shape "
                "can learn from samples; train it with shapes=1 (whet train --shapes 1)"
            )
        for shape in self.shapes():
            shape.check_can_refit()
        workers = workers_from(client, threads) if workers is None else workers
        updates = [shape.refit(workers, progress) for shape in self.shapes()]
        unsatisfied = tuple(record for update in updates for record in update.unsatisfied)
        first = updates[0] if len(updates) == 1 else Update(())
        return Update((), first.before, first.after, unsatisfied, tuple(updates) if len(updates) > 1 else ())

    def take_refit(self, other: Detector) -> None:
        """Take over the last refit of a detector of the same bases, all of whose records this one has."""
        for own, theirs in zip(self.shapes(), self._same_shapes(other), strict=True):
            own.take_refit(theirs)

    @property
    def needs_refit(self) -> bool:
        """Whether something was learned or unlearned that the model was not made again with."""
        return self.can_refit and any(shape.needs_refit for shape in self.shapes())

    @property
    def can_refit(self) -> bool:
        """Whether all classes keep samples to learn from, and have one shape."""
        return all(shape.base.crops is not None for shape in self.shapes()) and len(self.shapes()) == len(self.classes)

    def strip(self) -> None:
        """Remove all samples, which are small crops: the detector can still be corrected, but not made again."""
        for shape in self.shapes():
            shape.strip()

    def unlearn(self, what: Update | Record | str | Iterable[Update | Record | str]) -> None:
        """Take out records of any class, as if they had never been learned; the images are not needed.

        `what` is what `learn` has returned, a record, the first characters of an id, or several of these. Raises
        `RecordError`, and changes nothing, for what is not learned now. What the base was trained on cannot be
        unlearned: it chose the weak learners.
        """
        parts = [what] if isinstance(what, Update | Record | str) else list(what)
        records = [record for part in parts for record in (part if isinstance(part, Update) else (part,))]
        if not all(isinstance(record, Record | str) for record in records):
            raise RecordError(f"got {records[:3]!r} to unlearn; expected what `learn` returned, records or their ids")
        with self._lock:
            known = Records.from_iterable(self.records)
            self._remove({known.find(record.id if isinstance(record, Record) else record).id for record in records})

    def unlearn_site(self, site: str) -> list[Record]:
        """Take out all that a site has learned, as if it had never been merged; returns it.

        What other sites have learned as well stays. Raises `RecordError`, and changes nothing, for an unknown site.
        Patches have no site: take them out with `unlearn_patches`, or merge the other sites again.
        """
        with self._lock:
            removed = [record for record in self.records if site and record.site == site]
            if not removed:
                sites = sorted({record.site for record in self.records} - {""})
                raise RecordError(f"got the site {site!r}; expected one of {', '.join(sites) or 'none: none is known'}")
            self._remove({record.id for record in removed})
        return removed

    def _remove(self, ids: set[str]) -> None:
        for shape in self.shapes():
            own = [record for record in shape.records if record.id in ids]
            if own:
                shape.replace_records(remove=own)
                shape.forget_refit()

    def learn_patches(
        self, patches: ArrayLike, labels: ArrayLike, weights: ArrayLike = 1, threads: int | None = None
    ) -> None:
        """Count patches (n, height, width) with labels (n,) as further samples; see `ShapeDetector.learn_patches`."""
        self.only.learn_patches(patches, labels, weights, threads)

    def unlearn_patches(
        self, patches: ArrayLike, labels: ArrayLike, weights: ArrayLike = 1, threads: int | None = None
    ) -> None:
        """Take out patches that `learn_patches` has learned; see `ShapeDetector.unlearn_patches`."""
        self.only.unlearn_patches(patches, labels, weights, threads)

    def merge(self, *others: Detector | str | PathLike[str]) -> None:
        """Add all that other detectors of the same bases, or those in files, have learned since these bases.

        Records that several have count once. Patches have no records: those that several learned before they were
        copied apart count again. Box offset, operating points and provenance stay those of this detector.
        """
        from whet.detector.storage import load

        loaded = [load(other) if isinstance(other, str | PathLike) else other for other in others]
        theirs = [self._same_shapes(other) for other in loaded]
        # Copies of several first: if one of them fails, nothing is changed.
        with self._lock:
            for target in [self] if len(self.shapes()) == 1 else [self.copy(), self]:
                for number, shape in enumerate(target.shapes()):
                    shape.merge(*(shapes[number] for shapes in theirs))

    def _same_shapes(self, other: Detector) -> list[ShapeDetector]:
        """The shapes of another detector in the order of these; raises `CannotMergeError` for other classes."""
        if len(self.shapes()) == len(other.shapes()) == 1:
            return [other.only]
        for name in dict.fromkeys((*self.classes, *other.classes)):
            ours, theirs = ([shape.base_id for shape in of._classes.get(name, ())] for of in (self, other))
            if ours != theirs:
                raise CannotMergeError(f"the class {name!r} has not the same base in both: merge copies of one model")
        return [shape for name in self.classes for shape in other.shapes(name)]

    def check_can_learn(self, *, examples: bool = False) -> None:
        """Raise `CannotLearnError` if no stage has statistics; with `examples`, if no weights follow from them."""
        for shape in self.shapes():
            shape.check_can_learn(examples=examples)

    def copy(self) -> Detector:
        """A detector that learns on its own from here on; the bases are shared."""
        with self._lock:
            twin = Detector({name: [shape.copy() for shape in shapes] for name, shapes in self._classes.items()})
        twin.files = dict(self.files)
        return twin

    def as_trained(self) -> Detector:
        """A detector of the same bases that has learned nothing, with the operating points that these came with."""
        return Detector({name: [shape.as_trained() for shape in shapes] for name, shapes in self._classes.items()})

    def __reduce__(self) -> tuple[Callable[[bytes], Detector], tuple[bytes]]:
        return Detector.from_bytes, (self.to_bytes(),)

    def to_bytes(self) -> bytes:
        """The detector as the bytes of its file. Equal sets of records and counts give equal bytes."""
        if self._is_plain:
            return self.only.to_bytes()
        with self._lock:
            parts = {name: [shape.to_bytes() for shape in shapes] for name, shapes in self._classes.items()}
        return model_file.join_classes(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Detector:
        """A detector from the bytes of its file; raises `ModelFileError` where they are damaged."""
        if not model_file.has_classes(data):
            return cls._from_shape(ShapeDetector.from_bytes(data))
        with model_file.damage_as_error():
            parts = model_file.split_classes(data)
            return cls({name: [ShapeDetector.from_bytes(part) for part in parts[name]] for name in parts})

    def check(self) -> list[Check]:
        """Check what this detector claims: statistics, weights, corrections and its file, each derived in another way.

        Takes from milliseconds to seconds. Corrections that contradict one another are no fault: see `unsatisfied`.

        >>> import whet
        >>> [check.name for check in whet.load("face").check() if check.holds]
        ['statistics are those of samples', 'weights follow from counts', 'state follows from records',
         'corrections hold', 'file gives the same detector']
        """
        from whet.detector.state import Check

        if len(self.shapes()) == 1:
            return self.only.check()
        faults: dict[str, list[str]] = {}
        for name, shape in self.named_shapes.items():
            for check in shape.check():
                faults.setdefault(check.name, []).extend(f"{name}: {fault}" for fault in check.faults)
        return [Check(name, tuple(lines)) for name, lines in faults.items()]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the detector to a file, or its class into a file of several (`signs.whet:stop`): as a whole, or not.

        Raises `ModelChangedError` if this detector was loaded from that file, and the file has changed since: load it
        again, or use `edit`. Raises `SeveralClassesError` if the file has classes that would be lost. Raises
        `ModelNameError` for a name that `load` would take for something else: one that ends in .xml, or one without a
        directory and a suffix.
        """
        from whet.detector.storage import save

        save(self, path)

    def export_opencv(
        self, path: str | PathLike[str], *, early_exits: EarlyExits = "doubling", exact: bool = False
    ) -> Exported:
        """Write the detector as it is now for `cv2.CascadeClassifier`; statistics and operating points stay behind.

        The answer says how the file's decisions can differ (see `whet.opencv.xml_writer.write_opencv`). Raises
        `CannotExportError` where the detector cannot be represented in OpenCV's format.
        """
        model = self.model
        name = family_of(model.family).export_opencv
        if not name:
            raise CannotExportError(
                f"models of the family {model.family!r} cannot be represented in OpenCV's format; train with "
                "--for-opencv (features haar or lbp) for a detector that can be exported"
            )
        if self.only.corrected.known is not None:
            raise CannotExportError(
                "OpenCV's format has no place for corrections: export the detector without them (Detector.as_trained(),"
                " or a copy after `whet unlearn MODEL --all`), or run it in whet"
            )
        module, _, function = name.rpartition(".")
        write = getattr(import_module(module), function)
        exported: Exported = write(model, Path(path), early_exits, exact)
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
        """Give a minimum score of the only class a name, for `detect(min_score=name)`; None removes the name.

        The score comes from an evaluation: `operating_point(result.curve, 0.1)` of `whet.evaluation.evaluation` is the
        lowest with at most one false positive in ten images. It belongs to the detector as it is now, with the
        `scale_factor`, `step` and `grouping` that were used. A point that is set before anything is learned follows
        what is learned; one that is set later stays as it is. Of several classes, use `select(class_name)`.
        """
        with self._lock:
            shapes = self._of_class(None)
            for shape in shapes:  # an error here changes nothing
                shape.reporting.with_point(name, min_score)
            for shape in shapes:
                shape.set_operating_point(name, min_score)

    @property
    def operating_points(self) -> Mapping[str, float]:
        """Minimum scores of the only class by name, as they are now; see `set_operating_point`.

        Examples move scores. Points that the base came with follow by the reference set: they have as much recall
        there, and no more false positives than before. Corrections reject or accept windows, and move no point.
        """
        return dict(self.reporting.operating_points)

    @property
    def reporting(self) -> Reporting:
        """Box offset and operating points of the only class, as they are now; of several shapes, those of the first.

        All shapes of a class have the same operating points.
        """
        return self._of_class(None)[0].reporting

    @property
    def estimate(self) -> Estimate | None:
        """Recall and false positives per image at the default operating point, by the reference set; None without.

        Shapes estimate for themselves, and not what their detections are together: None for several.
        """
        first, *others = self.shapes()
        return None if others else first.estimate

    @property
    def records(self) -> list[Record]:
        """All that was learned and can be unlearned, the newest first."""
        return newest_first(record for shape in self.shapes() for record in shape.records)

    @property
    def unsatisfied(self) -> list[Record]:
        """Corrections that do not hold: they contradict one another, or lie beyond these weak learners."""
        return [record for shape in self.shapes() for record in shape.unsatisfied]

    @property
    def class_name(self) -> str | None:
        """The name of the only class; None if it has none."""
        first, name = self._of_class(None)[0], self.classes[0]
        return None if name == ONLY_CLASS and first.class_name is None else name

    # What only one shape has.

    @property
    def base(self) -> DetectorBase:
        """The frozen result of the training."""
        return self.only.base

    @property
    def model(self) -> Model:
        """The model of base and examples, without corrections; where nothing was learned, the base's own."""
        return self.only.model

    @property
    def box_offset(self) -> BoxOffset:
        """Which box is reported for a window."""
        return self.only.box_offset

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the smallest window, in pixels."""
        return self.only.window

    @property
    def base_id(self) -> str:
        """Hash of the base: detectors that share it can be merged, and can unlearn each other's records."""
        return self.only.base_id

    @property
    def provenance(self) -> Provenance:
        """What the base was trained on, under which licence and by which command."""
        return self.base.provenance

    @property
    def n_examples(self) -> tuple[int, int]:
        """Positive and negative examples that were learned since the base; corrections are no examples."""
        return (0, 0) if self.only.total is None else self.only.total.n_examples

    def __repr__(self) -> str:
        if self._is_plain:
            return f"Detector({f'{self.class_name}: ' * (self.class_name is not None)}{self.only.summary})"
        sizes = {name: len(shapes) for name, shapes in self._classes.items()}
        return f"Detector({', '.join(name + f' ({n} shapes)' * (n > 1) for name, n in sizes.items())})"


def _objects_of(boxes: ArrayLike | Detections, labels: ArrayLike) -> Boxes:
    array = np.asarray(boxes.boxes if isinstance(boxes, Detections) else boxes, np.float64).reshape(-1, 4)
    return array[np.broadcast_to(np.asarray(labels, np.bool_), len(array))]


def _records_of_shapes(
    shapes: Sequence[ShapeDetector],
    pixels: Pixels,
    boxes: ArrayLike | Detections,
    labels: ArrayLike,
    scan: ScanSettings,
) -> list[Record]:
    """The records of all shapes of a class."""
    from whet.corrections.box_windows import check_consistent, checked_labels

    array, flags = checked_labels(boxes, labels, pixels.shape[:2])
    check_consistent(array, flags)
    base_found = detect_bases(shapes, pixels, scan)
    merged, objects = merge_shapes(base_found), array[flags]
    parts = divide_boxes(shapes, array, flags, base_found, pixels.shape[:2])
    return [
        record
        for shape, part in zip(shapes, parts, strict=True)
        for record in shape.new_records(pixels, *part, scan, base_found=merged, other_objects=objects)
    ]


def detect_bases(shapes: Sequence[ShapeDetector], pixels: Pixels, scan: ScanSettings) -> list[Detections]:
    """What each shape detects at any score, without what it learned: that must not matter for corrections."""
    every = replace(scan, fast=None, grouping=GROUPING, iou=IOU, min_score=-np.inf, max_detections=None)
    return [shape.as_trained().detect_pixels(pixels, every) for shape in shapes]


def divide_boxes(
    shapes: Sequence[ShapeDetector],
    boxes: Boxes,
    is_object: Bools,
    base_found: Sequence[Detections],
    image_shape: tuple[int, ...],
) -> list[tuple[Boxes, Bools]]:
    """Boxes (n, 4) of an image (height, width), and which are objects (n,), that each shape of a class has to learn.

    An object is learned by the nearest shape. A false positive stands for the detections of all shapes together with an
    IoU of 0.5 or more, and is learned by each shape at its own boxes of these, except those of objects and those
    outside the image. If the nearest shape has none there, it learns the box itself: it may detect something there once
    other corrections are learned. `base_found` are the detections of the bases.
    """
    from whet.corrections.box_windows import SAME, is_inside

    objects, wrong = boxes[is_object], boxes[~is_object]
    merged, groups = group_shapes(base_found)
    is_meant = box_iou(wrong, merged.boxes) >= SAME
    divided = []
    for number, (detections, group) in enumerate(zip(base_found, groups, strict=True)):
        own = detections.boxes
        can_be_wrong = is_inside(own, image_shape) & ~(box_iou(own, objects) >= SAME).any(axis=1)
        is_wrong = is_meant[:, group] & (group >= 0) & can_be_wrong
        is_there = (is_wrong & (box_iou(wrong, own) >= SAME)).any(axis=1)
        nearest = objects[nearest_shape(shapes, objects) == number]
        itself = wrong[(nearest_shape(shapes, wrong) == number) & ~is_there]
        chosen = np.concatenate([nearest, itself, own[is_wrong.any(axis=0)]])
        divided.append((chosen, np.arange(len(chosen)) < len(nearest)))
    return divided


def nearest_shape(shapes: Sequence[ShapeDetector], boxes: Boxes) -> Indices:
    """The number (n,) of the shape whose boxes have the aspect ratio nearest to that of each of the boxes (n, 4)."""
    aspects = np.log([shape.aspect for shape in shapes])
    sizes = boxes[:, 2:] - boxes[:, :2]
    return np.asarray(abs(np.log(sizes[:, :1] / sizes[:, 1:]) - aspects).argmin(axis=1))


def is_class_name(name: object) -> bool:
    """Whether a name can stand after the colon of `signs.whet:stop`, and name a folder."""
    if not isinstance(name, str) or len(name) > LONGEST_CLASS:
        return False
    return bool(name.strip(". ")) and name.isprintable() and not set("/\\:") & set(name)


def check_class_name(name: object) -> None:
    """Raise ValueError for a name that a class of several, or of several shapes, cannot have.

    >>> check_class_name("a/b")
    Traceback (most recent call last):
    ValueError: got the class name 'a/b'; expected a printable text without / \\ and :, not only dots, ...
    """
    if not is_class_name(name):
        raise ValueError(
            f"got the class name {name!r:.300}; expected a printable text without / \\ and :, not only dots, of "
            f"at most {LONGEST_CLASS} characters"
        )
