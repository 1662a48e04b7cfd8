"""What a detector found in a picture."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


def _no_indices() -> Indices:
    return np.empty(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class FiredWindows:
    """Windows that a cascade accepted, before they were merged: where in which level, as boxes (n, 4), and margins.

    `scale` (n,) is the scale of the level, as `pyramid.level_at` takes it; `y` and `x` (n,) are pixels of the level.
    """

    scale: Floats = field(default_factory=lambda: np.empty(0))
    y: Indices = field(default_factory=_no_indices)
    x: Indices = field(default_factory=_no_indices)
    boxes: Floats = field(default_factory=lambda: np.empty((0, 4)))
    scores: Floats = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, eq=False)
class Detections:
    """Boxes (N, 4) as x1, y1, x2, y2 in pixels, half-open, and scores (N,), best first.

    `windows` are all windows that fired, and `group` (windows,) the detection that each of them belongs to, or -1
    if it was left out. That tells which windows a false alarm consists of.

    >>> found = Detections(np.array([[10.0, 20.0, 34.0, 44.0]]), np.array([2.5]))
    >>> len(found), found
    (1, Detections(1: 24 x 24 at (10, 20) scores 2.5))
    >>> Detections().boxes.shape
    (0, 4)
    """

    boxes: Floats = field(default_factory=lambda: np.empty((0, 4)))
    scores: Floats = field(default_factory=lambda: np.empty(0))
    windows: FiredWindows = field(default_factory=FiredWindows)
    group: Indices = field(default_factory=_no_indices)

    def __post_init__(self) -> None:
        if self.boxes.shape != (len(self.scores), 4) or len(self.group) != len(self.windows):
            raise ValueError(f"got boxes {self.boxes.shape} and scores {self.scores.shape}; expected (N, 4) and (N,)")
        if (np.diff(self.scores) > 0).any():
            raise ValueError("scores must not rise: sort detections by score, best first")

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        boxes = (
            f"{x2 - x1:.0f} x {y2 - y1:.0f} at ({x1:.0f}, {y1:.0f}) scores {score:.3g}"
            for (x1, y1, x2, y2), score in zip(self.boxes[:5], self.scores[:5], strict=True)
        )
        more = ", ..." if len(self) > 5 else ""
        return f"Detections({len(self)}: {', '.join(boxes)}{more})" if len(self) else "Detections(0)"

    def windows_of(self, i: int) -> Indices:
        """Indices into `windows` of those behind detection i."""
        return np.flatnonzero(self.group == i)

    def first(self, n: int) -> Detections:
        """The n best detections."""
        group = np.where(self.group < n, self.group, -1)
        return Detections(self.boxes[:n], self.scores[:n], self.windows, group)

    def above(self, threshold: float) -> Detections:
        """The detections with scores above a threshold: a higher one keeps a subset."""
        return self.first(int((self.scores > threshold).sum()))
