"""Greedy sparse LDA as a scikit-learn classifier: trained once, on all data [ALG:GSLDA].

`TwoClassClassifier` is what all estimators share: validation of inputs and labels of two classes.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from whet.arrays import Bools, Floats, Indices, Int64s
from whet.errors import SampleWeightError
from whet.lda import thresholds
from whet.lda.discriminant import DEFAULT_RIDGE, Criterion, OnlineDiscriminant, check_combination, probability
from whet.lda.selection import Scatter, Search, select
from whet.lda.statistics import MOST_SAMPLES, BinaryStatistics, CentredStatistics
from whet.models.gslda.weak_learners import Stumps
from whet.models.gslda.weak_training import train_stumps


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


Threshold = Literal["bayes", "asymmetric", "fisher", "detection_rate", "negative_mean"]
StumpError = Literal["balanced", "plain"]


@dataclass(frozen=True, eq=False)
class Identity:
    """Weak learners that pass a feature's value on as it is.

    >>> Identity(np.array([1])).transform(np.array([[5.0, 7.0]]))
    array([[7.]])
    """

    feature: Indices

    def __len__(self) -> int:
        return len(self.feature)

    def transform(self, X: Floats) -> Floats:
        """Values (samples, selected features)."""
        return np.ascontiguousarray(X[..., self.feature], dtype=np.float64)

    def take(self, indices: Indices) -> Identity:
        """The learners at these indices, in this order."""
        return Identity(self.feature[indices])

    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays that decide the responses, for hashing."""
        return (self.feature,)


class GSLDA(TwoClassClassifier):
    """Greedy sparse linear discriminant analysis over weak learners, for two classes.

    Trains one weak learner a feature, adds greedily those that together separate the classes best, and weighs
    them by Fisher's criterion. The second of the sorted classes is the positive one.

    Parameters
    ----------
    n_weak
        Number of weak learners to select; clipped, with a warning, to the number of features.
    weak
        "stump" (one threshold a feature, responses in {0, 1}) or "identity" (the value itself; scale the
        features to about unit variance, or choose `ridge` for their units).
    criterion
        "fda" [FDA], or "lac" [LAC], which uses the scatter of the positives only.
    threshold
        "bayes" (least error), "asymmetric" (the paper's node goal), "fisher" (with priors; not with "lac"),
        "detection_rate" or "negative_mean".
    miss_rate
        The share of positives that "asymmetric" and "detection_rate" may lose.
    ridge
        Added to the diagonal of the scatter matrix, in units of scatter; the paper's figures have 1e-6.
    search
        "forward", or "forward-backward" (slower, separates the training set at least as well).
    stump_error
        What a stump's threshold minimises: "balanced", in which both classes weigh the same, for classes of any sizes;
        or "plain", the share of samples, as in the paper. Ten to one, plain stumps answer no to nearly everything.

    Attributes
    ----------
    classes_, n_features_in_
        As everywhere in scikit-learn.
    selected_features_
        (T,) the feature behind each weak learner, in the order of selection.
    coef_, intercept_
        (T,) weights of the weak responses, and minus the threshold of their sum.
    weak_learners_
        The selected weak learners.

    Notes
    -----
    Of the paper's offline algorithm nothing was left out; the cost is O(M T^2) where it has O(M T^3).

    Examples
    --------
    >>> from whet.estimators import GSLDA
    >>> X = np.array([[0.0, 5.0], [1.0, 3.0], [2.0, 4.0], [3.0, 4.0]])
    >>> model = GSLDA(n_weak=1).fit(X, [0, 0, 1, 1])
    >>> model.selected_features_, model.predict([[0.5, 9.0], [2.5, 0.0]])
    (array([0]), array([0, 1]))
    """

    def __init__(
        self,
        n_weak: int = 50,
        *,
        weak: Literal["stump", "identity"] = "stump",
        criterion: Criterion = "fda",
        threshold: Threshold = "bayes",
        miss_rate: float = 0.01,
        ridge: float = DEFAULT_RIDGE,
        search: Search = "forward",
        stump_error: StumpError = "balanced",
    ) -> None:
        self.n_weak = n_weak
        self.weak = weak
        self.criterion = criterion
        self.threshold = threshold
        self.miss_rate = miss_rate
        self.ridge = ridge
        self.search = search
        self.stump_error = stump_error

    def _check_parameters(self) -> None:
        super()._check_parameters()
        choices = {
            "weak": ("stump", "identity"),
            "criterion": ("fda", "lac"),
            "search": ("forward", "forward-backward"),
            "stump_error": ("balanced", "plain"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                listed = ", ".join(map(repr, known))
                raise ValueError(f"{name}={getattr(self, name)!r} is not known; choose one of: {listed}")
        if not 0 < self.miss_rate < 1:
            raise ValueError(f"miss_rate={self.miss_rate!r} must lie between 0 and 1, both excluded")
        if not 0 < self.ridge < np.inf:
            raise ValueError(f"ridge={self.ridge!r} must be a finite number above 0 (1e-6 is all but none)")
        check_combination(self.criterion, thresholds.rule(self.threshold, self.miss_rate))

    def _train(self, X: Floats, is_positive: Bools, weights: Int64s) -> None:
        n_features = X.shape[1]
        if self.n_weak > n_features:
            warnings.warn(
                f"n_weak={self.n_weak} is more than the {n_features} features; using {n_features}", stacklevel=3
            )
        candidates: Stumps | Identity = (
            train_stumps(X, is_positive, weights, balanced=self.stump_error == "balanced")
            if self.weak == "stump"
            else Identity(np.arange(n_features))
        )
        responses = candidates.transform(X)
        scatter = Scatter.from_responses(responses, is_positive, weights, self.criterion, self.ridge)
        chosen = self._select(scatter)
        # Statistics are kept of a reserve too: the selected ones first, then the next best.
        order = _with_reserve(scatter, chosen, self._reserve_size())
        self._candidate = order
        self._pool = candidates.take(order)
        kind = BinaryStatistics if isinstance(candidates, Stumps) else CentredStatistics
        kept = responses[:, order]
        self._discriminant = OnlineDiscriminant(
            kind.from_samples(kept[is_positive], weights[is_positive]),
            kind.from_samples(kept[~is_positive], weights[~is_positive]),
            len(chosen),
            rule=thresholds.rule(self.threshold, self.miss_rate),
            criterion=self.criterion,
            ridge=self.ridge,
        )

    def _reserve_size(self) -> int:
        """How many weak learners to keep statistics of; at least those that are selected."""
        return 0

    def _select(self, scatter: Scatter) -> Indices:
        """Selected candidates; the first one if none separates the classes (its weight will be 0)."""
        chosen = select(scatter, self.n_weak, self.search)
        return chosen if len(chosen) else np.zeros(1, dtype=np.intp)

    @property
    def weak_learners_(self) -> Stumps | Identity:
        """The selected weak learners, in the order of selection."""
        check_is_fitted(self, "_discriminant")
        return self._pool.take(np.arange(self._discriminant.size))

    @property
    def selected_features_(self) -> Indices:
        """The feature behind each selected weak learner (T,)."""
        return self.weak_learners_.feature

    @property
    def coef_(self) -> Floats:
        """Weight of each selected weak learner (T,)."""
        return self._fitted.coef

    @property
    def intercept_(self) -> float:
        """Minus the threshold that the weighted sum of responses has to exceed."""
        return -self._fitted.threshold

    @property
    def _fitted(self) -> OnlineDiscriminant:
        # check_is_fitted takes 10 microseconds, as long as a third of an update.
        if "_discriminant" not in self.__dict__:
            check_is_fitted(self, "_discriminant")
        return self._discriminant

    def decision_function(self, X: ArrayLike) -> Floats:
        """Margins (N,): weighted sum of the weak responses above the threshold; positive is `classes_[1]`."""
        check_is_fitted(self)
        samples = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.weak_learners_.transform(samples) @ self.coef_ + self.intercept_)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Posteriors (N, 2) of the two projected Gaussians, monotone in the margin and 0.5 at the threshold."""
        margins = self.decision_function(X)
        threshold = self._discriminant.threshold
        p = probability(margins + threshold, self._discriminant.projection, threshold)
        return np.column_stack([1 - p, p])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_discriminant")


def _with_reserve(scatter: Scatter, chosen: Indices, n_reserve: int) -> Indices:
    """`chosen`, filled up to `n_reserve` candidates with those that forward search adds, then by index."""
    if n_reserve <= len(chosen):
        return chosen
    every = np.arange(len(scatter.gap))
    ranked = np.concatenate([select(scatter, n_reserve) if n_reserve < len(every) else every[:0], every])
    rest = list(dict.fromkeys(ranked[~np.isin(ranked, chosen)].tolist()))
    return np.concatenate([chosen, np.sort(rest[: n_reserve - len(chosen)])]).astype(np.intp)
