"""Train a detector from annotated images, or from patches."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Never

import numpy as np
from numpy.typing import NDArray

import whet
from whet._kernels.threads import DEFAULT_MAX_MEMORY
from whet._kernels.workers import ALL_THREADS, Workers, workers_from
from whet.cascade.boxes import box_iou
from whet.detector.base import ABSOLUTE_PATH, DEFAULT_POINT, DetectorBase, Fact, Provenance, Reporting
from whet.detector.classes import MultiClassDetector, detectors_of
from whet.detector.detector import Detector
from whet.errors import ConfigError, UnreadableImageError
from whet.evaluation.advice import Advice, Findings, advise
from whet.evaluation.curves import operating_point, rate_interval
from whet.evaluation.error_kinds import count_errors
from whet.evaluation.evaluation import evaluate_detections
from whet.evaluation.runs import DetectedImage, detect_many
from whet.features.integral import FeatureFamily
from whet.io.annotations.annotation import ONLY_CLASS
from whet.io.files import as_path, is_url, short_hashes
from whet.training.cascade import Callback, Patches, common_window, train_stages
from whet.training.channel_preparation import ChannelPreparation
from whet.training.channel_training import train_channels
from whet.training.checkpoint import Checkpoint
from whet.training.config import AUTO, CHANNELS, SETTINGS, Mirror, TrainingConfig, opencv_settings, unknown_setting
from whet.training.data import TrainingData
from whet.training.negatives import ExcludedBoxes, SkippedImagesWarning
from whet.training.preparation import Preparation, prepare
from whet.training.progress import Event, StepStarted, TrainingResult
from whet.training.reference import is_outside, make_reference, with_judging_places
from whet.training.stage import GreedyLDA, StageLearner

if TYPE_CHECKING:
    from distributed import Client

PathOrText = str | PathLike[str]


def train(
    annotations: PathOrText,
    negatives: PathOrText | Iterable[PathOrText] = (),
    *,
    format: str | None = None,
    images: PathOrText | None = None,
    class_name: str | None = None,
    split: str | None = None,
    backgrounds: bool = True,
    views: int | Literal["auto"] = AUTO,
    window: tuple[int, int] | None = None,
    margin: float | None = None,
    mirror: Mirror = "safe",
    copies_per_object: int | None = None,
    jitter_shift: float = 0.04,
    jitter_scale: float = 0.09,
    jitter_rotation: float = 3.0,
    features: str | Sequence[str] = CHANNELS,
    trees: int = 1024,
    negatives_per_round: int = 5000,
    max_features: int = 10_000,
    max_stages: int = 12,
    max_weak_learners: int | tuple[int, ...] = 100,
    negatives_per_stage: int = 3000,
    min_detection_rate: float = 0.98,
    max_false_positive_rate: float = 0.4,
    target_false_positive_rate: float = 1e-6,
    validation_share: float = 0.25,
    ridge: float | None = None,
    early_exits: bool = True,
    drop_rejected_positives: bool = True,
    min_sigma: float = 5.0,
    max_memory: int = DEFAULT_MAX_MEMORY,
    seed: int = 0,
    for_opencv: bool = False,
    checkpoint: PathOrText | None = None,
    callback: Callable[[Event], None] | None = None,
    threads: int | None = None,
    client: Client | None = None,
    **unknown: Never,
) -> Detector:
    """Train a detector from annotated images: COCO, YOLO, Pascal VOC, OpenCV's info.dat, CSV or a folder of crops.

    `negatives` are images without the object, or folders of them; the annotated images also supply negatives, outside
    their boxes. `images` is the folder of the annotated images. It and `negatives` may be URLs, such as s3://bucket/set
    (extra `remote`). `class_name` selects one of several classes. `whet.training.TrainingConfig` describes all
    settings.
    With `for_opencv`, the detector is a cascade that `Detector.export_opencv` can write: of "haar" features, or of
    "lbp" if `features` says so, with `min_sigma` and `early_exits` as OpenCV needs them.

    A `checkpoint` file lets a repeated call resume an interrupted training. `callback` receives each
    `whet.training.Event`. `threads` is the number of threads (None: all processors). With a `distributed.Client`, the
    workers of its Dask cluster read images, mine negatives, and train and select weak learners; the detector is the
    same, byte by byte.

    >>> import tempfile
    >>> from PIL import Image
    >>> from whet.demo.objects import draw_set
    >>> from whet.io.annotations.formats import write_annotations
    >>> folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    >>> for i in range(20):  # use photographs in practice
    ...     noise = Image.fromarray(rng.integers(0, 256, (20, 30), dtype=np.uint8))
    ...     noise.resize((180, 120)).save(folder / f"{i}.png")
    >>> drawn = draw_set("van", sorted(folder.glob("*.png")), folder / "vans", sizes=(40, 80))
    >>> _ = write_annotations(drawn, folder / "vans.csv")
    >>> detector = train(
    ...     folder / "vans.csv", trees=32, negatives_per_round=300, copies_per_object=4
    ... )
    >>> detector
    Detector(... windows, 1 stage, 128 weak learners; learned 0 corrections, 0 positives, 0 negatives; ...)
    >>> train(folder / "vans.csv", epochs=3)
    Traceback (most recent call last):
    TypeError: unknown setting 'epochs'. Valid settings: annotations, negatives, format, ...
    """
    given = locals()  # all parameters by name; TrainingConfig checks their values
    config = config_from({name: given[name] for name in SETTINGS} | unknown, for_opencv=for_opencv)
    if config.views not in (AUTO, 1):
        raise ConfigError(f"views={views}: `train` makes one detector; use whet.train_classes for several views")
    workers = workers_from(client, threads)
    prepared = prepare(config, workers=workers)
    file = None if checkpoint is None else Path(checkpoint)
    return train_prepared(prepared, callback or (lambda _: None), checkpoint=file, workers=workers).detector


def config_from(settings: Mapping[str, Any], *, for_opencv: bool = False) -> TrainingConfig:
    """The config of settings by name; raises TypeError for an unknown one."""
    unknown = [name for name in settings if name not in SETTINGS]
    if unknown:
        raise TypeError(unknown_setting(unknown[0], [*SETTINGS, *ARGUMENTS]))
    return TrainingConfig(**(opencv_settings(settings) if for_opencv else settings))


# Parameters of `train` that are no settings of the detector.
ARGUMENTS = ("for_opencv", "checkpoint", "callback", "threads", "client")


@dataclass(frozen=True, eq=False)
class Trained:
    """A detector, the result of its training, and its false positives in the held-out images.

    `false_positives` are those at any score, `default_false_positives` those at the default operating point.
    `findings` are the errors on objects that were not trained on and the learning curve; None for a cascade.
    """

    detector: Detector
    result: TrainingResult
    n_images: int
    false_positives: int
    default_false_positives: int
    findings: Findings | None = None

    def detection_rate(self, min_score: float | str | None = None) -> tuple[float, tuple[float, float]] | None:
        """Share of the held-out objects found above a score, by default that of `detect`, and its 95 % interval.

        None if there are no objects to measure it by.
        """
        scores = self.result.object_scores
        if scores is None or not len(scores):
            return None
        n_found = int((scores > self.detector.reporting.min_score(min_score)).sum())
        return n_found / len(scores), rate_interval(n_found, len(scores))

    @property
    def advice(self) -> list[Advice]:
        """What would help a weak detector, the most promising first; nothing is known of a cascade."""
        return [] if self.findings is None else advise(self.findings)


def train_prepared(
    prepared: Preparation | ChannelPreparation,
    callback: Callback = lambda _: None,
    *,
    checkpoint: Path | None = None,
    origin: Provenance | None = None,
    workers: Workers = ALL_THREADS,
) -> Trained:
    """Train on prepared data, then set operating points on the held-out images."""
    if isinstance(prepared, ChannelPreparation):
        return _train_channels(prepared, callback, checkpoint, _origin(prepared, origin), workers)
    config = prepared.config if prepared.ridge is None else replace(prepared.config, ridge=prepared.ridge.ridge)
    fitted, result = _train(
        prepared.families,
        prepared.data,
        config,
        callback,
        checkpoint=checkpoint,
        origin=_origin(prepared, origin),
        workers=workers,
    )
    data, offset = prepared.data, prepared.choice.box_offset
    steps = _LastSteps(result, callback)
    steps.start("reference set")
    reference = make_reference(
        fitted.base,
        data.held_out_positives,
        data.held_out_images,
        groups=data.held_out_groups,
        excluded_boxes=data.excluded_boxes,
        offset=offset,
        seed=config.seed,
        workers=workers,
    )
    base = replace(fitted.base, reference=reference, training_images=_training_images(prepared, workers))
    detector = Detector(base, reporting=Reporting(offset))
    steps.start("operating points")
    result = replace(result, object_scores=_held_out_scores(detector, prepared, workers))
    trained = _with_points(detector, result, data.held_out_images, data.excluded_boxes, workers)
    return replace(trained, result=replace(result, seconds=steps.seconds))


class _LastSteps:
    """Events of the steps after a training, and the seconds of both."""

    def __init__(self, result: TrainingResult, callback: Callback) -> None:
        self.begun, self.stage, self.callback = time.monotonic() - result.seconds, result.n_stages, callback

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def start(self, name: str) -> None:
        """Announce a step."""
        self.callback(StepStarted(self.stage, self.seconds, None, name))


# A detection finds an object from this IoU on.
FOUND_IOU = 0.5


def _held_out_scores(detector: Detector, prepared: Preparation, workers: Workers) -> NDArray[np.float64]:
    """Scores (n,) of the held-out objects in their images, -inf if they are not found.

    The reference set does not give them: objects that are larger than the window score higher, as more windows fire.
    """
    objects = [(image.path, box) for image in prepared.annotations.images for box in image.objects]
    boxes: dict[Path, list[NDArray[np.float64]]] = {}
    groups = prepared.data.held_out_groups
    for number in [] if groups is None else np.unique(groups).tolist():
        path, box = objects[number]
        boxes.setdefault(path, []).append(box)
    scores = [np.empty(0)]
    for one in detect_many(detector, list(boxes), min_score=-np.inf, workers=workers):
        if one.found is not None:
            matches = box_iou(np.array(boxes[one.path]), one.found.boxes) > FOUND_IOU
            scores.append(np.where(matches, one.found.scores, -np.inf).max(axis=1, initial=-np.inf))
    return np.concatenate(scores)


def _train_channels(
    prepared: ChannelPreparation,
    callback: Callback,
    checkpoint: Path | None,
    origin: Provenance,
    workers: Workers,
) -> Trained:
    file = Checkpoint(checkpoint, prepared.fingerprint())
    stage, reference, result, validated = train_channels(prepared, callback, checkpoint=file, workers=workers)
    steps = _LastSteps(result, callback)
    config, choice = prepared.config, prepared.choice
    provenance = training_provenance(
        config,
        result,
        learner="boosted trees",
        n_positives=len(prepared.positives),
        n_images=len(prepared.images),
        n_features=prepared.n_features,
        is_cascade=False,
        origin=origin,
    )
    images = _training_images(prepared, workers)
    base = DetectorBase(choice.window, (stage,), provenance=provenance, reference=reference, training_images=images)
    detector = Detector(base, reporting=Reporting(choice.box_offset, min_size=choice.min_size))
    steps.start("reference set")
    reference = with_judging_places(detector, prepared.held_out_images, prepared.excluded, workers)
    detector = Detector(replace(base, reference=reference), reporting=detector.reporting)
    steps.start("operating points")
    trained = _with_points(detector, result, prepared.held_out_images, prepared.excluded, workers)
    errors = count_errors(
        validated.unseen.evaluation,
        detector.operating_points.get(DEFAULT_POINT, -np.inf),
        shapes=validated.unseen.shapes,
        min_size=choice.min_size,
        aspect=choice.object_width / choice.object_height,
    )
    aspects = choice.aspect_low, choice.aspect_high
    findings = Findings(errors, None, validated.curve, prepared.positives.n_objects, aspects, choice.misfits)
    return replace(trained, findings=findings, result=replace(result, seconds=steps.seconds))


# False positives per image by the name of the operating point; the last measurable one is the default.
POINTS = {"one false positive per image": 1.0, "one per ten images": 0.1}
# With fewer images, a rate of one per ten images is a single false positive, or none.
ENOUGH_IMAGES = 10


def _with_points(
    detector: Detector, result: TrainingResult, images: Sequence[Path], excluded: ExcludedBoxes, workers: Workers
) -> Trained:
    return Trained(detector, result, *set_points(detector, images, excluded, workers))


def set_points(
    model: Detector | MultiClassDetector, images: Sequence[Path], excluded: ExcludedBoxes, workers: Workers
) -> tuple[int, int, int]:
    """Set the operating points of a detector, or of all views of a class, by false positives in held-out images.

    Their objects may be training positives: what is detected on them, or on parts of them, is left out. Returns the
    numbers of images, and of false positives at any score and at the default point.
    """
    scanned = list(detect_many(model, images, workers=workers, min_score=-np.inf))
    done = [one for one in scanned if one.found is not None]
    _check_held_out(scanned, len(done))
    found = []
    for one in done:
        assert one.found is not None
        outside = one.found[is_outside(one.found.boxes, excluded.get(one.path))]
        found.append((outside.boxes, outside.scores))
    nothing = np.empty((0, 4)), np.empty(0, np.bool_)
    curve = evaluate_detections(found, [nothing] * len(found)).curve
    points: dict[str, float] = {}
    for name, rate in POINTS.items():
        threshold = operating_point(curve, rate)
        if np.isfinite(threshold):
            points[name] = threshold
            if rate >= 1 or len(done) >= ENOUGH_IMAGES:
                points[DEFAULT_POINT] = threshold
    for detector in detectors_of(model):
        for name in (*POINTS, DEFAULT_POINT):
            detector.set_operating_point(name, points.get(name))
    default = curve.false_positives[curve.thresholds >= points.get(DEFAULT_POINT, -np.inf)]
    return len(done), int(curve.false_positives[-1]), int(default.max(initial=0))


def _check_held_out(scanned: Sequence[DetectedImage], n_read: int) -> None:
    """Held-out images that cannot be read are named; without any, there is nothing to set operating points by."""
    unread = [one for one in scanned if one.error is not None]
    if not unread:
        return
    what = f"{len(unread)} of {len(scanned)} held-out images cannot be read, for example {unread[0].error}"
    if not n_read:
        raise UnreadableImageError(f"{what}; the training continues where it is with --resume")
    warnings.warn(f"{what}; operating points are set without them", SkippedImagesWarning, stacklevel=3)


def _origin(prepared: Preparation | ChannelPreparation, origin: Provenance | None) -> Provenance:
    classes = prepared.annotations.classes
    origin = Provenance() if origin is None else origin
    origin = origin.with_class(classes[0]) if classes and classes[0] != ONLY_CLASS else origin
    if origin.data:
        return origin
    source = prepared.config.annotations or ""
    name = as_path(source).name if is_url(source) or ABSOLUTE_PATH.search(source) else source
    return replace(origin, data=f"{name}: {prepared.annotations.summary()}")


def _training_images(prepared: Preparation | ChannelPreparation, workers: Workers) -> NDArray[np.uint32]:
    """Short hashes of all images that have a part in the detector, held-out images included."""
    with_objects = [image.path for image in prepared.annotations.images if len(image.objects)]
    return short_hashes(dict.fromkeys([*with_objects, *prepared.images]), workers)


def train_detector(
    family: FeatureFamily | Sequence[FeatureFamily],
    positives: Patches,
    images: Sequence[Path],
    config: TrainingConfig | None = None,
    callback: Callback = lambda _: None,
    *,
    learner: StageLearner | None = None,
    checkpoint: Path | None = None,
    origin: Provenance | None = None,
    groups: NDArray[np.intp] | None = None,
    excluded_boxes: ExcludedBoxes | None = None,
    workers: Workers = ALL_THREADS,
) -> tuple[Detector, TrainingResult]:
    """Train a cascade from patches like `train_cascade`, and return it as a detector with its provenance.

    `origin` (data, licence, command) is completed with goals, counts and the result of the training. Equal trainings
    give equal files.
    """
    config = TrainingConfig() if config is None else config
    families = tuple(family) if isinstance(family, Sequence) else (family,)
    data = TrainingData.from_patches(positives, images, common_window(families), config, groups, excluded_boxes)
    return _train(
        families, data, config, callback, learner=learner, checkpoint=checkpoint, origin=origin, workers=workers
    )


def _train(
    families: Sequence[FeatureFamily],
    data: TrainingData,
    config: TrainingConfig,
    callback: Callback,
    *,
    learner: StageLearner | None = None,
    checkpoint: Path | None = None,
    origin: Provenance | None = None,
    workers: Workers = ALL_THREADS,
) -> tuple[Detector, TrainingResult]:
    cascade, stages, result = train_stages(
        families, data, config, callback, learner=learner, checkpoint=checkpoint, workers=workers
    )
    provenance = training_provenance(
        config,
        result,
        learner=type(learner or GreedyLDA()).__name__,
        n_positives=data.n_positives,
        n_images=data.n_images,
        n_features=sum(map(len, families)),
        origin=origin,
    )
    base = DetectorBase(cascade.window, stages, cascade.min_sigma, provenance, data.mean_positive)
    return Detector(base), result


def training_provenance(
    config: TrainingConfig,
    result: TrainingResult,
    *,
    learner: str,
    n_positives: int,
    n_images: int,
    n_features: int,
    is_cascade: bool = True,
    origin: Provenance | None = None,
) -> Provenance:
    """Provenance for the header of a detector; `origin` takes precedence.

    The rates are those of the result: false positives in held-out images, detections of validation positives.
    """
    origin = Provenance() if origin is None else origin
    goals: dict[str, Fact] = {
        "stage detection rate": config.min_detection_rate,
        "stage false-positive rate": config.max_false_positive_rate,
        "false-positive rate": config.target_false_positive_rate,
    }
    negatives = {"negatives per stage": config.negatives_per_stage}
    if not is_cascade:
        goals, negatives = {}, {"negatives per round": config.negatives_per_round}
    facts: dict[str, Fact] = {
        "seed": config.seed,
        "learner": learner,
        "positives": n_positives,
        "images": n_images,
        "features": n_features,
        **negatives,
        "stages": result.n_stages,
        "stop reason": str(result.stop_reason),
        "false-positive rate": result.false_positive_rate,
        "false-positive rate, low": result.false_positive_interval[0],
        "false-positive rate, high": result.false_positive_interval[1],
        "detection rate on validation": result.detection_rate,
        "whet": whet.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    return replace(origin, goals=goals | dict(origin.goals), facts=facts | dict(origin.facts))
