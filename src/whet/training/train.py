"""Train a detector from annotated images, or from patches."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

import whet
from whet.detector.base import ABSOLUTE_PATH, DEFAULT_POINT, DetectorBase, Fact, Provenance, Reporting
from whet.detector.detector import Detector, check_class_name
from whet.detector.shape import ShapeDetector
from whet.errors import CheckpointError, ConfigError
from whet.evaluation.advice import Advice, Findings, advise
from whet.evaluation.evaluation import rate_interval
from whet.io.annotations.annotation import ONLY_CLASS, Annotations
from whet.io.annotations.formats import read_annotations
from whet.io.files import as_path, is_url, short_hashes
from whet.models.contract import family_of
from whet.parallel.workers import ALL_THREADS, Workers, workers_from
from whet.training.config import AUTO, PathOrText, Settings, config_from, with_settings
from whet.training.loop import Training
from whet.training.preparation import Preparation, PreparedClass, prepare, prepare_class
from whet.training.progress import Callback, Event, TrainingResult
from whet.training.validation import (
    Fitted,
    Points,
    ScannedImages,
    choose_points,
    false_positives_of,
    held_out_reference,
    held_out_scores,
    set_points,
)

if TYPE_CHECKING:
    from distributed import Client


@with_settings
def train(
    annotations: PathOrText,
    negatives: PathOrText | Iterable[PathOrText] = (),
    *,
    for_opencv: bool = False,
    checkpoint: PathOrText | None = None,
    callback: Callable[[Event], None] | None = None,
    threads: int | None = None,
    client: Client | None = None,
    **settings: Unpack[Settings],
) -> Detector:
    """Train a detector from annotated images, in any format that `read_annotations` reads.

    `negatives` are images without the object, or folders of them; the annotated images also supply negatives, outside
    their boxes. `images` is the folder of the annotated images. It and `negatives` may be URLs, such as s3://bucket/set
    (extra `remote`). `class_name` selects one of several classes.

    With `for_opencv`, the detector is a cascade that `Detector.export_opencv` can write: of "haar" features, or of
    "lbp" if `features` says so, with `min_sigma` and `early_exits` as OpenCV needs them.

    A `checkpoint` file lets a repeated call resume an interrupted training. `callback` receives each
    `whet.training.Event`. `threads` is the number of threads (None: all processors). With a `distributed.Client`, the
    workers of its Dask cluster read images, mine negatives, and train and select weak learners; the detector is the
    same, byte by byte.

    >>> import tempfile
    >>> from PIL import Image
    >>> from whet.demo.drawn_vans import draw_set
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
    given = {"annotations": annotations, "negatives": negatives, **settings}
    config = config_from(given, for_opencv=for_opencv, function=train)
    if config.shapes not in (AUTO, 1):
        raise ConfigError(f"shapes={config.shapes}: `train` makes one shape; use whet.train_classes for several")
    workers = workers_from(client, threads)
    prepared = prepare(config, workers=workers)
    file = None if checkpoint is None else Path(checkpoint)
    return train_prepared(prepared, callback or (lambda _: None), checkpoint=file, workers=workers).detector


@dataclass(frozen=True, eq=False)
class Trained:
    """A detector, the result of its training, and its operating points, by the held-out images.

    `findings` are the errors on objects that were not trained on and the learning curve; None for a cascade.
    """

    detector: Detector
    result: TrainingResult
    points: Points
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
    prepared: Preparation,
    callback: Callback = lambda _: None,
    *,
    checkpoint: Path | None = None,
    origin: Provenance | None = None,
    workers: Workers = ALL_THREADS,
) -> Trained:
    """Train on prepared data; then the held-out images give a reference set and operating points."""
    training = Training(prepared, callback, checkpoint=checkpoint, workers=workers)
    fitted, choice = training.run(), prepared.choice
    base = DetectorBase(
        fitted.model,
        provenance=training_provenance(training, fitted, _origin(prepared, origin)),
        mean_positive=prepared.mean_positive,
        training_images=_training_images(prepared, workers),
    )
    training.announce("reference set and operating points")
    scanned = fitted.scanned or ScannedImages.from_backgrounds(training.held_out, base.model)
    reference = fitted.reference
    if reference is None:
        positives = prepared.positives.take(prepared.is_held_out)
        reference = held_out_reference(base.model, positives, training.held_out, scanned, seed=prepared.config.seed)
    base = replace(base, reference=reference)
    keep = family_of(base.model.family).keep_samples
    if keep and prepared.config.samples == "keep":
        module, _, name = keep.rpartition(".")
        base = getattr(import_module(module), name)(training, base, scanned)
    reporting = Reporting(choice.box_offset, min_size=choice.min_size)
    detector = Detector.from_base(base, reporting=reporting)
    result = fitted.result
    if result.object_scores is None:
        scores = held_out_scores(detector, _held_out_objects(prepared), workers)
        result = replace(result, object_scores=scores)
    with_objects = [len(image.objects) for image in prepared.annotations.images if len(image.objects)]
    per_image = float(np.mean(with_objects)) if with_objects else 1.0
    false_positives = [(image.boxes, image.scores) for image in scanned.readable]
    points = choose_points(false_positives, result.object_scores, per_image)
    set_points(detector, points)
    findings = None
    if fitted.findings is not None:
        findings = fitted.findings(points.thresholds.get(DEFAULT_POINT, -np.inf))
    return Trained(detector, replace(result, seconds=training.seconds), points, findings)


def _held_out_objects(prepared: Preparation) -> list[tuple[Path, NDArray[np.float64]]]:
    """Image and box (4,) of each held-out object."""
    objects = [(image.path, box) for image in prepared.annotations.images for box in image.objects]
    return [objects[number] for number in np.unique(prepared.positives.objects[prepared.is_held_out]).tolist()]


def _origin(prepared: Preparation, origin: Provenance | None) -> Provenance:
    classes = prepared.annotations.classes
    origin = Provenance() if origin is None else origin
    origin = origin.with_class(classes[0]) if classes and classes[0] != ONLY_CLASS else origin
    if origin.data:
        return origin
    source = prepared.config.annotations or ""
    name = as_path(source).name if is_url(source) or ABSOLUTE_PATH.search(source) else source
    return replace(origin, data=f"{name}: {prepared.annotations.summary()}")


def _training_images(prepared: Preparation, workers: Workers) -> NDArray[np.uint32]:
    """Short hashes of all images that have a part in the detector, held-out images included."""
    with_objects = [image.path for image in prepared.annotations.images if len(image.objects)]
    return short_hashes(dict.fromkeys([*with_objects, *prepared.images]), workers)


def training_provenance(training: Training, fitted: Fitted, origin: Provenance) -> Provenance:
    """Provenance for the header of a detector; `origin` takes precedence.

    The rates are those of the result: false positives in held-out images, detections of validation positives.
    """
    prepared, fitting, result = training.prepared, training.fitting, fitted.result
    facts: dict[str, Fact] = {
        "seed": prepared.config.seed,
        "positives": len(prepared.positives),
        "images": len(prepared.images),
        "features": prepared.n_features,
        **fitting.facts,
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
    return replace(origin, goals=fitting.goals | dict(origin.goals), facts=facts | dict(origin.facts))


# --- Several classes and shapes ---------------------------------------------------------------------------------------


@partial(with_settings, without=["class_name"])
def train_classes(
    annotations: PathOrText,
    negatives: PathOrText | Iterable[PathOrText] = (),
    *,
    classes: Sequence[str] | None = None,
    for_opencv: bool = False,
    checkpoint: PathOrText | None = None,
    callback: Callable[[Event], None] | None = None,
    threads: int | None = None,
    client: Client | None = None,
    **settings: Unpack[Settings],
) -> Detector:
    """Train a detector of several classes; None: of all classes of the annotations.

    Objects of other classes are background for a class. A class whose boxes differ too much in shape gets several
    shapes. All other parameters are those of `train`; `checkpoint` is a folder here.

    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    >>> rows = []
    >>> for i in range(24):  # bright and dark squares on noise; use photographs in practice
    ...     scene = rng.integers(90, 160, (90, 180, 3), dtype=np.uint8)
    ...     scene[30:60, 20:50], scene[30:60, 120:150] = 250, 5
    ...     Image.fromarray(scene).save(folder / f"{i}.png")
    ...     rows += [f"{i}.png,20,30,30,30,bright", f"{i}.png,120,30,30,30,dark"]
    >>> _ = (folder / "squares.csv").write_text("\\n".join(rows))
    >>> squares = train_classes(folder / "squares.csv", trees=16, negatives_per_round=200, copies_per_object=2)
    >>> squares
    Detector(bright, dark)
    >>> sorted(set(squares.detect(folder / "0.png").labels))
    ['bright', 'dark']
    """
    if "class_name" in settings:
        raise TypeError(
            f"got class_name={settings['class_name']!r} for several classes; use classes=[...] to choose some, or "
            "whet.train for one"
        )
    found = read_annotations(annotations, settings.get("format"), settings.get("images"))
    workers = workers_from(client, threads)
    trained: dict[str, list[ShapeDetector]] = {}
    n_before = 0
    every: list[str | None] = [*selected_names(found, classes)] or [None]  # without boxes, an error that says so
    for name in every:
        given = {"annotations": annotations, "negatives": negatives, "class_name": name, **settings}
        config = config_from(given, for_opencv=for_opencv, function=train_classes)
        prepared = prepare_class(config, workers=workers, found=found)
        numbers = range(n_before, n_before + len(prepared.parts))
        files = [None if checkpoint is None else class_checkpoint(Path(checkpoint), number) for number in numbers]
        done = train_class(prepared, callback or (lambda _: None), checkpoints=files, workers=workers)
        trained[prepared.name] = [one.detector.only for one in done]
        n_before += len(done)
    return Detector(trained)


def classes_of(
    annotations: PathOrText, format: str | None, images: PathOrText | None, classes: Sequence[str] | None
) -> list[str]:
    """The classes of a data set to train; see `selected_names`."""
    return selected_names(read_annotations(annotations, format, images), classes)


def selected_names(found: Annotations, classes: Sequence[str] | None) -> list[str]:
    """The classes to train, in the order given; None: all that have boxes. An unknown one is an `AnnotationError`."""
    if classes is None:
        return checked_names([name for name, n in found.counts.items() if n])
    names = list(dict.fromkeys(classes.split(",") if isinstance(classes, str) else classes))
    for name in names:
        found.select(name)
    return checked_names(names)


def checked_names(names: list[str]) -> list[str]:
    """The same names; raises `ConfigError` for one that a model of several classes cannot have."""
    try:
        for name in names:
            check_class_name(name)
    except ValueError as error:
        raise ConfigError(f"classes={', '.join(names)}: {error}; rename it, or train it alone with --class") from error
    return names


def class_checkpoint(folder: Path, number: int) -> Path:
    """The checkpoint of one of several classes, in a folder that is made."""
    if folder.is_file():
        raise CheckpointError(f"{folder} is of a training of one class; remove it (--fresh), or choose another output")
    folder.mkdir(exist_ok=True)
    return folder / f"{number}.checkpoint"


def train_class(
    prepared: PreparedClass,
    callback: Callback = lambda _: None,
    *,
    checkpoints: Iterable[Path | None],
    workers: Workers = ALL_THREADS,
) -> list[Trained]:
    """Train the detectors of a class, one for each shape, with a checkpoint each; see `with_common_points`."""
    parts = prepared.parts
    if len(parts) > 1:  # whose scores must compare: they are not made again
        parts = tuple(replace(part, config=replace(part.config, samples="none")) for part in parts)
    trained = [
        train_prepared(part, callback, checkpoint=file, workers=workers)
        for part, file in zip(parts, checkpoints, strict=True)
    ]
    return with_common_points(prepared, trained, workers)


def with_common_points(
    prepared: PreparedClass, trained: Sequence[Trained], workers: Workers = ALL_THREADS
) -> list[Trained]:
    """Give all shapes of a class the operating points of their detections together."""
    if len(trained) == 1:
        return list(trained)
    detector = Detector({prepared.name: [part.detector.only for part in trained]})
    # All shapes hold out the same images, and exclude the boxes of all shapes.
    first = prepared.parts[0]
    points = choose_points(false_positives_of(detector, first.held_out_images, first.excluded, workers))
    set_points(detector, points)
    return [replace(part, points=points) for part in trained]
