import numpy as np
from hypothesis import given
from tests.samples import binary_samples

from whet._kernels.lda_algebra import binary_scatter
from whet.lda.statistics import BinaryStatistics


@given(samples=binary_samples())
def test_scatter_is_numpys_to_the_last_bit(samples):
    seen = BinaryStatistics.from_samples(*samples)
    s = seen.s.astype(np.float64)
    np.testing.assert_array_equal(binary_scatter(seen.n, seen.s, seen.C), seen.C - np.outer(s, s) / seen.n)


def test_sums_whose_square_is_no_int64_scatter_too():
    n = 2**40
    scatter = binary_scatter(n, np.array([n // 2]), np.array([[n // 2]]))
    np.testing.assert_array_equal(scatter, [[n / 4]])
