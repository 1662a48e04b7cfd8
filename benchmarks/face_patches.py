"""Patches for `node` and `cluster`: OpenCV's faces and windows of images without a face, or noise without data."""

from __future__ import annotations

import numpy as np
from experiments.datasets import faces24, negative_images
from experiments.random_windows import windows_of_images
from numpy.typing import NDArray
from scripts.train_face import WINDOW

from whet.errors import DataNotFoundError


def face_patches(n: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.bool_], str]:
    """Half faces and half non-faces (n, 24, 24), which are faces, and what the data are."""
    rng = np.random.default_rng(seed)
    is_positive = np.arange(n) < n // 2
    try:
        faces = faces24()
        positives = faces[rng.choice(len(faces), n // 2, replace=n // 2 > len(faces))]
        paths = [negative_images()[i] for i in rng.permutation(3000)[:200]]
        negatives = windows_of_images(paths, n - n // 2, WINDOW, rng)
        return np.concatenate([positives, negatives]), is_positive, "faces_opencv24 and negatives"
    except DataNotFoundError:
        return rng.integers(0, 256, (n, *WINDOW), dtype=np.uint8), is_positive, "noise"
