"""What to train on and what to check by: positives in runs of neighbours, pictures whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.errors import TrainingDataError

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


def split_pictures(pictures: Sequence[Path], share: float, seed: int) -> tuple[list[Path], list[Path]]:
    """Pictures to mine for training and for checking; at least one on each side."""
    if len(pictures) < 2:
        raise TrainingDataError(
            f"got {len(pictures)} usable pictures without the object; at least two are needed, better hundreds"
        )
    order = np.random.default_rng([seed, 1]).permutation(len(pictures))
    n_check = min(max(1, round(share * len(pictures))), len(pictures) - 1)
    return [pictures[i] for i in order[n_check:]], [pictures[i] for i in order[:n_check]]
