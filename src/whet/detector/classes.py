"""A detector for each of several classes, or for each of several shapes of a class, in one model file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.cascade.boxes import box_iou
from whet.cascade.detect import GROUPING, IOU, group_views, merge_views
from whet.cascade.detections import Detections
from whet.cascade.pyramid import SCALE_FACTOR
from whet.detector.detector import DetectOptions, Detector, LearnOptions, PixelOptions, ScanOptions, file_name
from whet.detector.model_file import CLASSES_KEY, damage_as_error, deserialised, metadata_of
from whet.detector.model_header import MOST_BYTES
from whet.detector.records import Record, Records, Update, checked_records
from whet.errors import CannotMergeError, ModelFileError, SeveralClassesError, UnknownClassError

if TYPE_CHECKING:
    from whet.cascade.pyramid import Level
    from whet.detector.detector import Images
    from whet.io.images import ImageLike

# Each class takes a scan of its own.
MOST_CLASSES = 1000
# The name of one view of a class.
VIEW = re.compile(r"(.+)@([1-9])")


class MultiClassDetector(Mapping[str, Detector]):
    """Detectors by the name of their class. Each learns for itself: a correction touches one class only.

    An image is resized once, and its channels are computed once, for all classes; the detections of a class are those
    that its detector finds by itself. `whet.train_classes` makes one.

    A class whose objects have several shapes can have a detector for each of them: its views, named "car@1", "car@2".
    Their detections are those of the class, and grouped where they overlap.

    >>> import whet
    >>> from skimage import data
    >>> both = MultiClassDetector({"face": whet.load("face"), "other": whet.load("face")})
    >>> found = both.detect(data.astronaut(), max_detections=2)
    >>> found
    Detections(2: face 114 x 127 at (168, 57) scores 119, other 114 x 127 at (168, 57) scores 119)
    >>> _ = both.learn(data.astronaut(), found.of_class("other").boxes, False, class_name="other")
    >>> both.detect(data.astronaut(), max_detections=1).labels, len(both["face"].records)
    (['face'], 0)
    """

    def __init__(self, detectors: Mapping[str, Detector]) -> None:
        if not 0 < len(detectors) <= MOST_CLASSES:
            raise ValueError(f"got {len(detectors)} classes; expected 1 to {MOST_CLASSES:,}")
        for name in detectors:
            check_class_name(name)
        self._detectors = MappingProxyType(dict(detectors))
        # File and SHA-256 of its bytes, as it was loaded or saved last.
        self.origin: tuple[Path, str] | None = None

    def __reduce__(self) -> tuple[type[MultiClassDetector], tuple[dict[str, Detector]]]:
        return MultiClassDetector, (dict(self._detectors),)

    def __getitem__(self, class_name: str) -> Detector:
        try:
            return self._detectors[class_name]
        except KeyError:
            known = f"views: {', '.join(self.views(class_name))}" if class_name in self.classes else None
            text = f"class {class_name!r} has several" if known else f"unknown class {class_name!r}"
            raise UnknownClassError(f"{text}; {known or 'classes: ' + ', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._detectors)

    def __len__(self) -> int:
        return len(self._detectors)

    def __repr__(self) -> str:
        return f"MultiClassDetector({', '.join(self)})"

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of detections, each once; a class may have several views."""
        return tuple(dict.fromkeys(class_by_name(self).values()))

    def views(self, class_name: str) -> dict[str, Detector]:
        """The detectors of a class, by their names: one, or one for each of its views."""
        return {name: self[name] for name, its_class in class_by_name(self).items() if its_class == class_name}

    def of_class(self, class_name: str) -> Detector | MultiClassDetector:
        """The detector of a class; or all of its views, as a model of their own."""
        views = self.views(class_name)
        return self[class_name] if len(views) < 2 else MultiClassDetector(views)

    @overload
    def detect(self, image: Images, **options: Unpack[DetectOptions]) -> list[Detections]: ...

    @overload
    def detect(self, image: ImageLike, **options: Unpack[DetectOptions]) -> Detections: ...

    def detect(self, image: ImageLike | Images, **options: Unpack[DetectOptions]) -> Detections | list[Detections]:
        """Find objects of all classes in an image, with the options of `Detector.detect`; `labels` are their classes.

        Without a minimum score, or with the name of an operating point, each class has its own.
        """
        if isinstance(image, list | tuple):
            return [self.detect(one, **options) for one in image]
        color, most = options.pop("color", "rgb"), options.get("max_detections")
        inner: PixelOptions = options  # without `color`
        # By whether a detector looks at colours: the image, and the levels of its pyramid.
        seen: dict[bool, tuple[NDArray[np.uint8], dict[float, Level]]] = {}

        def scan(detector: Detector, options: PixelOptions) -> Detections:
            kind = detector.cascade.uses_channels
            if kind not in seen:
                seen[kind] = detector.pixels(image, color), {}
            return detector.detect_pixels(*seen[kind], **options)

        found = {}
        for name in self.classes:
            first, *others = self.views(name).values()
            if not others:
                found[name] = scan(first, inner)
                continue
            # Views have the same operating points; these are of the scores that their detections have together.
            every: PixelOptions = {**inner, "min_score": -np.inf, "max_detections": None}
            parts = [scan(view, every) for view in (first, *others)]
            merged = merge_views(parts, inner.get("grouping", GROUPING), inner.get("iou", IOU))
            found[name] = merged.with_min_score(first.reporting.min_score(inner.get("min_score")))
        every_class = Detections.from_classes(found)
        return every_class if most is None else every_class.first(most)

    def learn(
        self,
        image: ImageLike,
        boxes: ArrayLike | Detections,
        labels: ArrayLike,
        *,
        class_name: str | None = None,
        **options: Unpack[LearnOptions],
    ) -> Update:
        """Correct boxes of one class in an image; see `Detector.learn`. Other classes stay as they are.

        `class_name` may be left out if there is only one class. Of a class with views, a missed object is learned by
        the view whose shape is nearest, and a false positive by each view that takes part in the detection, at its own
        boxes. Each of these views has an update of its own (`Update.views`), with what it changes on its reference set.
        """
        records = self.new_records(image, boxes, labels, class_name=class_name, **options)
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
        **options: Unpack[LearnOptions],
    ) -> list[Record]:
        """The records that `learn` adds, of all views of a class; nothing changes. See `Detector.new_records`."""
        from whet.detector.corrections import check_consistent, checked_labels

        views = self._learning(class_name)
        first, *others = views.values()
        if not others:
            return first.new_records(image, boxes, labels, **options)
        pixels = first.pixels(image, options.pop("color", "rgb"))
        array, flags = checked_labels(boxes, labels, pixels.shape[:2])
        check_consistent(array, flags)
        scan: ScanOptions = {
            "min_size": options.get("min_size"),
            "max_size": options.get("max_size"),
            "scale_factor": options.get("scale_factor", SCALE_FACTOR),
            "step": options.get("step", 1),
            "threads": options.get("threads"),
        }
        found = detect_bases(views, pixels, **scan)
        options["base_found"], options["other_objects"] = merge_views(list(found.values())), array[flags]
        options["name"] = options.get("name") or file_name(image)
        parts = divide_boxes(views, array, flags, found, pixels.shape[:2])
        return [record for name, part in parts.items() for record in views[name].new_records(pixels, *part, **options)]

    def add(self, records: Iterable[Record], *, class_name: str | None = None) -> Update:
        """Add records to one class, each to the view whose base made it: all of them, or none; see `Detector.add`."""
        views = self._learning(class_name)
        first, *others = views
        if not others:
            return views[first].add(records)
        given, bases = list(records), {view.base_id for view in views.values()}
        checked_records((record for record in given if record.base_id not in bases), views[first].base)  # an error
        new = {
            name: checked_records((record for record in given if record.base_id == view.base_id), view.base)
            for name, view in views.items()
        }
        updates = {name: views[name].add(each.values()) for name, each in new.items() if each}
        return Update(
            tuple(record for update in updates.values() for record in update),
            unsatisfied=tuple(record for view in views.values() for record in view.unsatisfied),
            views=updates,
        )

    def _learning(self, class_name: str | None) -> dict[str, Detector]:
        """The views of a class; None: of the only one."""
        if class_name is None:
            if len(self.classes) > 1:
                raise SeveralClassesError(f"got no class_name; expected one of {', '.join(self.classes)}")
            class_name = self.classes[0]
        return self.views(class_name) or {class_name: self[class_name]}  # or an error that lists the classes

    def check_can_learn(self, *, examples: bool = False) -> None:
        """Raise `CannotLearnError` if one of the detectors cannot learn; see `Detector.check_can_learn`."""
        for detector in self.values():
            detector.check_can_learn(examples=examples)

    def as_trained(self) -> MultiClassDetector:
        """Detectors of the same bases that have learned nothing; see `Detector.as_trained`."""
        return MultiClassDetector({name: detector.as_trained() for name, detector in self.items()})

    def unlearn(self, what: Update | Record | str | Iterable[Update | Record | str]) -> None:
        """Take out records of any class; see `Detector.unlearn`. Nothing changes if one of them is not learned now."""
        several = [what] if isinstance(what, Update | Record | str) else list(what)
        wanted = [one for part in several for one in (part if isinstance(part, Update) else (part,))]
        every = Records.from_iterable(record for detector in self.values() for record in detector.records)
        ids = {every.find(one.id if isinstance(one, Record) else one).id for one in wanted}
        for detector in self.values():
            detector.unlearn([record for record in detector.records if record.id in ids])

    def merge(self, other: MultiClassDetector) -> None:
        """Add all that another one with the same classes and bases has learned; see `Detector.merge`."""
        for name in {**self, **other}:
            if name not in self or name not in other or other[name].base_id != self[name].base_id:
                raise CannotMergeError(f"the class {name!r} has not the same base in both: merge copies of one model")
        for detectors in (self.copy(), self):  # copies first: if one of them fails, nothing is changed
            for name, detector in detectors.items():
                detector.merge(other[name])

    def copy(self) -> MultiClassDetector:
        """Detectors that learn on their own from here on."""
        twin = MultiClassDetector({name: detector.copy() for name, detector in self.items()})
        twin.origin = self.origin
        return twin

    def to_bytes(self) -> bytes:
        """The bytes of the file: those of each detector's file, and the names of the classes."""
        from safetensors.numpy import save as serialise

        parts = [detector.to_bytes() for detector in self.values()]
        tensors = {f"{number:04}": np.frombuffer(part, np.uint8) for number, part in enumerate(parts)}
        data = bytes(serialise(tensors, {CLASSES_KEY: _header(list(self), parts)}))
        if len(data) > MOST_BYTES:  # what could not be loaded is not saved
            raise ModelFileError(f"the file would have {len(data):,} bytes; at most {MOST_BYTES:,} can be loaded")
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> MultiClassDetector:
        """Detectors from the bytes of their file; raises `ModelFileError` where they are damaged."""
        with damage_as_error():
            tensors, text = deserialised(data), metadata_of(data, CLASSES_KEY)
            header = json.loads(text)
            names = header.get("classes") if isinstance(header, dict) else None
            parts = [tensors[key].tobytes() for key in sorted(tensors)]
            if not isinstance(names, list) or len(set(map(str, names))) != len(parts):
                raise ModelFileError(f"got {len(parts)} detectors for the classes {names!r}; expected one for each")
            if _header(names, parts) != text:
                raise ModelFileError("the content does not have the hash of the header; get the file again")
            return cls({name: Detector.from_bytes(part) for name, part in zip(names, parts, strict=True)})

    def with_class(self, class_name: str, detector: Detector) -> MultiClassDetector:
        """The same with another detector for one of the classes, or for a new one."""
        return MultiClassDetector({**self, class_name: detector})

    def save(self, path: str | PathLike[str]) -> None:
        """Write all classes to one file: as a whole, or not at all. See `Detector.save`."""
        from whet.detector.storage import save

        save(self, path)


def class_by_name(names: Iterable[str]) -> dict[str, str]:
    """The class of each of the names of a model's detectors: a view has others of the same class beside it.

    >>> class_by_name(["car@1", "car@2", "bus@1"])
    {'car@1': 'car', 'car@2': 'car', 'bus@1': 'bus@1'}
    """
    every = list(names)

    def class_of(name: str) -> str:
        found = VIEW.fullmatch(name)
        is_view = found is not None and any(one != name and one.startswith(f"{found[1]}@") for one in every)
        return found[1] if found is not None and is_view else name

    return {name: class_of(name) for name in every}


def detectors_of(model: Detector | MultiClassDetector) -> list[Detector]:
    """A detector by itself, or all of a model of several."""
    return [model] if isinstance(model, Detector) else list(model.values())


def detect_bases(views: Mapping[str, Detector], image: ImageLike, **scan: Unpack[ScanOptions]) -> dict[str, Detections]:
    """What each view detects at any score, without what it learned: that must not matter for corrections."""
    return {name: view.as_trained().detect(image, min_score=-np.inf, **scan) for name, view in views.items()}


def divide_boxes(
    views: Mapping[str, Detector],
    boxes: NDArray[np.float64],
    is_object: NDArray[np.bool_],
    found: Mapping[str, Detections],
    shape: tuple[int, ...],
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Boxes (n, 4) of an image (height, width), and which are objects (n,), that each view of a class has to learn.

    An object is learned by the view whose shape is nearest. A false positive stands for the detections of all views
    together with an IoU of 0.5 or more, and is learned by each view at its own boxes of these, except those of objects
    and those outside the image. If the view whose shape is nearest has none there, it learns the box itself: it may
    detect something there once other corrections are learned. `found` are the detections of their bases.
    """
    from whet.detector.corrections import SAME, is_inside

    objects, wrong = boxes[is_object], boxes[~is_object]
    merged, groups = group_views(list(found.values()))
    is_meant = box_iou(wrong, merged.boxes) >= SAME
    divided = {}
    for (name, one), group in zip(found.items(), groups, strict=True):
        can_be_wrong = is_inside(one.boxes, shape) & ~(box_iou(one.boxes, objects) >= SAME).any(axis=1)
        is_wrong = is_meant[:, group] & (group >= 0) & can_be_wrong
        is_there = (is_wrong & (box_iou(wrong, one.boxes) >= SAME)).any(axis=1)
        own = objects[nearest_view(views, objects) == name]
        itself = wrong[(nearest_view(views, wrong) == name) & ~is_there]
        chosen = np.concatenate([own, itself, one.boxes[is_wrong.any(axis=0)]])
        if len(chosen):
            divided[name] = chosen, np.arange(len(chosen)) < len(own)
    return divided


def nearest_view(views: Mapping[str, Detector], boxes: NDArray[np.float64]) -> NDArray[np.str_]:
    """The name (n,) of the view whose boxes have the aspect ratio nearest to that of each of the boxes (n, 4)."""
    aspects = np.log([view.aspect for view in views.values()])
    sizes = boxes[:, 2:] - boxes[:, :2]
    names = np.array(list(views), np.str_)
    return np.asarray(names[abs(np.log(sizes[:, :1] / sizes[:, 1:]) - aspects).argmin(axis=1)])


def is_class_name(name: object) -> bool:
    """Whether a name can stand after the colon of `signs.whet:stop`, and name a folder."""
    return isinstance(name, str) and bool(name.strip(". ")) and name.isprintable() and not set("/\\:") & set(name)


def check_class_name(name: object) -> None:
    """Raise ValueError for a name that a class of a model of several cannot have.

    >>> check_class_name("a/b")
    Traceback (most recent call last):
    ValueError: got the class name 'a/b'; expected a printable text without / \\ and :, and not only dots
    """
    if not is_class_name(name):
        raise ValueError(
            f"got the class name {name!r}; expected a printable text without / \\ and :, and not only dots"
        )


def _header(names: list[str], parts: list[bytes]) -> str:
    """Names, and a hash of them and of the bytes of all detectors."""
    digests = [hashlib.sha256(part).hexdigest() for part in parts]
    return json.dumps({"classes": names, "hash": hashlib.sha256(json.dumps([names, digests]).encode()).hexdigest()})
