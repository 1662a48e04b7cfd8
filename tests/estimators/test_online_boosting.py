import copy

import numpy as np
from scipy.stats import norm
from tests.samples import two_gaussians

from whet._kernels.weak_fitting import log_ratios
from whet.estimators.baselines import OnlineBoosting


def oza_russell_twin(model, x, label):
    """Oza and Russell's update in plain Python, with the weight in place of Poisson draws."""
    w = 1.0
    counts, means, scatters = model._models
    for t, feature in enumerate(model.selected_features_):
        value = x[feature]
        old_n, old_m = counts[t, label], means[t, label]
        n = old_n + w
        m = (old_n * old_m + w * value) / n
        # Scatter of the old samples about the new mean, and that of the new one.
        scatters[t, label] += old_n * (old_m - m) ** 2 + w * (value - m) ** 2
        counts[t, label], means[t, label] = n, m
        sigma = np.sqrt(np.maximum(scatters[t] / counts[t], model._smallest[t]))
        says = norm.logpdf(value, means[t, 1], sigma[1]) > norm.logpdf(value, means[t, 0], sigma[0])
        shown = model._right[t] + model._wrong[t] + w
        if says == (label == 1):
            model._right[t] += w
            w *= shown / (2 * model._right[t])
        else:
            model._wrong[t] += w
            w *= shown / (2 * model._wrong[t])


def test_the_kernel_is_its_plain_twin(rng):
    X, y = two_gaussians(150, 6, rng, gap=0.7)
    ours = OnlineBoosting(n_weak=8).fit(X[:50], y[:50])
    twin = copy.deepcopy(ours)
    ours.partial_fit(X[50:], y[50:])
    for x, label in zip(X[50:], y[50:], strict=True):
        oza_russell_twin(twin, x, int(label))
    for mine, theirs in zip(ours._models, twin._models, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    for name in ("_right", "_wrong"):
        np.testing.assert_allclose(getattr(ours, name), getattr(twin, name), rtol=1e-9)
    np.testing.assert_allclose(ours.decision_function(X), twin.decision_function(X), rtol=1e-9)


def test_log_ratios_are_those_of_two_normals(rng):
    x = rng.normal(size=(20, 1))
    n, m, S = np.array([[4.0, 2.0]]), np.array([[-1.0, 1.0]]), np.array([[4.0, 8.0]])
    expected = norm.logpdf(x, 1, 2) - norm.logpdf(x, -1, 1)
    np.testing.assert_allclose(log_ratios(x, n, m, S, np.array([1e-9])), expected)


def test_the_first_weak_learner_is_exact_weighted_statistics(rng):
    """The first weak learner sees every sample with weight one: its mean is that of balanced start plus stream."""
    X, y = two_gaussians(60, 1, rng)
    model = OnlineBoosting(n_weak=1).fit(X[:20], y[:20])
    model.partial_fit(X[20:], y[20:])
    n, m, S = model._models
    np.testing.assert_allclose(m[0, 1], X[y == 1, 0].mean())
    np.testing.assert_allclose(S[0, 1] / n[0, 1], X[y == 1, 0].var())


def test_it_learns_from_a_stream(rng):
    X, y = two_gaussians(2000, 20, rng, gap=0.7)
    model = OnlineBoosting(n_weak=30).fit(X[:30], y[:30])
    before = model.score(X[1000:], y[1000:])
    assert model.partial_fit(X[30:1000], y[30:1000]).score(X[1000:], y[1000:]) > before + 0.02


def test_single_updates_are_a_block(rng):
    X, y = two_gaussians(100, 5, rng)
    block, single = (OnlineBoosting(n_weak=5).fit(X[:30], y[:30]) for _ in range(2))
    block.partial_fit(X[30:], y[30:])
    for x, label in zip(X[30:], y[30:], strict=True):
        single.update(x, label)
    np.testing.assert_array_equal(block.decision_function(X), single.decision_function(X))
