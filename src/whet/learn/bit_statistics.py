"""Class statistics of selected weak learners, counted on bit rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whet.features.response_matrix import BitResponses
from whet.kernels.co_occurrence import add_co_occurrences
from whet.lda.class_statistics import BinaryStatistics


def class_statistics(responses: BitResponses, indices: NDArray[np.intp]) -> tuple[BinaryStatistics, BinaryStatistics]:
    """Statistics of the learners at these indices, over the positives and over the negatives.

    >>> bits = BitResponses.of(np.array([[1, 0, 1], [1, 1, 0]], dtype=bool), np.array([True, True, False]))
    >>> positive, negative = class_statistics(bits, np.array([1, 0]))
    >>> positive.s, positive.C.tolist(), negative.n
    (array([2, 1]), [[2, 1], [1, 1]], 1)
    """
    layout, rows = responses.layout, responses.bits[indices]
    words = slice(0, layout.split), slice(layout.split, None)
    counts = layout.n_positive, layout.n_negative
    return _statistics(rows[:, words[0]], counts[0]), _statistics(rows[:, words[1]], counts[1])


def _statistics(rows: NDArray[np.uint64], n: int) -> BinaryStatistics:
    C = np.zeros((len(rows), len(rows)), dtype=np.int64)
    add_co_occurrences(np.ascontiguousarray(rows), 1, C)
    return BinaryStatistics(n, np.diagonal(C).copy(), C)
