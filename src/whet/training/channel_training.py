"""Training of a channel detector: rounds of boosting, each on the mistakes of the round before."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from whet._kernels.workers import ALL_THREADS, Workers
from whet.cascade.cascade import Cascade
from whet.cascade.stage import Stage
from whet.detector.reference import GUARD_NEGATIVE, GUARD_POSITIVE, LEAST_GAIN, POSITIVE, Reference
from whet.errors import TrainingDataError
from whet.evaluation.curves import image_interval, rate_interval
from whet.features.channels import N_FILTERED, cells_of
from whet.training.boosting import BoostedTrees, boost, draw_features, tree_stage
from whet.training.channel_preparation import ChannelPreparation
from whet.training.channel_samples import Backgrounds, Places
from whet.training.channel_validation import (
    CURVE_MODELS,
    CURVE_TREES,
    FOLDS,
    PLACES_PER_IMAGE,
    Apart,
    CrossValidation,
    Samples,
    Scale,
    Validated,
    cross_validate,
    detect_unseen,
    learning_curve,
    measure_scales,
)
from whet.training.checkpoint import Checkpoint, StageRecord, State
from whet.training.progress import (
    Event,
    Mining,
    Resumed,
    RoundFinished,
    RoundStarted,
    StepStarted,
    StopReason,
    TrainingResult,
    TreesAdded,
)

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Callback = Callable[[Event], None]

# Trees of each round, as shares of those of the last.
ROUNDS = (1 / 32, 1 / 8, 1 / 2, 1.0)
# Negatives of each round from beside the objects of held-out images, at most, as a share of the others.
BESIDE = 1 / 4
# While mining, a window is rejected below the lowest positive by more than this share of the distance between the
# classes: unseen objects score far lower than those that were trained on.
SLACK = 0.8
# In the end, objects of other folds decide: all that the threshold accepts pass the trees before, by this share.
UNSEEN_SLACK = 0.1
LEAST_GAP = 0.01
# Samples of each class that guard corrections: with 1,024 trees, they take half a megabyte.
MOST_GUARDS = 500
# The time of the steps after the last round: the learning curve takes as long as this share of the last round, and the
# images are scanned again, which takes as long as so many rounds of mining.
CURVE_TIME = 0.75
LAST_SCANS = 2
# Events of growing trees.
TREES_PER_EVENT = 16


def train_channels(
    prepared: ChannelPreparation,
    callback: Callback = lambda _: None,
    *,
    checkpoint: Checkpoint,
    workers: Workers = ALL_THREADS,
) -> tuple[Stage, Reference, TrainingResult, Validated]:
    """Train the stage of trees of a channel detector, and collect samples that guard its corrections.

    Each round grows trees on all positives and on all negatives so far, from the beginning, and then mines further
    negatives: the windows with the highest scores outside of the boxes. Held-out images supply those beside their
    objects, by which no threshold is set: where few images have objects, these are the negatives that matter most. With
    a checkpoint, a repeated call resumes an interrupted training and gives the same stage, bit by bit. The result does
    not depend on `workers`.
    """
    return _Training(prepared, callback, checkpoint, workers).run()


@dataclass(eq=False)
class _Negatives:
    """Places (n, 4) of images that serve as negatives, and their cells (features, n)."""

    images: Backgrounds
    places: Places
    cells: Bytes

    @classmethod
    def of(cls, images: Backgrounds, n_features: int) -> _Negatives:
        """No negatives yet."""
        return cls(images, np.empty((0, 4), np.int32), np.empty((n_features, 0), np.uint8))

    def add(self, places: Places) -> None:
        """Add negatives."""
        cells = self.images.cells(places)
        self.places = np.concatenate([self.places, places])
        self.cells = np.concatenate([self.cells, cells.reshape(len(cells), len(self.cells)).T], axis=1)


@dataclass(eq=False)
class _Training:
    prepared: ChannelPreparation
    callback: Callback
    file: Checkpoint
    workers: Workers
    state: State = field(default_factory=State)

    def __post_init__(self) -> None:
        self.images = self.prepared.backgrounds(self.prepared.training_images, self.workers)
        self.held_out = self.prepared.backgrounds(self.prepared.held_out_images, self.workers)
        cells = self.prepared.positives.patches
        self.positives = np.ascontiguousarray(cells.reshape(len(cells), -1).T)
        self.sides = tuple(_Negatives.of(images, len(self.positives)) for images in (self.images, self.held_out))
        self.begun = time.monotonic()

    @property
    def negatives(self) -> Bytes:
        """All negatives (features, n) so far: those of the training images, and then those of the held-out ones."""
        return np.concatenate([side.cells for side in self.sides], axis=1)

    @property
    def sizes(self) -> list[int]:
        """Trees of each round."""
        return [max(round(self.prepared.config.trees * share), 1) for share in ROUNDS]

    def run(self) -> tuple[Stage, Reference, TrainingResult, Validated]:
        self._resume_or_start()
        while True:
            trees = self._round()
            if len(self.state.records) == len(ROUNDS):
                return self._finish(trees)
            self._mine(self._stage(trees))
            self._save()

    def _resume_or_start(self) -> None:
        state, config = self.file.load(), self.prepared.config
        if state is None:
            self.sides[0].add(self.images.random(config.negatives_per_round, [config.seed, 11]))
            if not len(self.sides[0].places):
                raise TrainingDataError(
                    "no window outside of the boxes: they cover the images; add images without the object "
                    "(--negatives, in Python negatives=)"
                )
            self._save()
            return
        self.state = state
        self.begun -= state.seconds
        for side, miner in zip(self.sides, state.miners, strict=True):
            side.add(miner["used"])
        self._send(Resumed)

    def _round(self) -> BoostedTrees:
        number, n_positives, negatives = len(self.state.records), self.positives.shape[1], self.negatives
        n_trees, n_negatives, begun = self.sizes[number], negatives.shape[1], self._seconds()
        self._send(RoundStarted, n_positives, n_negatives)

        def progress(n: int) -> None:
            if n % TREES_PER_EVENT == 0 or n == n_trees:
                self._send(TreesAdded, n, n_trees)

        samples = np.concatenate([self.positives, negatives], axis=1)
        rng = np.random.default_rng([self.prepared.config.seed, 12, number])
        drawn = draw_features(len(samples), n_trees, rng)
        trees = boost(samples, n_positives, drawn, threads=self.workers.threads, progress=progress)
        now = self._seconds()
        gap = float(trees.lowest[-1] - trees.median_negative[-1])
        self.state.records.append(StageRecord(n_negatives, 1.0, 0.0, meets_goal=True, seconds=now - begun, ended=now))
        self._send(RoundFinished, n_trees, n_negatives, gap, number=number)
        return trees

    def _stage(self, trees: BoostedTrees, rejection: Floats | None = None, threshold: float | None = None) -> Stage:
        rejection = rejection_by_slack(trees) if rejection is None else rejection
        threshold = float(rejection[-1]) if threshold is None else threshold
        return tree_stage(trees, self.prepared.choice.window, rejection, threshold)

    def _cascade(self, stage: Stage) -> Cascade:
        return Cascade(self.prepared.choice.window, (stage,))

    def _mine(self, stage: Stage) -> None:
        config, n_images = self.prepared.config, len(self.images.images)

        def progress(n_found: int, n_tested: int, n_done: int) -> None:
            self._send(Mining, n_found, config.negatives_per_round, n_tested, n_done, n_images, False)

        self.state.stages = [stage]
        cascade = self._cascade(stage)
        self.sides[0].add(self.images.mine(cascade, config.negatives_per_round, progress)[0])
        self.sides[1].add(self.held_out.beside(cascade, round(BESIDE * config.negatives_per_round)))

    def _finish(self, trees: BoostedTrees) -> tuple[Stage, Reference, TrainingResult, Validated]:
        """The final stage, with its rejection thresholds, and its rates on what it was not trained on."""
        own, beside = (side.places[:, 0] for side in self.sides)
        images = np.concatenate([own, len(self.images.images) + beside])
        samples = Samples(self.positives, self.prepared.positives.groups, self.negatives, images)
        self._send(StepStarted, f"cross-validation with {FOLDS} times {len(trees):,} trees")
        validation = self._cross_validate(samples, len(trees))
        self._send(StepStarted, f"rejection thresholds, on {len(self.held_out.images):,} held-out images")
        unseen = validation.unseen_scores(self.positives, trees)
        loose = self._cascade(self._stage(trees))
        apart = Apart.from_images(self.held_out, loose.stages[0])
        least = apart.exceeded_by(PLACES_PER_IMAGE, otherwise=loose.stages[0].threshold)
        rejection = rejection_of_accepted(trees, unseen, least)
        stage = self._stage(trees, rejection, least)
        _, mined = self.held_out.mine(self._cascade(stage), 1)
        scales = measure_scales(trees, loose.stages[0], apart, validation.folds, self.held_out)
        validated = self._validated(samples, validation, trees, stage, apart.places, scales)
        n_found, n = validated.n_found, validated.n_objects
        return (
            stage,
            self._reference(trees, stage, validated),
            TrainingResult(
                StopReason.ALL_TREES,
                f"Trained {len(trees)} trees in {len(ROUNDS)} rounds",
                float(mined.accepted.sum() / max(mined.tested.sum(), 1)),
                image_interval(mined.accepted, mined.tested),
                int(mined.tested.sum()),
                len(mined.tested),
                n_found / max(n, 1),
                rate_interval(n_found, n),
                (),
                1,
                self._seconds(),
                validated.object_scores,
            ),
            validated,
        )

    def _validated(
        self,
        samples: Samples,
        validation: CrossValidation,
        trees: BoostedTrees,
        stage: Stage,
        places: Places,
        scales: Sequence[Scale],
    ) -> Validated:
        """Learning curve and detections of objects that were not trained on; `places` are held-out negatives."""
        seed, n_images = self.prepared.config.seed, len(self.held_out.images)
        cells = self.held_out.cells(places)
        negatives = np.ascontiguousarray(cells.reshape(len(cells), len(self.positives)).T)
        n_trees = max(round(CURVE_TREES * len(trees)), 1)

        def progress(n: int) -> None:
            if n % n_trees == 0:
                self._send(TreesAdded, n, CURVE_MODELS * n_trees, "learning curve")

        self._send(StepStarted, f"learning curve of {CURVE_MODELS} times {n_trees:,} trees")
        curve = learning_curve(
            samples,
            validation.fold,
            negatives,
            n_images,
            n_trees,
            seed=seed,
            workers=self.workers,
            progress=progress,
        )
        images = [image for image in self.prepared.annotations.images if len(image.objects)]
        self._send(StepStarted, f"detection of objects that were not trained on, in {len(images):,} images")
        sources = (self.images, self.held_out)
        found = detect_unseen(
            images, samples, validation, trees, stage, sources, scales, seed=seed, workers=self.workers
        )
        return Validated(curve, found)

    def _reference(self, trees: BoostedTrees, stage: Stage, validated: Validated) -> Reference:
        """Guards: responses to every other object with its mirror image, and to the highest-scoring negatives.

        The objects between them judge. They were trained on: their gains make of their scores those that they have in
        cross-validation. There are no judging negatives yet.
        """
        groups, cascade = self.prepared.positives.groups, self._cascade(stage)
        numbers, first = np.unique(groups, return_index=True)
        guarding = np.flatnonzero(np.isin(groups, numbers[::2]))
        guarding = guarding[np.isin(guarding, np.concatenate([first, first + 1]))][:MOST_GUARDS]
        every = self.negatives
        negatives = np.argsort(-trees.running_scores(every)[-1], kind="stable")[:MOST_GUARDS]
        unseen = validated.scores_by_object
        others = zip(numbers[1::2].tolist(), first[1::2].tolist(), strict=True)
        judging = np.array([row for number, row in others if number in unseen][:MOST_GUARDS], np.intp)
        seen = trees.running_scores(np.ascontiguousarray(self.positives[:, judging]))[-1] - stage.threshold
        scores = np.array([unseen[n] for n in groups[judging].tolist()])
        gains = np.clip(scores / np.maximum(seen, LEAST_GAIN), LEAST_GAIN, 1 / LEAST_GAIN)
        shape = -1, N_FILTERED, *cells_of(cascade.window)
        chosen = self.positives[:, guarding], every[:, negatives], self.positives[:, judging]
        bits = [np.packbits(cascade.respond_to_cells(each.T.reshape(shape)), axis=1) for each in chosen]
        sizes = [each.shape[1] for each in chosen]
        items = groups[guarding], groups.max() + 1 + np.arange(len(negatives)), groups[judging]
        return Reference(
            np.concatenate(bits),
            np.repeat(np.array([GUARD_POSITIVE, GUARD_NEGATIVE, POSITIVE], np.uint8), sizes),
            np.concatenate([np.ones(sum(sizes[:2])), gains]).astype(np.float32),
            np.concatenate(items).astype(np.int32),
            0,
            cascade.n_weak,
        )

    def _cross_validate(self, samples: Samples, n_trees: int) -> CrossValidation:
        def progress(n: int) -> None:
            if n % TREES_PER_EVENT == 0:
                self._send(TreesAdded, n, FOLDS * n_trees, "cross-validation")

        return cross_validate(samples, n_trees, self.prepared.config.seed, self.workers, progress)

    def _save(self) -> None:
        unreadable = np.empty(0, np.int32)
        self.state.miners = tuple({"used": side.places, "unreadable": unreadable} for side in self.sides)
        self.state.seconds = self._seconds()
        self.file.save(self.state)

    def _seconds(self) -> float:
        return time.monotonic() - self.begun

    def _seconds_left(self) -> float | None:
        """Estimate of all steps, by the seconds per tree and sample of the last round; None before the second round."""
        records = self.state.records
        if len(records) < 2:
            return None
        pace = records[-1].seconds / (self.sizes[len(records) - 1] * records[-1].n_negatives)
        per_round = self.prepared.config.negatives_per_round
        rounds = sum([size * per_round * (k + 1) for k, size in enumerate(self.sizes)][len(records) :])
        validation = (FOLDS + CURVE_TIME) * self.sizes[-1] * per_round * len(ROUNDS)
        mining = (records[-1].ended - sum(record.seconds for record in records)) / len(records)
        left = pace * (rounds + validation) + mining * (len(ROUNDS) - len(records) + LAST_SCANS)
        return max(left - (self._seconds() - records[-1].ended), 0.0)

    def _send(self, kind: type[Event], *details: object, number: int | None = None) -> None:
        number = len(self.state.records) if number is None else number
        self.callback(kind(number, self._seconds(), self._seconds_left(), *details))


def rejection_of_accepted(trees: BoostedTrees, unseen: Floats, least: float) -> Floats:
    """Rejection thresholds (trees,) that pass all unseen objects whose scores (trees, n) are above `least` at last.

    What is rejected later anyway may be rejected at once (Zhang and Viola, 2007).
    """
    accepted = unseen[:, unseen[-1] > least]
    if not accepted.shape[1]:
        return rejection_by_slack(trees)
    # Early trees may have one median for both classes: the lowest of the accepted still has to pass.
    slack = UNSEEN_SLACK * np.maximum(trees.median - trees.median_negative, LEAST_GAP)
    return np.asarray(accepted.min(axis=1) - slack)


def rejection_by_slack(trees: BoostedTrees) -> Floats:
    """Rejection thresholds (trees,) from the scores of the samples that trees were grown on."""
    return trees.lowest - SLACK * (trees.median - trees.median_negative)
