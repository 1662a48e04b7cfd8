"""A detector for each of several classes, in one model file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.cascade.detections import Detections
from whet.detector.detector import DetectOptions, Detector, LearnOptions, PixelOptions
from whet.detector.model_file import CLASSES_KEY, damage_as_error, deserialised, metadata_of
from whet.detector.model_header import MOST_BYTES
from whet.detector.records import Update
from whet.errors import CannotMergeError, ModelFileError, UnknownClassError

if TYPE_CHECKING:
    from whet.cascade.pyramid import Level
    from whet.detector.detector import Images
    from whet.io.images import ImageLike

# Each class takes a scan of its own.
MOST_CLASSES = 1000


class MultiClassDetector(Mapping[str, Detector]):
    """Detectors by the name of their class. Each learns for itself: a correction touches one class only.

    An image is resized once, and its channels are computed once, for all classes; the detections of a class are those
    that its detector finds by itself. `whet.train_classes` makes one.

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

    def __getitem__(self, class_name: str) -> Detector:
        try:
            return self._detectors[class_name]
        except KeyError:
            raise UnknownClassError(f"unknown class {class_name!r}; classes: {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._detectors)

    def __len__(self) -> int:
        return len(self._detectors)

    def __repr__(self) -> str:
        return f"MultiClassDetector({', '.join(self)})"

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
        found = {}
        for name, detector in self.items():
            kind = detector.cascade.uses_channels
            if kind not in seen:
                seen[kind] = detector.pixels(image, color), {}
            found[name] = detector.detect_pixels(*seen[kind], **inner)
        every = Detections.from_classes(found)
        return every if most is None else every.first(most)

    def learn(
        self,
        image: ImageLike,
        boxes: ArrayLike | Detections,
        labels: ArrayLike,
        *,
        class_name: str,
        **options: Unpack[LearnOptions],
    ) -> Update:
        """Correct boxes of one class in an image; see `Detector.learn`. Other classes stay as they are."""
        return self[class_name].learn(image, boxes, labels, **options)

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


def check_class_name(name: object) -> None:
    """Raise ValueError for a name that cannot stand after the colon of `signs.whet:stop`, or name a folder.

    >>> check_class_name("a/b")
    Traceback (most recent call last):
    ValueError: got the class name 'a/b'; expected a printable text without / \\ and :, and not only dots
    """
    if not isinstance(name, str) or not name.strip(". ") or not name.isprintable() or set("/\\:") & set(name):
        raise ValueError(
            f"got the class name {name!r}; expected a printable text without / \\ and :, and not only dots"
        )


def _header(names: list[str], parts: list[bytes]) -> str:
    """Names, and a hash of them and of the bytes of all detectors."""
    digests = [hashlib.sha256(part).hexdigest() for part in parts]
    return json.dumps({"classes": names, "hash": hashlib.sha256(json.dumps([names, digests]).encode()).hexdigest()})
