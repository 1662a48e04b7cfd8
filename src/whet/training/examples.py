"""Images to learn from: annotated ones, those that one object fills, and those without the object."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whet.errors import AnnotationError, UnreadableImageError
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedImage, Boxes
from whet.io.images import image_shape


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
        check_disjoint((image.path for image in with_boxes if len(image.objects)), (image.path for image in empty))
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


def check_disjoint(with_object: Iterable[Path], without: Iterable[Path]) -> None:
    """Raise `AnnotationError` if an image is among those with and among those without the object."""
    named = {path.resolve() for path in with_object}
    for path in without:
        if path.resolve() in named:
            raise AnnotationError(f"{path} is given both with and without the object; remove it from one set")
