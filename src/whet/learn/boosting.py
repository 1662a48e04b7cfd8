"""AdaBoost and AsymBoost on decision stumps: the detectors' baselines."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from whet.features.stumps import SortedFeatures, Stumps
from whet.learn.boosting_weights import SMALLEST_ERROR, balanced, reweighted
from whet.learn.two_class import TwoClassClassifier


class BoostedVote(TwoClassClassifier):
    """What boosted classifiers have in common: a weighted vote of weak learners of one feature each."""

    @abstractmethod
    def _ballots(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weighted votes (N, T), positive for `classes_[1]`."""

    def staged_decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Margins (N, T) of the votes of the first 1, 2, ... T weak learners."""
        check_is_fitted(self)
        samples = validate_data(self, X, dtype=np.float64, reset=False)
        return np.cumsum(self._ballots(samples), axis=1)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Margins (N,) of the vote; positive is `classes_[1]`."""
        return np.asarray(self.staged_decision_function(X)[:, -1])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
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
    >>> from whet import AdaBoost
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> AdaBoost(n_weak=3).fit(X, ["no", "no", "yes", "yes"]).predict([[0.2], [2.2]])
    array(['no', 'yes'], dtype='<U3')
    """

    def __init__(self, n_weak: int = 50) -> None:
        self.n_weak = n_weak

    def _tilt(self, is_positive: NDArray[np.bool_]) -> NDArray[np.float64]:
        """What each sample's weight is multiplied by before every round."""
        return np.ones(len(is_positive))

    def _train(self, X: NDArray[np.float64], is_positive: NDArray[np.bool_], weights: NDArray[np.int64]) -> None:
        features = SortedFeatures.of(X)
        tilt = self._tilt(is_positive)
        D = balanced(is_positive, weights)
        rows: list[tuple[int, float, int]] = []
        votes: list[float] = []
        for _ in range(self.n_weak):
            D = D * tilt
            D /= D.sum()
            stumps, errors = features.best_stumps(is_positive, D)
            best = int(np.flatnonzero(errors <= errors.min() + 1e-12)[0])  # the first of equals, up to rounding
            stump = stumps.take(np.array([best]))
            right = stump.respond(X)[:, 0] == is_positive
            error = max(float(D[~right].sum()), SMALLEST_ERROR)
            rows.append((best, float(stump.threshold[0]), int(stump.polarity[0])))
            votes.append(np.log((1 - error) / error))
            if error == SMALLEST_ERROR or error >= 0.5:
                break
            D = reweighted(D, right, error)
        feature, threshold, polarity = zip(*rows, strict=True)
        self.weak_learners_ = Stumps(
            np.array(feature, dtype=np.intp), np.array(threshold), np.array(polarity, dtype=np.int8)
        )
        self.coef_ = np.array(votes)

    @property
    def selected_features_(self) -> NDArray[np.intp]:
        """The feature behind each stump (T,)."""
        check_is_fitted(self)
        return self.weak_learners_.feature

    def _ballots(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        # A vote for or against with half its weight is Viola and Jones's threshold at half the sum of votes.
        return np.asarray((self.weak_learners_.respond(X) - 0.5) * self.coef_)


class AsymBoost(AdaBoost):
    """Asymmetric AdaBoost of Viola and Jones (2002): a missed positive costs `asymmetry` times a false alarm.

    The cost is spread over the rounds: before each, positives are weighed up by asymmetry^(1/2T) and negatives
    down by as much. Put in at the start, the first stump would absorb all of it.

    Parameters
    ----------
    n_weak
        Number of rounds T.
    asymmetry
        Cost of a false negative in units of a false positive.

    Examples
    --------
    >>> from whet import AsymBoost
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

    def _tilt(self, is_positive: NDArray[np.bool_]) -> NDArray[np.float64]:
        up = self.asymmetry ** (0.5 / self.n_weak)
        return np.asarray(np.where(is_positive, up, 1 / up))
