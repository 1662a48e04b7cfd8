"""What commands print: progress, results, warnings, numbers in words."""

from __future__ import annotations

import atexit
import gc
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import typer

from whet.cli.options import CTRL_C, ExitCode


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
    from whet._kernels.jit import is_compiled
    from whet._kernels.scan import scan_windows

    if not quiet and not is_compiled(scan_windows):
        typer.echo("Compiling for this CPU: the first run takes up to a minute longer.", err=True)


@contextmanager
def progress_bar(title: str, *, hidden: bool = False) -> Iterator[Callable[[float], None]]:
    """A bar with the time left; yields a function that takes the share done, from 0 to 1.

    One that is hidden, or not on a terminal, shows nothing and costs nothing, not even the import of what draws it.
    """
    if hidden or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Standard output is not for rich to redirect: that would send it to standard error.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def count(n: int, one: str, many: str | None = None) -> str:
    """A number with its noun.

    >>> count(1, "box", "boxes"), count(1200, "image")
    ('1 box', '1,200 images')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def number(value: float) -> float | None:
    """A finite number; else None, as JSON has no other.

    >>> number(float("nan")), number(0.5)
    (None, 0.5)
    """
    return value if isfinite(value) else None


def rounded(value: float | None) -> str:
    """To three places, or that there is none.

    >>> rounded(0.12345), rounded(None)
    ('0.123', 'none')
    """
    return "none" if value is None or not isfinite(value) else f"{value:.3f}"


MOST_NAMED = 10


def write_pieces(pieces: Iterable[str], out: Path | None) -> None:
    """Pieces of a text to a file, whole or not at all, or to standard output as they come."""
    if out is None:
        for piece in pieces:
            typer.echo(piece, nl=False)
        return
    from whet.io.files import write_atomically

    write_atomically(out, "".join(pieces).encode(errors="surrogateescape"))  # names of files may be any bytes


def exit_if_skipped(errors: Sequence[object], n: int) -> None:
    """Name what was skipped of `n` images, and end with an exit code that tells: some, or all of them."""
    if not errors:
        return
    typer.echo(f"whet: skipped {len(errors)} of {n} images:", err=True)
    for error in errors[:MOST_NAMED]:
        typer.echo(f"  {error}", err=True)
    if len(errors) > MOST_NAMED:
        typer.echo(f"  and {len(errors) - MOST_NAMED} more", err=True)
    raise typer.Exit(ExitCode.SOME_SKIPPED if len(errors) < n else ExitCode.FAILED)


@contextmanager
def warnings_as_lines(console: Any) -> Iterator[list[Warning | str]]:  # noqa: ANN401 - rich is imported when needed
    """Print warnings to a rich console as they come; yields a list of those that came."""
    told: list[Warning | str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")

        def show(message: Warning | str, *_: object, **__: object) -> None:
            told.append(message)
            console.print(f"whet: {message}", highlight=False, markup=False, soft_wrap=True)

        warnings.showwarning = show
        yield told


T = TypeVar("T")


@contextmanager
def nothing_changed_on_ctrl_c() -> Iterator[None]:
    """Say on Ctrl-C that nothing was changed, and end with its exit code."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("whet: stopped; nothing was changed", err=True)
        raise typer.Exit(CTRL_C) from None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let no Ctrl-C come between two files that belong together: for the moment that writing them takes."""
    before = signal.getsignal(signal.SIGINT)
    if before is None:  # a program around Python has set it: it raises nothing here, and could not be put back
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ctrl_c_between() -> Iterator[Callable[[Iterable[T]], Iterator[T]]]:
    """Yields a way to go through items of which Ctrl-C ends the waiting, but no work on one of them.

    What is done with an item is done to its end, and so is all that follows the last.
    """
    before = signal.getsignal(signal.SIGINT)
    if before in (None, signal.SIG_IGN):  # as above; or it is to be ignored, as nohup says
        yield iter
        return
    is_waiting = is_asked = False

    def asked(*_: object) -> None:
        nonlocal is_asked
        is_asked = True
        if is_waiting:
            raise KeyboardInterrupt

    def between(items: Iterable[T]) -> Iterator[T]:
        nonlocal is_waiting
        iterator = iter(items)
        while True:
            is_waiting = True
            try:
                if is_asked:
                    raise KeyboardInterrupt
                item = next(iterator)
            except StopIteration:
                return
            finally:
                is_waiting = False
            yield item

    signal.signal(signal.SIGINT, asked)
    try:
        yield between
    finally:
        signal.signal(signal.SIGINT, before)
