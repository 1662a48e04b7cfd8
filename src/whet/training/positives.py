"""Positives from annotated images: windows sampled like those of a scan, with jitter and mirror images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, cos, exp, log, radians, sin, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whet._kernels.workers import ALL_THREADS, Workers, lost_image
from whet.cascade.boxes import BoxOffset, checked_boxes
from whet.cascade.pyramid import SMALLEST, resized
from whet.errors import TrainingDataError, UnreadableImageError
from whet.io.annotations.annotation import Annotations, Problem, ProblemKind, Problems
from whet.io.images import read_grey

Grey = NDArray[np.uint8]
Floats = NDArray[np.float64]

# Rotated patches are sampled this much finer than the window, then reduced.
FINER = 3
ROUNDING = 1e-6


def moved_inside(window: Floats, shape: tuple[int, ...]) -> Floats:
    """A window (4,) moved inside an image (height, width); centred if it is larger than the image.

    >>> moved_inside(np.array([-5.0, 10.0, 15.0, 110.0]), (80, 60))
    array([  0., -10.,  20.,  90.])
    """
    size, limit = window[2:] - window[:2], np.array(shape[::-1], dtype=np.float64)
    low = np.where(size <= limit, np.clip(window[:2], 0, np.maximum(limit - size, 0)), (limit - size) / 2)
    return np.concatenate([low, low + size])


def cut_window(grey: Grey, box: Floats, window: tuple[int, int], angle: float = 0.0) -> Grey:
    """The part of an image in a box (4,), resized to the window (height, width) and rotated by an angle in degrees.

    The sampling is that of `whet.cascade.pyramid.resized`: a box at a scan window gives exactly that window. Outside
    the image, its edge pixels repeat.
    """
    if angle:
        return _rotated(grey, box, window, angle)
    from PIL import Image

    height, width = window
    scale = (box[2:] - box[:2]) / [width, height]
    # The filter extends one window pixel beyond the box, but not beyond the image.
    reach = np.maximum(np.ceil(scale), 1) + 1
    limit = np.array(grey.shape[1::-1])
    box = _without_rounding(box, limit)
    low, high = np.floor(box[:2] - reach).astype(int), np.ceil(box[2:] + reach).astype(int)
    low = np.where(box[:2] >= 0, np.maximum(low, 0), low)
    high = np.where(box[2:] <= limit, np.minimum(high, limit), high)
    part = _part(grey, low, high)
    size = np.array(part.shape[1::-1], dtype=np.float64)
    x1, y1 = np.clip(box[:2] - low, 0, size).tolist()
    x2, y2 = np.clip(box[2:] - low, 0, size).tolist()
    image = Image.fromarray(np.ascontiguousarray(part))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR, (x1, y1, x2, y2)))


def _without_rounding(box: Floats, limit: NDArray[np.intp]) -> Floats:
    """The box, clipped to the image where it is outside only by rounding."""
    inside = np.clip(box, 0, np.tile(limit, 2))
    return np.where(abs(inside - box) < ROUNDING, inside, box)


def _part(grey: Grey, low: NDArray[np.intp], high: NDArray[np.intp]) -> Grey:
    """Pixels of an image from x, y to x, y; edge pixels repeat outside."""
    rows = np.clip(np.arange(low[1], high[1]), 0, grey.shape[0] - 1)
    columns = np.clip(np.arange(low[0], high[0]), 0, grey.shape[1] - 1)
    inside = grey[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    if inside.shape[:2] == (len(rows), len(columns)):
        return inside
    return inside[np.ix_(rows - rows[0], columns - columns[0])]


def _rotated(grey: Grey, box: Floats, window: tuple[int, int], angle: float) -> Grey:
    from PIL import Image

    height, width = window
    turn, lean = abs(cos(radians(angle))), abs(sin(radians(angle)))
    # Extra window pixels on each side that the corners of the rotated window need.
    more_x = ceil((width * turn + height * lean - width) / 2) + 1
    more_y = ceil((width * lean + height * turn - height) / 2) + 1
    scale = (box[2:] - box[:2]) / [width, height]
    more = np.array([more_x, more_y])
    around = np.concatenate([box[:2] - more * scale, box[2:] + more * scale])
    shape = (height + 2 * more_y) * FINER, (width + 2 * more_x) * FINER
    fine = Image.fromarray(cut_window(grey, around, shape)).rotate(angle, Image.Resampling.BILINEAR)
    x, y = more_x * FINER, more_y * FINER
    inner = np.asarray(fine)[y : y + height * FINER, x : x + width * FINER]
    return resized(np.ascontiguousarray(inner), window)


Boxes = NDArray[np.float64]

# The area of the 24 x 24 window of Viola and Jones. The number of features grows with the square of the area.
PIXELS = 576
# Side of the smallest square window in which an object is recognisable.
LEAST_SIDE = 12.0
# Percentage of the objects that may be smaller than the window.
SMALL = 10.0
# A larger aspect ratio would give a window only a few pixels wide.
LONGEST = 6.0


@dataclass(frozen=True)
class WindowChoice:
    """Height and width of the window, and the number and aspect ratios of the boxes that it was chosen from.

    `aspect` is the median width over height of the boxes; 80 % lie between `aspect_low` and `aspect_high`. `margin` is
    the context on each side, as a share of the box size.

    >>> print(WindowChoice(16, 36, 550, 2.2, 1.9, 2.6))
    36 x 16 window from 550 boxes, aspect 2.2 (1.9 to 2.6)
    """

    height: int
    width: int
    n_boxes: int
    aspect: float
    aspect_low: float
    aspect_high: float
    margin: float = 0.0

    def __str__(self) -> str:
        margin = f", margin {self.margin:g}" if self.margin else ""
        return (
            f"{self.width} x {self.height} window from {self.n_boxes:,} boxes, aspect {self.aspect:.2g} "
            f"({self.aspect_low:.2g} to {self.aspect_high:.2g}){margin}"
        )

    @property
    def window(self) -> tuple[int, int]:
        """Height and width, in the order of features and detectors."""
        return self.height, self.width

    @property
    def box_offset(self) -> BoxOffset:
        """The box to report for a window: the object without the margin."""
        inset = self.margin / (1 + 2 * self.margin)
        return BoxOffset(inset, inset, 1 - inset, 1 - inset)

    def windows(self, boxes: Boxes) -> Boxes:
        """The window (n, 4) around each box (n, 4): the shorter side grows around the centre, so no object is cropped.

        >>> WindowChoice(24, 24, 1, 1.0, 1.0, 1.0).windows(np.array([[10.0, 20.0, 30.0, 60.0]]))
        array([[ 0., 20., 40., 60.]])
        """
        size = (boxes[:, 2:] - boxes[:, :2]) * (1 + 2 * self.margin)
        scale = (size / [self.width, self.height]).max(axis=1, keepdims=True)
        half = scale * [self.width, self.height] / 2
        centre = (boxes[:, :2] + boxes[:, 2:]) / 2
        return np.concatenate([centre - half, centre + half], axis=1)


def window_of(boxes: Boxes, *, pixels: int = PIXELS, margin: float = 0.0) -> WindowChoice:
    """Choose a window from boxes (n, 4): their median aspect ratio, with about `pixels`, or fewer for small objects.

    >>> cars = np.array([[0.0, 0.0, 100.0, 40.0]] * 50)
    >>> print(window_of(cars))
    38 x 15 window from 50 boxes, aspect 2.5 (2.5 to 2.5)
    >>> window_of(np.array([[0.0, 0.0, 80.0, 80.0]])).window
    (24, 24)
    """
    boxes = checked_boxes(boxes)
    size = boxes[:, 2:] - boxes[:, :2]
    size = size[(size > 0).all(axis=1)]
    if not len(size):
        raise TrainingDataError(
            "no box to choose a window from; expected boxes of one class, better 200 or more: add annotated images"
        )
    if not 0 <= margin <= 1:
        raise ValueError(f"got margin={margin}; expected a share of the box size from 0 to 1")
    ratios = np.log(size[:, 0] / size[:, 1])
    low, middle, high = np.percentile(ratios, [10, 50, 90]).tolist()
    aspect = exp(min(max(middle, -log(LONGEST)), log(LONGEST)))
    # The window grows around the box to this aspect ratio; that size decides which objects are small.
    scale = np.sqrt(np.maximum(size[:, 0] / aspect, size[:, 1]) ** 2 * aspect) * (1 + 2 * margin)
    side = min(sqrt(pixels), max(float(np.percentile(scale, SMALL)), LEAST_SIDE))
    return WindowChoice(
        round(side / sqrt(aspect)), round(side * sqrt(aspect)), len(size), exp(middle), exp(low), exp(high), margin
    )


# Mirror images resemble the originals up to this asymmetry.
MOST_ASYMMETRY = 0.1
FEWEST_FOR_ASYMMETRY = 20


def is_safe_to_mirror(patches: Grey) -> bool:
    """Whether mirror images of patches (n, height, width) resemble the patches; False for fewer than 20."""
    return len(patches) >= FEWEST_FOR_ASYMMETRY and asymmetry(patches) < MOST_ASYMMETRY


def asymmetry(patches: Grey) -> float:
    """Share of the left-right difference that all patches (n, height, width) have in common, from 0 to 1.

    It is near 1 for a letter, whose mirror image is another symbol, and near 0 for faces or cars in both directions.

    >>> rng = np.random.default_rng(0)
    >>> letters = np.zeros((50, 8, 8)) + 100 * (np.arange(8) > 3) + rng.integers(0, 20, (50, 8, 8))
    >>> bool(asymmetry(letters.astype(np.uint8)) > 0.9)
    True
    >>> bool(abs(asymmetry(rng.integers(0, 256, (50, 8, 8), dtype=np.uint8))) < 0.1)
    True
    """
    rows = patches.reshape(len(patches), -1).astype(np.float64)
    rows = rows - rows.mean(axis=1, keepdims=True)
    rows /= np.maximum(rows.std(axis=1, keepdims=True), 1e-9)
    normal = rows.reshape(patches.shape)
    odd = (normal - normal[:, :, ::-1]).reshape(len(patches), -1)
    n, total = len(odd), float((odd**2).sum(axis=1).mean())
    if n < 2 or not total > 0:
        return 0.0
    # The squared mean of n random differences is 1/n of their mean square; this correction removes that bias.
    common = float((odd.mean(axis=0) ** 2).sum())
    return (n * common - total) / ((n - 1) * total)


Patches = NDArray[np.uint8]


@dataclass(frozen=True)
class Variations:
    """Random shift, scale, rotation, blur and noise of windows around a box.

    `shift`, `scale` and `angle` are standard deviations: in sides of the box, in the logarithm of its size, and in
    degrees. `noise`, in standard deviations of the window, and `blur`, in window pixels, are upper bounds of uniform
    distributions. The defaults were chosen on faces pasted into other images (docs/opencv.md).

    >>> image = np.tile(np.arange(60, dtype=np.uint8) * 4, (60, 1))
    >>> windows = Variations().cut(image, (15, 15, 45, 45), (24, 24), 4, np.random.default_rng(0))
    >>> windows.shape, windows.dtype
    ((4, 24, 24), dtype('uint8'))
    """

    shift: float = 0.02
    scale: float = 0.05
    angle: float = 7.0
    noise: float = 0.4
    blur: float = 1.0
    mirror: bool = True

    def __post_init__(self) -> None:
        spreads = (self.shift, self.scale, self.angle, self.noise, self.blur)
        if not (np.isfinite(spreads).all() and min(spreads) >= 0):
            raise ValueError(f"got {self}; expected finite numbers of at least 0")

    def cut(
        self, image: Grey, box: Sequence[float], window: tuple[int, int], n: int, rng: np.random.Generator
    ) -> Patches:
        """Windows (n, height, width) of a grey image around a box x1, y1, x2, y2."""
        height, width = image.shape
        x1, y1, x2, y2 = map(float, box)
        if not (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height):
            raise ValueError(f"got the box {list(box)} in an image of {width} x {height}; expected one inside it")
        return np.array([self._one(image, (x1, y1, x2, y2), window, rng) for _ in range(n)], dtype=np.uint8)

    def _one(
        self, image: Grey, box: tuple[float, float, float, float], window: tuple[int, int], rng: np.random.Generator
    ) -> Grey:
        x1, y1, x2, y2 = box
        if self.mirror and rng.random() < 0.5:
            image, x1, x2 = image[:, ::-1], image.shape[1] - x2, image.shape[1] - x1
        sides = np.array([x2 - x1, y2 - y1])
        centre = np.array([x1 + x2, y1 + y2]) / 2 + rng.normal(0, self.shift, 2) * sides
        sides = sides * np.exp(rng.normal(0, self.scale))
        turned = Image.fromarray(image).rotate(
            rng.normal(0, self.angle), Image.Resampling.BILINEAR, center=(float(centre[0]), float(centre[1]))
        )
        room = np.array(turned.size)
        size = np.clip(sides.round().astype(int), 1, room)
        x, y = np.clip((centre - size / 2).round().astype(int), 0, room - size).tolist()
        cut = np.ascontiguousarray(np.asarray(turned)[y : y + size[1], x : x + size[0]])
        return self.grained(resized(cut, window), rng)

    def grained(self, patch: Grey, rng: np.random.Generator) -> Grey:
        """A window (height, width) with blur and noise, as from a worse camera."""
        from scipy.ndimage import gaussian_filter

        soft = gaussian_filter(patch.astype(np.float64), rng.uniform(0, self.blur))
        grain = rng.normal(0, rng.uniform(0, self.noise) * soft.std(), soft.shape)
        return np.asarray((soft + grain).clip(0, 255).round().astype(np.uint8))


# Number of positives to aim for by jittered copies, and the maximum number of copies per object.
WANTED = 1000
MOST_COPIES = 10


@dataclass(frozen=True)
class Jitter:
    """Maximum shift (in windows), scale and rotation (in degrees) of the copies of a positive.

    The defaults match a scan, which sees an object between two places and between two scales a factor of 1.2 apart.
    """

    shift: float = 0.04
    scale: float = 0.09
    rotation: float = 3.0

    def __post_init__(self) -> None:
        if not (0 <= self.shift <= 0.5 and 0 <= self.scale < 1 and 0 <= self.rotation <= 45):
            raise ValueError(
                f"got {self}; expected a shift up to 0.5 windows, a scale below 1 and a rotation up to 45 degrees"
            )

    def draw(self, window: Floats, rng: np.random.Generator) -> tuple[Floats, float]:
        """A window (4,) with random shift and scale, and a random angle in degrees."""
        size = window[2:] - window[:2]
        centre = (window[:2] + window[2:]) / 2 + rng.uniform(-self.shift, self.shift, 2) * size
        half = size * np.exp(rng.uniform(-1, 1) * log(1 + self.scale)) / 2
        return np.concatenate([centre - half, centre + half]), float(rng.uniform(-self.rotation, self.rotation))


@dataclass(frozen=True, eq=False)
class Positives:
    """Patches (n, height, width), the number of the object in each (n,), and objects that could not be cut.

    For a channel detector, `patches` are the filtered channels of the windows (n, 40, rows, columns).

    Pass both to the training (`groups=positives.groups`): all copies and mirror images of one object are then used
    either for training or for validation.
    """

    patches: Grey
    groups: NDArray[np.intp]
    is_mirrored: bool
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.patches)

    @property
    def n_objects(self) -> int:
        """Number of different objects."""
        return len(np.unique(self.groups))

    def __str__(self) -> str:
        mirrored = ", mirror images included" if self.is_mirrored else ""
        return f"{len(self):,} positives of {self.n_objects:,} objects{mirrored}"


def cut_positives(
    annotations: Annotations,
    choice: WindowChoice,
    *,
    copies: int | None = None,
    jitter: Jitter | None = None,
    mirror: bool | str = False,
    seed: int = 0,
    workers: Workers = ALL_THREADS,
    progress: Callable[[float], None] = lambda _: None,
) -> Positives:
    """Cut all objects of a data set (of one class, see `Annotations.select`) to the chosen window.

    Each object gives `copies` patches: the first unchanged, the others with `jitter` (None: as many as give about 1,000
    patches, at most ten). `mirror` adds the mirror image of each; "safe" does so if `is_safe_to_mirror`. Windows are
    moved inside their image; outside it, edge pixels repeat. Objects smaller than half the window are skipped and
    listed in `problems`. The patches of an object depend only on `seed` and on its number.
    """
    images = [image for image in annotations.images if len(image.objects)]
    n_objects = sum(len(image.objects) for image in images)
    if not n_objects:
        raise TrainingDataError(
            "the annotations contain no boxes; check the class (class_name) and the part of the data set (split)"
        )
    if mirror not in (True, False, "safe"):
        raise ValueError(f"got mirror={mirror!r}; expected True, False or 'safe'")
    each = copies_for(n_objects) if copies is None else copies
    cutter = _Cutter(choice, each, Jitter() if jitter is None else jitter, seed)
    firsts = np.cumsum([0, *(len(image.objects) for image in images)])
    problems = Problems()
    patches, groups = [np.empty((0, *choice.window), dtype=np.uint8)], [np.empty(0, dtype=np.intp)]
    paths, objects = zip(*((image.path, image.objects) for image in images), strict=True)
    cuts = workers.map(cutter.cut, paths, objects, map(int, firsts), lost=lost_image)
    for number, (image, cut) in enumerate(zip(images, cuts, strict=True), start=1):
        if isinstance(cut, UnreadableImageError):
            problems.add(ProblemKind.UNREADABLE_IMAGE, image.path, None, str(cut))
        else:
            patches.append(cut.patches)
            groups.append(cut.groups)
            for what in cut.too_small:
                problems.add(ProblemKind.DROPPED_BOX, image.path, None, what)
        progress(number / len(images))
    return _mirrored(np.concatenate(patches), np.concatenate(groups), each, mirror, problems)


def copies_for(n_objects: int) -> int:
    """Number of patches per object.

    >>> copies_for(50), copies_for(400), copies_for(5000)
    (10, 3, 1)
    """
    return min(max(ceil(WANTED / max(n_objects, 1)), 1), MOST_COPIES)


def _mirrored(
    patches: Grey, groups: NDArray[np.intp], copies: int, mirror: bool | str, problems: Problems
) -> Positives:
    if not len(patches):
        first = "; ".join(str(problem) for problem in problems.found[:3])
        raise TrainingDataError(f"no object could be cut from the images: {first}")
    is_mirrored = is_safe_to_mirror(patches[::copies]) if mirror == "safe" else bool(mirror)
    if is_mirrored:
        patches, groups = np.concatenate([patches, patches[:, :, ::-1]]), np.concatenate([groups, groups])
        order = np.argsort(groups, kind="stable")
        patches, groups = patches[order], groups[order]
    return Positives(patches, groups, is_mirrored, problems.all())


@dataclass(frozen=True, eq=False)
class _Cut:
    patches: Grey
    groups: NDArray[np.intp]
    too_small: list[str]


@dataclass(frozen=True, eq=False)
class _Cutter:
    choice: WindowChoice
    copies: int
    jitter: Jitter
    seed: int

    def cut(self, path: Path, objects: Floats, first: int) -> _Cut | UnreadableImageError:
        """The patches of the objects (n, 4) of an image; `first` is the number of the first object."""
        try:
            grey = read_grey(path)
        except UnreadableImageError as error:
            return error
        patches: list[Grey] = []
        groups: list[int] = []
        too_small: list[str] = []
        for number, window in enumerate(self.choice.windows(objects), start=first):
            size = (window[2] - window[0]) / self.choice.width
            if size < 2 * SMALLEST:
                x1, y1, x2, y2 = objects[number - first].tolist()
                too_small.append(
                    f"an object of {x2 - x1:.0f} x {y2 - y1:.0f} pixels, skipped: smaller than half of the "
                    f"{self.choice.width} x {self.choice.height} window"
                )
                continue
            patches += self._copies(grey, window, np.random.default_rng([self.seed, number]))
            groups += [number] * self.copies
        height, width = self.choice.window
        return _Cut(
            np.array(patches, dtype=np.uint8).reshape(-1, height, width), np.array(groups, dtype=np.intp), too_small
        )

    def _copies(self, grey: Grey, window: Floats, rng: np.random.Generator) -> list[Grey]:
        copies = [cut_window(grey, moved_inside(window, grey.shape), self.choice.window)]
        for _ in range(self.copies - 1):
            moved, angle = self.jitter.draw(window, rng)
            copies.append(cut_window(grey, moved_inside(moved, grey.shape), self.choice.window, angle))
        return copies
