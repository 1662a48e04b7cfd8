"""Views: a class whose boxes differ too much in shape for one window gets a detector for each group of shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet._kernels.workers import ALL_THREADS, Workers
from whet.detector.classes import MultiClassDetector, is_class_name
from whet.errors import ConfigError
from whet.evaluation.advice import FEWEST_IN_VIEW, MANY_MISFITS
from whet.io.annotations.annotation import ONLY_CLASS, Annotations
from whet.training.cascade import Callback
from whet.training.channel_preparation import ChannelPreparation, prepare_channels, split_for_channels
from whet.training.channel_window import ChannelWindow
from whet.training.config import AUTO, CHANNELS, MOST_VIEWS, TrainingConfig
from whet.training.preparation import Preparation, prepare, read_set, select_class
from whet.training.train import Trained, set_points, train_prepared

Boxes = NDArray[np.float64]
Floats = NDArray[np.float64]

# Rounds of k-means, far more than so few groups need.
ROUNDS = 100
LEAST_VARIANCE = 1e-9


@dataclass(frozen=True)
class Shapes:
    """Aspect ratios (width over height) of the views of a class, rising, and why there are so many.

    `misfits` are the shares of boxes that cannot be found because of their shape, with one window and with these.
    `spread` is the share of the variance of log aspect ratios that is left within the views.
    """

    aspects: tuple[float, ...]
    n_boxes: tuple[int, ...]
    misfits: tuple[float, float]
    spread: float

    def __len__(self) -> int:
        return len(self.aspects)

    def __str__(self) -> str:
        views = " and ".join(f"{n:,} of {aspect:.2g}" for n, aspect in zip(self.n_boxes, self.aspects, strict=True))
        one, several = self.misfits
        return (
            f"{len(self)} by the shape of the boxes, width over height: {views}; {one:.0%} of the boxes have too "
            f"different a shape for one window, {several:.0%} for these"
        )

    @property
    def are_apart(self) -> bool:
        """Whether boxes of different views differ clearly: boxes of evenly spread shapes would differ less."""
        return self.spread < 1 / len(self) ** 2

    def view_of(self, boxes: Boxes) -> NDArray[np.intp]:
        """The number (n,) of the view that each of the boxes (n, 4) belongs to: that of the nearest aspect ratio."""
        distance = abs(log_aspects(boxes)[:, None] - np.log(self.aspects))
        return np.asarray(distance.argmin(axis=1))

    @classmethod
    def from_boxes(cls, boxes: Boxes, n_views: int) -> Shapes:
        """Group boxes (n, 4) into views by the logarithm of their aspect ratios (k-means)."""
        misfits_of_one = ChannelWindow.from_boxes(boxes).misfits  # or an error that there are no boxes
        found = log_aspects(boxes)
        centres = np.quantile(found, (np.arange(n_views) + 0.5) / n_views)
        for _ in range(ROUNDS):
            view = abs(found[:, None] - centres).argmin(axis=1)
            means = [found[view == k].mean() if (view == k).any() else centres[k] for k in range(n_views)]
            centres = np.array(means)
        view = abs(found[:, None] - centres).argmin(axis=1)
        parts = [boxes[view == k] for k in range(n_views)]
        misfits = sum(ChannelWindow.from_boxes(part).misfits * len(part) for part in parts if len(part)) / len(boxes)
        return cls(
            tuple(np.exp(centres).tolist()),
            tuple(map(len, parts)),
            (misfits_of_one, misfits),
            float(np.mean((found - centres[view]) ** 2) / max(found.var(), LEAST_VARIANCE)),
        )


def choose_shapes(boxes: Boxes, views: int | str = AUTO) -> Shapes:
    """The views of a class with these boxes (n, 4): as many as asked for, or as few as fit nearly all boxes.

    Automatically, there are several only if one window fits fewer than 95 % of the boxes, if their shapes are apart,
    and if each view has 40 boxes.

    >>> tall, wide = np.array([[0.0, 0, 40, 100]] * 50), np.array([[0.0, 0, 100, 40]] * 60)
    >>> print(choose_shapes(np.concatenate([tall, wide])))
    2 by the shape of the boxes, width over height: 50 of 0.4 and 60 of 2.5; 45% of the boxes have too different ...
    >>> len(choose_shapes(tall))
    1
    """
    if views != AUTO:
        return Shapes.from_boxes(boxes, int(views))
    best = Shapes.from_boxes(boxes, 1)
    for n in range(2, MOST_VIEWS + 1):
        if best.misfits[1] < MANY_MISFITS:
            break
        found = Shapes.from_boxes(boxes, n)
        if found.are_apart and min(found.n_boxes) >= FEWEST_IN_VIEW:
            best = found
    return best


def log_aspects(boxes: Boxes) -> Floats:
    """Logarithms (n,) of width over height of boxes (n, 4)."""
    size = boxes[:, 2:] - boxes[:, :2]
    return np.asarray(np.log(size[:, 0] / size[:, 1]))


@dataclass(frozen=True, eq=False)
class PreparedViews:
    """Prepared data of a class, by the name of each of its views: that of the class itself if there is only one."""

    shapes: Shapes
    views: dict[str, Preparation | ChannelPreparation]


def prepare_views(
    config: TrainingConfig,
    progress: Callable[[str, float], None] = lambda *_: None,
    workers: Workers = ALL_THREADS,
    found: Annotations | None = None,
) -> PreparedViews:
    """Prepare the training of a class, in as many views as its boxes need, or as the config asks for; see `prepare`."""
    found = read_set(config, progress) if found is None else found
    annotations, known = select_class(config, found)
    name = annotations.classes[0] if annotations.classes else ONLY_CLASS
    shapes = _shapes(config, annotations)
    if len(shapes) == 1:
        return PreparedViews(shapes, {name: prepare(config, progress, workers, found)})
    stem = name if is_class_name(name) else ONLY_CLASS
    prepared = {}
    for number in range(len(shapes)):
        own = only_view(annotations, shapes, number)
        prepared[f"{stem}@{number + 1}"] = prepare_channels(config, own, known, progress, workers, annotations)
    return PreparedViews(shapes, {**_with_common_split(config, prepared)})


def _with_common_split(
    config: TrainingConfig, views: Mapping[str, ChannelPreparation]
) -> Mapping[str, ChannelPreparation]:
    """All views hold out the same images, of those that are large enough for all of them, and train on all others."""
    images = [set(one.images) for one in views.values()]
    if all(each == images[0] for each in images):  # they are split in the same way
        return views
    common = set.intersection(*images)
    first = next(iter(views.values()))
    _, held_out = split_for_channels(config, [path for path in first.images if path in common])
    return {
        name: replace(
            one, training_images=[path for path in one.images if path not in held_out], held_out_images=held_out
        )
        for name, one in views.items()
    }


def _shapes(config: TrainingConfig, annotations: Annotations) -> Shapes:
    """The views that a config asks for; a window of its own, and a cascade, have one."""
    if config.views == AUTO and (config.features != CHANNELS or config.window is not None):
        return Shapes.from_boxes(annotations.boxes, 1)
    if config.views != 1 and config.features != CHANNELS:
        raise ConfigError(f"views={config.views} with features={config.features}: expected features=channels")
    if config.views not in (AUTO, 1) and config.window is not None:
        raise ConfigError(f"views={config.views} with a window: expected one of them, as each view has its own window")
    return choose_shapes(annotations.boxes, config.views)


def only_view(annotations: Annotations, shapes: Shapes, number: int) -> Annotations:
    """The same with the objects of one view; those of the others are ignored: neither objects nor background."""
    images = []
    for image in annotations.images:
        ignore = image.ignore.copy()
        ignore[~image.ignore] = shapes.view_of(image.objects) != number
        images.append(replace(image, ignore=ignore))
    return replace(annotations, images=tuple(images))


def train_views(
    prepared: PreparedViews,
    callback: Callback = lambda _: None,
    *,
    checkpoints: Iterable[Path | None],
    workers: Workers = ALL_THREADS,
) -> dict[str, Trained]:
    """Train the detectors of a class, with a checkpoint each; see `with_common_points`."""
    trained = {
        name: train_prepared(one, callback, checkpoint=file, workers=workers)
        for (name, one), file in zip(prepared.views.items(), checkpoints, strict=True)
    }
    return with_common_points(prepared, trained, workers)


def with_common_points(
    prepared: PreparedViews, trained: Mapping[str, Trained], workers: Workers = ALL_THREADS
) -> dict[str, Trained]:
    """Give all views of a class the operating points of their detections together."""
    if len(trained) == 1:
        return dict(trained)
    views = MultiClassDetector({name: one.detector for name, one in trained.items()})
    first = next(one for one in prepared.views.values() if isinstance(one, ChannelPreparation))
    # All views hold out the same images, and exclude the boxes of all views.
    n_images, wrong, default = set_points(views, first.held_out_images, first.excluded, workers)
    return {
        name: replace(one, n_images=n_images, false_positives=wrong, default_false_positives=default)
        for name, one in trained.items()
    }
