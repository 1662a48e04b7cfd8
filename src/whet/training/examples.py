"""What a detector learns from: annotated images, single boxes, and crops that one object fills."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import BoxOffset
from whet.errors import AnnotationError, UnreadableImageError
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedImage, Boxes
from whet.io.images import image_shape

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Examples:
    """Images to learn from, and the errors of those that cannot be read."""

    images: tuple[AnnotatedImage, ...]
    unread: tuple[UnreadableImageError, ...] = ()

    @classmethod
    def from_annotations(
        cls,
        annotated: Iterable[AnnotatedImage] = (),
        positives: Iterable[Path] = (),
        negatives: Iterable[Path] = (),
    ) -> Examples:
        """Annotated images, images that one object fills, and images without the object.

        Raises `AnnotationError` if an image is given both with objects and as one without.
        """
        filled, unread_filled = crops(positives)
        empty, unread_empty = empty_images(negatives)
        with_boxes = [*annotated, *filled]
        _check_disjoint((image.path for image in with_boxes if len(image.objects)), (image.path for image in empty))
        return cls((*with_boxes, *empty), (*unread_filled, *unread_empty))

    @property
    def boxes(self) -> Boxes:
        """The boxes (n, 4) of the object in all images."""
        return np.concatenate([np.empty((0, 4)), *(image.objects for image in self.images)])

    @property
    def n_objects(self) -> int:
        """Number of boxes of the object."""
        return sum(len(image.objects) for image in self.images)


def crops(paths: Iterable[Path]) -> tuple[list[AnnotatedImage], list[UnreadableImageError]]:
    """Images that one object fills, and the errors of those that cannot be read.

    The rest of a crop is a region to ignore: other detections in it are not false positives.
    """
    return _read_shapes(paths, is_filled=True)


def empty_images(paths: Iterable[Path]) -> tuple[list[AnnotatedImage], list[UnreadableImageError]]:
    """Images without the object, and the errors of those that cannot be read: all detections are false positives."""
    return _read_shapes(paths, is_filled=False)


@dataclass(frozen=True, eq=False)
class MarkedImage:
    """An image file and single boxes (n, 4) of it: True (n,) for a missed object, False for a false positive."""

    path: Path
    boxes: Boxes
    is_object: Flags


@dataclass(frozen=True, eq=False)
class LearningInput:
    """What to learn from: images with all their boxes, single boxes, and crops that one object fills.

    >>> shared = [Path("a.png")]
    >>> LearningInput(Examples((AnnotatedImage(shared[0], (9, 9)),)), crops=shared)
    Traceback (most recent call last):
    whet.errors.AnnotationError: a.png is given both with and without the object; remove it from one set
    """

    examples: Examples = field(default_factory=lambda: Examples(()))
    marked: Sequence[MarkedImage] = ()
    crops: Sequence[Path] = ()

    def __post_init__(self) -> None:
        """Raise `AnnotationError` if an image without the object is also given with it."""
        with_object = [image.path for image in self.marked if image.is_object.any()]
        _check_disjoint([*self.crops, *with_object], [i.path for i in self.examples.images if _is_empty(i)])

    def __len__(self) -> int:
        """Number of images."""
        return len(self.examples.images) + len(self.marked) + len(self.crops)

    @property
    def paths(self) -> list[Path]:
        """All image files."""
        annotated = [image.path for image in self.examples.images]
        return [*annotated, *(image.path for image in self.marked), *self.crops]

    @property
    def n_objects(self) -> int:
        """Number of objects, in boxes and in crops."""
        return self.examples.n_objects + sum(int(image.is_object.sum()) for image in self.marked) + len(self.crops)


# A window may be this much larger than its box before crops are too tight.
MAX_MARGIN = 1.05


def tight_crop_warning(given: LearningInput, offset: BoxOffset) -> str | None:
    """A warning if objects fill their images, and the detector's windows are larger than the boxes that it reports.

    A crop has no pixels around the object: the window that is learned is too small, or none fits.

    >>> tight = AnnotatedImage(Path("a.png"), (20, 40), np.array([[0.0, 0, 40, 20]]), ("van",), np.array([False]))
    >>> print(tight_crop_warning(LearningInput(Examples((tight,))), BoxOffset(0.1, 0.1, 0.9, 0.9)))
    1 image has no margin around the object, but the windows of this detector are 1.25 times as large as the object; ...
    >>> tight_crop_warning(LearningInput(Examples((tight,))), BoxOffset())
    """
    n = sum(image.is_filled for image in given.examples.images) + len(given.crops)
    ratio = 1 / max(offset.size)
    if not n or ratio < MAX_MARGIN:
        return None
    images = "1 image has" if n == 1 else f"{n:,} images have"
    return (
        f"{images} no margin around the object, but the windows of this detector are {ratio:.3g} times as large as the "
        "object; use whole images with boxes (--annotations), or crops with a margin"
    )


def _read_shapes(paths: Iterable[Path], *, is_filled: bool) -> tuple[list[AnnotatedImage], list[UnreadableImageError]]:
    images, unread = [], []
    for path in paths:
        try:
            height, width = image_shape(path)
        except UnreadableImageError as error:
            unread.append(error)
            continue
        whole = np.array([[0.0, 0.0, width, height]])
        if is_filled:
            boxes, ignore = np.concatenate([whole, whole]), np.array([False, True])
            images.append(AnnotatedImage(path, (height, width), boxes, (ONLY_CLASS, ONLY_CLASS), ignore))
        else:
            images.append(AnnotatedImage(path, (height, width)))
    return images, unread


def _is_empty(image: AnnotatedImage) -> bool:
    """Whether an image is known to have no object."""
    return not len(image) and image.is_complete


def _check_disjoint(with_object: Iterable[Path], without: Iterable[Path]) -> None:
    named = {path.resolve() for path in with_object}
    for path in without:
        if path.resolve() in named:
            raise AnnotationError(f"{path} is given both with and without the object; remove it from one set")
