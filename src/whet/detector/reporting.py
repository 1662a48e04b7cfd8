"""What a detector reports: which box for a window, and from which score on.

None of it decides what the base answers to a patch, so it is no part of the base's id; but it is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, isnan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.float64]

# A box may reach beyond its window, but not be a different thing altogether.
FARTHEST = (-2.0, 3.0)
MOST_POINTS = 100
LONGEST_NAME = 100
# The operating point that is used where none is asked for.
DEFAULT_POINT = "default"


class Frame(NamedTuple):
    """The box that is reported for a window, as fractions of the window from its left and top.

    A window may show less than what people call the object: a face detector sees from eyebrows to mouth, and its
    boxes are expected to hold the whole head.

    >>> wider = Frame(-0.25, 0.0, 1.25, 1.0)
    >>> wider.boxes(np.array([[10.0, 10.0, 30.0, 30.0]]))
    array([[ 5., 10., 35., 30.]])
    >>> wider.windows(wider.boxes(np.array([[10.0, 10.0, 30.0, 30.0]])))
    array([[10., 10., 30., 30.]])
    """

    left: float = 0.0
    top: float = 0.0
    right: float = 1.0
    bottom: float = 1.0

    def check(self) -> None:
        """Raise ValueError unless this is a box, and near its window."""
        lowest, highest = FARTHEST
        inside = all(isfinite(side) and lowest <= side <= highest for side in self)
        if not (inside and self.left < self.right and self.top < self.bottom):
            raise ValueError(
                f"got the frame {tuple(self)}; expected left < right and top < bottom, as fractions of the window "
                f"from {lowest:g} to {highest:g}: (0, 0, 1, 1) is the window itself"
            )

    @property
    def size(self) -> tuple[float, float]:
        """Height and width of the box, in windows."""
        return self.bottom - self.top, self.right - self.left

    def boxes(self, windows: Boxes) -> Boxes:
        """Boxes (n, 4) for windows (n, 4); the mean of boxes is the box of the mean."""
        if self == Frame():
            return windows
        corner, extent = windows[:, [0, 1, 0, 1]], (windows[:, 2:] - windows[:, :2])[:, [0, 1, 0, 1]]
        return np.asarray(corner + extent * np.array(self))

    def windows(self, boxes: Boxes) -> Boxes:
        """Windows (n, 4) whose boxes these are (n, 4)."""
        if self == Frame():
            return boxes
        extent = (boxes[:, 2:] - boxes[:, :2]) / self.size[::-1]
        corner = boxes[:, :2] - extent * (self.left, self.top)
        return np.concatenate([corner, corner + extent], axis=1)


@dataclass(frozen=True)
class Reporting:
    """A frame, and named operating points: the score that a detection has to exceed.

    An operating point is about the detector as it was when it was evaluated, with the factor, step and merging that
    were used then; what is learned later moves the scores.

    >>> Reporting(operating_points={"careful": 4.5}).min_score("bold")
    Traceback (most recent call last):
    ValueError: there is no operating point 'bold'; there is: 'careful'
    """

    frame: Frame = field(default_factory=Frame)
    operating_points: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.frame.check()
        if len(self.operating_points) > MOST_POINTS:
            raise ValueError(f"got {len(self.operating_points)} operating points; expected at most {MOST_POINTS}")
        for name, threshold in self.operating_points.items():
            if not _is_name(name):
                raise ValueError(
                    f"got an operating point named {str(name)[:LONGEST_NAME]!r}; expected text of 1 to {LONGEST_NAME} "
                    "characters that can be printed, none of them a space at the ends"
                )
            if not isfinite(threshold):
                raise ValueError(f"operating point {name!r} is {threshold}; expected a finite score")

    def min_score(self, wanted: float | str | None) -> float:
        """The score to exceed: a number, that of an operating point, or without either the default point's.

        Where there is no default point, every detection stands: -inf.
        """
        if wanted is None:
            return self.operating_points.get(DEFAULT_POINT, -inf)
        if not isinstance(wanted, str):
            if isnan(wanted):
                raise ValueError("got min_score=nan; expected a score, the name of an operating point, or None")
            return wanted
        return self._named(wanted)

    def _named(self, name: str) -> float:
        if name not in self.operating_points:
            there = ", ".join(map(repr, sorted(self.operating_points))) or "none; set one, or give a number"
            raise ValueError(f"there is no operating point {name!r}; there is: {there}")
        return self.operating_points[name]

    def with_point(self, name: str, threshold: float | None) -> Reporting:
        """The same with one more operating point, or with another score for it; None takes it away."""
        others = {other: score for other, score in self.operating_points.items() if other != name}
        return replace(self, operating_points=others if threshold is None else others | {name: float(threshold)})


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isprintable() and name.strip() == name and 0 < len(name) <= LONGEST_NAME
