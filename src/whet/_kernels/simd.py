"""Vectors of eight numbers in kernels, and whether there are any.

`whet._kernels.llvm` implements them on numba's internals. Kernels that use them have a scalar version that computes
the same bytes more slowly. It is chosen if those internals cannot be imported, or if the environment variable
`WHET_SIMD` is 0.
"""

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

SIMD_WIDTH = 8


class Vector(Protocol):
    """Eight numbers of one type, or a mask, as kernels see them."""

    def __add__(self, other: "Vector") -> "Vector": ...
    def __sub__(self, other: "Vector") -> "Vector": ...
    def __mul__(self, other: "Vector") -> "Vector": ...
    def __truediv__(self, other: "Vector") -> "Vector": ...
    def __and__(self, other: "Vector") -> "Vector": ...
    def __or__(self, other: "Vector") -> "Vector": ...
    def __lt__(self, other: "Vector") -> "Vector": ...
    def __ge__(self, other: "Vector") -> "Vector": ...
    def __rshift__(self, other: "Vector") -> "Vector": ...


class Address(Protocol):
    """Where the entries of an array begin. The array has to outlive it.

    numba counts references to arrays that are passed on; at a stage a call, that took a third of the time.
    """


def _import_llvm() -> ModuleType | None:
    if os.environ.get("WHET_SIMD") == "0":
        return None
    try:
        from whet._kernels import llvm
    except (ImportError, AttributeError):  # another version of numba or llvmlite
        return None
    return llvm


_llvm = _import_llvm()
HAS_SIMD = _llvm is not None


def _operation(name: str) -> Any:  # noqa: ANN401 - numba's functions have no types
    return None if _llvm is None else getattr(_llvm, name)


# It keeps nothing alive: only arguments of a kernel outlast what is done with their addresses.
address_of: Callable[[NDArray[Any]], Address] = _operation("address_of")
load_scalar: Callable[[Address, int], int] = _operation("load_scalar")
load_pair: Callable[[Address, int], int] = _operation("load_pair")
load: Callable[[Address, int], Vector] = _operation("load")
load_bytes: Callable[[Address, int], Vector] = _operation("load_bytes")
store: Callable[[Address, int, Vector], None] = _operation("store")
broadcast: Callable[[int | float | np.number[Any]], Vector] = _operation("broadcast")
broadcast_last: Callable[[Vector, Vector], Vector] = _operation("broadcast_last")
select: Callable[[Vector, Vector, Vector], Vector] = _operation("select")
mask_bits: Callable[[Vector], int] = _operation("mask_bits")
square_root: Callable[[Vector], Vector] = _operation("square_root")
as_floats: Callable[[Vector], Vector] = _operation("as_floats")
to_floats: Callable[[Vector], Vector] = _operation("to_floats")
to_doubles: Callable[[Vector], Vector] = _operation("to_doubles")
rounded: Callable[[Vector], Vector] = _operation("rounded")
widened: Callable[[Vector], Vector] = _operation("widened")
store_bytes: Callable[[Address, int, Vector], None] = _operation("store_bytes")
transpose_bytes: Callable[[Address, int, int, Address, int, int], None] = _operation("transpose_bytes")
prefix_sum: Callable[[Vector], Vector] = _operation("prefix_sum")
evens: Callable[[Vector, Vector], Vector] = _operation("evens")
odds: Callable[[Vector, Vector], Vector] = _operation("odds")


_PAIRS, _FOURS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_BYTES, _ONES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


def _count_ones(word: np.uint64) -> np.uint64:
    """Ones of each two bits, four bits and eight bits, then the sum of the bytes."""
    word = word - ((word >> np.uint64(1)) & _PAIRS)
    word = (word & _FOURS) + ((word >> np.uint64(2)) & _FOURS)
    word = (word + (word >> np.uint64(4))) & _BYTES
    return np.uint64((word * _ONES) >> np.uint64(56))


def _to_float(number: Any) -> float:  # noqa: ANN401
    return float(number)


def _next(counter: NDArray[np.int64]) -> int:
    """Not atomic: a kernel that calls it holds the interpreter lock."""
    value = counter[0]
    counter[0] += 1
    return int(value)


popcount = cast(Callable[[np.uint64], np.uint64], _operation("popcount") or register_jitable(_count_ones))
as_float = cast(Callable[[Any], float], _operation("as_float") or register_jitable(_to_float))
take = cast(Callable[[NDArray[np.int64]], int], _operation("take") or register_jitable(_next))
