"""The boundary of the estimators: inputs are checked here, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight


def whole_weights(sample_weight: ArrayLike | None, X: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sample weights as whole numbers: how many times each sample counts.

    >>> whole_weights([2.0, 1.0], np.zeros((2, 1)))
    array([2, 1])
    """
    if sample_weight is None:
        return np.ones(len(X), dtype=np.int64)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not (weights == np.round(weights)).all():
        worst = weights[weights != np.round(weights)][0]
        raise ValueError(
            f"sample_weight has {worst:g}; only whole numbers keep the statistics exact: scale and round them"
        )
    return np.asarray(weights.astype(np.int64))


def check_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Refuse targets that are not class labels."""
    check_classification_targets(y)
    if type_of_target(y).startswith("multilabel"):
        raise ValueError("Multilabel targets are not supported: give one label a sample")
    return y


def two_classes(labels: NDArray[Any]) -> NDArray[Any]:
    """The sorted classes; the second is the positive one. Raises unless there are two."""
    classes = np.unique(labels)
    if len(classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass: "
            f"got {len(classes)} classes ({', '.join(map(str, classes[:5]))} ...)"
        )
    if len(classes) < 2:
        raise ValueError(f"needs samples of two classes; got 1 class only: {classes[0]!r}")
    return classes


def check_known(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.bool_]:
    """Which labels are the positive class; raises on any that is neither."""
    unknown = ~np.isin(y, classes)
    if unknown.any():
        raise ValueError(f"label {y[unknown].tolist()[0]!r} is not one of the two classes {classes.tolist()}")
    return np.asarray(y == classes[1])


def check_choices(chosen: Mapping[str, tuple[object, tuple[object, ...]]]) -> None:
    """Raise on the first parameter whose value is not one of its choices: {name: (value, choices)}."""
    for name, (value, choices) in chosen.items():
        if value not in choices:
            raise ValueError(f"{name}={value!r} is not known; choose one of: {', '.join(map(repr, choices))}")
