"""From a training to a detector that can be saved and taught, with its provenance."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import whet
from whet.features.family import FeatureFamily
from whet.model.detector_base import DetectorBase
from whet.model.provenance import Fact, Provenance
from whet.model.taught_detector import TaughtDetector
from whet.training.cascade import Patches, train_cascade
from whet.training.ending import Ending
from whet.training.events import Event
from whet.training.forbidden import Forbidden
from whet.training.learners import GreedyLDA
from whet.training.plan import Plan


def train_detector(
    family: FeatureFamily | Sequence[FeatureFamily],
    positives: Patches,
    pictures: Sequence[Path],
    plan: Plan | None = None,
    tell: Callable[[Event], None] = lambda _: None,
    *,
    checkpoint: Path | None = None,
    origin: Provenance | None = None,
    groups: NDArray[np.intp] | None = None,
    forbidden: Forbidden | None = None,
) -> tuple[TaughtDetector, Ending]:
    """Train a cascade as `train_cascade` does, and make a detector of it that can be saved, run and taught.

    Its provenance is `origin` (data, licence, command, as the user knows them), completed with goals, counts and
    how training ended. Seconds are among its facts: they are all in which the files of two equal trainings differ.
    """
    plan = Plan() if plan is None else plan
    cascade, nodes, ending = train_cascade(
        family, positives, pictures, plan, tell, checkpoint=checkpoint, groups=groups, forbidden=forbidden
    )
    n_features = sum(map(len, family)) if isinstance(family, Sequence) else len(family)
    provenance = training_provenance(
        plan, ending, n_positives=len(positives), n_pictures=len(pictures), n_features=n_features, origin=origin
    )
    mean = np.rint(positives.mean(axis=0)).astype(np.uint8)
    base = DetectorBase(cascade.window, tuple(node.base() for node in nodes), cascade.min_sigma, provenance, mean)
    return TaughtDetector(base), ending


def training_provenance(
    plan: Plan,
    ending: Ending,
    *,
    n_positives: int,
    n_pictures: int,
    n_features: int,
    origin: Provenance | None = None,
) -> Provenance:
    """What a detector's header says of its training; what `origin` says already stays.

    Rates are those of the ending: false positives in held-out pictures, detections on validation positives.
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
        "pictures": n_pictures,
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
