import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import norm

from whet.lda.discriminant import probability
from whet.lda.thresholds import Projection, bayes_crossing

scores = np.linspace(-30, 30, 601)
moments = st.tuples(st.floats(0, 5), st.floats(0, 4), st.floats(-5, 0), st.floats(0, 4))


@given(moments, st.floats(-20, 20))
@example((1.0, 1.2e-161, 0.0, 1.0), 0.0)
@example((1.0, 1.0, 0.0, 1e-160), 0.5)
@example((1e-300, 1e-162, 0.0, 1.0), 0.0)
@example((0.0, 0.0, -1.0, 1.0), -5.960464477539063e-08)
@example((1e-12, 0.2602050703204562, 0.0, 2.4994537135446397), -0.65625)
def test_monotone_and_agrees_with_the_threshold_wherever_that_lies(m, threshold):
    p = probability(scores, Projection(*m, 10, 20), threshold)
    assert np.isfinite(p).all()
    assert (np.diff(p) >= 0).all()
    assert (p[scores > threshold + 1e-9] >= 0.5).all()
    assert (p[scores < threshold - 1e-9] <= 0.5).all()


@given(
    st.floats(-20, -1).map(lambda x: 10.0**x),
    st.floats(-2, 2).map(lambda x: 10.0**x),
    st.sampled_from([0.0, 1000.0]),
    st.sampled_from([None, 0.0, 0.25, 0.75]),
    st.booleans(),
)
@example(1e-12, 1.0, 0.0, None, True)
@example(1e-12, 1.0, 0.0, None, False)
@example(1e-12, 1.0, 1000.0, 0.0, False)
def test_no_jump_as_a_spread_shrinks_to_nothing(sigma, other, offset, share, is_positive):
    def posterior(sigma):
        spreads = (sigma, other) if is_positive else (other, sigma)
        p = Projection(offset + 1, spreads[0], offset, spreads[1], 10, 20)
        return probability(offset + places, p, bayes_crossing(p) if share is None else offset + share)

    places = np.linspace(-1, 2, 31)
    here, there, least, none = (posterior(width) for width in (sigma, (1 - 1e-6) * sigma, 1e-12, 0.0))
    np.testing.assert_allclose(here, there, atol=5e-3)
    np.testing.assert_allclose(least, none, atol=1e-9)


@given(st.floats(-20, 1).map(lambda x: 10.0**x), st.floats(-20, 1).map(lambda x: 10.0**x), st.floats(-1, 2))
def test_it_is_one_half_at_the_threshold_however_narrow_the_classes(sigma_1, sigma_2, threshold):
    p = Projection(1.0, sigma_1, 0.0, sigma_2, 10, 20)
    for t in (threshold, bayes_crossing(p)):
        at, below, above = probability(np.array([t, t - 1e-3, t + 1e-3]), p, t)
        assert at == 0.5
        assert below <= 0.5 <= above


def test_equal_variances_give_the_posterior_of_two_gaussians():
    p = Projection(1.0, 0.8, -1.0, 0.8, 10, 10)
    ones, zeros = norm.pdf(scores, 1, 0.8), norm.pdf(scores, -1, 0.8)
    with np.errstate(invalid="ignore"):
        expected = ones / (ones + zeros)
    known = np.isfinite(expected)
    np.testing.assert_allclose(probability(scores, p, bayes_crossing(p))[known], expected[known], atol=1e-12)


@pytest.mark.parametrize(("sigma_1", "sigma_2"), [(2.0, 0.5), (0.5, 2.0)])
def test_beyond_the_extreme_the_posterior_is_held(sigma_1, sigma_2):
    p = Projection(1.0, sigma_1, -1.0, sigma_2, 10, 10)
    held = probability(np.array([-30.0, -20.0, 20.0, 30.0]), p, bayes_crossing(p))
    assert held[0] == held[1] if sigma_1 > sigma_2 else held[2] == held[3]
