"""The direction that separates two classes best: Fisher's [FDA], or Wu's asymmetric one [LAC]."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whet.errors import SingularScatterError
from whet.kernels import cholesky
from whet.lda.class_statistics import ClassStatistics

Criterion = Literal["fda", "lac"]

# In units of scatter, so a prior worth 80 samples of independent fair coins (each scatters 1/4): it steadies few
# samples and fades as more come. docs/decisions.md tells how it was chosen.
DEFAULT_RIDGE = 20.0


def regularised_scatter(
    positive: ClassStatistics, negative: ClassStatistics, criterion: Criterion, ridge: float
) -> NDArray[np.float64]:
    """A = S_1 + S_2 + ridge I for FDA, S_1 + ridge I for LAC; (P, P), in units of scatter (not covariance)."""
    return regularised(positive.scatter, negative.scatter, criterion, ridge)


def regularised(
    positive: NDArray[np.float64], negative: NDArray[np.float64], criterion: Criterion, ridge: float
) -> NDArray[np.float64]:
    """The same, of scatters (P, P) that are known already."""
    A = positive + negative if criterion == "fda" else positive.copy()
    np.einsum("ii->i", A)[:] += ridge  # its diagonal, in whatever order it lies in memory
    return A


def degrees_of_freedom(n_positive: float, n_negative: float, criterion: Criterion) -> float:
    """What scatter has to be divided by to be a covariance, at least 1.

    As a factor of w it keeps scores from shrinking as samples come, and makes Fisher's prior term right.
    """
    return max(n_positive + n_negative - 2 if criterion == "fda" else n_positive - 1, 1)


def factorise(A: NDArray[np.float64]) -> NDArray[np.float64]:
    """Upper Cholesky factor of the regularised scatter."""
    U, failed = cholesky.factorise(A)
    if failed >= 0:
        raise SingularScatterError(
            f"the scatter matrix ({len(A)} x {len(A)}) is singular at row {failed}: two weak learners respond "
            "alike, or one never changes; use a larger ridge"
        )
    return U


def direction(
    positive: ClassStatistics, negative: ClassStatistics, criterion: Criterion = "fda", ridge: float = 0.0
) -> NDArray[np.float64]:
    """Direction w = (n_1 + n_2 - 2) A^-1 (m_1 - m_2), equation [FDA], or its LAC form [LAC] with n_1 - 1.

    >>> from whet.lda.class_statistics import CentredStatistics
    >>> ones = CentredStatistics.of(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 1.0], [2.0, -1.0]]))
    >>> zeros = CentredStatistics.of(np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    >>> direction(ones, zeros)
    array([3., 0.])
    """
    U = factorise(regularised_scatter(positive, negative, criterion, ridge))
    freedom = degrees_of_freedom(positive.n, negative.n, criterion)
    return freedom * cholesky.solve(U, positive.mean - negative.mean)
