"""Statistics of fixed stages: responses to positives, and to the negative windows that reach each stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.cascade.cascade import Cascade, Stage
from whet.features.integral import IntegralStack
from whet.lda.statistics import BinaryStatistics
from whet.training.mining import Miner
from whet.training.negatives import ExcludedBoxes, windows_of_images

Patches = NDArray[np.uint8]

# Negative windows to count in each stage, and how many are too few: those of the stages before are then counted too.
NEGATIVES = 2000
FEWEST_NEGATIVES = 500
# Prevents a few images from giving all negatives of a stage.
MAX_PER_IMAGE = 50
AT_ONCE = 2000


def count_stages(
    stages: Sequence[Stage],
    window: tuple[int, int],
    positives: Patches,
    images: Sequence[Path],
    *,
    excluded_boxes: ExcludedBoxes | None = None,
    n_negatives: int = NEGATIVES,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[tuple[Stage, ...], list[int]]:
    """The stages with the counts of their responses to all positives, and to the negative windows that reach them.

    Negatives are random windows of the images in the first stage, and windows that pass the stages before in the
    others. The second result numbers the stages that too few windows reach: windows of earlier stages are counted there
    too.
    """
    negatives = _Negatives(stages, window, images, excluded_boxes or {}, n_negatives, seed, threads)
    counted: list[Stage] = []
    short: list[int] = []
    for number, stage in enumerate(stages):
        reaching, others = negatives.next()
        if len(reaching) < min(FEWEST_NEGATIVES, n_negatives):
            short.append(number)
        pair = _count(stage, positives), _count(stage, np.concatenate([reaching, others]))
        counted.append(replace(stage, counts=pair))
        progress((number + 1) / len(stages))
    return tuple(counted), short


def _count(stage: Stage, patches: Patches) -> BinaryStatistics:
    parts = (stage.respond(IntegralStack.from_patches(block)).T.view(np.uint8) for block in _blocks(patches))
    return sum((BinaryStatistics.from_samples(part) for part in parts), BinaryStatistics.empty(len(stage)))


def _blocks(patches: Patches) -> Iterator[Patches]:
    return (patches[start : start + AT_ONCE] for start in range(0, len(patches), AT_ONCE))


class _Negatives:
    """Negative windows for one stage after the other."""

    def __init__(
        self,
        stages: Sequence[Stage],
        window: tuple[int, int],
        images: Sequence[Path],
        excluded_boxes: ExcludedBoxes,
        n: int,
        seed: int,
        threads: int | None,
    ) -> None:
        self.stages, self.window, self.n = stages, window, n
        self.miner = Miner(
            images, window, seed=seed, max_per_image=MAX_PER_IMAGE, threads=threads, excluded_boxes=excluded_boxes
        )
        rng = np.random.default_rng([seed, 3])
        found = windows_of_images(images, 2 * n, window, rng, excluded_boxes=excluded_boxes)
        self.reaching = _kept(found, lambda block: IntegralStack.from_patches(block).has_contrast)
        self.before = self.reaching[:0]  # windows of earlier stages, the hardest first
        self.number = 0
        self.has_all = False

    def next(self) -> tuple[Patches, Patches]:
        """The windows that reach the next stage; and some of earlier stages, where these are too few."""
        if self.number:
            stage = self.stages[self.number - 1]
            passed = np.concatenate([np.empty(0, np.bool_), *(stage.accepts(b) for b in _blocks(self.reaching))])
            self.before = np.concatenate([self.reaching[~passed], self.before])[: self.n]
            self.reaching = self.reaching[passed]
            if len(self.reaching) < self.n and not self.has_all:
                self._mine()
        self.number += 1
        missing = max(min(FEWEST_NEGATIVES, self.n) - len(self.reaching), 0)
        return self.reaching, self.before[:missing]

    def _mine(self) -> None:
        """Twice as many as needed: half of them pass the next stage."""
        cascade = Cascade(self.window, tuple(self.stages[: self.number]))
        mined = self.miner.mine(cascade, 2 * self.n - len(self.reaching), turn=self.number)
        self.reaching = np.concatenate([self.reaching, mined.patches])
        self.has_all = mined.is_exhausted and bool((mined.accepted <= MAX_PER_IMAGE).all())


def _kept(patches: Patches, test: Callable[[Patches], NDArray[np.bool_]]) -> Patches:
    return np.concatenate([patches[:0], *(block[test(block)] for block in _blocks(patches))])
