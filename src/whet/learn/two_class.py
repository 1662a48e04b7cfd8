"""What classifiers of two classes have in common: inputs are checked, labels become yes or no."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import validate_data

from whet.learn.inputs import (
    check_known,
    check_labels,
    check_number_of_weak_learners,
    counted,
    two_classes,
    unchanged_on_error,
)


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
        check_number_of_weak_learners(self.n_weak)

    @abstractmethod
    def _train(self, X: NDArray[np.float64], is_positive: NDArray[np.bool_], weights: NDArray[np.int64]) -> None: ...

    @abstractmethod
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Margins (N,); positive is `classes_[1]`."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels (N,)."""
        margins = self.decision_function(X)
        return np.asarray(self.classes_[(margins > 0).astype(np.intp)])

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn's Tags changes from version to version
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
