"""Ctrl-C in commands that change files: nothing is changed, or everything."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import typer

from whet.cli.exit_codes import CTRL_C

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
