"""Face detectors on MIT+CMU by one rule: the same pictures, one convention of boxes, overlap above one half.

A detector's window is smaller than an annotated face. OpenCV's is 0.90 of the annotated width and 0.81 of the height,
with the midpoint of the eyes at 0.39 of its own height; the annotators' landmarks have it at 0.375 of theirs (median
of 511). Both together say where the annotated face lies around a window; no detection was looked at for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whet.detect.detect import MERGE, Merge, detect
from whet.detect.pyramid import FACTOR
from whet.evaluate.curves import Curve
from whet.evaluate.evaluation import Evaluation, evaluate
from whet.io.images import read_grey
from whet.io.mit_cmu import labelled_pictures
from whet.model.cascade import Cascade
from whet.model.reporting import Frame

Boxes = NDArray[np.float64]
Picture = NDArray[np.uint8]
Found = tuple[Boxes, NDArray[np.float64]]
Convention = Literal["raw", "framed"]

WIDTH, HEIGHT = 0.90, 0.81
EYES_IN_WINDOW, EYES_IN_FACE = 0.39, 0.375
TOP = EYES_IN_WINDOW - EYES_IN_FACE / HEIGHT
# The annotated face around a window: the eyes stay where they are.
FRAME = Frame(0.5 - 0.5 / WIDTH, TOP, 0.5 + 0.5 / WIDTH, TOP + 1 / HEIGHT)


@dataclass(frozen=True, eq=False)
class Trial:
    """Pictures in memory and the true boxes of their faces."""

    pictures: tuple[Picture, ...]
    truths: tuple[Boxes, ...]

    @classmethod
    def of_mit_cmu(cls) -> Trial:
        """All 130 pictures and 511 faces; raises `DataNotFoundError` where they are not on this machine."""
        labelled = labelled_pictures()
        return cls(tuple(read_grey(one.path) for one in labelled), tuple(one.boxes for one in labelled))

    @property
    def n_truths(self) -> int:
        """Faces in all pictures."""
        return sum(map(len, self.truths))

    def judge(self, found: Sequence[Found], convention: Convention = "framed") -> Evaluation:
        """Judge boxes and scores of each picture; `framed` ones are windows, to be widened to faces."""
        frame = FRAME if convention == "framed" else Frame()
        framed_boxes = [(frame.boxes(np.asarray(boxes)), scores) for boxes, scores in found]
        return evaluate(framed_boxes, [(truths, None) for truths in self.truths])

    def run(
        self,
        cascade: Cascade,
        *,
        factor: float = FACTOR,
        merge: Merge = MERGE,
        threads: int | None = None,
    ) -> Evaluation:
        """Run a cascade of ours over all pictures, step 1, and judge its framed windows."""
        found = (detect(cascade, picture, factor=factor, merge=merge, threads=threads) for picture in self.pictures)
        return self.judge([(one.boxes, one.scores) for one in found])


def faces_at(curve: Curve, false_alarms: Sequence[int]) -> list[int]:
    """Most faces found with at most so many false alarms.

    >>> from whet.evaluate.curves import sweep
    >>> faces_at(sweep([3.0, 2.0, 1.0], [1, 0, 1], n_truths=2, n_pictures=1), [0, 1])
    [1, 2]
    """
    steps = np.searchsorted(curve.false_alarms, np.asarray(false_alarms), side="right") - 1
    return [int(found) for found in curve.found[steps]]
