"""Samples that tests make for themselves."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from whet._kernels.lda_algebra import solve
from whet.lda.discriminant import degrees_of_freedom, factorise, regularised_scatter


def correlated_stumps(n, size, rng, shift=0.6, n_causes=8):
    """Binary responses (n, size) driven by few common causes, and labels: correlated, as stumps on images are."""
    y = rng.random(n) < 0.5
    causes = rng.normal(size=(n, n_causes)) + shift * y[:, None]
    values = causes @ rng.normal(size=(n_causes, size)) + rng.normal(size=(n, size))
    return (values > rng.normal(size=size)).astype(np.uint8), y


def two_gaussians(n, size, rng, gap=1.5):
    """Real samples (n, size) and labels (n,) of both classes."""
    y = np.arange(n) % 2
    return rng.normal(size=(n, size)) + gap * y[:, None] / np.sqrt(1 + np.arange(size)), y


def direction(positive, negative, criterion="fda", ridge=0.0):
    """w = (n_1 + n_2 - 2) A^-1 (m_1 - m_2), equation [FDA], or its LAC form [LAC] with n_1 - 1."""
    U = factorise(regularised_scatter(positive, negative, criterion, ridge))
    return degrees_of_freedom(positive.n, negative.n, criterion) * solve(U, positive.mean - negative.mean)


def cumulated(image):
    """Sums over all pixels above and to the left, with a row and a column of zeros in front."""
    sums = np.zeros(np.add(image.shape, 1), dtype=np.uint64)
    sums[1:, 1:] = image.astype(np.uint64).cumsum(0).cumsum(1)
    return sums


@st.composite
def binary_samples(draw, max_size=8, max_samples=24):
    """Binary matrix with at least two rows, and whole weights from 1 to 5."""
    n = draw(st.integers(2, max_samples))
    size = draw(st.integers(1, max_size))
    X = draw(hnp.arrays(np.uint8, (n, size), elements=st.integers(0, 1)))
    weights = draw(hnp.arrays(np.int64, n, elements=st.integers(1, 5)))
    return X, weights


def brighter_on_the_right(n, window, seed):
    """Patches (n, height, width) of an object that is easy to detect: its right half is brighter."""
    made = np.random.default_rng(seed).integers(0, 170, (n, *window), dtype=np.uint8)
    made[:, :, window[1] // 2 :] += 60
    return made
