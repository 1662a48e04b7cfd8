"""Annotated images in, a detector out."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import whet
from whet.detector.base import ABSOLUTE_PATH, DEFAULT_POINT, DetectorBase, Fact, Provenance, Reporting
from whet.detector.detector import Detector
from whet.evaluation.curves import operating_point
from whet.evaluation.evaluation import evaluate
from whet.evaluation.runs import detect_many
from whet.features.integral import FeatureFamily
from whet.training.cascade import Patches, train_cascade
from whet.training.config import Plan
from whet.training.data import split_images
from whet.training.negatives import Forbidden
from whet.training.preparation import Preparation, prepare
from whet.training.progress import Ending, Event
from whet.training.recipe import Recipe
from whet.training.stage import GreedyLDA


def train_detector(
    family: FeatureFamily | Sequence[FeatureFamily],
    positives: Patches,
    images: Sequence[Path],
    plan: Plan | None = None,
    tell: Callable[[Event], None] = lambda _: None,
    *,
    checkpoint: Path | None = None,
    origin: Provenance | None = None,
    groups: NDArray[np.intp] | None = None,
    forbidden: Forbidden | None = None,
) -> tuple[Detector, Ending]:
    """Train a cascade as `train_cascade` does, and make a detector of it that can be saved, run and taught.

    Its provenance is `origin` (data, licence, command, as the user knows them), completed with goals, counts and
    how training ended. Seconds are among its facts: they are all in which the files of two equal trainings differ.
    """
    plan = Plan() if plan is None else plan
    cascade, nodes, ending = train_cascade(
        family, positives, images, plan, tell, checkpoint=checkpoint, groups=groups, forbidden=forbidden
    )
    n_features = sum(map(len, family)) if isinstance(family, Sequence) else len(family)
    provenance = training_provenance(
        plan, ending, n_positives=len(positives), n_images=len(images), n_features=n_features, origin=origin
    )
    mean = np.rint(positives.mean(axis=0)).astype(np.uint8)
    base = DetectorBase(cascade.window, nodes, cascade.min_sigma, provenance, mean)
    return Detector(base), ending


def training_provenance(
    plan: Plan,
    ending: Ending,
    *,
    n_positives: int,
    n_images: int,
    n_features: int,
    origin: Provenance | None = None,
) -> Provenance:
    """What a detector's header says of its training; what `origin` says already stays.

    Rates are those of the ending: false positives in held-out images, detections on validation positives.
    """
    origin = Provenance() if origin is None else origin
    learner = plan.learner or GreedyLDA()
    goals: dict[str, Fact] = {
        "stage detection rate": plan.goal.detection_rate,
        "stage false-positive rate": plan.goal.false_positive_rate,
        "false-positive rate": plan.false_positive_rate,
    }
    facts: dict[str, Fact] = {
        "seed": plan.seed,
        "learner": type(learner).__name__,
        "positives": n_positives,
        "images": n_images,
        "features": n_features,
        "negatives a stage": plan.n_negatives,
        "stages": ending.n_stages,
        "seconds": round(ending.seconds, 1),
        "ending": str(ending.why),
        "false-positive rate": ending.false_positive_rate,
        "false-positive rate, low": ending.interval[0],
        "false-positive rate, high": ending.interval[1],
        "detection rate on validation": ending.detection_rate,
        "whet": whet.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    return replace(origin, goals=goals | dict(origin.goals), facts=facts | dict(origin.facts))


# False positives an image by the name of the operating point; the last that held-out images can tell is the default.
POINTS = {"one false positive per image": 1.0, "one per ten images": 0.1}
# With fewer images, a rate of one per ten images is a single false positive, or none.
ENOUGH_IMAGES = 10


@dataclass(frozen=True, eq=False)
class Trained:
    """A detector, why its training ended, and how many false positives it makes in the images that were kept apart."""

    detector: Detector
    ending: Ending
    n_images: int
    false_positives: int


def train(
    annotations: str | PathLike[str],
    negatives: str | PathLike[str] | Iterable[str | PathLike[str]] = (),
    *,
    class_name: str | None = None,
    checkpoint: Path | None = None,
    tell: Callable[[Event], None] = lambda _: None,
    threads: int | None = None,
    **settings: Any,  # noqa: ANN401 - the other fields of Recipe, which checks them
) -> Detector:
    """Train a detector from annotated images: COCO, YOLO, Pascal VOC, OpenCV's info.dat, CSV or a folder of crops.

    `negatives` are images without the object, or folders of them; the annotated images serve outside of their
    boxes as well. `class_name` chooses one of several classes. All further settings are those of
    `whet.training.recipe.Recipe`: window, mirror, stages, seed and so on. With a `checkpoint` file, a training that was
    stopped goes on. `tell` hears what happens (`whet.training.progress`).

    >>> import tempfile
    >>> from PIL import Image
    >>> from whet.demo.objects import draw_set
    >>> from whet.io.annotations.formats import write_annotations
    >>> folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    >>> for i in range(20):  # in earnest, photographs
    ...     noise = Image.fromarray(rng.integers(0, 256, (20, 30), dtype=np.uint8))
    ...     noise.resize((180, 120)).save(folder / f"{i}.png")
    >>> drawn = draw_set("van", sorted(folder.glob("*.png")), folder / "vans", sizes=(40, 80))
    >>> _ = write_annotations(drawn, folder / "vans.csv")
    >>> detector = train(folder / "vans.csv", stages=2, learners=10, most_features=300, n_negatives=300, threads=1)
    >>> detector
    Detector(36 x 16 windows, 2 stages, ... weak learners; learned 0 positives, 0 negatives; ...)
    """
    named = [negatives] if isinstance(negatives, str | PathLike) else negatives
    without = tuple(fspath(one) for one in named)
    recipe = Recipe(fspath(annotations), class_name=class_name, negatives=without, **settings)
    return train_prepared(prepare(recipe, threads=threads), tell, checkpoint=checkpoint, threads=threads).detector


def train_prepared(
    preparation: Preparation,
    tell: Callable[[Event], None] = lambda _: None,
    *,
    checkpoint: Path | None = None,
    origin: Provenance | None = None,
    threads: int | None = None,
) -> Trained:
    """Train on what was prepared; then set operating points on the images that were kept apart."""
    recipe, positives = preparation.recipe, preparation.positives
    chosen = recipe if preparation.ridge is None else replace(recipe, ridge=preparation.ridge.ridge)
    plan = replace(chosen.plan, threads=threads)
    taught, ending = train_detector(
        preparation.families,
        positives.patches,
        preparation.images,
        plan,
        tell,
        checkpoint=checkpoint,
        origin=_origin(preparation, origin),
        groups=positives.groups,
        forbidden=preparation.forbidden,
    )
    frame = preparation.choice.frame
    detector = Detector(taught.base, reporting=Reporting(frame))
    _, apart = split_images(preparation.images, plan.validation, plan.seed)
    return _with_points(detector, ending, preparation, apart, threads)


def _with_points(
    detector: Detector, ending: Ending, preparation: Preparation, apart: list[Path], threads: int | None
) -> Trained:
    """Count false positives in images kept apart; objects there, which may have been trained on, are ignored."""
    done = [one for one in detect_many(detector, apart, threads=threads) if one.found is not None]
    none = np.empty((0, 4))
    boxes = [preparation.forbidden.get(one.path, none) for one in done]
    found = [(one.found.boxes, one.found.scores) for one in done if one.found is not None]
    curve = evaluate(found, [(each, np.ones(len(each), np.bool_)) for each in boxes]).curve
    for name, rate in POINTS.items():
        threshold = operating_point(curve, rate)
        if np.isfinite(threshold):
            detector.set_operating_point(name, threshold)
            if rate >= 1 or len(done) >= ENOUGH_IMAGES:
                detector.set_operating_point(DEFAULT_POINT, threshold)
    return Trained(detector, ending, len(done), int(curve.false_positives[-1]))


def _origin(preparation: Preparation, origin: Provenance | None) -> Provenance:
    origin = Provenance() if origin is None else origin
    if origin.data:
        return origin
    source = preparation.recipe.annotations
    name = Path(source).name if ABSOLUTE_PATH.search(source) else source
    return replace(origin, data=f"{name}: {preparation.annotations.summary()}")
