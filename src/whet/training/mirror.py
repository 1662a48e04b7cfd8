"""Whether an object's mirror image is an example of it: measured on the object's own patches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Grey = NDArray[np.uint8]

# Of the difference between left and right, so much may be common to all for mirror images to look alike.
MOST_ASYMMETRY = 0.1
FEWEST_TO_TELL = 20


def is_safe_to_mirror(patches: Grey) -> bool:
    """Whether mirror images of patches (n, height, width) look like the patches; not known of fewer than 20."""
    return len(patches) >= FEWEST_TO_TELL and asymmetry(patches) < MOST_ASYMMETRY


def asymmetry(patches: Grey) -> float:
    """Share of the difference between left and right that patches (n, height, width) have in common, from 0 to 1.

    Of a letter it is near 1: mirror images are another thing. Of faces, or of cars that drive both ways, near 0.

    >>> rng = np.random.default_rng(0)
    >>> letters = np.zeros((50, 8, 8)) + 100 * (np.arange(8) > 3) + rng.integers(0, 20, (50, 8, 8))
    >>> bool(asymmetry(letters.astype(np.uint8)) > 0.9)
    True
    >>> bool(abs(asymmetry(rng.integers(0, 256, (50, 8, 8), dtype=np.uint8))) < 0.1)
    True
    """
    rows = patches.reshape(len(patches), -1).astype(np.float64)
    rows = rows - rows.mean(axis=1, keepdims=True)
    rows /= np.maximum(rows.std(axis=1, keepdims=True), 1e-9)
    normal = rows.reshape(patches.shape)
    odd = (normal - normal[:, :, ::-1]).reshape(len(patches), -1)
    n, total = len(odd), float((odd**2).sum(axis=1).mean())
    if n < 2 or not total > 0:
        return 0.0
    # The mean of n random differences has 1/n of their square; without that, chance would look like a common side.
    common = float((odd.mean(axis=0) ** 2).sum())
    return (n * common - total) / ((n - 1) * total)
