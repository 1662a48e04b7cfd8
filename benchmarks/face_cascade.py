"""A small face cascade for benchmarks, trained in half a minute; on random patches if the data are missing."""

from __future__ import annotations

import numpy as np
from experiments.datasets import negative_images
from numpy.typing import NDArray

from benchmarks.face_patches import WINDOW, face_patches
from whet.cascade.cascade import Cascade
from whet.cascade.pyramid import Pyramid
from whet.cascade.scan import scan_pyramid
from whet.cascade.stage import Stage
from whet.errors import DataNotFoundError
from whet.features.haar import HaarPool
from whet.features.lbp import BlockPatternPool
from whet.io.images import read_grey
from whet.training.stage import StageGoal, train_stage

GOAL = StageGoal(detection_rate=0.99, false_positive_rate=0.5)
NEGATIVES = 3000
MAX_PER_IMAGE = 60


def face_cascade(family: str = "haar", n_stages: int = 8, seed: int = 0) -> tuple[Cascade, str]:
    """Stages on faces and on the false positives of the stages before, and what it was trained on."""
    rng = np.random.default_rng(seed)
    patches, is_positive, data = face_patches(2 * NEGATIVES, seed)
    faces, negatives = patches[is_positive], patches[~is_positive]
    pool = (
        HaarPool.from_window(WINDOW).sample(12_000, rng) if family == "haar" else BlockPatternPool.from_window(WINDOW)
    )
    stages: list[Stage] = []
    while len(stages) < n_stages and len(negatives) > 200:
        everything = np.concatenate([faces, negatives])
        labels = np.arange(len(everything)) < len(faces)
        half = np.arange(len(everything)) % 2 == 0
        train, validation = (everything[half], labels[half]), (everything[~half], labels[~half])
        stages.append(train_stage(pool, *train, 100, goal=GOAL, validation=validation).run())
        negatives = false_positives(Cascade(WINDOW, tuple(stages)), rng)
    return Cascade(WINDOW, tuple(stages)), data


def false_positives(cascade: Cascade, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Windows (n, 24, 24) of images without a face that the cascade accepts, a few from each image."""
    try:
        paths = negative_images()
    except DataNotFoundError:
        return np.empty((0, *WINDOW), dtype=np.uint8)
    found: list[NDArray[np.uint8]] = []
    for i in rng.permutation(len(paths))[:200]:
        pyramid = Pyramid.from_image(read_grey(paths[i]), WINDOW, step=2)
        fired = scan_pyramid(cascade, pyramid)
        found += list(pyramid.patches(fired.index.take(rng.permutation(len(fired))[:MAX_PER_IMAGE])))
        if len(found) >= NEGATIVES:
            break
    return np.array(found[:NEGATIVES]).reshape(-1, *WINDOW)
