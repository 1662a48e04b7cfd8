"""Warnings as a person should see them: one line each, without a place in the source."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
