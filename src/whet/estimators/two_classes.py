"""What all estimators share: validation of inputs and labels of two classes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, validate_data

from whet.arrays import Bools, Floats, Int64s
from whet.errors import SampleWeightError
from whet.lda.statistics import MOST_SAMPLES


def whole_weights(sample_weight: ArrayLike | None, X: Floats) -> Int64s:
    """Sample weights as whole numbers: how many times each sample counts.

    >>> whole_weights([2.0, 1.0], np.zeros((2, 1)))
    array([2, 1])
    """
    if sample_weight is None:
        return np.ones(len(X), dtype=np.int64)
    try:
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise SampleWeightError(
            f"{str(error).rstrip('.!')}; expected a whole number of at least 0 for each sample"
        ) from error
    if not (weights == np.round(weights)).all():
        raise _not_whole("sample_weight has", weights[weights != np.round(weights)][0])
    check_count(weights.sum())
    return np.asarray(weights.astype(np.int64))


def whole_weight(weight: object, n: float) -> int:
    """One sample's weight as a whole number, for a class that has counted n samples before.

    >>> whole_weight(np.float64(2.0), 10)
    2
    """
    if isinstance(weight, Real) and not isinstance(weight, Integral) and float(weight).is_integer():
        weight = int(float(weight))
    if not isinstance(weight, Integral):
        raise _not_whole("got weight", weight)
    k = int(weight)
    if k < 0:
        raise SampleWeightError(f"got weight {k}; expected a whole number of at least 0: use unlearn to remove samples")
    check_count(n + k)
    return k


def check_count(n: float) -> None:
    """Raise SampleWeightError if n samples are too many to count exactly."""
    if not n < MOST_SAMPLES:
        raise SampleWeightError("the weights sum to 2^52 or more; counts stay exact below that: use smaller weights")


def _not_whole(what: str, weight: object) -> SampleWeightError:
    return SampleWeightError(
        f"{what} {weight}; only whole numbers keep the statistics exact: scale and round the weights"
    )


def counted(X: Floats, y: NDArray[Any], sample_weight: ArrayLike | None) -> tuple[Floats, NDArray[Any], Int64s]:
    """Samples, labels and whole weights without the samples that count zero times: those are not there at all."""
    weights = whole_weights(sample_weight, X)
    there = weights > 0
    return (X, y, weights) if there.all() else (X[there], y[there], weights[there])


@contextmanager
def unchanged_on_error(estimator: object) -> Iterator[None]:
    """Give an estimator its attributes back when the block raises."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def check_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Refuse targets that are not class labels."""
    check_classification_targets(y)
    if type_of_target(y).startswith("multilabel"):
        raise ValueError("Multilabel targets are not supported: give one label a sample")
    return y


def two_classes(labels: NDArray[Any]) -> NDArray[Any]:
    """The sorted classes; the second is the positive one. Raises unless there are two."""
    classes = np.unique(labels)
    if not len(classes):
        raise ValueError("all sample weights are zero: nothing to learn from")
    if len(classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass: "
            f"got {len(classes)} classes ({', '.join(map(str, classes[:5]))} ...)"
        )
    if len(classes) < 2:
        raise ValueError(f"needs samples of two classes; got 1 class only: {classes[0]!r}")
    return classes


def check_known(y: NDArray[Any], classes: NDArray[Any]) -> Bools:
    """Which labels are the positive class; raises on any that is neither."""
    unknown = ~np.isin(y, classes)
    if unknown.any():
        raise ValueError(f"label {y[unknown].tolist()[0]!r} is not one of the two classes {classes.tolist()}")
    return np.asarray(y == classes[1])


class TwoClassClassifier(ClassifierMixin, BaseEstimator):
    """A classifier by the sign of a margin; the second of the sorted classes is the positive one."""

    n_weak: int

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train from scratch on X (N, features) with labels y (N,), each sample counted `sample_weight` times."""
        with unchanged_on_error(self):
            self._check_parameters()
            samples, labels = validate_data(self, X, y, dtype=np.float64)
            samples, labels, weights = counted(samples, check_labels(labels), sample_weight)
            self.classes_ = two_classes(labels)
            self._train(samples, check_known(labels, self.classes_), weights)
        return self

    def _check_parameters(self) -> None:
        if not isinstance(self.n_weak, Integral) or self.n_weak < 1:
            raise ValueError(f"n_weak={self.n_weak!r}; it has to be a whole number of at least 1")

    @abstractmethod
    def _train(self, X: Floats, is_positive: Bools, weights: Int64s) -> None: ...

    @abstractmethod
    def decision_function(self, X: ArrayLike) -> Floats:
        """Margins (N,); positive is `classes_[1]`."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels (N,)."""
        margins = self.decision_function(X)
        return np.asarray(self.classes_[(margins > 0).astype(np.intp)])

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn's Tags changes from version to version
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class OnlineClassifier(TwoClassClassifier):
    """A classifier that goes on learning, sample by sample, from where `fit` left it."""

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,  # noqa: ARG002 - scikit-learn's signature; the first batch has both
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn the rows of X (N, features) one after the other; the first call has to have both classes."""
        if not hasattr(self, "classes_"):
            return self.fit(X, y, sample_weight)
        samples, labels = validate_data(self, X, y, dtype=np.float64, reset=False)
        samples, labels, weights = counted(samples, check_labels(labels), sample_weight)
        self._learn(samples, check_known(labels, self.classes_), weights)
        return self

    @abstractmethod
    def _learn(self, X: Floats, is_positive: Bools, weights: Int64s) -> None:
        """Learn samples (N, features) in their order, each `weights` times at once."""
