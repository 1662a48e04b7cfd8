"""What kernels are written with: the one way in which they are compiled and kept, and vectors of eight numbers.

A cache saves a minute; it must never cost a result. Where numba's cache fails (a home directory and site-packages that
are read-only, a full disk, a file that is empty, cut short or altered), kernels are compiled as if there were none.

`whet._kernels.llvm` implements the vectors on numba's internals. Kernels that use them have a scalar version that
computes the same bytes more slowly. It is chosen if those internals cannot be imported, or if the environment variable
`WHET_SIMD` is 0.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import register_jitable
from numpy.typing import NDArray

from whet.arrays import Int64s

# --- Vectors ----------------------------------------------------------------------------------------------------------

SIMD_WIDTH = 8


class Vector(Protocol):
    """Eight numbers of one type, or a mask, as kernels see them."""

    def __add__(self, other: "Vector") -> "Vector": ...
    def __sub__(self, other: "Vector") -> "Vector": ...
    def __mul__(self, other: "Vector") -> "Vector": ...
    def __truediv__(self, other: "Vector") -> "Vector": ...
    def __and__(self, other: "Vector") -> "Vector": ...
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
weighted_corners: Callable[[Address, int, Address, int, int], Vector] = _operation("weighted_corners")
has_code: Callable[[Address, int, Address, int, int], Vector] = _operation("has_code")


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


def _next(counter: Int64s) -> int:
    """Not atomic: a kernel that calls it holds the interpreter lock."""
    value = counter[0]
    counter[0] += 1
    return int(value)


popcount = cast(Callable[[np.uint64], np.uint64], _operation("popcount") or register_jitable(_count_ones))
as_float = cast(Callable[[Any], float], _operation("as_float") or register_jitable(_to_float))
take = cast(Callable[[Int64s], int], _operation("take") or register_jitable(_next))


# --- Compilation ------------------------------------------------------------------------------------------------------


def _load_numba_without_scipy() -> None:
    """Load numba's array functions without SciPy's linear algebra: 0.22 s of a process that detects in one image.

    numba imports `scipy.linalg` only to find out if it is installed. It is, since whet depends on it. Calls of BLAS in
    other kernels still import it.
    """
    try:
        from numba.np import linalg

        ensure_blas = linalg.ensure_blas
    except (ImportError, AttributeError):
        return
    linalg.ensure_blas = lambda: None
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        linalg.ensure_blas = ensure_blas


_load_numba_without_scipy()

P = ParamSpec("P")
R = TypeVar("R")
_njit: Any = numba.njit  # its types do not know all of its options
DIGEST = hashlib.sha256().digest_size


class _CheckedFile(IndexDataCacheFile):
    """Machine code in files that begin with the hash of the rest: one altered byte would crash the process, or lie."""

    def _save_data(self, name: str, data: object) -> None:
        code = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(hashlib.sha256(code).digest() + code)

    def _load_data(self, name: str) -> object:
        import pickle

        stored = Path(self._data_path(name)).read_bytes()
        if hashlib.sha256(stored[DIGEST:]).digest() != stored[:DIGEST]:
            raise ValueError(f"{name} does not have its hash")
        return pickle.loads(stored[DIGEST:])


@cache
def _sources() -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of the files that kernels are made of: a kernel contains what it calls from other files."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


class _ForgivingCache(FunctionCache):
    """numba's cache of a kernel; where it cannot be read it is begun anew, where it cannot be written it is not."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file.__class__ = _CheckedFile
        self._cache_file._source_stamp = self._cache_file._source_stamp, _sources()

    def load_overload(self, sig: Any, target_context: Any) -> Any:  # noqa: ANN401 - numba's own
        """The compiled kernel for a signature, or None."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # a damaged pickle raises anything
            logging.getLogger("whet").debug("compiling %s again: %s", self._name, error)
            try:
                self.flush()
            except OSError as fault:
                _warn_once(self.cache_path, fault)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:  # noqa: ANN401
        """Keep the compiled kernel, if possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _warn_once(self.cache_path, error)


_warned: list[object] = []


def _warn_once(place: str, reason: object) -> None:
    if _warned:
        return
    _warned.append(reason)
    logging.getLogger("whet").warning(
        "whet: compiled code cannot be kept%s (%s); every run takes a minute longer. Free disk space, or set "
        "NUMBA_CACHE_DIR to a directory that can be written",
        f" in {place}" * bool(place),
        reason,
    )


def kernel(function: Callable[P, R], *, nogil: bool = True, inline: bool = False) -> Callable[P, R]:
    """Compile a loop over arrays on its first call, and keep the machine code on disk if that is possible.

    No `parallel` (its thread layers are unsafe under a server's threads) and no `fastmath` (the order of
    the additions is part of the result: equal inputs give equal bits on any number of threads).
    """
    if not HAS_SIMD:  # files of their own: the cache does not know which versions a kernel calls
        function.__qualname__ += "_scalar"
    options = {"inline": "always"} if inline else {}
    compiled: Any = _njit(nogil=nogil, error_model="numpy", no_cfunc_wrapper=True, **options)(function)
    try:
        compiled._cache = _ForgivingCache(function)
    except (RuntimeError, OSError) as error:  # numba found no directory that it can write to
        _warn_once("", str(error).partition(": ")[2] or error)
    return cast(Callable[P, R], compiled)


def part(function: Callable[P, R]) -> Callable[P, R]:
    """A kernel that Python calls, and that others are compiled with: as a call, it would be compiled twice."""
    return kernel(function, inline=True)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A part of a kernel that is compiled into each place where it is called: a call would cost more than the part.

    Python cannot call it: functions for that would take a tenth of the time in which a kernel is compiled.
    """
    options = {"inline": "always", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Callable[P, R], _njit(nogil=True, error_model="numpy", **options)(function))


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether the cache on disk has machine code of a kernel."""
    place = getattr(getattr(function, "_cache", None), "cache_path", None)
    if place is None:  # numba's NullCache has none either
        return False
    name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
    return any(Path(place).glob(f"{name}-*.nbi"))
