"""Annotated pictures in, a detector out: the whole of a training in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from whet.evaluate.curves import operating_point
from whet.evaluate.evaluation import evaluate
from whet.model.provenance import ABSOLUTE_PATH, Provenance
from whet.model.reporting import DEFAULT_POINT, Reporting
from whet.model.taught_detector import TaughtDetector
from whet.training.detection_run import detect_many
from whet.training.detector import Detector
from whet.training.ending import Ending
from whet.training.events import Event
from whet.training.preparation import Preparation, prepare
from whet.training.recipe import Recipe
from whet.training.split import split_pictures
from whet.training.trained_detector import train_detector

# False alarms a picture by the name of the operating point; the last that held-out pictures can tell is the default.
POINTS = {"one false alarm a picture": 1.0, "one in ten pictures": 0.1}
# With fewer pictures, a rate of one in ten pictures is a single false alarm, or none.
ENOUGH_PICTURES = 10


@dataclass(frozen=True, eq=False)
class Trained:
    """A detector, why its training ended, and how many false alarms it makes in the pictures that were kept apart."""

    detector: Detector
    ending: Ending
    n_pictures: int
    false_alarms: int


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
    """Train a detector from annotated pictures: COCO, YOLO, Pascal VOC, OpenCV's info.dat, CSV or a folder of crops.

    `negatives` are pictures without the object, or folders of them; the annotated pictures serve outside of their
    boxes as well. `class_name` chooses one of several classes. All further settings are those of
    `whet.training.recipe.Recipe`: window, mirror, stages, seed and so on. With a `checkpoint` file, a training that was
    stopped goes on. `tell` hears what happens (`whet.training.events`).

    >>> import tempfile
    >>> from PIL import Image
    >>> from whet.experiments.drawn_objects import draw_set
    >>> from whet.io.annotations.formats import write_annotations
    >>> folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    >>> for i in range(20):  # in earnest, photographs
    ...     noise = Image.fromarray(rng.integers(0, 256, (20, 30), dtype=np.uint8))
    ...     noise.resize((180, 120)).save(folder / f"{i}.png")
    >>> drawn = draw_set("van", sorted(folder.glob("*.png")), folder / "vans", sizes=(40, 80))
    >>> _ = write_annotations(drawn, folder / "vans.csv")
    >>> detector = train(folder / "vans.csv", stages=2, learners=10, most_features=300, n_negatives=300, threads=1)
    >>> detector
    Detector(36 x 16 windows, 2 stages, ... weak learners; learned since its base: 0 of the object, 0 of others; ...)
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
    """Train on what was prepared; then set operating points on the pictures that were kept apart."""
    recipe, positives = preparation.recipe, preparation.positives
    chosen = recipe if preparation.ridge is None else replace(recipe, ridge=preparation.ridge.ridge)
    plan = replace(chosen.plan, threads=threads)
    taught, ending = train_detector(
        preparation.families,
        positives.patches,
        preparation.pictures,
        plan,
        tell,
        checkpoint=checkpoint,
        origin=_origin(preparation, origin),
        groups=positives.groups,
        forbidden=preparation.forbidden,
    )
    frame = preparation.choice.frame
    detector = Detector(TaughtDetector(taught.base, reporting=Reporting(frame)))
    _, apart = split_pictures(preparation.pictures, plan.validation, plan.seed)
    return _with_points(detector, ending, preparation, apart, threads)


def _with_points(
    detector: Detector, ending: Ending, preparation: Preparation, apart: list[Path], threads: int | None
) -> Trained:
    """Count false alarms in pictures kept apart; objects there, which may have been trained on, are ignored."""
    done = [one for one in detect_many(detector, apart, threads=threads) if one.found is not None]
    none = np.empty((0, 4))
    boxes = [preparation.forbidden.get(one.path, none) for one in done]
    found = [(one.found.boxes, one.found.scores) for one in done if one.found is not None]
    curve = evaluate(found, [(each, np.ones(len(each), np.bool_)) for each in boxes]).curve
    for name, rate in POINTS.items():
        threshold = operating_point(curve, rate)
        if np.isfinite(threshold):
            detector.set_operating_point(name, threshold)
            if rate >= 1 or len(done) >= ENOUGH_PICTURES:
                detector.set_operating_point(DEFAULT_POINT, threshold)
    return Trained(detector, ending, len(done), int(curve.false_alarms[-1]))


def _origin(preparation: Preparation, origin: Provenance | None) -> Provenance:
    origin = Provenance() if origin is None else origin
    if origin.data:
        return origin
    source = preparation.recipe.annotations
    name = Path(source).name if ABSOLUTE_PATH.search(source) else source
    return replace(origin, data=f"{name}: {preparation.annotations.summary()}")
