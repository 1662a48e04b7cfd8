"""Progress bars, on standard error, so that standard output stays clean for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None]]:
    """A bar with the time left; yields a function that takes the share done, from 0 to 1."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def tell_if_compiling() -> None:
    """Say so before the first run, which compiles for some seconds."""
    from rich.console import Console

    from whet.kernels.jit import is_compiled
    from whet.kernels.rank_one import binary_step

    if not is_compiled(binary_step):
        Console(stderr=True).print("Compiling for this CPU: the first run takes some seconds longer.")
