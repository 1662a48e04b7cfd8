"""The one way in which kernels are compiled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba

from whet._kernels.simd import HAS_SIMD


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


def kernel(function: Callable[P, R], *, nogil: bool = True) -> Callable[P, R]:
    """Compile a loop over arrays on its first call, and keep the machine code on disk.

    No `parallel` (its thread layers are unsafe under a server's threads) and no `fastmath` (the order of
    the additions is part of the result: equal inputs give equal bits on any number of threads).
    """
    if not HAS_SIMD:  # files of their own: the cache does not know which versions a kernel calls
        function.__qualname__ += "_scalar"
    return cast(Callable[P, R], numba.njit(nogil=nogil, cache=True, error_model="numpy")(function))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A part of a kernel that is compiled into each place where it is called: a call would cost more than the part."""
    return cast(Callable[P, R], numba.njit(nogil=True, error_model="numpy", forceinline=True)(function))


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether the cache on disk has machine code of a kernel."""
    cache = getattr(function, "_cache", None)
    if cache is None:
        return False
    name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
    return any(Path(cache.cache_path).glob(f"{name}-*.nbi"))
