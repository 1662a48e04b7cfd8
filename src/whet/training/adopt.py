"""An OpenCV cascade that learns: its weak learners, with weights and thresholds from examples.

A cascade file has votes and no statistics, so it is shown examples of both classes once. Either its votes stay and one
more stage is made of its weak learners (`whet.training.extension`), or stage after stage is counted anew
(`whet.training.relearned_stages`). From then on the detector learns, unlearns and merges as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.errors import TrainingDataError
from whet.io.opencv_xml import read_opencv
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.model.detector_base import DetectorBase, StageBase
from whet.model.opencv_cascade import OpenCVCascade
from whet.model.opencv_stages import stages_of
from whet.model.provenance import Provenance
from whet.model.reporting import Frame
from whet.model.stage import Stage
from whet.training.detector import Detector
from whet.training.extension import extension_of, yielding
from whet.training.forbidden import Forbidden
from whet.training.mining import Miner
from whet.training.relearned_stages import Tell, relearned
from whet.training.split import split_objects

Patches = NDArray[np.uint8]

# What a stage that is added keeps of the positives held out.
DETECTION_RATE = 0.95
FEWEST_POSITIVES = 10
# Windows without the object that are looked for.
NEGATIVES = 20_000


def adopt(
    cascade: OpenCVCascade | str | PathLike[str],
    positives: Patches,
    pictures: Sequence[Path],
    *,
    groups: NDArray[np.intp] | None = None,
    forbidden: Forbidden | None = None,
    keep_votes: bool = True,
    n_weak: int = 1000,
    stage_rate: float = 0.98,
    detection_rate: float | None = None,
    held_out: float = 0.25,
    n_negatives: int = NEGATIVES,
    most_of_a_picture: int = 200,
    ridge: float = DEFAULT_RIDGE,
    frame: Frame | None = None,
    provenance: Provenance | None = None,
    seed: int = 0,
    threads: int | None = None,
    tell: Tell = lambda *_: None,
) -> Detector:
    """A detector of an OpenCV cascade's weak learners that learns online.

    `positives` are (samples, height, width) of the cascade's window, and there should be many more than a stage has
    weak learners: `whet.training.variations.Variations` makes many of one photograph. Positives with one number in
    `groups` (samples,) are of one photograph, and on one side of what is held out. `pictures` have no object in them,
    but in boxes (n, 4) that are `forbidden`, by picture.

    With `keep_votes`, OpenCV's votes stay as they are, and the thresholds of stages that reject too many positives are
    lowered until each stage keeps `stage_rate` of them (0 leaves them where they are). One more stage follows, of up to
    `n_weak` of all their weak learners, chosen by greedy sparse LDA on up to `n_negatives` windows that pass most
    stages. It keeps a `detection_rate` (0.95) of the positives that are `held_out`, and it alone learns later.

    Without, every stage keeps its weak learners and gets weights by LDA, on the positives and on up to `n_negatives`
    windows that reach it. Its threshold lets through the share of those windows that OpenCV's own threshold does; or,
    with a `detection_rate`, it keeps that share of the positives held out. A stage that fewer negatives reach than five
    for each weak learner keeps OpenCV's votes until `learn` has counted as many, at the default weight of a correction;
    from then on its threshold is as many deviations from the mean of the positives as OpenCV's is. A stage that gives
    all positives one score keeps OpenCV's votes, fixed.

    Of each picture at most `most_of_a_picture` windows are taken at a time. `tell` hears the number of each stage that
    was made, what became of it, and how many negatives it was made with. The same seed gives the same detector.

    The weak learners of a tree are its leaves. Raises `CannotConvertError` for rectangles whose weights are not whole.

    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> from whet.features.haar import HaarPool
    >>> from whet.io.opencv_export import write_opencv
    >>> from whet.model.cascade import Cascade
    >>> from whet.training.node import train_node
    >>> rng = np.random.default_rng(0)
    >>> patches = rng.integers(0, 170, (400, 8, 8), dtype=np.uint8)
    >>> patches[:200, :, 4:] += 60  # the object is brighter on the right
    >>> node = train_node(HaarPool.of_window((8, 8)), patches, np.arange(400) < 200, 3)
    >>> with TemporaryDirectory() as folder:
    ...     _ = write_opencv(Cascade((8, 8), (node.stage(),)), f"{folder}/object.xml")
    ...     Image.fromarray(rng.integers(0, 230, (50, 50), dtype=np.uint8)).save(f"{folder}/other.png")
    ...     detector = adopt(f"{folder}/object.xml", patches[:200], [Path(folder) / "other.png"], n_negatives=50)
    >>> added = detector.taught.base.stages[-1]
    >>> len(added), added.positive.n, added.negative.n
    (3, 160, 50)
    """
    source = cascade if isinstance(cascade, OpenCVCascade) else read_opencv(Path(cascade))
    stages = stages_of(source)
    _check(positives, source.window)
    miner = Miner(
        list(pictures),
        source.window,
        seed=seed,
        most_of_a_picture=most_of_a_picture,
        threads=threads,
        forbidden=forbidden or {},
    )
    train, validation = positives, positives[:0]
    if keep_votes or detection_rate is not None:
        train, validation = _sides(positives, groups, held_out, seed)
    if keep_votes:
        new = extension_of(
            stages,
            source.window,
            train,
            validation,
            miner,
            n_weak=n_weak,
            n_negatives=n_negatives,
            detection_rate=DETECTION_RATE if detection_rate is None else detection_rate,
            ridge=ridge,
        )
        tell(len(stages), new, int(new.negative.n))
        bases: list[StageBase | Stage] = [*yielding(stages, train, stage_rate), new]
    else:
        bases = relearned(stages, source.window, miner, (train, validation), detection_rate, n_negatives, ridge, tell)
    return Detector.of_base(DetectorBase(source.window, tuple(bases), provenance=provenance or Provenance()), frame)


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
