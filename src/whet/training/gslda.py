"""Training of a cascade of grey features: each stage is fitted to the false positives of the stages before it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from whet.errors import CannotSeparateError, CheckpointError
from whet.evaluation.evaluation import image_interval, rate_interval
from whet.images.boxes import BoxOffset
from whet.images.pyramid import SCALE_FACTOR
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.models.gslda.cascade import TrainedStage
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.fitting import GreedyLDA, StageGoal, StageLearner, StageValidation, pruned, train_stage
from whet.models.gslda.integral import FeatureFamily, IntegralStack
from whet.models.gslda.pools import TRAINABLE
from whet.parallel.workers import ALL_THREADS, Workers
from whet.training.backgrounds import Backgrounds, BoxesByImage, Mined, MiningRule
from whet.training.config import TrainingConfig
from whet.training.loop import FamilyTraining, FewPositivesWarning, Fitting, Training, check_objects, mean_megapixels
from whet.training.preparation import Preparation
from whet.training.progress import FitProgress, Rates, Stop, StopReason, TrainingResult
from whet.training.samples import Positives, Windows
from whet.training.validation import Fitted
from whet.training.windows import WindowChoice

# If a stage accepts more than this share of the negatives, the other feature families are tried too.
HARD = 0.6
# With fewer objects, at most three validation positives set the threshold of a stage.
FEWEST_OBJECTS = 20
# Patches per block: their integral images stay below 10 MB.
AT_ONCE = 2048
# Training stops if the images supply less than this share of the requested negatives.
FEWEST = 0.1
# A random stage accepts negatives at the rate of positives. A stage that accepts more than this share of that rate
# costs positives and time, and rejects almost nothing.
STALLED = 0.95
# Core seconds on a server of 2024: per feature and sample, and per megapixel that is scanned.
SECONDS_PER_RESPONSE = 6e-9
SECONDS_PER_MEGAPIXEL = 0.15
# Windows of a pyramid per pixel of its image.
WINDOWS_PER_PIXEL = 1 / (1 - 1 / SCALE_FACTOR**2)
# Prevents one image, such as a brick wall, from filling the training set.
PER_IMAGE = 30


class CascadeTraining(FamilyTraining):
    """Cascades of stages that greedy sparse LDA selects from features of grey windows."""

    name = "gslda"
    mining = MiningRule("random", PER_IMAGE, most_iou=None, most_inside=0.2, equal_levels=True)
    most_held_out = None
    keeps_negatives = False

    def usable(self, positives: Positives, config: TrainingConfig) -> Positives:
        """The positives with enough contrast."""
        windows = positives.windows
        seen = np.flatnonzero(_has_contrast(windows, config.min_sigma))
        usable = positives.take(seen)
        n_different = min(len({patch.tobytes() for patch in usable.windows}), usable.n_objects)
        what = f"positives, {n_different} of them different and with contrast"
        check_objects(n_different, FEWEST_OBJECTS, f"{len(positives)} {what}")
        if len(seen) < len(positives):
            warnings.warn(
                f"skipped {len(positives) - len(seen)} of {len(positives)} positives: their standard deviation is at "
                f"most {config.min_sigma:g} (min_sigma)",
                FewPositivesWarning,
                stacklevel=4,
            )
        return usable

    def n_features(self, prepared: Preparation) -> int:
        """Number of features of all kinds."""
        return sum(map(len, self.pools_of(prepared)))

    def pools_of(self, prepared: Preparation) -> tuple[FeatureFamily, ...]:
        """Pools of features, which the stages use in turn."""
        return pools_for(prepared.choice.window, prepared.config)

    def memory(self, prepared: Preparation) -> int:
        """Bytes that the largest stage needs: one bit per response, and the integral images."""
        height, width = prepared.choice.window
        samples = len(prepared.positives) + prepared.config.negatives_per_stage
        largest = max(map(len, self.pools_of(prepared)))
        return largest * samples // 8 + 2 * 4 * (height + 1) * (width + 1) * samples

    def core_seconds(self, prepared: Preparation) -> float:
        """Stages take turns between features; each scans as many images as supply its negatives."""
        config, n_held_out = prepared.config, len(prepared.held_out_images)
        samples = len(prepared.positives) + config.negatives_per_stage
        n_kinds = len(config.features.split(","))
        stage = SECONDS_PER_RESPONSE * self.n_features(prepared) / n_kinds * samples
        megapixels = mean_megapixels(prepared.images)
        per_image = (
            1e6 * megapixels * WINDOWS_PER_PIXEL * config.max_false_positive_rate ** np.arange(config.max_stages)
        )
        sides = (len(prepared.training_images), config.negatives_per_stage), (n_held_out, config.held_out_per_stage)
        # Held-out images are scanned again for the reference set and for the operating points.
        n_scans = 3 * n_held_out + float(
            sum(np.minimum(n, wanted / np.clip(per_image, None, PER_IMAGE)).sum() for n, wanted in sides)
        )
        return config.max_stages * stage + SECONDS_PER_MEGAPIXEL * megapixels * n_scans

    def fitting(self, prepared: Preparation) -> CascadeFitting:
        """A cascade of the features that the settings name."""
        return CascadeFitting(prepared, self.pools_of(prepared))


def _has_contrast(windows: Windows, min_sigma: float) -> NDArray[np.bool_]:
    blocks = [windows[start : start + AT_ONCE] for start in range(0, len(windows), AT_ONCE)]
    verdicts = [IntegralStack.from_patches(block, min_sigma).has_contrast for block in blocks]
    return np.concatenate([np.empty(0, dtype=np.bool_), *verdicts])


def pools_for(window: tuple[int, int], config: TrainingConfig) -> tuple[FeatureFamily, ...]:
    """Features of each kind, sampled down to `max_features`; the seed fixes the sample.

    >>> [len(pool) for pool in pools_for((24, 24), TrainingConfig(features="haar,lbp", max_features=5000))]
    [5000, 5000]
    """
    rng = np.random.default_rng([config.seed, 3])
    pools: list[FeatureFamily] = []
    for name in config.features.split(","):
        pool = TRAINABLE[name].from_window(window)
        if len(pool) > config.max_features:
            pool = pool.take(np.sort(rng.choice(len(pool), config.max_features, replace=False)))
        pools.append(pool)
    return tuple(pools)


class CascadeFitting(Fitting):
    """Stages until the cascade reaches its false-positive rate or cannot improve.

    With several pools of features, stages use them in turn. If a stage rejects few negatives, all are tried and the
    best one is kept. The `learner` selects and weighs weak learners (default: `GreedyLDA`).
    """

    def __init__(
        self, prepared: Preparation, pools: Sequence[FeatureFamily], learner: StageLearner | None = None
    ) -> None:
        super().__init__(prepared)
        self.pools = tuple(pools)
        self.learner = learner or GreedyLDA(ridge=DEFAULT_RIDGE if self.config.ridge is None else self.config.ridge)
        self.goals = {
            "stage detection rate": self.config.min_detection_rate,
            "stage false-positive rate": self.config.max_false_positive_rate,
            "false-positive rate": self.config.target_false_positive_rate,
        }
        self.facts = {"learner": type(self.learner).__name__, "negatives per stage": self.config.negatives_per_stage}
        self.notes = {"weak_stages": [], "stalled": None}

    def n_negatives(self, held_out: bool, step: int) -> int:  # noqa: ARG002
        """Negatives of a stage, and windows that validate it."""
        return self.config.held_out_per_stage if held_out else self.config.negatives_per_stage

    def fit(self, training: Training) -> CascadeModel | None:
        """One more stage; None if it rejects almost nothing, which stops the training."""
        before, config = self._model(training), self.config
        samples, is_held_out = training.samples, training.samples.is_held_out
        patches = samples.positives.windows
        sides = [patches[~is_held_out], patches[is_held_out]]
        if before is not None and config.drop_rejected_positives:
            sides = [side[before.cascade.accepts(side)] for side in sides]
        training.start_fit(len(sides[0]), len(samples.negatives))
        inside, outside = zip(sides, (samples.negatives.windows, samples.held_out_negatives.windows), strict=True)
        trained, rates = self._best_stage(training, inside, outside)
        if trained is None or rates[1] > STALLED * config.min_detection_rate:
            self._stall(training, rates[1])
            return None
        if rates[1] > config.max_false_positive_rate:
            self.notes["weak_stages"].append(training.step)
        self.summary = f"{len(trained)} weak learners", rates
        stages = () if before is None else before.stages
        return CascadeModel(self.prepared.choice.window, (*stages, trained), config.min_sigma)

    def _model(self, training: Training) -> CascadeModel | None:
        return cast("CascadeModel | None", training.model)

    def _best_stage(
        self, training: Training, inside: tuple[Windows, Windows], outside: tuple[Windows, Windows]
    ) -> tuple[TrainedStage | None, Rates]:
        """A stage of the next pool in turn, and its rates on validation samples.

        If it rejects few negatives, the other pools are tried too and the best is taken. None if no pool separates
        positives from negatives at all.
        """
        best, rates = None, (1.0, 1.0)
        for turn in range(len(self.pools)):
            pool = self.pools[(training.step + turn) % len(self.pools)]
            try:
                trained = self._stage(training, pool, inside, outside)
            except CannotSeparateError:
                if training.model is None and len(self.pools) == 1:
                    raise
                continue
            passed = [trained.run().score(side, training.workers.threads) > 0 for side in outside]
            measured = float(passed[0].mean()), float(passed[1].mean())
            if best is None or measured[1] < rates[1]:
                best, rates = trained, measured
            if rates[1] <= HARD:
                break
        return best, rates

    def _stage(
        self,
        training: Training,
        pool: FeatureFamily,
        inside: tuple[Windows, Windows],
        outside: tuple[Windows, Windows],
    ) -> TrainedStage:
        config, max_weak = self.config, self.config.stage_size(training.step)

        def added(n_weak: int, check: StageValidation) -> None:
            rates = check.detection_rate, check.false_positive_rate
            training.send(FitProgress, n_weak, max_weak, "weak learners", "", rates)

        return train_stage(
            pool,
            *_labelled(*inside),
            max_weak,
            learner=self.learner,
            goal=StageGoal(config.min_detection_rate, config.max_false_positive_rate),
            validation=_labelled(*outside),
            soft=config.early_exits,
            max_memory=config.max_memory,
            workers=training.workers,
            seed=config.seed,
            progress=added,
        )

    def _stall(self, training: Training, rate: float) -> None:
        if training.model is None:
            raise CannotSeparateError(
                f"the first stage accepts {rate:.1%} of random windows of the held-out images at a detection rate of "
                f"{self.config.min_detection_rate:.1%}: check that the negative images do not contain the object and "
                "that the boxes do; otherwise raise max_weak_learners or max_features"
            )
        self.notes["stalled"] = rate

    def stop(self, training: Training) -> Stop | None:
        """Whether training stops, by the windows that the cascade accepts in the held-out and the training images."""
        (mined, held_out), config, n_stages = training.mined, self.config, training.step
        if n_stages > config.max_stages:
            raise CheckpointError(
                f"the checkpoint {training.file.path} has {n_stages} stages, max_stages is {config.max_stages}: "
                "raise max_stages, or choose another checkpoint file"
            )
        if held_out is None or not n_stages:
            return None
        stop = stop_by_held_out(held_out, n_stages, config, self.notes["stalled"])
        return stop_by_mined(mined, config) if stop is None and mined is not None else stop

    def seconds_left(self, training: Training) -> float | None:
        """As long for each stage to come as for those so far; None before two stages are finished."""
        steps = training.state.steps
        if len(steps) < 2:
            return None
        left = steps[-1].ended / len(steps) * (self.config.max_stages - len(steps))
        return max(left - (training.seconds - steps[-1].ended), 0.0)

    def finish(self, training: Training, reason: StopReason, message: str) -> Fitted:
        """The cascade with its final rejection thresholds. Checkpoints have the stages without: more may follow.

        Rates of false positives are measured before.
        """
        held_out, model = training.mined[True], self._model(training)
        assert held_out is not None
        assert model is not None
        positives = training.samples.positives.take(training.samples.is_held_out)
        if self.config.early_exits:
            stages = pruned(model.stages, positives.windows, self.config.min_sigma, seed=self.config.seed)
            model = replace(model, stages=stages)
        accepted = model.cascade.accepts(positives.windows)
        result = TrainingResult(
            reason,
            message,
            held_out.acceptance_rate,
            image_interval(held_out.accepted, held_out.tested),
            held_out.n_tested,
            held_out.n_images,
            float(accepted.mean()),
            _detection_interval(accepted, positives.objects),
            tuple(self.notes["weak_stages"]),
            training.step,
            training.seconds,
        )
        return Fitted(model, result)


def _detection_interval(accepted: NDArray[np.bool_], objects: NDArray[np.intp]) -> tuple[float, float]:
    """Interval of the detection rate; the cascade accepts copies of one object together, so objects are the samples."""
    _, number = np.unique(objects, return_inverse=True)
    n = np.bincount(number)
    if n.max() == 1:
        return rate_interval(int(accepted.sum()), len(accepted))
    if accepted.all() or not accepted.any():  # no variance between objects: each counts as one
        return rate_interval(len(n) * int(accepted.any()), len(n))
    return image_interval(np.bincount(number, weights=accepted).astype(np.int64), n)


def _labelled(positives: Windows, negatives: Windows) -> tuple[Windows, NDArray[np.bool_]]:
    both = np.concatenate([positives, negatives])
    return both, np.arange(len(both)) < len(positives)


# --- When to stop -----------------------------------------------------------------------------------------------------


def stop_by_held_out(held_out: Mined, n_stages: int, config: TrainingConfig, stalled: float | None) -> Stop | None:
    """Whether training stops after `n_stages` stages, by the windows that they accept in the held-out images."""
    _, high = image_interval(held_out.accepted, held_out.tested)
    # A rate of 0 in few windows proves little: then the upper end of the interval has to be below the target.
    rate = held_out.acceptance_rate if held_out.n_accepted else high
    if rate <= config.target_false_positive_rate:
        return StopReason.TARGET_REACHED, (
            f"Reached the target false-positive rate of {config.target_false_positive_rate:g}"
        )
    if n_stages >= config.max_stages:
        return StopReason.ALL_STAGES, f"Trained all {config.max_stages} stages (max_stages)"
    if stalled is not None:
        return StopReason.CANNOT_IMPROVE, (
            f"Dropped stage {n_stages}: it accepts {stalled:.1%} of the held-out windows that pass all earlier stages. "
            "These windows resemble the object. Check that the negative images do not contain it; otherwise raise "
            "max_weak_learners or max_features, or lower min_detection_rate"
        )
    n = len(held_out.places)
    # Fewer held-out windows cannot validate a further stage.
    if n < 10:
        return StopReason.IMAGES_EXHAUSTED, (
            f"Found only {n} of {config.held_out_per_stage} negatives in held-out images; add images with --negatives"
        )
    return None


def stop_by_mined(mined: Mined, config: TrainingConfig) -> Stop | None:
    """Whether training stops because the training images supply too few negatives."""
    n = len(mined.places)
    if n >= FEWEST * config.negatives_per_stage:
        return None
    return StopReason.IMAGES_EXHAUSTED, (
        f"Found only {n} of {config.negatives_per_stage} negatives in the training images; add images with --negatives"
    )


def given_window(window: tuple[int, int], box_offset: BoxOffset | None = None) -> WindowChoice:
    """The choice of a given window (height, width), which the object fills, or some part of it."""
    (height, width), aspect = window, window[1] / window[0]
    return WindowChoice(height, width, box_offset or BoxOffset(), 0, aspect, aspect, aspect, holds=True)


def grey_backgrounds(
    images: Sequence[Path],
    window: tuple[int, int],
    excluded: BoxesByImage | None = None,
    *,
    box_offset: BoxOffset | None = None,
    seed: int = 0,
    workers: Workers = ALL_THREADS,
) -> Backgrounds:
    """Images to take grey windows (height, width) from, outside of `excluded` boxes (n, 4)."""
    choice = given_window(window, box_offset)
    return Backgrounds(images, CascadeTraining(), choice, excluded, seed=seed, workers=workers)
