"""What a cascade is trained on, checked before the first stage and divided into two sides."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.errors import TrainingDataError
from whet.features.integral import IntegralStack
from whet.kernels.normalisation import OPENCV_MIN_SIGMA
from whet.training.forbidden import Forbidden
from whet.training.plan import Plan
from whet.training.split import split_in_runs, split_objects, split_pictures
from whet.training.windows import usable_pictures

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
    """Positives and pictures to train on, and those kept apart to check by; and boxes that no negative may show.

    `check_groups` (n,) numbers the object that each positive to check by shows, where some show the same.
    """

    positives: Patches
    check: Patches
    pictures: list[Path]
    check_pictures: list[Path]
    forbidden: Forbidden = field(default_factory=dict)
    check_groups: NDArray[np.intp] | None = None

    @classmethod
    def of(
        cls,
        positives: Patches,
        pictures: Sequence[Path],
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
        sides = split_pictures(usable_pictures(pictures, window), plan.validation, plan.seed)
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
    verdicts = [IntegralStack.of(block, min_sigma).looked_at for block in blocks]
    return np.concatenate([np.empty(0, dtype=np.bool_), *verdicts])


def _warn(message: str) -> None:
    warnings.warn(message, FewPositivesWarning, stacklevel=5)
