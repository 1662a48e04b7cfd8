"""Backgrounds: images to take negatives from, at random places or where a model mistakes them for the object."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from whet.errors import TrainingDataError, UnreadableImageError
from whet.evaluation.error_kinds import LEAST_OVERLAP
from whet.images.boxes import Boxes, Floats, areas, box_iou, intersection_over_first
from whet.images.detections import FiredWindows, without_near_copies
from whet.images.pyramid import Pyramid, WindowIndex
from whet.io.annotations.annotation import Annotations, Problem, ProblemKind
from whet.io.files import map_files
from whet.io.image_files import find_images, shape_or_error
from whet.parallel.workers import ALL_THREADS, CACHE, Workers, lost_image
from whet.training.samples import NO_PLACES, Places, Windows

if TYPE_CHECKING:
    from whet.models.contract import Model
    from whet.training.loop import FamilyTraining
    from whet.training.windows import WindowChoice

R = TypeVar("R")
Flags = NDArray[np.bool_]
Shape = tuple[int, int]
BoxesByImage = Mapping[Path, Boxes]
# Receives the numbers of windows found, of windows tested and of images scanned.
MiningProgress = Callable[[int, int, int], None]

# Random windows are tried this often, where some overlap objects.
TRIES = 3
# Images of a round: random mining ends after the first round with enough windows.
IMAGES_PER_ROUND = 32
# What to do where an image cannot be read again whose windows are samples already.
REPEAT = (
    "the training has taken windows from this image before: repeat the command with --resume (in Python, with the same "
    "checkpoint) to continue from the checkpoint, or start again without the image"
)


class SkippedImagesWarning(UserWarning):
    """Some images are unusable; the message says which and why."""


@dataclass(frozen=True)
class MiningRule:
    """Which windows of backgrounds a family learns from: its `FamilyTraining.mining`.

    `order` chooses among the windows that a model accepts: those with the highest scores, without near-copies, from all
    images; or random ones, each at most once, from as many images as are needed. `per_image` is the most of one image;
    by score there are more if images are few. A window is no background if more than `most_inside` of it lies in a
    box; or with `most_iou`, if its object overlaps a box by this IoU or more, or lies in an ignored box by half.
    Random windows are equally likely on all levels with `equal_levels`, and else on larger levels more likely.
    """

    order: Literal["score", "random"] = "score"
    per_image: int = 10
    most_iou: float | None = 0.3
    most_inside: float = 0.5
    equal_levels: bool = False


@dataclass(frozen=True, eq=False)
class Mined:
    """Places (n, 4) of windows that a model accepts; per image, the numbers of accepted and of tested windows.

    `is_exhausted`: the images have fewer windows than were asked for.
    """

    places: Places
    accepted: NDArray[np.int64]
    tested: NDArray[np.int64]
    is_exhausted: bool = False

    @classmethod
    def random(cls, places: Places) -> Mined:
        """Random places, without counts."""
        none = np.empty(0, np.int64)
        return cls(places, none, none)

    @property
    def n_accepted(self) -> int:
        """Accepted windows of all images, including those that were not returned."""
        return int(self.accepted.sum())

    @property
    def n_tested(self) -> int:
        """Tested windows of all images."""
        return int(self.tested.sum())

    @property
    def n_images(self) -> int:
        """Number of scanned images."""
        return len(self.accepted)

    @property
    def acceptance_rate(self) -> float:
        """Share of the tested windows that the model accepted."""
        return self.n_accepted / max(self.n_tested, 1)


class _Haul(NamedTuple):
    """Places (n, 4) of an image, the keys (n,) of which the lowest are taken, and counts."""

    places: Places
    keys: NDArray[Any]
    n_accepted: int
    n_tested: int


class Fired(NamedTuple):
    """What a model accepts in an image: windows (n,), and which of them show no object.

    `n_tested` is the number of tested windows that show no object; the pyramid is None if the image holds no window.
    """

    pyramid: Pyramid | None
    windows: FiredWindows
    is_background: Flags
    n_tested: int

    @property
    def n_accepted(self) -> int:
        """Accepted windows that show no object."""
        return int(self.is_background.sum())


@dataclass(eq=False)
class Background:
    """An image to take negatives from: outside of `excluded` boxes (n, 4), `ignored` ones among them.

    Its number is that of the image among all. Its pyramid is kept as long as all of those that a process keeps take at
    most `max_memory` bytes, and computed again otherwise.
    """

    path: Path
    number: int
    family: FamilyTraining
    choice: WindowChoice
    excluded: Boxes = field(default_factory=lambda: np.empty((0, 4)))
    ignored: Boxes = field(default_factory=lambda: np.empty((0, 4)))
    max_memory: int = 0
    _kept: Pyramid | None = field(default=None, init=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": None}

    def pyramid(self, threads: int = 1) -> Pyramid | None:
        """The pyramid of the image, from the smallest objects on; None if it holds no window.

        Raises `UnreadableImageError`, also of an image that could be read before: a store may fail at any time.
        """
        if self._kept is not None:
            return self.family.compact(self._kept)  # a copy, so that what a scan computes is not kept
        pyramid = Pyramid.from_image(
            self.family.read(self.path),
            self.choice.window,
            min_size=self.choice.least_window,
            grid=self.family.grid,
            threads=threads,
        )
        if not pyramid.levels:
            return None
        if self.max_memory and CACHE.reserve(self, self.family.compact_size(pyramid), self.max_memory):
            self._kept = self.family.compact(pyramid)
        return pyramid

    def _pyramid_of_places(self) -> Pyramid:
        """The pyramid of an image in which places were chosen before; without it, there is no right answer."""
        try:
            pyramid = self.pyramid()
        except UnreadableImageError as error:
            raise UnreadableImageError(f"{error}; {REPEAT}") from error
        if pyramid is None:
            raise UnreadableImageError(f"{self.path} has changed: it is smaller than the window now; {REPEAT}")
        return pyramid

    def is_background(self, windows: Boxes) -> Flags:
        """Which windows (n, 4) show no object."""
        rule = self.family.mining
        if rule.most_iou is None:
            return np.asarray(~(intersection_over_first(windows, self.excluded) > rule.most_inside).any(axis=1))
        boxes = self.choice.box_offset.boxes(windows)
        near = (box_iou(boxes, self.excluded) >= rule.most_iou).any(axis=1)
        inside = (intersection_over_first(boxes, self.ignored) >= rule.most_inside).any(axis=1)
        return np.asarray(~(near | inside))

    def random(self, n: int, seed: Sequence[int]) -> Places | UnreadableImageError:
        """Up to `n` random places."""
        try:
            pyramid = self.pyramid()
        except UnreadableImageError as error:
            return error
        if pyramid is None:
            return NO_PLACES
        rng, step = np.random.default_rng([*seed, self.number]), pyramid.step
        free = (np.array([level.shape for level in pyramid.levels]) - self.choice.window) // step + 1
        room = np.ones(len(free)) if self.family.mining.equal_levels else np.sqrt(free.prod(axis=1))
        level = rng.choice(len(free), TRIES * n, p=room / room.sum())
        y, x = (rng.random((2, TRIES * n)) * free[level].T).astype(np.intp) * step
        index = WindowIndex(np.array(pyramid.scales)[level], y, x)
        chosen = np.flatnonzero(self.is_background(pyramid.boxes(index)))[:n]
        return self._places(level[chosen], y[chosen], x[chosen])

    def fired(self, model: Model, threads: int = 1) -> Fired | UnreadableImageError:
        """The windows that a model accepts."""
        try:
            pyramid = self.pyramid(threads)
        except UnreadableImageError as error:
            return error
        if pyramid is None:
            return Fired(None, FiredWindows(), np.empty(0, np.bool_), 0)
        windows = model.scan(pyramid, threads=threads)
        is_background = self.is_background(windows.boxes)
        n_tested = round(self._share_of_background(pyramid) * windows.n_windows)
        return Fired(pyramid, windows, is_background, max(n_tested, int(is_background.sum())))

    def _share_of_background(self, pyramid: Pyramid) -> float:
        """The share of all windows that show no object, by some rows and columns of each level.

        A scan does not list the windows that it tested: those that show an object are taken to be tested as often.
        """
        if not len(self.excluded):
            return 1.0
        n_windows = n_outside = 0.0
        for level in pyramid.levels:
            sides = zip(level.shape, pyramid.window, strict=True)
            places = [np.arange(0, side - length + 1, pyramid.step) for side, length in sides]
            # Rows and columns of windows of a level by which the share outside of boxes is measured.
            some = [axis[:: -(-len(axis) // 50)] for axis in places]
            y, x = (axis.ravel() for axis in np.meshgrid(*some, indexing="ij"))
            n = len(places[0]) * len(places[1])
            n_windows += n
            n_outside += n * float(self.is_background(level.boxes(y, x, pyramid.window)).mean())
        return n_outside / n_windows

    def mine(
        self, model: Model, most: int, seed: int, used: Places | None, threads: int
    ) -> _Haul | UnreadableImageError:
        """At most `most` places of this image that a model accepts, for `Backgrounds.mine` to choose from."""
        scanned = self.fired(model, threads)
        if isinstance(scanned, UnreadableImageError):
            return scanned
        pyramid, counts = scanned.pyramid, (scanned.n_accepted, scanned.n_tested)
        if pyramid is None:
            return _Haul(NO_PLACES, np.empty(0), *counts)
        fired = scanned.windows.take(scanned.is_background)
        if self.family.mining.order == "score":
            best = without_near_copies(fired, most)
            return _Haul(self._of_windows(pyramid, best), -best.scores, *counts)
        places = self._of_windows(pyramid, fired)
        # The number of a place is unique but for collisions, which cost a window.
        keys = mixed(seed, *places.T)[: len(places)]
        if used is not None and len(used):
            is_new = ~np.isin(keys, mixed(seed, *used.T))
            places, keys = places[is_new], keys[is_new]
        lowest = np.argsort(keys, kind="stable")[:most]
        return _Haul(places[lowest], keys[lowest], *counts)

    def boxes(self, places: Places) -> Boxes:
        """The boxes (n, 4) of the windows at places."""
        pyramid = self._pyramid_of_places()
        return pyramid.boxes(_index(pyramid, places))

    def is_apart(self, places: Places) -> Flags:
        """Which places (n,) hardly overlap any box: objects that were trained on raise the scores around them."""
        return ~self.is_beside(self.choice.box_offset.boxes(self.boxes(places)))

    def is_beside(self, boxes: Boxes) -> Flags:
        """Which boxes (n, 4) of objects in windows overlap a box of the image."""
        return np.asarray((box_iou(boxes, self.excluded) >= LEAST_OVERLAP).any(axis=1))

    def windows(self, places: Places) -> Windows:
        """What the family reads of the windows at places."""
        pyramid = self._pyramid_of_places()
        return self.family.samples(pyramid, _index(pyramid, places))

    def _of_windows(self, pyramid: Pyramid, fired: FiredWindows) -> Places:
        level = np.searchsorted(pyramid.scales, fired.index.scale)  # scales rise
        return self._places(level, fired.index.y, fired.index.x)

    def _places(self, level: NDArray[Any], y: NDArray[Any], x: NDArray[Any]) -> Places:
        return np.column_stack([np.full(len(level), self.number), level, y, x]).astype(np.int32)


def _index(pyramid: Pyramid, places: Places) -> WindowIndex:
    level, y, x = places[:, 1:].T.astype(np.intp)
    return WindowIndex(np.array(pyramid.scales)[level], y, x)


def mixed(*keys: int | NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """Random numbers (n,) that are a hash of whole numbers (splitmix64): the same in any order, on any machine.

    >>> mixed(7, np.arange(3)) == mixed(7, np.array([0, 1, 3]))
    array([ True,  True, False])
    """
    hashed = np.zeros(1, np.uint64)
    for key in keys:
        hashed = (hashed ^ np.asarray(key).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashed = hashed ^ (hashed >> np.uint64(31))
    return hashed


class Backgrounds:
    """Images to take negatives from, each held by a worker. Results do not depend on the `workers`.

    `excluded` and `ignored` are boxes (n, 4) by the path of an image. Where new windows are looked for, an image that
    cannot be read has none, and is named once in a `SkippedImagesWarning`. Where windows were found before, it is an
    `UnreadableImageError`.
    """

    def __init__(
        self,
        images: Sequence[Path],
        family: FamilyTraining,
        choice: WindowChoice,
        excluded: BoxesByImage | None = None,
        ignored: BoxesByImage | None = None,
        *,
        max_memory: int = 1 << 30,
        seed: int = 0,
        workers: Workers = ALL_THREADS,
    ) -> None:
        self.images, self.family, self.choice = images, family, choice
        self.seed, self.workers = seed, workers
        self._skipped: dict[Path, str] = {}
        none = np.empty((0, 4))
        self.has_boxes = [len((excluded or {}).get(path, none)) > 0 for path in images]
        boxes = ([(part or {}).get(path, none) for path in images] for part in (excluded, ignored))
        columns = range(len(images)), repeat(family), repeat(choice), *boxes, repeat(max_memory)
        self.held = workers.hold(Background, images, *columns)

    def random(self, n: int, seed: Sequence[int]) -> Places:
        """About `n` random places, evenly from all images; those with room make up for the others."""
        places, numbers, turn = NO_PLACES, list(range(len(self.images))), 0
        while len(places) < n and numbers:
            share = -(-(n - len(places)) // len(numbers))
            held, paths = [self.held[i] for i in numbers], [self.images[i] for i in numbers]
            seeds = repeat([*seed, turn] if turn else seed)
            parts = list(self._map(Background.random, held, repeat(share), seeds, otherwise=NO_PLACES, paths=paths))
            places = np.concatenate([places, *parts])
            numbers = [i for i, part in zip(numbers, parts, strict=True) if len(part) == share]
            turn += 1
        places = places[np.argsort(places[:, 0], kind="stable")]
        if len(self._skipped) == len(self.images):
            reasons = "; ".join(list(self._skipped.values())[:3])
            raise UnreadableImageError(
                f"none of the {len(self.images)} images could be used ({reasons}): add readable images without the "
                "object"
            )
        return places

    def mine(
        self,
        model: Model,
        n: int,
        *,
        turn: int = 0,
        used: Places = NO_PLACES,
        most: int | None = None,
        progress: MiningProgress = lambda *_: None,
    ) -> Mined:
        """Up to `n` places that a model accepts, as the mining rule of the family chooses them.

        `turn` and the seed fix the order of images in which random places are looked for, until there are enough;
        `used` places (m, 4) are not returned again. `most` is the most of one image, if it is not that of the rule.
        """
        rule, numbers = self.family.mining, np.arange(len(self.images))
        if rule.order == "random":
            numbers = np.argsort(mixed(self.seed, turn, numbers), kind="stable")
        if most is None:
            # Windows of a step come from at least this many images, if there are as many.
            share = -(-3 * n // max(len(self.images), 1)) if rule.order == "score" else 0
            most = max(rule.per_image, share)
        hauls: list[_Haul] = []
        n_places = n_tested = 0
        for done, haul in enumerate(self._hauls(model, numbers, most, used), start=1):
            if haul is not None:
                hauls.append(haul)
                n_places, n_tested = n_places + len(haul.places), n_tested + haul.n_tested
                progress(min(n_places, n), n_tested, len(hauls))
            if rule.order == "random" and done % IMAGES_PER_ROUND == 0 and n_places >= n:
                break
        places = np.concatenate([NO_PLACES, *(haul.places for haul in hauls)])
        keys = np.concatenate([np.empty(0, np.uint64 if rule.order == "random" else float), *(h.keys for h in hauls)])
        lowest = np.argsort(keys, kind="stable")[:n]
        chosen = places[lowest if rule.order == "random" else np.sort(lowest)]
        counts = np.array([haul[2:] for haul in hauls], np.int64).reshape(-1, 2).T
        return Mined(chosen, counts[0], counts[1], n_places < n)

    def _hauls(self, model: Model, numbers: NDArray[np.intp], most: int, used: Places) -> Iterator[_Haul | None]:
        in_turn = numbers.tolist()
        return self._map(
            Background.mine,
            [self.held[i] for i in in_turn],
            repeat(self.workers.share(model)),
            repeat(most),
            repeat(self.seed),
            [used[used[:, 0] == i] for i in in_turn],
            repeat(self.workers.threads_of_task(len(in_turn))),
            otherwise=None,
            paths=[self.images[i] for i in in_turn],
        )

    def accepted(self, model: Model, numbers: NDArray[np.intp]) -> tuple[Places, Floats]:
        """All places of some images that a model accepts, without near-copies, image by image, and their scores."""
        # Places of an image that a threshold is chosen by.
        hauls = [haul for haul in self._hauls(model, numbers, 200, NO_PLACES) if haul]
        places, keys = zip((NO_PLACES, np.empty(0)), *(haul[:2] for haul in hauls), strict=True)
        return np.concatenate(places), -np.concatenate(keys)

    def beside(self, model: Model, n: int) -> Places:
        """The `n` places with the highest scores that a model accepts beside boxes, without near-copies."""
        places, scores = self.accepted(model, np.flatnonzero(self.has_boxes))
        is_beside = ~self.is_apart(places)
        places, scores = places[is_beside], scores[is_beside]
        return places[np.sort(np.argsort(-scores, kind="stable")[:n])]

    def is_apart(self, places: Places) -> Flags:
        """Which places (n,) hardly overlap any box: objects that were trained on raise the scores around them."""
        return self._at(Background.is_apart, places, np.zeros(len(places), np.bool_))

    def windows(self, places: Places) -> Windows:
        """What the family reads of the windows at places (n, 4)."""
        shape = len(places), *self.family.sample_shape(self.choice.window)
        return self._at(Background.windows, places, np.zeros(shape, np.uint8))

    def _map(
        self,
        work: Callable[..., R | UnreadableImageError],
        *columns: Iterable[Any],
        otherwise: R,
        paths: Sequence[Path] | None = None,
    ) -> Iterator[R]:
        """Results of images, in order; of one that cannot be read, or killed workers, `otherwise` and a warning."""
        results = self.workers.map(work, *columns, lost=_no_result)
        for path, result in zip(self.images if paths is None else paths, results, strict=True):
            if result is None or isinstance(result, UnreadableImageError):
                self.warn_skipped(path, result)
                yield otherwise
            else:
                yield result

    def warn_skipped(self, path: Path, error: UnreadableImageError | None) -> None:
        """Name an image that was skipped, once; without an error, workers died of it."""
        if path not in self._skipped:
            self._skipped[path] = str(error or lost_image(path))
            warnings.warn(f"skipped an image: {self._skipped[path]}", SkippedImagesWarning, stacklevel=3)

    def _at(self, work: Callable[..., NDArray[Any]], places: Places, results: NDArray[Any]) -> NDArray[Any]:
        """Write results for the places of each image to their rows."""
        numbers = np.unique(places[:, 0]).tolist()
        rows = [np.flatnonzero(places[:, 0] == number) for number in numbers]
        parts = self.workers.map(work, [self.held[i] for i in numbers], [places[own] for own in rows])
        for own, part in zip(rows, parts, strict=True):
            results[own] = part
        return results


def _no_result(*_: object) -> None:
    return None


# --- Which images -----------------------------------------------------------------------------------------------------


def image_faults(paths: Sequence[Path], window: Shape, shapes: Mapping[Path, Shape] | None = None) -> dict[Path, str]:
    """The problems of images that cannot be opened or are smaller than the window, by their headers.

    Images with `shapes` (height, width) were opened before, and are not opened again.
    """
    known = {} if shapes is None else shapes
    unknown = [path for path in paths if path not in known]
    shape_of = {**known, **dict(zip(unknown, map_files(shape_or_error, unknown), strict=True))}
    faults = {path: _fault(path, shape_of[path], window) for path in paths}
    return {path: fault for path, fault in faults.items() if fault is not None}


def _fault(path: Path, shape: Shape | UnreadableImageError, window: Shape) -> str | None:
    if isinstance(shape, UnreadableImageError):
        return str(shape)
    sides, least = sorted(shape), sorted(window)
    is_large = sides[0] >= least[0] and sides[1] >= least[1]
    return None if is_large else f"{path.name}: smaller than the window"


def images_to_mine(
    annotated: Iterable[Path],
    negatives: Sequence[str],
    known: set[Path],
    window: Shape,
    shapes: Mapping[Path, Shape],
) -> tuple[list[Path], tuple[Problem, ...]]:
    """Images to take negatives from, and those that cannot be used: smaller than a window, or unreadable.

    They are annotated ones and `negatives`, but for images that are `known` from other parts of the set. `shapes` are
    those of the annotated images.
    """
    others = find_images(negatives) if negatives else []
    mined = list(dict.fromkeys([*annotated, *(path for path in others if path.resolve() not in known)]))
    faults = image_faults(mined, window, shapes)
    images = [path for path in mined if path not in faults]
    if not images:
        raise TrainingDataError(
            "no images to take negatives from: boxes cover the annotated images, or --no-backgrounds is set "
            "(backgrounds=False); add images without the object with --negatives (negatives=), better hundreds"
        )
    return images, tuple(Problem(ProblemKind.UNREADABLE_IMAGE, "", None, fault) for fault in faults.values())


def backgrounds_of(annotations: Annotations) -> dict[Path, Boxes]:
    """The annotated images to mine, each with its excluded boxes (n, 4), ignored boxes included.

    Images that one box covers almost entirely, and images with incomplete annotations, are omitted.
    """
    # An image whose box covers more than this share is a crop of the object and has no background.
    return {
        image.path: image.boxes
        for image in annotations.images
        if image.is_complete and areas(image.boxes).max(initial=0) <= 0.8 * image.shape[0] * image.shape[1]
    }
