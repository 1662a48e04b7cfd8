"""What commands do before they work: start quickly, and say so when that takes longer this once."""

from __future__ import annotations

import atexit
import gc
import sys

import typer


def start(*, quiet: bool = False) -> None:
    """Load numba without SciPy's linear algebra, end without looking for garbage, and tell before a first run compiles.

    numba imports scipy.linalg to see whether `np.cov` and the like could be compiled, which no kernel of whet calls:
    0.2 s of the 1.2 that a command takes. It is hidden for that moment only, and only in a process of our own.

    At its end Python looks through all objects for cycles that nobody holds, 0.4 s for the half million that numba
    makes. Frozen ones are left out; the system takes back the memory of all of them a moment later.
    """
    atexit.register(gc.freeze)
    blas = "scipy.linalg.cython_blas"
    if blas not in sys.modules:
        sys.modules[blas] = None  # type: ignore[assignment]  # how Python marks what cannot be imported
        try:
            import numba.np.arraymath  # noqa: F401
        finally:
            del sys.modules[blas]
    from whet.kernels.jit import is_compiled
    from whet.kernels.scan import scan_windows

    if not quiet and not is_compiled(scan_windows):
        typer.echo("Compiling for this CPU: the first run takes up to a minute longer.", err=True)
