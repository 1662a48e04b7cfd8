"""One window a frame: what a single-node face detector says of a video, learning from its own answers or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.detect.node_windows import Levels, best_window
from whet.evaluate.overlap import intersection_over_union
from whet.experiments.face_samples import WINDOW
from whet.model.reporting import Frame
from whet.model.stage import Stage
from whet.training.node import Node

Boxes = NDArray[np.float64]
Picture = NDArray[np.uint8]

# Where the eyes are in a window of `faces_opencv24`, read off the mean of its faces, in widths of the window.
EYES_DOWN, PUPILS_APART = 0.36, 0.36
# A face from cheekbone to cheekbone and from hairline to chin, in distances between the pupils, as anthropometry has
# it: 138, 63 and 120 mm at 63 mm; compared with the first true box of each video, not with any detection.
HALF_FACE, ABOVE_EYES, BELOW_EYES = 1.1, 1.0, 1.9
FRAME = Frame(
    0.5 - HALF_FACE * PUPILS_APART,
    EYES_DOWN - ABOVE_EYES * PUPILS_APART,
    0.5 + HALF_FACE * PUPILS_APART,
    EYES_DOWN + BELOW_EYES * PUPILS_APART,
)
OVERLAP = 0.5


@dataclass(frozen=True, eq=False)
class Track:
    """The best window (n, 4) of each frame, not yet framed, NaN where there was none, and its margin (n,)."""

    windows: Boxes
    scores: NDArray[np.float64]

    def every(self, step: int) -> Track:
        """Every `step`-th frame."""
        return Track(self.windows[::step], self.scores[::step])

    def found(self, truths: Boxes, frame: Frame = FRAME) -> NDArray[np.bool_]:
        """In which frames (n,) the framed window has more than half in common with the true box (n, 4)."""
        return overlaps(frame.boxes(self.windows), truths) > OVERLAP

    def rate(self, truths: Boxes, frame: Frame = FRAME) -> float:
        """Share of the frames in which the face was found."""
        return float(self.found(truths, frame).mean())


def overlaps(boxes: Boxes, truths: Boxes) -> NDArray[np.float64]:
    """Intersection over union (n,) of each box (n, 4) with the truth of its own frame; 0 where a box is NaN.

    >>> overlaps(np.array([[0.0, 0.0, 2.0, 2.0], [np.nan] * 4]), np.array([[0.0, 0.0, 2.0, 1.0], [0.0, 0.0, 1.0, 1.0]]))
    array([0.5, 0. ])
    """
    there = np.isfinite(boxes).all(axis=1)
    shared = np.zeros(len(boxes))
    pairs = [intersection_over_union(boxes[i : i + 1], truths[i : i + 1])[0, 0] for i in np.flatnonzero(there)]
    shared[there] = pairs
    return shared


def silent_hearing(number: int, stage: Stage, levels: Levels) -> None:
    """Hear nothing."""


def followed(
    node: Node,
    pictures: Sequence[Picture],
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
    windows, scores = np.full((len(pictures), 4), np.nan), np.full(len(pictures), -np.inf)
    stage = node.stage()
    last: list[tuple[float, int, int]] = []
    for number, picture in enumerate(pictures):
        levels = Levels.of(picture, WINDOW, min_size=min_size)
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
