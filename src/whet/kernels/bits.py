"""Responses as bit rows: bit i of word i // 64 is sample i, and a row ends in zeros up to a whole word."""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from whet.kernels.jit import kernel

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]

BITS = 64
# Times eight bytes of 0 or 1, this gathers their bits in the highest byte, first byte lowest.
GATHER = np.uint64(0x0102040810204080)


@intrinsic
def popcount(typing_context: Any, word: Any) -> Any:  # noqa: ANN401, ARG001
    """The number of ones in a word: the processor's own instruction, or vectors of them in a loop."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401, ARG001
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@kernel
def pack(flags: NDArray[np.uint8], words: Words) -> None:
    """Pack `flags` of 0 or 1 (a multiple of 64) into `words`. Eight at a time, in little-endian order."""
    eights = flags.view(np.uint64)
    for w in range(words.size):
        word = np.uint64(0)
        for k in range(8):
            byte = (eights[8 * w + k] * GATHER) >> np.uint64(56)
            word |= byte << np.uint64(8 * k)
        words[w] = word


@kernel
def unpack(words: Words, flags: NDArray[np.uint8]) -> None:
    """Spread the first bits of `words` over `flags`, the inverse of `pack` for any number of flags."""
    for i in range(flags.size):
        flags[i] = (words[i // BITS] >> np.uint64(i % BITS)) & np.uint64(1)


@kernel
def count_common(left: Words, right: Words) -> np.int64:
    """The number of ones that two rows share."""
    total = np.uint64(0)
    for w in range(left.size):
        total += popcount(left[w] & right[w])  # type: ignore[call-arg]  # numba adds the context
    return np.int64(total)


@kernel
def count_rows(bits: Words, split: int, before: Counts, after: Counts) -> None:
    """Count the ones of every row of `bits` (rows, words): before word `split`, and from there on."""
    for i in range(bits.shape[0]):
        row = bits[i]
        before[i] = count_common(row[:split], row[:split])
        after[i] = count_common(row[split:], row[split:])


@kernel
def count_common_rows(bits: Words, row: Words, split: int, before: Counts, after: Counts) -> None:
    """Count, as `count_rows` does, the ones that every row of `bits` shares with `row`."""
    first, second = row[:split], row[split:]
    for i in range(bits.shape[0]):
        other = bits[i]
        before[i] = count_common(other[:split], first)
        after[i] = count_common(other[split:], second)
