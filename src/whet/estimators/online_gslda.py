"""Greedy sparse LDA that learns online, as a scikit-learn classifier [ALG:OGSLDA]."""

from __future__ import annotations

import hashlib
import math
import warnings
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from whet.arrays import Bools, Floats, Int64s
from whet.errors import CannotMergeError, CannotUnlearnError, ForgettingError
from whet.estimators.gslda import (
    GSLDA,
    StumpError,
    Threshold,
    check_count,
    check_known,
    check_labels,
    counted,
    two_classes,
    unchanged_on_error,
    whole_weight,
)
from whet.lda.discriminant import DEFAULT_RIDGE, Criterion
from whet.lda.selection import Scatter, Search
from whet.lda.statistics import MOST_SAMPLES, BinaryStatistics, ClassStatistics, DecayingStatistics

Block = tuple[Floats, NDArray[Any], Int64s]


@dataclass(frozen=True, eq=False)
class ColdStart:
    """Blocks of samples (X, y, weights) collected until the weak learners can be trained.

    `classes` are those named or seen so far, `counts` (classes,) their numbers of samples.

    >>> cold = ColdStart().with_samples(np.zeros((1, 2)), np.array([7]), np.array([1]), None)
    >>> cold.classes, cold.counts, cold.is_complete(1)
    (array([7]), array([1]), False)
    """

    blocks: tuple[Block, ...] = ()
    classes: NDArray[Any] = field(default_factory=lambda: np.array([]))
    counts: Int64s = field(default_factory=lambda: np.array([], dtype=np.int64))

    def with_samples(self, X: Floats, y: NDArray[Any], weights: Int64s, classes: ArrayLike | None) -> ColdStart:
        """Gather one more block; `classes` names both classes before both were seen."""
        seen = np.unique(np.concatenate([y, self.classes[self.counts > 0]])) if self.blocks else np.unique(y)
        named = self.classes if len(self.classes) == 2 else seen
        if classes is not None:
            named = two_classes(np.asarray(classes))
        if len(named) != 1:
            check_known(seen, two_classes(named))
        counts = np.array([weights[y == c].sum() + self.counts[self.classes == c].sum() for c in named])
        check_count(counts.sum())
        return ColdStart((*self.blocks, (X, y, weights)), named, counts)

    def batch(self) -> Block:
        """All samples collected so far."""
        X, y, weights = (np.concatenate(parts) for parts in zip(*self.blocks, strict=True))
        return X, y, weights

    def is_complete(self, min_initial: int) -> bool:
        """Whether both classes have at least `min_initial` samples."""
        return len(self.classes) == 2 and bool((self.counts >= min_initial).all())

    @property
    def prior(self) -> Floats:
        """Probability of each class, with one pseudo-count each so that none is 0."""
        return np.asarray((self.counts + 1) / (self.counts + 1).sum())

    @property
    def log_odds(self) -> float:
        """Log odds of the prior; with one class known, certainly not another."""
        return -math.inf if len(self.classes) < 2 else float(np.log(self.prior[1] / self.prior[0]))


class OnlineGSLDA(GSLDA):
    """Greedy sparse LDA that follows every further sample, exactly and without keeping any.

    The first batch trains and selects the weak learners, as `GSLDA` does; they stay. After that only the
    classes' statistics change, and with them the weights and the threshold: the result is, to the last bit
    for stumps, that of training the same weak learners on everything at once, in any order.

    Parameters
    ----------
    n_reserve
        How many weak learners to keep statistics of, at least `n_weak`; with more than `n_weak`, `reselect`
        can choose anew from statistics alone. None keeps those that are selected.
    decay
        Below 1, every new sample first fades its class by this factor, for streams that drift; then `unlearn`
        and `merge` raise, and each new set of coefficients costs a solve, O(T^3).
    min_initial
        How many samples of each class `partial_fit` gathers before it trains the weak learners; with single
        samples or small blocks choose some tens, as the weak learners then stay.

    Notes
    -----
    The other parameters, and the attributes, are those of `GSLDA`. Of the first batch nothing can be unlearned: it
    chose the weak learners.

    Examples
    --------
    >>> from whet.estimators import OnlineGSLDA
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    >>> model = OnlineGSLDA(n_weak=1).fit(X, y)
    >>> before = model.coef_
    >>> model = model.partial_fit([[1.2], [1.8]], [1, 0])
    >>> bool(model.coef_[0] < before[0])
    True
    >>> bool(model.unlearn([[1.2], [1.8]], [1, 0]).coef_[0] == before[0])
    True
    """

    _base: tuple[ClassStatistics, ...]  # of the first batch, positives and negatives; never changed

    def __init__(
        self,
        n_weak: int = 50,
        *,
        n_reserve: int | None = None,
        weak: Literal["stump", "identity"] = "stump",
        criterion: Criterion = "fda",
        threshold: Threshold = "bayes",
        miss_rate: float = 0.01,
        ridge: float = DEFAULT_RIDGE,
        search: Search = "forward",
        stump_error: StumpError = "balanced",
        decay: float = 1.0,
        min_initial: int = 1,
    ) -> None:
        super().__init__(
            n_weak,
            weak=weak,
            criterion=criterion,
            threshold=threshold,
            miss_rate=miss_rate,
            ridge=ridge,
            search=search,
            stump_error=stump_error,
        )
        self.n_reserve = n_reserve
        self.decay = decay
        self.min_initial = min_initial

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything and train on a first batch that has both classes."""
        super().fit(X, y, sample_weight)
        self._cold = ColdStart()
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn the rows of X (N, features), each counted `sample_weight` times.

        Samples are kept until both classes have `min_initial` of them; until then, the prior is predicted.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            known = self._as_known(X, y) if classes is None and sample_weight is None else None
            if known is not None:
                self._insert_many(self._pool.transform(known[0]), known[1], np.ones(len(known[0]), np.int64))
                return self
            first = not hasattr(self, "n_features_in_")
            samples, labels = validate_data(self, X, y, dtype=np.float64, reset=first)
            samples, labels, weights = counted(samples, check_labels(labels), sample_weight)
            if not self._is_trained:
                self._gather(samples, labels, weights, classes)
            else:
                if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
                    raise ValueError(f"classes={classes!r} are not those of the first call: {self.classes_.tolist()}")
                is_positive = check_known(labels, self.classes_)
                self._insert_many(self._pool.transform(samples), is_positive, weights)
        return self

    def _as_known(self, X: object, y: object) -> tuple[Floats, Bools] | None:
        """X and which labels are positive, if X is finite float64 (N, features) and y (N,) has known whole numbers.

        scikit-learn's own validation takes a millisecond, ten times as long as to learn a sample. All else goes there,
        and to its errors.
        """
        if not (type(X) is np.ndarray and type(y) is np.ndarray and self._is_trained):
            return None
        known = self.classes_
        shaped = X.ndim == 2 and 0 < len(X) == y.size and y.ndim == 1 and X.shape[1] == self.n_features_in_
        if not shaped or X.dtype != np.float64 or {y.dtype.kind, known.dtype.kind} - set("biu"):
            return None
        is_positive = y == known[1]
        is_known = bool((is_positive | (y == known[0])).all())
        if not is_known or hasattr(self, "feature_names_in_") or not np.isfinite(X).all():
            return None
        return X, is_positive

    def update(self, x: Floats, label: object, weight: int = 1) -> None:
        """Learn one sample x (features,), `weight` times, in O(T^2).

        For hot loops. Values have to be finite, and without stumps their squares, too: what is not could not be
        unlearned. The weight is a whole number of at least 0.
        """
        if not self._is_trained:
            self.partial_fit(np.asarray(x)[None], np.asarray([label]), sample_weight=[weight])
            return
        if len(x) != self.n_features_in_:
            raise ValueError(f"got a sample of {len(x)} values; the model has {self.n_features_in_} features")
        is_positive = self._is_positive.get(label)
        if is_positive is None:
            raise ValueError(f"label {label!r} is not one of the two classes {self.classes_.tolist()}")
        d = self._discriminant
        n = (d.positive if is_positive else d.negative).n
        if weight.__class__ is not int or not 0 <= weight < MOST_SAMPLES - n:  # NumPy's integers, or to be refused
            if isinstance(weight, Real) and weight < 0:
                self._refuse_if_forgetting("unlearn")
            weight = whole_weight(weight, n)
        values = np.asarray(x)
        # Sums of squares of all samples that may come have to be finite.
        most = 1e308 if isinstance(d.positive, BinaryStatistics) else float(np.sqrt(1e308 / MOST_SAMPLES))
        if not (abs(values) <= most).all():
            raise ValueError("got a sample with NaN, infinity or values too large to square; nothing was changed")
        d.insert(self._pool.transform(values), is_positive, weight)

    def unlearn(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Remove samples learned after the first batch, as if they had never been learned."""
        check_is_fitted(self)
        if not self._is_trained:
            raise CannotUnlearnError("nothing was learned yet: the first batch is still being gathered")
        self._refuse_if_forgetting("unlearn")
        samples, labels = validate_data(self, X, y, dtype=np.float64, reset=False)
        samples, labels, weights = counted(samples, check_labels(labels), sample_weight)
        is_positive = check_known(labels, self.classes_)
        responses = self._pool.transform(samples)
        after: list[ClassStatistics] = []
        for total, base, rows in zip(self._totals, self._base, (is_positive, ~is_positive), strict=True):
            part = total.from_samples(responses[rows], weights[rows])
            if not (total - base - part).is_possible(total):
                raise CannotUnlearnError(
                    f"cannot unlearn these {len(samples)} samples: they were not learned after the first batch, "
                    "or not so often; nothing was changed"
                )
            after.append(total - part)
        self._replace(*after)
        return self

    def merge(self, other: OnlineGSLDA) -> Self:
        """Add all that another model with the same base has learned since that base.

        What both learned before they were copied apart would count twice: call `rebase` before copying.
        """
        check_is_fitted(self, "_discriminant")
        if not isinstance(other, OnlineGSLDA) or not other._is_trained:
            raise CannotMergeError(f"got {other!r}; expected a trained OnlineGSLDA with the same base")
        self._refuse_if_forgetting("merge")
        if self.base_id_ != other.base_id_:
            raise CannotMergeError(
                "these models do not share one base: their weak learners or first batches differ; merge copies of "
                "one trained model, which have the same base_id_"
            )
        # Both hold the same weak learners, but a re-selection may have re-ordered them.
        theirs = np.argsort(other._candidate)[np.argsort(np.argsort(self._candidate))]
        deltas = [(total - base).take(theirs) for total, base in zip(other._totals, other._base, strict=True)]
        merged = [total + delta for total, delta in zip(self._totals, deltas, strict=True)]
        if max(total.n for total in merged) >= MOST_SAMPLES:
            raise CannotMergeError("these models together count 2^52 samples or more; counts stay exact below that")
        self._replace(*merged)
        return self

    def rebase(self) -> Self:
        """Make what was learned so far part of the base: it can no longer be unlearned, nor be merged twice.

        Copies that are made from now on share this base.
        """
        check_is_fitted(self, "_discriminant")
        self._base = tuple(total.copy() for total in self._totals)
        return self

    def reselect(self) -> Self:
        """Choose the weak learners anew from the statistics of the reserve, by the function that `fit` calls."""
        check_is_fitted(self, "_discriminant")
        d = self._discriminant
        if self.n_weak > len(self._pool):
            warnings.warn(
                f"n_weak={self.n_weak} is more than the {len(self._pool)} weak learners in reserve", stacklevel=2
            )
        by_candidate = np.argsort(self._candidate)  # as in `fit`, so that ties fall alike
        positive, negative = (total.take(by_candidate) for total in self._totals)
        chosen = self._select(Scatter.from_statistics(positive, negative, d.criterion, d.ridge))
        rest = np.setdiff1d(np.arange(len(by_candidate)), chosen)
        order = by_candidate[np.concatenate([chosen, rest])]
        self._candidate = self._candidate[order]
        self._pool = self._pool.take(order)
        self._base = tuple(base.take(order) for base in self._base)
        d.size = len(chosen)
        self._replace(*(total.take(order) for total in self._totals))
        return self

    def refresh(self) -> Self:
        """Derive the coefficients from the statistics alone: equal statistics give equal bits."""
        check_is_fitted(self, "_discriminant")
        self._discriminant.refresh()
        return self

    @property
    def class_count_(self) -> Floats:
        """How many samples of each class were counted, in the order of `classes_`."""
        check_is_fitted(self)
        if not self._is_trained:
            return self._cold.counts.astype(np.float64)
        positive, negative = self._totals
        return np.array([negative.n, positive.n], dtype=np.float64)

    @property
    def base_id_(self) -> str:
        """Hash of the base: weak learners, first batch, criterion and ridge; models with one base can be merged."""
        check_is_fitted(self, "_discriminant")
        by_candidate = np.argsort(self._candidate)
        d = self._discriminant
        settings = (d.criterion, float(d.ridge), type(self._pool).__name__, self.classes_.tolist())
        digest = hashlib.sha256(repr(settings).encode())
        for part in (self._pool.take(by_candidate), *(base.take(by_candidate) for base in self._base)):
            for array in part.arrays():
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def decision_function(self, X: ArrayLike) -> Floats:
        """Margins (N,); before the first batch is complete, the log odds of the prior."""
        if self._is_trained:
            return super().decision_function(X)
        check_is_fitted(self)
        samples = validate_data(self, X, dtype=np.float64, reset=False)
        return np.full(len(samples), self._cold.log_odds)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Posteriors (N, 2); before the first batch is complete, the prior (N, 1 or 2)."""
        if self._is_trained:
            return super().predict_proba(X)
        check_is_fitted(self)
        samples = validate_data(self, X, dtype=np.float64, reset=False)
        return np.tile(self._cold.prior, (len(samples), 1))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.n_reserve is not None and self.n_reserve < self.n_weak:
            raise ValueError(f"n_reserve={self.n_reserve} is less than n_weak={self.n_weak}")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay={self.decay!r} must be above 0 and at most 1 (1 forgets nothing)")
        if not self.min_initial >= 1:
            raise ValueError(f"min_initial={self.min_initial!r} must be at least 1")

    def _reserve_size(self) -> int:
        return self.n_reserve or 0

    def _gather(self, X: Floats, y: NDArray[Any], weights: Int64s, classes: ArrayLike | None) -> None:
        cold = getattr(self, "_cold", ColdStart()).with_samples(X, y, weights, classes)
        self._cold, self.classes_ = cold, cold.classes
        if cold.is_complete(self.min_initial):
            samples, labels, counts = cold.batch()
            self._train(samples, check_known(labels, self.classes_), counts)
            self._cold = ColdStart()

    def _train(self, X: Floats, is_positive: Bools, weights: Int64s) -> None:
        super()._train(X, is_positive, weights)
        negative, positive = self.classes_.tolist()
        self._is_positive = {negative: False, positive: True}
        d = self._discriminant
        self._base = (d.positive.copy(), d.negative.copy())
        if self.decay < 1:
            d.positive = DecayingStatistics.starting_from(d.positive, self.decay)
            d.negative = DecayingStatistics.starting_from(d.negative, self.decay)

    @property
    def _is_trained(self) -> bool:
        return "_discriminant" in self.__dict__

    @property
    def _totals(self) -> tuple[ClassStatistics, ClassStatistics]:
        return self._discriminant.positive, self._discriminant.negative

    def _replace(self, positive: ClassStatistics, negative: ClassStatistics) -> None:
        self._discriminant.positive, self._discriminant.negative = positive, negative
        self._discriminant.forget_caches()

    def _insert_many(self, responses: NDArray[Any], is_positive: Bools, weights: Int64s) -> None:
        classes = list(zip(self._totals, (is_positive, ~is_positive), strict=True))
        for total, rows in classes:
            check_count(total.n + int(weights[rows].sum()))
        if len(weights) == 1 and isinstance(self._totals[0], BinaryStatistics):
            # Counts of bits stay below the limit that was checked: one sample is counted in place.
            self._totals[0 if is_positive[0] else 1].insert(responses[0], int(weights[0]))
            self._discriminant.forget_caches()
            return
        after = [total.copy() for total in self._totals]
        for total, (_, rows) in zip(after, classes, strict=True):
            if rows.any():
                total.insert_many(responses[rows], weights[rows])
        if not all(np.isfinite(array).all() for total in after for array in total.arrays()):
            raise ValueError("the sums of squares of these samples overflow; scale the features, to about 1")
        self._replace(*after)

    def _refuse_if_forgetting(self, verb: str) -> None:
        total = self._totals[0]
        if isinstance(total, DecayingStatistics):
            raise ForgettingError(
                f"a model with decay={total.decay} cannot {verb}: its sums depend on the order of the samples; "
                "keep a copy to go back to, or train with decay=1"
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")
