"""Training data: checked, and split into a training and a held-out part."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet.errors import TrainingDataError
from whet.features.integral import FeatureFamily, IntegralStack
from whet.io.files import map_files
from whet.training.config import CASCADE_SETTINGS, TrainingConfig
from whet.training.negatives import ExcludedBoxes, usable_images
from whet.training.stage import StageLearner

# Neighbouring faces in a file may be near-duplicates: the split keeps runs of this length together, or shorter ones if
# there would be fewer than ten.
RUN = 100
FEWEST_RUNS = 10


def split_in_runs(n: int, share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of the training and the held-out part, in runs of neighbours: near-duplicates stay on one side.

    >>> train, held_out = split_in_runs(1000, 0.2, seed=0)
    >>> len(train), len(held_out)
    (800, 200)
    """
    runs = np.array_split(np.arange(n), max(FEWEST_RUNS, -(-n // RUN)))
    order = np.random.default_rng(seed).permutation(len(runs))
    n_held_out = min(max(1, round(share * len(runs))), len(runs) - 1)
    held_out, train = order[:n_held_out], order[n_held_out:]
    return np.sort(np.concatenate([runs[i] for i in train])), np.sort(np.concatenate([runs[i] for i in held_out]))


def split_objects(groups: NDArray[np.intp], share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split positives with object numbers `groups` (n,): all positives of an object are on one side.

    >>> train, held_out = split_objects(np.repeat(np.arange(20), 3), 0.2, seed=0)
    >>> len(train), len(held_out), bool(np.isin(train // 3, held_out // 3).any())
    (48, 12, False)
    """
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
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


Patches = NDArray[np.uint8]

# With fewer, at most three validation positives set the threshold of a stage.
FEWEST_POSITIVES = 20
FEW_POSITIVES = 200
# Patches per block: their integral images stay below 10 MB.
AT_ONCE = 2048


class FewPositivesWarning(UserWarning):
    """Few positives, or some of them are unusable; the message says how many."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Positives and images, split into a training and a held-out part.

    `positives` and `held_out_positives` are patches (n, height, width); `held_out_groups` (n,) numbers the object in
    each held-out positive if several patches show the same object. Negatives are taken outside `excluded_boxes`.
    `n_positives`, `n_images` and `mean_positive` describe the data as given, before unusable patches and images were
    removed.
    """

    positives: Patches
    held_out_positives: Patches
    images: list[Path]
    held_out_images: list[Path]
    n_positives: int
    n_images: int
    mean_positive: NDArray[np.uint8]
    excluded_boxes: ExcludedBoxes = field(default_factory=dict)
    held_out_groups: NDArray[np.intp] | None = None

    @classmethod
    def from_patches(
        cls,
        positives: Patches,
        images: Sequence[Path],
        window: tuple[int, int],
        config: TrainingConfig,
        groups: NDArray[np.intp] | None = None,
        excluded_boxes: ExcludedBoxes | None = None,
        *,
        are_checked: bool = False,
    ) -> TrainingData:
        """Check the data and split it by `config.validation_share`; raises `TrainingDataError` on unusable data.

        Positives of one group show one object and stay on one side. Images that `are_checked` are not opened.
        """
        usable = usable_rows(positives, window, config.min_sigma, groups)
        if groups is None:
            train, held_out = split_in_runs(len(usable), config.validation_share, config.seed)
        else:
            train, held_out = split_objects(groups[usable], config.validation_share, config.seed)
        kept = positives[usable]
        return cls(
            kept[train],
            kept[held_out],
            *split_images(
                images if are_checked else usable_images(images, window), config.validation_share, config.seed
            ),
            len(positives),
            len(images),
            np.rint(positives.mean(axis=0)).astype(np.uint8),
            {} if excluded_boxes is None else excluded_boxes,
            None if groups is None else groups[usable][held_out],
        )


def usable_rows(
    positives: Patches,
    window: tuple[int, int],
    min_sigma: float = OPENCV_MIN_SIGMA,
    groups: NDArray[np.intp] | None = None,
) -> NDArray[np.intp]:
    """Indices of the usable positives: those with enough contrast. With `groups` (n,), objects count, not copies.

    >>> usable_rows(np.zeros((30, 8, 8), dtype=np.uint8), (8, 8))
    Traceback (most recent call last):
    whet.errors.TrainingDataError: got 30 positives, 0 of them different and with contrast; expected at least 20, ...
    """
    expected = f"uint8 patches of shape (n, {window[0]}, {window[1]})"
    if not isinstance(positives, np.ndarray) or positives.dtype != np.uint8 or positives.shape[1:] != tuple(window):
        got = f"{positives.dtype} of shape {positives.shape}" if isinstance(positives, np.ndarray) else type(positives)
        raise TrainingDataError(f"positives are {got}; expected {expected}: cut and resize them to the window")
    if groups is not None and groups.shape != (len(positives),):
        raise TrainingDataError(f"got groups of shape {groups.shape} for {len(positives)} positives; expected one each")
    seen = np.flatnonzero(_with_contrast(positives, min_sigma))
    different = len({patch.tobytes() for patch in positives[seen]})
    if groups is not None:
        different = min(different, len(np.unique(groups[seen])))
    if different < FEWEST_POSITIVES:
        raise TrainingDataError(
            f"got {len(positives)} positives, {different} of them different and with contrast; expected "
            f"at least {FEWEST_POSITIVES}, better {FEW_POSITIVES} or more: add annotated images"
        )
    if len(seen) < len(positives):
        _warn(
            f"skipped {len(positives) - len(seen)} of {len(positives)} positives: their standard deviation is at most "
            f"{min_sigma:g} (min_sigma)"
        )
    if different < FEW_POSITIVES:
        _warn(f"fewer than {FEW_POSITIVES} different objects ({different}); accuracy may be low")
    return seen


def _with_contrast(positives: Patches, min_sigma: float) -> NDArray[np.bool_]:
    blocks = [positives[start : start + AT_ONCE] for start in range(0, len(positives), AT_ONCE)]
    verdicts = [IntegralStack.from_patches(block, min_sigma).has_contrast for block in blocks]
    return np.concatenate([np.empty(0, dtype=np.bool_), *verdicts])


def _warn(message: str) -> None:
    warnings.warn(message, FewPositivesWarning, stacklevel=5)


# These settings decide when training stops; they do not change the stages that are already trained. The memory budget
# does: training samples the features that do not fit.
MAY_CHANGE = {"max_stages", "target_false_positive_rate"}


def fingerprint(
    families: Sequence[FeatureFamily], data: TrainingData, config: TrainingConfig, learner: StageLearner
) -> dict[str, str]:
    """A text for each setting and each part of the data that must not change during a training."""
    # The text of an object that is no dataclass would contain its address.
    text = str(learner) if is_dataclass(learner) else type(learner).__qualname__
    settings = (name for name in CASCADE_SETTINGS if name not in MAY_CHANGE and name != "ridge")  # part of the learner
    return {
        **{name: str(getattr(config, name)) for name in settings},
        "learner": text,
        "features": "; ".join(f"{len(one)} of {type(one).__name__}, {digest(_parts(one))}" for one in families),
        "positives": _patches(data.positives, data.held_out_positives),
        "images": images_digest([*data.images, *data.held_out_images], data.excluded_boxes),
    }


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Each part in which two fingerprints differ, with both values.

    >>> differences({"seed": "1"}, {"seed": "0"})
    ['seed is 1, the checkpoint has 0']
    """
    names = [*ours, *(name for name in theirs if name not in ours)]
    return [
        f"{name} is {ours.get(name, 'not set')}, the checkpoint has {theirs.get(name, 'none')}"
        for name in names
        if ours.get(name) != theirs.get(name)
    ]


def _parts(family: FeatureFamily) -> list[Any]:
    # The fields only: the attributes may contain a cache.
    names = [each.name for each in fields(family)] if is_dataclass(family) else sorted(vars(family))
    return [type(family).__name__, *(getattr(family, name) for name in names)]


def _patches(*sides: NDArray[np.uint8]) -> str:
    return f"{sum(map(len, sides))} patches, {digest(list(sides))}"


def images_digest(paths: Sequence[Path], excluded: ExcludedBoxes) -> str:
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
