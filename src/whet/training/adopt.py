"""An OpenCV cascade that learns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, log
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import BoxOffset
from whet.cascade.cascade import Cascade, LearningStage, Stage
from whet.cascade.columns import columns_of, family_name, from_columns
from whet.cascade.pyramid import SCALE_FACTOR
from whet.detector.base import DetectorBase, Provenance, Reporting
from whet.detector.detector import Detector, load
from whet.errors import TrainingDataError
from whet.evaluation.runs import evaluate
from whet.features.integral import FeatureFamily, IntegralStack
from whet.features.responses import BitResponses
from whet.features.weak_learners import Weak
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedImage, Annotations, Boxes, Problem, ProblemKind
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.lda.thresholds import Rate, calibrate_rate
from whet.opencv.cascade import OpenCVCascade, stages_of
from whet.opencv.xml import read_opencv
from whet.training.data import split_objects
from whet.training.learning import Judgement, Shown
from whet.training.mining import Miner
from whet.training.negatives import ExcludedBoxes, backgrounds_of, image_faults
from whet.training.positives import Jitter, Positives, Variations, cut_positives, window_of
from whet.training.stage import GreedyLDA

Patches = NDArray[np.uint8]

# Negatives are windows that pass this share of the stages: what passes all of them is too rare to learn much from.
PASSED = 0.7
# A discriminant of T weak learners on fewer negatives than this times T fits the sample, not the class.
NEGATIVES_A_LEARNER = 5
FEWEST_LEARNERS = 5
# What a vote of OpenCV's counts in the score, next to one of the new stage, which knows better what is left; chosen on
# pasted faces, where 1/4 and 1/16 are nearly as good. A power of two: no decision changes, to the last bit.
SHARE = 1 / 8
# By so much a threshold lies below the sample that it was put on, for that to pass.
SLACK = 1e-9
AT_ONCE = 2000


def yielding(stages: Sequence[Stage], positives: Patches, rate: float) -> list[Stage]:
    """The stages with thresholds so low that each of them keeps this share of the positives, none above its own.

    Each stage is judged on all positives, not on those that the ones before it keep.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"got stage_rate={rate}; expected a share from 0 to 1")
    blocks = (IntegralStack.from_patches(block) for block in _blocks(positives))
    margins = np.concatenate([[stage.judge(stack)[0] for stage in stages] for stack in blocks], axis=1)
    missed = min(int((1 - rate) * len(positives)), len(positives) - 1)
    lowest = np.partition(margins, missed, axis=1)[:, missed] - SLACK
    lower = np.minimum(lowest, 0.0) if rate else np.zeros(len(stages))
    return [
        replace(stage, coef=SHARE * stage.coef, threshold=SHARE * (stage.threshold + float(by)))
        for stage, by in zip(stages, lower, strict=True)
    ]


def extension_of(
    stages: Sequence[Stage],
    window: tuple[int, int],
    train: Patches,
    validation: Patches,
    miner: Miner,
    *,
    n_weak: int,
    n_negatives: int,
    detection_rate: float,
    ridge: float,
) -> LearningStage:
    """One more stage of up to `n_weak` of the cascade's weak learners, whose threshold keeps the detection rate."""
    negatives = _hard_windows(stages, window, miner, n_negatives, NEGATIVES_A_LEARNER * n_weak)
    n_weak = min(n_weak, len(negatives) // NEGATIVES_A_LEARNER)
    if n_weak < FEWEST_LEARNERS:
        raise TrainingDataError(
            f"the images gave {len(negatives)} windows that the cascade takes for the object; a stage that learns "
            f"needs at least {NEGATIVES_A_LEARNER * FEWEST_LEARNERS}: add images"
        )
    features, weak = joined(stages, window)
    patches = np.concatenate([train, negatives])
    responses = responses_of(features, weak, patches)
    bits = BitResponses.from_responses(responses, np.arange(len(patches)) < len(train))
    learner = GreedyLDA(ridge=ridge)
    chosen = np.array(list(learner.rounds(bits, n_weak)))
    vote = learner.vote(bits, chosen)
    seen = responses_of(features.take(chosen), weak.take(chosen), validation)
    scores = np.cumsum(seen * vote.coef[:, None], axis=0)[-1]  # in the order of the learners, as a scan adds them
    vote.rule = Rate(calibrate_rate(scores, vote.projection, detection_rate))
    return LearningStage.from_discriminant(features.take(chosen), weak.take(chosen), vote)


def joined(stages: Sequence[Stage], window: tuple[int, int]) -> tuple[FeatureFamily, Weak]:
    """The features and weak learners of all stages, one after the other; all are of one family."""
    columns = [columns_of(stage.features, stage.weak) for stage in stages]
    together = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    return from_columns(family_name(stages[0].features), window, together)


def _hard_windows(stages: Sequence[Stage], window: tuple[int, int], miner: Miner, most: int, needed: int) -> Patches:
    """Windows that pass most stages, and where these are not enough, some that pass fewer."""
    found = np.empty((0, *window), dtype=np.uint8)
    n = ceil(PASSED * len(stages))
    while n > 0 and len(found) < needed:
        more = miner.mine(Cascade(window, tuple(stages[:n])), most - len(found), turn=n).patches
        found = np.concatenate([found, more])
        n -= max(1, len(stages) // 10)
    return found


def responses_of(features: FeatureFamily, weak: Weak, patches: Patches) -> NDArray[np.bool_]:
    """Responses (learners, samples), some samples at a time: their integral images take more than they do."""
    parts = [weak.respond(features.evaluate(IntegralStack.from_patches(block))) for block in _blocks(patches)]
    return np.concatenate([np.empty((len(weak), 0), np.bool_), *parts], axis=1)


def _blocks(patches: Patches) -> Iterator[Patches]:
    return (patches[start : start + AT_ONCE] for start in range(0, len(patches), AT_ONCE))


# What a stage that is added keeps of the positives held out.
DETECTION_RATE = 0.95
FEWEST_POSITIVES = 10
# Windows without the object that are looked for.
NEGATIVES = 20_000


def adopt(
    cascade: OpenCVCascade | str | PathLike[str],
    positives: Patches,
    images: Sequence[Path],
    *,
    groups: NDArray[np.intp] | None = None,
    forbidden: ExcludedBoxes | None = None,
    n_weak: int = 1000,
    stage_rate: float = 0.98,
    detection_rate: float = DETECTION_RATE,
    held_out: float = 0.25,
    n_negatives: int = NEGATIVES,
    max_per_image: int = 200,
    ridge: float = DEFAULT_RIDGE,
    box_offset: BoxOffset | None = None,
    provenance: Provenance | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Detector:
    """A detector of an OpenCV cascade's weak learners that learns online.

    `positives` are (samples, height, width) of the cascade's window, and there should be many more than a stage has
    weak learners: `whet.training.positives.Variations` makes many of one photograph. Positives with one number in
    `groups` (samples,) are of one photograph, and on one side of what is held out. `images` have no object in them,
    but in boxes (n, 4) that are `forbidden`, by image.

    OpenCV's votes stay as they are, and the thresholds of stages that reject too many positives are lowered until each
    stage keeps `stage_rate` of them (0 leaves them where they are). One more stage follows, of up to `n_weak` of all
    their weak learners, selected by greedy sparse LDA on up to `n_negatives` windows that pass most stages. It keeps a
    `detection_rate` of the positives that are `held_out`, and it alone learns later.

    Of each image at most `max_per_image` windows are taken at a time. The same seed gives the same detector.

    The weak learners of a tree are its leaves. Raises `CannotConvertError` for rectangles whose weights are not whole.

    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> from whet.features.haar import HaarPool
    >>> from whet.opencv.export import write_opencv
    >>> from whet.cascade.cascade import Cascade
    >>> from whet.training.stage import train_stage
    >>> rng = np.random.default_rng(0)
    >>> patches = rng.integers(0, 170, (400, 8, 8), dtype=np.uint8)
    >>> patches[:200, :, 4:] += 60  # the object is brighter on the right
    >>> stage = train_stage(HaarPool.from_window((8, 8)), patches, np.arange(400) < 200, 3)
    >>> with TemporaryDirectory() as folder:
    ...     _ = write_opencv(Cascade((8, 8), (stage.run(),)), f"{folder}/object.xml")
    ...     Image.fromarray(rng.integers(0, 230, (50, 50), dtype=np.uint8)).save(f"{folder}/other.png")
    ...     detector = adopt(f"{folder}/object.xml", patches[:200], [Path(folder) / "other.png"], n_negatives=50)
    >>> added = detector.base.stages[-1]
    >>> len(added), added.positive.n, added.negative.n
    (3, 160, 50)
    """
    source = cascade if isinstance(cascade, OpenCVCascade) else read_opencv(Path(cascade))
    stages = stages_of(source)
    _check(positives, source.window)
    miner = Miner(
        list(images),
        source.window,
        seed=seed,
        max_per_image=max_per_image,
        threads=threads,
        excluded_boxes=forbidden or {},
    )
    train, validation = _sides(positives, groups, held_out, seed)
    added = extension_of(
        stages,
        source.window,
        train,
        validation,
        miner,
        n_weak=n_weak,
        n_negatives=n_negatives,
        detection_rate=detection_rate,
        ridge=ridge,
    )
    base = DetectorBase(
        source.window, (*yielding(stages, train, stage_rate), added), provenance=provenance or Provenance()
    )
    return Detector(base, reporting=Reporting(box_offset or BoxOffset()))


def _check(positives: Patches, window: tuple[int, int]) -> None:
    if positives.dtype != np.uint8 or positives.shape[1:] != window or len(positives) < 2:
        raise TrainingDataError(
            f"got positives {positives.dtype} of shape {positives.shape}; expected uint8, (samples, {window[0]}, "
            f"{window[1]}), the cascade's window, and at least 2 of them"
        )


def _sides(positives: Patches, groups: NDArray[np.intp] | None, held_out: float, seed: int) -> tuple[Patches, Patches]:
    """Positives to train on and to set a threshold by; those of one photograph stay together."""
    if not 0 < held_out < 1:
        raise ValueError(f"got held_out={held_out}; expected a share between 0 and 1")
    numbers = np.arange(len(positives)) if groups is None else groups
    if numbers.shape != (len(positives),):
        raise TrainingDataError(
            f"got groups of shape {numbers.shape} for {len(positives)} positives; expected one each"
        )
    n = len(np.unique(numbers))
    if n < FEWEST_POSITIVES:
        raise TrainingDataError(f"got positives of {n} photographs: too few to hold some of them out for a threshold")
    train, check = split_objects(numbers, held_out, seed)
    return positives[train], positives[check]


# Windows of each object, and how far they are moved: as far as `Variations` moves them, of which the benchmark has ten.
COPIES = 10
# Boxes whose shape differs by more than this from the window's give windows of another size than a scan would meet the
# object in: it tries sizes so far apart.
OTHER_SHAPE = SCALE_FACTOR
JITTER = Jitter(shift=0.035, scale=0.09, rotation=12.0)


@dataclass(frozen=True, eq=False)
class AdoptionRun:
    """A cascade that learns now, what it was shown, what of that was of no use, and how it does before and after."""

    detector: Detector
    positives: Positives
    images: tuple[Path, ...]
    problems: tuple[Problem, ...]
    held_out: Judgement | None

    @property
    def added(self) -> LearningStage:
        """The stage that was added, and learns."""
        stage = self.detector.base.stages[-1]
        assert isinstance(stage, LearningStage)
        return stage


def other_shape(boxes: Boxes, window: tuple[int, int]) -> str | None:
    """What to tell where boxes (n, 4) of the object are clearly wider or narrower than a cascade's window is.

    >>> print(other_shape(np.array([[10.0, 20.0, 40.0, 60.0]] * 50), (20, 20)))
    the boxes are 0.75 as wide as high (median of 50; eight in ten 0.75 to 0.75), the cascade's windows 1 (20 x 20): ...
    >>> other_shape(np.array([[10.0, 20.0, 40.0, 55.0]]), (20, 20))
    """
    choice, (height, width) = window_of(boxes), window
    if abs(log(choice.aspect * height / width)) <= log(OTHER_SHAPE):
        return None
    longer = "wider" if choice.aspect < width / height else "higher"
    return (
        f"the boxes are {choice.aspect:.2g} as wide as high (median of {choice.n_boxes:,}; eight in ten "
        f"{choice.aspect_low:.2g} to {choice.aspect_high:.2g}), the cascade's windows {width / height:.2g} ({width} x "
        f"{height}): what it is shown is {longer} than the boxes. Box the object as the cascade does when it detects"
    )


def adopt_from(
    cascade: Path,
    shown: Shown,
    *,
    held_out: Sequence[AnnotatedImage] = (),
    provenance: Provenance | None = None,
    seed: int = 0,
    threads: int | None = None,
    tell: Callable[[float], None] = lambda _: None,
) -> AdoptionRun:
    """Adopt a cascade (see `whet.training.adopt.adopt`) by the objects and by all else in the images shown.

    `tell` gets the share that is done.

    >>> adopt_from(Path("nowhere.xml"), Shown(()))
    Traceback (most recent call last):
    whet.errors.TrainingDataError: no box of the object was shown: a cascade is adopted by objects (annotations or ...
    """
    annotations = Annotations(shown.images, (ONLY_CLASS,))
    if not annotations.n_boxes:
        raise TrainingDataError(
            "no box of the object was shown: a cascade is adopted by objects (annotations or crops), best of some "
            "hundred photographs, and by images without it"
        )
    source = read_opencv(cascade)
    choice = replace(window_of(annotations.boxes), height=source.window[0], width=source.window[1])
    positives = cut_positives(
        annotations,
        choice,
        copies=COPIES,
        jitter=JITTER,
        mirror="safe",
        seed=seed,
        threads=threads,
        progress=lambda share: tell(0.1 * share),
    )
    forbidden = backgrounds_of(annotations)
    faults = image_faults(list(forbidden), source.window)
    images = tuple(path for path in forbidden if path not in faults)
    if not images:
        raise TrainingDataError(
            "there is no image to take other windows from: give some without the object (negatives), best hundreds"
        )
    detector = adopt(
        source,
        _grained(positives.patches, seed),
        images,
        groups=positives.groups,
        forbidden=forbidden,
        provenance=provenance,
        seed=seed,
        threads=threads,
    )
    tell(0.7)
    told = (Problem(ProblemKind.UNREADABLE_IMAGE, "", None, fault) for fault in faults.values())
    judgement = None
    if held_out:
        before = evaluate(load(cascade), held_out, progress=lambda share: tell(0.7 + 0.15 * share), threads=threads)
        after = evaluate(detector, held_out, progress=lambda share: tell(0.85 + 0.15 * share), threads=threads)
        judgement = before, after
    return AdoptionRun(detector, positives, images, (*positives.problems, *told), judgement)


def _grained(patches: Patches, seed: int) -> Patches:
    rng, variations = np.random.default_rng([seed, 2]), Variations()
    return np.array([variations.grained(patch, rng) for patch in patches])
