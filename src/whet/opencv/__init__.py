"""OpenCV's cascade classifier without OpenCV: change the import, and a script keeps its results.

`from whet import opencv as cv2` gives `cv2.CascadeClassifier` with the methods, the arguments and the answers of
OpenCV 4: the same windows, the same boxes, from the same XML files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.errors import CascadeFileError, EmptyClassifierError
from whet.opencv.cascade import OpenCVCascade
from whet.opencv.export import write_opencv as write_opencv
from whet.opencv.scan import Grouped, grey_of, group_rectangles, scales_between, scan_levels
from whet.opencv.xml import read_opencv as read_opencv

# OpenCV 4 takes these flags and does nothing with them; neither does whet.
CASCADE_DO_CANNY_PRUNING = 1
CASCADE_SCALE_IMAGE = 2
CASCADE_FIND_BIGGEST_OBJECT = 4
CASCADE_DO_ROUGH_SEARCH = 8

FEATURE_TYPES = {"HAAR": 0, "LBP": 1}

Size = Sequence[int] | None
# OpenCV's answer where nothing was found is an empty tuple.
Boxes = NDArray[np.int32] | tuple[()]
Counts = NDArray[np.int32] | tuple[()]
Weights = NDArray[np.float64] | tuple[()]


class CascadeClassifier:
    """A cascade read from an OpenCV XML file, in the new format (Haar or LBP) or the old one.

    A file that is none leaves the classifier empty, as in OpenCV; `read_opencv` says what is wrong with it.
    `threads` is the number of threads of a detection, of which no result depends; None takes all.

    >>> faces = CascadeClassifier("nothing.xml")
    >>> faces.empty()
    True
    """

    def __init__(self, filename: str | Path | None = None, *, threads: int | None = None) -> None:
        self.cascade: OpenCVCascade | None = None
        self.threads = threads
        if filename is not None:
            self.load(filename)

    def load(self, filename: str | Path) -> bool:
        """Read a file; False, and an empty classifier, if it is no cascade."""
        try:
            self.cascade = read_opencv(filename)
        except CascadeFileError:
            self.cascade = None
        return not self.empty()

    def empty(self) -> bool:
        """Whether there is no cascade."""
        return self.cascade is None

    def getOriginalWindowSize(self) -> tuple[int, int]:  # noqa: N802 - OpenCV's names
        """Width and height of the windows that the cascade was trained on."""
        height, width = self._loaded().window
        return width, height

    def getFeatureType(self) -> int:  # noqa: N802
        """0 for Haar features, 1 for local binary patterns."""
        return FEATURE_TYPES[self._loaded().family]

    def isOldFormatCascade(self) -> bool:  # noqa: N802
        """False: OpenCV 4 converts old files as it reads them, and so does whet."""
        self._loaded()
        return False

    def detectMultiScale(  # noqa: N802
        self,
        image: NDArray[np.uint8] | None,
        scaleFactor: float = 1.1,
        minNeighbors: int = 3,
        flags: int = 0,
        minSize: Size = None,
        maxSize: Size = None,
    ) -> Boxes:
        """Boxes (n, 4), x, y, width and height, of the objects in a grey or BGR image; `()` if there are none.

        Windows grow by `scaleFactor`; groups of more than `minNeighbors` similar windows become one box, and 0 keeps
        every window. Sizes are (width, height). OpenCV 4 ignores the `flags`.
        """
        del flags
        boxes: Boxes = _or_nothing(self._detect(image, scaleFactor, minNeighbors, minSize, maxSize).boxes)
        return boxes

    def detectMultiScale2(  # noqa: N802
        self,
        image: NDArray[np.uint8] | None,
        scaleFactor: float = 1.1,
        minNeighbors: int = 3,
        flags: int = 0,
        minSize: Size = None,
        maxSize: Size = None,
    ) -> tuple[Boxes, Counts]:
        """Boxes, and how many windows each of them was made of."""
        del flags
        found = self._detect(image, scaleFactor, minNeighbors, minSize, maxSize)
        return _or_nothing(found.boxes), _or_nothing(found.counts)

    def detectMultiScale3(  # noqa: N802
        self,
        image: NDArray[np.uint8] | None,
        scaleFactor: float = 1.1,
        minNeighbors: int = 3,
        flags: int = 0,
        minSize: Size = None,
        maxSize: Size = None,
        outputRejectLevels: bool = False,
    ) -> tuple[Boxes, Counts, Weights]:
        """Boxes, the stages that they passed (OpenCV 4 reports those that passed all), and sums in the last stage.

        A box has the greatest sum of its windows. Without `outputRejectLevels` OpenCV raises as soon as it finds
        anything; here levels and weights are empty.
        """
        del flags
        if not outputRejectLevels:
            return self.detectMultiScale(image, scaleFactor, minNeighbors, 0, minSize, maxSize), (), ()
        found = self._detect(image, scaleFactor, minNeighbors, minSize, maxSize)
        levels = np.full(len(found.boxes), len(self._loaded()), dtype=np.int32)
        return _or_nothing(found.boxes), _or_nothing(levels), _or_nothing(found.score)

    def _detect(
        self,
        image: NDArray[np.uint8] | None,
        factor: float,
        neighbours: int,
        least: Size,
        most: Size,
    ) -> Grouped:
        cascade = self._loaded()
        pixels = _checked(image)
        if not factor > 1:
            raise ValueError(f"got scaleFactor={factor}; expected a number above 1, such as 1.1")
        height, width = pixels.shape[:2]
        smallest, largest = _size(least, "minSize"), _size(most, "maxSize")
        if 0 in largest:
            largest = (width, height)
        scales = scales_between((height, width), cascade.window, factor, smallest, largest)
        found = scan_levels(cascade, grey_of(pixels), scales, self.threads)
        return _clipped(group_rectangles(found.boxes, found.scores, neighbours), (height, width))

    def _loaded(self) -> OpenCVCascade:
        if self.cascade is None:
            raise EmptyClassifierError("the classifier is empty: load a cascade file, and see that `load` gives True")
        return self.cascade


def _checked(image: Any) -> NDArray[np.uint8]:  # noqa: ANN401 - whatever a script passes
    """An image of one, three or four channels; OpenCV takes None, as `imread` gives it, for an empty one."""
    pixels = np.zeros((0, 0), dtype=np.uint8) if image is None else np.asarray(image)
    if pixels.dtype != np.uint8:
        raise ValueError(f"got an image of {image.dtype}; expected uint8")
    if pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (1,), (3,), (4,)):
        raise ValueError(f"got an image of shape {image.shape}; expected (height, width), or 1, 3 or 4 channels")
    return pixels


def _size(size: Size, name: str) -> tuple[int, int]:
    if size is None or not len(size):
        return 0, 0
    if len(size) != 2:
        raise ValueError(f"got {name}={size!r}; expected (width, height)")
    return int(size[0]), int(size[1])


def _clipped(found: Grouped, shape: tuple[int, int]) -> Grouped:
    """Boxes cut at the edges of the image; rounding can put a window beyond them."""
    x, y, width, height = found.boxes.T
    left, top = np.maximum(x, 0), np.maximum(y, 0)
    right, bottom = np.minimum(x + width, shape[1]), np.minimum(y + height, shape[0])
    kept = (right > left) & (bottom > top)
    boxes = np.stack([left, top, right - left, bottom - top], axis=-1)
    return Grouped(boxes[kept].astype(np.int32), found.counts[kept], found.score[kept])


def _or_nothing(values: NDArray[Any]) -> Any:  # noqa: ANN401
    return values if len(values) else ()
