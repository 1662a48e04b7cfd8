"""What commands do before they work: start quickly, and say so when that takes longer this once."""

from __future__ import annotations

import sys

import typer


def start(*, quiet: bool = False) -> None:
    """Load numba without SciPy's linear algebra, and tell before a first run that it compiles.

    numba imports scipy.linalg to see whether `np.cov` and the like could be compiled, which no kernel of whet calls:
    0.2 s of the 1.5 that a command takes. It is hidden for that moment only, and only in a process of our own.
    """
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
