"""Training data: checked, and split into a training and a validation part."""

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
from whet.training.config import Plan
from whet.training.negatives import Forbidden, usable_images
from whet.training.stage import GreedyLDA

# Faces that follow each other in a file may be near-duplicates: they are split in runs of this length, or shorter
# ones where that would make fewer than ten.
RUN = 100
FEWEST_RUNS = 10


def split_in_runs(n: int, share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices to train on and to check by, in runs of neighbours, so that near-duplicates stay on one side.

    >>> train, check = split_in_runs(1000, 0.2, seed=0)
    >>> len(train), len(check)
    (800, 200)
    """
    runs = np.array_split(np.arange(n), max(FEWEST_RUNS, -(-n // RUN)))
    order = np.random.default_rng(seed).permutation(len(runs))
    n_check = min(max(1, round(share * len(runs))), len(runs) - 1)
    check, train = order[:n_check], order[n_check:]
    return np.sort(np.concatenate([runs[i] for i in train])), np.sort(np.concatenate([runs[i] for i in check]))


def split_objects(groups: NDArray[np.intp], share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The same for positives of which some show one object, by its number (n,): an object is on one side only.

    >>> train, check = split_objects(np.repeat(np.arange(20), 3), 0.2, seed=0)
    >>> len(train), len(check), bool(np.isin(train // 3, check // 3).any())
    (48, 12, False)
    """
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    # Numbered as they come, so that objects that follow each other stay neighbours.
    rank = np.argsort(np.argsort(first))[number]
    _, check = split_in_runs(len(first), share, seed)
    is_check = np.isin(rank, check)
    return np.flatnonzero(~is_check), np.flatnonzero(is_check)


def split_images(images: Sequence[Path], share: float, seed: int) -> tuple[list[Path], list[Path]]:
    """Images to mine for training and for checking; at least one on each side."""
    if len(images) < 2:
        raise TrainingDataError(
            f"got {len(images)} usable images without the object; at least two are needed, better hundreds"
        )
    order = np.random.default_rng([seed, 1]).permutation(len(images))
    n_check = min(max(1, round(share * len(images))), len(images) - 1)
    return [images[i] for i in order[n_check:]], [images[i] for i in order[:n_check]]


Patches = NDArray[np.uint8]

# With fewer, the validation positives that set a stage's threshold are three or less.
FEWEST_POSITIVES = 20
FEW_POSITIVES = 50
# Patches a block: their integrals stay below 10 MB.
AT_ONCE = 2048


class FewPositivesWarning(UserWarning):
    """There are few positives, or some cannot be used; the message says how many."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Positives and images to train on, and those kept apart to check by; and boxes that no negative may show.

    `check_groups` (n,) numbers the object that each positive to check by shows, where some show the same.
    """

    positives: Patches
    check: Patches
    images: list[Path]
    check_images: list[Path]
    forbidden: Forbidden = field(default_factory=dict)
    check_groups: NDArray[np.intp] | None = None

    @classmethod
    def from_patches(
        cls,
        positives: Patches,
        images: Sequence[Path],
        window: tuple[int, int],
        plan: Plan,
        groups: NDArray[np.intp] | None = None,
        forbidden: Forbidden | None = None,
    ) -> TrainingData:
        """Check and divide as a plan says; raises `TrainingDataError` on what no detector can be trained on.

        Positives of one group show one object and stay on one side.
        """
        usable = usable_rows(positives, window, plan.min_sigma, groups)
        if groups is None:
            train, check = split_in_runs(len(usable), plan.validation, plan.seed)
        else:
            train, check = split_objects(groups[usable], plan.validation, plan.seed)
        sides = split_images(usable_images(images, window), plan.validation, plan.seed)
        seen = positives[usable]
        check_groups = None if groups is None else groups[usable][check]
        return cls(seen[train], seen[check], *sides, {} if forbidden is None else forbidden, check_groups)


def usable_positives(positives: Patches, window: tuple[int, int], min_sigma: float = OPENCV_MIN_SIGMA) -> Patches:
    """The positives with enough contrast for a detector to look at them; a `FewPositivesWarning` tells of the rest.

    >>> usable_positives(np.zeros((30, 8, 8), dtype=np.uint8), (8, 8))
    Traceback (most recent call last):
    whet.errors.TrainingDataError: got 30 positives, 0 of them different and with contrast; at least 20 ...
    """
    return positives[usable_rows(positives, window, min_sigma)]


def usable_rows(
    positives: Patches,
    window: tuple[int, int],
    min_sigma: float = OPENCV_MIN_SIGMA,
    groups: NDArray[np.intp] | None = None,
) -> NDArray[np.intp]:
    """Indices of the positives that can be used; with `groups` (n,), objects are counted and not their copies."""
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
            f"got {len(positives)} positives, {different} of them different and with contrast; at least "
            f"{FEWEST_POSITIVES} are needed, and some hundred for a detector that is of use"
        )
    if len(seen) < len(positives):
        _warn(f"left out {len(positives) - len(seen)} of {len(positives)} positives: so flat that no detector looks")
    if different < FEW_POSITIVES:
        _warn(f"got {different} different positives: expect a weak detector, some hundred make a good one")
    return seen


def _with_contrast(positives: Patches, min_sigma: float) -> NDArray[np.bool_]:
    blocks = [positives[start : start + AT_ONCE] for start in range(0, len(positives), AT_ONCE)]
    verdicts = [IntegralStack.from_patches(block, min_sigma).has_contrast for block in blocks]
    return np.concatenate([np.empty(0, dtype=np.bool_), *verdicts])


def _warn(message: str) -> None:
    warnings.warn(message, FewPositivesWarning, stacklevel=5)


# These decide how far training goes and how fast; stages that are trained stay what they are. Not so the memory: where
# it is short, features are drawn.
MAY_CHANGE = {"n_stages", "false_positive_rate", "threads"}


def fingerprint(families: Sequence[FeatureFamily], data: TrainingData, plan: Plan) -> dict[str, str]:
    """A text for each part that must not change while a cascade is trained."""
    return {
        **{f"plan.{name}": text for name, text in _plan_fields(plan).items()},
        "features": "; ".join(f"{len(one)} of {type(one).__name__}, {_digest(_parts(one))}" for one in families),
        "positives": _patches(data.positives, data.check),
        "images": _images([*data.images, *data.check_images], data.forbidden),
    }


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Each part in which two fingerprints differ, with both sides.

    >>> differences({"plan.seed": "1"}, {"plan.seed": "0"})
    ['plan.seed is 1, the checkpoint has 0']
    """
    names = [*ours, *(name for name in theirs if name not in ours)]
    return [
        f"{name} is {ours.get(name, 'not set')}, the checkpoint has {theirs.get(name, 'none')}"
        for name in names
        if ours.get(name) != theirs.get(name)
    ]


def _plan_fields(plan: Plan) -> dict[str, str]:
    values = {each.name: getattr(plan, each.name) for each in fields(plan) if each.name not in MAY_CHANGE}
    n_weak, learner = plan.n_weak, plan.learner or GreedyLDA()
    values["n_weak"] = n_weak if isinstance(n_weak, int) else tuple(n_weak)
    # The text of any other object would have its address in it.
    values["learner"] = learner if is_dataclass(learner) else type(learner).__qualname__
    return {name: str(value) for name, value in values.items()}


def _parts(family: FeatureFamily) -> list[Any]:
    # The fields alone: a cache among the attributes would come and go.
    names = [each.name for each in fields(family)] if is_dataclass(family) else sorted(vars(family))
    return [type(family).__name__, *(getattr(family, name) for name in names)]


def _patches(*sides: NDArray[np.uint8]) -> str:
    return f"{sum(map(len, sides))} patches, {_digest(list(sides))}"


def _images(paths: Sequence[Path], forbidden: Forbidden) -> str:
    """By name and size of the files, in their order: a folder may move, and contents would take minutes to read."""
    files = [(path.name, path.stat().st_size) for path in paths]
    boxes = [part for i, path in enumerate(paths) if len(forbidden.get(path, ())) for part in (i, forbidden[path])]
    return f"{len(files)} files, {_digest([*files, *boxes])}"


def _digest(parts: list[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()[:16]
