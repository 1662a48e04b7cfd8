"""Work in threads: blocks, one thread pool, and the memory that training may use.

Kernels release the interpreter lock, so threads are enough; results never depend on how many there are.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import numpy as np

from whet.arrays import Indices
from whet.errors import MemoryBudgetError

MOST_HELPERS = 64

T = TypeVar("T")
R = TypeVar("R")


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
    """Call `work` with every block of `n` rows, here and in other threads; an error in one block is raised here.

    >>> seen = [0] * 10
    >>> def mark(rows):
    ...     seen[rows] = [1] * (rows.stop - rows.start)
    >>> for_each_block(mark, 10, 3)
    >>> sum(seen)
    10
    """
    rest = iter(blocks(n, size))

    def run() -> None:
        try:
            for rows in rest:  # threads take turns: the interpreter lock makes `next` atomic
                work(rows)
        except BaseException:  # Ctrl-C too: blocks that have not begun are left out
            deque(rest, maxlen=0)
            raise

    in_threads(run, min(threads or available_threads(), -(-n // size)))


def in_threads(work: Callable[[], None], threads: int) -> None:
    """Call `work` here and in up to `threads` - 1 more threads at once; an error in one of them is raised here.

    For work that is shared out by a counter: threads that have not begun when this one is done are not waited for. They
    are kept for the next call, since one that is new often begins where the caller runs, and waits for it.

    >>> seen = []
    >>> in_threads(lambda: seen.append(1), 3)
    >>> 1 <= len(seen) <= 3
    True
    """
    others = [_helpers().submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        begun = [other for other in others if not other.cancel()]
        wait(begun)  # after an error, too: they write to arrays of the caller
    for other in begun:
        other.result()


@cache
def _helpers() -> ThreadPoolExecutor:
    """Threads that are made when all others are at work."""
    return ThreadPoolExecutor(MOST_HELPERS, thread_name_prefix="whet")


if hasattr(os, "register_at_fork"):  # a child has the pool, but not its threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)


def map_in_order(work: Callable[[T], R], items: Iterable[T], threads: int | None = None) -> Iterator[R]:
    """Results of `work` on each item, in the order of the items, a few of them computed ahead.

    Who stops early has wasted at most one item a thread, and one more. With one thread nothing is computed ahead.

    >>> list(map_in_order(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    workers = threads or available_threads()
    if workers <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="whet") as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


# Bit rows of all 162,336 features of a 24 x 24 window on 50,000 patches.
DEFAULT_MAX_MEMORY = 1 << 30


class MemoryBudgetWarning(UserWarning):
    """Not all features fit into the memory that training may take; a sample of them is trained."""


def within_budget(n_features: int, words: int, max_memory: int, rng: np.random.Generator) -> Indices | slice:
    """The features whose bit rows of `words` fit into `max_memory` bytes: all, or a random sample in order.

    >>> within_budget(10, 4, 1000, np.random.default_rng(0))
    slice(None, None, None)
    """
    fitting = max_memory // (8 * words)
    if n_features <= fitting:
        return slice(None)
    if fitting < 1:
        raise MemoryBudgetError(
            f"max_memory is {max_memory} bytes; the bits of one feature alone take {8 * words}: allow some hundred MB"
        )
    warnings.warn(
        f"the responses of {n_features:,} features take {8 * words * n_features / 2**20:,.0f} MB, "
        f"max_memory allows {max_memory / 2**20:,.0f} MB: training on {fitting:,} features drawn at random",
        MemoryBudgetWarning,
        stacklevel=3,
    )
    return np.sort(rng.choice(n_features, fitting, replace=False))
