"""The one place where work is spread over threads.

Kernels release Python's lock, so threads do. Each block of work writes to rows of its own, in an order of its
own: results do not depend on how many threads there were.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def available_threads() -> int:
    """The processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def blocks(n: int, size: int) -> list[slice]:
    """Cut `n` rows into slices of at most `size`.

    >>> blocks(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def for_each_block(work: Callable[[slice], None], n: int, size: int, threads: int | None = None) -> None:
    """Call `work` with every block of `n` rows; an error in one block is raised here.

    The threads live as long as the call: idle ones would not survive a fork.

    >>> seen = [0] * 10
    >>> def mark(rows):
    ...     seen[rows] = [1] * (rows.stop - rows.start)
    >>> for_each_block(mark, 10, 3)
    >>> sum(seen)
    10
    """
    pieces = blocks(n, size)
    workers = min(threads or available_threads(), len(pieces))
    if workers <= 1:
        for rows in pieces:
            work(rows)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="whet") as pool:
        for done in [pool.submit(work, rows) for rows in pieces]:
            done.result()
