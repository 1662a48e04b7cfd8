"""`CascadeClassifier` with the methods, arguments and results of OpenCV 4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.errors import CascadeFileError, EmptyClassifierError
from whet.opencv.cascade import OpenCVCascade
from whet.opencv.scan import Grouped, grey_of, group_rectangles, scales_between, scan_levels
from whet.opencv.xml import read_opencv

FEATURE_TYPES = {"HAAR": 0, "LBP": 1}

Size = Sequence[int] | None
# OpenCV returns an empty tuple if it finds nothing.
Boxes = NDArray[np.int32] | tuple[()]
Counts = NDArray[np.int32] | tuple[()]
Weights = NDArray[np.float64] | tuple[()]


class CascadeClassifier:
    """A replacement for `cv2.CascadeClassifier` that reads XML files in the new format (Haar or LBP) and the old one.

    As in OpenCV, an invalid file leaves the classifier empty; `whet.opencv.read_opencv` raises an error that names the
    cause. `threads` is the number of threads (default: all); results do not depend on it.

    >>> faces = CascadeClassifier("missing.xml")
    >>> faces.empty()
    True
    """

    def __init__(self, filename: str | Path | None = None, *, threads: int | None = None) -> None:
        self.cascade: OpenCVCascade | None = None
        self.threads = threads
        if filename is not None:
            self.load(filename)

    def load(self, filename: str | Path) -> bool:
        """Read a file; returns False, and leaves the classifier empty, if it is not a cascade."""
        try:
            self.cascade = read_opencv(filename)
        except CascadeFileError:
            self.cascade = None
        return not self.empty()

    def empty(self) -> bool:
        """Return whether no cascade is loaded."""
        return self.cascade is None

    def getOriginalWindowSize(self) -> tuple[int, int]:  # noqa: N802 - OpenCV's names
        """Return the width and height of the training windows."""
        height, width = self._loaded().window
        return width, height

    def getFeatureType(self) -> int:  # noqa: N802
        """Return 0 for Haar features, 1 for local binary patterns."""
        return FEATURE_TYPES[self._loaded().family]

    def isOldFormatCascade(self) -> bool:  # noqa: N802
        """Return False: like OpenCV 4, whet converts old files when it reads them."""
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
        """Detect objects in a grey or BGR image; returns boxes (n, 4) as x, y, width, height, or `()` if none.

        Windows grow by `scaleFactor`. More than `minNeighbors` similar windows become one box; 0 returns every window.
        Sizes are (width, height). `flags` are ignored, as in OpenCV 4.
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
        """Return boxes, and the number of windows behind each box."""
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
        """Return boxes, the number of stages passed (all of them, as in OpenCV 4), and the sums of the last stage.

        The sum of a box is the maximum over its windows. Without `outputRejectLevels`, levels and weights are empty;
        OpenCV raises an error instead if it finds an object.
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
            raise EmptyClassifierError("the classifier is empty; load a cascade and check that `load` returns True")
        return self.cascade


def _checked(image: Any) -> NDArray[np.uint8]:  # noqa: ANN401 - whatever a script passes
    """Check for uint8 and 1, 3 or 4 channels; None, which `imread` returns for a missing file, is an empty image."""
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
    """Clip boxes to the image: rounding can move a window beyond its edges."""
    x, y, width, height = found.boxes.T
    left, top = np.maximum(x, 0), np.maximum(y, 0)
    right, bottom = np.minimum(x + width, shape[1]), np.minimum(y + height, shape[0])
    kept = (right > left) & (bottom > top)
    boxes = np.stack([left, top, right - left, bottom - top], axis=-1)
    return Grouped(boxes[kept].astype(np.int32), found.counts[kept], found.score[kept])


def _or_nothing(values: NDArray[Any]) -> Any:  # noqa: ANN401
    return values if len(values) else ()
