"""Cascades from patches that are cut already: training with any features and learner, and adoption.

The commands cut patches of annotated images; experiments, benchmarks and tests have their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.detector.base import DetectorBase, Provenance
from whet.detector.detector import Detector
from whet.errors import TrainingDataError
from whet.images.boxes import BoxOffset
from whet.models.gslda.fitting import StageLearner
from whet.models.gslda.integral import FeatureFamily
from whet.opencv.tree_cascade import OpenCVCascade
from whet.opencv.xml_reader import read_opencv
from whet.parallel.workers import ALL_THREADS, Workers
from whet.training.adopt import HELD_OUT, NEGATIVES, Patches, Side, adopt_sides, check_number
from whet.training.backgrounds import BoxesByImage, Shape, SkippedImagesWarning, image_faults
from whet.training.config import TrainingConfig
from whet.training.gslda import CascadeFitting, CascadeTraining, given_window
from whet.training.loop import Training
from whet.training.preparation import Preparation, digest, prepare_windows, split_images, split_objects
from whet.training.progress import Callback, TrainingResult
from whet.training.samples import Positives, Windows
from whet.training.train import training_provenance


def train_detector(
    pools: FeatureFamily | Sequence[FeatureFamily],
    positives: Windows,
    images: Sequence[Path],
    config: TrainingConfig | None = None,
    callback: Callback = lambda _: None,
    *,
    learner: StageLearner | None = None,
    checkpoint: Path | None = None,
    origin: Provenance | None = None,
    groups: NDArray[np.intp] | None = None,
    excluded_boxes: BoxesByImage | None = None,
    workers: Workers = ALL_THREADS,
) -> tuple[Detector, TrainingResult]:
    """Train a cascade from patches (see `prepare_patches`), and return it as a detector with its provenance.

    With a `checkpoint` file, a repeated call resumes an interrupted training and gives the same detector, bit by bit.
    `max_stages`, `target_false_positive_rate` and `workers` may change between runs. The result does not depend on
    the number of workers. `origin` (data, licence, command) is completed with goals, counts and the result of the
    training. Equal trainings give equal files.
    """
    prepared = prepare_patches(pools, positives, images, config, learner, groups, excluded_boxes)
    training = Training(prepared, callback, checkpoint=checkpoint, workers=workers)
    fitted = training.run()
    provenance = training_provenance(training, fitted, origin or Provenance())
    return Detector.from_base(DetectorBase(fitted.model, provenance, prepared.mean_positive)), fitted.result


def prepare_patches(
    pools: FeatureFamily | Sequence[FeatureFamily],
    positives: Windows,
    images: Sequence[Path],
    config: TrainingConfig | None = None,
    learner: StageLearner | None = None,
    groups: NDArray[np.intp] | None = None,
    excluded_boxes: BoxesByImage | None = None,
) -> Preparation:
    """Prepare the training of a cascade from patches: stages until it reaches `config.target_false_positive_rate`.

    `positives` are patches (n, height, width) of the object, `images` files without it. `config.validation_share` of
    both is held out; a run of neighbouring positives, and an image, is on one side only. Settings of the family gslda
    apply, but for `features`. Positives with the same number in `groups` (n,) show one object: they stay on one side
    and count as one. Images may contain the object inside `excluded_boxes` (m, 4): negatives are taken outside.
    """
    config = TrainingConfig() if config is None else config
    pools = tuple(pools) if isinstance(pools, Sequence) else (pools,)
    windows = {pool.window for pool in pools}
    if len(windows) != 1:
        raise ValueError(
            f"got families for windows {sorted(windows)}; expected at least one family, all with one window"
        )
    height, width = windows.pop()
    expected = f"expected uint8 patches of shape (n, {height}, {width}): cut and resize them to the window"
    if not isinstance(positives, np.ndarray) or positives.dtype != np.uint8 or positives.shape[1:] != (height, width):
        got = f"{positives.dtype} of shape {positives.shape}" if isinstance(positives, np.ndarray) else type(positives)
        raise TrainingDataError(f"positives are {got}; {expected}")
    if groups is not None and groups.shape != (len(positives),):
        raise TrainingDataError(f"got groups of shape {groups.shape} for {len(positives)} positives; expected one each")
    objects = np.arange(len(positives)) if groups is None else groups
    choice = given_window((height, width))
    usable = usable_images(images, choice.window)
    family = PoolsTraining(pools, learner)
    return prepare_windows(family, choice, Positives(positives, objects), usable, config, excluded_boxes)


def usable_images(paths: Sequence[Path], window: Shape) -> list[Path]:
    """The images that can be opened and are at least as large as the window; warns about the others.

    This reads only headers: a truncated file is skipped later.
    """
    faults = image_faults(paths, window)
    if faults:
        first = "; ".join(list(faults.values())[:3])
        warnings.warn(f"skipped {len(faults)} images: {first}", SkippedImagesWarning, stacklevel=3)
    return [path for path in paths if path not in faults]


@dataclass(frozen=True, eq=False)
class PoolsTraining(CascadeTraining):
    """Cascades of given pools of features, with a learner; None: `GreedyLDA`."""

    pools: tuple[FeatureFamily, ...]
    learner: StageLearner | None = None

    def pools_of(self, prepared: Preparation) -> tuple[FeatureFamily, ...]:  # noqa: ARG002
        """The given pools."""
        return self.pools

    def fitting(self, prepared: Preparation) -> CascadeFitting:
        """A cascade of these pools."""
        return CascadeFitting(prepared, self.pools, self.learner)

    def fingerprint(self) -> dict[str, str]:
        """A text for pools and learner, which a checkpoint must agree on."""
        # The text of an object that is no dataclass would contain its address.
        text = str(self.learner) if is_dataclass(self.learner) else type(self.learner).__qualname__
        pools = "; ".join(f"{len(pool)} of {type(pool).__name__}, {digest(_columns(pool))}" for pool in self.pools)
        return {"learner": text, "features": pools}


def _columns(pool: FeatureFamily) -> list[object]:
    # The fields only: other attributes may be a cache.
    names = list(pool.__dataclass_fields__) if is_dataclass(pool) else sorted(vars(pool))
    return [getattr(pool, name) for name in names]


def adopt_patches(
    cascade: OpenCVCascade | str | PathLike[str],
    positives: Patches,
    images: Sequence[Path],
    *,
    groups: NDArray[np.intp] | None = None,
    excluded_boxes: BoxesByImage | None = None,
    held_out: float = HELD_OUT,
    n_negatives: int = NEGATIVES,
    box_offset: BoxOffset | None = None,
    provenance: Provenance | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Detector:
    """Make an OpenCV cascade correctable: count the responses of its stages to patches of the object and to images.

    `positives` are (samples, height, width) of the cascade's window; `Variations` of `whet.models.gslda.fitting` make
    many of one photograph. Positives with the same number in `groups` (samples,) come from one photograph, and are
    either all held out or all counted. `images` contain no object, except in the `excluded_boxes` (n, 4) of an image.

    Stages, weights and thresholds stay as they are, so the detector finds what the cascade finds, until it is
    corrected. About `n_negatives` windows or more are counted in each stage. The photographs and images that are
    `held_out` make the reference set, which guards and judges corrections. The same seed gives the same detector.

    The weak learners of a tree are its leaves. Raises `CannotConvertError` for rectangles whose weights are not whole.

    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> from whet.models.gslda.cascade import Cascade
    >>> from whet.models.gslda.haar import HaarPool
    >>> from whet.opencv.xml_writer import write_opencv
    >>> from whet.models.gslda.fitting import train_stage
    >>> rng = np.random.default_rng(0)
    >>> patches = rng.integers(0, 170, (400, 8, 8), dtype=np.uint8)
    >>> patches[:200, :, 4:] += 60  # the object is brighter on the right
    >>> stage = train_stage(HaarPool.from_window((8, 8)), patches, np.arange(400) < 200, 3)
    >>> with TemporaryDirectory() as folder:
    ...     _ = write_opencv(Cascade((8, 8), (stage.run(),)), f"{folder}/object.xml")
    ...     images = [Path(folder) / name for name in ("1.png", "2.png")]
    ...     for path in images:
    ...         Image.fromarray(rng.integers(0, 230, (50, 50), dtype=np.uint8)).save(path)
    ...     detector = adopt_patches(f"{folder}/object.xml", patches[:200], images, n_negatives=100)
    >>> positive, negative = detector.only.base.model.stages[0].statistics
    >>> positive.n, negative.n
    (160, 156)
    """
    source = cascade if isinstance(cascade, OpenCVCascade) else read_opencv(Path(cascade))
    _check(positives, source.window, groups)
    if not 0 < held_out < 1:
        raise ValueError(f"got held_out={held_out}; expected a number between 0 and 1")
    numbers = np.arange(len(positives)) if groups is None else groups
    check_number(len(np.unique(numbers)))
    rows = split_objects(numbers, held_out, seed)
    sides = (
        Side(Positives(positives[part], numbers[part]), paths)
        for part, paths in zip(rows, split_images(images, held_out, seed), strict=True)
    )
    detector, _, _ = adopt_sides(
        source,
        *sides,
        excluded_boxes=excluded_boxes or {},
        n_negatives=n_negatives,
        box_offset=box_offset or BoxOffset(),
        provenance=provenance or Provenance(),
        seed=seed,
        threads=threads,
    )
    return detector


def _check(positives: Patches, window: tuple[int, int], groups: NDArray[np.intp] | None) -> None:
    if positives.dtype != np.uint8 or positives.shape[1:] != window:
        raise TrainingDataError(
            f"got positives {positives.dtype} of shape {positives.shape}; expected uint8, (samples, {window[0]}, "
            f"{window[1]}), the cascade's window"
        )
    if groups is not None and groups.shape != (len(positives),):
        raise TrainingDataError(f"got groups of shape {groups.shape} for {len(positives)} positives; expected one each")
