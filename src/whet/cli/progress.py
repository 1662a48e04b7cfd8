"""Progress bars, on standard error, so that standard output stays clean for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
