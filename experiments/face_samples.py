"""Faces and non-faces for the experiments: mirrored, in several crops, in disjoint sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import LFW_FACE, faces24, lfw_images, negative_images
from experiments.random_windows import windows_of_images
from whet.io.image_files import read_grey
from whet.training.samples import cut_window

WINDOW = (24, 24)
Patches = NDArray[np.uint8]


def mirrored(faces: Patches) -> Patches:
    """Faces (n, 24, 24) and their mirror images, one after the other (2n, 24, 24).

    >>> mirrored(np.array([[[1, 2]]], dtype=np.uint8)).tolist()
    [[[1, 2]], [[2, 1]]]
    """
    return np.stack([faces, faces[:, :, ::-1]], axis=1).reshape(-1, *faces.shape[1:])


def inner_faces(n: int, share: float, rng: np.random.Generator) -> Patches:
    """Faces (n, 24, 24) of n people of LFW: the inner `share` of Viola and Jones's box.

    Only every second person is used: the others are for synthetic video, on which parameters are chosen.
    """
    left, top, side = LFW_FACE
    middle, half = np.array([left, top]) + side / 2, share * side / 2
    box = np.concatenate([middle - half, middle + half])
    paths = lfw_images()[::2]
    people = rng.choice(len(paths), n, replace=False).tolist()
    return np.stack([cut_window(read_grey(paths[i]), box, WINDOW) for i in people])


def face_sets(n_sets: int, size: int, rng: np.random.Generator) -> list[Patches]:
    """Sets of `size` mirrored faces; a face and its mirror image are in one set.

    A set is a run of neighbours in the file, where near-duplicates are, and sets are as far apart as possible.
    """
    faces = faces24()
    starts = np.linspace(0, len(faces), n_sets, endpoint=False).astype(int)
    room = len(faces) // n_sets - size // 2
    if room < 0:
        needed = n_sets * size // 2
        raise ValueError(
            f"{n_sets} sets of {size} mirrored faces need {needed}; there are {len(faces)}: use fewer or smaller sets"
        )
    offsets = starts + rng.integers(0, room + 1)
    return [mirrored(faces[start : start + size // 2]) for start in offsets]


def non_face_sets(
    n_sets: int, size: int, rng: np.random.Generator, progress: Callable[[float], None] = lambda _: None
) -> list[Patches]:
    """Sets of `size` random windows; no two sets have windows of the same image."""
    paths = negative_images()
    order = rng.permutation(len(paths))
    sets = []
    for number, part in enumerate(np.array_split(order, n_sets)):
        sets.append(windows_of_images([paths[i] for i in part], size, WINDOW, rng))
        progress((number + 1) / n_sets)
    return sets
