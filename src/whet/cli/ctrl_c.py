"""Ctrl-C in commands that change files: nothing is changed, or everything."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from whet.cli.exit_codes import CTRL_C


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
