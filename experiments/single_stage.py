"""Single-stage face detectors: their training, the best window of an image, and learning from their own detections.

Training, as in the paper's video experiment: 1,000 mirrored faces and 10,000 non-faces: 1,000 random windows, and three
times 3,000 false positives of an AdaBoost stage trained on the samples so far. AdaBoost and AsymBoost are as Viola and
Jones published them: both classes start with the same weight, and stumps are trained anew under the weights of each
round. Greedy LDA selects from class-balanced stumps with a ridge of 1e-6, close to the paper's none, and with whet's
default ridge. To compare: stumps of least plain error, the paper's words, which at one face to ten others say no to
nearly everything; and boosting of frozen stumps.

Detection: a single stage scores every window. Once a window of score s is known, others are rejected as soon as the sum
of all further positive weights cannot lift them above s. Fewer than a quarter of the weak learners are then evaluated,
and no better window is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.boosting import BinnedFeatures, Boosting, retrained_rounds
from experiments.datasets import LFW_FACE, faces24, negative_images
from experiments.face_samples import WINDOW, inner_faces, mirrored
from experiments.mining import Miner
from experiments.random_windows import windows_of_images
from whet._kernels.window_scan import OPENCV_MIN_SIGMA
from whet.images.boxes import BoxOffset, box_iou
from whet.images.detections import FiredWindows
from whet.images.pyramid import Pyramid, WindowIndex
from whet.lda.discriminant import OnlineDiscriminant
from whet.models.gslda.cascade import Cascade, LearningStage, Stage, TrainedStage
from whet.models.gslda.cascade_scan import scan_pyramid
from whet.models.gslda.fitting import GreedyLDA, StageLearner, train_stage
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.weak_learners import Stumps
from whet.models.gslda.weak_training import train_weak_learners
from whet.tracking.tracker import MIN_SCORE_SHARE, Guard, Health, SelfTraining

Boxes = NDArray[np.float64]
GreyImage = NDArray[np.uint8]
Patches = NDArray[np.uint8]

# The part of Viola and Jones's box that a window covers: the result of `experiments.video_rule`.
INNER = 0.8
# A face from cheekbone to cheekbone and from hairline to chin, in distances between the pupils, from anthropometry:
# 138, 63 and 120 mm at 63 mm; compared with the first true box of each video, not with any detection.
HALF_FACE, ABOVE_EYES, BELOW_EYES = 1.1, 1.0, 1.9
# The eyes in the mean photograph of LFW, in pixels.
LFW_EYES_DOWN, LFW_PUPILS_APART = 66.7, 43.0
# Names of methods, and what is appended for variants.
ADABOOST, ASYMBOOST, GSLDA = "AdaBoost", "AsymBoost", "GSLDA"
FROZEN, PLAIN, RIDGED = ", frozen stumps", ", plain stumps", ", default ridge"
PAPER_RIDGE = 1e-6
# A box is correct if its intersection over union with the true box is above this.
IOU = 0.5
# Weak learners between two tests of the bound: a test costs about as much as a weak learner.
TEST_EVERY = 8


def face_offset(eyes_down: float, pupils_apart: float) -> BoxOffset:
    """The box of a face around a window, from the height and the distance of the eyes, in widths of the window.

    >>> [round(side, 2) for side in face_offset(0.36, 0.36)]
    [0.1, 0.0, 0.9, 1.04]
    """
    return BoxOffset(
        0.5 - HALF_FACE * pupils_apart,
        eyes_down - ABOVE_EYES * pupils_apart,
        0.5 + HALF_FACE * pupils_apart,
        eyes_down + BELOW_EYES * pupils_apart,
    )


def inner_offset(share: float) -> BoxOffset:
    """The box of a face around a window that covers the inner `share` of Viola and Jones's box in LFW.

    >>> [round(side, 2) for side in inner_offset(0.8)]
    [-0.02, -0.12, 1.02, 1.26]
    """
    _, top, side = LFW_FACE
    window = share * side
    return face_offset((LFW_EYES_DOWN - top - (side - window) / 2) / window, LFW_PUPILS_APART / window)


# The face in a window of `faces_opencv24`, with the eyes of its mean face.
FACE_OFFSET = face_offset(0.36, 0.36)


@dataclass(frozen=True)
class StageSettings:
    """Numbers of samples, features and weak learners, and the part of a face that a window covers."""

    n_faces: int = 1000
    inner: float | None = INNER  # None: windows of `faces_opencv24`, with forehead, chin and background
    n_random: int = 1000
    n_mined: int = 9000
    mining_rounds: int = 3
    n_weak: int = 200
    n_features: int | None = None  # None: all
    asymmetry: float = 100.0  # best of 2, 10 and 100 on held-out faces and windows (docs/decisions.md)
    methods: tuple[str, ...] = ()  # to train; empty: all
    n_held_out: int = 500  # faces of other people

    @property
    def box_offset(self) -> BoxOffset:
        """The box to report for a window: the face around the eyes of the mean training face."""
        return FACE_OFFSET if self.inner is None else inner_offset(self.inner)

    def faces(self, rng: np.random.Generator) -> tuple[Patches, Patches]:
        """`n_faces` patches, random faces each with its mirror image, and `n_held_out` of other faces."""
        n = self.n_faces // 2
        if self.inner is not None:
            drawn = inner_faces(n + self.n_held_out, self.inner, rng)
        else:
            faces = faces24()
            drawn = faces[rng.choice(len(faces), n + self.n_held_out, replace=False)]
        return mirrored(drawn[:n]), drawn[n:]


@dataclass(frozen=True, eq=False)
class Samples:
    """Faces (n, 24, 24) with their mirror images, and non-faces."""

    faces: Patches
    others: Patches

    @property
    def patches(self) -> Patches:
        """All patches, faces first."""
        return np.concatenate([self.faces, self.others])

    @property
    def is_face(self) -> NDArray[np.bool_]:
        """Which patches are faces."""
        return np.arange(len(self.faces) + len(self.others)) < len(self.faces)


def sampled_pool(settings: StageSettings, seed: int) -> HaarPool:
    """All Haar features, or `n_features` of them at random."""
    pool = HaarPool.from_window(WINDOW)
    return pool if settings.n_features is None else pool.sample(settings.n_features, np.random.default_rng([seed, 1]))


def training_images() -> list[Path]:
    """Images without faces for training: four of five."""
    return [path for number, path in enumerate(negative_images()) if number % 5]


def held_out_images() -> list[Path]:
    """The other images without faces."""
    return negative_images()[::5]


@dataclass(frozen=True, eq=False)
class Bootstrapped:
    """Samples to train on, and held-out ones: other people, and false positives in other images."""

    train: Samples
    held_out: Samples


def bootstrapped(settings: StageSettings, pool: HaarPool, seed: int) -> Bootstrapped:
    """Random faces, random windows, and the false positives of AdaBoost stages trained on the samples so far.

    Held-out non-faces are false positives of the last of these stages.
    """
    rng = np.random.default_rng([seed, 0])
    faces, others = settings.faces(rng)
    samples = Samples(faces, windows_of_images(training_images(), settings.n_random, WINDOW, rng))
    miner, n = Miner(training_images(), WINDOW, seed=seed, step=2), settings.n_mined // settings.mining_rounds
    for turn in range(settings.mining_rounds):
        stage = train_stage(pool, samples.patches, samples.is_face, settings.n_weak, learner=Boosting())
        # The same windows as without rejection, for half the work.
        quick = replace(stage.run(), rejection_thresholds=safe_rejection(stage.run(), stage.run().threshold))
        cascade = Cascade(WINDOW, (quick,))
        samples = Samples(faces, np.concatenate([samples.others, miner.mine(cascade, n, turn).patches]))
    elsewhere = Miner(held_out_images(), WINDOW, seed=seed, step=2).mine(cascade, n, 0)
    return Bootstrapped(samples, Samples(others, elsewhere.patches))


def train_stages(settings: StageSettings, pool: HaarPool, samples: Samples) -> dict[str, TrainedStage]:
    """A stage of each method, by its name."""
    stages: dict[str, TrainedStage] = {}
    for name, asymmetry in ((ADABOOST, 1.0), (ASYMBOOST, settings.asymmetry)):
        if name in (settings.methods or (name,)):
            binned = BinnedFeatures.from_patches(pool, samples.patches, samples.is_face)
            stages[name] = retrained_stage(binned, settings.n_weak, asymmetry)
    frozen: dict[str, StageLearner] = {
        ADABOOST + FROZEN: Boosting(balance=False),
        ASYMBOOST + FROZEN: Boosting(asymmetry=settings.asymmetry, balance=False),
    }
    balanced: dict[str, StageLearner] = {GSLDA: GreedyLDA(ridge=PAPER_RIDGE), GSLDA + RIDGED: GreedyLDA()}
    plain: dict[str, StageLearner] = {GSLDA + PLAIN: GreedyLDA(ridge=PAPER_RIDGE)}
    for is_balanced, learners in ((True, balanced | frozen), (False, plain)):
        learners = {name: learner for name, learner in learners.items() if name in (settings.methods or learners)}
        if not learners:
            continue
        weak, responses = train_weak_learners(pool, samples.patches, samples.is_face, balanced=is_balanced)
        candidates = pool.take(weak.feature)
        for name, learner in learners.items():
            chosen = np.array(list(learner.rounds(responses, settings.n_weak)))
            features, selected, vote = candidates.take(chosen), weak.take(chosen), learner.vote(responses, chosen)
            stages[name] = (
                LearningStage.from_discriminant(features, selected, vote)
                if isinstance(vote, OnlineDiscriminant)
                else Stage(features, selected, vote.coef, float(vote.threshold))
            )
    return stages


def retrained_stage(features: BinnedFeatures, n_weak: int, asymmetry: float = 1.0, balance: bool = True) -> Stage:
    """AdaBoost, or AsymBoost, with stumps that are trained anew in each round."""
    rounds = list(retrained_rounds(features, n_weak, asymmetry, balance))
    stumps = [stump for stump, _ in rounds]
    votes = np.array([vote for _, vote in rounds])
    columns = [np.concatenate([getattr(stump, name) for stump in stumps]) for name in _STUMP_COLUMNS]
    weak = Stumps(*columns)
    return Stage(features.pool.take(weak.feature), weak, votes, float(votes.sum()) / 2)


_STUMP_COLUMNS = ("feature", "threshold", "polarity", "error")


def stage_windows(
    stage: Stage,
    pyramid: Pyramid,
    min_margin: float,
    *,
    min_sigma: float = OPENCV_MIN_SIGMA,
    threads: int | None = None,
) -> FiredWindows:
    """All windows whose margin in a stage is above `min_margin`; the stage's own rejection thresholds are not used."""
    threshold = stage.threshold + min_margin
    bounded = replace(stage, threshold=threshold, rejection_thresholds=safe_rejection(stage, threshold))
    found = scan_pyramid(Cascade(pyramid.window, (bounded,), min_sigma), pyramid, threads=threads)
    return replace(found, scores=found.scores + min_margin)


def best_window(
    stage: Stage,
    pyramid: Pyramid,
    known: WindowIndex | None = None,
    *,
    min_sigma: float = OPENCV_MIN_SIGMA,
    threads: int | None = None,
) -> FiredWindows:
    """The window of the highest margin: exactly one, or none if no window has contrast. Of equal ones, the first.

    `known` are windows to score first, such as the best one of the last video frame: the higher their margins, the
    faster the scan. They have to be on the step of the pyramid. The result does not depend on them.
    """
    least = -float(np.abs(stage.coef).sum()) - abs(stage.threshold) - 1.0
    known = WindowIndex() if known is None else known.take(np.isin(known.scale, pyramid.scales))
    if len(known):
        lowered = replace(stage, threshold=least, rejection_thresholds=None)
        scores = Cascade(pyramid.window, (lowered,), min_sigma).scores(pyramid.patches(known))
        best = float(scores.max())
        if np.isfinite(best):
            # A little below: the scan has to find the known window again.
            least = best + least - stage.threshold
            least -= 1e-9 * (1 + abs(least))
    found = stage_windows(stage, pyramid, least, min_sigma=min_sigma, threads=threads)
    return found.take(slice(0)) if not len(found) else found.take(np.array([np.argmax(found.scores)]))


def safe_rejection(stage: Stage, threshold: float) -> NDArray[np.float64]:
    """Partial sums (T,) from which all further positive weights together do not lead above a threshold."""
    to_come = np.append(np.cumsum(np.maximum(stage.coef, 0.0)[::-1])[::-1][1:], 0.0)
    rejection_thresholds = threshold - to_come - 1e-9 * (1 + abs(threshold))  # sums are rounded on the way
    is_tested = np.arange(1, len(stage) + 1) % TEST_EVERY == 0
    return np.where(is_tested, rejection_thresholds, -np.inf)


@dataclass(frozen=True, eq=False)
class BestWindows:
    """The best window (n, 4) of each frame, without box offset, NaN if there was none, and its margin (n,)."""

    windows: Boxes
    scores: NDArray[np.float64]

    def every(self, step: int) -> BestWindows:
        """Every `step`-th frame."""
        return BestWindows(self.windows[::step], self.scores[::step])

    def found(self, truths: Boxes, offset: BoxOffset) -> NDArray[np.bool_]:
        """In which frames (n,) the box of the window has an IoU above 0.5 with the true box (n, 4)."""
        return overlaps(offset.boxes(self.windows), truths) > IOU

    def rate(self, truths: Boxes, offset: BoxOffset) -> float:
        """Share of the frames in which the face was found."""
        return float(self.found(truths, offset).mean())


def overlaps(boxes: Boxes, truths: Boxes) -> NDArray[np.float64]:
    """Intersection over union (n,) of each box (n, 4) with the truth of its own frame; 0 if a box is NaN.

    >>> overlaps(np.array([[0.0, 0.0, 2.0, 2.0], [np.nan] * 4]), np.array([[0.0, 0.0, 2.0, 1.0], [0.0, 0.0, 1.0, 1.0]]))
    array([0.5, 0. ])
    """
    there = np.isfinite(boxes).all(axis=1)
    shared = np.zeros(len(boxes))
    pairs = [box_iou(boxes[i : i + 1], truths[i : i + 1])[0, 0] for i in np.flatnonzero(there)]
    shared[there] = pairs
    return shared


OnFrame = Callable[[int, Stage, Pyramid], None]


def ignore_frame(number: int, stage: Stage, pyramid: Pyramid) -> None:
    """Do nothing."""


def best_windows(
    stage: TrainedStage, images: Sequence[GreyImage], *, on_frame: OnFrame = ignore_frame, min_size: float | None = None
) -> BestWindows:
    """The best window of each frame, with scale factor 1.2 and step 1.

    Windows are of all sizes, or from `min_size` pixels on. `on_frame` is called with the number of each frame, the
    stage and the pyramid.
    """
    return self_trained(stage, images, None, on_frame=on_frame, min_size=min_size)[0]


# Returns the stage that has learned a best window, given its patch (1, 24, 24) and its margin, or the stage itself.
Learning = Callable[[LearningStage, Patches, float], LearningStage]


def learn_always(stage: LearningStage, patch: Patches, margin: float) -> LearningStage:  # noqa: ARG001
    """Learn a window as a face, correct or not, as in the paper."""
    return stage.learn(patch, np.ones(1, dtype=np.bool_), threads=1)


class GuardedLearning:
    """Learns only windows that score like faces, and only as long as held-out samples do not suffer.

    The limits of `whet watch --learn`: a margin above 0.4 of that of the mean held-out face, and a guard on the shares
    of held-out faces and non-faces that the stage accepts.
    """

    def __init__(self, stage: LearningStage, held_out: Samples) -> None:
        self.held_out = held_out
        self.learn_above = MIN_SCORE_SHARE * float(stage.run().score(held_out.faces).mean())
        limits = SelfTraining()
        self.guard = Guard(self.health(stage), limits.max_lost, limits.max_false_positives)
        self.learned = self.refused = 0

    def health(self, stage: LearningStage) -> Health:
        """Shares of held-out samples that a stage accepts; one false positive more than none is allowed."""
        accepted = float(stage.run().accepts(self.held_out.faces).mean())
        others = stage.run().accepts(self.held_out.others)
        return Health(accepted, accepted, max(float(others.sum()), 1.0) / len(others))

    def __call__(self, stage: LearningStage, patch: Patches, margin: float) -> LearningStage:
        """The stage after learning, or as it was."""
        if margin <= self.learn_above:
            return stage
        learned = learn_always(stage, patch, margin)
        if not self.guard.allows(self.health(learned)):
            self.refused += 1
            return stage
        self.learned += 1
        return learned


def self_trained(
    stage: TrainedStage,
    images: Sequence[GreyImage],
    learn: Learning | None = learn_always,
    *,
    on_frame: OnFrame = ignore_frame,
    min_size: float | None = None,
) -> tuple[BestWindows, TrainedStage]:
    """As `best_windows`, but the stage learns each best window before the next frame.

    As in the paper: positives only, each counted once. `on_frame` gets the stage before it has learned the frame. Also
    returns the stage after the last frame.
    """
    windows, scores = np.full((len(images), 4), np.nan), np.full(len(images), -np.inf)
    last: WindowIndex | None = None
    for number, image in enumerate(images):
        pyramid = Pyramid.from_image(image, WINDOW, min_size=min_size)
        best = best_window(stage.run(), pyramid, last)
        on_frame(number, stage.run(), pyramid)
        if not len(best):
            continue
        windows[number], scores[number], last = best.boxes[0], best.scores[0], best.index
        if learn is not None and isinstance(stage, LearningStage):
            stage = learn(stage, pyramid.patches(last), float(best.scores[0]))
    return BestWindows(windows, scores), stage
