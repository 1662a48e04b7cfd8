"""An OpenCV cascade that is shown pictures once, so that it learns from then on, judged before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.detect.pyramid import FACTOR
from whet.errors import TrainingDataError
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedPicture, Annotations, Boxes
from whet.io.annotations.problem import Problem, ProblemKind
from whet.io.opencv_xml import read_opencv
from whet.model.detector_base import StageBase
from whet.model.provenance import Provenance
from whet.training.adopt import adopt
from whet.training.detector import Detector, load
from whet.training.evaluation_run import evaluate_many
from whet.training.forbidden import backgrounds_of
from whet.training.learning_run import Judgement, Shown
from whet.training.positives import Jitter, Positives, cut_positives
from whet.training.variations import Variations
from whet.training.window_choice import window_of
from whet.training.windows import picture_faults

Patches = NDArray[np.uint8]

# Windows of each object, and how far they are moved: as far as `Variations` moves them, of which the benchmark has ten.
COPIES = 10
# Boxes whose shape differs by more than this from the window's give windows of another size than a scan would meet the
# object in: it tries sizes so far apart.
OTHER_SHAPE = FACTOR
JITTER = Jitter(shift=0.035, scale=0.09, rotation=12.0)


@dataclass(frozen=True, eq=False)
class AdoptionRun:
    """A cascade that learns now, what it was shown, what of that was of no use, and how it does before and after."""

    detector: Detector
    positives: Positives
    pictures: tuple[Path, ...]
    problems: tuple[Problem, ...]
    held_out: Judgement | None

    @property
    def added(self) -> StageBase:
        """The stage that was added, and learns."""
        stage = self.detector.taught.base.stages[-1]
        assert isinstance(stage, StageBase)
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
    held_out: Sequence[AnnotatedPicture] = (),
    provenance: Provenance | None = None,
    seed: int = 0,
    threads: int | None = None,
    tell: Callable[[float], None] = lambda _: None,
) -> AdoptionRun:
    """Adopt a cascade (see `whet.training.adopt.adopt`) by the objects and by all else in the pictures shown.

    `tell` gets the share that is done.

    >>> adopt_from(Path("nowhere.xml"), Shown(()))
    Traceback (most recent call last):
    whet.errors.TrainingDataError: no box of the object was shown: a cascade is adopted by objects (annotations or ...
    """
    annotations = Annotations(shown.pictures, (ONLY_CLASS,))
    if not annotations.n_boxes:
        raise TrainingDataError(
            "no box of the object was shown: a cascade is adopted by objects (annotations or crops), best of some "
            "hundred photographs, and by pictures without it"
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
    faults = picture_faults(list(forbidden), source.window)
    pictures = tuple(path for path in forbidden if path not in faults)
    if not pictures:
        raise TrainingDataError(
            "there is no picture to take other windows from: give some without the object (negatives), best hundreds"
        )
    detector = adopt(
        source,
        _grained(positives.patches, seed),
        pictures,
        groups=positives.groups,
        forbidden=forbidden,
        provenance=provenance,
        seed=seed,
        threads=threads,
    )
    tell(0.7)
    told = (Problem(ProblemKind.UNREADABLE_PICTURE, "", None, fault) for fault in faults.values())
    judgement = None
    if held_out:
        before = evaluate_many(load(cascade), held_out, tell=lambda share: tell(0.7 + 0.15 * share), threads=threads)
        after = evaluate_many(detector, held_out, tell=lambda share: tell(0.85 + 0.15 * share), threads=threads)
        judgement = before, after
    return AdoptionRun(detector, positives, pictures, (*positives.problems, *told), judgement)


def _grained(patches: Patches, seed: int) -> Patches:
    rng, variations = np.random.default_rng([seed, 2]), Variations()
    return np.array([variations.grained(patch, rng) for patch in patches])
