"""Prepare the training of a channel detector: choose the window, cut positives, collect images and hold some out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whet._kernels.workers import ALL_THREADS, Threads, Workers
from whet.errors import TrainingDataError, UnreadableImageError
from whet.features.channels import N_FILTERED, cells_of
from whet.io.annotations.annotation import Annotations, Boxes, Problem, counted
from whet.io.images import image_shape
from whet.training.channel_samples import Backgrounds, cut_channels
from whet.training.channel_window import ChannelWindow
from whet.training.config import TrainingConfig
from whet.training.data import FEW_POSITIVES, FewPositivesWarning, digest, images_digest, split_images
from whet.training.negatives import backgrounds_of, images_to_mine
from whet.training.positives import Positives
from whet.training.progress import duration

# With fewer, thirds of the objects, each detected by trees of the others, say nothing.
FEWEST_OBJECTS = 10
# Images that supply no negatives, but the false positives of operating points; more would be missed in training.
MOST_HELD_OUT = 20
# Images whose sizes are read to estimate the time, and a size for want of any.
SIZED_IMAGES = 20
TYPICAL_MEGAPIXELS = 0.3
# Core seconds on a server of 2024: per megapixel of an image and its pyramid, per tree and sample, per positive.
# The images are scanned in three rounds of mining and again in the end.
SECONDS_PER_MEGAPIXEL = 0.8
SECONDS_PER_TREE_AND_SAMPLE = 2e-7
SECONDS_PER_POSITIVE = 0.004
# Rounds, cross-validation, learning curve.
TREES_IN_ALL = 1 / 32 + 1 / 8 + 1 / 2 + 1 + 3 + 0.75
# Settings that decide the result; those of cascades do not.
CHANNEL_SETTINGS = ("trees", "negatives_per_round", "validation_share", "seed")


@dataclass(frozen=True, eq=False)
class ChannelPreparation:
    """Prepared data: annotations of one class, window, positives, and images for negatives, some of them held out.

    Of a view, `annotations` ignore the objects of other views, and `whole` are those of all views.
    """

    config: TrainingConfig
    annotations: Annotations
    choice: ChannelWindow
    positives: Positives
    training_images: list[Path]
    held_out_images: list[Path]
    whole: Annotations
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
    def n_features(self) -> int:
        """Number of cells of all channels in a window."""
        return N_FILTERED * int(np.prod(cells_of(self.choice.window)))

    @property
    def memory(self) -> int:
        """Bytes of the samples of the last round, twice while they are put together."""
        return 2 * self.n_features * (len(self.positives) + 4 * self.config.negatives_per_round)

    @property
    def excluded(self) -> dict[Path, Boxes]:
        """Boxes (n, 4) of each annotated image that are no background, those of other views among them."""
        return {image.path: image.boxes for image in self.whole.images}

    def backgrounds(self, images: Sequence[Path], workers: Workers) -> Backgrounds:
        """Images to take negatives from, with the boxes that are no negatives."""
        ignored = {image.path: image.ignored for image in self.whole.images}
        limit = max(self.config.max_memory - self.memory, 0)
        return Backgrounds(images, self.choice, self.excluded, ignored, limit, workers)

    def seconds(self, workers: Workers = ALL_THREADS) -> float:
        """Estimated training time, within a factor of two."""
        megapixels = mean_megapixels(self.training_images)
        longer = max(self.choice.object_height, self.choice.object_width)
        enlarged = max(1.0, longer / self.choice.min_size) ** 2
        mining = SECONDS_PER_MEGAPIXEL * megapixels * enlarged * len(self.training_images)
        samples = len(self.positives) + 4 * self.config.negatives_per_round
        share = self.n_features / 21760
        growing = SECONDS_PER_TREE_AND_SAMPLE * share * TREES_IN_ALL * self.config.trees * samples
        cutting = SECONDS_PER_POSITIVE * len(self.positives)
        return (mining + cutting) / workers.slots + growing / Threads(workers.threads).slots

    def describe(self, workers: Workers = ALL_THREADS) -> str:
        """A summary of data and settings, one topic per line."""
        config = self.config
        name = self.annotations.classes[0] if self.annotations.classes else "object"
        lines = {
            "data": data_line(self.annotations),
            "object": f"{name}: {self.annotations.summary()}",
            "window": str(self.choice),
            "positives": str(self.positives),
            "negatives": f"{len(self.training_images):,} images, up to {config.negatives_per_round:,} windows per "
            "round, outside of all boxes",
            "held out": f"{len(self.held_out_images):,} images supply no negatives (validation_share "
            f"{config.validation_share:g}, at most {MOST_HELD_OUT})",
            "features": f"{self.n_features:,} cells of 40 filtered channels",
            "trees": f"{config.trees:,}, in 4 rounds",
            "memory": f"{self.memory / 1e6:,.0f} MB, and up to {config.max_memory / 1e6:,.0f} MB of channels",
            "time": f"about {duration(self.seconds(workers))}, within a factor of two",
        }
        return "\n".join(f"{topic:<10} {text}" for topic, text in lines.items())

    def fingerprint(self) -> dict[str, str]:
        """A text for each setting and each part of the data that must not change during a training."""
        return {
            **{name: str(getattr(self.config, name)) for name in CHANNEL_SETTINGS},
            "features": f"channels of a {self.choice.width} x {self.choice.height} window",
            "positives": f"{len(self.positives)} positives, {digest([self.positives.patches])}",
            "images": images_digest(self.images, self.excluded),
        }


def prepare_channels(
    config: TrainingConfig,
    annotations: Annotations,
    known: set[Path],
    progress: Callable[[str, float], None],
    workers: Workers,
    whole: Annotations | None = None,
) -> ChannelPreparation:
    """Cut and collect the data of one class; `known` are annotated images of all parts of the set.

    Of a view, `whole` are the annotations of all views: parts of their objects are negatives, too.
    """
    margin = config.margin
    if margin is None and annotations.format == "crops":
        margin = 0.0
    window = None if config.window is None else (config.window[1], config.window[0])
    choice = ChannelWindow.from_boxes(annotations.boxes, margin, window)
    positives = cut_channels(
        annotations,
        choice,
        copies=config.copies_per_object,
        jitter=config.jitter,
        mirror=config.mirror,
        seed=config.seed,
        workers=workers,
        progress=lambda share: progress("cutting positives", share),
    )
    _check_positives(positives)
    annotated = backgrounds_of(annotations) if config.backgrounds else {}
    least = choice.height // 2 - choice.grid.padding, choice.width // 2 - choice.grid.padding
    images, unreadable = images_to_mine(annotated, config.negatives, known, least, annotations.shapes)
    training, held_out = split_for_channels(config, images)
    whole = annotations if whole is None else whole
    return ChannelPreparation(config, annotations, choice, positives, training, held_out, whole, unreadable)


def split_for_channels(config: TrainingConfig, images: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Images to mine negatives from, and a share of them that is held out, at most `MOST_HELD_OUT`."""
    share = min(config.validation_share, MOST_HELD_OUT / max(len(images), 1))
    return split_images(images, share, config.seed)


def mean_megapixels(images: Sequence[Path]) -> float:
    """Megapixels of an image on average, by some of them; those that cannot be read are left out."""
    sizes = []
    for path in images[:: max(1, len(images) // SIZED_IMAGES)]:
        with suppress(UnreadableImageError):
            height, width = image_shape(path)
            sizes.append(height * width / 1e6)
    return float(np.mean(sizes)) if sizes else TYPICAL_MEGAPIXELS


def data_line(annotations: Annotations) -> str:
    """The format of annotations, and the part of the data set that is used."""
    part = next((image.split for image in annotations.images if image.split), "")
    return f"format {annotations.format or 'unknown'}{f', part {part}' if part else ''}"


def _check_positives(positives: Positives) -> None:
    n = positives.n_objects
    if n < FEWEST_OBJECTS:
        raise TrainingDataError(
            f"got {counted(n, 'objects')}; expected at least {FEWEST_OBJECTS}, better {FEW_POSITIVES} or more: add "
            "annotated images"
        )
    if n < FEW_POSITIVES:
        text = f"fewer than {FEW_POSITIVES} different objects ({n}); accuracy may be low"
        warnings.warn(text, FewPositivesWarning, stacklevel=4)
