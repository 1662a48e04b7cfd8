"""Disjoint sets of indices: `parent` (n,) leads from each to the lowest of its set."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

Indices = NDArray[np.intp]


@kernel
def root(parent: Indices, i: int) -> int:
    """The lowest index of the set that i is in; the way there is halved for the next time."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def unite(parent: Indices, i: int, j: int) -> None:
    """Make one set of those of i and j."""
    a, b = root(parent, i), root(parent, j)
    parent[max(a, b)] = min(a, b)
