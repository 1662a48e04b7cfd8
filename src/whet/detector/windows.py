"""From boxes that a user has drawn to windows that a scan looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.cascade.boxes import box_iou, checked_boxes
from whet.cascade.cascade import Cascade
from whet.cascade.detect import windows_of_levels
from whet.cascade.detections import FiredWindows
from whet.cascade.pyramid import Level, level_scales, levels_at
from whet.detector.journal import Places
from whet.detector.reporting import Frame
from whet.errors import BoxError

Boxes = NDArray[np.float64]
Grey = NDArray[np.uint8]

# A window that has less in common with a box does not show what the box shows.
LEAST_OVERLAP = 0.5
# Beyond any image; products of such numbers are still far from the largest float.
FARTHEST_PIXEL = 1e9


@dataclass(frozen=True, eq=False)
class ImageWindows:
    """The levels of an image at which a cascade's windows are moved by `step` pixels.

    >>> windows = ImageWindows.from_image(np.zeros((50, 60), np.uint8), (24, 24), scale_factor=1.5)
    >>> near = windows.nearest(np.array([10.0, 8.0, 45.0, 44.0]), Frame())
    >>> near.scale, near.y, near.x
    (array([1.5]), array([5]), array([6]))
    >>> windows.cut(near).shape
    (1, 24, 24)
    """

    shape: tuple[int, ...]
    window: tuple[int, int]
    scales: tuple[float, ...]
    levels: tuple[Level, ...]
    scale_factor: float
    step: int

    @classmethod
    def from_image(
        cls,
        grey: Grey,
        window: tuple[int, int],
        scale_factor: float,
        step: int = 1,
        sizes: tuple[float | None, float | None] = (None, None),
        threads: int | None = None,
    ) -> ImageWindows:
        """The levels that `detect` scans with this factor and step, and windows from the first size to the second."""
        if step < 1:
            raise ValueError(f"got step={step}; windows are at least 1 pixel apart")
        scales = level_scales(grey.shape, window, scale_factor, *sizes)
        if not scales:
            raise BoxError(
                f"the image has {grey.shape[1]} x {grey.shape[0]} pixels, too few for the window's {window[1]} x "
                f"{window[0]} between these sizes: there is nothing in it that could be learned"
            )
        return cls(grey.shape, window, tuple(scales), tuple(levels_at(grey, scales, threads)), scale_factor, step)

    def fired(self, cascade: Cascade, threads: int | None = None) -> FiredWindows:
        """The windows that a cascade accepts."""
        return windows_of_levels(cascade, self.levels, self.scales, step=self.step, threads=threads)

    def nearest(self, box: Boxes, frame: Frame) -> Places:
        """The window for a box (4,): nearest in the logarithm of its scale, and then in place.

        Raises `BoxError` where it has less than half in common with the box.
        """
        level, y, x = self._nearest(frame.windows(box[None])[0])
        found = Places(np.array([self.scales[level]]), np.array([y]), np.array([x]))
        ours = frame.boxes(self.levels[level].boxes(found.y, found.x, self.window))
        if not box_iou(box[None], ours)[0, 0] >= LEAST_OVERLAP:
            raise BoxError(self._fault(box, ours[0], frame))
        return found

    def cut(self, places: Places) -> Grey:
        """The windows (n, height, width) themselves."""
        height, width = self.window
        where = zip(places.scale.tolist(), places.y.tolist(), places.x.tolist(), strict=True)
        cut = [self._level(scale).image[y : y + height, x : x + width] for scale, y, x in where]
        return np.array(cut, np.uint8).reshape(-1, height, width)

    def _level(self, scale: float) -> Level:
        return self.levels[self.scales.index(scale)]

    def _nearest(self, window: Boxes) -> tuple[int, int, int]:
        height, width = self.window
        size = (window[2] - window[0]) * (window[3] - window[1]) / (height * width)
        number = int(np.argmin(abs(np.log(self.scales) - np.log(size) / 2)))
        level = self.levels[number]
        centre_x, centre_y = (window[0] + window[2]) / 2 / level.scale_x, (window[1] + window[3]) / 2 / level.scale_y
        rows, columns = level.image.shape
        return number, self._place(centre_y, height, rows), self._place(centre_x, width, columns)

    def _place(self, centre: float, length: int, side: int) -> int:
        """The start of the window of this length around a centre: a multiple of the step, inside."""
        last = (side - length) // self.step
        return int(np.clip(round((centre - length / 2) / self.step), 0, last)) * self.step

    def _fault(self, box: Boxes, ours: Boxes, frame: Frame) -> str:
        height, width = (float(length * size) for length, size in zip(self.window, frame.size, strict=True))
        return (
            f"got the box {box.tolist()}, and the nearest that this detector could report in an image of "
            f"{self.shape[1]} x {self.shape[0]} is {ours.round(1).tolist()}: they have too little in common; "
            f"expected a box of about {width:g} x {height:g} pixels or larger, of that shape, inside the image"
        )


def checked(boxes: ArrayLike, labels: ArrayLike, shape: tuple[int, ...]) -> tuple[Boxes, NDArray[np.bool_]]:
    """Boxes (n, 4) with some area in an image (height, width), and labels (n,); or an error that says why not."""
    try:
        array = checked_boxes(boxes)
    except (TypeError, ValueError) as error:
        raise BoxError(str(error)) from error
    height, width = shape
    inside = np.minimum(array[:, 2:], [width, height]) - np.maximum(array[:, :2], 0)
    for i in range(len(array)):
        if (array[i, 2:] <= array[i, :2]).any():
            raise BoxError(f"boxes[{i}] is {array[i].tolist()} and has no area; expected x1 < x2 and y1 < y2")
        if (inside[i] <= 0).any() or (abs(array[i]) > FARTHEST_PIXEL).any():
            raise BoxError(f"boxes[{i}] is {array[i].tolist()}, outside the image of {width} x {height} pixels")
    flags: NDArray[Any] = np.asarray(labels)
    if flags.shape != (len(array),):
        raise ValueError(f"got labels of shape {flags.shape} for {len(array)} boxes; expected one for each")
    if not np.isin(flags, (0, 1)).all():
        raise ValueError("a label is True (the object) or False (not the object)")
    return array, flags.astype(np.bool_)
