"""What a training is of: plan, features, positives and pictures, so that none goes on from another's checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.features.family import FeatureFamily
from whet.training.forbidden import Forbidden
from whet.training.learners import GreedyLDA
from whet.training.plan import Plan
from whet.training.training_data import TrainingData

# These decide how far training goes and how fast; stages that are trained stay what they are. Not so the memory: where
# it is short, features are drawn.
MAY_CHANGE = {"n_stages", "false_positive_rate", "threads"}


def fingerprint(families: Sequence[FeatureFamily], data: TrainingData, plan: Plan) -> dict[str, str]:
    """A text for each part that must not change while a cascade is trained."""
    return {
        **{f"plan.{name}": text for name, text in _plan_fields(plan).items()},
        "features": "; ".join(f"{len(one)} of {type(one).__name__}, {_digest(_parts(one))}" for one in families),
        "positives": _patches(data.positives, data.check),
        "pictures": _pictures([*data.pictures, *data.check_pictures], data.forbidden),
    }


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Each part in which two fingerprints differ, with both sides.

    >>> differences({"plan.seed": "1"}, {"plan.seed": "0"})
    ['plan.seed is 1, the checkpoint has 0']
    """
    names = [*ours, *(name for name in theirs if name not in ours)]
    return [
        f"{name} is {ours.get(name, 'not set')}, the checkpoint has {theirs.get(name, 'none')}"
        for name in names
        if ours.get(name) != theirs.get(name)
    ]


def _plan_fields(plan: Plan) -> dict[str, str]:
    values = {each.name: getattr(plan, each.name) for each in fields(plan) if each.name not in MAY_CHANGE}
    n_weak, learner = plan.n_weak, plan.learner or GreedyLDA()
    values["n_weak"] = n_weak if isinstance(n_weak, int) else tuple(n_weak)
    # The text of any other object would have its address in it.
    values["learner"] = learner if is_dataclass(learner) else type(learner).__qualname__
    return {name: str(value) for name, value in values.items()}


def _parts(family: FeatureFamily) -> list[Any]:
    # The fields alone: a cache among the attributes would come and go.
    names = [each.name for each in fields(family)] if is_dataclass(family) else sorted(vars(family))
    return [type(family).__name__, *(getattr(family, name) for name in names)]


def _patches(*sides: NDArray[np.uint8]) -> str:
    return f"{sum(map(len, sides))} patches, {_digest(list(sides))}"


def _pictures(paths: Sequence[Path], forbidden: Forbidden) -> str:
    """By name and size of the files, in their order: a folder may move, and contents would take minutes to read."""
    files = [(path.name, path.stat().st_size) for path in paths]
    boxes = [part for i, path in enumerate(paths) if len(forbidden.get(path, ())) for part in (i, forbidden[path])]
    return f"{len(files)} files, {_digest([*files, *boxes])}"


def _digest(parts: list[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()[:16]
