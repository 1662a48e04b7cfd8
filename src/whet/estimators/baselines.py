"""Baselines: AdaBoost, AsymBoost and online boosting."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from whet._kernels.weak_fitting import boost_one, log_ratios
from whet.arrays import Bools, Floats, Indices, Int64s
from whet.estimators.gslda import OnlineClassifier, TwoClassClassifier, check_known
from whet.models.gslda.weak_learners import Stumps
from whet.models.gslda.weak_training import SMALLEST_ERROR, SortedFeatures, balanced, reweighted

# From which samples are positive and their weights, a stump on every feature with its error.
StumpTrainer = Callable[[Bools, Floats], Stumps]

__all__ = ["AdaBoost", "AsymBoost", "OnlineBoosting"]


class BoostedVote(TwoClassClassifier):
    """What boosted classifiers have in common: a weighted vote of weak learners of one feature each."""

    @abstractmethod
    def _ballots(self, X: Floats) -> Floats:
        """Weighted votes (N, T), positive for `classes_[1]`."""

    def staged_decision_function(self, X: ArrayLike) -> Floats:
        """Margins (N, T) of the votes of the first 1, 2, ... T weak learners."""
        check_is_fitted(self)
        samples = validate_data(self, X, dtype=np.float64, reset=False)
        return np.cumsum(self._ballots(samples), axis=1)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Margins (N,) of the vote; positive is `classes_[1]`."""
        return np.asarray(self.staged_decision_function(X)[:, -1])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Posteriors (N, 2) that boosting's exponential loss implies: the margin is half the log odds."""
        from scipy.special import expit

        p = expit(2 * self.decision_function(X))
        return np.column_stack([1 - p, p])


class AdaBoost(BoostedVote):
    """AdaBoost of Viola and Jones (2004): in each round, the stump of least weighted error.

    Both classes start with the same total weight. After a round with error e, samples that were right are
    weighed down by e / (1 - e), and the stump votes with log((1 - e) / e).

    Parameters
    ----------
    n_weak
        Number of rounds; boosting stops early at a stump without error.

    Attributes
    ----------
    classes_, n_features_in_
        As everywhere in scikit-learn.
    weak_learners_
        The stumps, in the order of selection; `selected_features_` (T,) are their features.
    coef_
        (T,) the votes; a stump casts its vote for or against.

    Examples
    --------
    >>> from whet.estimators.baselines import AdaBoost
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> AdaBoost(n_weak=3).fit(X, ["no", "no", "yes", "yes"]).predict([[0.2], [2.2]])
    array(['no', 'yes'], dtype='<U3')
    """

    def __init__(self, n_weak: int = 50) -> None:
        self.n_weak = n_weak

    def _tilt(self, is_positive: Bools) -> Floats:
        """What each sample's weight is multiplied by before every round."""
        return np.ones(len(is_positive))

    def _stump_trainer(self, X: Floats) -> StumpTrainer:
        """What trains a stump on every feature in each round."""
        return SortedFeatures.from_values(X).best_stumps

    def _train(self, X: Floats, is_positive: Bools, weights: Int64s) -> None:
        best_stumps = self._stump_trainer(X)
        tilt = self._tilt(is_positive)
        D = balanced(is_positive, weights)
        rows: list[tuple[int, float, int, float]] = []
        votes: list[float] = []
        for _ in range(self.n_weak):
            D = D * tilt
            D /= D.sum()
            stumps = best_stumps(is_positive, D)
            # The first of equals, up to rounding.
            best = int(np.flatnonzero(stumps.error <= stumps.error.min() + 1e-12)[0])
            stump = stumps.take(np.array([best]))
            right = stump.transform(X)[:, 0] == is_positive
            error = max(float(D[~right].sum()), SMALLEST_ERROR)
            rows.append((best, float(stump.threshold[0]), int(stump.polarity[0]), error))
            votes.append(np.log((1 - error) / error))
            if error == SMALLEST_ERROR or error >= 0.5:
                break
            D = reweighted(D, right, error)
        feature, threshold, polarity, errors = zip(*rows, strict=True)
        self.weak_learners_ = Stumps(
            np.array(feature, dtype=np.intp), np.array(threshold), np.array(polarity, dtype=np.int8), np.array(errors)
        )
        self.coef_ = np.array(votes)

    @property
    def selected_features_(self) -> Indices:
        """The feature behind each stump (T,)."""
        check_is_fitted(self)
        return self.weak_learners_.feature

    def _ballots(self, X: Floats) -> Floats:
        # A vote for or against with half its weight is Viola and Jones's threshold at half the sum of votes.
        return np.asarray((self.weak_learners_.transform(X) - 0.5) * self.coef_)


class AsymBoost(AdaBoost):
    """Asymmetric AdaBoost of Viola and Jones (2002): a missed positive costs `asymmetry` times a false positive.

    The cost is divided over the rounds: before each, positives are weighed up by asymmetry^(1/2T) and negatives
    down by as much. Put in at the start, the first stump would absorb all of it.

    Parameters
    ----------
    n_weak
        Number of rounds T.
    asymmetry
        Cost of a false negative in units of a false positive.

    Examples
    --------
    >>> from whet.estimators.baselines import AsymBoost
    >>> X, y = np.array([[0.0], [1.0], [1.0], [1.0], [2.0]]), [0, 0, 0, 1, 1]
    >>> int(AsymBoost(n_weak=1, asymmetry=9.0).fit(X, y).predict([[1.0]])[0])
    1
    """

    def __init__(self, n_weak: int = 50, *, asymmetry: float = 4.0) -> None:
        super().__init__(n_weak)
        self.asymmetry = asymmetry

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not 0 < self.asymmetry < np.inf:
            raise ValueError(f"asymmetry={self.asymmetry!r} must be a finite number above 0")

    def _tilt(self, is_positive: Bools) -> Floats:
        up = self.asymmetry ** (0.5 / self.n_weak)
        return np.asarray(np.where(is_positive, up, 1 / up))


class OnlineBoosting(OnlineClassifier, BoostedVote):
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
    >>> from whet.estimators.baselines import OnlineBoosting
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    >>> model = OnlineBoosting(n_weak=1).fit(X, y)
    >>> model.predict([[1.4], [1.6]])
    array([0, 1])
    >>> model.partial_fit([[2.5], [2.4], [2.6]], [0, 0, 0]).predict([[1.6]])
    array([0])
    """

    def __init__(self, n_weak: int = 50) -> None:
        self.n_weak = n_weak

    def _train(self, X: Floats, is_positive: Bools, weights: Int64s) -> None:
        total = weights.sum()
        # A variance no smaller than this share of the feature's own: a constant pixel must not divide by zero.
        smallest = np.maximum(1e-6 * X.var(axis=0), 1e-12)
        D = balanced(is_positive, weights)
        learners = []
        for _ in range(self.n_weak):
            models = self._weak_models(X, is_positive, D)
            right = self._says_yes(X, models, smallest) == is_positive[:, None]
            errors = D @ ~right
            best = int(np.argmin(errors))
            error = float(np.clip(errors[best], SMALLEST_ERROR, 1 - SMALLEST_ERROR))
            learners.append((best, error, *(model[best] for model in models)))
            D = np.where(right[:, best], D / (2 * (1 - error)), D / (2 * error))
            D /= D.sum()
        features, errors, *chosen = (np.array(column) for column in zip(*learners, strict=True))
        self.selected_features_ = features
        self._models = self._scaled(chosen, float(total))
        self._smallest = smallest[features]
        self._right, self._wrong = (1 - errors) * total, errors * total

    def _weak_models(self, X: Floats, is_positive: Bools, D: Floats) -> tuple[Floats, ...]:
        """Weighted count, mean and scatter of every feature in each class, (features, 2) each; 1 is positive."""
        n = np.empty((X.shape[1], 2))
        m, S = np.empty_like(n), np.empty_like(n)
        for c, rows in enumerate((~is_positive, is_positive)):
            weights = D[rows]
            n[:, c] = weights.sum()
            m[:, c] = weights @ X[rows] / weights.sum()
            S[:, c] = weights @ (X[rows] - m[:, c]) ** 2
        return n, m, S

    def _scaled(self, models: list[Floats], total: float) -> tuple[Floats, ...]:
        """Models of weights that sum to 1 as those of weights that sum to `total`."""
        n, m, S = models
        return n * total, m, S * total

    def _says_yes(self, X: Floats, models: tuple[Floats, ...], smallest: Floats) -> Bools:
        """Answers (N, T) of the weak learners to the values (N, T) of their features."""
        n, m, S = models
        return np.asarray(log_ratios(X, n, m, S, smallest) > 0)

    def _learn(self, X: Floats, is_positive: Bools, weights: Int64s) -> None:
        values = np.ascontiguousarray(X[:, self.selected_features_])
        for x, label, weight in zip(values, is_positive.astype(np.int64), weights.astype(float), strict=True):
            self._update(x, int(label), float(weight))

    def update(self, x: Floats, label: object) -> None:
        """Learn one sample x (features,) after `fit`; for hot loops, its values are not checked."""
        check_is_fitted(self)
        (is_positive,) = check_known(np.array([label]), self.classes_)
        self._update(x[self.selected_features_], int(is_positive), 1.0)

    def _update(self, x: Floats, label: int, weight: float) -> None:
        n, m, S = self._models
        boost_one(x, label, weight, n, m, S, self._right, self._wrong, self._smallest)

    @property
    def coef_(self) -> Floats:
        """Vote of each weak learner (T,): log((1 - e) / e) of its weighted error so far."""
        check_is_fitted(self)
        error = self._wrong / (self._right + self._wrong)
        error = np.clip(error, SMALLEST_ERROR, 1 - SMALLEST_ERROR)
        return np.asarray(np.log((1 - error) / error))

    def _ballots(self, X: Floats) -> Floats:
        values = np.ascontiguousarray(X[:, self.selected_features_])
        return np.asarray((self._says_yes(values, self._models, self._smallest) - 0.5) * self.coef_)
