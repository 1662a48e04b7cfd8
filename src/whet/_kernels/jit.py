"""The one way in which kernels are compiled, and in which their machine code is kept.

A cache saves a minute; it must never cost a result. Where numba's cache fails (a home directory and site-packages that
are read-only, a full disk, a file that is empty, cut short or altered), kernels are compiled as if there were none.
"""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

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


class _ForgivingCache(FunctionCache):
    """numba's cache of a kernel; where it cannot be read it is begun anew, where it cannot be written it is not."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file.__class__ = _CheckedFile

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


def kernel(function: Callable[P, R], *, nogil: bool = True) -> Callable[P, R]:
    """Compile a loop over arrays on its first call, and keep the machine code on disk if that is possible.

    No `parallel` (its thread layers are unsafe under a server's threads) and no `fastmath` (the order of
    the additions is part of the result: equal inputs give equal bits on any number of threads).
    """
    if not HAS_SIMD:  # files of their own: the cache does not know which versions a kernel calls
        function.__qualname__ += "_scalar"
    compiled: Any = numba.njit(nogil=nogil, error_model="numpy")(function)
    try:
        compiled._cache = _ForgivingCache(function)
    except (RuntimeError, OSError) as error:  # numba found no directory that it can write to
        _warn_once("", str(error).partition(": ")[2] or error)
    return cast(Callable[P, R], compiled)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A part of a kernel that is compiled into each place where it is called: a call would cost more than the part."""
    return cast(Callable[P, R], numba.njit(nogil=True, error_model="numpy", forceinline=True)(function))


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether the cache on disk has machine code of a kernel."""
    place = getattr(getattr(function, "_cache", None), "cache_path", None)
    if place is None:  # numba's NullCache has none either
        return False
    name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
    return any(Path(place).glob(f"{name}-*.nbi"))
