"""Prepare a training: read annotations, choose windows, cut positives, collect images, and hold some of them out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.detector.detector import is_class_name
from whet.errors import ConfigError, TrainingDataError
from whet.io.annotations.annotation import ONLY_CLASS, Annotations, Problem
from whet.io.annotations.formats import read_annotations
from whet.io.files import map_files
from whet.models.contract import FAMILIES
from whet.parallel.workers import ALL_THREADS, Workers
from whet.training.backgrounds import Backgrounds, BoxesByImage, backgrounds_of, images_to_mine
from whet.training.config import AUTO, TrainingConfig
from whet.training.loop import FamilyTraining, training_of
from whet.training.progress import duration
from whet.training.samples import Positives, cut_positives
from whet.training.windows import Shapes, WindowChoice, choose_shapes

# The part of a data set to train on, if it exists and no other was selected.
TRAIN = "train"
# Neighbouring objects in a file may be near-duplicates: the split keeps runs of this length together, or shorter ones
# if there would be fewer than ten.
RUN = 100


@dataclass(frozen=True, eq=False)
class Preparation:
    """Prepared data of one shape of a class: window, positives, and images for negatives, some of them held out.

    `annotations` ignore the objects of other shapes; `excluded` and `ignored` are the boxes (n, 4) of each image that
    are no background, those of other shapes among them, and those that are to be ignored. `is_held_out` (n,) are the
    positives that validate the model.
    """

    config: TrainingConfig
    family: FamilyTraining
    choice: WindowChoice
    positives: Positives
    is_held_out: NDArray[np.bool_]
    training_images: list[Path]
    held_out_images: list[Path]
    annotations: Annotations = field(default_factory=lambda: Annotations((), ()))
    excluded: BoxesByImage = field(default_factory=dict)
    ignored: BoxesByImage = field(default_factory=dict)
    faults: tuple[Problem, ...] = ()

    @property
    def images(self) -> tuple[Path, ...]:
        """Images that supply negatives or false positives, held-out images included."""
        return (*self.training_images, *self.held_out_images)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Unusable annotations, boxes and images."""
        return (*self.annotations.problems, *self.positives.problems, *self.faults)

    @property
    def mean_positive(self) -> NDArray[np.uint8] | None:
        """The average object (height, width), where the family reads grey windows."""
        windows = self.positives.windows
        return np.rint(windows.mean(axis=0)).astype(np.uint8) if windows.shape[1:] == self.choice.window else None

    def backgrounds(self, *, held_out: bool, workers: Workers) -> Backgrounds:
        """Images to take negatives from, with the boxes that are no negatives."""
        return Backgrounds(
            self.held_out_images if held_out else self.training_images,
            self.family,
            self.choice,
            self.excluded,
            self.ignored,
            max_memory=max(self.config.max_memory - self.memory, 0),
            seed=self.config.seed + held_out,
            workers=workers,
        )

    @property
    def n_features(self) -> int:
        """Number of features of a window."""
        return self.family.n_features(self)

    @property
    def memory(self) -> int:
        """Bytes of the samples of the largest step."""
        return self.family.memory(self)

    def seconds(self, workers: Workers = ALL_THREADS) -> float:
        """Estimated training time, within a factor of two or three."""
        return self.family.core_seconds(self) / workers.slots

    def describe(self, workers: Workers = ALL_THREADS) -> str:
        """A summary of data and settings, one topic per line."""
        n_held_out = int(self.is_held_out.sum())
        name = self.annotations.classes[0] if self.annotations.classes else "object"
        part = next((image.split for image in self.annotations.images if image.split), "")
        lines = {
            "data": f"format {self.annotations.format or 'unknown'}{f', part {part}' if part else ''}",
            "object": f"{name}: {self.annotations.summary()}",
            "window": str(self.choice),
            "positives": str(self.positives),
            "negatives": f"{len(self.training_images):,} images, outside of all boxes",
            "held out": f"{len(self.held_out_images):,} images"
            + (f" and {n_held_out:,} positives" if n_held_out else "")
            + f" (validation_share {self.config.validation_share:g}"
            + (")" if self.family.most_held_out is None else f", at most {self.family.most_held_out} images)"),
            "features": f"{self.n_features:,} ({self.config.features})",
            "settings": self.config.of_family(self.family.name),
            "memory": f"{self.memory / 1e6:,.0f} MB, and up to {self.config.max_memory / 1e6:,.0f} MB of images",
            "time": f"about {duration(self.seconds(workers))}, within a factor of two or three",
        }
        return "\n".join(f"{topic:<10} {text}" for topic, text in lines.items())

    def fingerprint(self) -> dict[str, str]:
        """A text for each setting and each part of the data that must not change during a training."""
        held_out, parts = np.flatnonzero(self.is_held_out), (self.positives.windows, self.positives.objects)
        return {
            **self.config.fingerprint(self.family.name),
            **self.family.fingerprint(),
            "window": f"{self.choice.width} x {self.choice.height}",
            "positives": f"{len(self.positives)} patches, {digest([*parts, held_out])}",
            "images": images_digest(self.images, self.excluded),
        }


@dataclass(frozen=True, eq=False)
class PreparedClass:
    """The name of a class, its shapes, and the prepared data of each."""

    name: str
    shapes: Shapes
    parts: tuple[Preparation, ...]

    @property
    def titles(self) -> list[str]:
        """A name of each shape for messages: that of the class, and a number if it has several."""
        several = len(self.parts) > 1
        return [self.name + f", shape {number}" * several for number in range(1, len(self.parts) + 1)]


def read_set(config: TrainingConfig, progress: Callable[[str, float], None] = lambda *_: None) -> Annotations:
    """The annotations that a config names, of all classes and parts."""
    if config.annotations is None:
        raise ConfigError("annotations=None: expected a file or folder with boxes, such as annotations='cars.csv'")
    return read_annotations(
        config.annotations, config.format, config.images, lambda share: progress("reading annotations", share)
    )


def prepare_class(
    config: TrainingConfig,
    progress: Callable[[str, float], None] = lambda *_: None,
    workers: Workers = ALL_THREADS,
    found: Annotations | None = None,
) -> PreparedClass:
    """Read, cut and split the data of a class, in as many shapes as its boxes need, or as the config asks for.

    `progress` receives the current step and its share done. `found` are the annotations of the config, as `read_set`
    gives them, if they were read before.
    """
    found = read_set(config, progress) if found is None else found
    # Images of a test part must not be mined either.
    known = {image.path.resolve() for image in found.images}
    split = config.split or (TRAIN if TRAIN in found.splits else None)
    annotations = (found if split is None else found.select_split(split)).select(config.class_name)
    family = training_of(config.features)
    shapes = _shapes(config, family, annotations)
    parts = [
        _prepare(
            config, family, choice, _only_shape(annotations, shapes, number), annotations, known, progress, workers
        )
        for number, choice in enumerate(shapes.windows)
    ]
    name = annotations.classes[0] if annotations.classes else ONLY_CLASS
    several = len(parts) > 1
    return PreparedClass(
        name if not several or is_class_name(name) else ONLY_CLASS,
        shapes,
        tuple(_with_common_split(config, parts) if several else parts),
    )


def prepare(
    config: TrainingConfig,
    progress: Callable[[str, float], None] = lambda *_: None,
    workers: Workers = ALL_THREADS,
) -> Preparation:
    """The same for one window for all boxes."""
    (part,) = prepare_class(replace(config, shapes=1), progress, workers).parts
    return part


def _shapes(config: TrainingConfig, family: FamilyTraining, annotations: Annotations) -> Shapes:
    """The shapes that a config asks for; a window of its own, and a family without shapes, have one."""
    margin = 0.0 if config.margin is None and annotations.format == "crops" else config.margin
    window = None if config.window is None else (config.window[1], config.window[0])
    choose = partial(family.choose_window, margin=margin, window=window)
    if config.shapes == AUTO and (not family.has_shapes or window is not None):
        return choose_shapes(annotations.boxes, 1, choose)
    if config.shapes != 1 and not family.has_shapes:
        able = [name for name in FAMILIES if training_of(name).has_shapes]
        raise ConfigError(
            f"shapes={config.shapes} with features={config.features}: expected features={' or '.join(able)}"
        )
    if config.shapes not in (AUTO, 1) and window is not None:
        raise ConfigError(
            f"shapes={config.shapes} with a window: expected one of them, as each shape has its own window"
        )
    return choose_shapes(annotations.boxes, None if config.shapes == AUTO else int(config.shapes), choose)


def _only_shape(annotations: Annotations, shapes: Shapes, number: int) -> Annotations:
    """The same with the objects of one shape; those of the others are ignored: neither objects nor background."""
    if len(shapes) == 1:
        return annotations
    images = []
    for image in annotations.images:
        ignore = image.ignore.copy()
        ignore[~image.ignore] = shapes.shape_of(image.objects) != number
        images.append(replace(image, ignore=ignore))
    return replace(annotations, images=tuple(images))


def _prepare(
    config: TrainingConfig,
    family: FamilyTraining,
    choice: WindowChoice,
    annotations: Annotations,
    whole: Annotations,
    known: set[Path],
    progress: Callable[[str, float], None],
    workers: Workers,
) -> Preparation:
    """Cut and collect the data of one shape; `whole` are the annotations of all shapes.

    Parts of objects of other shapes are negatives, too. `known` are annotated images of all parts of the set.
    """
    positives = cut_positives(
        family,
        annotations,
        choice,
        copies=config.copies_per_object,
        mirror=config.mirror,
        seed=config.seed,
        workers=workers,
        progress=lambda share: progress("cutting positives", share),
    )
    annotated = backgrounds_of(annotations) if config.backgrounds else {}
    least = choice.window
    if choice.min_size is not None:  # images are enlarged up to twice
        least = choice.height // 2 - family.grid.padding, choice.width // 2 - family.grid.padding
    images, unreadable = images_to_mine(annotated, config.negatives, known, least, annotations.shapes)
    excluded = {image.path: image.boxes for image in whole.images}
    ignored = {image.path: image.ignored for image in whole.images}
    prepared = prepare_windows(family, choice, positives, images, config, excluded)
    return replace(prepared, annotations=annotations, ignored=ignored, faults=unreadable)


def prepare_windows(
    family: FamilyTraining,
    choice: WindowChoice,
    positives: Positives,
    images: Sequence[Path],
    config: TrainingConfig,
    excluded: BoxesByImage | None = None,
) -> Preparation:
    """Prepare a training from positives and from images outside of some boxes; raises `TrainingDataError`.

    Positives of one object stay on one side. Images may contain the object inside of their `excluded` boxes (n, 4).
    """
    positives = family.usable(positives, config)
    is_held_out = np.zeros(len(positives), np.bool_)
    if family.holds_out_objects:
        is_held_out[split_objects(positives.objects, config.validation_share, config.seed)[1]] = True
    sides = split_backgrounds(config, family, images)
    return Preparation(config, family, choice, positives, is_held_out, *sides, excluded=excluded or {})


# --- Holding out ------------------------------------------------------------------------------------------------------


def split_in_runs(n: int, share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of the training and the held-out part, in runs of neighbours: near-duplicates stay on one side.

    >>> train, held_out = split_in_runs(1000, 0.2, seed=0)
    >>> len(train), len(held_out)
    (800, 200)
    """
    runs = np.array_split(np.arange(n), max(10, -(-n // RUN)))
    order = np.random.default_rng(seed).permutation(len(runs))
    n_held_out = min(max(1, round(share * len(runs))), len(runs) - 1)
    held_out, train = order[:n_held_out], order[n_held_out:]
    return np.sort(np.concatenate([runs[i] for i in train])), np.sort(np.concatenate([runs[i] for i in held_out]))


def split_objects(objects: NDArray[np.intp], share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split positives of objects with these numbers (n,): all positives of an object are on one side.

    >>> train, held_out = split_objects(np.repeat(np.arange(20), 3), 0.2, seed=0)
    >>> len(train), len(held_out), bool(np.isin(train // 3, held_out // 3).any())
    (48, 12, False)
    """
    _, first, number = np.unique(objects, return_index=True, return_inverse=True)
    # Objects keep their order, so that neighbours stay together.
    rank = np.argsort(np.argsort(first))[number]
    _, held_out = split_in_runs(len(first), share, seed)
    is_held_out = np.isin(rank, held_out)
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def split_images(images: Sequence[Path], share: float, seed: int) -> tuple[list[Path], list[Path]]:
    """Images to mine negatives from, and held-out images; at least one on each side."""
    if len(images) < 2:
        raise TrainingDataError(
            f"got {len(images)} usable images for negatives; expected at least two, better hundreds: add images "
            "without the object (negatives)"
        )
    order = np.random.default_rng([seed, 1]).permutation(len(images))
    n_held_out = min(max(1, round(share * len(images))), len(images) - 1)
    return [images[i] for i in order[n_held_out:]], [images[i] for i in order[:n_held_out]]


def split_backgrounds(
    config: TrainingConfig, family: FamilyTraining, images: Sequence[Path]
) -> tuple[list[Path], list[Path]]:
    """Images to mine negatives from, and a share of them that is held out, at most as many as the family wants."""
    most = len(images) if family.most_held_out is None else family.most_held_out
    return split_images(images, min(config.validation_share, most / max(len(images), 1)), config.seed)


def _with_common_split(config: TrainingConfig, parts: Sequence[Preparation]) -> Sequence[Preparation]:
    """All shapes hold out the same images, of those that are large enough for all of them, and train on all others."""
    images = [set(part.images) for part in parts]
    if all(other == images[0] for other in images):  # they are split in the same way
        return parts
    common = set.intersection(*images)
    _, held_out = split_backgrounds(config, parts[0].family, [path for path in parts[0].images if path in common])
    return [
        replace(part, training_images=[path for path in part.images if path not in held_out], held_out_images=held_out)
        for part in parts
    ]


# --- Hashes -----------------------------------------------------------------------------------------------------------


def images_digest(paths: Sequence[Path], excluded: BoxesByImage) -> str:
    """Names and sizes of the files in their order: a folder may move, and reading all contents would take minutes."""
    files = list(map_files(lambda path: (path.name, path.stat().st_size), paths))
    boxes = [part for i, path in enumerate(paths) if len(excluded.get(path, ())) for part in (i, excluded[path])]
    return f"{len(files)} files, {digest([*files, *boxes])}"


def digest(parts: list[Any]) -> str:
    """A short hash of arrays and of other values by their text."""
    hashed = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            hashed.update(f"{part.dtype.str}{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
        else:
            hashed.update(repr(part).encode())
    return hashed.hexdigest()[:16]
