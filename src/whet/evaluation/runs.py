"""A detector over many images: detection, and evaluation with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from whet.arrays import Floats
from whet.corrections.records import image_hash
from whet.detector.detector import Detector
from whet.detector.shape import DetectOptions, ScanOptions
from whet.detector.storage import load
from whet.errors import DataNotFoundError, ImageMemoryError, UnreadableImageError
from whet.evaluation.advice import TARGET_RATE, Advice, Findings, advise
from whet.evaluation.error_kinds import ErrorReport, count_errors
from whet.evaluation.evaluation import (
    Curve,
    Evaluation,
    Label,
    average_precision,
    evaluate_detections,
    image_interval,
    log_average_miss_rate,
    operating_point,
)
from whet.images.detections import Detections
from whet.io.annotations.annotation import HELD_OUT_PARTS, AnnotatedImage, Annotations
from whet.io.annotations.formats import read_annotations
from whet.io.files import short_hash, shown_name
from whet.parallel.workers import Threads, Workers, lost_image, workers_from

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, eq=False)
class DetectedImage:
    """An image's file, and what was found in it; or, where it could not be read, the error that says why."""

    path: Path
    found: Detections | None
    error: UnreadableImageError | None = None


def detect_many(
    detector: Detector,
    paths: Sequence[Path],
    *,
    workers: Workers | None = None,
    **options: Unpack[DetectOptions],
) -> Iterator[DetectedImage]:
    """Detect in images, with the options of `Detector.detect`; results come in the order of the images.

    Each thread, or each of the `workers`, reads and scans an image of its own; where there are fewer images than
    threads, several scan one. An image that cannot be read is reported in its place, and the others go on.

    >>> import tempfile
    >>> from whet.detector.storage import load
    >>> broken = Path(tempfile.mkdtemp()) / "broken.png"
    >>> broken.write_bytes(b"no image")
    8
    >>> [one.found for one in detect_many(load("face"), [broken])]
    [None]
    """
    workers = Threads(options.get("threads")) if workers is None else workers
    inner: DetectOptions = {**options, "threads": workers.threads_of_task(len(paths))}
    run = workers.map(_detect, paths, repeat(workers.share(detector)), repeat(inner), lost=_lost)
    return (replace(one, path=path) for path, one in zip(paths, run, strict=True))  # a worker knows it by another name


def _detect(path: Path, detector: Detector, options: DetectOptions) -> DetectedImage:
    try:
        return DetectedImage(path, detector.detect(path, **options))
    except ImageMemoryError as error:
        return DetectedImage(path, None, ImageMemoryError(f"{shown_name(path)}: {error}"))
    except UnreadableImageError as error:
        return DetectedImage(path, None, error)


def _lost(path: Path, *_: object) -> DetectedImage:
    return DetectedImage(path, None, lost_image(path))


RESAMPLES = 1000
# Of n images without any false positive, a Poisson count with this mean would still be zero 1 time in 40.
NONE_SEEN = -float(np.log(0.025))

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Measured:
    """A rate or an area, and its 95 % interval; NaN where there is nothing to measure it by."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class EvaluationRun:
    """What a detector did on images: those that could be read, the result at every threshold, and the one in use.

    `images` are the annotations, one for each path. `iou` is the overlap that finds an object. `min_size` and `aspect`
    are the longer side of the smallest boxes that the detector reports, and the width over height of all of them.
    """

    paths: tuple[Path, ...]
    evaluation: Evaluation
    threshold: float
    unread: tuple[UnreadableImageError, ...] = ()
    images: tuple[AnnotatedImage, ...] = ()
    iou: float = 0.5
    min_size: float = 0.0
    aspect: float | None = None

    def __repr__(self) -> str:
        return (
            f"EvaluationRun({len(self.paths):,} images, {int(self.truths.sum()):,} objects: recall {self.recall:.3f}, "
            f"precision {self.precision:.3f} above score {self.threshold:.4g}, "
            f"average precision {self.evaluation.average_precision:.3f})"
        )

    @cached_property
    def found(self) -> Counts:
        """Truths of each image (images,) that are found."""
        return np.array([len(each.found(self.threshold)) for each in self.evaluation.images], np.int64)

    @cached_property
    def truths(self) -> Counts:
        """Truths of each image (images,), without those to be ignored."""
        return np.array([(~each.ignored).sum() for each in self.evaluation.images], np.int64)

    @cached_property
    def false_positives(self) -> Counts:
        """False positives in each image (images,)."""
        return np.array([len(each.false_positives(self.threshold)) for each in self.evaluation.images], np.int64)

    @property
    def n_missed(self) -> int:
        """Truths that are not found."""
        return int(self.truths.sum() - self.found.sum())

    @property
    def n_false_positives(self) -> int:
        """False positives in all images together."""
        return int(self.false_positives.sum())

    @property
    def recall(self) -> float:
        """Share of the truths that are found; NaN without any."""
        return _share(int(self.found.sum()), int(self.truths.sum()))

    @property
    def precision(self) -> float:
        """Share of the detections that are objects; NaN without any."""
        n_found = int(self.found.sum())
        return _share(n_found, n_found + self.n_false_positives)

    @cached_property
    def errors(self) -> ErrorReport:
        """The kinds of errors at the threshold in use, and what each costs in average precision."""
        return count_errors(
            self.evaluation,
            self.threshold,
            iou=self.iou,
            shapes=[image.shape for image in self.images] or None,
            others=[image.others for image in self.images] or None,
            min_size=self.min_size,
            aspect=self.aspect,
        )

    @property
    def advice(self) -> list[Advice]:
        """What would help a weak detector, the most promising first (see `whet.evaluation.advice.advise`)."""
        curve = self.evaluation.curve
        at_target = curve.recall[curve.thresholds >= operating_point(curve, TARGET_RATE)]
        return advise(Findings(self.errors, float(at_target.max(initial=0.0))))

    def measures(self, seed: int = 0) -> dict[str, Measured]:
        """Rates at the threshold in use and areas over all thresholds, with 95 % intervals.

        Images are the samples, as what one image shows is found or missed together: recall and precision have
        the interval of Korn and Graubard (`whet.evaluation.evaluation.image_interval`), the others that of a bootstrap
        over images, drawn with `seed`, and none where there is one image only.
        """
        detections = self.found + self.false_positives
        area, miss_rate = self._resampled_areas(seed)
        n, rate = len(self.paths), Measured(0.0, 0.0, NONE_SEEN / len(self.paths))
        if self.n_false_positives:
            rate = _with_quantiles(self.n_false_positives / n, self._resample_images(seed) @ self.false_positives / n)
        return {
            "recall": _of_counts(self.found, self.truths),
            "precision": _of_counts(self.found, detections),
            "false positives per image": rate,
            "average precision": _with_quantiles(self.evaluation.average_precision, area),
            "log-average miss rate": _with_quantiles(self.evaluation.log_average_miss_rate, miss_rate),
        }

    def _resample_images(self, seed: int) -> Counts:
        """How often each image is drawn (resamples, images); one alone says nothing of others."""
        n = len(self.paths)
        if n < 2:
            return np.empty((0, n), np.int64)
        return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), RESAMPLES)

    def _resampled_areas(self, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        images = self.evaluation.images
        labels = np.concatenate([each.matching.labels for each in images])
        counted = np.flatnonzero(labels != Label.IGNORED)
        scores = np.concatenate([each.scores for each in images])[counted]
        order = counted[np.argsort(-scores, kind="stable")]
        of_image = np.repeat(np.arange(len(images)), [len(each.scores) for each in images])[order]
        right = labels[order] == Label.TRUE
        falling = np.sort(scores)[::-1]
        last_of_step = np.flatnonzero(np.append(falling[1:] != falling[:-1], len(falling) > 0))
        areas = []
        for drawn in self._resample_images(seed):
            times = drawn[of_image]
            found = np.append(0, np.cumsum(times * right)[last_of_step])
            false_positives = np.append(0, np.cumsum(times * ~right)[last_of_step])
            curve = Curve(np.empty(len(found)), found, false_positives, int(drawn @ self.truths), len(images))
            areas.append((average_precision(curve), log_average_miss_rate(curve)))
        first, second = np.array(areas).reshape(-1, 2).T
        return first, second


def evaluate(
    detector: Detector | str | PathLike[str],
    annotations: str | PathLike[str] | Annotations | Sequence[AnnotatedImage],
    *,
    iou: float = 0.5,
    min_score: float | str | None = None,
    progress: Callable[[float], None] = lambda _: None,
    client: Client | None = None,
    **options: Unpack[ScanOptions],
) -> EvaluationRun:
    """Evaluate a detector on annotated images, at a minimum score (see `Detector.detect`) and at all others.

    `annotations` are a file or folder in any format that `read_annotations` reads, or what it returned. Of a file or
    folder with several parts, the part test is used, or else val; of several classes, that of the detector. A detection
    is right if its IoU with an object is above `iou`. Images that cannot be read are left out and listed in `unread`.
    Detections in an image whose annotations are incomplete are ignored unless they find an object. `progress` gets
    the share that is done; `options` are sizes, `scale_factor`, `step`, `grouping` and `threads` of
    `Detector.detect`. With a `distributed.Client`, the workers of its Dask cluster read and scan the images.

    >>> import tempfile
    >>> from PIL import Image
    >>> path = Path(tempfile.mkdtemp()) / "empty.png"
    >>> Image.new("L", (80, 60)).save(path)
    >>> run = evaluate("face", [AnnotatedImage(path, (60, 80))])
    >>> run.n_false_positives, run.measures()["false positives per image"].high.__round__(2)
    (0, 3.69)
    """
    loaded = load(detector) if isinstance(detector, str | PathLike) else detector
    workers = workers_from(client, options.get("threads"))
    images = _images(annotations, loaded.class_name)
    return evaluate_on(workers, loaded, images, iou, min_score, progress, **options)


def evaluate_on(
    workers: Workers,
    detector: Detector,
    images: Sequence[AnnotatedImage],
    iou: float = 0.5,
    min_score: float | str | None = None,
    progress: Callable[[float], None] = lambda _: None,
    **options: Unpack[ScanOptions],
) -> EvaluationRun:
    """The same as `evaluate`, with workers of any kind.

    >>> evaluate_on(Threads(), load("face"), [])
    Traceback (most recent call last):
    whet.errors.DataNotFoundError: no images to evaluate; pass annotations with at least one image
    """
    above = detector.reporting.min_score(min_score)  # or an error that there are several classes
    if not images:
        raise DataNotFoundError("no images to evaluate; pass annotations with at least one image")
    run = detect_many(detector, [image.path for image in images], workers=workers, min_score=-np.inf, **options)
    read: list[AnnotatedImage] = []
    detections: list[tuple[Floats, Floats]] = []  # and not the windows behind them, which are many
    unread = []
    for number, (image, one) in enumerate(zip(images, run, strict=True), start=1):
        if one.found is not None:
            read.append(image)
            detections.append((one.found.boxes, one.found.scores))
        elif one.error is not None:
            unread.append(one.error)
        progress(number / len(images))
    if not read:
        raise UnreadableImageError(f"none of the {len(images)} images could be read; the first: {unread[0]}")
    result = evaluate_detections(detections, [truths_of(image) for image in read], iou=iou)
    return EvaluationRun(
        tuple(image.path for image in read),
        result,
        above,
        tuple(unread),
        tuple(read),
        iou,
        *_reported_sizes(detector, options.get("min_size")),
    )


def _reported_sizes(detector: Detector, min_size: float | None) -> tuple[float, float | None]:
    """The longer side of the smallest boxes that are reported, and their width over height; None for several shapes."""
    shapes = detector.shapes()
    sizes = [(shape.window, shape.box_offset.size, shape.reporting.min_size) for shape in shapes]
    by_default = min(least or max(height * rows, width * columns) for (height, width), (rows, columns), least in sizes)
    return by_default if min_size is None else min_size, shapes[0].aspect if len(shapes) == 1 else None


def trained_on(detector: Detector, paths: Iterable[Path]) -> list[Path]:
    """Those of the image files on which the detector was trained, by its record of them; none without a record."""
    known = [shape.base.training_images for shape in detector.shapes()]
    hashes = {short for images in known if images is not None for short in images.tolist()}
    return [path for path in paths if hashes and short_hash(path) in hashes]


def learned_from(detector: Detector, paths: Iterable[Path]) -> list[Path]:
    """Those of the image files from which the detector learned corrections or examples, by their pixels."""
    known, first = {record.image for record in detector.records}, detector.shapes()[0]
    return [path for path in paths if known and image_hash(first.pixels(path)) in known]


def _images(
    annotations: str | PathLike[str] | Annotations | Sequence[AnnotatedImage], class_name: str | None
) -> Sequence[AnnotatedImage]:
    if isinstance(annotations, str | PathLike):
        annotations = read_annotations(annotations)
        part = next((name for name in HELD_OUT_PARTS if name in annotations.splits), None)
        annotations = annotations if part is None else annotations.select_split(part)
        if class_name in annotations.counts and len(annotations.counts) > 1:
            annotations = annotations.select(class_name)
    return annotations.images if isinstance(annotations, Annotations) else annotations


def truths_of(image: AnnotatedImage) -> tuple[Floats, NDArray[np.bool_]]:
    """Boxes (n, 4) and which to ignore (n,): all of an image that is not complete, beside its objects."""
    if image.is_complete:
        return image.boxes, image.ignore
    height, width = image.shape
    whole = np.array([[0.0, 0.0, width, height]])
    return np.concatenate([image.boxes, whole]), np.append(image.ignore, True)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _of_counts(part: Counts, whole: Counts) -> Measured:
    if not whole.any():
        return Measured(*3 * (float("nan"),))
    return Measured(_share(int(part.sum()), int(whole.sum())), *image_interval(part, whole))


def _with_quantiles(value: float, resampled: NDArray[np.float64]) -> Measured:
    seen = resampled[np.isfinite(resampled)]
    if not len(seen):
        return Measured(value, float("nan"), float("nan"))
    low, high = np.quantile(seen, (0.025, 0.975)).tolist()
    return Measured(value, low, high)
