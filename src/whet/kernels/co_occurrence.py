"""How often each two responses come together, over a block of samples."""

from whet.kernels.bits import Counts, Words, count_common
from whet.kernels.jit import kernel


@kernel
def add_co_occurrences(rows: Words, times: int, C: Counts) -> None:
    """Add `times` the ones that every two bit rows (P, words) share to C (P, P)."""
    for i in range(rows.shape[0]):
        for j in range(i + 1):
            common = times * count_common(rows[i], rows[j])
            C[i, j] += common
            if j < i:
                C[j, i] += common
