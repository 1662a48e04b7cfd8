"""Adoption of OpenCV cascades: one more stage, of their own weak learners, that learns online."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, log
from os import PathLike, fspath
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
from whet.features.weak_learners import WeakLearners
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedImage, Annotations, Boxes, Problem, ProblemKind
from whet.io.annotations.formats import read_annotations
from whet.io.images import find_images
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.lda.thresholds import Rate, calibrate_rate
from whet.opencv.cascade import OpenCVCascade, stages_of
from whet.opencv.xml import read_opencv
from whet.training.data import split_objects
from whet.training.examples import Examples
from whet.training.learning import BeforeAfter
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
# Weights of OpenCV's stages are multiplied by this in the score, because the new stage separates better what is left.
# Chosen on pasted faces, where 1/4 and 1/16 are nearly as good. A power of two changes no decision, to the last bit.
SHARE = 1 / 8
# A threshold lies this much below the margin of the sample that has to pass it.
SLACK = 1e-9
AT_ONCE = 2000


def lower_thresholds(stages: Sequence[Stage], positives: Patches, rate: float) -> list[Stage]:
    """Lower the thresholds of stages until each of them keeps this share of the positives; never raise one.

    Each stage is measured on all positives, not only on those that pass the stages before it.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"got stage_rate={rate}; expected a number from 0 to 1")
    blocks = (IntegralStack.from_patches(block) for block in _blocks(positives))
    margins = np.concatenate([[stage.judge(stack)[0] for stage in stages] for stack in blocks], axis=1)
    missed = min(int((1 - rate) * len(positives)), len(positives) - 1)
    lowest = np.partition(margins, missed, axis=1)[:, missed] - SLACK
    lower = np.minimum(lowest, 0.0) if rate else np.zeros(len(stages))
    return [
        replace(stage, coef=SHARE * stage.coef, threshold=SHARE * (stage.threshold + float(by)))
        for stage, by in zip(stages, lower, strict=True)
    ]


def train_added_stage(
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
    """Train one more stage of up to `n_weak` of the cascade's weak learners; its threshold keeps the detection rate."""
    negatives = _hard_windows(stages, window, miner, n_negatives, NEGATIVES_A_LEARNER * n_weak)
    n_weak = min(n_weak, len(negatives) // NEGATIVES_A_LEARNER)
    if n_weak < FEWEST_LEARNERS:
        raise TrainingDataError(
            f"got {len(negatives)} negative windows that pass the first stages of the cascade; expected at least "
            f"{NEGATIVES_A_LEARNER * FEWEST_LEARNERS}: add images without the object"
        )
    features, weak = join_weak_learners(stages, window)
    patches = np.concatenate([train, negatives])
    responses = respond_in_blocks(features, weak, patches)
    bits = BitResponses.from_responses(responses, np.arange(len(patches)) < len(train))
    learner = GreedyLDA(ridge=ridge)
    chosen = np.array(list(learner.rounds(bits, n_weak)))
    vote = learner.vote(bits, chosen)
    seen = respond_in_blocks(features.take(chosen), weak.take(chosen), validation)
    scores = np.cumsum(seen * vote.coef[:, None], axis=0)[-1]  # in the order of the learners, as a scan adds them
    vote.rule = Rate(calibrate_rate(scores, vote.projection, detection_rate))
    return LearningStage.from_discriminant(features.take(chosen), weak.take(chosen), vote)


def join_weak_learners(stages: Sequence[Stage], window: tuple[int, int]) -> tuple[FeatureFamily, WeakLearners]:
    """The features and weak learners of all stages in one pool; all stages have the same family."""
    columns = [columns_of(stage.features, stage.weak) for stage in stages]
    together = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    return from_columns(family_name(stages[0].features), window, together)


def _hard_windows(stages: Sequence[Stage], window: tuple[int, int], miner: Miner, most: int, needed: int) -> Patches:
    """Windows that pass most stages; if these are too few, also windows that pass fewer stages."""
    found = np.empty((0, *window), dtype=np.uint8)
    n = ceil(PASSED * len(stages))
    while n > 0 and len(found) < needed:
        more = miner.mine(Cascade(window, tuple(stages[:n])), most - len(found), turn=n).patches
        found = np.concatenate([found, more])
        n -= max(1, len(stages) // 10)
    return found


def respond_in_blocks(features: FeatureFamily, weak: WeakLearners, patches: Patches) -> NDArray[np.bool_]:
    """Responses (learners, samples), computed in blocks of samples to limit the memory for integral images."""
    parts = [weak.respond(features.evaluate(IntegralStack.from_patches(block))) for block in _blocks(patches)]
    return np.concatenate([np.empty((len(weak), 0), np.bool_), *parts], axis=1)


def _blocks(patches: Patches) -> Iterator[Patches]:
    return (patches[start : start + AT_ONCE] for start in range(0, len(patches), AT_ONCE))


# Detection rate of the added stage on the held-out positives.
DETECTION_RATE = 0.95
FEWEST_POSITIVES = 10
# Number of negative windows to collect.
NEGATIVES = 20_000


def adopt_patches(
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
    """Make a detector that learns online from an OpenCV cascade.

    `positives` are (samples, height, width) of the cascade's window, many more than the new stage has weak learners:
    `whet.training.positives.Variations` makes many of one photograph. Positives with the same number in `groups`
    (samples,) come from one photograph, and are either all held out or all trained on. `images` contain no object,
    except in the boxes (n, 4) that are `forbidden`, by image.

    OpenCV's weights stay as they are. The thresholds of stages that reject too many positives are lowered until each
    stage keeps `stage_rate` of them (0 keeps the thresholds). One stage is added, of up to `n_weak` of all weak
    learners of the cascade, selected by greedy sparse LDA on up to `n_negatives` windows that pass most stages. It
    keeps a `detection_rate` of the positives that are `held_out`. Only this stage learns later.

    At most `max_per_image` windows per image and round are used. The same seed gives the same detector.

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
    ...     images = [Path(folder) / "other.png"]
    ...     detector = adopt_patches(f"{folder}/object.xml", patches[:200], images, n_negatives=50)
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
    added = train_added_stage(
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
        source.window, (*lower_thresholds(stages, train, stage_rate), added), provenance=provenance or Provenance()
    )
    return Detector(base, reporting=Reporting(box_offset or BoxOffset()))


def _check(positives: Patches, window: tuple[int, int]) -> None:
    if positives.dtype != np.uint8 or positives.shape[1:] != window or len(positives) < 2:
        raise TrainingDataError(
            f"got positives {positives.dtype} of shape {positives.shape}; expected uint8, (samples, {window[0]}, "
            f"{window[1]}), the cascade's window, and at least 2 of them"
        )


def _sides(positives: Patches, groups: NDArray[np.intp] | None, held_out: float, seed: int) -> tuple[Patches, Patches]:
    """Positives to train on, and held-out positives for the threshold; those of one photograph stay together."""
    if not 0 < held_out < 1:
        raise ValueError(f"got held_out={held_out}; expected a number between 0 and 1")
    numbers = np.arange(len(positives)) if groups is None else groups
    if numbers.shape != (len(positives),):
        raise TrainingDataError(
            f"got groups of shape {numbers.shape} for {len(positives)} positives; expected one each"
        )
    n = len(np.unique(numbers))
    if n < FEWEST_POSITIVES:
        raise TrainingDataError(f"got positives of {n} photographs; expected at least {FEWEST_POSITIVES}: add some")
    train, check = split_objects(numbers, held_out, seed)
    return positives[train], positives[check]


# Windows per object, and their random changes: those of `Variations`, of which the benchmark uses ten.
COPIES = 10
# If the aspect ratios of boxes and window differ by more than this, windows have another size than in a scan, which
# uses sizes this far apart.
MAX_ASPECT_RATIO = SCALE_FACTOR
JITTER = Jitter(shift=0.035, scale=0.09, rotation=12.0)


@dataclass(frozen=True, eq=False)
class AdoptionRun:
    """The new detector, its training data, problems of the data, and evaluations before and after."""

    detector: Detector
    positives: Positives
    images: tuple[Path, ...]
    problems: tuple[Problem, ...]
    held_out: BeforeAfter | None

    @property
    def added(self) -> LearningStage:
        """The added stage, which learns."""
        stage = self.detector.base.stages[-1]
        assert isinstance(stage, LearningStage)
        return stage


def shape_warning(boxes: Boxes, window: tuple[int, int]) -> str | None:
    """A warning if boxes (n, 4) of the object have another aspect ratio than the cascade's window.

    >>> print(shape_warning(np.array([[10.0, 20.0, 40.0, 60.0]] * 50), (20, 20)))
    the boxes have a width/height of 0.75 (median of 50; 80 % from 0.75 to 0.75), the cascade's windows of 1 (20 x ...
    >>> shape_warning(np.array([[10.0, 20.0, 40.0, 55.0]]), (20, 20))
    """
    choice, (height, width) = window_of(boxes), window
    if abs(log(choice.aspect * height / width)) <= log(MAX_ASPECT_RATIO):
        return None
    return (
        f"the boxes have a width/height of {choice.aspect:.2g} (median of {choice.n_boxes:,}; 80 % from "
        f"{choice.aspect_low:.2g} to {choice.aspect_high:.2g}), the cascade's windows of {width / height:.2g} "
        f"({width} x {height}); draw boxes as the cascade reports them"
    )


def adopt(
    cascade: str | PathLike[str],
    annotations: str | PathLike[str],
    negatives: str | PathLike[str] | Iterable[str | PathLike[str]] = (),
    *,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Detector:
    """Make an OpenCV cascade trainable: one more stage learns from annotated images and from images without the object.

    `annotations` are a file or folder that `read_annotations` reads, `negatives` images or folders of them. Boxes
    should enclose the object as the cascade does when it detects. `progress` gets the share that is done.

    >>> adopt("haarcascade_frontalface_default.xml", "nowhere.csv")
    Traceback (most recent call last):
    whet.errors.DataNotFoundError: no such file or directory: nowhere.csv
    """
    named = [negatives] if isinstance(negatives, str | PathLike) else list(negatives)
    found = find_images([fspath(name) for name in named]) if named else []
    examples = Examples.from_annotations(read_annotations(annotations).images, negatives=found)
    return adopt_from(Path(cascade), examples, seed=seed, threads=threads, progress=progress).detector


def adopt_from(
    cascade: Path,
    examples: Examples,
    *,
    held_out: Sequence[AnnotatedImage] = (),
    provenance: Provenance | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> AdoptionRun:
    """Adopt a cascade (see `adopt`) with the objects and the background of example images.

    `progress` is called with the fraction done.

    >>> adopt_from(Path("nowhere.xml"), Examples(()))
    Traceback (most recent call last):
    whet.errors.TrainingDataError: got no object; expected some hundred objects, as annotations or crops, ...
    """
    annotations = Annotations(examples.images, (ONLY_CLASS,))
    if not annotations.n_boxes:
        raise TrainingDataError(
            "got no object; expected some hundred objects, as annotations or crops, and images without the object"
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
        progress=lambda done: progress(0.1 * done),
    )
    forbidden = backgrounds_of(annotations)
    faults = image_faults(list(forbidden), source.window)
    images = tuple(path for path in forbidden if path not in faults)
    if not images:
        raise TrainingDataError(
            "got no image to take negatives from; add images without the object, best some hundred (--negatives)"
        )
    detector = adopt_patches(
        source,
        _with_noise(positives.patches, seed),
        images,
        groups=positives.groups,
        forbidden=forbidden,
        provenance=provenance,
        seed=seed,
        threads=threads,
    )
    progress(0.7)
    unreadable = (Problem(ProblemKind.UNREADABLE_IMAGE, "", None, fault) for fault in faults.values())
    runs = None
    if held_out:
        before = evaluate(load(cascade), held_out, progress=lambda done: progress(0.7 + 0.15 * done), threads=threads)
        after = evaluate(detector, held_out, progress=lambda done: progress(0.85 + 0.15 * done), threads=threads)
        runs = before, after
    return AdoptionRun(detector, positives, images, (*positives.problems, *unreadable), runs)


def _with_noise(patches: Patches, seed: int) -> Patches:
    rng, variations = np.random.default_rng([seed, 2]), Variations()
    return np.array([variations.grained(patch, rng) for patch in patches])
