"""Training of a cascade: each stage on the windows that the stages before it still get wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.features.family import FeatureFamily
from whet.features.memory import DEFAULT_MAX_MEMORY
from whet.model.cascade import Cascade
from whet.training.learners import NodeLearner
from whet.training.mining import Mined, Miner
from whet.training.node import Node, train_node
from whet.training.node_goal import NodeGoal
from whet.training.windows import windows_of_pictures

Patches = NDArray[np.uint8]

# A stage needs that many negatives of the number that was asked for; with fewer, training has come to its end.
FEWEST = 0.1
# Faces that follow each other in a file may be near-duplicates: they are split in runs of this length.
RUN = 100


@dataclass(frozen=True)
class Plan:
    """How a cascade is trained.

    `n_weak` bounds a stage, by its number from 0 if it is a sequence (the last one holds for all further stages).
    `false_positive_rate` is that of the whole cascade, in windows of pictures without the object.
    """

    goal: NodeGoal = field(default_factory=lambda: NodeGoal(0.995, 0.5))
    n_stages: int = 20
    n_weak: int | Sequence[int] = 200
    n_negatives: int = 5000
    validation: float = 0.2
    false_positive_rate: float = 1e-6
    soft: bool = False
    learner: NodeLearner | None = None
    max_memory: int = DEFAULT_MAX_MEMORY
    threads: int | None = None
    seed: int = 0

    def most_weak(self, stage: int) -> int:
        """How many weak learners a stage may have.

        >>> Plan(n_weak=(10, 20)).most_weak(5)
        20
        """
        return self.n_weak if isinstance(self.n_weak, int) else self.n_weak[min(stage, len(self.n_weak) - 1)]


@dataclass(frozen=True, eq=False)
class Progress:
    """A stage was trained: the cascade so far, its newest node, and what was mined for it."""

    cascade: Cascade
    node: Node
    n_negatives: int
    detection_rate: float
    false_positive_rate: float
    mined: Mined | None


@dataclass(frozen=True, eq=False)
class Ending:
    """Why training ended, and an estimate of the cascade's false-positive rate with its 95 % interval."""

    reason: str
    false_positive_rate: float
    interval: tuple[float, float]


def train_cascade(
    family: FeatureFamily,
    positives: Patches,
    pictures: Sequence[Path],
    plan: Plan | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
) -> tuple[Cascade, tuple[Node, ...], Ending]:
    """Train stages until the plan's false-positive rate is reached or the pictures give no more negatives.

    `positives` are patches (n, height, width) of the object, `pictures` files without it. A part of both is for
    validation only: no positive of one run of neighbours, and no picture, is on both sides. `tell` hears of
    every stage. Nothing depends on the number of threads.
    """
    plan = Plan() if plan is None else plan
    train, check = split_in_runs(len(positives), plan.validation, plan.seed)
    sides = split_pictures(pictures, plan.validation, plan.seed)
    miners = [Miner(side, family.window, plan.seed + k, threads=plan.threads) for k, side in enumerate(sides)]
    n_wanted = plan.n_negatives, max(round(plan.n_negatives * plan.validation), 100)
    rng = np.random.default_rng(plan.seed)
    negatives, unseen = (
        windows_of_pictures(side, n, family.window, rng) for side, n in zip(sides, n_wanted, strict=True)
    )
    nodes: list[Node] = []
    mined: Mined | None = None
    while True:
        node = _train_stage(family, positives[train], negatives, positives[check], unseen, plan, len(nodes))
        nodes.append(node)
        cascade = Cascade(family.window, tuple(node.stage() for node in nodes))
        passed = node.predict(positives[check], plan.threads), node.predict(unseen, plan.threads)
        tell(Progress(cascade, node, len(negatives), float(passed[0].mean()), float(passed[1].mean()), mined))
        mined, judged = (miner.mine(cascade, n, len(nodes)) for miner, n in zip(miners, n_wanted, strict=True))
        negatives, unseen = mined.patches, judged.patches
        ending = _ending(mined, judged, len(nodes), plan)
        if ending is not None:
            return cascade, tuple(nodes), ending


def _train_stage(
    family: FeatureFamily,
    positives: Patches,
    negatives: Patches,
    check: Patches,
    unseen: Patches,
    plan: Plan,
    number: int,
) -> Node:
    patches, is_positive = _labelled(positives, negatives)
    return train_node(
        family,
        patches,
        is_positive,
        plan.most_weak(number),
        learner=plan.learner,
        goal=plan.goal,
        validation=_labelled(check, unseen),
        soft=plan.soft,
        max_memory=plan.max_memory,
        threads=plan.threads,
        seed=plan.seed,
    )


def _labelled(positives: Patches, negatives: Patches) -> tuple[Patches, NDArray[np.bool_]]:
    both = np.concatenate([positives, negatives])
    return both, np.arange(len(both)) < len(positives)


def _ending(mined: Mined, judged: Mined, n_stages: int, plan: Plan) -> Ending | None:
    n = len(mined.patches)
    if mined.acceptance_rate <= plan.false_positive_rate:
        reason = "the false-positive rate of the plan is reached"
    elif n < FEWEST * plan.n_negatives or not len(judged.patches):
        reason = f"the pictures ran out of negatives ({n} of {plan.n_negatives}): add pictures"
    elif n_stages >= plan.n_stages:
        reason = "all stages of the plan are trained"
    else:
        return None
    return Ending(reason, mined.acceptance_rate, rate_interval(mined.n_accepted, mined.n_looked_at))


def rate_interval(n_accepted: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval of a rate of which `n_accepted` of `n` were seen.

    Neighbouring windows are accepted together, so the true interval is wider; it is a lower bound of doubt.

    >>> tuple(round(bound, 3) for bound in rate_interval(0, 100))
    (0.0, 0.036)
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = betaincinv(n_accepted, n - n_accepted + 1, tail) if n_accepted else 0.0
    high = betaincinv(n_accepted + 1, n - n_accepted, 1 - tail) if n_accepted < n else 1.0
    return float(low), float(high)


def split_in_runs(n: int, share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices to train on and to check by, in runs of neighbours, so that near-duplicates stay on one side.

    >>> train, check = split_in_runs(1000, 0.2, seed=0)
    >>> len(train), len(check)
    (800, 200)
    """
    runs = np.array_split(np.arange(n), max(2, -(-n // RUN)))
    order = np.random.default_rng(seed).permutation(len(runs))
    n_check = max(1, round(share * len(runs)))
    check, train = order[:n_check], order[n_check:]
    return np.sort(np.concatenate([runs[i] for i in train])), np.sort(np.concatenate([runs[i] for i in check]))


def split_pictures(pictures: Sequence[Path], share: float, seed: int) -> tuple[list[Path], list[Path]]:
    """Pictures to mine for training and for checking; at least one on each side."""
    if len(pictures) < 2:
        raise ValueError(f"got {len(pictures)} pictures without the object; at least two are needed, better hundreds")
    order = np.random.default_rng([seed, 1]).permutation(len(pictures))
    n_check = min(max(1, round(share * len(pictures))), len(pictures) - 1)
    return [pictures[i] for i in order[n_check:]], [pictures[i] for i in order[:n_check]]
