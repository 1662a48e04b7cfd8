"""What new samples teach each stage of a whole cascade: faces all of them, false positives those that they reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from experiments.face_samples import WINDOW
from experiments.false_positives import STEP, Patches, cascade_of
from whet.detector.base import Delta, DetectorBase, LearningStage
from whet.detector.records import lesson
from whet.training.mining import Miner
from whet.training.negatives import windows_of_images

BLOCK = 20_000  # patches in memory while a stage is taught
MAX_PER_IMAGE = 600  # of those that teach: enough for a quota from a hundred images


def lesson_of_faces(base: DetectorBase, faces: Patches) -> Delta:
    """New faces teach all stages, each face once."""
    return lesson(base, faces, np.ones(len(faces), dtype=np.bool_), weights=1)


def lesson_of_false_positives(
    base: DetectorBase, images: Sequence[Path], n: int, seed: int, tell: Callable[[float], None] = lambda _: None
) -> Delta:
    """Up to `n` false positives of earlier stages, from new images, divided evenly among the stages.

    Every stage is taught a random sample of the windows that reach it, as in its training. A window that was looked
    for because it reaches a late stage does not teach the early ones: they would learn that most of the world looks
    like a face. Where the images have fewer windows for a stage than its part, these are all there are, and teach
    that stage and those after it, as far as they reach. At most `BLOCK` patches are in memory.
    """
    stages = [stage for stage in base.stages if isinstance(stage, LearningStage)]
    quota = n // len(stages)
    total = Delta.empty([len(stage) for stage in stages])
    for number in range(len(stages)):
        own, n_found = Delta.empty(total.sizes), 0
        for patches in _reaching(stages[:number], images, quota, seed + number):
            own = own + lesson(base, patches, np.zeros(len(patches), dtype=np.bool_), weights=1)
            n_found += len(patches)
        tell((number + 1) / len(stages))
        if n_found < quota:
            return total + _only(own, slice(number, None))
        total = total + _only(own, slice(number, number + 1))
    return total


def _only(delta: Delta, kept: slice) -> Delta:
    """What a delta teaches some of its stages."""
    stages = list(Delta.empty(delta.sizes).stages)
    stages[kept] = delta.stages[kept]
    return Delta(tuple(stages))


def _reaching(stages: Sequence[LearningStage], images: Sequence[Path], n: int, seed: int) -> Iterator[Patches]:
    """Windows that pass these stages, in blocks, at most `n` in all."""
    if not stages:
        rng = np.random.default_rng(seed)
        for start in range(0, n, BLOCK):
            yield windows_of_images(images, min(BLOCK, n - start), WINDOW, rng)
        return
    miner = Miner(images, WINDOW, seed, step=STEP, max_per_image=MAX_PER_IMAGE)
    cascade, turn = cascade_of(stages), 0
    while n > 0:
        mined = miner.mine(cascade, min(BLOCK, n), turn)
        yield mined.patches
        n, turn = n - len(mined.patches), turn + 1
        if mined.is_exhausted:
            return
