"""Positives from annotated pictures: windows cut as a scan sees them, and stretched by small changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from whet.detect.pyramid import SMALLEST
from whet.errors import TrainingDataError, UnreadableImageError
from whet.features.parallel import map_in_order
from whet.io.annotations.annotation import AnnotatedPicture, Annotations
from whet.io.annotations.problem import Problem, ProblemKind, Problems
from whet.io.images import read_grey
from whet.training.mirror import is_safe_to_mirror
from whet.training.window_choice import WindowChoice
from whet.training.window_cutting import cut_window, moved_inside

Grey = NDArray[np.uint8]
Floats = NDArray[np.float64]

# So many positives that a stage can be fitted, if need be by changing each object a little, but not too often.
WANTED = 1000
MOST_COPIES = 10


@dataclass(frozen=True)
class Jitter:
    """How far copies of a positive are moved (in windows), scaled and turned (in degrees), at most.

    The defaults are what a scan does anyway: it meets an object between two places and two sizes 1.2 times apart.
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
        """A window (4,) moved and scaled at random, and an angle in degrees."""
        size = window[2:] - window[:2]
        centre = (window[:2] + window[2:]) / 2 + rng.uniform(-self.shift, self.shift, 2) * size
        half = size * np.exp(rng.uniform(-1, 1) * log(1 + self.scale)) / 2
        return np.concatenate([centre - half, centre + half]), float(rng.uniform(-self.rotation, self.rotation))


@dataclass(frozen=True, eq=False)
class Positives:
    """Patches (n, height, width), the number (n,) of the object that each shows, and what could not be cut.

    Hand both to the training (`groups=positives.groups`): copies of one object and its mirror images are then either
    for training or for validation, never on both sides.
    """

    patches: Grey
    groups: NDArray[np.intp]
    is_mirrored: bool
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.patches)

    @property
    def n_objects(self) -> int:
        """Different objects."""
        return len(np.unique(self.groups))

    def __str__(self) -> str:
        mirrored = ", mirror images among them" if self.is_mirrored else ""
        return f"{len(self):,} positives of {self.n_objects:,} objects{mirrored}"


def cut_positives(
    annotations: Annotations,
    choice: WindowChoice,
    *,
    copies: int | None = None,
    jitter: Jitter | None = None,
    mirror: bool | str = False,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Positives:
    """Cut all objects of a data set (of one class, see `Annotations.select`) to the window that was chosen.

    Each object gives `copies` patches: the first as it is, the others with `jitter`; without a number, as many as
    make about 1,000, ten at most. With `mirror`, each is there as its mirror image too; "safe" does so where
    `whet.training.mirror` finds that left and right look alike. Windows are moved inside their picture; one that is
    larger than the picture repeats its edge. Objects under half the window's size are left out and told. What an
    object becomes depends on `seed` and on its number alone.
    """
    pictures = [picture for picture in annotations.pictures if len(picture.objects)]
    n_objects = sum(len(picture.objects) for picture in pictures)
    if not n_objects:
        raise TrainingDataError("the annotations have no box of an object: there is nothing to train on")
    if mirror not in (True, False, "safe"):
        raise ValueError(f"got mirror={mirror!r}; expected True, False or 'safe'")
    each = copies_for(n_objects) if copies is None else copies
    cutter = _Cutter(choice, each, Jitter() if jitter is None else jitter, seed)
    firsts = np.cumsum([0, *(len(picture.objects) for picture in pictures)])
    problems = Problems()
    patches, groups = [np.empty((0, *choice.window), dtype=np.uint8)], [np.empty(0, dtype=np.intp)]
    cuts = map_in_order(lambda i: cutter.cut(pictures[i], int(firsts[i])), range(len(pictures)), threads)
    for number, (picture, cut) in enumerate(zip(pictures, cuts, strict=True), start=1):
        if isinstance(cut, UnreadableImageError):
            problems.add(ProblemKind.UNREADABLE_PICTURE, picture.path, None, str(cut))
        else:
            patches.append(cut.patches)
            groups.append(cut.groups)
            for what in cut.too_small:
                problems.add(ProblemKind.DROPPED_BOX, picture.path, None, what)
        progress(number / len(pictures))
    return _mirrored(np.concatenate(patches), np.concatenate(groups), each, mirror, problems)


def copies_for(n_objects: int) -> int:
    """How many patches to make of each object.

    >>> copies_for(50), copies_for(400), copies_for(5000)
    (10, 3, 1)
    """
    return min(max(ceil(WANTED / max(n_objects, 1)), 1), MOST_COPIES)


def _mirrored(
    patches: Grey, groups: NDArray[np.intp], copies: int, mirror: bool | str, problems: Problems
) -> Positives:
    if not len(patches):
        first = "; ".join(str(problem) for problem in problems.found[:3])
        raise TrainingDataError(f"no object could be cut out of the pictures: {first}")
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

    def cut(self, picture: AnnotatedPicture, first: int) -> _Cut | UnreadableImageError:
        """The patches of the objects of a picture, the first of which has this number."""
        try:
            grey = read_grey(picture.path)
        except UnreadableImageError as error:
            return error
        patches: list[Grey] = []
        groups: list[int] = []
        too_small: list[str] = []
        for number, window in enumerate(self.choice.windows(picture.objects), start=first):
            size = (window[2] - window[0]) / self.choice.width
            if size < 2 * SMALLEST:
                x1, y1, x2, y2 = picture.objects[number - first].tolist()
                too_small.append(
                    f"an object of {x2 - x1:.0f} x {y2 - y1:.0f} pixels, under half of the {self.choice.width} x "
                    f"{self.choice.height} window, left out"
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
