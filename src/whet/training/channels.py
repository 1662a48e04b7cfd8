"""Training of a channel detector: rounds of boosted trees, each on the mistakes of the round before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from whet.corrections.reference import GUARD_NEGATIVE, GUARD_POSITIVE, LEAST_GAIN, POSITIVE, Reference
from whet.evaluation.advice import LearningCurve
from whet.images.boxes import Boxes, Floats
from whet.images.pyramid import Pixels, Pyramid, WindowIndex
from whet.models.channels.channels import (
    CELL,
    GRID,
    N_FILTERED,
    cells_of,
    compute_channels,
    filter_channels,
    level_channels,
    window_cells,
    without_pixels,
)
from whet.models.channels.fitting import (
    FOLDS,
    BoostedTrees,
    CrossValidation,
    TreeSamples,
    boost,
    columns_of,
    cross_validate,
    draw_features,
    rejection_by_slack,
    rejection_of_accepted,
    tree_model,
)
from whet.models.channels.tree_model import TreeModel
from whet.models.responses import Responses
from whet.training.backgrounds import Mined, MiningProgress
from whet.training.loop import FamilyTraining, Fitting, Training, mean_megapixels
from whet.training.preparation import Preparation
from whet.training.progress import FitProgress, Stop, StopReason
from whet.training.samples import Windows
from whet.training.unseen import (
    CURVE_MODELS,
    CURVE_TREES,
    HeldOutPlaces,
    UnseenObjects,
    detect_unseen,
    learning_curve,
    measure_scales,
)
from whet.training.validation import Fitted, ScannedImages, with_judging_negatives
from whet.training.windows import WindowChoice, cell_window

# Trees of each round, as shares of those of the last.
ROUNDS = (1 / 32, 1 / 8, 1 / 2, 1.0)
# Negatives of each round from beside the objects of held-out images, at most, as a share of the others.
BESIDE = 1 / 4
# Samples of each class that guard corrections: with 1,024 trees, they take half a megabyte.
MOST_GUARDS = 500
# Core seconds on a server of 2024: per megapixel of an image and its pyramid, per tree and sample, per positive.
# The images are scanned in three rounds of mining and again in the end.
SECONDS_PER_MEGAPIXEL = 0.8
SECONDS_PER_TREE_AND_SAMPLE = 2e-7
SECONDS_PER_POSITIVE = 0.004
# Trees in all, as a share of those of the last round: rounds, cross-validation, and the learning curve.
CURVE_TIME = 0.75
TREES_IN_ALL = sum(ROUNDS) + FOLDS + CURVE_TIME
# Events of growing trees.
TREES_PER_EVENT = 16


class ChannelTraining(FamilyTraining):
    """Boosted trees on filtered channels of colour images."""

    name = "channels"
    grid = GRID
    # Pixels around a window that its channels depend on: smoothing, differences and normalisation, in whole cells.
    rim = 3 * CELL
    smallest_object = 0.0
    holds_out_objects = False
    has_shapes = True
    jitters_by_shorter = True

    def choose_window(
        self, boxes: Boxes, margin: float | None = None, window: tuple[int, int] | None = None
    ) -> WindowChoice:
        """A window of whole cells."""
        return cell_window(boxes, margin, window)

    def sample_shape(self, window: tuple[int, int]) -> tuple[int, ...]:
        """Filtered channels (40, rows, columns)."""
        return N_FILTERED, *cells_of(window)

    def sample(self, patch: Pixels) -> Windows:
        """Filtered channels of a patch without its rim."""
        inner = slice(self.rim // CELL, -(self.rim // CELL))
        return filter_channels(compute_channels(patch))[:, inner, inner]

    def samples(self, pyramid: Pyramid, index: WindowIndex) -> Windows:
        """Filtered channels (n, 40, rows, columns) of windows."""
        return window_cells(pyramid, index)

    def as_grey(self, windows: Windows) -> Windows:
        """The first channel."""
        return windows[:, 0]

    def compact(self, pyramid: Pyramid) -> Pyramid:
        """Channels without pixels, and without filtered channels, which are four times as large."""
        return without_pixels(pyramid)

    def compact_size(self, pyramid: Pyramid) -> int:
        """Bytes of channels."""
        return sum(level_channels(level).nbytes for level in pyramid.levels)

    def memory(self, prepared: Preparation) -> int:
        """Bytes of the samples of the last round, twice while they are put together."""
        samples = len(prepared.positives) + len(ROUNDS) * prepared.config.negatives_per_round
        return 2 * self.n_features(prepared) * samples

    def core_seconds(self, prepared: Preparation) -> float:
        """Mining and cutting in images, and growing trees."""
        choice, config, images = prepared.choice, prepared.config, prepared.training_images
        enlarged = max(1.0, max(choice.object_size) / (choice.min_size or np.inf)) ** 2
        mining = SECONDS_PER_MEGAPIXEL * mean_megapixels(images) * enlarged * len(images)
        samples = len(prepared.positives) + len(ROUNDS) * config.negatives_per_round
        share = self.n_features(prepared) / 21760
        growing = SECONDS_PER_TREE_AND_SAMPLE * share * TREES_IN_ALL * config.trees * samples
        return mining + SECONDS_PER_POSITIVE * len(prepared.positives) + growing

    def fitting(self, prepared: Preparation) -> TreeFitting:
        """Rounds of trees."""
        return TreeFitting(prepared)


class TreeFitting(Fitting):
    """Rounds of trees, grown from the beginning in each, on all negatives so far.

    Held-out images supply the negatives beside their objects, by which no threshold is set: where few images have
    objects, these are the negatives that matter most.
    """

    def __init__(self, prepared: Preparation) -> None:
        super().__init__(prepared)
        self.facts = {"learner": "boosted trees", "negatives per round": self.config.negatives_per_round}
        self.sizes = [max(round(self.config.trees * share), 1) for share in ROUNDS]
        self.trees: BoostedTrees | None = None

    def n_negatives(self, held_out: bool, step: int) -> int:
        """New negatives of each round; the first has none beside objects."""
        n = self.config.negatives_per_round
        return round(BESIDE * n) * (step > 0) if held_out else n

    def mine(self, training: Training, held_out: bool, progress: MiningProgress) -> Mined:
        """The windows with the highest scores; of held-out images, those beside objects."""
        if held_out and training.model is not None:
            return Mined.random(training.held_out.beside(training.model, self.n_negatives(held_out, training.step)))
        return super().mine(training, held_out, progress)

    def fit(self, training: Training) -> TreeModel:
        """Trees on all samples so far, which reject below the lowest positive by some slack."""
        samples, number = training.samples, training.step
        negatives, n_trees = samples.all_negatives, self.sizes[training.step]
        training.start_fit(len(samples.positives), len(negatives))

        def progress(n: int) -> None:
            if n % TREES_PER_EVENT == 0 or n == n_trees:
                training.send(FitProgress, n, n_trees, "trees")

        self.trees = self._grow(training, number, progress)
        gap = float(self.trees.lowest[-1] - self.trees.median_negative[-1])
        self.summary = f"{n_trees} trees, lowest positive {gap:.1f} above the median negative", None
        return self._loose_model(self.trees)

    def _grow(self, training: Training, number: int, progress: Callable[[int], None] = lambda _: None) -> BoostedTrees:
        """The trees of a round: a function of the samples, the settings and the number of the round."""
        samples = training.samples
        columns = columns_of(samples.positives.windows, samples.all_negatives)
        rng = np.random.default_rng([self.config.seed, 12, number])
        drawn = draw_features(len(columns), self.sizes[number], rng)
        return boost(columns, len(samples.positives), drawn, threads=training.workers.threads, progress=progress)

    def _loose_model(self, trees: BoostedTrees) -> TreeModel:
        rejection = rejection_by_slack(trees)
        return tree_model(trees, self.prepared.choice.window, rejection, float(rejection[-1]))

    def stop(self, training: Training) -> Stop | None:
        """After the last round."""
        if training.step < len(ROUNDS):
            return None
        return StopReason.ALL_TREES, f"Trained {self.sizes[-1]} trees in {len(ROUNDS)} rounds"

    def seconds_left(self, training: Training) -> float | None:
        """Estimate of all steps, by the seconds per tree and sample of the last round; None before the second round."""
        steps = training.state.steps
        if len(steps) < 2:
            return None
        pace = steps[-1].seconds / (self.sizes[len(steps) - 1] * steps[-1].n_negatives)
        per_round = self.config.negatives_per_round
        rounds = sum([size * per_round * (k + 1) for k, size in enumerate(self.sizes)][len(steps) :])
        validation = (FOLDS + CURVE_TIME) * self.sizes[-1] * per_round * len(ROUNDS)
        mining = (steps[-1].ended - sum(step.seconds for step in steps)) / len(steps)
        # Scans of the images after the last round take as long as this many rounds of mining.
        left = pace * (rounds + validation) + mining * (len(ROUNDS) - len(steps) + 2)
        return max(left - (training.seconds - steps[-1].ended), 0.0)

    def finish(self, training: Training, reason: StopReason, message: str) -> Fitted:
        """The final stage, with its rejection thresholds, and its rates on what it was not trained on."""
        held_out = training.held_out
        trees = self.trees or self._grow(training, len(ROUNDS) - 1)  # a resumed training has only their stage
        samples = TreeSamples.from_cells(
            training.samples.positives.windows,
            training.samples.positives.objects,
            training.samples.all_negatives,
            training.samples.images_of_negatives,
        )
        training.announce(f"cross-validation with {FOLDS} times {len(trees):,} trees")
        validation = self._cross_validate(training, samples, len(trees))
        training.announce(f"rejection thresholds, on {len(held_out.images):,} held-out images")
        unseen = validation.unseen_scores(samples.positives, trees)
        loose = self._loose_model(trees)
        places = HeldOutPlaces.from_images(held_out, loose)
        # Places of a held-out image that the threshold of a detector lets through, far more than any operating point
        # needs.
        least = places.exceeded_by(10, otherwise=float(loose.votes.threshold[0]))
        window = self.prepared.choice.window
        rejection = rejection_of_accepted(trees, unseen, least)
        model = tree_model(trees, window, rejection, least)
        scanned = ScannedImages.from_backgrounds(held_out, model)
        curve, objects = self._validate(training, samples, validation, trees, rejection, least, places)
        found = objects.n_found, objects.n_objects
        result = scanned.result((reason, message), found, 1, training.seconds, objects.scores)
        reference = with_judging_negatives(
            guarding_reference(samples, trees, model, objects.scores_by_object), scanned.seen, len(scanned.readable)
        )
        return Fitted(model, result, scanned, reference, partial(objects.findings, curve, self.prepared))

    def _cross_validate(self, training: Training, samples: TreeSamples, n_trees: int) -> CrossValidation:
        def progress(n: int) -> None:
            if n % TREES_PER_EVENT == 0:
                training.send(FitProgress, n, FOLDS * n_trees, "trees", "cross-validation")

        return cross_validate(samples, n_trees, self.config.seed, training.workers, progress)

    def _validate(
        self,
        training: Training,
        samples: TreeSamples,
        validation: CrossValidation,
        trees: BoostedTrees,
        rejection: Floats,
        least: float,
        places: HeldOutPlaces,
    ) -> tuple[LearningCurve, UnseenObjects]:
        """Learning curve and detections of objects that were not trained on; `places` are held-out negatives."""
        seed, held_out = self.config.seed, training.held_out
        scales = measure_scales(trees, places, validation.folds, held_out)
        n_trees = max(round(CURVE_TREES * len(trees)), 1)

        def progress(n: int) -> None:
            if n % n_trees == 0:
                training.send(FitProgress, n, CURVE_MODELS * n_trees, "trees", "learning curve")

        training.announce(f"learning curve of {CURVE_MODELS} times {n_trees:,} trees")
        curve = learning_curve(
            samples,
            validation.fold,
            columns_of(held_out.windows(places.places)),
            len(held_out.images),
            n_trees,
            seed=seed,
            workers=training.workers,
            progress=progress,
        )
        images = [image for image in self.prepared.annotations.images if len(image.objects)]
        training.announce(f"detection of objects that were not trained on, in {len(images):,} images")
        folds = dict(zip(samples.objects.tolist(), validation.fold.tolist(), strict=True))
        sources = (training.images, held_out)
        objects = detect_unseen(images, folds, validation.folds, trees, rejection, least, sources, scales, seed=seed)
        return curve, objects


def guarding_reference(
    samples: TreeSamples, trees: BoostedTrees, model: TreeModel, score_of: Mapping[int, float]
) -> Reference:
    """Guards: responses to every other object with its mirror image, and to the highest-scoring negatives.

    The objects between them judge. They were trained on: their gains make of their scores those that they have in
    cross-validation, `score_of` their numbers. There are no judging negatives yet.
    """
    objects, positives = samples.objects, samples.positives
    numbers, first = np.unique(objects, return_index=True)
    guarding = np.flatnonzero(np.isin(objects, numbers[::2]))
    guarding = guarding[np.isin(guarding, np.concatenate([first, first + 1]))][:MOST_GUARDS]
    negatives = np.argsort(-trees.running_scores(samples.negatives)[-1], kind="stable")[:MOST_GUARDS]
    others = zip(numbers[1::2].tolist(), first[1::2].tolist(), strict=True)
    judging = np.array([row for number, row in others if number in score_of][:MOST_GUARDS], np.intp)
    seen = trees.running_scores(np.ascontiguousarray(positives[:, judging]))[-1] - model.votes.threshold[0]
    scores = np.array([score_of[n] for n in objects[judging].tolist()])
    gains = np.clip(scores / np.maximum(seen, LEAST_GAIN), LEAST_GAIN, 1 / LEAST_GAIN)
    shape = -1, N_FILTERED, *cells_of(model.window)
    chosen = positives[:, guarding], samples.negatives[:, negatives], positives[:, judging]
    responses = [model.respond(part.T.reshape(shape)) for part in chosen]
    sizes = [part.shape[1] for part in chosen]
    items = objects[guarding], objects.max() + 1 + np.arange(len(negatives)), objects[judging]
    return Reference(
        Responses.concatenate(responses, model.votes.n_weak),
        np.repeat(np.array([GUARD_POSITIVE, GUARD_NEGATIVE, POSITIVE], np.uint8), sizes),
        np.concatenate([np.ones(sum(sizes[:2])), gains]).astype(np.float32),
        np.concatenate(items).astype(np.int32),
        0,
        was_trained_on=True,
    )
