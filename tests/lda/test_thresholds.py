import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from tests.samples import direction, two_gaussians

from whet.lda.statistics import CentredStatistics
from whet.lda.thresholds import (
    Asymmetric,
    Projection,
    Rate,
    bayes_crossing,
    calibrate_rate,
    detection_rate,
    fisher,
    rule,
)

spreads = st.floats(0.05, 20)


def papers_root(p, sign_of_log_sigma_1):
    """Roots of the paper's quadratic, with log(sigma_1) added as printed or subtracted as it has to be."""
    v1, v2 = p.sigma_1**2, p.sigma_2**2
    a = -1 / (2 * v1) + 1 / (2 * v2)
    b = p.mu_1 / v1 - p.mu_2 / v2
    c = p.mu_2**2 / (2 * v2) + np.log(p.sigma_2) - p.mu_1**2 / (2 * v1) + sign_of_log_sigma_1 * np.log(p.sigma_1)
    return np.roots([a, b, c])


@given(st.floats(0.2, 10), spreads, spreads)
def test_densities_are_equal_at_the_crossing(gap, sigma_1, sigma_2):
    p = Projection(1 + gap, sigma_1, 1.0, sigma_2, 10, 10)
    t = bayes_crossing(p)
    assert 1.0 < t < 1 + gap

    def log_ratio(x):
        return norm.logpdf(x, p.mu_1, sigma_1) - norm.logpdf(x, p.mu_2, sigma_2)

    if log_ratio(p.mu_2) < 0 < log_ratio(p.mu_1):  # then they cross between the means
        assert log_ratio(t) == pytest.approx(0, abs=1e-6)
    else:
        assert t == pytest.approx(1 + gap / 2)


def test_slip_log_sigma_1_is_subtracted():
    p = Projection(3.0, 0.5, 0.0, 2.0, 10, 10)
    t = bayes_crossing(p)
    assert np.isclose(papers_root(p, -1), t).any()
    assert not np.isclose(papers_root(p, +1), t).any()


def test_slip_sigma_is_a_standard_deviation_and_has_one_over_n(rng):
    X, y = two_gaussians(500, 3, rng)
    positive, negative = CentredStatistics.from_samples(X[y == 1]), CentredStatistics.from_samples(X[y == 0])
    w = direction(positive, negative)
    from whet.lda.discriminant import OnlineDiscriminant

    p = OnlineDiscriminant(positive, negative, 3, rule=bayes_crossing).projection
    assert p.sigma_1 == pytest.approx((X[y == 1] @ w).std())
    assert p.sigma_1 != pytest.approx(w @ positive.scatter @ w)  # "w^T Sigma_c w", as printed


def test_slip_the_positives_are_the_upper_class(rng):
    X, y = two_gaussians(100, 3, rng)
    positive, negative = CentredStatistics.from_samples(X[y == 1]), CentredStatistics.from_samples(X[y == 0])
    w = direction(positive, negative)
    assert w @ positive.mean > w @ negative.mean


def test_slip_fishers_threshold_needs_a_covariance(rng):
    # With unequal priors, the log prior ratio has to be weighed against distances in units of covariance.
    n1, n2 = 2000, 200
    X = np.concatenate([rng.normal(1, 1, (n1, 1)), rng.normal(-1, 1, (n2, 1))])
    positive, negative = CentredStatistics.from_samples(X[:n1]), CentredStatistics.from_samples(X[n1:])
    w = direction(positive, negative)[0]
    p = Projection(w * positive.m[0], w, w * negative.m[0], w, n1, n2)
    best = np.log(n2 / n1) / 2  # where n1 N(x; 1, 1) = n2 N(x; -1, 1)
    assert fisher(p) / w == pytest.approx(best, abs=0.15)
    shrunk = w / (n1 + n2 - 2)  # S_w^-1 (m_1 - m_2) as printed
    as_printed = shrunk * (positive.m[0] + negative.m[0]) / 2 + np.log(n2 / n1)
    assert as_printed / shrunk < -1000


def test_slip_w0_is_compared_against_and_the_intercept_is_its_negative(rng):
    from whet.estimators import GSLDA

    X, y = two_gaussians(100, 3, rng)
    model = GSLDA(2).fit(X, y)
    scores = model.weak_learners_.transform(X) @ model.coef_
    np.testing.assert_array_equal(model.predict(X) == 1, scores > -model.intercept_)


def test_nearly_equal_variances_are_the_linear_equation():
    off, off_textbook = [], []
    for ratio in 1 + np.array([-1e-9, -1e-12, -1e-15, 0, 1e-15, 3e-13, 1e-9]):
        p = Projection(13.7, 0.71 * ratio, 13.1, 0.71, 10, 10)
        v1, v2 = p.sigma_1**2, p.sigma_2**2
        a, b = -1 / (2 * v1) + 1 / (2 * v2), p.mu_1 / v1 - p.mu_2 / v2
        c = p.mu_2**2 / (2 * v2) + np.log(p.sigma_2) - p.mu_1**2 / (2 * v1) - np.log(p.sigma_1)
        with np.errstate(all="ignore"):
            textbook = (-b + np.sqrt(b * b - 4 * a * c)) / np.float64(2 * a)
        off_textbook.append(abs(textbook - 13.4))
        off.append(abs(bayes_crossing(p) - 13.4))
    assert not max(off_textbook) < 1e-3  # it divides by almost nothing, or by nothing
    assert max(off) < 1e-8


@pytest.mark.parametrize(
    "p",
    [
        Projection(0.1, 1.0, 0.0, 10.0, 10, 10),  # close means, unequal spread: no root between them
        Projection(0.1, 0.0, 0.0, 0.0, 10, 10),
        Projection(0.1, 1e-300, 0.0, 1e-300, 10, 10),
        Projection(0.1, 0.0, 0.0, 1e-300, 10, 10),
        Projection(0.1, 0.0, 0.0, 1.0, 1, 10),  # one sample says nothing of its spread
        Projection(0.1, 1.0, 0.0, 0.0, 10, 1),
    ],
)
def test_without_a_root_between_the_means_or_any_variance_it_is_the_midpoint(p):
    assert bayes_crossing(p) == pytest.approx(0.05)


def crossing(sigma, other, gap, offset, is_positive):
    """The crossing, as its distance from the mean of the class that has `sigma`; all in units of the gap."""
    spreads = (sigma * gap, other * gap) if is_positive else (other * gap, sigma * gap)
    means = offset + gap, float(offset)
    t = bayes_crossing(Projection(means[0], spreads[0], means[1], spreads[1], 10, 10))
    return (means[0] - t if is_positive else t - means[1]) / gap


orders = st.floats(-6, 6).map(lambda x: 10.0**x)


@given(orders, orders, st.sampled_from([0, -3, 7]), st.booleans())
def test_the_crossing_goes_to_the_mean_of_the_class_whose_spread_shrinks(other, gap, offset, is_positive):
    offset *= gap
    widest = min(0.6 * other, 0.1)  # from here on the crossing is between the means, beyond one sigma
    sigmas = [widest * 10 ** (-k / 5) for k in range(120)] + [1e-300, 0.0]
    distances = np.array([crossing(sigma, other, gap, offset, is_positive) for sigma in sigmas])
    assert (distances > 0).all()
    assert (distances < 1).all()
    assert (np.diff(distances) <= 1e-14).all()
    # All but there: densities are taken to be at least a ten-millionth of the gap wide.
    assert distances[-1] <= 1e-6 + 1e-7 / other
    assert distances[-1] == distances[-2]


@settings(max_examples=25)
@given(orders, orders, st.booleans())
def test_the_crossing_has_no_jump_as_a_spread_shrinks(other, gap, is_positive):
    sigmas = min(0.6 * other, 0.1) * 0.98 ** np.arange(2000)  # over 17 orders of magnitude
    distances = [crossing(sigma, other, gap, 0, is_positive) for sigma in sigmas.tolist()]
    assert max(abs(np.diff(distances))) < 0.02


@pytest.mark.parametrize("sigma", [1e-6, 1e-9, 1e-12, 1e-160, 0.0])
def test_a_class_without_spread_is_still_above_or_below_the_crossing(sigma):
    assert 0.99999 < bayes_crossing(Projection(1.0, sigma, 0.0, 1.0, 10, 10)) < 1
    assert 0 < bayes_crossing(Projection(1.0, 1.0, 0.0, sigma, 10, 10)) < 0.00001


def test_detection_rate_is_the_normal_quantile():
    p = Projection(5.0, 2.0, 0.0, 1.0, 10, 10)
    assert detection_rate(0.01)(p) == pytest.approx(norm.ppf(0.01, 5, 2))


def test_asymmetric_is_the_lower_of_the_two():
    rates = Asymmetric(detection_rate(0.01))
    assert rates(Projection(5.0, 1.0, 0.0, 1.0, 10, 10)) == 0.0
    assert rates(Projection(1.0, 1.0, 0.0, 1.0, 10, 10)) == pytest.approx(norm.ppf(0.01, 1, 1))


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_calibrated_rate_keeps_its_share_and_no_more(scores, share):
    scores = np.array(scores) / 10
    p = Projection(1.0, 0.7, -1.0, 1.0, 10, 10)
    t = Rate(calibrate_rate(scores, p, share))(p)
    kept = (scores > t).mean()
    assert kept >= share - 1e-9
    one_higher = np.sort(scores[scores > t])[0]
    assert (scores > one_higher).mean() < share


def test_a_rate_follows_mean_and_spread_and_nothing_else():
    rate = Rate(-1.0)
    assert rate(Projection(2.0, 0.5, 0.0, 1.0, 10, 10)) == 1.5
    assert rate(Projection(3.0, 1.0, 0.0, 9.0, 99, 1)) == 2.0


def test_positives_without_any_spread_still_pass():
    p = Projection(1.0, 0.0, 0.0, 1.0, 3, 3)
    t = Rate(calibrate_rate(np.ones(3), p, 0.9))(p)
    assert 0.99 < t < 1.0
    assert detection_rate(0.01)(p) < 1.0


def test_classes_of_one_score_cannot_be_calibrated():
    with pytest.raises(ValueError, match="one score"):
        calibrate_rate(np.ones(3), Projection(1.0, 0.0, 1.0, 0.0, 3, 3), 0.9)


def test_an_unknown_rule_names_the_known_ones():
    with pytest.raises(ValueError, match=r"'best'.*bayes.*asymmetric"):
        rule("best")
