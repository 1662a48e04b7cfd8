"""One window a frame: what a single-node face detector says of a video, learning from its own answers or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import LFW_FACE
from experiments.face_samples import WINDOW
from experiments.node_windows import Levels, best_window
from whet.cascade.boxes import BoxOffset, box_iou
from whet.cascade.cascade import Stage
from whet.training.stage import Node

Boxes = NDArray[np.float64]
GreyImage = NDArray[np.uint8]

# A face from cheekbone to cheekbone and from hairline to chin, in distances between the pupils, as anthropometry has
# it: 138, 63 and 120 mm at 63 mm; compared with the first true box of each video, not with any detection.
HALF_FACE, ABOVE_EYES, BELOW_EYES = 1.1, 1.0, 1.9
# The eyes in the mean photograph of LFW, in pixels.
LFW_EYES_DOWN, LFW_PUPILS_APART = 66.7, 43.0
IOU = 0.5


def face_frame(eyes_down: float, pupils_apart: float) -> BoxOffset:
    """The face around the eyes of a window: how far down they are, and how far apart, in widths of the window.

    >>> [round(side, 2) for side in face_frame(0.36, 0.36)]
    [0.1, 0.0, 0.9, 1.04]
    """
    return BoxOffset(
        0.5 - HALF_FACE * pupils_apart,
        eyes_down - ABOVE_EYES * pupils_apart,
        0.5 + HALF_FACE * pupils_apart,
        eyes_down + BELOW_EYES * pupils_apart,
    )


def inner_frame(share: float) -> BoxOffset:
    """The face around a window that shows the inner part of Viola and Jones's box in LFW, `share` of its side.

    >>> [round(side, 2) for side in inner_frame(0.8)]
    [-0.02, -0.12, 1.02, 1.26]
    """
    _, top, side = LFW_FACE
    window = share * side
    return face_frame((LFW_EYES_DOWN - top - (side - window) / 2) / window, LFW_PUPILS_APART / window)


# The face in a window of `faces_opencv24`; eyes are read off the mean of its faces.
FRAME = face_frame(0.36, 0.36)


@dataclass(frozen=True, eq=False)
class Track:
    """The best window (n, 4) of each frame, not yet framed, NaN where there was none, and its margin (n,)."""

    windows: Boxes
    scores: NDArray[np.float64]

    def every(self, step: int) -> Track:
        """Every `step`-th frame."""
        return Track(self.windows[::step], self.scores[::step])

    def found(self, truths: Boxes, frame: BoxOffset) -> NDArray[np.bool_]:
        """In which frames (n,) the framed window has more than half in common with the true box (n, 4)."""
        return overlaps(frame.boxes(self.windows), truths) > IOU

    def rate(self, truths: Boxes, frame: BoxOffset) -> float:
        """Share of the frames in which the face was found."""
        return float(self.found(truths, frame).mean())


def overlaps(boxes: Boxes, truths: Boxes) -> NDArray[np.float64]:
    """Intersection over union (n,) of each box (n, 4) with the truth of its own frame; 0 where a box is NaN.

    >>> overlaps(np.array([[0.0, 0.0, 2.0, 2.0], [np.nan] * 4]), np.array([[0.0, 0.0, 2.0, 1.0], [0.0, 0.0, 1.0, 1.0]]))
    array([0.5, 0. ])
    """
    there = np.isfinite(boxes).all(axis=1)
    shared = np.zeros(len(boxes))
    pairs = [box_iou(boxes[i : i + 1], truths[i : i + 1])[0, 0] for i in np.flatnonzero(there)]
    shared[there] = pairs
    return shared


def silent_hearing(number: int, stage: Stage, levels: Levels) -> None:
    """Hear nothing."""


def followed(
    node: Node,
    images: Sequence[GreyImage],
    *,
    learn: bool = False,
    min_size: float | None = None,
    hear: Callable[[int, Stage, Levels], None] = silent_hearing,
) -> Track:
    """The best window of each frame by a node; with `learn`, it is taught to the node as a face before the next frame.

    As in the paper: factor 1.2, step 1, positives only, each counted once, right or wrong. Windows are of all sizes,
    or from `min_size` pixels on. `hear` is told of each frame's number, the stage that it was scored with (before it
    was learned), and its levels.
    """
    windows, scores = np.full((len(images), 4), np.nan), np.full(len(images), -np.inf)
    stage = node.stage()
    last: list[tuple[float, int, int]] = []
    for number, image in enumerate(images):
        levels = Levels.from_image(image, WINDOW, min_size=min_size)
        best = best_window(stage, levels, last)
        hear(number, stage, levels)
        if not len(best):
            continue
        windows[number], scores[number] = best.boxes[0], best.scores[0]
        last = [(float(best.scale[0]), int(best.y[0]), int(best.x[0]))]
        if learn:
            node.learn(levels.patch(*last[0]), np.ones(1, dtype=np.bool_), threads=1)
            stage = node.stage()
    return Track(windows, scores)
