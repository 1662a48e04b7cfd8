"""Peers on the face videos, by the same rule: OpenCV's cascades, and its trackers, which are given the first box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.face_tracks import Boxes, Track
from experiments.opencv_peers import NoPeersError, classifier

Picture = NDArray[np.uint8]

CASCADES = ("frontalface_default", "frontalface_alt2")
TRACKERS = ("Boosting", "MIL")
FACTOR, NEIGHBOURS = 1.1, 3  # OpenCV's defaults


def strongest_windows(name: str, pictures: Sequence[Picture]) -> Track:
    """The box of the highest weight in the last stage that an OpenCV cascade finds in each frame."""
    peer = classifier(name)
    windows, scores = np.full((len(pictures), 4), np.nan), np.full(len(pictures), -np.inf)
    for number, picture in enumerate(pictures):
        boxes, _, weights = peer.detectMultiScale3(picture, FACTOR, NEIGHBOURS, outputRejectLevels=True)
        if len(boxes):
            best = int(np.argmax(weights))
            x, y, width, height = boxes[best]
            windows[number], scores[number] = (x, y, x + width, y + height), np.ravel(weights)[best]
    return Track(windows, scores)


def tracked(name: str, pictures: Sequence[Picture], first: NDArray[np.float64]) -> Boxes:
    """The box (n, 4) of each frame by one of OpenCV's trackers, from the true box (4,) of the first frame."""
    tracker, colours = _tracker(name), [np.repeat(picture[..., None], 3, axis=2) for picture in pictures]
    x1, y1, x2, y2 = (round(side) for side in first.tolist())
    tracker.init(colours[0], (x1, y1, x2 - x1, y2 - y1))
    boxes = np.full((len(pictures), 4), np.nan)
    boxes[0] = first
    for number, picture in enumerate(colours[1:], start=1):
        is_sure, (x, y, width, height) = tracker.update(picture)
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
