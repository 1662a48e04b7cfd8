"""Samples of a training: windows of objects and of backgrounds, with the object and the place that each is from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, cos, log, radians, sin
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet.errors import TrainingDataError, UnreadableImageError
from whet.images.boxes import Boxes, Floats, cut_box
from whet.images.pyramid import Pixels, resized
from whet.io.annotations.annotation import Annotations, Problem, ProblemKind, Problems
from whet.parallel.workers import ALL_THREADS, Workers, lost_image

if TYPE_CHECKING:
    from whet.training.loop import FamilyTraining
    from whet.training.windows import WindowChoice

Windows = NDArray[np.uint8]  # (n, ...): what a family reads of a window, such as its pixels or channels
Places = NDArray[np.int32]  # rows of image, level, y and x
NO_PLACES: Places = np.empty((0, 4), np.int32)

# Rotated windows are sampled this much finer, then reduced.
FINER = 3


@dataclass(frozen=True, eq=False)
class Positives:
    """Windows (n, ...) of objects in the order of the objects, and the number (n,) of the object in each.

    The first window of an object is the object itself; jittered copies follow, each before its mirror image, if
    objects are mirrored. `problems` are objects and images that could not be cut.
    """

    windows: Windows
    objects: NDArray[np.intp]
    is_mirrored: bool = False
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def n_objects(self) -> int:
        """Number of different objects."""
        return len(np.unique(self.objects))

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Positives:
        """Those at these indices."""
        return replace(self, windows=self.windows[rows], objects=self.objects[rows])

    def __str__(self) -> str:
        mirrored = ", mirror images included" if self.is_mirrored else ""
        return f"{len(self):,} positives of {self.n_objects:,} objects{mirrored}"


@dataclass(frozen=True, eq=False)
class Negatives:
    """Windows (n, ...) without the object and their places (n, 4), step by step, in the order of the images."""

    windows: Windows
    places: Places

    def __len__(self) -> int:
        return len(self.places)

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Negatives:
        """No negatives yet, of windows of a shape."""
        return cls(np.empty((0, *shape), np.uint8), NO_PLACES)

    def __add__(self, other: Negatives) -> Negatives:
        return Negatives(np.concatenate([self.windows, other.windows]), np.concatenate([self.places, other.places]))


@dataclass(frozen=True, eq=False)
class Samples:
    """All that a model is fitted to: a model is a function of its samples and of settings.

    `positives` are objects. `negatives` are windows of the training images, `held_out_negatives` those of the held-out
    images. `is_held_out` (n,) are the positives that validate the model, where a family wants some.
    """

    positives: Positives
    is_held_out: NDArray[np.bool_]
    negatives: Negatives
    held_out_negatives: Negatives
    n_images: int

    @property
    def all_negatives(self) -> Windows:
        """The negatives of the training images, and then those of the held-out images."""
        return np.concatenate([self.negatives.windows, self.held_out_negatives.windows])

    @property
    def images_of_negatives(self) -> NDArray[np.int32]:
        """The number of the image of each of all negatives; held-out images follow the training images."""
        return np.concatenate([self.negatives.places[:, 0], self.n_images + self.held_out_negatives.places[:, 0]])

    def with_negatives(self, windows: Windows, places: Places, *, held_out: bool, keep: bool) -> Samples:
        """These with negatives of one more step, beside those before or instead of them."""
        new = Negatives(windows, places)
        if held_out:
            return replace(self, held_out_negatives=self.held_out_negatives + new if keep else new)
        return replace(self, negatives=self.negatives + new if keep else new)


# --- Cutting windows --------------------------------------------------------------------------------------------------


def moved_inside(window: Floats, shape: tuple[int, ...]) -> Floats:
    """A window (4,) moved inside an image (height, width); centred if it is larger than the image.

    >>> moved_inside(np.array([-5.0, 10.0, 15.0, 110.0]), (80, 60))
    array([  0., -10.,  20.,  90.])
    """
    size, limit = window[2:] - window[:2], np.array(shape[1::-1], dtype=np.float64)
    low = np.where(size <= limit, np.clip(window[:2], 0, np.maximum(limit - size, 0)), (limit - size) / 2)
    return np.concatenate([low, low + size])


def cut_window(image: Pixels, box: Floats, window: tuple[int, int], angle: float = 0.0) -> Pixels:
    """The part of an image in a box (4,), resized to the window (height, width) and rotated by an angle in degrees.

    See `whet.images.boxes.cut_box`: a box at a scan window gives exactly that window.
    """
    return _rotated(image, box, window, angle) if angle else cut_box(image, box, window)


def _rotated(image: Pixels, box: Floats, window: tuple[int, int], angle: float) -> Pixels:
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
    fine = Image.fromarray(cut_window(image, around, shape)).rotate(angle, Image.Resampling.BILINEAR)
    x, y = more_x * FINER, more_y * FINER
    inner = np.asarray(fine)[y : y + height * FINER, x : x + width * FINER]
    return resized(np.ascontiguousarray(inner), window)


@dataclass(frozen=True)
class Jitter:
    """Maximum shift (in sides of the window), scale and rotation (in degrees) of the copies of a positive.

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

    def draw(self, window: Floats, rng: np.random.Generator, *, by_shorter: bool = False) -> tuple[Floats, float]:
        """A window (4,) with random shift and scale, and a random angle in degrees.

        Shifts are shares of the own side, or with `by_shorter` of the shorter side.
        """
        size = window[2:] - window[:2]
        sides = size.min() if by_shorter else size
        centre = (window[:2] + window[2:]) / 2 + rng.uniform(-self.shift, self.shift, 2) * sides
        half = size * np.exp(rng.uniform(-1, 1) * log(1 + self.scale)) / 2
        return np.concatenate([centre - half, centre + half]), float(rng.uniform(-self.rotation, self.rotation))


def cut_positives(
    family: FamilyTraining,
    annotations: Annotations,
    choice: WindowChoice,
    *,
    copies: int | None = None,
    jitter: Jitter | None = None,
    mirror: bool | str = "safe",
    seed: int = 0,
    workers: Workers = ALL_THREADS,
    progress: Callable[[float], None] = lambda _: None,
) -> Positives:
    """Cut all objects of a data set (of one class, see `Annotations.select`) to the chosen window.

    Each object gives `copies` windows: the first unchanged, the others with `jitter` (None: as many as give about 1,000
    windows, at most 12). `mirror` adds the mirror image of each; "safe" does so if `is_safe_to_mirror`. Where levels
    have no padding, windows are moved inside their image. Unreadable images and objects that are too small are listed
    in `problems`. The windows of an object depend only on `seed` and on its number.
    """
    images = [image for image in annotations.images if len(image.objects)]
    n_objects = sum(len(image.objects) for image in images)
    if not n_objects:
        raise TrainingDataError(
            "the annotations contain no boxes; check the class (class_name) and the part of the data set (split)"
        )
    if mirror not in (True, False, "safe"):
        raise ValueError(f"got mirror={mirror!r}; expected True, False or 'safe'")
    copies = copies_for(n_objects) if copies is None else copies
    cutter = _Cutter(family, choice, copies, Jitter() if jitter is None else jitter, seed)
    firsts = np.cumsum([0, *(len(image.objects) for image in images)]).tolist()
    problems = Problems()
    windows = [np.empty((0, 2, *family.sample_shape(choice.window)), np.uint8)]
    objects = [np.empty(0, np.intp)]
    paths, boxes = zip(*((image.path, image.objects) for image in images), strict=True)
    cuts = workers.map(cutter.cut, paths, boxes, firsts, lost=lost_image)
    for number, (image, cut) in enumerate(zip(images, cuts, strict=True), start=1):
        if isinstance(cut, UnreadableImageError):
            problems.add(ProblemKind.UNREADABLE_IMAGE, image.path, None, str(cut))
        else:
            windows.append(cut[0])
            objects.append(cut[1])
            for what in cut[2]:
                problems.add(ProblemKind.DROPPED_BOX, image.path, None, what)
        progress(number / len(images))
    pairs, numbers = np.concatenate(windows), np.concatenate(objects)
    if not len(pairs):
        first = "; ".join(str(problem) for problem in problems.found[:3])
        raise TrainingDataError(f"no object could be cut from the images: {first}")
    is_mirrored = is_safe_to_mirror(family.as_grey(pairs[::copies, 0])) if mirror == "safe" else bool(mirror)
    sides = 2 if is_mirrored else 1
    return Positives(
        pairs[:, :sides].reshape(-1, *pairs.shape[2:]), np.repeat(numbers, sides), is_mirrored, problems.all()
    )


def copies_for(n_objects: int) -> int:
    """Number of windows per object: 1,000 of all objects, at most 12 of one, both without mirror images.

    >>> copies_for(50), copies_for(400), copies_for(5000)
    (12, 3, 1)
    """
    return min(max(ceil(1000 / max(n_objects, 1)), 1), 12)


@dataclass(frozen=True, eq=False)
class _Cutter:
    family: FamilyTraining
    choice: WindowChoice
    copies: int
    jitter: Jitter
    seed: int

    def cut(
        self, path: Path, boxes: Boxes, first: int
    ) -> tuple[Windows, NDArray[np.intp], list[str]] | UnreadableImageError:
        """Windows (n, 2, ...) of objects with their mirror images, numbers of the objects, and who is too small."""
        try:
            image = self.family.read(path)
        except UnreadableImageError as error:
            return error
        windows: list[Windows] = []
        objects: list[int] = []
        too_small: list[str] = []
        for number, window in enumerate(self.choice.windows(boxes), start=first):
            if (window[2] - window[0]) / self.choice.width < self.family.smallest_object:
                x1, y1, x2, y2 = boxes[number - first].tolist()
                too_small.append(
                    f"an object of {x2 - x1:.0f} x {y2 - y1:.0f} pixels, skipped: smaller than half of the "
                    f"{self.choice.width} x {self.choice.height} window"
                )
                continue
            rng = np.random.default_rng([self.seed, number])
            for copy in range(self.copies):
                place, angle = window, 0.0
                if copy:
                    place, angle = self.jitter.draw(window, rng, by_shorter=self.family.jitters_by_shorter)
                windows.append(self._pair(image, place, angle))
                objects.append(number)
        shape = len(windows), 2, *self.family.sample_shape(self.choice.window)
        return np.array(windows, np.uint8).reshape(shape), np.array(objects, np.intp), too_small

    def _pair(self, image: Pixels, window: Floats, angle: float) -> Windows:
        """What the family reads of a window (4,), and of its mirror image."""
        if not self.family.grid.padding:
            window = moved_inside(window, image.shape)
        return cut_sides(self.family, self.choice, image, window, angle)


def cut_sides(
    family: FamilyTraining,
    choice: WindowChoice,
    image: Pixels,
    window: Floats,
    angle: float = 0.0,
    *,
    both: bool = True,
) -> Windows:
    """What a family reads of a window (4,) of an image, and with `both` of its mirror image (1 or 2, ...)."""
    (height, width), rim = choice.window, family.rim
    more = (window[2:] - window[:2]) / [width, height] * rim
    around = np.concatenate([window[:2] - more, window[2:] + more])
    patch = cut_window(image, around, (height + 2 * rim, width + 2 * rim), angle)
    sides = (patch, patch[:, ::-1]) if both else (patch,)
    return np.array([family.sample(side) for side in sides])


def is_safe_to_mirror(patches: Windows) -> bool:
    """Whether mirror images of patches (n, height, width) resemble the patches; False for fewer than 20."""
    return len(patches) >= 20 and asymmetry(patches) < 0.1


def asymmetry(patches: Windows) -> float:
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
