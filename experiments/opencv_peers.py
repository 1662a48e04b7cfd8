"""OpenCV's frontal face cascades on MIT+CMU, each at its best, and its cascades and trackers on the face videos.

The curve of a cascade is swept in two ways: by `minNeighbors`, a point for each, and by the weight of the last stage
from `detectMultiScale3`, at several `minNeighbors`. Two scale factors and two box conventions (OpenCV's own, and with
our box offset) are tried. The best of all these settings counts, at each number of false positives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from experiments.mit_cmu import Boxes, Convention, GreyImage, Trial, faces_at
from experiments.report import Progress, silent
from experiments.single_stage import BestWindows
from whet.errors import MissingExtraError
from whet.evaluation.evaluation import Curve

NAMES = ("frontalface_default", "frontalface_alt", "frontalface_alt2")
FACTORS = (1.1, 1.2)
NEIGHBOURS = (*range(1, 21), 25, 30, 40, 50, 70, 100)
WEIGHED_NEIGHBOURS = (1, 2, 3, 5, 8)
EPSILON = 0.2  # of the grouping in detectMultiScale
VIDEO_CASCADES = ("frontalface_default", "frontalface_alt2")
TRACKERS = ("Boosting", "MIL")
DEFAULT_FACTOR, DEFAULT_NEIGHBOURS = 1.1, 3  # OpenCV's defaults


class NoPeersError(MissingExtraError):
    """OpenCV is not installed, or is a version without cascades."""

    def __init__(self) -> None:
        super().__init__("opencv-contrib-python-headless<5", "dev")


@dataclass(frozen=True)
class Point:
    """Faces found and false positives of one setting."""

    faces: int
    false_positives: int


@dataclass(frozen=True, eq=False)
class Setting:
    """One way to run a cascade, and its points: by falling `minNeighbors`, or by weight."""

    sweep: str
    scale_factor: float
    convention: Convention
    points: tuple[Point, ...]

    def faces_at(self, false_positives: int) -> int:
        """Most faces with at most this number of false positives."""
        return max((point.faces for point in self.points if point.false_positives <= false_positives), default=0)


@dataclass(frozen=True, eq=False)
class Peer:
    """A cascade of OpenCV in all settings."""

    name: str
    settings: tuple[Setting, ...]

    def faces_at(self, false_positives: Sequence[int]) -> list[int]:
        """Most faces with at most each number of false positives, in the best setting for it."""
        return [max(setting.faces_at(n) for setting in self.settings) for n in false_positives]

    def setting(self, sweep: str, scale_factor: float, convention: Convention) -> Setting:
        """The setting of these choices."""
        (found,) = [
            one
            for one in self.settings
            if (one.sweep, one.scale_factor, one.convention) == (sweep, scale_factor, convention)
        ]
        return found


def cascade_file(name: str) -> Path:
    """OpenCV's own file of a cascade; raises `NoPeersError` if there is none."""
    try:
        cv2: Any = import_module("cv2")
        folder = Path(cv2.data.haarcascades)
        there = hasattr(cv2, "CascadeClassifier") and (folder / f"haarcascade_{name}.xml").exists()
    except (ImportError, AttributeError) as error:
        raise NoPeersError from error
    if not there:
        raise NoPeersError
    return folder / f"haarcascade_{name}.xml"


def classifier(name: str) -> Any:  # noqa: ANN401 - OpenCV has no types
    """OpenCV's classifier with this name."""
    path = cascade_file(name)
    import cv2

    return cv2.CascadeClassifier(str(path))


def run_peers(trial: Trial, names: Sequence[str] = NAMES, progress: Progress = silent) -> list[Peer]:
    """Run OpenCV's cascades over the images of a trial, in all settings."""
    peers = []
    for number, name in enumerate(names):
        peers.append(run_peer(trial, name))
        progress((number + 1) / len(names))
    return peers


def run_peer(trial: Trial, name: str) -> Peer:
    """One cascade of OpenCV in all settings."""
    return Peer(name, tuple(setting for scale_factor in FACTORS for setting in _settings(trial, name, scale_factor)))


def _settings(trial: Trial, name: str, scale_factor: float) -> Iterator[Setting]:
    peer = classifier(name)
    grouped = [groupings(peer, image, scale_factor) for image in trial.images]
    for convention in get_args(Convention):
        curves = {
            k: trial.evaluate([(one[k].boxes, one[k].weights) for one in grouped], convention).curve for k in NEIGHBOURS
        }
        ends = tuple(Point(int(curve.found[-1]), int(curve.false_positives[-1])) for curve in curves.values())
        yield Setting("minNeighbors", scale_factor, convention, ends)
        for k in WEIGHED_NEIGHBOURS:
            yield Setting(f"weights at minNeighbors {k}", scale_factor, convention, _points(curves[k]))


@dataclass(frozen=True, eq=False)
class Grouped:
    """A result of `detectMultiScale3`: boxes (n, 4) as x1, y1, x2, y2, and the highest weight (n,) of each group."""

    boxes: Boxes
    weights: NDArray[np.float64]


def groupings(peer: Any, image: GreyImage, scale_factor: float) -> dict[int, Grouped]:  # noqa: ANN401
    """The results of `detectMultiScale3` for each of `NEIGHBOURS`, from one scan.

    OpenCV groups with `groupRectangles`, which returns no weights; this function assigns them to the boxes.
    """
    import cv2

    windows, _, weights = peer.detectMultiScale3(image, scale_factor, 0, outputRejectLevels=True)
    if not len(windows):
        return dict.fromkeys(NEIGHBOURS, Grouped(np.empty((0, 4)), np.empty(0)))
    means, greatest = _classes(np.asarray(windows, dtype=np.float64), np.asarray(weights, dtype=np.float64).ravel())
    found = {}
    for k in NEIGHBOURS:
        boxes = np.asarray(cv2.groupRectangles(windows.tolist(), k, EPSILON)[0], dtype=np.float64).reshape(-1, 4)
        distance = np.abs(boxes[:, None] - means[None]).sum(axis=2)  # equal up to rounding
        x, y, width, height = boxes.T
        found[k] = Grouped(np.stack([x, y, x + width, y + height], axis=-1), greatest[distance.argmin(axis=1)])
    return found


def _classes(windows: Boxes, weights: NDArray[np.float64]) -> tuple[Boxes, NDArray[np.float64]]:
    """Mean window (classes, 4) and greatest weight (classes,) of OpenCV's classes of similar windows, x y w h."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    edges = windows + np.concatenate([np.zeros_like(windows[:, :2]), windows[:, :2]], axis=1)
    smaller = (np.minimum(windows[:, None, 2:], windows[None, :, 2:])).sum(axis=2)
    similar = (np.abs(edges[:, None] - edges[None]) <= EPSILON / 2 * smaller[..., None]).all(axis=2)
    n, label = connected_components(csr_array(similar), directed=False)
    means = np.stack([np.bincount(label, column) for column in windows.T], axis=-1) / np.bincount(label)[:, None]
    greatest = np.full(n, -np.inf)
    np.maximum.at(greatest, label, weights)
    return means, greatest


def _points(curve: Curve) -> tuple[Point, ...]:
    false_positives = np.unique(curve.false_positives).tolist()
    return tuple(Point(faces, n) for faces, n in zip(faces_at(curve, false_positives), false_positives, strict=True))


def strongest_windows(name: str, images: Sequence[GreyImage]) -> BestWindows:
    """The detection of an OpenCV cascade with the highest weight of the last stage, in each frame."""
    peer = classifier(name)
    windows, scores = np.full((len(images), 4), np.nan), np.full(len(images), -np.inf)
    for number, image in enumerate(images):
        boxes, _, weights = peer.detectMultiScale3(image, DEFAULT_FACTOR, DEFAULT_NEIGHBOURS, outputRejectLevels=True)
        if len(boxes):
            best = int(np.argmax(weights))
            x, y, width, height = boxes[best]
            windows[number], scores[number] = (x, y, x + width, y + height), np.ravel(weights)[best]
    return BestWindows(windows, scores)


def tracked_boxes(name: str, images: Sequence[GreyImage], first: NDArray[np.float64]) -> Boxes:
    """The boxes (n, 4) of one of OpenCV's trackers, which starts from the true box (4,) of the first frame."""
    tracker, frames = _tracker(name), [np.repeat(image[..., None], 3, axis=2) for image in images]
    x1, y1, x2, y2 = (round(side) for side in first.tolist())
    tracker.init(frames[0], (x1, y1, x2 - x1, y2 - y1))
    boxes = np.full((len(images), 4), np.nan)
    boxes[0] = first
    for number, image in enumerate(frames[1:], start=1):
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
