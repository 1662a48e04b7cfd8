"""Online boosting of univariate normals: what the paper compares online GSLDA against."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from whet.kernels.oza_russell import boost_one, log_ratios
from whet.learn.boosting import BoostedVote
from whet.learn.boosting_weights import SMALLEST_ERROR, balanced
from whet.learn.inputs import check_known, check_labels, counted

Floats = NDArray[np.float64]


class OnlineBoosting(BoostedVote):
    """Online boosting of Oza and Russell (2001), on weak learners that are two normals on one feature.

    `fit` boosts a first batch: in each round, the feature whose two weighted normals err least. After that the
    features stay; every further sample passes the weak learners in turn, updates the weighted mean and variance
    of each, and goes on heavier where it was got wrong. The weight itself enters the statistics, as the paper
    describes, rather than a Poisson draw of that mean: no randomness.

    Parameters
    ----------
    n_weak
        Number of weak learners.

    Attributes
    ----------
    classes_, n_features_in_
        As everywhere in scikit-learn.
    selected_features_
        (T,) the feature of each weak learner.

    Examples
    --------
    >>> from whet import OnlineBoosting
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    >>> model = OnlineBoosting(n_weak=1).fit(X, y)
    >>> model.predict([[1.4], [1.6]])
    array([0, 1])
    >>> model.partial_fit([[2.5], [2.4], [2.6]], [0, 0, 0]).predict([[1.6]])
    array([0])
    """

    def __init__(self, n_weak: int = 50) -> None:
        self.n_weak = n_weak

    def _train(self, X: Floats, is_positive: NDArray[np.bool_], weights: NDArray[np.int64]) -> None:
        total = weights.sum()
        # A variance no smaller than this share of the feature's own: a constant pixel must not divide by zero.
        smallest = np.maximum(1e-6 * X.var(axis=0), 1e-12)
        D = balanced(is_positive, weights)
        learners = []
        for _ in range(self.n_weak):
            n, m, S = _weighted_normals(X, is_positive, D)
            right = (log_ratios(X, n, m, S, smallest) > 0) == is_positive[:, None]
            errors = D @ ~right
            best = int(np.argmin(errors))
            error = float(np.clip(errors[best], SMALLEST_ERROR, 1 - SMALLEST_ERROR))
            learners.append((best, n[best] * total, m[best], S[best] * total, error))
            D = np.where(right[:, best], D / (2 * (1 - error)), D / (2 * error))
            D /= D.sum()
        features, n, m, S, errors = (np.array(column) for column in zip(*learners, strict=True))
        self.selected_features_ = features
        self._n, self._m, self._S = n, m, S
        self._smallest = smallest[features]
        self._right, self._wrong = (1 - errors) * total, errors * total

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,  # noqa: ARG002 - scikit-learn's signature; the first batch has both
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn the rows of X (N, features) one after the other; the first call has to have both classes."""
        if not hasattr(self, "selected_features_"):
            return self.fit(X, y, sample_weight)
        samples, labels = validate_data(self, X, y, dtype=np.float64, reset=False)
        samples, labels, weights = counted(samples, check_labels(labels), sample_weight)
        is_positive = check_known(labels, self.classes_)
        values = np.ascontiguousarray(samples[:, self.selected_features_])
        for x, label, weight in zip(values, is_positive.astype(np.int64), weights.astype(float), strict=True):
            self._show(x, int(label), float(weight))
        return self

    def update(self, x: Floats, label: object) -> None:
        """Learn one sample x (features,) after `fit`; for hot loops, its values are not checked."""
        check_is_fitted(self)
        (is_positive,) = check_known(np.array([label]), self.classes_)
        self._show(x[self.selected_features_], int(is_positive), 1.0)

    def _show(self, x: Floats, label: int, weight: float) -> None:
        boost_one(x, label, weight, self._n, self._m, self._S, self._right, self._wrong, self._smallest)

    @property
    def coef_(self) -> Floats:
        """Vote of each weak learner (T,): log((1 - e) / e) of its weighted error so far."""
        check_is_fitted(self)
        error = self._wrong / (self._right + self._wrong)
        error = np.clip(error, SMALLEST_ERROR, 1 - SMALLEST_ERROR)
        return np.asarray(np.log((1 - error) / error))

    def _ballots(self, X: Floats) -> Floats:
        values = np.ascontiguousarray(X[:, self.selected_features_])
        says_yes = log_ratios(values, self._n, self._m, self._S, self._smallest) > 0
        return np.asarray((says_yes - 0.5) * self.coef_)


def _weighted_normals(X: Floats, is_positive: NDArray[np.bool_], D: Floats) -> tuple[Floats, Floats, Floats]:
    """Weighted count, mean and scatter of every feature in each class, (features, 2) each; 1 is positive."""
    n = np.empty((X.shape[1], 2))
    m, S = np.empty_like(n), np.empty_like(n)
    for c, rows in enumerate((~is_positive, is_positive)):
        weights = D[rows]
        n[:, c] = weights.sum()
        m[:, c] = weights @ X[rows] / weights.sum()
        S[:, c] = weights @ (X[rows] - m[:, c]) ** 2
    return n, m, S
