"""Small data sets for tests of annotation formats."""

from pathlib import Path

import numpy as np
from PIL import Image

from whet.io.annotations.annotation import AnnotatedImage, Annotations

EXIF_ORIENTATION = 0x0112


def save_image(path: Path, width=200, height=100, orientation=None) -> Path:
    """A grey image; with an EXIF orientation it is `width` x `height` as stored, not upright."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.random.default_rng(width * height).integers(0, 256, (height, width), dtype=np.uint8))
    exif = Image.Exif()
    if orientation is not None:
        exif[EXIF_ORIENTATION] = orientation
    image.save(path, exif=exif)
    return path


def image(path, boxes=(), labels=None, ignore=None, shape=(100, 200), split=""):
    boxes = np.array(boxes, dtype=np.float64).reshape(-1, 4)
    labels = ("car",) * len(boxes) if labels is None else tuple(labels)
    flags = np.zeros(len(boxes), dtype=np.bool_) if ignore is None else np.array(ignore, dtype=np.bool_)
    return AnnotatedImage(Path(path), shape, boxes, labels, flags, split)


def rows_of(annotations: Annotations, names=True):
    """All boxes as rows of image, class, flag and corners, by image and place."""
    rows = [
        (each.path.stem, label if names else "", bool(ignore), box)
        for each in annotations.images
        for box, label, ignore in zip(each.boxes.tolist(), each.labels, each.ignore, strict=True)
    ]
    return sorted(rows, key=lambda row: (row[0], row[1], row[2], [round(value, 3) for value in row[3]]))


def assert_same_boxes(ours, theirs, within=0.0, names=True):
    first, second = rows_of(ours, names), rows_of(theirs, names)
    assert [row[:3] for row in first] == [row[:3] for row in second]
    corners = [np.array([row[3] for row in rows]).reshape(-1, 4) for rows in (first, second)]
    assert np.abs(corners[0] - corners[1]).max(initial=0) <= within
