"""The window of a detector, chosen from boxes; and the shapes of a class whose boxes do not fit one window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log, sqrt

import numpy as np

from whet.arrays import Boxes, Floats, Indices
from whet.errors import TrainingDataError
from whet.evaluation.advice import FEWEST_IN_SHAPE, MANY_MISFITS
from whet.images.boxes import BoxOffset, checked_boxes
from whet.models.channels.channels import CELL
from whet.training.config import MOST_SHAPES

# A larger aspect ratio would give a window only a few pixels wide.
LONGEST = 6.0
# Wider or higher objects are fitted by their longer side, others by their area.
LONG = 1.25
# Grey windows: the side of the 24 x 24 window of Viola and Jones (the number of features grows with the square of the
# area), and the least at which an object is recognisable.
GREY_SIDE, LEAST_GREY_SIDE = 24.0, 12.0
# Windows of cells: side of a square object, smaller where images would have to be enlarged more than twice; context on
# each side, as a share of the square root of the area; percentages of the objects that may be too small for the
# window, and for the largest level of a pyramid.
CELL_SIDE, MOST_ENLARGED = 48.0, 2.0
CONTEXT = 0.2
SMALL, SMALLEST = 5.0, 2.0


@dataclass(frozen=True)
class WindowChoice:
    """A window (height, width), the box of the object in it, and the boxes that it was chosen from.

    `aspect` is the median width over height of the boxes; 80 % lie between `aspect_low` and `aspect_high`. `misfits`
    is the share of the boxes with another shape: their IoU with the object of the window around them is below 0.5.
    `min_size` is the longer side of the smallest objects to find, in pixels of an image: enlarged, they fill the
    object of the window. None: images are not enlarged. A window that `holds` its box has all of it inside.
    """

    height: int
    width: int
    box_offset: BoxOffset
    n_boxes: int
    aspect: float
    aspect_low: float
    aspect_high: float
    min_size: float | None = None
    misfits: float = 0.0
    holds: bool = False

    def __str__(self) -> str:
        height, width = self.object_size
        return (
            f"{self.width} x {self.height} window for objects of {width:.0f} x {height:.0f}, "
            f"from {self.n_boxes:,} boxes, aspect {self.aspect:.2g} ({self.aspect_low:.2g} to {self.aspect_high:.2g})"
            + (f"; {self.misfits:.0%} of the boxes have too different a shape" if self.misfits >= MANY_MISFITS else "")
        )

    @property
    def window(self) -> tuple[int, int]:
        """Height and width, in the order of features and detectors."""
        return self.height, self.width

    @property
    def object_size(self) -> tuple[float, float]:
        """Height and width of the object in the window."""
        rows, columns = self.box_offset.size
        return self.height * rows, self.width * columns

    @property
    def least_window(self) -> float | None:
        """The longer side of the smallest windows to scan, in pixels of an image; None: the window's own."""
        return None if self.min_size is None else self.min_size * max(self.window) / max(self.object_size)

    def windows(self, boxes: Boxes) -> Boxes:
        """The window (n, 4) around each box (n, 4).

        >>> square = WindowChoice(24, 24, BoxOffset(), 1, 1.0, 1.0, 1.0, holds=True)
        >>> square.windows(np.array([[10.0, 20.0, 30.0, 60.0]]))
        array([[ 0., 20., 40., 60.]])
        """
        half = self._scales(boxes[:, 2:] - boxes[:, :2])[:, None] * [self.width, self.height] / 2
        centre = (boxes[:, :2] + boxes[:, 2:]) / 2
        return np.concatenate([centre - half, centre + half], axis=1)

    def fit(self, sizes: Floats) -> Floats:
        """IoU (n,) of boxes of widths and heights (n, 2) with the objects of the windows around them."""
        objects = self._scales(sizes)[:, None] * self.object_size[::-1]
        common = np.minimum(sizes, objects).prod(axis=1)
        return np.asarray(common / (sizes.prod(axis=1) + objects.prod(axis=1) - common))

    def _scales(self, sizes: Floats) -> Floats:
        """Scales (n,) of windows that hold their boxes; or else by the longer side of long objects, or by area."""
        height, width = self.object_size
        shares = sizes / [width, height]
        if self.holds:
            return np.asarray(shares.max(axis=1))
        if width > LONG * height:
            return np.asarray(shares[:, 0])
        if height > LONG * width:
            return np.asarray(shares[:, 1])
        return np.asarray(np.sqrt(shares.prod(axis=1)))


def grey_window(boxes: Boxes, margin: float | None = None, window: tuple[int, int] | None = None) -> WindowChoice:
    """A window of pixels for boxes (n, 4): their median aspect ratio and 24 x 24 pixels, or fewer for small objects.

    >>> cars = np.array([[0.0, 0.0, 100.0, 40.0]] * 50)
    >>> print(grey_window(cars, margin=0.0))
    38 x 15 window for objects of 38 x 15, from 50 boxes, aspect 2.5 (2.5 to 2.5)
    """
    sizes = _sizes(boxes)
    # The context on each side, as a share of the box.
    margin = 0.1 if margin is None else margin
    aspect, low, middle, high = _aspects(sizes)
    # The window grows around the box to this aspect ratio; that size decides which objects are small.
    grown = np.sqrt(np.maximum(sizes[:, 0] / aspect, sizes[:, 1]) ** 2 * aspect) * (1 + 2 * margin)
    side = min(GREY_SIDE, max(float(np.percentile(grown, 10.0)), LEAST_GREY_SIDE))
    height, width = window or (round(side / sqrt(aspect)), round(side * sqrt(aspect)))
    inset = margin / (1 + 2 * margin)
    offset = BoxOffset(inset, inset, 1 - inset, 1 - inset)
    return _measured(WindowChoice(height, width, offset, len(sizes), middle, low, high, holds=True), sizes)


def cell_window(boxes: Boxes, margin: float | None = None, window: tuple[int, int] | None = None) -> WindowChoice:
    """A window of whole cells for boxes (n, 4), with a margin as a share of the object; or fitted into a `window`.

    >>> print(cell_window(np.array([[0.0, 0.0, 50.0, 100.0]] * 50)))
    52 x 88 window for objects of 34 x 68, from 50 boxes, aspect 0.5 (0.5 to 0.5)
    """
    sizes = _sizes(boxes)
    aspect, low, middle, high = _aspects(sizes)
    sides = np.sqrt(sizes.prod(axis=1))
    side = min(CELL_SIDE, MOST_ENLARGED * float(np.percentile(sides, SMALL)))
    inner = side / sqrt(aspect), side * sqrt(aspect)
    context = [CONTEXT * side if margin is None else margin * length for length in inner]
    lengths = [length + 2 * more for length, more in zip(inner, context, strict=True)] if window is None else window
    # Cells on a side are more than the padding of levels.
    height, width = (CELL * max(9, round(length / CELL)) for length in lengths)
    if window is not None:
        share = 1 + 2 * (CONTEXT if margin is None else margin)
        scale = min(height / (inner[0] * share), width / (inner[1] * share))
        side, inner = side * scale, (inner[0] * scale, inner[1] * scale)
    smallest = max(0.9 * float(np.percentile(sides, SMALLEST)), side / MOST_ENLARGED)
    y, x = (1 - inner[0] / height) / 2, (1 - inner[1] / width) / 2
    offset, min_size = BoxOffset(x, y, 1 - x, 1 - y), max(inner) * smallest / side
    return _measured(WindowChoice(height, width, offset, len(sizes), middle, low, high, min_size), sizes)


def _sizes(boxes: Boxes) -> Floats:
    """Widths and heights (n, 2) of boxes (n, 4) with an area; an error if there are none."""
    boxes = checked_boxes(boxes)
    sizes = boxes[:, 2:] - boxes[:, :2]
    sizes = sizes[(sizes > 0).all(axis=1)]
    if not len(sizes):
        raise TrainingDataError(
            "no box to choose a window from; expected boxes of one class, better 200 or more: add annotated images"
        )
    return np.asarray(sizes)


def _aspects(sizes: Floats) -> tuple[float, float, float, float]:
    """Width over height for the window; and what 10, 50 and 90 % of the boxes stay below."""
    low, middle, high = np.percentile(np.log(sizes[:, 0] / sizes[:, 1]), [10, 50, 90]).tolist()
    return exp(min(max(middle, -log(LONGEST)), log(LONGEST))), exp(low), exp(middle), exp(high)


def _measured(choice: WindowChoice, sizes: Floats) -> WindowChoice:
    # Boxes whose IoU with the object of the window stays below this cannot be found.
    return replace(choice, misfits=float((choice.fit(sizes) < 0.5).mean()))


# --- Shapes -----------------------------------------------------------------------------------------------------------

# Rounds of k-means, far more than so few groups need.
ROUNDS = 100

ChooseWindow = Callable[[Boxes], WindowChoice]


@dataclass(frozen=True)
class Shapes:
    """The windows of the shapes of a class, by rising aspect ratio (width over height), and what they are chosen by.

    `misfits_of_one` is the share of boxes that cannot be found because of their shape, with one window. `spread` is the
    share of the variance of log aspect ratios that is left within the shapes.
    """

    aspects: tuple[float, ...]
    windows: tuple[WindowChoice, ...]
    misfits_of_one: float = 0.0
    spread: float = 0.0

    def __len__(self) -> int:
        return len(self.aspects)

    def __str__(self) -> str:
        parts = zip(self.n_boxes, self.aspects, strict=True)
        shapes = " and ".join(f"{n:,} of {aspect:.2g}" for n, aspect in parts)
        return (
            f"{len(self)} by the shape of the boxes, width over height: {shapes}; {self.misfits_of_one:.0%} of the "
            f"boxes have too different a shape for one window, {self.misfits:.0%} for these"
        )

    @property
    def n_boxes(self) -> tuple[int, ...]:
        """Boxes of each shape."""
        return tuple(choice.n_boxes for choice in self.windows)

    @property
    def misfits(self) -> float:
        """The share of boxes that cannot be found because of their shape."""
        return sum(choice.misfits * choice.n_boxes for choice in self.windows) / sum(self.n_boxes)

    @property
    def are_apart(self) -> bool:
        """Whether boxes of different shapes differ clearly: boxes of evenly spread shapes would differ less."""
        return self.spread < 1 / len(self) ** 2

    def shape_of(self, boxes: Boxes) -> Indices:
        """The number (n,) of the shape that each of the boxes (n, 4) belongs to: that of the nearest aspect ratio."""
        distance = abs(log_aspects(boxes)[:, None] - np.log(self.aspects))
        return np.asarray(distance.argmin(axis=1))

    @classmethod
    def from_boxes(cls, boxes: Boxes, n_shapes: int, choose: ChooseWindow = cell_window) -> Shapes:
        """Group boxes (n, 4) by the logarithm of their aspect ratios (k-means)."""
        whole = choose(boxes)  # or an error that there are no boxes
        if n_shapes == 1:
            return cls((whole.aspect,), (whole,), whole.misfits)
        aspects = log_aspects(boxes)
        centres = np.quantile(aspects, (np.arange(n_shapes) + 0.5) / n_shapes)
        for _ in range(ROUNDS):
            shape = abs(aspects[:, None] - centres).argmin(axis=1)
            means = [aspects[shape == k].mean() if (shape == k).any() else centres[k] for k in range(n_shapes)]
            centres = np.array(means)
        shape = abs(aspects[:, None] - centres).argmin(axis=1)
        used = np.unique(shape).tolist()
        windows = tuple(choose(boxes[shape == k]) for k in used)
        spread = float(np.mean((aspects - centres[shape]) ** 2) / max(aspects.var(), 1e-9))
        return cls(tuple(np.exp(centres[used]).tolist()), windows, whole.misfits, spread)


def choose_shapes(boxes: Boxes, n_shapes: int | None = None, choose: ChooseWindow = cell_window) -> Shapes:
    """The shapes of a class with these boxes (n, 4): as many as asked for, or as few as fit nearly all boxes.

    Automatically, there are several only if one window fits fewer than 95 % of the boxes, if their shapes are apart,
    and if each has 40 boxes.

    >>> tall, wide = np.array([[0.0, 0, 40, 100]] * 50), np.array([[0.0, 0, 100, 40]] * 60)
    >>> print(choose_shapes(np.concatenate([tall, wide])))
    2 by the shape of the boxes, width over height: 50 of 0.4 and 60 of 2.5; 45% of the boxes have too different ...
    >>> len(choose_shapes(tall))
    1
    """
    if n_shapes is not None:
        return Shapes.from_boxes(boxes, n_shapes, choose)
    best = Shapes.from_boxes(boxes, 1, choose)
    for n in range(2, MOST_SHAPES + 1):
        if best.misfits < MANY_MISFITS:
            break
        shapes = Shapes.from_boxes(boxes, n, choose)
        if shapes.are_apart and min(shapes.n_boxes) >= FEWEST_IN_SHAPE:
            best = shapes
    return best


def log_aspects(boxes: Boxes) -> Floats:
    """Logarithms (n,) of width over height of boxes (n, 4)."""
    size = boxes[:, 2:] - boxes[:, :2]
    return np.asarray(np.log(size[:, 0] / size[:, 1]))
