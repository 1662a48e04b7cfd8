"""Adoption of OpenCV cascades: their responses are counted, so that they can be corrected."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from os import PathLike, fspath
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.detector.base import DetectorBase, Provenance, Reporting
from whet.detector.detector import Detector
from whet.errors import TrainingDataError
from whet.images.boxes import BoxOffset
from whet.images.pyramid import SCALE_FACTOR
from whet.io.annotations.annotation import (
    ONLY_CLASS,
    AnnotatedImage,
    Annotations,
    Boxes,
    Examples,
    Problem,
    ProblemKind,
)
from whet.io.annotations.formats import read_annotations
from whet.io.files import short_hashes
from whet.io.image_files import find_images
from whet.lda.statistics import BinaryStatistics
from whet.models.gslda.cascade import Stage
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.fitting import Variations
from whet.models.gslda.integral import IntegralStack
from whet.opencv.tree_cascade import OpenCVCascade, stages_of
from whet.opencv.xml_reader import read_opencv
from whet.parallel.workers import Threads
from whet.training.backgrounds import Backgrounds, BoxesByImage, backgrounds_of, image_faults
from whet.training.gslda import CascadeTraining, grey_backgrounds
from whet.training.loop import FewPositivesWarning
from whet.training.preparation import split_images, split_objects
from whet.training.samples import NO_PLACES, Jitter, Positives, cut_positives
from whet.training.validation import ScannedImages, held_out_reference
from whet.training.windows import grey_window

Patches = NDArray[np.uint8]

# Share of the photographs that are not counted: they make the reference set.
HELD_OUT = 0.25
FEWEST_OBJECTS = 10
# A quarter of the photographs is held out, and one half of these guards corrections: with 200 photographs, 20 of them
# lost no recall.
FEW_OBJECTS = 50
# Windows per object, and their random changes.
COPIES = 10
# Negative windows to count in each stage, and how many are too few: those of the stages before are then counted too.
NEGATIVES = 2000
FEWEST_NEGATIVES = 500
# Prevents a few images from giving all negatives of a stage.
MOST_PER_IMAGE = 50
AT_ONCE = 2000
JITTER = Jitter(shift=0.035, scale=0.09, rotation=12.0)


class FewNegativesWarning(UserWarning):
    """Few negative windows reach some stages; the message says which."""


@dataclass(frozen=True, eq=False)
class Side:
    """Positives, each with the number of its photograph, and images: to be counted, or as reference set."""

    positives: Positives
    images: Sequence[Path]


def adopt_sides(
    source: OpenCVCascade,
    counted: Side,
    reference: Side,
    *,
    excluded_boxes: BoxesByImage,
    n_negatives: int = NEGATIVES,
    box_offset: BoxOffset,
    provenance: Provenance,
    seed: int,
    threads: int | None,
    progress: Callable[[float], None] = lambda _: None,
    photographs: Sequence[Path] = (),
) -> tuple[Detector, tuple[int, ...], list[int]]:
    """Count one side, and make the reference set of the other.

    Returns the detector, the numbers of stages in which negatives of earlier stages are counted too, and those counted.
    """
    sides = [
        grey_backgrounds(
            side.images, source.window, excluded_boxes, seed=seed, workers=Threads(threads), box_offset=box_offset
        )
        for side in (counted, reference)
    ]
    stages, short = count_stages(
        stages_of(source), counted.positives.windows, sides[0], n_negatives, lambda done: progress(0.7 * done)
    )
    if short:
        warnings.warn(_few_negatives(short, len(stages)), FewNegativesWarning, stacklevel=4)
    n_counted = [stage.statistics[1].n for stage in stages]
    model = CascadeModel(source.window, stages)
    base = DetectorBase(model, provenance)
    held_out = held_out_reference(
        model,
        reference.positives,
        sides[1],
        ScannedImages.from_backgrounds(sides[1], model),
        seed=seed,
        progress=lambda done: progress(0.7 + 0.3 * done),
    )
    images = short_hashes(dict.fromkeys([*counted.images, *reference.images, *photographs]))
    base = replace(base, reference=held_out, training_images=images)
    return Detector.from_base(base, reporting=Reporting(box_offset)), tuple(short), n_counted


def _few_negatives(short: Sequence[int], n_stages: int) -> str:
    """A warning of the stages (numbered from 1) that few windows reach.

    >>> print(_few_negatives([18, 19], 20))
    fewer than 500 negative windows reach 2 of 20 stages (the first is stage 19); windows of earlier stages are ...
    """
    return (
        f"fewer than {FEWEST_NEGATIVES} negative windows reach {len(short)} of {n_stages} stages (the first is stage "
        f"{short[0] + 1}); windows of earlier stages are counted there too. Add images without the object"
    )


def check_number(n: int) -> None:
    """Raise `TrainingDataError` for too few photographs, and warn of few."""
    if n < FEWEST_OBJECTS:
        raise TrainingDataError(f"got {n} photographs of the object; expected at least {FEWEST_OBJECTS}: add some")
    if n < FEW_OBJECTS:
        warnings.warn(
            f"fewer than {FEW_OBJECTS} photographs of the object ({n}); estimates of recall are rough",
            FewPositivesWarning,
            stacklevel=4,
        )


@dataclass(frozen=True, eq=False)
class AdoptionRun:
    """The detector, the numbers of stages in which negatives of earlier stages are counted too, and those counted.

    `positives` and `images` are the data, `problems` what of them could not be used.
    """

    detector: Detector
    short_stages: tuple[int, ...]
    n_negatives: list[int]
    positives: Positives
    images: tuple[Path, ...]
    problems: tuple[Problem, ...]


def shape_warning(boxes: Boxes, window: tuple[int, int]) -> str | None:
    """A warning if boxes (n, 4) of the object have another aspect ratio than the cascade's window.

    >>> print(shape_warning(np.array([[10.0, 20.0, 40.0, 60.0]] * 50), (20, 20)))
    the boxes have a width/height of 0.75 (median of 50; 80 % from 0.75 to 0.75), the cascade's windows of 1 (20 x ...
    >>> shape_warning(np.array([[10.0, 20.0, 40.0, 55.0]]), (20, 20))
    """
    choice, (height, width) = grey_window(boxes), window
    # If the aspect ratios of boxes and window differ by more than this, windows have another size than in a scan, which
    # uses sizes this far apart.
    if abs(log(choice.aspect * height / width)) <= log(SCALE_FACTOR):
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
    """Make an OpenCV cascade correctable, with annotated images and images without the object.

    `annotations` are a file or folder that `read_annotations` reads, `negatives` images or folders of them. Boxes
    should enclose the object as the cascade does when it detects. The cascade finds the same as before, until it is
    corrected. `progress` gets the share that is done.

    >>> adopt("haarcascade_frontalface_default.xml", "nowhere.csv")
    Traceback (most recent call last):
    whet.errors.DataNotFoundError: no such file or directory: nowhere.csv
    """
    named = [negatives] if isinstance(negatives, str | PathLike) else list(negatives)
    found = find_images([fspath(name) for name in named]) if named else []
    examples = Examples.from_annotations(read_annotations(annotations).images, negatives=found)
    return adopt_from(Path(cascade), examples.images, seed=seed, threads=threads, progress=progress).detector


def adopt_from(
    cascade: Path,
    images: Sequence[AnnotatedImage],
    *,
    provenance: Provenance | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> AdoptionRun:
    """Adopt a cascade (see `adopt`) with the objects and the background of annotated images.

    A photograph with the object is either counted or part of the reference set, with all its objects and with its
    background. `progress` is called with the fraction done.

    >>> adopt_from(Path("nowhere.xml"), [])
    Traceback (most recent call last):
    whet.errors.TrainingDataError: got no object; expected 50 photographs of it or more, as annotations or crops, ...
    """
    annotations = Annotations(tuple(images), (ONLY_CLASS,))
    if not annotations.n_boxes:
        raise TrainingDataError(
            f"got no object; expected {FEW_OBJECTS} photographs of it or more, as annotations or crops, and images "
            "without the object"
        )
    source = read_opencv(cascade)
    choice = grey_window(annotations.boxes, margin=0.0, window=source.window)
    positives = cut_positives(
        CascadeTraining(),
        annotations,
        choice,
        copies=COPIES,
        jitter=JITTER,
        mirror="safe",
        seed=seed,
        workers=Threads(threads),
        progress=lambda done: progress(0.1 * done),
    )
    excluded_boxes = backgrounds_of(annotations)
    faults = image_faults(list(excluded_boxes), source.window)
    backgrounds = tuple(path for path in excluded_boxes if path not in faults)
    adopted = adopt_sides(
        source,
        *_split_by_photograph(annotations, positives, backgrounds, seed),
        excluded_boxes=excluded_boxes,
        box_offset=BoxOffset(),
        provenance=(provenance or Provenance()).with_class(_class_of(annotations)),
        seed=seed,
        threads=threads,
        progress=lambda done: progress(0.1 + 0.9 * done),
        photographs=[image.path for image in annotations.images if len(image.objects)],
    )
    unreadable = (Problem(ProblemKind.UNREADABLE_IMAGE, "", None, fault) for fault in faults.values())
    problems = *positives.problems, *unreadable
    return AdoptionRun(*adopted, positives, backgrounds, problems)


def _class_of(annotations: Annotations) -> str:
    """The class of all objects; empty if they have several, or none."""
    labels = {label for image in annotations.images for label in image.labels if label != ONLY_CLASS}
    return labels.pop() if len(labels) == 1 else ""


def _split_by_photograph(
    annotations: Annotations, positives: Positives, backgrounds: Sequence[Path], seed: int
) -> tuple[Side, Side]:
    """What is counted, with noise, and what makes the reference set, without."""
    with_object = [image for image in annotations.images if len(image.objects)]
    ends = np.cumsum([len(image.objects) for image in with_object])
    photograph = np.searchsorted(ends, positives.objects, side="right")
    check_number(len(np.unique(photograph)))
    counted, held_out = split_objects(photograph, HELD_OUT, seed)
    held_out_paths = {with_object[i].path for i in np.unique(photograph[held_out]).tolist()}
    paths = {image.path for image in with_object}
    own = [path for path in backgrounds if path not in held_out_paths and path in paths]
    theirs = [path for path in backgrounds if path in held_out_paths]
    others = [path for path in backgrounds if path not in paths]
    if len(others) + len(own) < 2 or not (others or theirs):
        raise TrainingDataError(
            "got no images to take negatives from; add images without the object, best some hundred (--negatives)"
        )
    more = split_images(others, HELD_OUT, seed) if len(others) > 1 else (others, [])
    return (
        Side(Positives(_with_noise(positives.windows[counted], seed), photograph[counted]), [*own, *more[0]]),
        Side(Positives(positives.windows[held_out], photograph[held_out]), [*theirs, *more[1]]),
    )


def _with_noise(patches: Patches, seed: int) -> Patches:
    rng, variations = np.random.default_rng([seed, 2]), Variations()
    return np.array([variations.grained(patch, rng) for patch in patches])


# --- Counting ---------------------------------------------------------------------------------------------------------


def count_stages(
    stages: Sequence[Stage],
    positives: Patches,
    images: Backgrounds,
    n_negatives: int = NEGATIVES,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[tuple[Stage, ...], list[int]]:
    """The stages with the counts of their responses to all positives, and to the negative windows that reach them.

    Negatives are random windows of the images in the first stage, and windows that pass the stages before in the
    others. The second result numbers the stages that too few windows reach: windows of earlier stages are counted there
    too.
    """
    window, fewest = images.choice.window, min(FEWEST_NEGATIVES, n_negatives)
    reaching = images.windows(images.random(2 * n_negatives, [images.seed, 3]))
    reaching = _kept(reaching, lambda block: IntegralStack.from_patches(block).has_contrast)
    before = reaching[:0]  # windows of earlier stages, the hardest first
    counted: list[Stage] = []
    short: list[int] = []
    used, has_all = NO_PLACES, False
    for number, stage in enumerate(stages):
        if number:
            passed = np.concatenate([np.empty(0, np.bool_), *map(stages[number - 1].accepts, _blocks(reaching))])
            before = np.concatenate([reaching[~passed], before])[:n_negatives]
            reaching = reaching[passed]
            if len(reaching) < n_negatives and not has_all:
                # Twice as many as needed: half of them pass the next stage.
                missing, cascade = 2 * n_negatives - len(reaching), CascadeModel(window, tuple(stages[:number]))
                mined = images.mine(cascade, missing, turn=number, used=used, most=MOST_PER_IMAGE)
                reaching = np.concatenate([reaching, images.windows(mined.places)])
                used = np.concatenate([used, mined.places])
                has_all = mined.is_exhausted and bool((mined.accepted <= MOST_PER_IMAGE).all())
        if len(reaching) < fewest:
            short.append(number)
        negatives = np.concatenate([reaching, before[: max(fewest - len(reaching), 0)]])
        counted.append(replace(stage, counts=(_count(stage, positives), _count(stage, negatives))))
        progress((number + 1) / len(stages))
    return tuple(counted), short


def _count(stage: Stage, patches: Patches) -> BinaryStatistics:
    parts = (stage.respond(IntegralStack.from_patches(block)).T.view(np.uint8) for block in _blocks(patches))
    return sum((BinaryStatistics.from_samples(part) for part in parts), BinaryStatistics.empty(len(stage)))


def _blocks(patches: Patches) -> list[Patches]:
    return [patches[start : start + AT_ONCE] for start in range(0, len(patches), AT_ONCE)]


def _kept(patches: Patches, test: Callable[[Patches], NDArray[np.bool_]]) -> Patches:
    return np.concatenate([patches[:0], *(block[test(block)] for block in _blocks(patches))])
