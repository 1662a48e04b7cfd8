"""Bit rows against rows of booleans. Sizes lie around 64, where a word ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from whet._kernels.response_bits import (
    count_common,
    count_common_rows,
    count_rows,
    pack,
    table_row,
    threshold_row,
    unpack,
    weigh_rows,
)

AROUND_A_WORD = st.sampled_from([1, 2, 63, 64, 65, 127, 128, 129, 200])


def padded(flags):
    return np.concatenate([flags, np.zeros(-len(flags) % 64, dtype=np.uint8)])


def packed(flags):
    flags = padded(flags)
    words = np.empty(len(flags) // 64, dtype=np.uint64)
    pack(flags, words)
    return words


@given(AROUND_A_WORD.flatmap(lambda n: arrays(np.uint8, n, elements=st.integers(0, 1))))
def test_bit_i_of_word_i_over_64_is_sample_i(flags):
    words = packed(flags)
    assert [int(words[i // 64]) >> i % 64 & 1 for i in range(len(flags))] == flags.tolist()
    back = np.empty_like(flags)
    unpack(words, back)
    assert np.array_equal(back, flags)


@given(st.data(), st.integers(1, 4), st.integers(0, 4), st.integers(0, 3))
def test_counts_of_rows_equal_sums_of_booleans(data, rows, first_words, second_words):
    words = first_words + second_words
    flags = data.draw(arrays(np.uint8, (rows, 64 * words), elements=st.integers(0, 1)))
    bits = np.array([packed(row) for row in flags]).reshape(rows, words)
    before, after = np.empty((2, rows), dtype=np.int64)
    split = 64 * first_words
    count_rows(bits, first_words, before, after)
    assert np.array_equal(before, flags[:, :split].sum(1))
    assert np.array_equal(after, flags[:, split:].sum(1))
    count_common_rows(bits, bits[-1], first_words, before, after)
    assert np.array_equal(before, (flags & flags[-1])[:, :split].sum(1))
    assert np.array_equal(after, (flags & flags[-1])[:, split:].sum(1))


@pytest.mark.parametrize("word", [0, 1, 2**63, 2**64 - 1, 0xAAAAAAAAAAAAAAAA, 0x0123456789ABCDEF])
def test_ones_of_a_word(word):
    words = np.array([word], dtype=np.uint64)
    assert count_common(words, words) == word.bit_count()


@given(st.data(), st.integers(1, 4), st.integers(1, 3))
def test_weights_of_ones_equal_a_matrix_product(data, rows, words):
    flags = data.draw(arrays(np.uint8, (rows, 64 * words), elements=st.integers(0, 1)))
    weights = np.random.default_rng(0).normal(size=64 * words)
    sums = np.ones(rows)
    weigh_rows(np.array([packed(row) for row in flags]), weights, sums)
    assert np.allclose(sums, 1 + flags @ weights, rtol=0, atol=1e-12)


def test_whole_weights_are_summed_exactly():
    rng = np.random.default_rng(0)
    flags = rng.integers(0, 2, (50, 640), dtype=np.uint8)
    weights = rng.integers(-1000, 1000, 640).astype(float)
    sums = np.zeros(50)
    weigh_rows(np.array([packed(row) for row in flags]), weights, sums)
    assert np.array_equal(sums, flags @ weights)


@pytest.mark.parametrize("n_positive", [1, 63, 64, 65, 128])
@pytest.mark.parametrize("n_negative", [1, 63, 64, 65])
@pytest.mark.parametrize("flip", [False, True])
def test_negatives_start_a_word_and_padding_stays_zero(n_positive, n_negative, flip):
    rng = np.random.default_rng(0)
    values = rng.integers(-4, 5, n_positive + n_negative).astype(np.float32) / 4  # some lie on the threshold
    above = (values > 0.25) ^ flip
    expected = np.concatenate([padded(above[:n_positive]), padded(above[n_positive:])])
    words = np.empty(len(expected) // 64, dtype=np.uint64)
    threshold_row(values, np.float32(0.25), flip, n_positive, np.zeros_like(expected), words)
    assert np.array_equal(words, packed(expected))

    codes, table = (values * 50).astype(np.int8).view(np.uint8), rng.integers(0, 2, 256, dtype=np.uint8)
    expected = np.concatenate([padded(table[codes[:n_positive]]), padded(table[codes[n_positive:]])])
    table_row(codes, table, n_positive, np.zeros_like(expected), words)
    assert np.array_equal(words, packed(expected))
