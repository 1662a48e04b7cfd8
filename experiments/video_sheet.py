"""A sheet of frames: a column a frame, a row a method, with the reported box and the true one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.face_tracks import IOU, Boxes, overlaps
from experiments.face_videos import FIRST_OF_PAPER, FaceVideo
from whet.plots.drawing import FALSE_POSITIVE, FOUND, draw_boxes

GreyImage = NDArray[np.uint8]

# Those of the paper's figure; of `david`, 150 and 250 have no true box here, and `trellis` begins later in the paper.
NUMBERS = {
    "david": (350, 409, 450, 494, 592),
    "trellis": tuple(number + FIRST_OF_PAPER["trellis"] - 1 for number in (50, 85, 182, 231, 287, 386, 457)),
}
TRUTH = (250, 250, 250)


def sheet(video: FaceVideo, images: Sequence[GreyImage], boxes: Mapping[str, Boxes]) -> GreyImage:
    """The paper's frames (or those nearest to them), each method's box in green where right and orange where not."""
    distance = np.abs(np.subtract.outer(NUMBERS.get(video.name, video.numbers[:1]), video.numbers))
    columns = distance.argmin(axis=1).tolist()
    rows = [
        np.concatenate([_cell(images[i], of_method[i], video.truths[i]) for i in columns], axis=1)
        for of_method in boxes.values()
    ]
    return np.concatenate(rows)


def _cell(image: GreyImage, box: NDArray[np.float64], truth: NDArray[np.float64]) -> GreyImage:
    drawn = draw_boxes(image, truth[None], TRUTH, width=1)
    if not np.isfinite(box).all():
        return drawn
    is_right = overlaps(box[None], truth[None])[0] > IOU
    return draw_boxes(drawn, box[None], FOUND if is_right else FALSE_POSITIVE, width=3)
