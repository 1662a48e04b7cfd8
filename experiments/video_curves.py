"""ROC curves over the windows of a video: as the paper has them, and on frames not yet learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from experiments.face_tracks import Boxes
from experiments.node_windows import Levels, node_windows
from whet.cascade.boxes import BoxOffset, box_iou
from whet.cascade.cascade import Stage
from whet.cascade.detections import FiredWindows
from whet.evaluation.matching import Label, match

# Numbers of false positives in a video at which a curve is read.
FALSE_POSITIVES = (1, 2, 5, 10, 20, 50, 100, 200, 400)
# Thresholds that are tried, as so many windows a frame are left in the mean, from strict to lax.
WINDOWS_A_FRAME = np.geomspace(0.05, 200, 40)
# A frame's windows beyond this rank are never looked at: the laxest threshold leaves a fifth of that.
KEPT = 1000


@dataclass(eq=False)
class Hearing:
    """Collects the best windows of every `step`-th frame with their margins, by whichever stage scores the frame."""

    step: int = 1
    windows: dict[int, FiredWindows] = field(default_factory=dict)

    def __call__(self, number: int, stage: Stage, levels: Levels) -> None:
        """Score one frame."""
        if number % self.step:
            return
        found = node_windows(stage, levels, self._lowest(number))
        best = np.argsort(-found.scores, kind="stable")[:KEPT]
        self.windows[number] = FiredWindows(
            found.scale[best], found.y[best], found.x[best], found.boxes[best], found.scores[best]
        )

    def _lowest(self, number: int) -> float:
        """A margin above which there are enough windows, by the frame before."""
        before = self.windows.get(number - self.step)
        if before is None or len(before) < KEPT:
            return -1e3
        return float(before.scores[-1] - 0.2 * (before.scores[0] - before.scores[-1]))


def faces_at(
    windows: dict[int, FiredWindows], truths: Boxes, frame: BoxOffset, false_positives: Sequence[int] = FALSE_POSITIVES
) -> list[float]:
    """Share of the faces that are found with at most so many false positives, over all thresholds.

    Windows above a threshold are merged as Viola and Jones do it, so every threshold has groups of its own. Counts
    of false positives are of the frames that were scored.
    """
    pooled = np.sort(np.concatenate([found.scores for found in windows.values()]))[::-1]
    ranks = np.unique((WINDOWS_A_FRAME * len(windows)).astype(int).clip(0, len(pooled) - 1))
    points = [_point(windows, truths, frame, float(pooled[rank])) for rank in ranks]
    return [max((found for found, wrong in points if wrong <= n), default=0.0) for n in false_positives]


def _point(windows: dict[int, FiredWindows], truths: Boxes, frame: BoxOffset, threshold: float) -> tuple[float, int]:
    """Share of faces found, and false positives, at one threshold."""
    right = wrong = 0
    for number, found in windows.items():
        stands = found.scores > threshold
        if not stands.any():
            continue
        boxes, scores = group_means(found.boxes[stands], found.scores[stands] - threshold)
        labels = match(frame.boxes(boxes), scores, truths[number : number + 1]).labels
        right, wrong = right + int((labels == Label.TRUE).sum()), wrong + int((labels == Label.FALSE).sum())
    return right / len(windows), wrong


def group_means(boxes: Boxes, scores: NDArray[np.float64], iou: float = 0.3) -> tuple[Boxes, NDArray[np.float64]]:
    """Mean boxes and summed scores of windows that overlap directly or in chains, as Viola and Jones (2001) do.

    >>> boxes = np.array([[0, 0, 10, 10], [2, 0, 12, 10], [50, 0, 60, 10]], dtype=np.float64)
    >>> group_means(boxes, np.array([1.0, 3.0, 2.0]))[1]
    array([4., 2.])
    """
    _, group = connected_components(box_iou(boxes, boxes) >= iou, directed=False)
    sums = np.bincount(group, scores).astype(np.float64)
    means = np.stack([np.bincount(group, column) for column in boxes.T], axis=-1) / np.bincount(group)[:, None]
    order = np.lexsort((means[:, 1], means[:, 0], -sums))
    return means[order], sums[order]
