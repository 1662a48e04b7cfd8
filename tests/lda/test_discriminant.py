import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from tests.samples import direction, two_gaussians

from whet.errors import SingularScatterError
from whet.lda.discriminant import OnlineDiscriminant, regularised
from whet.lda.statistics import BinaryStatistics, CentredStatistics
from whet.lda.thresholds import bayes_crossing, fisher


def classes_of(X, y):
    return CentredStatistics.from_samples(X[y == 1]), CentredStatistics.from_samples(X[y == 0])


def test_fda_is_scikit_learns_lda(rng):
    X, y = two_gaussians(200, 5, rng)
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y)
    w = direction(*classes_of(X, y))
    # scikit-learn divides the pooled scatter by n, we by n - 2.
    np.testing.assert_allclose(w, lda.coef_[0] * 198 / 200)


def test_fda_is_the_leading_generalised_eigenvector(rng):
    from scipy.linalg import eigh

    X, y = two_gaussians(100, 4, rng)
    positive, negative = classes_of(X, y)
    gap = positive.mean - negative.mean
    _, vectors = eigh(np.outer(gap, gap), positive.scatter + negative.scatter)
    w = direction(positive, negative)
    cosine = abs(w @ vectors[:, -1]) / np.linalg.norm(w) / np.linalg.norm(vectors[:, -1])
    assert cosine == pytest.approx(1)


def test_lac_looks_at_the_positives_alone(rng):
    X, y = two_gaussians(100, 3, rng)
    positive, negative = classes_of(X, y)
    w = direction(positive, negative, "lac")
    np.testing.assert_allclose(w, 49 * np.linalg.solve(positive.S, positive.m - negative.m))
    wider = CentredStatistics(negative.n, negative.m, negative.S * 10)
    np.testing.assert_array_equal(direction(positive, wider, "lac"), w)
    assert not np.allclose(direction(positive, wider, "fda"), direction(positive, negative, "fda"))


def test_priors_are_not_added_to_scores_that_are_no_log_odds(rng):
    classes = classes_of(*two_gaussians(100, 3, rng))
    for criterion, rule in (("fda", fisher), ("lac", bayes_crossing)):
        OnlineDiscriminant(*classes, 3, rule=rule, criterion=criterion)
    with pytest.raises(ValueError, match=r"lac.*fisher.*use threshold='bayes'"):
        OnlineDiscriminant(*classes, 3, rule=fisher, criterion="lac")


def test_scores_do_not_shrink_as_samples_come(rng):
    X, y = two_gaussians(200, 5, rng)
    w = direction(*classes_of(X, y))
    tenfold = direction(*classes_of(np.tile(X, (10, 1)), np.tile(y, 10)))
    np.testing.assert_allclose(tenfold, w, rtol=0.01)


def test_two_responses_alike_need_a_ridge():
    ones = BinaryStatistics.from_samples(np.array([[1, 1], [0, 0], [1, 1]], dtype=np.uint8))
    zeros = BinaryStatistics.from_samples(np.array([[0, 0], [1, 1], [0, 0]], dtype=np.uint8))
    assert np.linalg.det(ones.scatter) == pytest.approx(0)
    with pytest.raises(SingularScatterError, match="larger ridge"):
        direction(ones, zeros)
    w = direction(ones, zeros, ridge=0.1)
    assert w[0] == pytest.approx(w[1])


def test_the_ridge_is_added_in_whatever_order_a_scatter_lies_in_memory():
    rows = np.arange(9.0).reshape(3, 3)
    for S in (rows, np.asfortranarray(rows)):
        np.testing.assert_array_equal(regularised(S, S, "fda", 100.0), 2 * rows + 100 * np.eye(3))
