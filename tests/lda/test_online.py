"""The online discriminant follows what a fresh solve of the same statistics gives."""

from pathlib import Path

import numpy as np
import pytest
from tests.samples import correlated_stumps, direction, two_gaussians

from whet.errors import CannotUnlearnError, ForgettingError
from whet.lda import discriminant as module
from whet.lda.discriminant import OnlineDiscriminant
from whet.lda.statistics import BinaryStatistics, CentredStatistics, DecayingStatistics
from whet.lda.thresholds import bayes_crossing


def discriminant(kind, X, y, size=None, **options):
    size = X.shape[1] if size is None else size
    return OnlineDiscriminant(kind.from_samples(X[y]), kind.from_samples(X[~y]), size, rule=bayes_crossing, **options)


def retention_of_process():
    """Resident bytes; tracemalloc does not see what kernels allocate."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def relative_error(a, b):
    return abs(a - b).max() / abs(b).max()


@pytest.mark.parametrize("criterion", ["fda", "lac"])
@pytest.mark.parametrize("kind", [BinaryStatistics, CentredStatistics])
@pytest.mark.parametrize("size", [12, 7])  # all, or with a reserve behind
def test_every_step_agrees_with_a_fresh_solve(criterion, kind, size, rng):
    X, y = correlated_stumps(400, 12, rng)
    if kind is CentredStatistics:
        X = X + rng.normal(size=X.shape)
    online = discriminant(kind, X[:100], y[:100], size, criterion=criterion, ridge=0.5)
    for i in range(100, 400):
        online.insert(X[i], bool(y[i]), 1 + i % 3)
        if i % 7 == 0:
            online.insert(X[i], bool(y[i]), -1)
        fresh = direction(online.positive, online.negative, criterion, 0.5)
        if size == 12:
            assert relative_error(online.coef, fresh) < 1e-10
        coef, threshold, projection = online.coef, online.threshold, online.projection
        refreshed = OnlineDiscriminant(
            online.positive, online.negative, size, rule=bayes_crossing, criterion=criterion, ridge=0.5
        )
        assert relative_error(coef, refreshed.coef) < 1e-10
        np.testing.assert_allclose(projection, refreshed.projection, rtol=1e-9)
        assert threshold == pytest.approx(refreshed.threshold, rel=1e-9)


def test_moments_are_those_of_the_projected_samples(rng):
    X, y = correlated_stumps(300, 10, rng)
    online = discriminant(BinaryStatistics, X[:50], y[:50], ridge=1.0)
    for x, label in zip(X[50:], y[50:], strict=True):
        online.insert(x, bool(label))
    scores = X @ online.coef
    p = online.projection
    expected = (scores[y].mean(), scores[y].std(), scores[~y].mean(), scores[~y].std(), y.sum(), (~y).sum())
    np.testing.assert_allclose(p, expected, rtol=1e-9)


def test_removal_that_annihilates_a_direction_refreshes(rng):
    # Only one positive ever responded at the last weak learner: without it, no scatter is left there.
    X, y = correlated_stumps(100, 5, rng)
    X[:, 4] = 0
    online = discriminant(BinaryStatistics, X, y, ridge=1e-8)
    odd = np.array([0, 1, 0, 1, 1], dtype=np.uint8)
    online.insert(odd, True)
    refreshes = online.n_refreshes
    online.insert(odd, True, -1)
    assert online.n_refreshes > refreshes
    assert relative_error(online.coef, direction(online.positive, online.negative, "fda", 1e-8)) < 1e-12


@pytest.mark.parametrize("kind", [BinaryStatistics, CentredStatistics])
def test_the_last_sample_of_a_class_stays_and_nothing_changes(kind, rng):
    X, y = correlated_stumps(50, 5, rng)
    online = discriminant(kind, X, y, ridge=1.0)
    online.insert(X[0], True)
    coef, before = online.coef, [a.copy() for a in online.positive.arrays()]
    for k in (online.positive.n, online.positive.n + 1):
        with pytest.raises(CannotUnlearnError, match="nothing was changed"):
            online.insert(X[0], True, -k)
        for a, b in zip(online.positive.arrays(), before, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(online.coef, coef)


def test_a_spoilt_inverse_is_noticed_by_its_residual(rng):
    X, y = correlated_stumps(100, 6, rng)
    online = discriminant(BinaryStatistics, X, y, ridge=1.0)
    online.insert(X[0], bool(y[0]))
    online._inverse *= 1 + 1e-6
    online.insert(X[1], bool(y[1]))
    online.insert(X[2], bool(y[2]))
    assert relative_error(online.coef, direction(online.positive, online.negative, "fda", 1.0)) < 1e-10


def test_refreshed_coefficients_do_not_depend_on_the_path(rng):
    X, y = correlated_stumps(200, 15, rng)
    forwards = discriminant(BinaryStatistics, X[:50], y[:50], ridge=2.0)
    backwards = discriminant(BinaryStatistics, X[:50], y[:50], ridge=2.0)
    for i in range(50, 200):
        forwards.insert(X[i], bool(y[i]))
        backwards.insert(X[249 - i], bool(y[249 - i]))
    assert relative_error(forwards.coef, backwards.coef) < 1e-10
    forwards.refresh()
    backwards.refresh()
    np.testing.assert_array_equal(forwards.coef, backwards.coef)
    assert forwards.threshold == backwards.threshold


def test_decaying_statistics_are_solved_afresh_and_cannot_go_back(rng):
    X, y = two_gaussians(200, 4, rng)
    y = y == 1
    parts = [
        DecayingStatistics.starting_from(CentredStatistics.from_samples(X[:50][c]), 0.95) for c in (y[:50], ~y[:50])
    ]
    online = OnlineDiscriminant(*parts, 4, rule=bayes_crossing, ridge=1.0)
    for x, label in zip(X[50:], y[50:], strict=True):
        online.insert(x, bool(label))
    np.testing.assert_array_equal(online.coef, direction(*parts, "fda", 1.0))
    with pytest.raises(ForgettingError):
        online.insert(X[50], bool(y[50]), -1)


def test_float32_inverse_diverges_where_ours_holds(rng):
    X, y = correlated_stumps(6000, 60, rng, n_causes=3)
    X[:, 30:] = X[:, :30]  # neighbouring features of an image respond all but alike
    X[:20, 30:] ^= 1
    n, mean = 1000, X[:1000].mean(axis=0)
    naive = np.linalg.inv(np.cov(X[:1000].T, bias=True) * 1000 + 1e-2 * np.eye(60)).astype(np.float32)
    for x in X[1000:]:
        d = (x - mean).astype(np.float32)
        u = naive @ d
        naive -= np.outer(u, u) * np.float32(1 / ((n + 1) / n + d @ u))
        mean = mean + (x - mean) / (n + 1)
        n += 1
    true = np.linalg.inv(np.cov(X.T, bias=True) * 6000 + 1e-2 * np.eye(60))
    gap = X[y].mean(axis=0) - X[~y].mean(axis=0)
    assert relative_error(naive @ gap, true @ gap) > 1e-2
    online = discriminant(BinaryStatistics, X[:1000], y[:1000], ridge=1e-2)
    for x, label in zip(X[1000:], y[1000:], strict=True):
        online.insert(x, bool(label))
    assert relative_error(online.coef, direction(online.positive, online.negative, "fda", 1e-2)) < 1e-10


@pytest.mark.slow
def test_an_inverse_that_is_never_refreshed_drifts_where_ours_holds(rng, monkeypatch):
    # Nearly collinear responses, a stream that first inserts and then removes most of what it knows.
    X, y = correlated_stumps(3000, 30, rng, n_causes=2)
    X[:, 15:] = X[:, :15]
    X[:3, 15:] ^= 1

    def drift():
        online = discriminant(BinaryStatistics, X[:200], y[:200], ridge=1e-6)
        for _ in range(3):
            for x, label in zip(X[200:], y[200:], strict=True):
                online.insert(x, bool(label))
            for x, label in zip(X[200:], y[200:], strict=True):
                online.insert(x, bool(label), -1)
        return relative_error(online.coef, direction(online.positive, online.negative, "fda", 1e-6))

    ours = drift()
    monkeypatch.setattr(module, "REFRESH_EVERY", 10**9)
    monkeypatch.setattr(module, "LARGEST_RESIDUAL", np.inf)
    monkeypatch.setattr(module, "SMALLEST_DENOMINATOR", 0.0)
    assert drift() > 100 * max(ours, 1e-12)
    assert ours < 1e-8


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
def test_a_million_updates_of_200_correlated_stumps(rng):
    import tracemalloc

    resident = []
    X, y = correlated_stumps(20_000, 200, rng)
    online = discriminant(BinaryStatistics, X[:5000], y[:5000], ridge=1e-6)
    rows = [(X[i], bool(y[i])) for i in range(len(X))]
    online.insert(*rows[0])
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for count in range(1_000_000):
        online.insert(*rows[count % len(rows)])
        if count % 99_991 == 99_990:  # at ever other distances from the last refresh
            A = online.positive.scatter + online.negative.scatter + 1e-6 * np.eye(200)
            fresh = (online.positive.n + online.negative.n - 2) * np.linalg.solve(
                A, online.positive.mean - online.negative.mean
            )
            assert relative_error(online.coef, fresh) < 1e-8
            resident.append(retention_of_process())
    assert max(resident[1:]) - resident[1] < 20e6
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert online.positive.n + online.negative.n == 5001 + 1_000_000
    # What a refresh works with may still be there; a million samples would be 200 MB.
    assert peak - before < 20e6
    assert after - before < 5e6
