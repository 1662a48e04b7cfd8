"""The memory that training may take, and what is done when it does not suffice."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from whet.errors import MemoryBudgetError

# Bit rows of all 162,336 features of a 24 x 24 window on 50,000 patches.
DEFAULT_MAX_MEMORY = 1 << 30


class MemoryBudgetWarning(UserWarning):
    """Not all features fit into the memory that training may take; a sample of them is trained."""


def within_budget(n_features: int, words: int, max_memory: int, rng: np.random.Generator) -> NDArray[np.intp] | slice:
    """The features whose bit rows of `words` fit into `max_memory` bytes: all, or a random sample in order.

    >>> within_budget(10, 4, 1000, np.random.default_rng(0))
    slice(None, None, None)
    """
    fitting = max_memory // (8 * words)
    if n_features <= fitting:
        return slice(None)
    if fitting < 1:
        raise MemoryBudgetError(
            f"max_memory is {max_memory} bytes; the bits of one feature alone take {8 * words}: allow some hundred MB"
        )
    warnings.warn(
        f"the responses of {n_features:,} features take {8 * words * n_features / 2**20:,.0f} MB, "
        f"max_memory allows {max_memory / 2**20:,.0f} MB: training on {fitting:,} features drawn at random",
        MemoryBudgetWarning,
        stacklevel=3,
    )
    return np.sort(rng.choice(n_features, fitting, replace=False))
