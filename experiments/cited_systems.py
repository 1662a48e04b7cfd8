"""Further systems that the paper cites, as short baselines with the interface of `whet.estimators.baselines`.

`GaussianAdaBoost` (Pham and Cham, 2007), `RegressionBoosting` (Parag et al., 2008), `SelectorBoosting` (Grabner and
Bischof, 2006) and `IncrementalLDA` (IDR/QR of Ye et al., 2005).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from whet._kernels.jit import kernel
from whet._kernels.weak_fitting import log_ratio, log_ratios, weight_for_next
from whet.estimators.baselines import AdaBoost, BoostedVote, OnlineBoosting, StumpTrainer
from whet.estimators.gslda import OnlineClassifier
from whet.models.gslda.weak_learners import Stumps

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Counts = NDArray[np.int64]
Ints = NDArray[np.intp]


class GaussianAdaBoost(AdaBoost):
    """AdaBoost with the fast stumps of Pham and Cham (2007): thresholds from two weighted normals.

    In each round, a feature's threshold is where its two weighted normals cross. It comes from weighted means and
    variances, so nothing is sorted. The stump of least weighted error on the samples is selected: errors of the normals
    themselves are too rough after some rounds.

    Examples
    --------
    >>> from experiments.cited_systems import GaussianAdaBoost
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> GaussianAdaBoost(n_weak=3).fit(X, [0, 0, 1, 1]).predict([[0.2], [2.2]])
    array([0, 1])
    """

    def _stump_trainer(self, X: Floats) -> StumpTrainer:
        squares, smallest = X**2, np.maximum(1e-6 * X.var(axis=0), 1e-12)

        def train(is_positive: Bools, D: Floats) -> Stumps:
            p, m, v = [], [], []
            for rows in (is_positive, ~is_positive):
                weights = np.where(rows, D, 0.0)
                p.append(weights.sum())
                m.append(weights @ X / p[-1])
                v.append(np.maximum(weights @ squares / p[-1] - m[-1] ** 2, smallest))
            stumps = gaussian_stumps((p[0], p[1]), (m[0], m[1]), (v[0], v[1]))
            return replace(stumps, error=D @ (stumps.transform(X) != is_positive[:, None]))

        return train


def gaussian_stumps(p: tuple[float, float], m: tuple[Floats, Floats], v: tuple[Floats, Floats]) -> Stumps:
    """Stumps where p N(m, v) of the positives and of the negatives cross between the means, with the normals' error.

    Weights p (2,), means and variances (2, features). Without a crossing between the means, the better of both means.

    >>> stumps = gaussian_stumps((0.5, 0.5), (np.array([2.0]), np.array([0.0])), (np.array([1.0]), np.array([1.0])))
    >>> float(stumps.threshold[0]), round(float(stumps.error[0]), 4)
    (1.0, 0.1587)
    """
    from scipy.special import ndtr

    (p1, p2), (m1, m2), (v1, v2) = p, m, v
    a = v1 - v2
    b = v2 * m1 - v1 * m2
    c = v1 * m2**2 - v2 * m1**2 + 2 * v1 * v2 * np.log(p1 / p2 * np.sqrt(v2 / v1))
    # a x^2 + 2 b x + c = 0, without cancellation, also for a = 0
    root = np.sqrt(np.maximum(b * b - a * c, 0.0))
    q = -(b + np.where(b < 0, -root, root))
    polarity = np.where(m1 >= m2, 1, -1).astype(np.int8)
    low, high = np.minimum(m1, m2), np.maximum(m1, m2)
    with np.errstate(divide="ignore", invalid="ignore"):
        roots = np.nan_to_num(np.stack([c / q, q / a]), nan=np.inf)
    cuts = np.stack([*np.where((roots > low) & (roots < high), roots, low), low, high])
    missed = ndtr(polarity * (cuts - m1) / np.sqrt(v1))
    passed = ndtr(-polarity * (cuts - m2) / np.sqrt(v2))
    errors = p1 * missed + p2 * passed
    best, at = errors.argmin(axis=0), np.arange(len(m1))
    return Stumps(at, cuts[best, at], polarity, errors[best, at])


@kernel
def regression(sums: Floats) -> tuple[float, float]:
    """Slope and intercept of the weighted least squares line, from sums (5,) of w, w x, w x^2, w y and w x y.

    Without a spread of x, the line is the mean of y.
    """
    w, wx, wxx, wy, wxy = sums[0], sums[1], sums[2], sums[3], sums[4]
    spread = w * wxx - wx * wx
    if spread <= 1e-12 * w * wxx:
        return 0.0, wy / max(w, 1e-300)
    slope = (w * wxy - wx * wy) / spread
    return slope, (wy - slope * wx) / w


@kernel
def regress_one(x: Floats, label: int, weight: float, sums: Floats, right: Floats, wrong: Floats) -> None:
    """Update T regressions of labels -1 and 1 in turn with one sample x (T,); the weight moves as in `boost_one`."""
    w, y = weight, 2.0 * label - 1.0
    for t in range(x.shape[0]):
        sums[t, 0] += w
        sums[t, 1] += w * x[t]
        sums[t, 2] += w * x[t] * x[t]
        sums[t, 3] += w * y
        sums[t, 4] += w * x[t] * y
        slope, intercept = regression(sums[t])
        is_right = (slope * x[t] + intercept > 0.0) == (label == 1)
        w = weight_for_next(w, is_right, right, wrong, t)


class RegressionBoosting(OnlineBoosting):
    """Online boosting of Parag et al. (2008): weak learners are weighted regressions of the label on one feature.

    As `OnlineBoosting`, with a line fitted to labels -1 and 1 by least squares instead of two normals. Every sample
    updates the lines, and so the thresholds of the weak learners.

    Examples
    --------
    >>> from experiments.cited_systems import RegressionBoosting
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    >>> RegressionBoosting(n_weak=1).fit(X, y).partial_fit([[9.0]], [1]).predict([[1.2], [1.9]])
    array([0, 0])
    """

    def _weak_models(self, X: Floats, is_positive: Bools, D: Floats) -> tuple[Floats, ...]:
        y = np.where(is_positive, 1.0, -1.0)
        ones = np.ones(X.shape[1])
        sums = (D.sum() * ones, D @ X, D @ X**2, D @ y * ones, (D * y) @ X)
        return (np.stack(sums, axis=1),)

    def _scaled(self, models: list[Floats], total: float) -> tuple[Floats, ...]:
        return (models[0] * total,)

    def _says_yes(self, X: Floats, models: tuple[Floats, ...], smallest: Floats) -> Bools:  # noqa: ARG002
        w, wx, wxx, wy, wxy = models[0].T
        spread = w * wxx - wx * wx
        varies = spread > 1e-12 * w * wxx
        slope = np.where(varies, (w * wxy - wx * wy) / np.where(varies, spread, 1.0), 0.0)
        return np.asarray(X * slope + (wy - slope * wx) / w > 0)

    def _update(self, x: Floats, label: int, weight: float) -> None:
        regress_one(x, label, weight, self._models[0], self._right, self._wrong)


@kernel
def select_one(
    x: Floats,
    label: int,
    weight: float,
    pools: Ints,
    n: Floats,
    m: Floats,
    S: Floats,
    right: Floats,
    wrong: Floats,
    selected: Ints,
    fresh: Ints,
    smallest: Floats,
) -> None:
    """Update all selectors in turn with one sample x (features,).

    Selector j has a pool of P features, `pools` (J, P), each with two normals n, m, S (J, P, 2) and the weights of the
    samples that it got right and wrong (J, P), as in `boost_one`. It selects the one of least error, `selected` (J,),
    whose answer decides the weight of the sample for the next selector. Its worst one is replaced by the feature
    `fresh[j]`, which starts without samples and with the error of the one it replaces: with an error of its own, one
    heavy sample would have it selected.
    """
    w = weight
    for j in range(pools.shape[0]):
        best, worst = 0, 0
        least, most = np.inf, -1.0
        is_right = False
        for p in range(pools.shape[1]):
            value = x[pools[j, p]]
            d = value - m[j, p, label]
            n[j, p, label] += w
            m[j, p, label] += w * d / n[j, p, label]
            S[j, p, label] += w * d * (value - m[j, p, label])
            hit = (log_ratio(value, n[j, p], m[j, p], S[j, p], smallest[pools[j, p]]) > 0.0) == (label == 1)
            if hit:
                right[j, p] += w
            else:
                wrong[j, p] += w
            error = wrong[j, p] / (right[j, p] + wrong[j, p])
            if error < least:
                least, best, is_right = error, p, hit
            if error > most:
                most, worst = error, p
        selected[j] = best
        error = min(max(least, 1e-3), 1.0 - 1e-3)
        w *= 1.0 / (2.0 * ((1.0 - error) if is_right else error))
        if worst != best:
            pools[j, worst] = fresh[j]
            n[j, worst], m[j, worst], S[j, worst] = 0.0, 0.0, 0.0


class SelectorBoosting(OnlineClassifier, BoostedVote):
    """Online boosting with feature selectors of Grabner and Bischof (2006).

    Each of `n_weak` selectors has a pool of features with two normals each. Every sample updates all of them; a
    selector votes with the one of least weighted error so far, and replaces the worst by a new random feature. Nothing
    is trained in a batch: `fit` passes its samples one by one, so that their order matters, and a heavy sample is not
    the same as many. Later selectors mostly see hard samples: a short stream needs few selectors.

    Parameters
    ----------
    n_weak
        Number of selectors.
    n_pool
        Features of each selector.
    random_state
        Seed of the pools and of the replacements.

    Examples
    --------
    >>> from experiments.cited_systems import SelectorBoosting
    >>> X, y = np.tile([[0.0], [1.0], [2.0], [3.0]], (5, 1)), [0, 0, 1, 1] * 5
    >>> SelectorBoosting(n_weak=2, n_pool=1).fit(X, y).predict([[0.2], [2.8]])
    array([0, 1])
    """

    def __init__(self, n_weak: int = 50, *, n_pool: int = 50, random_state: int = 0) -> None:
        self.n_weak = n_weak
        self.n_pool = n_pool
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.n_pool < 1:
            raise ValueError(f"n_pool={self.n_pool!r} must be at least 1")

    def _train(self, X: Floats, is_positive: Bools, weights: Counts) -> None:
        self._random = check_random_state(self.random_state)
        shape = (self.n_weak, self.n_pool)
        self._pools = self._random.randint(X.shape[1], size=shape).astype(np.intp)
        self._models = tuple(np.zeros((*shape, 2)) for _ in range(3))
        self._right, self._wrong = np.ones(shape), np.ones(shape)
        self._selected = np.zeros(self.n_weak, dtype=np.intp)
        self._smallest = np.maximum(1e-4 * X.var(axis=0), 1e-12)
        self._learn(X, is_positive, weights)

    def _learn(self, X: Floats, is_positive: Bools, weights: Counts) -> None:
        for x, label, weight in zip(X, is_positive.astype(np.int64), weights.astype(float), strict=True):
            fresh = self._random.randint(X.shape[1], size=self.n_weak).astype(np.intp)
            state = (self._pools, *self._models, self._right, self._wrong, self._selected, fresh, self._smallest)
            select_one(x, int(label), float(weight), *state)

    @property
    def selected_features_(self) -> NDArray[np.intp]:
        """The feature that each selector has selected (T,)."""
        check_is_fitted(self)
        return np.asarray(self._pools[np.arange(self.n_weak), self._selected])

    @property
    def coef_(self) -> Floats:
        """Vote of each selector (T,): log((1 - e) / e) of the selected feature's weighted error so far."""
        check_is_fitted(self)
        at = np.arange(self.n_weak), self._selected
        error = np.clip(self._wrong[at] / (self._right[at] + self._wrong[at]), 1e-3, 1 - 1e-3)
        return np.asarray(np.log((1 - error) / error))

    def _ballots(self, X: Floats) -> Floats:
        at = np.arange(self.n_weak), self._selected
        features = self._pools[at]
        values = np.ascontiguousarray(X[:, features])
        n, m, S = (model[at] for model in self._models)
        says_yes = log_ratios(values, n, m, S, self._smallest[features]) > 0
        return np.asarray((says_yes - 0.5) * self.coef_)


class IncrementalLDA(OnlineClassifier):
    """Incremental LDA without selection: IDR/QR of Ye et al. (2005), for two classes.

    Samples are projected on the span of the two class means, an orthonormal basis Q by QR decomposition. The
    within-class scatter W is kept in that subspace only. A new sample moves a mean, and with it Q; W follows as
    P W P^T + n / (n + 1) z z^T with P = Q_new^T Q_old and z the projected distance to the old mean. What W had outside
    of the old subspace is lost: that is the approximation. The label is that of the nearer projected mean.

    Parameters
    ----------
    ridge
        Added to the diagonal of W.

    Attributes
    ----------
    coef_, intercept_
        (features,) direction in the full space, and minus the midpoint of the projected means.

    Examples
    --------
    >>> from experiments.cited_systems import IncrementalLDA
    >>> X = np.array([[0.0, 1.0], [1.0, 0.5], [2.0, 1.0], [3.0, 0.5]])
    >>> IncrementalLDA().fit(X, [0, 0, 1, 1]).partial_fit([[2.5, 1.0]], [1]).predict(X)
    array([0, 0, 1, 1])
    """

    def __init__(self, *, ridge: float = 1e-6) -> None:
        self.ridge = ridge

    def _check_parameters(self) -> None:
        if not 0 < self.ridge < np.inf:
            raise ValueError(f"ridge={self.ridge!r} must be a finite number above 0")

    def _train(self, X: Floats, is_positive: Bools, weights: Counts) -> None:
        classes = [(X[rows], weights[rows]) for rows in (~is_positive, is_positive)]
        self._n = np.array([w.sum() for _, w in classes], dtype=np.float64)
        self._means = np.stack([w @ x / w.sum() for x, w in classes])
        self._Q = np.linalg.qr(self._means.T)[0]
        self._W = np.zeros((self._Q.shape[1],) * 2)
        for (x, w), mean in zip(classes, self._means, strict=True):
            projected = (x - mean) @ self._Q
            self._W += (projected * w[:, None]).T @ projected

    def _learn(self, X: Floats, is_positive: Bools, weights: Counts) -> None:
        for x, label, k in zip(X, is_positive.astype(int), weights, strict=True):
            self._insert(x, int(label), float(k))

    def _insert(self, x: Floats, label: int, k: float) -> None:
        d, n = x - self._means[label], self._n[label]
        self._means[label] += k * d / (n + k)
        self._n[label] += k
        Q = np.linalg.qr(self._means.T)[0]
        P, z = Q.T @ self._Q, Q.T @ d
        self._W = P @ self._W @ P.T + n * k / (n + k) * np.outer(z, z)
        self._Q = Q

    @property
    def coef_(self) -> Floats:
        """Direction in the full space (features,)."""
        check_is_fitted(self)
        gap = self._Q.T @ (self._means[1] - self._means[0])
        return np.asarray(self._Q @ np.linalg.solve(self._W + self.ridge * np.eye(len(self._W)), gap))

    @property
    def intercept_(self) -> float:
        """Minus the midpoint of the projected means."""
        return -float(self.coef_ @ self._means.sum(axis=0)) / 2

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Margins (N,): how much nearer the mean of `classes_[1]` is, along the direction."""
        check_is_fitted(self)
        samples = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(samples @ self.coef_ + self.intercept_)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Posteriors (N, 2) of two normals of equal priors with the projected means and the covariance W / (n - 2)."""
        from scipy.special import expit

        margins = self.decision_function(X)
        p = expit(max(self._n.sum() - 2.0, 1.0) * margins)
        return np.column_stack([1 - p, p])
