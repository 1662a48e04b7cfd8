"""Training of a cascade: each stage trains on the false positives of the stages before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet._kernels.workers import ALL_THREADS, Workers
from whet.cascade.cascade import Cascade
from whet.cascade.stage import TrainedStage
from whet.errors import CannotSeparateError, CheckpointError
from whet.evaluation.curves import image_interval, rate_interval
from whet.features.integral import FeatureFamily
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.training.checkpoint import Checkpoint, StageRecord, State
from whet.training.config import TrainingConfig
from whet.training.data import TrainingData, fingerprint
from whet.training.mining import Mined, Miner
from whet.training.negatives import ExcludedBoxes, windows_of_images
from whet.training.progress import (
    STALLED,
    Event,
    Mining,
    Pace,
    Resumed,
    StageFinished,
    StageStarted,
    StopReason,
    TrainingResult,
    WeakAdded,
    seconds_left,
    stop_by_held_out,
    stop_by_mined,
)
from whet.training.rejection import pruned
from whet.training.stage import GreedyLDA, StageGoal, StageLearner, StageValidation, train_stage

Patches = NDArray[np.uint8]
Callback = Callable[[Event], None]

# If a stage accepts more than this share of the negatives, the other feature families are tried too.
HARD = 0.6


def train_cascade(
    family: FeatureFamily | Sequence[FeatureFamily],
    positives: Patches,
    images: Sequence[Path],
    config: TrainingConfig | None = None,
    callback: Callback = lambda _: None,
    *,
    learner: StageLearner | None = None,
    checkpoint: Path | None = None,
    groups: NDArray[np.intp] | None = None,
    excluded_boxes: ExcludedBoxes | None = None,
    workers: Workers = ALL_THREADS,
) -> tuple[Cascade, tuple[TrainedStage, ...], TrainingResult]:
    """Train stages until the cascade reaches `config.target_false_positive_rate` or cannot improve.

    `positives` are patches (n, height, width) of the object, `images` files without it. `config.validation_share` of
    both is held out; a run of neighbouring positives, and an image, is on one side only. The config settings in
    `whet.training.config.CASCADE_SETTINGS` apply. `callback` receives the events of `whet.training.progress`.
    `learner` selects and weighs the weak learners (default: `GreedyLDA(ridge=config.ridge)`).

    With `config.early_exits`, the finished cascade is pruned (`whet.training.rejection.pruned`). Rates of false
    positives are measured before.

    With several feature families, stages use them in turn. If a stage rejects few negatives, all families are tried
    and the best one is kept.

    Positives with the same number in `groups` (n,) show one object: they stay on one side and count as one. Images
    may contain the object inside `excluded_boxes` (m, 4): negatives are taken outside of these.

    With a `checkpoint` file, a repeated call resumes an interrupted training and gives the same cascade, bit by bit.
    `max_stages`, `target_false_positive_rate` and `workers` may change between runs. The result does not depend on
    the number of workers.
    """
    config = TrainingConfig() if config is None else config
    families = tuple(family) if isinstance(family, Sequence) else (family,)
    data = TrainingData.from_patches(positives, images, common_window(families), config, groups, excluded_boxes)
    return train_stages(families, data, config, callback, learner=learner, checkpoint=checkpoint, workers=workers)


def train_stages(
    families: Sequence[FeatureFamily],
    data: TrainingData,
    config: TrainingConfig,
    callback: Callback = lambda _: None,
    *,
    learner: StageLearner | None = None,
    checkpoint: Path | None = None,
    workers: Workers = ALL_THREADS,
) -> tuple[Cascade, tuple[TrainedStage, ...], TrainingResult]:
    """Train a cascade like `train_cascade`, on data that is already checked and split."""
    if learner is None:
        learner = GreedyLDA(ridge=DEFAULT_RIDGE if config.ridge is None else config.ridge)
    file = Checkpoint(checkpoint, fingerprint(families, data, config, learner))
    window = common_window(families)
    return _Training(tuple(families), window, data, config, callback, learner, workers, file).run()


def common_window(families: Sequence[FeatureFamily]) -> tuple[int, int]:
    """The window (height, width) of all families."""
    windows = {family.window for family in families}
    if len(windows) != 1:
        raise ValueError(
            f"got families for windows {sorted(windows)}; expected at least one family, all with one window"
        )
    return windows.pop()


@dataclass(eq=False)
class _Training:
    families: tuple[FeatureFamily, ...]
    window: tuple[int, int]
    data: TrainingData
    config: TrainingConfig
    callback: Callback
    learner: StageLearner
    workers: Workers
    file: Checkpoint
    state: State = field(default_factory=State)

    def __post_init__(self) -> None:
        sides = self.data.images, self.data.held_out_images
        seed, boxes = self.config.seed, self.data.excluded_boxes
        self.miners = [
            Miner(side, self.window, seed + k, workers=self.workers, excluded_boxes=boxes)
            for k, side in enumerate(sides)
        ]
        self.begun = time.monotonic()
        self.expected_end: float | None = None

    def run(self) -> tuple[Cascade, tuple[TrainedStage, ...], TrainingResult]:
        self._resume_or_start()
        while True:
            stop = self._mine_or_stop() if self.state.stages else None
            if stop is not None:
                return self._finished(*stop)
            self._train_stage()
            self._save()

    def _resume_or_start(self) -> None:
        state, config = self.file.load(), self.config
        if state is None:
            rng = np.random.default_rng(config.seed)
            sizes = config.negatives_per_stage, config.held_out_per_stage
            self.state.mined, self.state.held_out = (
                self._random(miner, n, rng) for miner, n in zip(self.miners, sizes, strict=True)
            )
            self._save()
            return
        if len(state.stages) > config.max_stages:
            raise CheckpointError(
                f"the checkpoint {self.file.path} has {len(state.stages)} stages, max_stages is {config.max_stages}: "
                "raise max_stages, or choose another checkpoint file"
            )
        self.state = state
        self.begun -= state.seconds
        for miner, used in zip(self.miners, state.miners, strict=True):
            miner.restore(used)
        self._estimate()
        self._send(Resumed)

    def _random(self, miner: Miner, n: int, rng: np.random.Generator) -> Mined:
        """Random windows for the first stage, which has no cascade to mine with."""
        none = np.empty(0, dtype=np.int64)
        boxes = miner.excluded_boxes
        windows = windows_of_images(miner.images, n, self.window, rng, excluded_boxes=boxes, workers=self.workers)
        return Mined(windows, none, none, is_exhausted=False)

    def _mine_or_stop(self) -> tuple[StopReason, str] | None:
        """Mine negatives for the next stage, or return why to stop; the held-out images are scanned first."""
        state = self.state
        if state.held_out is None:
            state.held_out = self._mine(held_out=True)
            self._save()
        stop = stop_by_held_out(state.held_out, len(state.stages), self.config, state.stalled)
        if stop is None:
            if state.mined is None:
                state.mined = self._mine(held_out=False)
                self._save()
            stop = stop_by_mined(state.mined, self.config)
        return stop

    def _finished(
        self, stop_reason: StopReason, message: str
    ) -> tuple[Cascade, tuple[TrainedStage, ...], TrainingResult]:
        """The cascade with its final rejection thresholds. Checkpoints have the stages without: more may follow."""
        config, held_out, stages = self.config, self.state.held_out, tuple(self.state.stages)
        assert held_out is not None
        if config.early_exits:
            stages = pruned(stages, self.data.held_out_positives, config.min_sigma, seed=config.seed)
        cascade = self._as_cascade(stages)
        accepted = cascade.accepts(self.data.held_out_positives)
        result = TrainingResult(
            stop_reason,
            message,
            held_out.acceptance_rate,
            image_interval(held_out.accepted, held_out.has_contrast),
            held_out.n_tested,
            held_out.n_images,
            float(accepted.mean()),
            _detection_interval(accepted, self.data.held_out_groups),
            tuple(number for number, record in enumerate(self.state.records) if not record.meets_goal),
            len(self.state.stages),
            self._seconds(),
        )
        return cascade, stages, result

    def _mine(self, *, held_out: bool) -> Mined:
        miner = self.miners[held_out]
        n = self.config.held_out_per_stage if held_out else self.config.negatives_per_stage

        def progress(n_found: int, n_tested: int, n_images: int) -> None:
            self._send(Mining, n_found, n, n_tested, n_images, len(miner.images), held_out)

        return miner.mine(self._cascade(), n, len(self.state.stages), progress)

    def _train_stage(self) -> None:
        """Train one more stage; a stage that rejects almost nothing is dropped and stops the training."""
        state, config = self.state, self.config
        assert state.mined is not None
        assert state.held_out is not None
        if state.records:
            last, n_images = state.records[-1], state.mined.n_images + state.held_out.n_images
            mining = self._seconds() - last.ended
            windows = (state.mined.n_tested + state.held_out.n_tested) / max(n_images, 1)
            state.paces.append(Pace(last.seconds, mining, n_images, windows, state.held_out.acceptance_rate))
        self._estimate()
        positives, held_out = self._positives()
        negatives, unseen = state.mined.patches, state.held_out.patches
        self._send(StageStarted, len(positives), len(negatives))
        begun = self._seconds()
        trained, rates = self._best_stage((positives, negatives), (held_out, unseen))
        if trained is None or rates[1] > STALLED * config.min_detection_rate:
            self._stall(rates[1])
            return
        meets_goal = rates[1] <= config.max_false_positive_rate
        now = self._seconds()
        mined = state.mined if state.stages else None
        state.stages.append(trained)
        state.records.append(StageRecord(len(negatives), *rates, meets_goal, now - begun, now))
        state.mined = state.held_out = None
        cascade = self._cascade()
        self._send(
            StageFinished, cascade, trained, len(negatives), *rates, meets_goal, mined, stage=len(state.stages) - 1
        )

    def _best_stage(
        self, training: tuple[Patches, Patches], validation: tuple[Patches, Patches]
    ) -> tuple[TrainedStage | None, tuple[float, float]]:
        """A stage of the next family in turn, and its rates on validation samples.

        If it rejects few negatives, the other families are tried too and the best is taken. None if no family
        separates positives from negatives at all.
        """
        best, rates = None, (1.0, 1.0)
        for turn in range(len(self.families)):
            family = self.families[(len(self.state.stages) + turn) % len(self.families)]
            try:
                trained = self._train_family(family, training, validation)
            except CannotSeparateError:
                if not self.state.stages and len(self.families) == 1:
                    raise
                continue
            passed = [trained.run().score(side, self.workers.threads) > 0 for side in validation]
            found = float(passed[0].mean()), float(passed[1].mean())
            if best is None or found[1] < rates[1]:
                best, rates = trained, found
            if rates[1] <= HARD:
                break
        return best, rates

    def _train_family(
        self, family: FeatureFamily, training: tuple[Patches, Patches], validation: tuple[Patches, Patches]
    ) -> TrainedStage:
        config, max_weak = self.config, self.config.stage_size(len(self.state.stages))

        def added(n_weak: int, judge: StageValidation) -> None:
            self._send(WeakAdded, n_weak, max_weak, judge.detection_rate, judge.false_positive_rate)

        return train_stage(
            family,
            *_labelled(*training),
            max_weak,
            learner=self.learner,
            goal=StageGoal(config.min_detection_rate, config.max_false_positive_rate),
            validation=_labelled(*validation),
            soft=config.early_exits,
            max_memory=config.max_memory,
            workers=self.workers,
            seed=config.seed,
            progress=added,
        )

    def _stall(self, rate: float) -> None:
        if not self.state.stages:
            raise CannotSeparateError(
                f"the first stage accepts {rate:.1%} of random windows of the held-out images at a detection rate of "
                f"{self.config.min_detection_rate:.1%}: check that the negative images do not contain the object and "
                "that the boxes do; otherwise raise max_weak_learners or max_features"
            )
        self.state.stalled = rate

    def _positives(self) -> tuple[Patches, Patches]:
        sides = self.data.positives, self.data.held_out_positives
        if not (self.config.drop_rejected_positives and self.state.stages):
            return sides
        cascade = self._cascade()
        train, held_out = (side[cascade.accepts(side)] for side in sides)
        return train, held_out

    def _cascade(self) -> Cascade:
        return self._as_cascade(self.state.stages)

    def _as_cascade(self, stages: Sequence[TrainedStage]) -> Cascade:
        return Cascade(self.window, tuple(stage.run() for stage in stages), self.config.min_sigma)

    def _save(self) -> None:
        self.state.miners = tuple(miner.state() for miner in self.miners)
        self.state.seconds = self._seconds()
        self.file.save(self.state)

    def _seconds(self) -> float:
        return time.monotonic() - self.begun

    def _estimate(self) -> None:
        left = seconds_left(self.state.paces, self.config, sum(len(miner.images) for miner in self.miners))
        self.expected_end = None if left is None else self._seconds() + left

    def _send(self, kind: type[Event], *details: object, stage: int | None = None) -> None:
        now, end = self._seconds(), self.expected_end
        left = None if end is None else max(end - now, 0.0)
        self.callback(kind(len(self.state.stages) if stage is None else stage, now, left, *details))


def _detection_interval(accepted: NDArray[np.bool_], groups: NDArray[np.intp] | None) -> tuple[float, float]:
    """Interval of the detection rate; the cascade accepts copies of one object together, so objects are the samples."""
    if groups is None:
        return rate_interval(int(accepted.sum()), len(accepted))
    _, number = np.unique(groups, return_inverse=True)
    n = np.bincount(number)
    if accepted.all() or not accepted.any():  # no variance between objects: each counts as one
        return rate_interval(len(n) * int(accepted.any()), len(n))
    return image_interval(np.bincount(number, weights=accepted).astype(np.int64), n)


def _labelled(positives: Patches, negatives: Patches) -> tuple[Patches, NDArray[np.bool_]]:
    both = np.concatenate([positives, negatives])
    return both, np.arange(len(both)) < len(positives)
