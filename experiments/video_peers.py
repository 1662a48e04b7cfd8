"""Peers on the face videos, by the same rule: OpenCV's cascades, and its trackers, which are given the first box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.face_tracks import Boxes, Track
from experiments.opencv_peers import NoPeersError, classifier

GreyImage = NDArray[np.uint8]

CASCADES = ("frontalface_default", "frontalface_alt2")
TRACKERS = ("Boosting", "MIL")
SCALE_FACTOR, NEIGHBOURS = 1.1, 3  # OpenCV's defaults


def strongest_windows(name: str, images: Sequence[GreyImage]) -> Track:
    """The box of the highest weight in the last stage that an OpenCV cascade finds in each frame."""
    peer = classifier(name)
    windows, scores = np.full((len(images), 4), np.nan), np.full(len(images), -np.inf)
    for number, image in enumerate(images):
        boxes, _, weights = peer.detectMultiScale3(image, SCALE_FACTOR, NEIGHBOURS, outputRejectLevels=True)
        if len(boxes):
            best = int(np.argmax(weights))
            x, y, width, height = boxes[best]
            windows[number], scores[number] = (x, y, x + width, y + height), np.ravel(weights)[best]
    return Track(windows, scores)


def tracked(name: str, images: Sequence[GreyImage], first: NDArray[np.float64]) -> Boxes:
    """The box (n, 4) of each frame by one of OpenCV's trackers, from the true box (4,) of the first frame."""
    tracker, colours = _tracker(name), [np.repeat(image[..., None], 3, axis=2) for image in images]
    x1, y1, x2, y2 = (round(side) for side in first.tolist())
    tracker.init(colours[0], (x1, y1, x2 - x1, y2 - y1))
    boxes = np.full((len(images), 4), np.nan)
    boxes[0] = first
    for number, image in enumerate(colours[1:], start=1):
        is_sure, (x, y, width, height) = tracker.update(image)
        if is_sure:
            boxes[number] = x, y, x + width, y + height
    return boxes


def _tracker(name: str) -> Any:  # noqa: ANN401 - OpenCV has no types
    try:
        import cv2

        made: Any = getattr(cv2, "legacy")  # noqa: B009 - not in its stubs
        return getattr(made, f"Tracker{name}_create")()
    except (ImportError, AttributeError) as error:
        raise NoPeersError from error
