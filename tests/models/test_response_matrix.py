"""Bit responses against matrices of booleans."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from whet.models.gslda.candidates import BitResponses

AROUND_A_WORD = st.sampled_from([1, 2, 63, 64, 65, 129])


@st.composite
def labelled_responses(draw):
    labels = [True] * draw(AROUND_A_WORD) + [False] * draw(AROUND_A_WORD)
    labels = np.array(draw(st.permutations(labels)))
    return draw(arrays(np.bool_, (draw(st.integers(1, 5)), len(labels)))), labels


@given(labelled_responses())
def test_counts_are_those_of_each_class(case):
    responses, labels = case
    bits = BitResponses.from_responses(responses, labels)
    assert np.array_equal(bits.counts(), [responses[:, labels].sum(1), responses[:, ~labels].sum(1)])
    for j, row in enumerate(responses):
        both = responses & row
        assert np.array_equal(bits.count_common(bits.bits[j]), [both[:, labels].sum(1), both[:, ~labels].sum(1)])
        assert np.array_equal(bits.row(j), row)


@given(labelled_responses())
def test_weighted_errors_are_weights_of_mistakes(case):
    responses, labels = case
    weights = np.random.default_rng(0).random(len(labels))
    expected = ((responses != labels) * weights).sum(1)
    assert np.allclose(BitResponses.from_responses(responses, labels).weighted_errors(weights), expected, rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_do_not_depend_on_threads(threads):
    rng = np.random.default_rng(0)
    responses, labels = rng.random((5000, 90)) < 0.5, np.arange(90) % 3 == 0
    bits = BitResponses.from_responses(responses, labels)
    other = BitResponses(bits.bits, bits.layout, threads)
    weights = rng.random(90)
    both = responses & responses[4999]
    assert np.array_equal(other.count_common(bits.bits[4999]), [both[:, labels].sum(1), both[:, ~labels].sum(1)])
    assert other.weighted_errors(weights).tobytes() == bits.weighted_errors(weights).tobytes()


def test_rows_can_be_taken():
    rng = np.random.default_rng(0)
    responses, labels = rng.random((20, 70)) < 0.5, np.arange(70) < 30
    some = np.array([7, 3])
    taken = BitResponses.from_responses(responses, labels).take(some)
    assert np.array_equal([taken.row(0), taken.row(1)], responses[some])
